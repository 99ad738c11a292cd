//! Where a pull puts the bytes of a message: where they belong, or on the way there.

use portolan_datatype::MsgRep;

use crate::engine::data::Data;
use crate::engine::entry::Transfer;
use crate::engine::long::flows::Flows;
use crate::observe::Counters;
use crate::staging::Driven;
use crate::transport::Transport;

/// Size of the buffer through which data for scattered layouts is pulled.
const SCRATCH: usize = 128 << 10;

/// Room for the next bytes of a pull.
pub(in crate::engine) struct Room<'a> {
    pub(in crate::engine) start: *mut u8,
    pub(in crate::engine) len: usize,
    then: Then<'a>,
}

/// What remains to be done with bytes that have been pulled.
enum Then<'a> {
    /// Nothing: the room is in the receive's buffer.
    Nothing,
    /// The driver copies them to the accelerator, once the room, which is a chunk, is full.
    Copy(&'a Driven),
    /// They are converted and put where the layout says.
    Unpack(&'a Data),
}

impl<'a> Room<'a> {
    /// Room for the bytes of a receive, `data`, from the place on that its transfer has reached,
    /// and for at most `most` bytes.
    pub(in crate::engine) fn of<T: Transport>(
        transport: &T,
        (flows, scratch): (&mut Flows, &mut Vec<u8>),
        data: &'a Data,
        transfer: &mut Transfer,
        most: usize,
    ) -> Self {
        let at = transfer.mine.start;
        if transfer.rep == MsgRep::Native {
            let own = data.contiguous().map(|(target, _)| target);
            if let Some(target) = own.or_else(|| served(transport, data)) {
                return Self {
                    start: target.wrapping_add(at),
                    len: most,
                    then: Then::Nothing,
                };
            }
            if let Some(driven) = data.driven()
                && let Some((start, space)) = flows.room(&mut transfer.landing, driven, at)
            {
                return Self {
                    start,
                    len: most.min(space),
                    then: Then::Copy(driven),
                };
            }
        }
        scratch.resize(SCRATCH, 0);
        Self {
            start: scratch.as_mut_ptr(),
            len: most.min(SCRATCH),
            then: Then::Unpack(data),
        }
    }

    /// The room has been filled, and the transfer has not moved on yet.
    ///
    /// # Safety
    /// All bytes of the room must have been written, and the receive's buffer must still be the
    /// device's.
    pub(in crate::engine) unsafe fn filled(
        self,
        (flows, counters): (&mut Flows, &mut Counters),
        transfer: &mut Transfer,
    ) {
        match self.then {
            Then::Nothing => {}
            Then::Copy(driven) => {
                let landing = &mut transfer.landing;
                flows.filled(landing, driven, self.len, counters);
            }
            // SAFETY: from the caller; the room has `len` bytes.
            Then::Unpack(data) => unsafe {
                data.write(transfer.mine.start, self.start, self.len, transfer.rep);
            },
        }
    }
}

/// The address at which the transport itself may put accelerator data, if it may.
pub(in crate::engine) fn served<T: Transport>(transport: &T, data: &Data) -> Option<*mut u8> {
    let data = data.driven()?;
    let start = data.at(0);
    transport.serves(start, data.kind()).then_some(start)
}
