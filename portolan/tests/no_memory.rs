//! Collective operations on vectors of unknown length for which one rank has no memory.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::jobs;
use portolan::{Comm, ErrorKind, Result, World};

/// An allocator that may have no memory for anything long.
struct Scarce;

std::thread_local! {
    /// How many more long pieces of memory this thread gets.
    static LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// The vectors are longer, and nothing else that an operation allocates is.
const LONG: usize = 1 << 18;

// SAFETY: every call that is not refused is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Scarce {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > LONG {
            match LEFT.get() {
                0 => return std::ptr::null_mut(),
                u32::MAX => {}
                left => LEFT.set(left - 1),
            }
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Scarce = Scarce;

/// Calls an operation for which rank `poor` has `left` long pieces of memory. Every rank is told
/// that one of them has none, and the next operation works.
fn none_has_it<T>(comm: &Comm, (poor, left): (u32, u32), call: impl FnOnce() -> Result<T>) {
    comm.barrier().unwrap();
    if comm.rank() == poor {
        LEFT.set(left);
    }
    let outcome = call();
    LEFT.set(u32::MAX);
    let error = outcome.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    let own = error.to_string().contains("no memory to receive");
    assert_eq!(own, comm.rank() == poor, "rank {}: {error}", comm.rank());
    let all = comm.allgather_vecs(&[comm.rank()]).unwrap();
    assert_eq!(all.len(), comm.size() as usize);
}

#[test]
fn where_one_rank_has_no_memory_every_rank_is_told() {
    jobs(&[2, 3], |world: World| -> Result<()> {
        let (comm, n) = (world.comm(), world.size());
        let part = || vec![comm.rank() as u8; LONG + 1];
        let (mine, parts) = (part(), vec![part(); n as usize]);
        for root in 0..n {
            for poor in 0..n {
                none_has_it(&comm, (poor, 0), || comm.allgather_vecs(&mine));
                none_has_it(&comm, (poor, 0), || comm.alltoall_vecs(&parts));
                none_has_it(&comm, (poor, 0), || comm.scatter_vecs(&parts, root));
                if poor == root {
                    none_has_it(&comm, (poor, 0), || comm.gather_vecs(&mine, root));
                } else {
                    let mut data = mine.clone();
                    none_has_it(&comm, (poor, 0), || comm.bcast_vec(&mut data, root));
                    assert!(data == mine, "a vector that is kept");
                }
            }
        }
        Ok(())
    });
}

/// It has some of the memory: for what it sends, say, and not for what it receives.
#[test]
fn nor_does_it_help_to_have_a_part_of_the_memory() {
    jobs(&[2, 3], |world: World| -> Result<()> {
        let (comm, n) = (world.comm(), world.size());
        let part = || vec![comm.rank() as u8; LONG + 1];
        let (mine, parts) = (part(), vec![part(); n as usize]);
        for poor in 0..n {
            // The values of all ranks, and a vector for each.
            for left in 0..=n {
                none_has_it(&comm, (poor, left), || comm.allgather_vecs(&mine));
                none_has_it(&comm, (poor, left), || comm.gather_vecs(&mine, poor));
                none_has_it(&comm, (poor, left + 1), || comm.alltoall_vecs(&parts));
            }
            none_has_it(&comm, (poor, 1), || comm.scatter_vecs(&parts, poor));
        }
        Ok(())
    });
}
