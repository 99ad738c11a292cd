//! A packet where it arrived. Its header says what it is, or, where it has none, the data word of
//! its completion.

use libfabric_sys::{FI_REMOTE_CQ_DATA, fi_cq_tagged_entry};

use crate::packets::headerless;
use crate::packets::wire::Wire;

/// A packet where it arrived.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) wire: Wire,
    pub(crate) form: Form,
    pub(crate) data: *const u8,
    pub(crate) len: u32,
    /// Bytes that it occupies in its buffer, including those of parts that were moved.
    pub(crate) span: u32,
    /// The buffer in which it lies.
    pub(crate) buffer: u32,
    /// Its bytes, once they have been copied out of the buffer.
    pub(crate) copy: Option<Vec<u8>>,
}

impl Arrival {
    /// The fewest bytes that a message of this crate has.
    pub(crate) fn least(entry: &fi_cq_tagged_entry) -> usize {
        match entry.flags & FI_REMOTE_CQ_DATA {
            0 => Wire::LEN,
            _ => 0,
        }
    }

    /// Reads the message that has arrived at `place` in a buffer.
    ///
    /// # Safety
    /// As many bytes as the entry says must be readable there, at least [`least`](Self::least),
    /// until the buffer is posted again; nothing may write there.
    pub(crate) unsafe fn new(entry: &fi_cq_tagged_entry, place: *const u8, buffer: u32) -> Self {
        let front = Self::least(entry);
        let mut wire = match front {
            0 => headerless::wire(entry.data),
            // SAFETY: the caller's promise.
            _ => unsafe { Wire::read(place) },
        };
        let form = Form {
            bare: front == 0,
            more: wire.from & Wire::MORE != 0,
        };
        wire.from &= !Wire::MORE;
        Self {
            wire,
            form,
            // SAFETY: as above.
            data: unsafe { place.add(front) },
            len: (entry.len - front) as u32,
            span: (entry.len - front) as u32,
            buffer,
            copy: None,
        }
    }

    /// The buffer in which it lies; `None` if it has been copied out of it.
    pub(crate) fn lies_in(&self) -> Option<u32> {
        self.copy.is_none().then_some(self.buffer)
    }

    /// Its bytes, which are copied out of the buffer if they have not been yet, into a vector with
    /// room for `most` bytes.
    pub(crate) fn own(&mut self, most: usize) -> &mut Vec<u8> {
        let (data, len) = (self.data, self.len as usize);
        let copy = self.copy.get_or_insert_with(|| {
            let mut copy = Vec::with_capacity(most.max(len));
            // SAFETY: the bytes lie in a buffer that is not posted again before `unread`.
            copy.extend_from_slice(unsafe { std::slice::from_raw_parts(data, len) });
            copy
        });
        copy.reserve(most.saturating_sub(len));
        self.data = copy.as_ptr();
        copy
    }
}

// SAFETY: the pointer is into the slab that the same inbox owns, or into `copy`.
unsafe impl Send for Arrival {}

/// How a packet, or a part of one, arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// Without a header, which is that of an earlier packet.
    pub(crate) bare: bool,
    /// The next message continues it.
    pub(crate) more: bool,
}

impl Form {
    /// Bytes in front of the payload.
    pub(crate) fn front(self) -> usize {
        if self.bare { 0 } else { Wire::LEN }
    }
}
