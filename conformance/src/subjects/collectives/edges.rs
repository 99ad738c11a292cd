//! Operations along the edges of a topology.

use portolan_coll::{Operation, Options};
use portolan_core::comm::{Communicator, Dimension, Neighbour, Neighbours};
use portolan_core::{Device, ErrorKind};

use super::buffer::{Buffer, Bytes, Form, UNIT};
use super::{Call, world};
use crate::case::Verdict;
use crate::rank::{Rank, fails};

/// How many units go along an edge in a lane.
fn units(from: u32, to: u32, lane: u32) -> usize {
    [2, 0, 900, 1][(from + 2 * to + lane) as usize % 4]
}

/// Exchanges data with all neighbours, in every form of the call.
fn exchange<D: Device>(comm: &Communicator<D>) {
    let me = comm.rank();
    let Neighbours {
        sources,
        destinations,
    } = comm.neighbours().expect("a topology");
    let there = |all: &[Neighbour]| -> Vec<(usize, u32, u32)> {
        let all = all.iter().enumerate();
        all.filter_map(|(place, n)| Some((place, n.rank?, n.lane)))
            .collect()
    };
    for (turn, call) in Call::ALL.into_iter().enumerate() {
        let gathered = |from: u32| Bytes::content(from, 0, units(from, 0, 0) * UNIT);
        let lens = sources
            .iter()
            .map(|n| n.rank.map_or(1, |from| units(from, 0, 0)));
        let lens: Vec<_> = lens.collect();
        let mut mine = Buffer::one(units(me, 0, 0), turn == 0);
        mine.put(0, &gathered(me));
        let mut all = Buffer::new(Form::Blocks, &lens, turn == 1);
        let mut expected = Buffer::new(Form::Blocks, &lens, turn == 1);
        for (place, from, _) in there(&sources) {
            expected.put(place, &gathered(from));
        }
        let operation = Operation::NeighbourAllgather {
            send: mine.typed(),
            recv: all.many(),
        };
        // SAFETY: the buffers outlive the operation.
        unsafe { call.operation(comm, &operation) }.expect("a neighbour allgather");
        assert_eq!(all.memory(), expected.memory(), "{call:?}");

        let sent = |n: &Neighbour| n.rank.map_or(1, |to| units(me, to, n.lane));
        let got = |n: &Neighbour| n.rank.map_or(1, |from| units(from, me, n.lane));
        let to: Vec<_> = destinations.iter().map(sent).collect();
        let from: Vec<_> = sources.iter().map(got).collect();
        let mut send = Buffer::new(Form::Layouts, &to, turn == 0);
        let mut recv = Buffer::new(Form::Layouts, &from, turn == 1);
        let mut expected = Buffer::new(Form::Layouts, &from, turn == 1);
        for (place, to, lane) in there(&destinations) {
            let len = units(me, to, lane) * UNIT;
            send.put(place, &Bytes::content(me + 50 * lane, to, len));
        }
        for (place, from, lane) in there(&sources) {
            let len = units(from, me, lane) * UNIT;
            expected.put(place, &Bytes::content(from + 50 * lane, me, len));
        }
        let operation = Operation::NeighbourAlltoall {
            send: send.many(),
            recv: recv.many(),
        };
        // SAFETY: as above.
        unsafe { call.operation(comm, &operation) }.expect("a neighbour alltoall");
        assert_eq!(recv.memory(), expected.memory(), "{call:?}");
    }
}

/// On grids, including missing neighbours, and one rank on both sides.
pub fn neighbours_on_grids<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    world(rank, Options::default(), |comm| {
        let size = rank.size();
        let grids = [
            vec![Dimension::open(size)],
            vec![Dimension::periodic(size)],
            vec![Dimension::periodic(size / 2), Dimension::periodic(2)],
            vec![Dimension::periodic(1), Dimension::open(size)],
        ];
        for grid in grids
            .iter()
            .filter(|grid| grid.iter().all(|dim| dim.size > 0))
        {
            if let Some(grid) = comm.cart_create(grid, false).expect("a grid") {
                exchange(&grid);
            }
        }
    });
    Ok(())
}

/// On graphs, with duplicate edges, edges from a rank to itself, and ranks without edges.
pub fn neighbours_in_graphs<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    world(rank, Options::default(), |comm| {
        let (me, next, previous) = (rank.me(), rank.next(), rank.previous());
        let ring = comm
            .dist_graph_create_adjacent(vec![previous, me, previous], vec![next, next, me], false)
            .expect("a ring");
        exchange(&ring);
        // All ranks send to rank 0 and receive from none.
        let sources: Vec<_> = (0..rank.size()).filter(|_| me == 0).collect();
        let star = comm
            .dist_graph_create_adjacent(sources, vec![0], false)
            .expect("a star");
        exchange(&star);
        // There are no neighbours without a topology.
        let mut buffer = Buffer::one(1, false);
        let mut other = Buffer::one(1, false);
        let operation = Operation::NeighbourAllgather {
            send: buffer.typed(),
            recv: other.many(),
        };
        for call in Call::ALL {
            // SAFETY: the buffers outlive the call.
            let outcome = unsafe { call.operation(comm, &operation) };
            fails(outcome, ErrorKind::InvalidCommunicator, "no topology");
        }
    });
    Ok(())
}

/// A rank that receives more or less along an edge than its counts say gets an error that tells
/// which rank sent how much, however the device words it.
pub fn neighbours_of_other_lengths<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let (me, last) = (rank.me(), rank.last());
    world(rank, Options::default(), |comm| {
        let ring = comm
            .dist_graph_create_adjacent(vec![rank.previous()], vec![rank.next()], false)
            .expect("a ring");
        for (sent, kind) in [(3, ErrorKind::Truncated), (1, ErrorKind::InvalidCount)] {
            // A persistent operation would be started again on ranks where nothing was wrong.
            for call in [Call::Blocking, Call::Nonblocking] {
                let mut mine = Buffer::one(if me == last { sent } else { 2 }, false);
                let mut all = Buffer::new(Form::Blocks, &[2], false);
                let operation = Operation::NeighbourAllgather {
                    send: mine.typed(),
                    recv: all.many(),
                };
                // SAFETY: the buffers outlive the operation.
                let outcome = unsafe { call.operation(&ring, &operation) };
                if rank.previous() == last {
                    let says = format!("neighbour {last} sends {} bytes", sent * UNIT);
                    let text = format!("{outcome:?}");
                    assert!(text.contains(&says), "{text} // {says}");
                    fails(outcome, kind, &says);
                } else {
                    outcome.expect("its own neighbour is right");
                }
            }
        }
        ring.barrier().expect("nothing is out of step");
    });
    Ok(())
}
