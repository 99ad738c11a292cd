//! Whom a rank wakes. A rank that calls another operation by mistake may be asleep until it sees
//! what this rank has posted, although this rank never looks at it.
//!
//! No rank sleeps here: what counts is whom the device is told to wake.

use std::cell::Cell;
use std::sync::{Arc, Barrier, Mutex};

use portolan_core::comm::Communicator;
use portolan_core::config::Settings;
use portolan_core::device::delegate_device;
use portolan_core::level::Single;
use portolan_core::transport::memory::{self, InMemory};
use portolan_core::{Device, Engine, Group, ProcId, Result, TypedBuf};
use portolan_datatype::{Layout, Op, Predefined};

use super::buf;
use crate::{Many, Operation, run};

/// A device that notes whom its rank wakes in an operation.
struct Noting {
    device: Engine<InMemory, Single>,
    /// The ranks that were woken, by bits.
    woken: Cell<u64>,
    /// The same, at the moment when the rank first had to wait for another one.
    first: Cell<Option<u64>>,
    /// The other ranks come here before they call the operation, this one when it first waits.
    gate: Arc<Barrier>,
}

impl Noting {
    fn begin(&self) {
        self.woken.set(0);
        self.first.set(None);
    }

    /// Lets the others go on, unless they do already.
    fn open(&self) {
        if self.first.get().is_none() {
            self.first.set(Some(self.woken.get()));
            self.gate.wait();
        }
    }

    /// Whom the rank woke before it waited, and in the whole operation.
    fn end(&self) -> [u64; 2] {
        self.open();
        [self.first.get().unwrap_or_default(), self.woken.get()]
    }
}

macro_rules! inner {
    ($self:ident, $device:ident => $call:expr) => {{
        let $device = &$self.device;
        $call
    }};
}

// SAFETY: every call goes to a device that keeps the contract.
unsafe impl Device for Noting {
    fn wait_for(&self, group: &Group, mut ready: impl FnMut() -> bool) -> Result<()> {
        if !ready() {
            self.open();
        }
        self.device.wait_for(group, ready)
    }

    fn wait_for_peer(&self, group: &Group, _: ProcId, ready: impl FnMut() -> bool) -> Result<()> {
        self.wait_for(group, ready)
    }

    fn notify(&self, peer: ProcId) {
        self.woken.set(self.woken.get() | 1 << peer.index());
        self.device.notify(peer);
    }

    delegate_device! { inner:
        lifecycle, leaving, contiguous, datatypes, driven, persistent, queues, requests, packing,
        active_messages, registrations, one_sided, processor, give_way,
    }
}

type World = Communicator<Noting>;

/// Operations in which not every rank looks at every other one, and one in which all do.
const NAMES: [&str; 6] = ["bcast", "gather", "scatter", "reduce", "scan", "allreduce"];

fn call(world: &World, name: &str, root: u32, len: usize) {
    let (layout, all) = (Layout::of::<u8>(), len * world.size() as usize);
    let (mut send, mut recv) = (vec![1_u8; all], vec![0_u8; all]);
    let one = |data: &mut Vec<u8>| TypedBuf {
        count: len,
        ..buf(data, &layout)
    };
    let (send, recv) = (one(&mut send), one(&mut recv));
    let (is_root, uneven) = (world.rank() == root, false);
    let op = &Op::from(Predefined::Sum);
    let operation = match name {
        "bcast" => Operation::Bcast { data: send, root },
        "gather" => Operation::Gather {
            send: Some(send),
            recv: is_root.then_some(Many::Equal(recv)),
            root,
            uneven,
        },
        "scatter" => Operation::Scatter {
            send: is_root.then_some(Many::Equal(send)),
            recv: Some(recv),
            root,
            uneven,
        },
        "reduce" => Operation::Reduce {
            send: Some(send),
            recv: is_root.then_some(recv),
            op,
            root,
        },
        "allreduce" => Operation::Allreduce {
            send: Some(send),
            recv,
            op,
        },
        _ => Operation::Scan {
            send: Some(send),
            recv,
            op,
            exclusive: false,
        },
    };
    // SAFETY: the buffers outlive the call.
    unsafe { run(world, &operation) }.unwrap();
}

/// Each of `n` ranks in turn calls each operation before all others do. `missed` gets the rank, the
/// root, and whom the rank woke before it waited and in all, and says whom it should have woken
/// besides. Returns the cases in which there is anybody.
fn on_each(
    n: u32,
    lens: &[usize],
    missed: impl Fn(u32, u32, [u64; 2]) -> u64 + Sync,
) -> Vec<String> {
    let (gate, wrong) = (Arc::new(Barrier::new(n as usize)), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for transport in memory::network(n) {
            let (gate, wrong, missed) = (Arc::clone(&gate), &wrong, &missed);
            scope.spawn(move || {
                let noting = Noting {
                    device: Engine::new(transport, &Settings::default()).unwrap(),
                    woken: Cell::default(),
                    first: Cell::new(Some(0)),
                    gate: Arc::clone(&gate),
                };
                let world = Communicator::world(Arc::new(noting)).unwrap();
                let me = world.rank();
                let case = |name, len, who, (barriers, root)| {
                    for _ in 0..barriers {
                        // SAFETY: there is no buffer.
                        unsafe { run(&world, &Operation::Barrier) }.unwrap();
                    }
                    gate.wait();
                    world.device().begin();
                    if me != who {
                        world.device().open();
                    }
                    call(&world, name, root, len);
                    let ranks = missed(me, root, world.device().end());
                    if me == who && ranks != 0 {
                        let what = format!("{name} of {len} bytes from or to {root}");
                        let text = format!("{me} of {n}, {what}: {ranks:#b}");
                        wrong.lock().unwrap().push(text);
                    }
                };
                let lens = || lens.iter().copied();
                for (name, len) in NAMES
                    .iter()
                    .flat_map(|name| lens().map(move |len| (name, len)))
                {
                    for who in 0..n {
                        // Every few steps a rank wakes all others, whatever it does.
                        for before in (1..=2).cycle().zip([0, 1, 0, n - 1, 2 % n, 0]) {
                            case(name, len, who, before);
                        }
                    }
                }
                world.barrier().unwrap();
            });
        }
    });
    wrong.into_inner().unwrap()
}

/// All ranks but one.
fn others(n: u32, me: u32) -> u64 {
    ((1 << n) - 1) & !(1 << me)
}

#[test]
fn of_few_ranks_all_are_woken_before_a_rank_waits() {
    for n in [2, 3, 5, 8] {
        let wrong = on_each(n, &[8, 1000, 20_000], |me, root, [first, _]| {
            // A rank that waits for the root sees what the root does.
            others(n, me) & !(1 << root) & !first
        });
        assert_eq!(wrong, Vec::<String>::new());
    }
}

#[test]
fn of_many_ranks_those_are_woken_that_would_look_in_a_barrier() {
    let n = 16;
    // A barrier takes two rounds: within each half of the ranks, and between the halves.
    let looks = |me: u32, rank: &u32| rank / 8 == me / 8 || rank % 8 == me % 8;
    let wrong = on_each(n, &[8, 1000], |me, _, [_, woken]| {
        let partners = (0..n).filter(|rank| looks(me, rank));
        let partners: u64 = partners.map(|rank| 1 << rank).sum();
        partners & others(n, me) & !woken
    });
    assert_eq!(wrong, Vec::<String>::new());
}
