//! The debug mode (`COLL_CHECK`) where ranks create communicators: a rank that makes a different
//! call is named, and no rank waits.
//!
//! The emulated machine is tested first: it notices when all its ranks wait, so a call that would
//! hang is a failure there.
#![cfg(feature = "t3e-sim")]

mod common;

use common::transports;
use portolan::coll::{Allreduce, Barrier};
use portolan::topology::{Dimension, Edges, Graph};
use portolan::{Builder, Comm, ErrorKind, Op, RemoteLeader, Result, SplitBy, World};

fn checked(sizes: &[u32], body: impl Fn(World) -> Result<()> + Sync) {
    for transport in std::iter::once("t3e-sim").chain(transports()) {
        for &n in sizes {
            let job = Builder::new().setting("COLL_CHECK", "on");
            let outcome = job.transport(transport).try_threads(n, &body);
            outcome.unwrap_or_else(|error| panic!("{n} ranks over {transport}: {error}"));
        }
    }
}

/// Asserts that a call was refused on this rank with a text that contains `what`.
#[track_caller]
fn refused<T>(outcome: Result<T>, what: &str) {
    let Err(error) = outcome else {
        panic!("no error says: {what}");
    };
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let text = error.to_string();
    assert!(text.contains(what), "{text} // {what}");
    let (place, _) = text.split_once(": ").expect("it begins with the place");
    assert!(
        place.starts_with("rank ") && place.ends_with(')'),
        "rank and device are not there: {text}"
    );
}

type Call = (&'static str, fn(&Comm) -> Result<()>);

/// Calls that are collective over a communicator.
const CALLS: [Call; 13] = [
    ("blocking barrier", |comm| comm.barrier()),
    ("blocking bcast", |comm| comm.bcast(&mut [0u8; 8], 0)),
    ("nonblocking barrier", |comm| {
        comm.start_owned(Barrier::new())?.wait()?;
        Ok(())
    }),
    ("blocking dup", |comm| comm.dup().map(drop)),
    ("nonblocking dup", |comm| comm.idup()?.wait().map(drop)),
    ("blocking create", |comm| {
        comm.create(&comm.group()).map(drop)
    }),
    ("blocking split", |comm| comm.split(0, 0).map(drop)),
    ("blocking split_by", |comm| {
        comm.split_by(SplitBy::Node, 0).map(drop)
    }),
    ("blocking cart_create", |comm| {
        let dims = [Dimension::open(comm.size())];
        comm.cart_create(&dims, false).map(drop)
    }),
    ("blocking graph_create", |comm| {
        let graph = Graph::new(vec![vec![0u32]; comm.size() as usize])?;
        comm.graph_create(graph, false).map(drop)
    }),
    ("blocking dist_graph_create_adjacent", |comm| {
        let new = comm.dist_graph_create_adjacent(Edges::none(), Edges::none(), false);
        new.map(drop)
    }),
    ("blocking dist_graph_create", |comm| {
        comm.dist_graph_create(&[], false).map(drop)
    }),
    ("blocking intercomm_create", |comm| {
        comm.intercomm_create(0, None).map(drop)
    }),
];

#[test]
fn whoever_creates_while_others_do_something_else_is_named_on_every_rank() {
    checked(&[2, 3], |world| {
        let comm = world.comm();
        for (zeros, zero) in CALLS {
            for (others, other) in CALLS.into_iter().filter(|&(name, _)| name != zeros) {
                let call = if comm.rank() == 0 { zero } else { other };
                let what = format!("rank 1 calls a {others}, rank 0 calls a {zeros}");
                refused(call(&comm), &what);
            }
        }
        // The communicator works as before, and ranks that agree are left alone.
        for (name, call) in CALLS
            .into_iter()
            .filter(|&(name, _)| name != "blocking intercomm_create")
        {
            call(&comm).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        Ok(())
    });
}

/// The duplications of one communicator are compared first, in the order of the calls, so each
/// yields the same duplicate on all ranks.
#[test]
fn duplicates_in_the_background_are_compared_in_their_order() {
    checked(&[1, 2, 3], |world| {
        let comm = world.comm();
        let pending = [comm.idup()?, comm.idup()?, comm.idup()?];
        comm.barrier()?;
        let [a, b, c] = pending;
        let (a, b, c) = if comm.rank() == 0 {
            let (c, b, a) = (c.wait()?, b.wait()?, a.wait()?);
            (a, b, c)
        } else {
            (a.wait()?, b.wait()?, c.wait()?)
        };
        for (n, comm) in (0u32..).zip([a, b, c]) {
            let mut sum = [0];
            comm.allreduce(&[n], &mut sum, &Op::SUM)?;
            assert_eq!(sum, [n * comm.size()]);
        }
        // A duplicate that is dropped without a wait is made all the same, and does no harm.
        drop(comm.idup()?);
        comm.idup()?.wait()?.barrier()
    });
}

#[test]
fn ranks_that_give_other_topologies_are_named() {
    checked(&[2, 3], |world| {
        let comm = world.comm();
        let (first, n) = (comm.rank() == 0, comm.size());
        let line = [Dimension::open(n)];
        for other in [
            &[Dimension::open(n), Dimension::open(1)][..],
            &[Dimension::periodic(n)],
            &[Dimension::open(n - 1)],
        ] {
            let dims = if first { &line } else { other };
            let what = "rank 1 calls cart_create with other dimensions";
            refused(comm.cart_create(dims, false), what);
        }
        let to_first = Graph::new(vec![vec![0u32]; n as usize])?;
        let mut lists = vec![vec![0u32]; n as usize];
        lists[1] = vec![0, 0];
        let graph = if first { to_first } else { Graph::new(lists)? };
        let what = "rank 1 calls graph_create with another graph";
        refused(comm.graph_create(graph, false), what);
        let by = if first {
            SplitBy::Node
        } else {
            SplitBy::SharedMemory
        };
        refused(
            comm.split_by(by, 0),
            "rank 1 calls split_by with another kind",
        );
        let leader = u32::from(!first);
        let what = "intercomm_create with leader 1, rank 0 calls intercomm_create with leader 0";
        refused(comm.intercomm_create(leader, None), what);
        let dims = [Dimension::open(n), Dimension::open(1)];
        let grid = comm.cart_create(&dims, false)?.expect("it has all ranks");
        refused(
            grid.sub(&[first, true]),
            "rank 1 calls sub of a grid with other dimensions",
        );
        grid.sub(&[true, false]).map(drop)
    });
}

/// An edge that only one of its ends gives is named on all ranks, also on those that are not its
/// ends.
#[test]
fn edges_that_one_end_alone_gives_are_named() {
    checked(&[2, 3, 5], |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        let (before, after) = ((me + n - 1) % n, (me + 1) % n);
        let last = n - 1;
        // A ring, where each rank is also its own neighbour, and the last gives one edge more or
        // less.
        let ring = [[me, before, after], [me, after, before]].map(Vec::from);
        let made = |sources: Vec<u32>, destinations: Vec<u32>| {
            comm.dist_graph_create_adjacent(sources, destinations, false)
        };
        let with = |edges: &[u32], more: &[u32]| {
            let more = if me == last { more } else { &[] };
            [edges, more].concat()
        };
        let [sources, destinations] = &ring;
        let twice = if n == 2 { [3, 2] } else { [2, 1] };
        let outcome = made(sources.clone(), with(destinations, &[0]));
        let what = format!(
            "rank {last} gives {} edge(s) to rank 0, which gives {} from rank {last}",
            twice[0], twice[1]
        );
        refused(outcome, &what);
        let outcome = made(with(sources, &[0]), destinations.clone());
        let what = format!(
            "rank 0 gives {} edge(s) to rank {last}, which gives {} from rank 0",
            twice[1], twice[0]
        );
        refused(outcome, &what);
        let outcome = made(with(sources, &[last]), destinations.clone());
        let what = format!("rank {last} gives 1 edge(s) to rank {last}, which gives 2");
        refused(outcome, &what);
        // What both ends give is made, and works.
        let graph = made(with(sources, &[last]), with(destinations, &[last]))?;
        let len = graph.neighbours().expect("a graph").sources.len();
        let mut all = vec![n; len];
        graph.neighbour_allgather(&[me], &mut all)?;
        assert_eq!(all, with(sources, &[last]));
        graph.barrier()
    });
}

#[test]
fn creations_of_two_groups_are_compared_over_both() {
    checked(&[2, 3], |world| {
        let comm = world.comm();
        let left = comm.rank() == 0;
        let own = comm
            .split(u32::from(left), 0)?
            .expect("everybody has a side");
        let remote = RemoteLeader {
            peer: &comm,
            rank: u32::from(left),
            tag: 1.into(),
        };
        let inter = own.intercomm_create(0, Some(remote))?;
        // Which group comes first does not depend on the ranks.
        let of = |a: Result<()>| a.expect_err("the ranks call two things").to_string();
        let (first, second) = if left {
            (of(inter.dup().map(drop)), of(inter.split(0, 0).map(drop)))
        } else {
            (of(inter.merge(true).map(drop)), of(inter.barrier()))
        };
        for (said, name) in [
            (&first, "dup"),
            (&first, "merge"),
            (&second, "split"),
            (&second, "barrier"),
        ] {
            assert!(said.contains(&format!("calls a blocking {name}")), "{said}");
        }
        let third = if left {
            of(inter.idup()?.wait().map(drop))
        } else {
            of(inter.barrier())
        };
        assert!(
            third.contains("calls a nonblocking dup") && third.contains("calls a blocking barrier"),
            "{third}"
        );
        let again = inter.idup()?.wait()?;
        again.barrier()?;
        // Calls that are refused there without any comparison still are, on one rank alone.
        if left {
            let error = inter.remote().dup().expect_err("it is the other group");
            assert_eq!(error.kind(), ErrorKind::InvalidCommunicator, "{error}");
        }
        inter.dup()?.merge(left)?.barrier()
    });
}

/// Neither messages nor boards carry the operator, so only this mode detects different operators,
/// in every form of the call.
#[test]
fn operators_that_differ_are_named_in_every_form() {
    checked(&[2, 3], |world| {
        let comm = world.comm();
        let first = comm.rank() == 0;
        let (op, other) = if first {
            (Op::SUM, Op::new(true, |a: u32, b: u32| a | b))
        } else {
            (Op::MAX, Op::SUM)
        };
        for len in [1, 5000] {
            let (ones, mut sum) = (vec![1u32; len], vec![0; len]);
            let what = "rank 1 calls allreduce with operator max, rank 0 calls allreduce with operator sum";
            refused(comm.allreduce(&ones, &mut sum, &op), what);
            let call = || Allreduce::new(ones.clone(), vec![0; len], op.clone());
            let outcome = comm.start_owned(call())?.wait();
            refused(outcome.map(drop).map_err(portolan::Error::from), what);
            let outcome = comm.persistent(call()).map(drop);
            refused(outcome.map_err(portolan::Error::from), what);
            let what =
                "rank 1 calls allreduce with operator sum, rank 0 calls allreduce with operator";
            refused(comm.allreduce(&ones, &mut sum, &other), what);
            comm.allreduce(&ones, &mut sum, &Op::SUM)?;
            assert_eq!(sum, vec![comm.size(); len]);
        }
        refused(comm.allreduce_one(1u32, &op).map(drop), "operator max");
        comm.barrier()
    });
}
