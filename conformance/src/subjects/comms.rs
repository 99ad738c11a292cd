//! The device hears of communicators.

use portolan_core::device::CommView;
use portolan_core::matching::Pattern;
use portolan_core::{Device, ErrorKind, Group, ProcId, SendArgs};

use crate::case::Verdict;
use crate::rank::{Rank, fails};

fn view<D: Device>(rank: &Rank<'_, D>, n: u32, group: Group) -> CommView {
    let me = group
        .rank_of(ProcId::new(rank.me()))
        .expect("everybody is a member");
    CommView {
        context: rank.context(n),
        contexts: 2,
        group,
        rank: me,
    }
}

/// Messages travel in the contexts of a new communicator; when it has gone, its contexts are free.
pub fn init_and_free<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let world = view(rank, 4, Group::world(rank.size()));
    for round in 0..5_u8 {
        rank.device.comm_init(None, &world).expect("a communicator");
        let child = view(rank, 6, Group::world(rank.size()));
        rank.device
            .comm_init(Some(&world), &child)
            .expect("a second one");
        for context in [world.context, world.context + 1, child.context] {
            let to = ProcId::new(rank.next());
            let args = SendArgs::new(to, context, rank.me(), 1);
            rank.send(&args, &[round]).expect("a small send");
            let pattern = Pattern {
                context,
                source: Some(rank.previous()),
                tag: Some(1),
            };
            assert_eq!(rank.take(&pattern, 1).1, [round]);
        }
        rank.device.comm_free(&child);
        rank.device.comm_free(&world);
        rank.barrier();
    }
    Ok(())
}

/// Local ranks are those of the communicator: in a reversed one, messages name reversed ranks.
pub fn reversed<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let members: Vec<_> = (0..rank.size()).rev().map(ProcId::new).collect();
    let comm = view(rank, 4, Group::new(members));
    assert_eq!(comm.rank, rank.last() - rank.me());
    rank.device.comm_init(None, &comm).expect("a communicator");
    let local_next = (comm.rank + 1) % rank.size();
    let local_previous = (comm.rank + rank.size() - 1) % rank.size();
    let to = comm.group.process(local_next).expect("a member");
    rank.send(&SendArgs::new(to, comm.context, comm.rank, 1), b"reversed")
        .expect("a small send");
    let pattern = Pattern::any(comm.context);
    let (status, bytes) = rank.take(&pattern, 8);
    assert_eq!(
        (status.source, bytes.as_slice()),
        (local_previous, b"reversed".as_slice())
    );
    rank.device.comm_free(&comm);
    Ok(())
}

/// A context that is in use cannot be given away again.
pub fn context_in_use<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let comm = view(rank, 4, Group::world(rank.size()));
    rank.device.comm_init(None, &comm).expect("a communicator");
    let again = rank.device.comm_init(None, &comm);
    fails(
        again,
        ErrorKind::InvalidCommunicator,
        "the same context twice",
    );
    let overlapping = view(rank, 5, Group::world(rank.size()));
    let overlap = rank.device.comm_init(None, &overlapping);
    fails(
        overlap,
        ErrorKind::InvalidCommunicator,
        "contexts that overlap",
    );
    rank.device.comm_free(&comm);
    rank.device
        .comm_init(None, &overlapping)
        .expect("its contexts are free now");
    rank.device.comm_free(&overlapping);
    Ok(())
}
