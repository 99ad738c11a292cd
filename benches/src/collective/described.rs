//! The operations as values, for the forms that take them as values.

/// Describes the operation `$which` with its buffers, whatever their type is, and passes it to the
/// macro `$with`. `$lists` are what [`Floats::lists`](super::data::Floats::lists) returns; `$both`
/// are layouts that the call consumes.
macro_rules! described {
    ($which:expr, $root:expr, ($send:expr, $recv:expr), ($lists:expr, $both:expr), $with:ident) => {{
        use portolan::Op;
        use portolan::coll::{
            Allgather, Allreduce, Alltoall, Alltoallw, Barrier, Bcast, Exscan, Gather,
            NeighbourAllgather, NeighbourAlltoall, NeighbourAlltoallw, Reduce, ReduceScatter,
            ReduceScatterBlock, Scan, Scatter,
        };
        use $crate::collective::ROOT;
        use $crate::pattern::Collective;

        let (counts, blocks, _) = $lists;
        let (send, recv, is_root) = ($send, $recv, $root);
        match $which {
            Collective::Barrier => $with!(Barrier::new()),
            Collective::Bcast => $with!(Bcast::new(recv, ROOT)),
            Collective::Gather if is_root => $with!(Gather::new(send, recv, ROOT)),
            Collective::Gather => $with!(Gather::contribute(send, ROOT)),
            Collective::Scatter if is_root => $with!(Scatter::new(send, recv, ROOT)),
            Collective::Scatter => $with!(Scatter::receive(recv, ROOT)),
            Collective::Allgather => $with!(Allgather::new(send, recv)),
            Collective::Alltoall => $with!(Alltoall::new(send, recv)),
            Collective::Reduce if is_root => $with!(Reduce::new(send, recv, Op::SUM, ROOT)),
            Collective::Reduce => $with!(Reduce::contribute(send, Op::SUM, ROOT)),
            Collective::Allreduce => $with!(Allreduce::new(send, recv, Op::SUM)),
            Collective::ReduceScatter => $with!(ReduceScatter::new(send, recv, counts, Op::SUM)),
            Collective::Scan => $with!(Scan::new(send, recv, Op::SUM)),
            Collective::Exscan => $with!(Exscan::new(send, recv, Op::SUM)),
            Collective::Gatherv if is_root => {
                $with!(Gather::new(send, recv, ROOT).counts(blocks))
            }
            Collective::Gatherv => $with!(Gather::contribute(send, ROOT).uneven()),
            Collective::Scatterv if is_root => {
                $with!(Scatter::new(send, recv, ROOT).counts(blocks))
            }
            Collective::Scatterv => $with!(Scatter::receive(recv, ROOT).uneven()),
            Collective::Allgatherv => $with!(Allgather::new(send, recv).counts(blocks)),
            Collective::Alltoallv => {
                let call = Alltoall::new(send, recv);
                $with!(call.send_counts(blocks).recv_counts(blocks))
            }
            Collective::Alltoallw => {
                let (sent, received) = $both.unwrap_or_default();
                $with!(Alltoallw::new(send, sent, recv, received))
            }
            Collective::ReduceScatterBlock => {
                $with!(ReduceScatterBlock::new(send, recv, Op::SUM))
            }
            Collective::NeighbourAllgather => $with!(NeighbourAllgather::new(send, recv)),
            Collective::NeighbourAllgatherv => {
                $with!(NeighbourAllgather::new(send, recv).counts(blocks))
            }
            Collective::NeighbourAlltoall => $with!(NeighbourAlltoall::new(send, recv)),
            Collective::NeighbourAlltoallv => {
                let call = NeighbourAlltoall::new(send, recv);
                $with!(call.send_counts(blocks).recv_counts(blocks))
            }
            Collective::NeighbourAlltoallw => {
                let (sent, received) = $both.unwrap_or_default();
                $with!(NeighbourAlltoallw::new(send, sent, recv, received))
            }
        }
    }};
}

pub(super) use described;
