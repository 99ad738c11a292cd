//! Message representations: how the bytes of a message are written, which side chooses that, and
//! what the other side has to do about it (`MPID_Msg_rep` and `MPID_Msg_act` of the ADI).

use crate::Layout;

/// The order of the bytes of a number in a machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little = 0,
    /// Most significant byte first.
    Big = 1,
}

impl ByteOrder {
    /// The order of the machine this code was compiled for.
    pub const NATIVE: ByteOrder = if cfg!(target_endian = "little") {
        ByteOrder::Little
    } else {
        ByteOrder::Big
    };

    /// The other order.
    pub const fn opposite(self) -> ByteOrder {
        match self {
            ByteOrder::Little => ByteOrder::Big,
            ByteOrder::Big => ByteOrder::Little,
        }
    }
}

/// How the bytes of a message are written: chosen by the sender, carried in the envelope.
///
/// A representation is relative to a rank. In an envelope it is relative to the sender: `Native` is
/// the *sender's* own order. [`seen_from`](MsgRep::seen_from) converts it to one relative to the
/// receiver, which [`Layout::unpack_range`] expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum MsgRep {
    /// The rank's own byte order: nothing is converted.
    #[default]
    Native = 0,
    /// The order opposite to the rank's own.
    Swapped = 1,
    /// MPI's portable representation "external32" (MPI-4, 14.5.2): big-endian, IEEE floating point.
    External32 = 2,
}

impl MsgRep {
    /// The representation with that number, as an envelope carries it.
    pub const fn from_code(code: u8) -> Option<MsgRep> {
        match code {
            0 => Some(MsgRep::Native),
            1 => Some(MsgRep::Swapped),
            2 => Some(MsgRep::External32),
            _ => None,
        }
    }

    /// Number of this representation in an envelope.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The representation that a sender should choose for that layout (`MPID_Msg_rep`).
    ///
    /// `partner` is the byte order of the rank that will read the message; `None` where ranks of
    /// different orders may read it (packing for `MPI_ANY_SOURCE` in a heterogeneous job). With a
    /// known partner, the sender writes in its own order and leaves the conversion to the receiver.
    /// A message for any rank is written as external32. Bytes that are packed already were written
    /// by this same rule when they were packed.
    pub fn choose(layout: &Layout, partner: Option<ByteOrder>) -> (MsgRep, MsgAction) {
        let rep = if partner.is_some() {
            MsgRep::Native
        } else {
            MsgRep::External32
        };
        let action = if layout.is_opaque() {
            MsgAction::Copy
        } else {
            rep.pack_action()
        };
        (rep, action)
    }

    /// Converts a representation relative to the sender to one relative to a receiver with byte
    /// order `receiver`.
    ///
    /// ```
    /// use portolan_datatype::{ByteOrder, MsgRep};
    /// let rep = MsgRep::Native.seen_from(ByteOrder::Big, ByteOrder::Little);
    /// assert_eq!(rep, MsgRep::Swapped);
    /// ```
    pub const fn seen_from(self, sender: ByteOrder, receiver: ByteOrder) -> MsgRep {
        let same = sender as u8 == receiver as u8;
        match self {
            MsgRep::External32 => MsgRep::External32,
            MsgRep::Native if same => MsgRep::Native,
            MsgRep::Swapped if same => MsgRep::Swapped,
            MsgRep::Native => MsgRep::Swapped,
            MsgRep::Swapped => MsgRep::Native,
        }
    }

    /// What packing into this representation does to each number on this machine.
    pub const fn pack_action(self) -> MsgAction {
        match (self, ByteOrder::NATIVE) {
            (MsgRep::Native, _) => MsgAction::Copy,
            (MsgRep::Swapped, _) => MsgAction::Swap,
            (MsgRep::External32, ByteOrder::Big) => MsgAction::Copy,
            (MsgRep::External32, ByteOrder::Little) => MsgAction::ToExternal32,
        }
    }

    /// What unpacking from this representation does to each number on this machine (`MPID_Msg_act`,
    /// after [`seen_from`](MsgRep::seen_from)).
    pub const fn unpack_action(self) -> MsgAction {
        match self.pack_action() {
            MsgAction::ToExternal32 => MsgAction::FromExternal32,
            other => other,
        }
    }
}

/// What has to be done with the numbers of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MsgAction {
    /// Nothing: bytes are copied.
    Copy,
    /// The bytes of each number are reversed.
    Swap,
    /// Each number is written as external32 from the little-endian order of this machine.
    ToExternal32,
    /// Each number is read from external32 into the little-endian order of this machine.
    FromExternal32,
}

impl MsgAction {
    /// Whether the bytes of each number are reversed.
    pub const fn reverses(self) -> bool {
        !matches!(self, MsgAction::Copy)
    }

    /// What a receiver does with a message of `layout` whose representation relative to the sender
    /// is `rep` (`MPID_Msg_act`). It copies where the layout's bytes are uninterpreted.
    pub fn for_receive(layout: &Layout, rep: MsgRep, sender: ByteOrder) -> MsgAction {
        if layout.is_opaque() {
            return MsgAction::Copy;
        }
        rep.seen_from(sender, ByteOrder::NATIVE).unpack_action()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_of_other_order_is_seen_swapped() {
        let other = ByteOrder::NATIVE.opposite();
        let layout = Layout::of::<f64>();
        assert_eq!(
            MsgAction::for_receive(&layout, MsgRep::Native, other),
            MsgAction::Swap
        );
        assert_eq!(
            MsgAction::for_receive(&layout, MsgRep::Swapped, other),
            MsgAction::Copy
        );
        let packed = Layout::packed();
        assert_eq!(
            MsgAction::for_receive(&packed, MsgRep::Native, other),
            MsgAction::Copy
        );
    }

    #[test]
    fn a_message_for_anybody_is_external32() {
        let layout = Layout::of::<i32>();
        assert_eq!(MsgRep::choose(&layout, None).0, MsgRep::External32);
        assert_eq!(
            MsgRep::choose(&layout, None).1.reverses(),
            cfg!(target_endian = "little")
        );
        let own = MsgRep::choose(&layout, Some(ByteOrder::NATIVE));
        assert_eq!(own, (MsgRep::Native, MsgAction::Copy));
        assert_eq!(MsgRep::choose(&Layout::packed(), None).1, MsgAction::Copy);
    }

    #[test]
    fn codes_round_trip() {
        for rep in [MsgRep::Native, MsgRep::Swapped, MsgRep::External32] {
            assert_eq!(MsgRep::from_code(rep.code()), Some(rep));
        }
        assert_eq!(MsgRep::from_code(3), None);
    }
}
