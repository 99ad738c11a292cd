//! Messages that ranks of different nodes send each other outside the provider: one datagram each.

use crate::deaths::counts::Count;

/// The start of every datagram; the digit is the format's version.
const MAGIC: &[u8; 4] = b"PTB3";
/// Bytes before the list of the dead.
const HEAD: usize = 22;
/// Longest reason that is passed on, in bytes.
const REASON: usize = 255;
/// Most dead ranks that one datagram names, so that no network has to fragment it.
pub(crate) const NAMED: usize = 4;
/// Room for any datagram.
pub(crate) const ROOM: usize = HEAD + NAMED * (5 + REASON);

/// Why a datagram was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// "Are you there?" It is answered at once.
    Ask,
    /// "I am."
    Answer,
    /// The sender leaves in good order. It is answered, with [`Noted`](Self::Noted).
    Leave,
    /// The sender has noted that the receiver of this leaves.
    Noted,
    /// The sender has found that ranks have died.
    Report,
    /// "Are you there?", from a rank that does not communicate with the receiver, and does not want
    /// to be asked by it. It is answered at once.
    Hail,
}

const KINDS: [Kind; 6] = [
    Kind::Ask,
    Kind::Answer,
    Kind::Leave,
    Kind::Noted,
    Kind::Report,
    Kind::Hail,
];

/// One datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beat {
    pub(crate) kind: Kind,
    /// The job's number, which its packets carry as well.
    pub(crate) job: u32,
    pub(crate) from: u32,
    /// How many packets the sender says it has sent to the receiver; in a [`Leave`](Kind::Leave),
    /// how many in all. Without meaning in [`Report`](Kind::Report) and [`Noted`](Kind::Noted).
    pub(crate) count: Count,
    /// The dead ranks, each with the reason; at most [`NAMED`].
    pub(crate) dead: Vec<(u32, String)>,
}

impl Beat {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.push(self.kind as u8);
        bytes.extend(self.job.to_le_bytes());
        bytes.extend(self.from.to_le_bytes());
        bytes.extend(self.count.packets.to_le_bytes());
        bytes.extend(self.count.turn.to_le_bytes());
        let dead = &self.dead[..self.dead.len().min(NAMED)];
        bytes.push(dead.len() as u8);
        for (rank, why) in dead {
            let end = (0..=REASON.min(why.len())).rfind(|&at| why.is_char_boundary(at));
            let why = &why[..end.unwrap_or(0)];
            bytes.extend(rank.to_le_bytes());
            bytes.push(why.len() as u8);
            bytes.extend(why.as_bytes());
        }
        bytes
    }

    /// Decodes a datagram; `None` if it is none that this crate sends.
    pub(crate) fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let mut take = |count: usize| bytes.split_off(..count);
        if take(MAGIC.len())? != MAGIC {
            return None;
        }
        let kind = *KINDS.get(usize::from(take(1)?[0]))?;
        let mut number = || Some(u32::from_le_bytes(take(4)?.try_into().ok()?));
        let (job, from) = (number()?, number()?);
        let (packets, turn) = (number()?, number()?);
        let count = take(1)?[0];
        let mut dead = Vec::new();
        for _ in 0..count {
            let rank = u32::from_le_bytes(take(4)?.try_into().ok()?);
            let len = usize::from(take(1)?[0]);
            let why = String::from_utf8_lossy(take(len)?).into_owned();
            dead.push((rank, why));
        }
        let beat = Self {
            kind,
            job,
            from,
            count: Count { packets, turn },
            dead,
        };
        bytes.is_empty().then_some(beat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(kind: Kind, dead: Vec<(u32, String)>) -> Beat {
        Beat {
            kind,
            job: 0xdead_beef,
            from: 7,
            count: Count {
                packets: 0x0102_0304,
                turn: 5,
            },
            dead,
        }
    }

    #[test]
    fn beats_survive_the_journey() {
        for kind in KINDS {
            let beat = beat(
                kind,
                vec![(3, "it is gone".into()), (u32::MAX, String::new())],
            );
            assert_eq!(Beat::from_bytes(&beat.to_bytes()), Some(beat));
        }
    }

    #[test]
    fn long_reasons_are_cut_between_characters_and_lists_at_their_limit() {
        let beat = beat(Kind::Report, vec![(1, "ä".repeat(REASON)); NAMED + 1]);
        let bytes = beat.to_bytes();
        assert!(bytes.len() <= ROOM);
        let read = Beat::from_bytes(&bytes).unwrap();
        assert_eq!(read.dead, vec![(1, "ä".repeat(REASON / 2)); NAMED]);
    }

    #[test]
    fn nonsense_is_no_beat() {
        let good = beat(Kind::Report, vec![(3, "gone".into())]).to_bytes();
        for end in 0..good.len() {
            assert_eq!(Beat::from_bytes(&good[..end]), None, "{end} bytes");
        }
        let longer = [&good[..], &[0]].concat();
        assert_eq!(Beat::from_bytes(&longer), None);
        for (at, value) in [(0, b'p'), (4, KINDS.len() as u8), (HEAD - 1, 2)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(Beat::from_bytes(&bad), None, "byte {at}");
        }
    }
}
