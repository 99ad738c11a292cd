//! Neighbour collectives on graphs that every rank knows in full: one with an edge that does not
//! lead back is refused on all ranks before anything is sent, and any other is used.

mod common;

use portolan_coll::{
    BlocksArg, Counters, LayoutsArg, Many, Operation, Options, Persistent, counted, run, start,
};
use portolan_core::comm::Graph;
use portolan_core::transport::memory;
use portolan_core::{Device, ErrorKind, MemoryKind, Result, TypedBuf};
use portolan_datatype::Layout;

use common::{World, on_ranks};

/// Runs `body` on `n` ranks: over boards, by messages, and in the debug mode.
fn on_all(n: u32, body: impl Fn(&World) + Sync) {
    for (direct, compare) in [(true, false), (false, false), (false, true)] {
        let mut options = Options::default();
        (options.direct, options.compare) = (direct, compare);
        on_ranks(memory::network(n), &options, &body);
    }
}

fn on_graph(world: &World, lists: &[Vec<u32>]) -> World {
    let graph = Graph::new(lists).unwrap();
    let made = world.graph_create(graph, false).unwrap();
    made.expect("it has all ranks")
}

/// What every form of `operation` returns, one after the other.
fn in_every_form(comm: &World, operation: &Operation<'_>) -> [Result<()>; 3] {
    let device = comm.device();
    // SAFETY: the callers' buffers outlive this function, which waits for what it starts; here and
    // below.
    let blocking = unsafe { run(comm, operation) };
    // SAFETY: as above.
    let started = unsafe { start(comm, operation) };
    let nonblocking = started.and_then(|request| device.wait(request).map(drop));
    let persistent = Persistent::new(comm, operation).and_then(|mut again| {
        // SAFETY: as above.
        let request = unsafe { again.start() }?;
        device.wait(request).map(drop)
    });
    [blocking, nonblocking, persistent]
}

/// One block of one number.
fn one<'a>(data: &mut [u32], layout: &'a Layout) -> TypedBuf<'a> {
    TypedBuf {
        ptr: data.as_mut_ptr().cast(),
        count: 1,
        layout,
        memory: MemoryKind::Host,
    }
}

/// Calls `each` with an allgather and an alltoall of one number along each edge: with one length
/// for all blocks, with counts, and with layouts. `sent` are the numbers for the destinations, of
/// which an allgather sends the first; what is received goes to the other buffer.
fn all_operations(sent: &[u32], mut each: impl FnMut(&Operation<'_>, &mut Vec<u32>)) {
    let int = Layout::of::<u32>();
    let edges = sent.len();
    let counts = vec![1; edges];
    let places: Vec<isize> = (0..edges as isize).collect();
    let bytes: Vec<isize> = places.iter().map(|place| 4 * place).collect();
    let layouts = vec![int.clone(); edges];
    let many = |data: &mut Vec<u32>, form: u32| -> Many<'_> {
        let ptr = data.as_mut_ptr().cast();
        match form {
            0 => Many::Equal(one(data, &int)),
            1 => Many::Blocks(BlocksArg {
                ptr,
                counts: &counts,
                displacements: &places,
                layout: &int,
            }),
            _ => Many::Layouts(LayoutsArg {
                ptr,
                counts: &counts,
                displacements: &bytes,
                layouts: &layouts,
            }),
        }
    };
    // One more, so that a rank without edges has a number to contribute.
    let mut send = [sent, &[0]].concat();
    for form in 0..3 {
        let mut recv = vec![u32::MAX; edges];
        let alltoall = Operation::NeighbourAlltoall {
            send: many(&mut send, form),
            recv: many(&mut recv, form),
        };
        each(&alltoall, &mut recv);
    }
    for form in 0..2 {
        let mut recv = vec![u32::MAX; edges];
        let allgather = Operation::NeighbourAllgather {
            send: one(&mut send, &int),
            recv: many(&mut recv, form),
        };
        each(&allgather, &mut recv);
    }
}

#[test]
fn an_edge_that_does_not_lead_back_is_refused_on_all_ranks() {
    // The lists of neighbours, and what is said of them.
    let cases: [(&[&[u32]], &str); 5] = [
        (
            &[&[1], &[]],
            "1 edge(s) lead from rank 0 to rank 1 and 0 back",
        ),
        (
            &[&[], &[0, 0]],
            "2 edge(s) lead from rank 1 to rank 0 and 0 back",
        ),
        (
            &[&[0, 1], &[0, 0, 1]],
            "2 edge(s) lead from rank 1 to rank 0 and 1 back",
        ),
        (
            &[&[1], &[2], &[0]],
            "1 edge(s) lead from rank 0 to rank 1 and 0 back",
        ),
        // Rank 0 has nothing to do with the edge.
        (
            &[&[1], &[0, 2], &[], &[]],
            "1 edge(s) lead from rank 1 to rank 2 and 0 back",
        ),
    ];
    for (lists, what) in cases {
        let lists: Vec<Vec<u32>> = lists.iter().map(|list| list.to_vec()).collect();
        on_all(lists.len() as u32, |world| {
            let graph = on_graph(world, &lists);
            let own = &lists[graph.rank() as usize];
            // The communicator does everything else.
            for comm in [graph.clone(), graph.dup().unwrap()] {
                // SAFETY: there is no buffer.
                unsafe { run(&comm, &Operation::Barrier) }.unwrap();
                let sent = || counted(&comm, Counters::Messages);
                let before = sent();
                all_operations(own, |operation, recv| {
                    for outcome in in_every_form(&comm, operation) {
                        let error = outcome.unwrap_err();
                        assert_eq!(error.kind(), ErrorKind::InvalidCommunicator, "{error}");
                        assert!(error.to_string().contains(what), "{error} // {what}");
                    }
                    assert!(recv.iter().all(|&number| number == u32::MAX));
                });
                assert_eq!(sent(), before);
                // SAFETY: as above.
                unsafe { run(&comm, &Operation::Barrier) }.unwrap();
            }
        });
    }
}

/// The number that travels along an edge: `place` is its place in the list of the rank `from`.
fn number(from: u32, place: usize) -> u32 {
    100 * from + place as u32
}

#[test]
fn edges_to_the_rank_itself_and_double_ones_are_used() {
    for n in [1, 2, 3, 4] {
        // Every rank has both of its neighbours in a ring twice, and itself three times.
        let around = |rank: u32| {
            let (before, after) = ((rank + n - 1) % n, (rank + 1) % n);
            vec![rank, after, before, rank, after, before, rank]
        };
        let lists: Vec<Vec<u32>> = (0..n).map(around).collect();
        on_all(n, |world| {
            let (graph, me) = (on_graph(world, &lists), world.rank());
            let own = &lists[me as usize];
            let sent: Vec<u32> = (0..own.len()).map(|place| number(me, place)).collect();
            // Of several edges between two ranks, the first belongs to the first, and so on.
            let of = |place: usize| {
                let from = own[place];
                let earlier = own[..place].iter().filter(|&&rank| rank == from).count();
                let theirs = lists[from as usize].iter().enumerate();
                let mut to_me = theirs.filter(|(_, rank)| **rank == me);
                number(from, to_me.nth(earlier).expect("an edge leads back").0)
            };
            let exchanged: Vec<u32> = (0..own.len()).map(of).collect();
            let gathered: Vec<u32> = own.iter().map(|&from| number(from, 0)).collect();
            all_operations(&sent, |operation, recv| {
                let expected = match operation {
                    Operation::NeighbourAlltoall { .. } => &exchanged,
                    _ => &gathered,
                };
                for outcome in in_every_form(&graph, operation) {
                    outcome.unwrap();
                }
                assert_eq!(recv, expected);
            });
        });
    }
}

/// Of a distributed graph no rank knows the edges of the others. Where ranks share memory, a rank
/// that awaits a block along an edge that the other end has not given does not wait for ever.
#[test]
fn a_block_that_nobody_sends_is_noticed_over_boards() {
    on_ranks(memory::network(2), &Options::default(), |world| {
        let sources = vec![0; world.rank() as usize];
        let graph = world.dist_graph_create_adjacent(sources, [], false);
        let (graph, int) = (graph.unwrap(), Layout::of::<u32>());
        for len in [1, 20_000] {
            let (mut send, mut recv) = (vec![0_u32; len], vec![0_u32; len]);
            let block = |data: &mut Vec<u32>| {
                Many::Equal(TypedBuf {
                    count: data.len(),
                    ..one(data, &int)
                })
            };
            let alltoall = Operation::NeighbourAlltoall {
                send: block(&mut send),
                recv: block(&mut recv),
            };
            // The first operation makes boards, so it is a blocking one.
            for outcome in &in_every_form(&graph, &alltoall)[..2] {
                match outcome {
                    Ok(()) => assert_eq!(graph.rank(), 0),
                    Err(error) => {
                        assert_eq!((graph.rank(), error.kind()), (1, ErrorKind::InvalidCount));
                    }
                }
            }
        }
    });
}
