//! Owned descriptions of operations that run later. They include the layouts, counts and other
//! arguments that the caller may drop.

use std::fmt;

use portolan_core::buffer::{MemoryKind, TypedBuf};
use portolan_datatype::{Layout, Op};

use crate::args::{BlocksArg, LayoutsArg, Many, Operation};

/// A buffer with its layout.
#[derive(Clone)]
struct Buf {
    ptr: *mut u8,
    count: usize,
    layout: Layout,
}

// SAFETY: this is only a description; every access through it is unsafe and justified where it
// happens.
unsafe impl Send for Buf {}
// SAFETY: as above.
unsafe impl Sync for Buf {}

impl Buf {
    fn of(buf: &TypedBuf<'_>) -> Self {
        Self {
            ptr: buf.ptr,
            count: buf.count,
            layout: buf.layout.clone(),
        }
    }

    fn get(&self) -> TypedBuf<'_> {
        TypedBuf {
            ptr: self.ptr,
            count: self.count,
            layout: &self.layout,
            memory: MemoryKind::Host,
        }
    }
}

/// A block per rank, with the arrays that describe the blocks.
#[derive(Clone)]
enum Blocks {
    Equal(Buf),
    Uneven {
        ptr: *mut u8,
        layout: Layout,
        counts: Box<[usize]>,
        displacements: Box<[isize]>,
    },
    Each {
        ptr: *mut u8,
        layouts: Box<[Layout]>,
        counts: Box<[usize]>,
        displacements: Box<[isize]>,
    },
}

// SAFETY: as for `Buf`.
unsafe impl Send for Blocks {}
// SAFETY: as above.
unsafe impl Sync for Blocks {}

impl Blocks {
    fn of(many: &Many<'_>) -> Self {
        match many {
            Many::Equal(buf) => Self::Equal(Buf::of(buf)),
            Many::Blocks(of) => Self::Uneven {
                ptr: of.ptr,
                layout: of.layout.clone(),
                counts: of.counts.into(),
                displacements: of.displacements.into(),
            },
            Many::Layouts(of) => Self::Each {
                ptr: of.ptr,
                layouts: of.layouts.into(),
                counts: of.counts.into(),
                displacements: of.displacements.into(),
            },
        }
    }

    fn get(&self) -> Many<'_> {
        match self {
            Self::Equal(buf) => Many::Equal(buf.get()),
            Self::Uneven {
                ptr,
                layout,
                counts,
                displacements,
            } => Many::Blocks(BlocksArg {
                ptr: *ptr,
                counts,
                displacements,
                layout,
            }),
            Self::Each {
                ptr,
                layouts,
                counts,
                displacements,
            } => Many::Layouts(LayoutsArg {
                ptr: *ptr,
                counts,
                displacements,
                layouts,
            }),
        }
    }
}

/// The owned description of an operation that runs later.
#[derive(Clone)]
pub(crate) struct Kept(What);

#[derive(Clone)]
enum What {
    Barrier,
    Bcast {
        data: Buf,
        root: u32,
    },
    Reduce {
        send: Option<Buf>,
        recv: Option<Buf>,
        op: Op,
        root: u32,
    },
    Allreduce {
        send: Option<Buf>,
        recv: Buf,
        op: Op,
    },
    ReduceScatter {
        send: Option<Buf>,
        recv: Buf,
        counts: Box<[usize]>,
        op: Op,
    },
    ReduceScatterBlock {
        send: Option<Buf>,
        recv: Buf,
        op: Op,
    },
    Scan {
        send: Option<Buf>,
        recv: Buf,
        op: Op,
        exclusive: bool,
    },
    Gather {
        send: Option<Buf>,
        recv: Option<Blocks>,
        root: u32,
        uneven: bool,
    },
    Scatter {
        send: Option<Blocks>,
        recv: Option<Buf>,
        root: u32,
        uneven: bool,
    },
    Allgather {
        send: Option<Buf>,
        recv: Blocks,
    },
    Alltoall {
        send: Option<Blocks>,
        recv: Blocks,
    },
    NeighbourAllgather {
        send: Buf,
        recv: Blocks,
    },
    NeighbourAlltoall {
        send: Blocks,
        recv: Blocks,
    },
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kept").field(&self.operation()).finish()
    }
}

impl Kept {
    /// Copies the description of an operation.
    pub(crate) fn of(operation: &Operation<'_>) -> Self {
        let own = |buf: &Option<TypedBuf<'_>>| buf.as_ref().map(Buf::of);
        let all = |many: &Option<Many<'_>>| many.as_ref().map(Blocks::of);
        Self(match operation {
            Operation::Barrier => What::Barrier,
            Operation::Bcast { data, root } => What::Bcast {
                data: Buf::of(data),
                root: *root,
            },
            Operation::Reduce {
                send,
                recv,
                op,
                root,
            } => What::Reduce {
                send: own(send),
                recv: own(recv),
                op: (*op).clone(),
                root: *root,
            },
            Operation::Allreduce { send, recv, op } => What::Allreduce {
                send: own(send),
                recv: Buf::of(recv),
                op: (*op).clone(),
            },
            Operation::ReduceScatter {
                send,
                recv,
                counts,
                op,
            } => What::ReduceScatter {
                send: own(send),
                recv: Buf::of(recv),
                counts: (*counts).into(),
                op: (*op).clone(),
            },
            Operation::ReduceScatterBlock { send, recv, op } => What::ReduceScatterBlock {
                send: own(send),
                recv: Buf::of(recv),
                op: (*op).clone(),
            },
            Operation::Scan {
                send,
                recv,
                op,
                exclusive,
            } => What::Scan {
                send: own(send),
                recv: Buf::of(recv),
                op: (*op).clone(),
                exclusive: *exclusive,
            },
            Operation::Gather {
                send,
                recv,
                root,
                uneven,
            } => What::Gather {
                send: own(send),
                recv: all(recv),
                root: *root,
                uneven: *uneven,
            },
            Operation::Scatter {
                send,
                recv,
                root,
                uneven,
            } => What::Scatter {
                send: all(send),
                recv: own(recv),
                root: *root,
                uneven: *uneven,
            },
            Operation::Allgather { send, recv } => What::Allgather {
                send: own(send),
                recv: Blocks::of(recv),
            },
            Operation::Alltoall { send, recv } => What::Alltoall {
                send: all(send),
                recv: Blocks::of(recv),
            },
            Operation::NeighbourAllgather { send, recv } => What::NeighbourAllgather {
                send: Buf::of(send),
                recv: Blocks::of(recv),
            },
            Operation::NeighbourAlltoall { send, recv } => What::NeighbourAlltoall {
                send: Blocks::of(send),
                recv: Blocks::of(recv),
            },
        })
    }

    /// The operation as the caller described it.
    pub(crate) fn operation(&self) -> Operation<'_> {
        fn lent(buf: &Option<Buf>) -> Option<TypedBuf<'_>> {
            buf.as_ref().map(Buf::get)
        }
        fn all(blocks: &Option<Blocks>) -> Option<Many<'_>> {
            blocks.as_ref().map(Blocks::get)
        }
        match &self.0 {
            What::Barrier => Operation::Barrier,
            What::Bcast { data, root } => Operation::Bcast {
                data: data.get(),
                root: *root,
            },
            What::Reduce {
                send,
                recv,
                op,
                root,
            } => Operation::Reduce {
                send: lent(send),
                recv: lent(recv),
                op,
                root: *root,
            },
            What::Allreduce { send, recv, op } => Operation::Allreduce {
                send: lent(send),
                recv: recv.get(),
                op,
            },
            What::ReduceScatter {
                send,
                recv,
                counts,
                op,
            } => Operation::ReduceScatter {
                send: lent(send),
                recv: recv.get(),
                counts,
                op,
            },
            What::ReduceScatterBlock { send, recv, op } => Operation::ReduceScatterBlock {
                send: lent(send),
                recv: recv.get(),
                op,
            },
            What::Scan {
                send,
                recv,
                op,
                exclusive,
            } => Operation::Scan {
                send: lent(send),
                recv: recv.get(),
                op,
                exclusive: *exclusive,
            },
            What::Gather {
                send,
                recv,
                root,
                uneven,
            } => Operation::Gather {
                send: lent(send),
                recv: all(recv),
                root: *root,
                uneven: *uneven,
            },
            What::Scatter {
                send,
                recv,
                root,
                uneven,
            } => Operation::Scatter {
                send: all(send),
                recv: lent(recv),
                root: *root,
                uneven: *uneven,
            },
            What::Allgather { send, recv } => Operation::Allgather {
                send: lent(send),
                recv: recv.get(),
            },
            What::Alltoall { send, recv } => Operation::Alltoall {
                send: all(send),
                recv: recv.get(),
            },
            What::NeighbourAllgather { send, recv } => Operation::NeighbourAllgather {
                send: send.get(),
                recv: recv.get(),
            },
            What::NeighbourAlltoall { send, recv } => Operation::NeighbourAlltoall {
                send: send.get(),
                recv: recv.get(),
            },
        }
    }
}
