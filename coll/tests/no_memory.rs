//! Ranks that have no memory for an operation of their own while the others have it.

mod common;

use std::alloc::{GlobalAlloc, System};
use std::cell::Cell;
use std::ptr::NonNull;

use common::{World, on_ranks};
use portolan_coll::inter::{self, InterOperation};
use portolan_coll::{Counters, Many, Operation, Options, Persistent, counted, run};
use portolan_core::comm::{InterCommunicator, RemoteLeader, Tag};
use portolan_core::transport::memory;
use portolan_core::{Device, ErrorKind, MemoryKind, Result, TypedBuf};
use portolan_datatype::{Layout, Op};

/// An allocator that may have no memory for what collective operations allocate for themselves.
struct Scarce;

std::thread_local! {
    static NONE_LEFT: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: every call that is not refused is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Scarce {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        // Nothing else is aligned like that.
        if layout.align() == 64 && NONE_LEFT.get() {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: std::alloc::Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Scarce = Scarce;

/// More bytes than any address space has, though few enough to be added up.
const VAST: usize = 1 << 56;

/// A buffer of that length. No operation on it ever begins.
fn vast(layout: &Layout) -> TypedBuf<'_> {
    TypedBuf {
        ptr: NonNull::dangling().as_ptr(),
        count: VAST,
        layout,
        memory: MemoryKind::Host,
    }
}

fn few<'a>(values: &mut [u8], count: usize, layout: &'a Layout) -> TypedBuf<'a> {
    TypedBuf {
        ptr: values.as_mut_ptr(),
        count,
        layout,
        memory: MemoryKind::Host,
    }
}

/// Runs `body` on two ranks that compare their calls.
fn on_checked(body: impl Fn(&World) + Sync) {
    let mut options = Options::default();
    options.compare = true;
    on_ranks(memory::network(2), &options, body);
}

#[track_caller]
fn has_no_memory<T>(outcome: Result<T>) {
    let error = outcome.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
}

/// The rank that has no memory makes another operation instead. It must not have told the others of
/// the first one.
#[test]
fn a_persistent_operation_without_memory_was_not_compared() {
    on_checked(|world| {
        let layout = Layout::byte();
        if world.rank() == 1 {
            let alltoall = Operation::Alltoall {
                send: None,
                recv: Many::Equal(vast(&layout)),
            };
            has_no_memory(Persistent::new(world, &alltoall));
        }
        let mut blocks = [world.rank() as u8; 2];
        let alltoall = Operation::Alltoall {
            send: None,
            recv: Many::Equal(few(&mut blocks, 1, &layout)),
        };
        let mut alltoall = Persistent::new(world, &alltoall).unwrap();
        // SAFETY: the buffer lives until the operation is over.
        let request = unsafe { alltoall.start() }.unwrap();
        world.device().wait(request).unwrap();
        assert_eq!(blocks, [0, 1]);
    });
}

#[test]
fn a_persistent_operation_of_two_groups_without_memory_was_not_compared() {
    on_checked(|world| {
        let (me, layout) = (world.rank(), Layout::of::<u8>());
        let half = world.split(Some(me), 0).unwrap().unwrap();
        let remote = RemoteLeader {
            peer: world,
            rank: 1 - me,
            tag: Tag(1),
        };
        let comm = InterCommunicator::create(&half, 0, Some(remote)).unwrap();
        let allreduce = |send, recv| {
            let op = &Op::SUM;
            inter::persistent(&comm, &InterOperation::Allreduce { send, recv, op })
        };
        if me == 1 {
            has_no_memory(allreduce(vast(&layout), vast(&layout)));
        }
        let (mut mine, mut theirs) = ([me as u8], [9]);
        let (send, recv) = (few(&mut mine, 1, &layout), few(&mut theirs, 1, &layout));
        let mut made = allreduce(send, recv).unwrap();
        // SAFETY: the buffers live until the operation is over.
        let request = unsafe { made.start() }.unwrap();
        world.device().wait(request).unwrap();
        assert_eq!(theirs, [1 - me as u8]);
    });
}

/// Two ranks leave an allreduce of this length to messages. Once they have agreed to do so, the
/// rank that has no memory for it owes the other one a message.
#[test]
fn a_rank_without_memory_does_not_keep_the_other_waiting() {
    const LEN: usize = 96 << 10;
    on_ranks(memory::network(2), &Options::default(), |world| {
        let layout = Layout::of::<u8>();
        let sum = |values: &mut [u8]| {
            let allreduce = Operation::Allreduce {
                send: None,
                recv: few(values, LEN, &layout),
                op: &Op::SUM,
            };
            // SAFETY: the buffer outlives the call.
            unsafe { run(world, &allreduce) }
        };
        let me = world.rank();
        // SAFETY: a barrier has no buffers.
        unsafe { run(world, &Operation::Barrier) }.unwrap();
        for round in 0..6 {
            let mut values = vec![1 + me as u8; LEN];
            let before = counted(world, Counters::Messages);
            // Only the first operation allocates: its memory is kept for the others.
            NONE_LEFT.set(round == 0 && me == 0);
            let outcome = sum(&mut values);
            NONE_LEFT.set(false);
            assert_eq!(counted(world, Counters::Messages), before + 1);
            match (round, me) {
                (0, 0) => {
                    has_no_memory(outcome);
                    assert_eq!(values, [1; LEN]);
                }
                (0, _) => {
                    let error = outcome.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");
                }
                _ => {
                    outcome.unwrap();
                    assert_eq!(values, [3; LEN]);
                }
            }
        }
    });
}
