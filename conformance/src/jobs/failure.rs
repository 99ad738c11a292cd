//! Ranks that fail, and what the other ranks observe.

use portolan_core::device::{Check, CommView, HandlerId};
use portolan_core::matching::Pattern;
use portolan_core::{Device, Error, ErrorKind, Group, ProcId, SendArgs, SendMode};

use crate::bytes::{check, content};
use crate::case::Verdict;
use crate::rank::Rank;
use crate::rings::{Plan, Player};
use crate::sut::{Job, Sut};

/// Runs `doomed` on the last rank, which fails afterwards, and `others` on the other ranks, with
/// the number of that rank.
fn mourn<S: Sut>(
    ranks: u32,
    doomed: impl Fn(&Rank<'_, S::Device>) + Sync,
    others: impl Fn(&Rank<'_, S::Device>, u32) + Sync,
) -> Verdict {
    mourn_in::<S>(&Job::new(ranks), doomed, others)
}

fn mourn_in<S: Sut>(
    job: &Job,
    doomed: impl Fn(&Rank<'_, S::Device>) + Sync,
    others: impl Fn(&Rank<'_, S::Device>, u32) + Sync,
) -> Verdict {
    S::run(job, |device| {
        let rank = Rank::new(device, 0);
        if rank.me() == rank.last() {
            doomed(&rank);
            device.declare_self_failed("it is what this test is about");
        } else {
            others(&rank, rank.last());
        }
    });
    Ok(())
}

/// Asserts that the error is about the failed rank, and names it.
#[track_caller]
fn names(error: &Error, rank: u32) {
    assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
    assert_eq!(error.peer(), Some(rank), "{error}");
    assert!(error.to_string().contains(&rank.to_string()), "{error}");
}

/// Tells the doomed rank that this rank is ready; the doomed rank waits for all.
fn ready<D: Device>(rank: &Rank<'_, D>) {
    rank.send(&rank.to(rank.last(), 77), &[])
        .expect("telling that one is ready");
}

fn all_ready<D: Device>(rank: &Rank<'_, D>) {
    for peer in 0..rank.last() {
        rank.take(&rank.from(peer, 77), 0);
    }
}

/// Makes progress until the failure is known here.
fn notice<D: Device>(rank: &Rank<'_, D>, dead: u32) {
    while rank.device.failure_of(ProcId::new(dead)).is_none() {
        // Progress itself may report the failure.
        let _ = rank.device.device_check(Check::NonBlocking);
        std::thread::yield_now();
    }
    let why = rank
        .device
        .failure_of(ProcId::new(dead))
        .expect("it is known");
    assert!(why.contains("what this test is about"), "{why}");
}

/// Receives that wait for the failed rank end with an error, blocking or not.
pub fn waiting_receives<S: Sut>(ranks: u32) -> Verdict {
    mourn::<S>(ranks, all_ready, |rank, dead| {
        let any_tag = rank.irecv(&rank.from(dead, None), 8);
        let one_tag = rank.irecv(&rank.from(dead, 1), 8);
        ready(rank);
        let error = rank
            .recv(&rank.from(dead, 2), &mut [0; 8])
            .expect_err("from a dead rank");
        names(&error, dead);
        for pending in [one_tag, any_tag] {
            names(&rank.finish(pending).0.expect_err("from a dead rank"), dead);
        }
        // So do receives that are started later.
        names(
            &rank
                .recv(&rank.from(dead, 2), &mut [0; 8])
                .expect_err("from a dead rank"),
            dead,
        );
        let late = rank.irecv(&rank.from(dead, 2), 8);
        names(&rank.finish(late).0.expect_err("from a dead rank"), dead);
    })
}

/// Receives from any source end, too: the message might have come from the dead rank.
pub fn wildcards<S: Sut>(ranks: u32) -> Verdict {
    mourn::<S>(ranks, all_ready, |rank, dead| {
        let pending = rank.irecv(&rank.from(None, 1), 8);
        ready(rank);
        names(
            &rank
                .finish(pending)
                .0
                .expect_err("a wildcard, and a rank died"),
            dead,
        );
    })
}

/// Sends to a dead rank end with an error, whether it dies before or while they wait.
pub fn sends<S: Sut>(ranks: u32) -> Verdict {
    mourn::<S>(ranks, all_ready, |rank, dead| {
        let long = rank.isend(&rank.to(dead, 1), content(1, rank.long()));
        let synchronous = rank.to(dead, 2).mode(SendMode::Synchronous);
        let short = rank.isend(&synchronous, content(1, 8));
        ready(rank);
        names(&rank.finish(short).0.expect_err("to a dead rank"), dead);
        // A device that buffers at the source may have completed this send before the death.
        if let Err(error) = rank.finish(long).0 {
            names(&error, dead);
        }
        notice(rank, dead);
        let error = rank
            .send(&rank.to(dead, 1), b"late")
            .expect_err("to a dead rank");
        names(&error, dead);
        let error = rank
            .send(&synchronous, &content(1, rank.long()))
            .expect_err("to a dead rank");
        names(&error, dead);
    })
}

/// Probes, active messages and flushes report the failure, too.
pub fn probes_and_active<S: Sut>(ranks: u32) -> Verdict {
    mourn::<S>(ranks, all_ready, |rank, dead| {
        ready(rank);
        let error = rank
            .device
            .probe_unchecked(&rank.from(dead, 1))
            .expect_err("a dead rank");
        names(&error, dead);
        notice(rank, dead);
        let error = rank
            .device
            .iprobe_unchecked(&rank.from(dead, 1))
            .expect_err("a dead rank");
        names(&error, dead);
        let (peer, id) = (ProcId::new(dead), HandlerId(HandlerId::OTHER));
        let error = rank
            .device
            .active_send(peer, id, [0, 0], &[])
            .expect_err("a dead rank");
        names(&error, dead);
    })
}

/// Messages that a rank sent before it failed are received.
pub fn what_was_sent_arrives<S: Sut>(ranks: u32) -> Verdict {
    let doomed = |rank: &Rank<'_, S::Device>| {
        for peer in 0..rank.last() {
            for tag in 0..20 {
                rank.send(&rank.to(peer, tag), &content(u64::from(tag), 100))
                    .expect("a send");
            }
        }
        all_ready(rank);
    };
    mourn::<S>(ranks, doomed, |rank, dead| {
        // The last message has arrived, so all have.
        rank.device
            .probe_unchecked(&rank.from(dead, 19))
            .expect("sent before the end");
        ready(rank);
        notice(rank, dead);
        for tag in 0..20 {
            let (_, bytes) = rank.take(&rank.from(dead, tag), 100);
            check(&bytes, u64::from(tag), "sent before the end");
        }
        names(
            &rank
                .recv(&rank.from(dead, None), &mut [0])
                .expect_err("no more"),
            dead,
        );
    })
}

/// The other ranks keep communicating, in every protocol.
pub fn the_rest_talk<S: Sut>(ranks: u32) -> Verdict {
    mourn::<S>(ranks, all_ready, |rank, dead| {
        ready(rank);
        notice(rank, dead);
        let (next, previous) = ((rank.me() + 1) % dead, (rank.me() + dead - 1) % dead);
        for len in [0, 100, rank.long()] {
            let received = rank.irecv(&rank.from(previous, 5), len);
            let sent = rank.isend(&rank.to(next, 5), content(5, len));
            check(&rank.done(received).1, 5, "among the living");
            rank.done(sent);
        }
    })
}

/// In collective contexts, a death also ends operations that wait for living ranks. In
/// point-to-point contexts it does not.
pub fn collective_contexts<S: Sut>(ranks: u32) -> Verdict {
    let doomed = |rank: &Rank<'_, S::Device>| {
        world(rank);
        all_ready(rank);
    };
    mourn::<S>(ranks, doomed, |rank, dead| {
        let comm = world(rank);
        assert_eq!(rank.device.dead_member(&comm.group), None);
        // A ring of the living ranks, in which none sends what the others wait for.
        let (next, previous) = ((rank.me() + 1) % dead, (rank.me() + dead - 1) % dead);
        let from = |context, tag| Pattern {
            context,
            source: Some(previous),
            tag: Some(tag),
        };
        let to = |tag| SendArgs::new(ProcId::new(next), comm.context + 1, rank.me(), tag);
        let mine = rank.irecv(&from(comm.context, 1), 5);
        let received = rank.irecv(&from(comm.context + 1, 1), 8);
        let offered = rank.isend(&to(2), content(2, rank.long()));
        ready(rank);
        names(&rank.finish(received).0.expect_err("a member died"), dead);
        // The send ends in any case: cancelled, or dropped by its receiver.
        if let Err(error) = rank.finish(offered).0 {
            names(&error, dead);
        }
        let blocking = rank.recv(&from(comm.context + 1, 3), &mut [0; 8]);
        names(&blocking.expect_err("a member died"), dead);
        let late = rank.send(&to(4), &content(4, rank.long()));
        names(&late.expect_err("a member died"), dead);
        assert_eq!(
            rank.device.dead_member(&comm.group),
            Some(ProcId::new(dead))
        );
        let living = Group::new((0..dead).map(ProcId::new).collect::<Vec<_>>());
        assert_eq!(rank.device.dead_member(&living), None);
        let args = SendArgs::new(ProcId::new(next), comm.context, rank.me(), 1);
        rank.send(&args, b"go on").expect("a send to the living");
        assert_eq!(rank.done(mine).1, b"go on");
    })
}

/// Operations that hooks drive end with the error when a rank of their communicator dies, whether
/// they wait for the dead rank or for living ones.
pub fn hooks<S: Sut>(ranks: u32) -> Verdict {
    let doomed = |rank: &Rank<'_, S::Device>| {
        world(rank);
        all_ready(rank);
    };
    mourn::<S>(ranks, doomed, |rank, dead| {
        let comm = world(rank);
        let player = Player::new(rank.device);
        let plan = |tag, lens: &[usize]| Plan {
            context: comm.context + 1,
            ..Plan::new(rank, tag, lens)
        };
        let waiting: Vec<_> = (0..3)
            .map(|tag| player.start(rank, plan(tag, &[8, rank.long(), 8])))
            .collect();
        ready(rank);
        let ends = |request| match rank.device.wait(request) {
            Err(error) => names(&error, dead),
            // Its neighbours may have finished all rounds before they learnt of the failure.
            Ok(_) => assert!(rank.next() != dead && rank.previous() != dead),
        };
        waiting.into_iter().for_each(ends);
        ends(player.start(rank, plan(4, &[8, rank.long()])));
        // The living ranks can go on.
        let (next, previous) = ((rank.me() + 1) % dead, (rank.me() + dead - 1) % dead);
        let living = Plan {
            next,
            previous,
            ..Plan::new(rank, 5, &[8, rank.long(), 0])
        };
        let request = player.start(rank, living);
        rank.device.wait(request).expect("a ring of the living");
    })
}

/// The communicator of all ranks.
fn world<D: Device>(rank: &Rank<'_, D>) -> CommView {
    let world = CommView {
        context: 2,
        contexts: 2,
        group: Group::world(rank.size()),
        rank: rank.me(),
    };
    rank.device
        .comm_init(None, &world)
        .expect("the first communicator");
    world
}

/// A rank that waits by spinning alone notices the failure, too.
pub fn while_spinning<S: Sut>(ranks: u32) -> Verdict {
    let job = Job::new(ranks).set("WAIT", "spin");
    mourn_in::<S>(&job, all_ready, |rank, dead| {
        ready(rank);
        let error = rank.recv(&rank.from(dead, 2), &mut [0; 8]);
        names(&error.expect_err("from a dead rank"), dead);
    })
}

/// Ending the device reports the failure instead of waiting for the dead rank.
pub fn the_end<S: Sut>(ranks: u32) -> Verdict {
    mourn::<S>(ranks, all_ready, |rank, dead| {
        ready(rank);
        let error = rank.device.end().expect_err("a rank is missing");
        assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
        notice(rank, dead);
    })
}
