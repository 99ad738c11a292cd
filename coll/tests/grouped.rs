//! Reductions of the same values in items of different lengths: arrays on some ranks, numbers on
//! others.

mod common;

use portolan_coll::{Counters, Operation, Options, Persistent, counted, inter, run, start};
use portolan_core::comm::{InterCommunicator, RemoteLeader, Tag};
use portolan_core::level::Single;
use portolan_core::transport::memory::{self, InMemory};
use portolan_core::{Device, Engine, MemoryKind, Request, TypedBuf};
use portolan_datatype::{Layout, Op};

use common::{World, on_ranks};

/// Runs `body` on `n` ranks, which are threads, over boards, by messages, and in the debug mode.
fn on_all(n: u32, body: impl Fn(&World) + Sync) {
    for (direct, compare) in [(true, false), (false, false), (false, true)] {
        let mut options = Options::default();
        (options.direct, options.compare) = (direct, compare);
        on_ranks(memory::network(n), &options, &body);
    }
}

/// Numbers in items of `each`, which a rank contributes, and room for the same number of results.
struct Data {
    each: usize,
    layout: Layout,
    send: Vec<f64>,
    recv: Vec<f64>,
}

impl Data {
    fn new(rank: u32, count: usize, each: usize) -> Self {
        let one = Layout::of::<f64>();
        Self {
            each,
            layout: match each {
                1 => one,
                _ => Layout::contiguous(each, &one).unwrap(),
            },
            send: (0..count).map(|at| value(rank, at)).collect(),
            recv: vec![0.0; count],
        }
    }

    /// Buffers for `sent` and `received` numbers.
    fn bufs(&mut self, sent: usize, received: usize) -> (TypedBuf<'_>, TypedBuf<'_>) {
        let (each, layout) = (self.each, &self.layout);
        let buf = |numbers: &mut [f64], count| TypedBuf {
            ptr: numbers.as_mut_ptr().cast(),
            count: count / each,
            layout,
            memory: MemoryKind::Host,
        };
        let send = buf(&mut self.send, sent);
        (send, buf(&mut self.recv, received))
    }
}

fn value(rank: u32, at: usize) -> f64 {
    f64::from(rank + 1) * (at % 1013) as f64
}

fn sums(ranks: std::ops::Range<u32>, places: std::ops::Range<usize>) -> Vec<f64> {
    let sum = |at| ranks.clone().map(|rank| value(rank, at)).sum();
    places.map(sum).collect()
}

fn in_form(world: &World, form: u32, operation: &Operation<'_>) {
    let wait = |request: Request| world.device().wait(request).map(drop);
    // SAFETY: the caller's buffers live until all operations are over.
    let outcome = unsafe {
        match form {
            0 => run(world, operation),
            1 => start(world, operation).and_then(wait),
            _ => Persistent::new(world, operation).and_then(|mut plan| wait(plan.start()?)),
        }
    };
    outcome.unwrap();
}

#[test]
fn ranks_may_group_what_they_reduce_differently() {
    // The second case is one item that is too long for a board.
    for (count, each) in [(30_000, 1000), (20_000, 20_000), (12, 6)] {
        for n in [2, 3] {
            let count = count * n as usize;
            on_all(n, |world| {
                let me = world.rank();
                let each = if me == 0 { each } else { 1 };
                let own = Op::new(true, |a: f64, b: f64| a + b);
                for (form, op) in [(0, &Op::SUM), (1, &Op::SUM), (2, &Op::SUM), (0, &own)] {
                    every_operation(world, count, each, form, op);
                }
            });
        }
    }
}

fn every_operation(world: &World, count: usize, each: usize, form: u32, op: &Op) {
    let (me, n) = (world.rank(), world.size());
    let all = sums(0..n, 0..count);
    let mut data = Data::new(me, count, each);
    let (send, recv) = data.bufs(count, count);
    let send = Some(send);
    in_form(world, form, &Operation::Allreduce { send, recv, op });
    assert_eq!(data.recv, all, "allreduce {form}");

    let root = n - 1;
    data.recv.fill(0.0);
    let (send, recv) = data.bufs(count, count);
    let (send, recv) = (Some(send), Some(recv));
    let reduce = Operation::Reduce {
        send,
        recv,
        op,
        root,
    };
    in_form(world, form, &reduce);
    if me == root {
        assert_eq!(data.recv, all, "reduce {form}");
    }

    let exclusive = false;
    let (send, recv) = data.bufs(count, count);
    let scan = Operation::Scan {
        send: Some(send),
        recv,
        op,
        exclusive,
    };
    in_form(world, form, &scan);
    assert_eq!(data.recv, sums(0..me + 1, 0..count), "scan {form}");

    let block = count / n as usize;
    let first = me as usize * block;
    let expected = sums(0..n, first..first + block);
    let (send, recv) = data.bufs(block, block);
    let scatter = Operation::ReduceScatterBlock {
        send: Some(send),
        recv,
        op,
    };
    in_form(world, form, &scatter);
    assert_eq!(data.recv[..block], expected, "block {form}");

    let counts = vec![block / each; n as usize];
    data.recv.fill(0.0);
    let (send, recv) = data.bufs(count, block);
    let scatter = Operation::ReduceScatter {
        send: Some(send),
        recv,
        counts: &counts,
        op,
    };
    in_form(world, form, &scatter);
    assert_eq!(data.recv[..block], expected, "counts {form}");
}

/// The ranks below `cut`, and the others.
fn between(world: &World, cut: u32) -> InterCommunicator<Engine<InMemory, Single>> {
    let low = world.rank() < cut;
    let half = world.split(Some(u32::from(low)), 0).unwrap().unwrap();
    let remote = RemoteLeader {
        peer: world,
        rank: if low { cut } else { 0 },
        tag: Tag(0),
    };
    InterCommunicator::create(&half, 0, Some(remote)).unwrap()
}

#[test]
fn groups_may_group_what_they_reduce_differently() {
    let count = 6000;
    on_all(5, |world| {
        let (me, op) = (world.rank(), &Op::SUM);
        let both = between(world, 3);
        let mut data = Data::new(me, count, if me == 0 { 500 } else { 1 });
        let (send, recv) = data.bufs(count, count);
        let operation = inter::InterOperation::Allreduce { send, recv, op };
        // SAFETY: the buffers live until the operation is over.
        unsafe { inter::run(&both, &operation) }.unwrap();
        let others = if me < 3 { 3..5 } else { 0..3 };
        assert_eq!(data.recv, sums(others, 0..count));
    });
}

/// An operation that is only polled now and then takes few rounds, also between two groups.
#[test]
fn beside_a_computation_groups_take_few_rounds() {
    let count = 1 << 19;
    on_all(5, |world| {
        let (me, op) = (world.rank(), &Op::SUM);
        let both = between(world, 4);
        let mut data = Data::new(me, count, 1);
        let (send, recv) = data.bufs(count, count);
        let operation = inter::InterOperation::Allreduce { send, recv, op };
        let waits = || counted(both.merged(), Counters::Waits);
        let before = waits();
        // SAFETY: the buffers live until the operation is over.
        unsafe { inter::run(&both, &operation) }.unwrap();
        let blocking = waits() - before;
        // SAFETY: as above.
        let request = unsafe { inter::start(&both, &operation) }.unwrap();
        let nonblocking = waits() - before - blocking;
        world.device().wait(request).unwrap();
        if me < 4 {
            assert!(nonblocking * 2 < blocking, "{nonblocking} {blocking}");
        }
        let others = if me < 4 { 4..5 } else { 0..4 };
        assert_eq!(data.recv, sums(others, 0..count));
    });
}
