//! Deaths after other deaths, and a rank that the others hold to be dead.

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
