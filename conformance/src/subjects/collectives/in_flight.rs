//! Several operations under way at once.

use portolan_coll::{Operation, Options, Persistent, start};
use portolan_core::comm::Communicator;
use portolan_core::{Device, Request};

use super::buffer::{Buffer, Bytes, Form, UNIT};
use super::reducing::Reduction;
use super::world;
use crate::case::Verdict;
use crate::rank::Rank;

/// The operations that one rank has under way on one communicator: a barrier and, for each length,
/// a reduction and blocks for all ranks.
struct Flight {
    rank: u32,
    size: u32,
    lens: [usize; 2],
    send: [Vec<[u32; 2]>; 2],
    recv: [Vec<[u32; 2]>; 2],
    mine: [Buffer; 2],
    all: [Buffer; 2],
}

impl Flight {
    const OPERATIONS: usize = 5;

    fn new<D: Device>(comm: &Communicator<D>, lens: [usize; 2]) -> Self {
        let (rank, size) = (comm.rank(), comm.size());
        let mine = |len| {
            let mut mine = Buffer::one(len, false);
            mine.put(0, &Bytes::content(rank, 0, len * UNIT));
            mine
        };
        Self {
            rank,
            size,
            lens,
            send: lens.map(|len| Reduction::contribution(rank, len)),
            recv: lens.map(|len| vec![[0; 2]; len]),
            mine: lens.map(mine),
            all: lens.map(|len| Buffer::new(Form::Equal, &vec![len; size as usize], false)),
        }
    }

    /// # Safety
    /// The value stays where it is and is left alone until the requests are complete.
    unsafe fn start<D: Device>(
        &mut self,
        comm: &Communicator<D>,
        reduction: &Reduction,
    ) -> Vec<Request> {
        let mut requests = Vec::new();
        for at in 0..self.lens.len() {
            let allreduce = Operation::Allreduce {
                send: Some(reduction.buf(&mut self.send[at])),
                recv: reduction.buf(&mut self.recv[at]),
                op: &reduction.op,
            };
            let allgather = Operation::Allgather {
                send: Some(self.mine[at].typed()),
                recv: self.all[at].many(),
            };
            for operation in [allreduce, allgather] {
                // SAFETY: from the caller.
                requests.push(unsafe { start(comm, &operation) }.expect("a start"));
            }
        }
        // SAFETY: there are no buffers.
        requests.push(unsafe { start(comm, &Operation::Barrier) }.expect("a start"));
        assert_eq!(requests.len(), Self::OPERATIONS);
        requests
    }

    fn check(&self, reduction: &Reduction) {
        for (at, &len) in self.lens.iter().enumerate() {
            let who = format!("{len} items on rank {} of {}", self.rank, self.size);
            assert_eq!(self.recv[at], reduction.reduced(0..self.size, len), "{who}");
            let each = (0..self.size).flat_map(|from| Bytes::content(from, 0, len * UNIT));
            assert_eq!(self.all[at].memory(), each.collect::<Vec<_>>(), "{who}");
        }
    }
}

/// Operations on three communicators at once, started in different orders of these, and waited for
/// in different orders of all. A persistent one is under way beside them.
pub fn in_flight<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let long = rank.eager_max().min(20_000) / UNIT + 1;
    for direct in [true, false] {
        let mut options = Options::default();
        options.direct = direct;
        world(rank, options, |comm| {
            let [sums, compositions] = Reduction::all();
            let (me, dup) = (rank.me() as usize, comm.dup().expect("a duplicate"));
            let half = comm.split(Some(rank.me() % 2), 0).expect("a split");
            let comms = [comm.clone(), dup, half.expect("everybody gives a color")];
            let mut kept = Flight::new(comm, [long, 1]);
            let operation = Operation::Allreduce {
                send: Some(sums.buf(&mut kept.send[0])),
                recv: sums.buf(&mut kept.recv[0]),
                op: &sums.op,
            };
            let mut persistent = Persistent::new(comm, &operation).expect("a plan");
            for (turn, reduction) in [&sums, &compositions].into_iter().enumerate() {
                // SAFETY: `kept` lives until the request is complete, as all below do.
                let beside = unsafe { persistent.start() }.expect("a start");
                let mut flights = comms.each_ref().map(|comm| Flight::new(comm, [1, long]));
                let mut requests = Vec::new();
                for at in (0..3).map(|at| (at + me + turn) % 3) {
                    // SAFETY: as above.
                    requests.extend(unsafe { flights[at].start(&comms[at], reduction) });
                }
                requests.push(beside);
                // A step that has no common factor with the number of operations.
                let count = 3 * Flight::OPERATIONS + 1;
                for at in (0..count).map(|at| (7 * at + 3 * me + turn) % count) {
                    rank.device.wait(requests[at]).expect("the end");
                }
                flights.iter().for_each(|flight| flight.check(reduction));
                assert_eq!(kept.recv[0], sums.reduced(0..rank.size(), long));
            }
        });
    }
    Ok(())
}
