//! Many operations under way at once, on overlapping communicators; each rank waits for them in an
//! order of its own.

use std::collections::BTreeMap;

use portolan_core::{Device, Request};
use portolan_datatype::{Layout, Op, Predefined};

use super::{World, buf, on_all};
use crate::simulate::Random;
use crate::{Many, Operation, Persistent, run, start};

/// Amounts of numbers: in cells, in chunks, as messages.
const LENS: [usize; 7] = [0, 1, 15, 16, 1024, 8192, 8193];

/// An operation of any kind on numbers, with its own memory.
struct Flight {
    kind: usize,
    len: usize,
    root: u32,
    number: u64,
    send: Vec<u64>,
    recv: Vec<u64>,
}

impl Flight {
    /// Draws an operation, the same on all ranks except for their contributions.
    fn draw(random: &mut Random, comm: &World, number: u64) -> Self {
        let (kind, len) = (random.below(7), LENS[random.below(LENS.len())]);
        let root = random.below(comm.size() as usize) as u32;
        let mut flight = Self {
            kind,
            len,
            root,
            number,
            send: vec![0; len],
            recv: vec![0; len * comm.size() as usize],
        };
        flight.fill(comm);
        flight
    }

    fn value(&self, rank: u32, index: usize) -> u64 {
        self.number * 1_000_000 + u64::from(rank) * 10_000 + index as u64
    }

    /// Fills the memory for the first start, or for another one; the memory stays where it is.
    fn fill(&mut self, comm: &World) {
        for index in 0..self.len {
            self.send[index] = self.value(comm.rank(), index);
        }
        self.recv.fill(0);
        if self.kind == 1 && comm.rank() == self.root {
            self.recv[..self.len].copy_from_slice(&self.send);
        }
    }

    /// Lends the memory to an operation.
    fn with<R>(&mut self, comm: &World, call: impl FnOnce(&Operation<'_>) -> R) -> R {
        let (layout, op) = (Layout::of::<u64>(), &Op::from(Predefined::Sum));
        let (root, len) = (self.root, self.len);
        let send = Some(buf(&mut self.send, &layout));
        let mut recv = buf(&mut self.recv, &layout);
        recv.count = len;
        call(&match self.kind {
            0 => Operation::Barrier,
            1 => Operation::Bcast { data: recv, root },
            2 => Operation::Allreduce { send, recv, op },
            3 => Operation::Reduce {
                send,
                recv: (comm.rank() == root).then_some(recv),
                op,
                root,
            },
            4 => Operation::Allgather {
                send,
                recv: Many::Equal(recv),
            },
            5 => Operation::Scan {
                send,
                recv,
                op,
                exclusive: false,
            },
            _ => Operation::Gather {
                send,
                recv: (comm.rank() == root).then_some(Many::Equal(recv)),
                root,
                uneven: false,
            },
        })
    }

    fn check(&self, comm: &World) {
        let (size, rank) = (comm.size(), comm.rank());
        let is_root = rank == self.root;
        let sum = |ranks: std::ops::Range<u32>, index| ranks.map(|r| self.value(r, index)).sum();
        for index in 0..self.len {
            let expected: Option<u64> = match self.kind {
                1 => Some(self.value(self.root, index)),
                2 => Some(sum(0..size, index)),
                3 if is_root => Some(sum(0..size, index)),
                5 => Some(sum(0..rank + 1, index)),
                _ => None,
            };
            if let Some(expected) = expected {
                assert_eq!(self.recv[index], expected, "kind {}", self.kind);
            }
        }
        if self.kind == 4 || self.kind == 6 && is_root {
            let all = (0..size).flat_map(|from| (0..self.len).map(move |index| (from, index)));
            let all = all.map(|(from, index)| self.value(from, index));
            assert!(self.recv.iter().copied().eq(all));
        }
    }
}

/// Waits, in an order of this rank's own, until only `left` operations are under way.
fn wait(
    world: &World,
    comms: &[World],
    flying: &mut BTreeMap<u64, (usize, Request, Flight)>,
    own: &mut Random,
    left: usize,
) {
    while flying.len() > left {
        let at = own.below(flying.len());
        let number = *flying.keys().nth(at).unwrap();
        let (on, request, flight) = flying.remove(&number).unwrap();
        world.device().wait(request).unwrap();
        flight.check(&comms[on]);
    }
}

fn many(ranks: u32, count: u64, seed: u64) {
    on_all(ranks, |world| {
        let half = world.split(Some(world.rank() % 2), 0).unwrap().unwrap();
        let comms = [world.dup().unwrap(), world.dup().unwrap(), half];
        let (mut random, mut own) = (Random::new(seed), Random::new(u64::from(world.rank())));
        let mut flying = BTreeMap::new();
        for number in 0..count {
            let on = random.below(comms.len());
            let comm = &comms[on];
            let mut flight = Flight::draw(&mut random, comm, number);
            // Each half has a random root of its own, drawn from the same number of the sequence.
            flight.root %= comm.size();
            flight.fill(comm);
            // SAFETY: the memory stays in place in the map until the operation is over.
            unsafe {
                if random.below(6) == 0 {
                    flight.with(comm, |operation| run(comm, operation)).unwrap();
                    flight.check(comm);
                } else {
                    let request = flight.with(comm, |operation| start(comm, operation));
                    flying.insert(number, (on, request.unwrap(), flight));
                }
            }
            let most = [0, 40, 200][own.below(3)];
            if own.below(4) == 0 {
                wait(world, &comms, &mut flying, &mut own, most);
            }
        }
        wait(world, &comms, &mut flying, &mut own, 0);
    });
}

#[test]
fn many_are_under_way_on_communicators_that_overlap() {
    for seed in 0..3 {
        many(2, 400, seed);
        many(3, 300, seed + 10);
    }
    many(4, 300, 20);
    many(8, 120, 30);
}

/// More persistent operations than there are tracks, started in an order of each rank's own, some
/// of them twice.
#[test]
fn persistent_ones_are_started_in_any_order() {
    for ranks in [2, 3, 5] {
        on_all(ranks, |world| {
            let mut random = Random::new(u64::from(ranks));
            let mut own = Random::new(100 + u64::from(world.rank()));
            let mut plans: Vec<_> = (0..12)
                .map(|number| {
                    let mut flight = Flight::draw(&mut random, world, number);
                    let plan = flight.with(world, |operation| Persistent::new(world, operation));
                    (plan.unwrap(), flight)
                })
                .collect();
            for _ in 0..30 {
                let mut order: Vec<usize> = (0..plans.len()).collect();
                for at in (1..order.len()).rev() {
                    order.swap(at, own.below(at + 1));
                }
                let mut requests = Vec::new();
                for &at in &order {
                    plans[at].1.fill(world);
                    // SAFETY: the buffers stay in place until all operations are over.
                    requests.push((at, unsafe { plans[at].0.start() }.unwrap()));
                }
                while !requests.is_empty() {
                    let (at, request) = requests.swap_remove(own.below(requests.len()));
                    world.device().wait(request).unwrap();
                    plans[at].1.check(world);
                }
            }
        });
    }
}
