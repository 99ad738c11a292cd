//! Messages that are left over when their communicator is freed: no later communicator with the
//! same context receives them, and their senders do not wait for ever.

use super::create::group;
use super::*;
use crate::buffer::ContigBuf;
use crate::comm::context::{STRIDE, WORDS};
use crate::comm::meet::Call;
use crate::comm::tags::Of;
use crate::device::Check;
use crate::matching::Pattern;
use crate::request::Request;

/// More creations than it takes until an id comes back that was freed before them.
const MANY: usize = 200;

/// Calls `create` until its communicator has this context.
fn again_at(context: u32, create: impl Fn() -> World) -> World {
    let created = (0..MANY).map(|_| create());
    let found = created.into_iter().find(|new| new.context() == context);
    found.expect("the context comes back")
}

/// Sends to rank 1 and does not wait.
fn leave(comm: &World, mode: SendMode, tag: u32, bytes: &'static [u8]) -> Request {
    let args = comm.send_args(mode, 1, Tag(tag)).unwrap();
    let buf = ContigBuf::from_bytes(bytes);
    // SAFETY: the arguments are the communicator's, and the bytes are there for ever.
    unsafe { comm.device().isend_contig_unchecked(&args, buf) }.unwrap()
}

#[test]
fn a_message_that_nobody_received_is_discarded() {
    static LONG: [u8; 1 << 20] = [7; 1 << 20];
    on_all(2, |world| {
        let first = world.dup().unwrap();
        let context = first.context();
        let sends = (world.rank() == 0).then(|| {
            [
                leave(&first, SendMode::Standard, 1, b"short"),
                leave(&first, SendMode::Synchronous, 2, b"synchronous"),
                leave(&first, SendMode::Standard, 3, &LONG),
            ]
        });
        world.barrier().unwrap();
        if world.rank() == 1 {
            let any = first.pattern(Source::Any, Tags::Any).unwrap();
            assert!(world.device().iprobe_unchecked(&any).unwrap().is_some());
        }
        drop(first);
        for send in sends.into_iter().flatten() {
            world.device().wait(send).unwrap();
        }
        world.barrier().unwrap();
        for at in context..context + STRIDE {
            let left = world.device().iprobe_unchecked(&Pattern::any(at));
            assert_eq!(left.unwrap(), None);
        }
    });
}

/// Rank 0 sends after rank 1 has freed the communicator. Rank 1 makes others meanwhile.
#[test]
fn a_message_that_comes_late_is_not_received_on_another_communicator() {
    let (freed, sent) = (std::sync::Barrier::new(3), std::sync::Barrier::new(3));
    on_all(3, |world| {
        let first = world.dup().unwrap();
        let context = first.context();
        let pair = || {
            let pair = world.create_group(&group(&[1, 2]), Tag(1));
            pair.unwrap().unwrap()
        };
        if world.rank() == 0 {
            freed.wait();
            let late = leave(&first, SendMode::Synchronous, 1, b"late");
            sent.wait();
            world.device().wait(late).unwrap();
        } else {
            drop(first);
            let next = pair();
            assert_ne!(next.context(), context, "it may still be on its way");
            freed.wait();
            sent.wait();
            drop(next);
            let again = again_at(context, pair);
            world.device().device_check(Check::NonBlocking).unwrap();
            let any = again.pattern(Source::Any, Tags::Any).unwrap();
            assert_eq!(world.device().iprobe_unchecked(&any).unwrap(), None);
        }
        world.barrier().unwrap();
    });
}

/// The root of a broadcast is done with it before another rank dies; the rank that was to receive
/// has heard of the death first.
#[test]
fn an_operation_that_a_death_ended_leaves_nothing_behind() {
    let (made, sent) = (std::sync::Barrier::new(3), std::sync::Barrier::new(3));
    on_some::<Single>(3, |world| {
        let all = world.dup().unwrap();
        let context = all.context();
        made.wait();
        if world.rank() == 0 {
            all.bcast(&mut [1], 0).unwrap();
        }
        sent.wait();
        if world.rank() == 2 {
            return world
                .device()
                .declare_self_failed("it is what this test is about");
        }
        while all.check_members().is_ok() {
            std::thread::yield_now();
        }
        let error = all.bcast(&mut [0], 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerFailed);
        drop(all);
        let living = || {
            let living = world.create_group(&group(&[0, 1]), Tag(1));
            living.unwrap().unwrap()
        };
        let again = again_at(context, living);
        let mut data = [if again.rank() == 0 { 2 } else { 0 }];
        again.bcast(&mut data, 0).unwrap();
        assert_eq!(data, [2]);
    });
}

/// Rank 2 dies between two messages of an agreement. Rank 0 has received the one that it needs and
/// makes its communicator; rank 1 waits for the other one and makes none.
#[test]
fn an_agreement_that_a_death_ended_here_only_leaves_nothing_behind() {
    let made = std::sync::Barrier::new(2);
    on_some::<Single>(3, |world| {
        if world.rank() == 2 {
            world.meet(Call::Dup).unwrap();
            let args = world.collective_args(0, Of::And.in_round(0)).unwrap();
            world.send_on(&args, &[0xff; (WORDS + 1) * 8]).unwrap();
            made.wait();
            return world
                .device()
                .declare_self_failed("it is what this test is about");
        }
        let first = world.dup();
        let living = || {
            let living = world.create_group(&group(&[0, 1]), Tag(1));
            living.unwrap().unwrap()
        };
        if world.rank() == 0 {
            let first = first.unwrap();
            assert_eq!(first.context(), 4);
            made.wait();
            leave(&first, SendMode::Standard, 1, b"early");
            drop(living());
            leave(&first, SendMode::Standard, 2, b"late");
        } else {
            assert_eq!(first.unwrap_err().kind(), ErrorKind::PeerFailed);
            drop(living());
        }
        let again = again_at(4, living);
        world.device().device_check(Check::NonBlocking).unwrap();
        let any = again.pattern(Source::Any, Tags::Any).unwrap();
        assert_eq!(world.device().iprobe_unchecked(&any).unwrap(), None);
        again.barrier().unwrap();
    });
}

/// Rank 0 sends on a duplicate that rank 1 has given up.
#[test]
fn a_duplicate_that_was_given_up_leaves_nothing_behind() {
    on_all(2, |world| {
        let pending = world.idup().unwrap();
        let send = if world.rank() == 0 {
            let first = pending.wait().unwrap();
            Some(leave(&first, SendMode::Synchronous, 1, b"synchronous"))
        } else {
            while !pending.is_complete() {
                std::thread::yield_now();
            }
            drop(pending);
            None
        };
        world.barrier().unwrap();
        let next = world.idup().unwrap().wait().unwrap();
        if let Some(send) = send {
            world.device().wait(send).unwrap();
        }
        next.barrier().unwrap();
    });
}

/// A rank that leaves its job, maybe because of an error, has not received what waits there.
#[test]
fn what_the_last_communicator_leaves_behind_was_not_received() {
    on_some::<Single>(2, |world| {
        if world.rank() == 0 {
            let send = leave(&world, SendMode::Synchronous, 1, b"synchronous");
            let error = world.device().wait(send).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
            return;
        }
        let any = world.pattern(Source::Any, Tags::Any).unwrap();
        while world.device().iprobe_unchecked(&any).unwrap().is_none() {
            std::thread::yield_now();
        }
        let device = world.device_handle();
        drop(world);
        device.declare_self_failed("it left after an error");
    });
}

/// Rank 1 gives up a duplicate before its part in the agreement has begun, and frees the parent.
/// Rank 0's message waits here then, and the agreement still needs it.
#[test]
fn what_a_pending_agreement_needs_is_not_discarded() {
    let given_up = std::sync::Barrier::new(2);
    on_all(2, |world| {
        let parent = world.dup().unwrap();
        if world.rank() == 0 {
            let pending = parent.idup().unwrap();
            world.barrier().unwrap();
            drop(parent);
            given_up.wait();
            pending.wait().unwrap();
        } else {
            world.barrier().unwrap();
            let own = world.pattern(Source::Rank(1), Tags::Any).unwrap();
            // SAFETY: the pattern is the communicator's, and there is no byte to write.
            let gate = unsafe {
                let nothing = ContigBuf::from_bytes_mut(&mut []);
                world.device().irecv_contig_unchecked(&own, nothing)
            };
            drop(parent.idup_after(|| gate.map(Some)).unwrap());
            drop(parent);
            given_up.wait();
            leave(&world, SendMode::Standard, 1, b"");
        }
        world.barrier().unwrap();
        assert_eq!(world.live(), 1);
    });
}

/// The ids that are withheld are offered when no others are left.
#[test]
fn all_ids_can_be_used() {
    on_all(2, |world| {
        let makers: [fn(&World) -> Result<World>; 2] =
            [|world| world.dup(), |world| world.idup()?.wait()];
        for make in makers {
            let mut kept = Vec::new();
            let error = loop {
                match make(&world) {
                    Ok(copy) => kept.push(copy),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::Exhausted);
            let context = kept.swap_remove(7).context();
            let copy = make(&world).unwrap();
            assert_eq!(copy.context(), context);
            copy.barrier().unwrap();
        }
    });
}
