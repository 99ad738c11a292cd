//! Defaults for devices that have nothing better: datatype operations in terms of contiguous ones,
//! as in the paper's model implementation (section 4.2), and waiting by polling.

use portolan_datatype::{ByteOrder, Layout, MsgAction, MsgRep, Signature};

use super::args::{Check, SendArgs};
use super::upper::Completion;
use super::{Device, SendMode};
use crate::buffer::{ContigBuf, TypedBuf};
use crate::error::{Error, ErrorKind, Result};
use crate::group::Group;
use crate::matching::Pattern;
use crate::request::Request;
use crate::status::Status;

/// The representation for a layout and what packing has to do, in a homogeneous job.
pub(super) fn msg_rep(layout: &Layout) -> (MsgRep, MsgAction) {
    MsgRep::choose(layout, Some(ByteOrder::NATIVE))
}

/// What unpacking has to do.
pub(super) fn msg_act(layout: &Layout, rep: MsgRep) -> MsgAction {
    MsgAction::for_receive(layout, rep, ByteOrder::NATIVE)
}

/// Packs `buf` into memory of its own.
///
/// # Safety
/// Every byte that the layout covers must be readable.
unsafe fn packed(buf: &TypedBuf<'_>, rep: MsgRep) -> Result<(Box<[u8]>, Signature)> {
    let len = buf.layout.packed_size(buf.count, rep)?;
    let mut bytes = vec![0_u8; len].into_boxed_slice();
    // SAFETY: the caller vouches for the buffer; `bytes` has the packed size.
    unsafe {
        buf.layout
            .pack_range(buf.ptr, buf.count, 0, bytes.as_mut_ptr(), len, rep)
    };
    Ok((bytes, buf.layout.signature(len)))
}

fn contig(bytes: &[u8], signature: Signature) -> ContigBuf {
    ContigBuf {
        signature,
        ..ContigBuf::from_bytes(bytes)
    }
}

/// # Safety
/// As [`Device::send_datatype_unchecked`].
pub(super) unsafe fn send_datatype<D: Device>(
    device: &D,
    args: &SendArgs,
    buf: TypedBuf<'_>,
) -> Result<()> {
    debug_assert_ne!(args.dest.index(), u32::MAX);
    // SAFETY: the caller vouches for the buffer, and the packed copy lives until the send is over.
    unsafe {
        let (bytes, signature) = packed(&buf, args.rep)?;
        device.send_contig_unchecked(args, contig(&bytes, signature))
    }
}

/// # Safety
/// As [`Device::isend_datatype_unchecked`].
pub(super) unsafe fn isend_datatype<D: Device>(
    device: &D,
    args: &SendArgs,
    buf: TypedBuf<'_>,
) -> Result<Request> {
    debug_assert_ne!(args.mode, SendMode::Buffered);
    // SAFETY: the caller vouches for the buffer; the packed copy is attached to the request.
    unsafe {
        let (bytes, signature) = packed(&buf, args.rep)?;
        let request = device.isend_contig_unchecked(args, contig(&bytes, signature))?;
        device.attach(
            request,
            Completion {
                keep: Box::new(bytes),
                then: None,
            },
        )?;
        Ok(request)
    }
}

/// A receive into packed memory, and where to unpack it.
struct Unpack {
    bytes: Box<[u8]>,
    ptr: *mut u8,
    count: usize,
    layout: Layout,
}

// SAFETY: `ptr` is the caller's buffer, which is the device's until the request completes.
unsafe impl Send for Unpack {}

impl Unpack {
    fn new(buf: &TypedBuf<'_>) -> Result<Self> {
        let len = buf.layout.packed_size(buf.count, MsgRep::Native)?;
        let bytes = vec![0_u8; len].into_boxed_slice();
        Ok(Self {
            bytes,
            ptr: buf.ptr,
            count: buf.count,
            layout: buf.layout.clone(),
        })
    }

    fn target(&mut self) -> ContigBuf {
        let primitive = self.layout.homogeneous();
        ContigBuf {
            signature: primitive.map_or(Signature::ANY, Signature::homogeneous),
            ..ContigBuf::from_bytes_mut(&mut self.bytes)
        }
    }

    /// Unpacks what has arrived.
    fn finish(&mut self, status: Status) -> Status {
        let len = usize::try_from(status.bytes)
            .unwrap_or(0)
            .min(self.bytes.len());
        if !status.cancelled {
            // SAFETY: the buffer is the device's until the request completes, which is being done.
            unsafe {
                let source = self.bytes.as_ptr();
                self.layout
                    .unpack_range(self.ptr, self.count, 0, source, len, status.rep);
            }
        }
        Status {
            rep: MsgRep::Native,
            ..status
        }
    }
}

/// # Safety
/// As [`Device::recv_datatype_unchecked`].
pub(super) unsafe fn recv_datatype<D: Device>(
    device: &D,
    from: &Pattern,
    buf: TypedBuf<'_>,
) -> Result<Status> {
    let mut unpack = Unpack::new(&buf)?;
    // SAFETY: the packed memory lives until the receive is over.
    let outcome = unsafe { device.recv_contig_unchecked(from, unpack.target()) };
    match outcome {
        Ok(status) => Ok(unpack.finish(status)),
        Err(error) => {
            if let Some(status) = error.status() {
                unpack.finish(*status);
            }
            Err(error)
        }
    }
}

/// # Safety
/// As [`Device::irecv_datatype_unchecked`].
pub(super) unsafe fn irecv_datatype<D: Device>(
    device: &D,
    from: &Pattern,
    buf: TypedBuf<'_>,
) -> Result<Request> {
    let mut unpack = Box::new(Unpack::new(&buf)?);
    let target = unpack.target();
    // SAFETY: the packed memory is attached to the request, so it lives until the receive is over.
    let request = unsafe { device.irecv_contig_unchecked(from, target)? };
    let then = |keep: &mut (dyn std::any::Any + Send), status: Status| match keep
        .downcast_mut::<Unpack>()
    {
        Some(unpack) => unpack.finish(status),
        None => status,
    };
    device.attach(
        request,
        Completion {
            keep: unpack,
            then: Some(then),
        },
    )?;
    Ok(request)
}

/// See [`Device::wait_for`].
pub(super) fn wait_for<D: Device>(
    device: &D,
    group: &Group,
    mut ready: impl FnMut() -> bool,
) -> Result<()> {
    loop {
        if ready() {
            return Ok(());
        }
        device.device_check(Check::NonBlocking)?;
        if let Some(dead) = device.dead_member(group)
            && !ready()
        {
            let dead = dead.index();
            let why = device.failure_of(super::ProcId::new(dead));
            let why = why.unwrap_or_else(|| "it has died".to_owned());
            return Err(Error::peer_failed(dead, &why).on_rank(device.attributes().world_rank));
        }
    }
}

/// The error for a position or count outside of a buffer of `len` bytes.
#[cold]
pub(super) fn outside(what: &str, position: usize, more: usize, len: usize) -> Error {
    Error::new(
        ErrorKind::Truncated,
        format!("{what}: {more} bytes at position {position} do not fit into {len} bytes"),
    )
    .remedy("ask pack_size for the room that is needed")
}
