//! Operations that are done later: their descriptions, with everything in them that callers keep to themselves.

use std::fmt;

use portolan_core::buffer::{MemoryKind, TypedBuf};
use portolan_datatype::{Layout, Op};

use crate::args::{BlocksArg, Many, Operation};

/// A buffer with its layout.
#[derive(Clone)]
struct Buf {
    ptr: *mut u8,
    count: usize,
    layout: Layout,
}

// SAFETY: a description; every access through it is unsafe and argued where it happens.
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

/// An operation that can be done on a track.
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
    Allgather {
        send: Option<Buf>,
        recv: Buf,
    },
    Allgatherv {
        send: Option<Buf>,
        recv: Buf,
        counts: Box<[usize]>,
        displacements: Box<[isize]>,
    },
    Alltoall {
        send: Option<Buf>,
        recv: Buf,
    },
    NeighbourAllgather {
        send: Buf,
        recv: Buf,
    },
    NeighbourAlltoall {
        send: Buf,
        recv: Buf,
    },
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kept").field(&self.operation()).finish()
    }
}

impl Kept {
    /// Keeps an operation; `None` for one that is never done on a track.
    pub(crate) fn of(operation: &Operation<'_>) -> Option<Self> {
        let own = |buf: &Option<TypedBuf<'_>>| buf.as_ref().map(Buf::of);
        Some(Self(match operation {
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
            Operation::Allgather { send, recv } => match recv {
                Many::Equal(recv) => What::Allgather {
                    send: own(send),
                    recv: Buf::of(recv),
                },
                Many::Blocks(of) => What::Allgatherv {
                    send: own(send),
                    recv: Buf {
                        ptr: of.ptr,
                        count: 0,
                        layout: of.layout.clone(),
                    },
                    counts: of.counts.into(),
                    displacements: of.displacements.into(),
                },
                Many::Layouts(_) => return None,
            },
            Operation::Alltoall {
                send,
                recv: Many::Equal(recv),
            } => What::Alltoall {
                send: match send {
                    Some(Many::Equal(send)) => Some(Buf::of(send)),
                    Some(_) => return None,
                    None => None,
                },
                recv: Buf::of(recv),
            },
            Operation::NeighbourAllgather {
                send,
                recv: Many::Equal(recv),
            } => What::NeighbourAllgather {
                send: Buf::of(send),
                recv: Buf::of(recv),
            },
            Operation::NeighbourAlltoall {
                send: Many::Equal(send),
                recv: Many::Equal(recv),
            } => What::NeighbourAlltoall {
                send: Buf::of(send),
                recv: Buf::of(recv),
            },
            _ => return None,
        }))
    }

    /// The operation as the caller has said it.
    pub(super) fn operation(&self) -> Operation<'_> {
        fn lent(buf: &Option<Buf>) -> Option<TypedBuf<'_>> {
            buf.as_ref().map(Buf::get)
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
            What::Allgather { send, recv } => Operation::Allgather {
                send: lent(send),
                recv: Many::Equal(recv.get()),
            },
            What::Allgatherv {
                send,
                recv,
                counts,
                displacements,
            } => Operation::Allgather {
                send: lent(send),
                recv: Many::Blocks(BlocksArg {
                    ptr: recv.ptr,
                    counts,
                    displacements,
                    layout: &recv.layout,
                }),
            },
            What::Alltoall { send, recv } => Operation::Alltoall {
                send: lent(send).map(Many::Equal),
                recv: Many::Equal(recv.get()),
            },
            What::NeighbourAllgather { send, recv } => Operation::NeighbourAllgather {
                send: send.get(),
                recv: Many::Equal(recv.get()),
            },
            What::NeighbourAlltoall { send, recv } => Operation::NeighbourAlltoall {
                send: Many::Equal(send.get()),
                recv: Many::Equal(recv.get()),
            },
        }
    }
}
