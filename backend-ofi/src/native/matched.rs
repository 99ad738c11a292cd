//! The provider's report on an operation that it matches.

use libfabric_sys::{fi_cq_err_entry, fi_cq_tagged_entry};

/// The end of an operation: of a send, a receive, or a look at what has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matched {
    /// Which operation.
    pub(crate) index: u32,
    /// libfabric's error number; 0 if nothing went wrong.
    pub(crate) error: i32,
    /// The message's tag.
    pub(crate) tag: u64,
    /// The data word that the sender gave with the message.
    pub(crate) data: u64,
    /// Bytes of the message. If it was too long for the buffer, the bytes that were lost are in
    /// `lost`.
    pub(crate) len: usize,
    /// Bytes that did not fit.
    pub(crate) lost: usize,
}

impl Matched {
    /// Operation `index` has ended well.
    #[inline]
    pub(crate) fn of(index: usize, entry: &fi_cq_tagged_entry) -> Self {
        Self {
            index: index as u32,
            error: 0,
            tag: entry.tag,
            data: entry.data,
            len: entry.len,
            lost: 0,
        }
    }

    /// Operation `index` has ended otherwise.
    #[cold]
    pub(crate) fn of_error(index: usize, entry: &fi_cq_err_entry) -> Self {
        Self {
            index: index as u32,
            error: entry.err,
            tag: entry.tag,
            data: entry.data,
            len: entry.len,
            lost: entry.olen,
        }
    }
}
