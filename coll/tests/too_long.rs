//! Lengths that are valid one by one, but longer than the address space together. Items of a layout
//! without an extent overlap, so a program can have any number of them.

use std::sync::Arc;

use portolan_coll::{
    BlocksArg, LayoutsArg, Many, Operation, Options, Persistent, configure, run, start,
};
use portolan_core::comm::Communicator;
use portolan_core::config::Settings;
use portolan_core::level::Single;
use portolan_core::transport::memory;
use portolan_core::{Engine, ErrorKind, MemoryKind, TypedBuf};
use portolan_datatype::{Layout, Op};

/// Number of ranks, and a length that is too long for them: this many bytes on each overflow
/// together.
const RANKS: u32 = 4;
const EACH: usize = 1 << 62;

#[test]
fn totals_that_overflow_are_refused_before_anything_is_sent() {
    std::thread::scope(|scope| {
        let jobs = [false, true].map(|direct| memory::network(RANKS).into_iter().zip([direct; 4]));
        for (transport, direct) in jobs.into_iter().flatten() {
            scope.spawn(move || {
                let engine = Engine::<_, Single>::new(transport, &Settings::default()).unwrap();
                let world = Communicator::world(Arc::new(engine)).unwrap();
                let mut options = Options::default();
                options.direct = direct;
                configure(&world, options).unwrap();
                every_operation(|name, operation| {
                    // SAFETY: buffers are not used if arguments are wrong.
                    let errors = unsafe {
                        [
                            run(&world, operation).unwrap_err(),
                            start(&world, operation).unwrap_err(),
                            Persistent::new(&world, operation).unwrap_err(),
                        ]
                    };
                    for error in errors {
                        assert_eq!(error.kind(), ErrorKind::InvalidCount, "{name}: {error}");
                        let text = error.to_string();
                        assert!(text.contains("address space"), "{name}: {text}");
                    }
                });
                // SAFETY: there are no buffers.
                unsafe { run(&world, &Operation::Barrier) }.unwrap();
            });
        }
    });
}

/// Calls `each` for operations in which every rank has too much data.
fn every_operation(mut each: impl FnMut(&str, &Operation<'_>)) {
    const ITEM: usize = 1 << 20;
    let bytes = Layout::contiguous(ITEM, &Layout::byte()).unwrap();
    let layout = Layout::resized(&bytes, 0, 0).unwrap();
    let layouts = vec![layout.clone(); RANKS as usize];
    let mut memory = vec![0_u8; ITEM];
    let ptr = memory.as_mut_ptr();
    let buf = |count| TypedBuf {
        ptr,
        count,
        layout: &layout,
        memory: MemoryKind::Host,
    };
    let (counts, displacements) = ([EACH / ITEM; RANKS as usize], [0; RANKS as usize]);
    let blocks = Many::Blocks(BlocksArg {
        ptr,
        counts: &counts,
        displacements: &displacements,
        layout: &layout,
    });
    let many = Many::Layouts(LayoutsArg {
        ptr,
        counts: &counts,
        displacements: &displacements,
        layouts: &layouts,
    });
    let own = buf(EACH / ITEM);
    let one = buf(1);
    for recv in [blocks, many, Many::Equal(own)] {
        each("alltoall", &Operation::Alltoall { send: None, recv });
        let send = Some(recv);
        each("alltoall of others", &Operation::Alltoall { send, recv });
    }
    for recv in [blocks, Many::Equal(own)] {
        let send = Some(own);
        each("allgather", &Operation::Allgather { send, recv });
    }
    // A rank that only gives, or only takes, a block gets an error too, if a tree would have to
    // hold too many such blocks.
    for root in 0..RANKS {
        let gather = Operation::Gather {
            send: Some(own),
            recv: Some(Many::Equal(one)),
            root,
            uneven: false,
        };
        each("gather", &gather);
        let scatter = Operation::Scatter {
            send: Some(Many::Equal(one)),
            recv: Some(own),
            root,
            uneven: false,
        };
        each("scatter", &scatter);
    }
    // SAFETY: the function touches nothing.
    let op = unsafe { Op::from_raw(true, |_, _, _, _| {}) };
    let sum = Operation::ReduceScatterBlock {
        send: None,
        recv: own,
        op: &op,
    };
    each("reduce-scatter", &sum);
}
