//! Deaths after other deaths, and a rank that the others hold to be dead.

use libfabric_sys::{FI_EIO, fi_msg_tagged, fi_ops_tagged, fid_ep};
use portolan_core::Group;
use portolan_core::device::CommView;

use super::*;
use crate::native::inquiries::Note;
use crate::native::packets::MATCHED;

/// A communicator of three ranks whose second context is for collective operations.
fn of_three() -> CommView {
    CommView {
        context: 0,
        contexts: 2,
        group: Group::new((0..3).map(ProcId::new).collect::<Vec<_>>()),
        rank: 0,
    }
}

/// A receive of a collective operation has matched a message of a living rank, so that another
/// rank's death does not end it. The death of its sender does.
#[test]
fn a_receive_that_has_outlived_one_death_ends_with_that_of_its_sender() {
    let message = vec![7; LEN];
    let mut room = vec![0; LEN];
    let Some([mut zero, mut one, _two]) = cores() else {
        return; // The skip has been printed.
    };
    zero.tags.contexts().add(&of_three());
    // The second context is for collective operations.
    let pattern = Pattern {
        context: 1,
        ..from(FROM)
    };
    let args = SendArgs::new(ProcId::new(0), 1, FROM, TAG);
    // SAFETY: the buffers outlive the ranks.
    unsafe {
        let Core { ofi, tags } = &mut zero;
        let data = Data::Contig(ContigBuf::from_bytes_mut(&mut room));
        tags.start_receive(ofi, request(1), &pattern, data).unwrap();
        zero.mark();
        let Core { ofi, tags } = &mut one;
        let data = Data::Contig(ContigBuf::from_bytes(&message));
        tags.start_send(ofi, request(2), &args, data).unwrap();
    }
    until("nothing arrives", || {
        one.step();
        zero.step();
        zero.has_begun()
    });
    zero.ofi.shared.deaths.declare(2, "its node is gone");
    until("the death is never noticed", || {
        zero.step();
        zero.tags.contexts().is_dead(2)
    });
    for _ in 0..10_000 {
        zero.step();
        assert!(zero.end().is_none(), "its sender lives");
    }
    zero.ofi.shared.deaths.declare(1, "its node is gone");
    until("the receive never ends", || {
        zero.step();
        matches!(zero.end(), Some(End::Failed(_)))
    });
}

/// A rank that is held to be dead communicates with no other rank any more; what it sends to itself
/// arrives, or ends.
#[test]
fn a_rank_that_is_held_to_be_dead_hears_itself() {
    let messages = [vec![7; 8], vec![8; 1 << 20]];
    let mut rooms = [vec![0; 8], vec![0; 1 << 20]];
    let Some([mut zero, _one]) = pair() else {
        return; // The skip has been printed.
    };
    for dead in [false, true] {
        if dead {
            zero.ofi.shared.deaths.declare(0, "the others say so");
            until("it is never believed", || {
                zero.step();
                zero.tags.contexts().is_dead(1)
            });
        }
        for (message, room) in messages.iter().zip(&mut rooms) {
            room.fill(0);
            // SAFETY: the buffers outlive the ranks.
            unsafe {
                let Core { ofi, tags } = &mut zero;
                let data = Data::Contig(ContigBuf::from_bytes_mut(room));
                tags.start_receive(ofi, request(1), &from(0), data).unwrap();
                let data = Data::Contig(ContigBuf::from_bytes(message));
                tags.start_send(ofi, request(2), &args(0, 0), data).unwrap();
            }
            let mut ends = 0;
            until("a message to oneself never ends", || {
                zero.step();
                while let Some(end) = zero.end() {
                    assert!(
                        matches!(end, End::Over(status) if status.error.is_none()),
                        "{end:?}"
                    );
                    ends += 1;
                }
                ends == 2
            });
            assert!(room == message, "dead: {dead}");
        }
    }
}

/// A synchronous send of a collective operation fails because a third rank dies. Its receiver lives
/// and may match the message all the same, and names it by its number.
#[test]
fn a_report_that_comes_late_completes_no_other_send() {
    let synchronous = |context| SendArgs {
        mode: portolan_core::SendMode::Synchronous,
        ..SendArgs::new(ProcId::new(1), context, 0, TAG)
    };
    let start = |zero: &mut Core, number, context| {
        let Core { ofi, tags } = zero;
        let data = Data::Contig(ContigBuf::from_bytes(b"x"));
        // SAFETY: the byte lives as long as the program.
        let started = unsafe { tags.start_send(ofi, request(number), &synchronous(context), data) };
        started.expect("there is memory");
        tags.numbers[&request(number).to_bits()]
    };
    let is_free = |zero: &mut Core, number| matches!(zero.tags.slots.at(number).what, What::Free);
    for reported in [true, false] {
        let Some([mut zero, mut one, _two]) = cores() else {
            return; // The skip has been printed.
        };
        zero.tags.contexts().add(&of_three());
        let first = start(&mut zero, 1, 1);
        until("the message never leaves", || {
            zero.step();
            one.serve();
            zero.tags.counts.sent == 1 && !zero.tags.is_under_way()
        });
        assert!(zero.end().is_none(), "nobody has matched it");
        zero.ofi.shared.deaths.declare(2, "its node is gone");
        until("the send never ends", || {
            zero.step();
            matches!(zero.end(), Some(End::Failed(2)))
        });
        let second = start(&mut zero, 2, 0);
        assert_ne!(second, first, "the number may still be reported");
        if reported {
            let matched = |number: u32| Note::plain(1, MATCHED, [number.into(), 0]);
            zero.tags.hear(&matched(first));
            until("the message never leaves", || {
                zero.step();
                one.serve();
                zero.tags.counts.sent == 2 && !zero.tags.is_under_way()
            });
            assert!(zero.end().is_none(), "nobody has matched the second one");
            zero.tags.hear(&matched(second));
            assert!(matches!(zero.end(), Some(End::Over(_))));
        } else {
            zero.ofi.shared.deaths.declare(1, "its node is gone");
            until("the second send never ends", || {
                zero.step();
                matches!(zero.end(), Some(End::Failed(1)))
            });
        }
        assert!(is_free(&mut zero, first) && is_free(&mut zero, second));
    }
}

pub(super) type Receive = unsafe extern "C" fn(*mut fid_ep, *const fi_msg_tagged, u64) -> isize;

/// Takes a look, and never answers it.
unsafe extern "C" fn never_answers(_: *mut fid_ep, _: *const fi_msg_tagged, _: u64) -> isize {
    0
}

unsafe extern "C" fn fails(_: *mut fid_ep, _: *const fi_msg_tagged, _: u64) -> isize {
    -(FI_EIO as isize)
}

/// Makes this the rank's function for receives and looks, and returns the former one. The table is
/// never freed, since the endpoint uses it as long as it is open.
pub(super) fn replace(zero: &Native<Single>, receive: Receive) -> Receive {
    let ep = zero.shared.lock().ofi.link.ep.get();
    // SAFETY: an open endpoint, which only this thread uses, and whose table has at least the
    // checked size.
    unsafe {
        assert!((*(*ep).tagged).size >= size_of::<fi_ops_tagged>());
        let mut table = Box::new((*ep).tagged.read());
        table.size = size_of::<fi_ops_tagged>();
        let former = table.recvmsg.replace(receive);
        (*ep).tagged = Box::leak(table);
        former.expect("the provider matches")
    }
}

/// All kinds of probes tell that this rank is dead, and why.
fn probes_fail(zero: &Native<Single>, why: &str) {
    for pattern in [
        from(0),
        from(1),
        Pattern {
            source: None,
            ..from(0)
        },
    ] {
        let errors = [
            zero.iprobe(&pattern).unwrap_err(),
            zero.probe(&pattern).unwrap_err(),
            zero.improbe_unchecked(&pattern).unwrap_err(),
            zero.mprobe_unchecked(&pattern).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}

#[test]
fn a_probe_ends_when_the_broken_endpoint_does_not_answer() {
    const WHY: &str = "its endpoint is broken";
    let Some([zero, _one]) = opened() else {
        return; // The skip has been printed.
    };
    let zero = Native::<Single>::new(zero, &Settings::default()).unwrap();
    zero.shared.lock().ofi.shared.deaths.declare(0, WHY);
    until("it is never believed", || zero.iprobe(&from(1)).is_err());
    // As long as the endpoint answers, the rank sees its own messages.
    zero.send_contig(&args(0, 0), b"x").unwrap();
    assert_eq!(zero.probe(&from(0)).unwrap().bytes, 1);
    replace(&zero, never_answers);
    probes_fail(&zero, WHY);
    let core = zero.shared.lock();
    let lost = core.tags.slots.iter().filter(|slot| slot.under_way);
    assert_eq!(
        lost.count(),
        1,
        "a look that is not answered for each probe"
    );
}

#[test]
fn a_probe_ends_when_the_endpoint_refuses_to_look() {
    let Some([zero, _one]) = opened() else {
        return; // The skip has been printed.
    };
    let zero = Native::<Single>::new(zero, &Settings::default()).unwrap();
    replace(&zero, fails);
    probes_fail(&zero, "looking for a message failed");
    assert!(zero.shared.lock().ofi.shared.deaths.is_dead(0));
}
