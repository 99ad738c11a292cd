//! Deaths after other deaths, and a rank that the others hold to be dead.

use portolan_core::Group;
use portolan_core::device::CommView;

use super::*;

/// A receive of a collective operation has matched a message of a living rank, so that another
/// rank's death does not end it. The death of its sender does.
#[test]
fn a_receive_that_has_outlived_one_death_ends_with_that_of_its_sender() {
    let message = vec![7; LEN];
    let mut room = vec![0; LEN];
    let Some([mut zero, mut one, _two]) = cores() else {
        return; // The skip has been printed.
    };
    zero.tags.contexts().add(&CommView {
        context: 0,
        contexts: 2,
        group: Group::new((0..3).map(ProcId::new).collect::<Vec<_>>()),
        rank: 0,
    });
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
