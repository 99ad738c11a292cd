//! Ranks that have no memory for an operation of their own while the others have it.

mod common;

use std::alloc::{GlobalAlloc, System};
use std::cell::Cell;
use std::ptr::NonNull;

use common::{World, on_ranks};
use portolan_coll::inter::{self, InterOperation};
use portolan_coll::{Counters, Many, Operation, Options, Persistent, counted, run, select};
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

/// An alltoall of this length, of data that does not lie in one piece, tries messages after eight
/// operations over boards, and the algorithm that the table names needs memory for them. Once the
/// ranks have agreed on messages, the rank that has no memory owes the other one a message.
#[test]
fn a_rank_without_memory_does_not_keep_the_other_waiting() {
    const LEN: usize = 96 << 10;
    const OVER_BOARDS: usize = 8;
    let mut options = Options::default();
    options.table = select::Table::with(select::parse("alltoall bruck").unwrap());
    on_ranks(memory::network(2), &options, |world| {
        // Every other byte.
        let layout = Layout::resized(&Layout::of::<u8>(), 0, 2).unwrap();
        let me = world.rank() as usize;
        let exchange = |mine: &mut [u8], theirs: &mut [u8]| {
            let alltoall = Operation::Alltoall {
                send: Some(Many::Equal(few(mine, LEN, &layout))),
                recv: Many::Equal(few(theirs, LEN, &layout)),
            };
            // SAFETY: the buffers outlive the call.
            unsafe { run(world, &alltoall) }
        };
        // SAFETY: a barrier has no buffers.
        unsafe { run(world, &Operation::Barrier) }.unwrap();
        for round in 0..OVER_BOARDS + 6 {
            let by_messages = round >= OVER_BOARDS;
            let mut mine = vec![1 + me as u8; 4 * LEN];
            let mut theirs = vec![9; 4 * LEN];
            let before = counted(world, Counters::Messages);
            // Only the first operation allocates: its memory is kept for the others.
            let is_first = round == OVER_BOARDS;
            NONE_LEFT.set(is_first && me == 0);
            let outcome = exchange(&mut mine, &mut theirs);
            NONE_LEFT.set(false);
            let sent = counted(world, Counters::Messages) - before;
            assert_eq!(sent, u64::from(by_messages), "round {round}");
            match (is_first, me) {
                (true, 0) => {
                    has_no_memory(outcome);
                    assert!(theirs[2 * LEN..] == [9; 2 * LEN]);
                }
                (true, _) => {
                    let error = outcome.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");
                }
                _ => {
                    outcome.unwrap();
                    let all = theirs.chunks_exact(2).enumerate();
                    let from = |at: usize| 1 + (at / LEN) as u8;
                    assert!({ all }.all(|(at, pair)| *pair == [from(at), 9]));
                }
            }
        }
    });
}
