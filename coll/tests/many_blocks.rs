//! Blocks with a layout each; there are more of them than 16 bits can number.

use std::sync::Arc;

use portolan_coll::{LayoutsArg, Many, Operation, Options, configure, run, start};
use portolan_core::comm::Communicator;
use portolan_core::config::Settings;
use portolan_core::level::Single;
use portolan_core::transport::memory;
use portolan_core::{Device, Engine};
use portolan_datatype::Layout;

const BLOCKS: usize = 40_000;

#[test]
fn there_may_be_more_than_sixteen_bits_can_number() {
    let transport = memory::network(1).remove(0);
    let engine = Engine::<_, Single>::new(transport, &Settings::default()).unwrap();
    let world = Communicator::world(Arc::new(engine)).unwrap();
    let mut options = Options::default();
    options.direct = false;
    configure(&world, options).unwrap();
    let edges = vec![0; BLOCKS];
    let comm = world
        .dist_graph_create_adjacent(edges.clone(), edges, false)
        .unwrap();

    let int = Layout::of::<u32>();
    let of_its_own = (0..BLOCKS).map(|_| Layout::contiguous(1, &int).unwrap());
    let of_their_own: Vec<_> = of_its_own.collect();
    let (counts, places) = ([1; BLOCKS], (0..BLOCKS as isize).map(|at| 4 * at));
    let places: Vec<_> = places.collect();
    let mut sent: Vec<u32> = (0..BLOCKS as u32).collect();
    for layouts in [vec![int; BLOCKS], of_their_own] {
        for blocking in [true, false] {
            let mut received = vec![0_u32; BLOCKS];
            let [send, recv] = [&mut sent, &mut received].map(|data| {
                Many::Layouts(LayoutsArg {
                    ptr: data.as_mut_ptr().cast(),
                    counts: &counts,
                    displacements: &places,
                    layouts: &layouts,
                })
            });
            let operation = Operation::NeighbourAlltoall { send, recv };
            // SAFETY: the buffers live until the operation is over.
            unsafe {
                match blocking {
                    true => run(&comm, &operation).unwrap(),
                    false => drop(comm.device().wait(start(&comm, &operation).unwrap())),
                }
            }
            assert!(received == sent, "blocking: {blocking}");
        }
    }
    drop(comm);
    world.device().end().unwrap();
}
