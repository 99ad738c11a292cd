//! Detects packets that never arrive, over TCP.
//!
//! When a connection breaks, operations that are still open on it fail, and their sender reports
//! that. But packets that the provider had already copied, or that the system had taken, are lost
//! silently. A provider that connects again goes on with the packets behind them, and the receiver
//! would hold these for ever, waiting for the missing number. Over TCP, a packet never overtakes an
//! earlier one to the same rank. So a number that is missing for long is lost, and so is the
//! connection of the two ranks. (This does not hold where packets go in parts, one of which may
//! wait while the next leaves.) Over other providers, a missing packet may be on its way for as
//! long as its sender computes.
//!
//! If the lost packet is the last one of its sender, no later one shows that it is missing, and
//! both ranks may wait for each other. Between ranks of different nodes, heartbeats carry how many
//! packets the sender has sent ([`counts`](crate::deaths::counts)). But TCP may need long to
//! deliver a packet after a disturbance of the network, and a packet may lie in the sender's
//! provider until the sender polls. So it is lost if it is missing while both ranks have polled in
//! many periods, and those of the receiver have brought nothing else. Ranks of one node have no
//! heartbeats with each other, so the loss of a last packet between them is not noticed.

use std::time::{Duration, Instant};

/// How long a number may be missing while this rank polls.
const LIMIT: Duration = Duration::from_secs(20);
/// The longest time between two polls that counts: a rank that does not poll cannot know that
/// nothing comes.
const STEP: Duration = Duration::from_millis(100);

/// The missing number, and for how long it has been missing.
#[derive(Debug, Default)]
pub(crate) struct Gap {
    /// The sender of the missing packet, and its number.
    missing: Option<(u32, u32)>,
    looked: Option<Instant>,
    waited: Duration,
    /// Ranks that have sent more than has arrived.
    late: Vec<Late>,
}

/// A packet that has been sent, and has not arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    /// Its sender and its number.
    pub(crate) packet: (u32, u32),
    /// A turn in which the sender had sent it.
    pub(crate) turn: u32,
    /// How many looks have missed it since.
    pub(crate) looks: u32,
}

impl Gap {
    /// Whether a packet is missing.
    pub(crate) fn is_open(&self) -> bool {
        self.missing.is_some()
    }

    /// Pretends that it has been missing for the whole limit.
    #[cfg(test)]
    pub(crate) fn pretend_to_wait(&mut self) {
        self.waited = LIMIT;
    }

    /// Updates which packet is missing. Returns whether it is lost.
    pub(crate) fn look(&mut self, missing: Option<(u32, u32)>, now: impl Fn() -> Instant) -> bool {
        if self.missing != missing {
            (self.missing, self.looked, self.waited) = (missing, None, Duration::ZERO);
        }
        if missing.is_none() {
            return false;
        }
        let now = now();
        if let Some(before) = self.looked.replace(now) {
            self.waited += now.saturating_duration_since(before).min(STEP);
        }
        self.waited >= LIMIT
    }

    /// Updates which packets have been sent and have not arrived; a look after a poll that found
    /// nothing. Returns one that is lost: it has been missing for so many looks, and for so many
    /// turns of its sender.
    pub(crate) fn compare(
        &mut self,
        missing: impl Iterator<Item = Late>,
        patience: u32,
    ) -> Option<(u32, u32)> {
        let before = std::mem::take(&mut self.late);
        let mut lost = None;
        for now in missing {
            let known = before.iter().find(|late| late.packet == now.packet);
            let late = known.map_or(now, |late| Late {
                looks: late.looks + 1,
                ..*late
            });
            if late.looks >= patience && now.turn - late.turn >= patience {
                lost = Some(late.packet);
            }
            self.late.push(late);
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use portolan_core::transport::Transport;

    use super::*;
    use crate::config::Config;
    use crate::deaths::counts::Count;
    use crate::ofi::{Nobody, Ofi};
    use crate::testing::opened_or_skipped;

    /// The watching thread calls for counts, and the rank polls.
    fn look(ofi: &mut Ofi) {
        ofi.shared.deaths.call();
        ofi.poll(&mut Nobody);
        assert!(!ofi.shared.deaths.take_call(), "the poll has answered it");
    }

    /// Nothing that arrives shows that it is missing.
    #[test]
    fn whoever_loses_its_last_packet_with_a_connection_has_failed() {
        let config = Config {
            provider: Some("tcp".to_owned()),
            interface: Some("lo".to_owned()),
            ..Config::default()
        };
        let Some(mut ranks) = opened_or_skipped("a last packet that is lost", 2, &config) else {
            return; // The skip has been printed.
        };
        let [zero, one] = &mut ranks[..] else {
            unreachable!("two were made")
        };
        // As on a provider where no packet goes in parts.
        one.gap.get_or_insert_default();
        // Pretend that rank 0's only packet was lost with a connection.
        zero.peers[1].sent += 1;
        look(zero);
        let Count { packets, turn } = zero.shared.counts.published(1);
        assert_eq!((packets, turn), (1, 1));
        // A packet that the provider has not accepted has not been sent.
        (zero.peers[1].sent, zero.peers[1].waiting) = (2, 1);
        look(zero);
        assert_eq!(zero.shared.counts.published(1).packets, 1);
        zero.peers[1].waiting = 0;
        let patience = one.shared.counts.patience();
        for turn in 1..=patience {
            one.shared.counts.hear(0, Count { packets, turn });
            look(one);
            assert_eq!(one.shared.deaths.count(), 0, "it may come still");
        }
        let turn = patience + 1;
        one.shared.counts.hear(0, Count { packets, turn });
        look(one);
        let why = one.shared.deaths.reason(0, 1).expect("rank 0 has failed");
        assert!(why.contains("packet 0 of it was lost"), "{why}");
    }

    /// Looks this many times, this far apart. Returns whether a packet is lost then.
    fn looks(gap: &mut Gap, missing: (u32, u32), times: u32, distance: Duration) -> bool {
        let start = Instant::now();
        (0..times).any(|n| gap.look(Some(missing), || start + distance * n))
    }

    #[test]
    fn what_is_missing_for_long_is_lost() {
        let looks_needed = (LIMIT.as_millis() / STEP.as_millis()) as u32;
        let mut gap = Gap::default();
        assert!(!looks(&mut gap, (1, 7), looks_needed, STEP));
        assert!(gap.is_open());
        // Another packet is missing, or the missing one has arrived.
        assert!(!looks(&mut gap, (1, 8), looks_needed, STEP));
        assert!(!gap.look(None, Instant::now));
        assert!(!gap.is_open());
        // An hour without a look counts as one step.
        let hour = Duration::from_secs(3600);
        assert!(!looks(&mut gap, (1, 8), looks_needed, hour));
        assert!(looks(&mut gap, (1, 9), looks_needed + 1, STEP));
    }

    #[test]
    fn what_was_sent_is_lost_once_both_ranks_have_polled_for_long() {
        let mut gap = Gap::default();
        let late = |packet, turn| Late {
            packet,
            turn,
            looks: 0,
        };
        // Its sender computes, so that its provider may still have the packet.
        for _ in 0..10 {
            assert_eq!(gap.compare([late((1, 7), 3)].into_iter(), 5), None);
        }
        // Looks at other packets, and at later ones of the same sender, count for themselves.
        for turn in 3..7 {
            let missing = [late((2, 7), turn), late((1, 8), turn)];
            assert_eq!(gap.compare(missing.into_iter(), 5), None);
        }
        assert_eq!(gap.compare([late((1, 8), 8)].into_iter(), 5), None);
        let missing = [late((2, 7), 8), late((1, 8), 9)];
        let lost = gap.compare(missing.into_iter(), 5);
        assert_eq!(lost, Some((1, 8)), "that of rank 2 had arrived");
        assert_eq!(gap.compare(std::iter::empty(), 5), None);
        assert!(gap.late.is_empty());
    }
}
