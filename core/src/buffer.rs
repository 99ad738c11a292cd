//! How buffers are described everywhere below the facade.

use portolan_datatype::{Layout, Signature};

/// The kind of memory that a buffer is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Memory that the processor loads and stores.
    #[default]
    Host,
    /// Memory of a CUDA accelerator.
    Cuda,
    /// Memory of a ROCm accelerator.
    Rocm,
    /// Memory of a Level Zero accelerator.
    LevelZero,
    /// Memory of an AWS Neuron accelerator.
    Neuron,
    /// Memory of a Habana accelerator, used through `SynapseAI`.
    SynapseAi,
}

/// Contiguous bytes of one primitive type (or of plain bytes): the arguments `buf, len` of the
/// paper's contiguous routines, and the signature that is compared between sender and receiver.
///
/// Used both for sending, where the bytes are only read, and for receiving. Mixed types go through
/// [`TypedBuf`] even where they have no gaps, because their signature depends on the length.
#[derive(Clone, Copy, Debug)]
pub struct ContigBuf {
    /// Address of the first byte; may dangle if `len` is 0.
    pub ptr: *mut u8,
    /// Length in bytes.
    pub len: usize,
    /// Signature of the data; [`Signature::ANY`] matches everything.
    pub signature: Signature,
    /// Where the memory is.
    pub memory: MemoryKind,
}

impl ContigBuf {
    /// Bytes to send.
    #[inline]
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self {
            ptr: bytes.as_ptr().cast_mut(),
            len: bytes.len(),
            signature: Signature::ANY,
            memory: MemoryKind::Host,
        }
    }

    /// Bytes to receive into.
    #[inline]
    #[must_use]
    pub fn from_bytes_mut(bytes: &mut [u8]) -> Self {
        Self {
            ptr: bytes.as_mut_ptr(),
            len: bytes.len(),
            signature: Signature::ANY,
            memory: MemoryKind::Host,
        }
    }
}

/// `count` items of a layout: the arguments `buf, count, datatype` of the paper's datatype
/// routines.
#[derive(Clone, Copy, Debug)]
pub struct TypedBuf<'a> {
    /// The address that displacements are relative to. May be null if the layout's displacements
    /// are absolute addresses.
    pub ptr: *mut u8,
    /// Number of items.
    pub count: usize,
    /// The layout of one item.
    pub layout: &'a Layout,
    /// Where the memory is.
    pub memory: MemoryKind,
}

// Descriptions travel with requests. When the memory may be accessed, and by what, is the contract
// of the unsafe routines that take them.
// SAFETY: the type is a description; every access through it is unsafe and argued where it happens.
unsafe impl Send for ContigBuf {}
// SAFETY: as above; a shared description gives no safe access to the memory.
unsafe impl Sync for ContigBuf {}
