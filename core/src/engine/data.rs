//! The buffer of an operation, kept for as long as the operation runs. For the engine, and for
//! devices that do not use an engine.

use portolan_datatype::{Layout, MsgRep, Signature, bytes};

use crate::buffer::{ContigBuf, MemoryKind, TypedBuf};
use crate::error::{Error, ErrorKind, Result};
use crate::staging::{Driven, unsupported};
use crate::transport::Payload;

/// A contiguous buffer, or items of a layout together with a reference to the layout, so that the
/// type may be freed before the communication completes (paper, section 3.7).
#[derive(Clone, Debug)]
pub enum Data {
    /// Contiguous bytes.
    Contig(ContigBuf),
    /// Items of a layout.
    Typed {
        /// Address that displacements count from.
        ptr: *mut u8,
        /// Number of items.
        count: usize,
        /// The layout of one item.
        layout: Layout,
        /// Bytes of the packed stream.
        bytes: usize,
    },
    /// Items without gaps in memory that only its driver reaches.
    Driven(Box<Driven>),
}

// SAFETY: a description of a buffer; the unsafe entries of `Device` make their callers promise that
// the buffer may be used by whatever thread makes progress until the operation is over.
unsafe impl Send for Data {}

impl Data {
    /// No bytes.
    pub const NONE: Self = Self::Contig(ContigBuf {
        ptr: std::ptr::null_mut(),
        len: 0,
        signature: Signature::ANY,
        memory: MemoryKind::Host,
    });

    /// The buffer as the caller described it, packed in `rep`.
    ///
    /// # Errors
    /// [`InvalidCount`](ErrorKind::InvalidCount) if the packed size overflows;
    /// [`UnsupportedMemory`](ErrorKind::UnsupportedMemory) if it is not memory of the host.
    pub fn typed(buf: &TypedBuf<'_>, rep: MsgRep) -> Result<Self> {
        if buf.memory != MemoryKind::Host {
            return Err(unsupported(buf.memory, "this call"));
        }
        let bytes = buf.layout.packed_size(buf.count, rep).map_err(|e| {
            Error::new(
                ErrorKind::InvalidCount,
                format!("{} items of a layout: {e}", buf.count),
            )
        })?;
        Ok(Self::Typed {
            ptr: buf.ptr,
            count: buf.count,
            layout: buf.layout.clone(),
            bytes,
        })
    }

    /// The buffer as the caller described it. If it has no gaps, consists of one primitive and is
    /// sent as it is, it becomes contiguous bytes.
    ///
    /// # Errors
    /// As [`typed`](Self::typed).
    pub fn of(buf: &TypedBuf<'_>, rep: MsgRep) -> Result<Self> {
        if rep == MsgRep::Native
            && buf.memory == MemoryKind::Host
            && buf.layout.is_contiguous()
            && let Some(primitive) = buf.layout.homogeneous()
            && let Some(len) = buf.layout.size().checked_mul(buf.count)
        {
            return Ok(Self::Contig(ContigBuf {
                ptr: buf.ptr,
                len,
                signature: Signature::homogeneous(primitive),
                memory: buf.memory,
            }));
        }
        Self::typed(buf, rep)
    }

    /// Bytes of the packed stream.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Contig(buf) => buf.len,
            Self::Typed { bytes, .. } => *bytes,
            Self::Driven(data) => data.bytes,
        }
    }

    /// Whether the packed stream is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a message of `sent` bytes with these signature bits may be received here.
    #[inline]
    #[must_use]
    pub fn accepts(&self, signature: u32, sent: usize) -> bool {
        let signature = Signature::from_bits(signature);
        if signature == Signature::ANY || sent == 0 {
            return true;
        }
        // A message that does not fit is not compared: the receive ends as truncated.
        self.len() < sent || signature.matches(self.signature(sent))
    }

    /// Signature of the first `bytes` bytes of the packed stream.
    #[inline]
    pub fn signature(&self, bytes: usize) -> Signature {
        match self {
            Self::Contig(buf) => buf.signature,
            Self::Typed { layout, .. } => layout.signature(bytes),
            Self::Driven(data) => data.buf.layout.signature(bytes),
        }
    }

    /// Address and length of the bytes, if the packed stream is what host memory contains.
    pub fn contiguous(&self) -> Option<(*mut u8, usize)> {
        match self {
            Self::Contig(buf) => Some((buf.ptr, buf.len)),
            Self::Typed {
                ptr, layout, bytes, ..
            } => layout.is_contiguous().then_some((*ptr, *bytes)),
            Self::Driven(_) => None,
        }
    }

    /// The buffer, if only its driver reaches it.
    #[inline]
    pub(crate) fn driven(&self) -> Option<&Driven> {
        match self {
            Self::Driven(data) => Some(data),
            _ => None,
        }
    }

    /// The representation in which data that arrived in `rep` is delivered: a contiguous receive
    /// that does not say what its bytes are gets them as they arrived.
    #[inline]
    pub fn delivers(&self, rep: MsgRep) -> MsgRep {
        match self {
            Self::Contig(buf) if buf.signature.primitive().is_none() => rep,
            _ => MsgRep::Native,
        }
    }

    /// Copies `len` bytes of the packed stream from `position` on to `target`.
    ///
    /// # Safety
    /// The buffer must be readable, `position + len` at most [`len`](Self::len), and `len` bytes at
    /// `target` writable and apart from the buffer.
    #[inline]
    pub unsafe fn read(&self, position: usize, target: *mut u8, len: usize, rep: MsgRep) {
        debug_assert!(position + len <= self.len());
        match self {
            // A contiguous routine's data is already in its representation (paper, section 3.1).
            Self::Contig(buf) => {
                // SAFETY: the range lies in the buffer, which the caller vouches for.
                unsafe { bytes::copy(buf.ptr.add(position), target, len) };
            }
            Self::Typed {
                ptr, count, layout, ..
            } => {
                // SAFETY: as above, for every byte that the layout covers.
                let done = unsafe { layout.pack_range(*ptr, *count, position, target, len, rep) };
                debug_assert_eq!(done, len);
            }
            // SAFETY: the caller's promise.
            Self::Driven(data) => unsafe { data.read(position, target, len, rep) },
        }
    }

    /// Copies `len` bytes of a packed stream in `rep` to the buffer, from stream position
    /// `position` on.
    ///
    /// # Safety
    /// The buffer must be writable, `position + len` at most [`len`](Self::len), and `len` bytes at
    /// `source` readable and apart from the buffer.
    #[inline]
    pub unsafe fn write(&self, position: usize, source: *const u8, len: usize, rep: MsgRep) {
        debug_assert!(position + len <= self.len());
        match self {
            Self::Contig(buf) => {
                if rep != MsgRep::Native {
                    // SAFETY: the caller's promise.
                    return unsafe { write_converted(buf, position, source, len, rep) };
                }
                // SAFETY: the range lies in the buffer, which the caller vouches for.
                unsafe { bytes::copy(source, buf.ptr.add(position), len) };
            }
            Self::Typed {
                ptr, count, layout, ..
            } => {
                // SAFETY: as above, for every byte that the layout covers.
                unsafe { layout.unpack_range(*ptr, *count, position, source, len, rep) };
            }
            // SAFETY: the caller's promise.
            Self::Driven(data) => unsafe { data.write(position, source, len, rep) },
        }
    }

    /// The same for data in a packet.
    ///
    /// # Safety
    /// The buffer must be writable, `position + len` at most [`len`](Self::len), and `len` at most
    /// the payload's, which is apart from the buffer.
    #[inline]
    pub unsafe fn unload(&self, position: usize, payload: Payload<'_>, len: usize, rep: MsgRep) {
        match self {
            Self::Contig(buf) if rep == MsgRep::Native => {
                debug_assert!(position + len <= buf.len);
                // SAFETY: the range lies in the buffer, which the caller vouches for.
                unsafe { payload.copy_to(buf.ptr.add(position), len) };
            }
            _ => {
                // SAFETY: the caller's promise.
                unsafe { self.write(position, payload.as_ptr(), len, rep) };
                payload.take();
            }
        }
    }
}

/// Puts data of another representation into a contiguous buffer: converted if the receiver says
/// which primitive it is, copied if the receiver takes bytes.
#[cold]
unsafe fn write_converted(
    buf: &ContigBuf,
    position: usize,
    source: *const u8,
    len: usize,
    rep: MsgRep,
) {
    let Some(primitive) = buf.signature.primitive() else {
        // SAFETY: the caller of `Data::write` vouches for the range.
        return unsafe { bytes::copy(source, buf.ptr.add(position), len) };
    };
    let layout = Layout::primitive(primitive);
    let count = buf.len / layout.size().max(1);
    // SAFETY: `count` items of the primitive lie inside of the buffer.
    unsafe { layout.unpack_range(buf.ptr, count, position, source, len, rep) };
}
