//! The header that precedes every packet on the wire.

use portolan_core::transport::Header;

/// The engine's header, and what the receiver's transport needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Wire {
    pub(crate) header: Header,
    /// The sender's job: later jobs reuse addresses.
    pub(crate) job: u32,
    /// The sender's rank; with [`CONTROL`](Self::CONTROL) for a packet that carries only `ack`,
    /// with [`MORE`](Self::MORE) for a part of one.
    pub(crate) from: u32,
    /// The packet's number in its pair and direction. Providers may deliver out of order.
    pub(crate) seq: u32,
    /// How many packets in the other direction the sender of this one has delivered.
    pub(crate) ack: u32,
}

const _: () = assert!(size_of::<Wire>() == Wire::LEN);

impl Wire {
    /// Bytes on the wire.
    pub(crate) const LEN: usize = 40;
    /// In `from`: the packet is not for the engine, and not numbered.
    pub(crate) const CONTROL: u32 = 1 << 31;
    /// In `from`: the next message continues this packet.
    pub(crate) const MORE: u32 = 1 << 30;

    /// Writes it at `place`.
    ///
    /// # Safety
    /// [`LEN`](Self::LEN) bytes must be writable there.
    #[inline]
    pub(crate) unsafe fn write(self, place: *mut u8) {
        // SAFETY: the caller's promise; no alignment is needed.
        unsafe { place.cast::<Self>().write_unaligned(self) };
    }

    /// Reads the header that has arrived at `place`. Any bytes are a valid `Wire`; its contents
    /// have not been checked yet.
    ///
    /// # Safety
    /// [`LEN`](Self::LEN) bytes must be readable there.
    #[inline]
    pub(crate) unsafe fn read(place: *const u8) -> Self {
        // SAFETY: the caller's promise; every field is an integer, and there is no padding.
        unsafe { place.cast::<Self>().read_unaligned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_wherever_it_lies() {
        let wire = Wire {
            header: Header {
                tag: 7,
                ..Header::default()
            },
            job: 1,
            from: 2,
            seq: u32::MAX,
            ack: 3,
        };
        let mut bytes = [0; Wire::LEN + 1];
        // SAFETY: there is room for it after the first byte.
        let read = unsafe {
            wire.write(bytes.as_mut_ptr().add(1));
            Wire::read(bytes.as_ptr().add(1))
        };
        assert_eq!(read, wire);
    }
}
