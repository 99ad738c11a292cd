//! Ranks that have no memory for an operation of their own while the others have it.

mod common;

use std::ptr::NonNull;

use common::{World, on_ranks};
use portolan_coll::inter::{self, InterOperation};
use portolan_coll::{Many, Operation, Options, Persistent};
use portolan_core::comm::{InterCommunicator, RemoteLeader, Tag};
use portolan_core::transport::memory;
use portolan_core::{Device, ErrorKind, MemoryKind, Result, TypedBuf};
use portolan_datatype::{Layout, Op};

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
