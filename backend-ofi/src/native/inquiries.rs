//! Receives from any source that a death has caught in the middle of a message: whose is it?
//!
//! A receive that the provider does not take back has met a message, and nothing says which before
//! all of it is there. The rest of a message of the dead may never come; that of the living does,
//! and must not be lost. So the living are asked, one after the other:
//!
//! ```text
//! this rank                                               one that lives
//!  looks for its earliest message that matches and
//!  has met no receive
//!  ── that message's mark, if there is one; pattern; ─▶   the earliest send that is under way to the asker, matches, and
//!     marks of messages that probes have taken            has not been taken:
//!  ◀──────────────────────────── clear, or not ────────   none, or not before that message: clear
//! ```
//!
//! What the receive has met had been sent before the question. If it was a message of the one that
//! is asked, and that is not under way there any more, then it has come before the answer, because
//! messages keep their order, and the receive is over. If it is under way, then it was sent before
//! any message that has met no receive: the receive would have met that one. So whoever is clear
//! has sent something else. Who is not is asked again later: what it sends may have met another
//! receive, and ends.

use std::cmp::Reverse;
use std::time::Instant;

use portolan_core::device::{ActiveMessage, HandlerId};
use portolan_core::matching::{Envelope, Pattern};

use super::bits::{Label, Mark};
use super::deaths::PATIENCE;
use super::looks::Seen;
use super::packets::MATCHED;
use super::slots::{Arrival, Outgoing, Slot, What};
use super::tags::Tags;
use crate::ofi::{FAREWELL, Ofi};

/// Handler of questions. The ids from [`MATCHED`](super::packets::MATCHED) downward are this
/// device's.
pub(super) const ASKED: HandlerId = HandlerId(u32::MAX - 1);
/// Handler of answers.
pub(super) const ANSWERED: HandlerId = HandlerId(u32::MAX - 2);

/// Messages that a question names at most, the longest ones; of the others it says nothing.
pub(super) const NAMED: usize = 64;

/// What devices say to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// Who hears it, or who has said it.
    pub(crate) peer: u32,
    pub(crate) handler: HandlerId,
    pub(crate) args: [u64; 2],
    /// With a question: messages of the one who hears it that a probe has taken out of matching.
    pub(crate) taken: Vec<Mark>,
}

impl Note {
    /// What says no more than its two words.
    pub(super) fn plain(peer: u32, handler: HandlerId, args: [u64; 2]) -> Self {
        let taken = Vec::new();
        Self {
            peer,
            handler,
            args,
            taken,
        }
    }

    /// The bytes that go with the words.
    pub(super) fn payload(&self) -> Vec<u8> {
        let marks = self.taken.iter();
        marks.flat_map(|mark| mark.bits().to_le_bytes()).collect()
    }

    /// What a peer's device has said.
    pub(super) fn heard(handler: HandlerId, message: &ActiveMessage<'_>) -> Self {
        let bytes = message.payload.to_vec();
        let (words, _) = bytes.as_chunks::<4>();
        let marks = words.iter().take(NAMED);
        Self {
            peer: message.from.index(),
            handler,
            args: message.args,
            taken: marks
                .map(|&word| Mark::of(u32::from_le_bytes(word)))
                .collect(),
        }
    }
}

/// A receive whose message is looked for among the living.
#[derive(Debug)]
pub(super) struct Inquiry {
    number: u32,
    /// The receive's slot, and which operation was in it.
    slot: u32,
    serial: u64,
    from: Pattern,
    /// Who has died.
    dead: u32,
    /// Those who are to be asked; the last one is.
    open: Vec<u32>,
    stage: Stage,
    /// Since when that one is known to have left.
    left: Option<Instant>,
}

/// How far the last one of those who are to be asked is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begin,
    /// The look for a message of its.
    Looking(u32),
    Asked,
    /// Polls until it is begun again, or until the receive is given up if everybody is clear.
    Pause(u32),
}

/// Whether a message that a receive has met may be one of yours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Question {
    /// The inquiry.
    number: u32,
    from: Pattern,
    /// A message of yours that matches and has met no receive.
    unmet: Option<Mark>,
}

impl Question {
    const ANY_TAG: u64 = 1 << 32;
    const MARK: u32 = 33;

    fn to_args(self) -> [u64; 2] {
        let tag = self.from.tag.map_or(Self::ANY_TAG, u64::from);
        let unmet = self.unmet.map_or(0, |mark| u64::from(mark.bits()) + 1);
        let context = u64::from(self.from.context);
        [
            context << 32 | u64::from(self.number),
            unmet << Self::MARK | tag,
        ]
    }

    fn of(args: [u64; 2]) -> Self {
        let mark = (args[1] >> Self::MARK) as u32;
        Self {
            number: args[0] as u32,
            from: Pattern {
                context: (args[0] >> 32) as u32,
                source: None,
                tag: (args[1] & Self::ANY_TAG == 0).then_some(args[1] as u32),
            },
            unmet: mark.checked_sub(1).map(Mark::of),
        }
    }
}

impl Inquiry {
    /// The one that is being asked has not sent it, or will not send the rest.
    fn exclude(&mut self) {
        self.open.pop();
        self.left = None;
        self.stage = match self.open.is_empty() {
            // The provider may still have to say that the message is whole.
            true => Stage::Pause(PATIENCE),
            false => Stage::Begin,
        };
    }

    fn hear(&mut self, clear: bool) {
        if clear {
            self.exclude();
        } else {
            self.stage = Stage::Pause(PATIENCE);
        }
    }
}

impl Tags {
    /// Finds out whose message a receive from any source has met, and gives it up if that was one
    /// of the dead.
    pub(super) fn inquire(&mut self, ofi: &Ofi, number: u32) {
        let slot = self.slots.at(number);
        let What::Receive(receive) = &slot.what else {
            return;
        };
        let (from, serial, Some(dead)) = (receive.from, slot.serial, receive.doom) else {
            return;
        };
        self.last_inquiry = self.last_inquiry.wrapping_add(1);
        let living = self.contexts.living(from.context, ofi.size).collect();
        self.inquiries.push(Inquiry {
            number: self.last_inquiry,
            slot: number,
            serial,
            from,
            dead,
            open: living,
            stage: Stage::Begin,
            left: None,
        });
    }

    /// Takes a step in each inquiry.
    pub(super) fn pursue(&mut self, ofi: &mut Ofi) {
        let mut all = std::mem::take(&mut self.inquiries);
        all.retain_mut(|inquiry| self.pursue_one(ofi, inquiry));
        self.inquiries = all;
    }

    /// `false` if the inquiry is over.
    fn pursue_one(&mut self, ofi: &mut Ofi, inquiry: &mut Inquiry) -> bool {
        // A look has to be brought to its end, whatever has become of the receive.
        let seen = match inquiry.stage {
            Stage::Looking(look) => match self.seen(look) {
                Seen::Later => return true,
                seen => Some(seen),
            },
            _ => None,
        };
        let slot = self.slots.at(inquiry.slot);
        if !slot.under_way || slot.serial != inquiry.serial {
            return false;
        }
        let Some(&member) = inquiry.open.last() else {
            return self.nobody_alive(ofi, inquiry);
        };
        if self.contexts.is_dead(member) {
            inquiry.exclude();
            return true;
        }
        if ofi.shared.roster.has_left(member) {
            // Nobody answers; what it had handed over before may be on its way still.
            let since = *inquiry.left.get_or_insert_with(Instant::now);
            if since.elapsed() >= FAREWELL {
                inquiry.exclude();
            }
            return true;
        }
        match (seen, inquiry.stage) {
            (Some(Seen::Message(arrival)), _) => {
                self.question(ofi, inquiry, member, Some(arrival.label.mark));
            }
            (Some(_), _) => self.question(ofi, inquiry, member, None),
            (None, Stage::Begin) => match self.contexts.local(inquiry.from.context, member) {
                None => inquiry.exclude(),
                source => {
                    let from = Pattern {
                        source,
                        ..inquiry.from
                    };
                    if let Some(look) = self.look(ofi, &from, false) {
                        inquiry.stage = Stage::Looking(look);
                    }
                }
            },
            (None, Stage::Pause(0)) => inquiry.stage = Stage::Begin,
            (None, Stage::Pause(left)) => inquiry.stage = Stage::Pause(left - 1),
            (None, Stage::Looking(_) | Stage::Asked) => {}
        }
        true
    }

    /// Nobody alive has sent what the receive has met: it is given up, after a while.
    fn nobody_alive(&mut self, ofi: &Ofi, inquiry: &mut Inquiry) -> bool {
        if let Stage::Pause(left @ 1..) = inquiry.stage {
            inquiry.stage = Stage::Pause(left - 1);
            return true;
        }
        self.give_up_receive(ofi, inquiry.slot, inquiry.dead);
        false
    }

    fn question(&mut self, ofi: &Ofi, inquiry: &mut Inquiry, member: u32, unmet: Option<Mark>) {
        let question = Question {
            number: inquiry.number,
            from: inquiry.from,
            unmet,
        };
        let taken = self.taken_of(member, &inquiry.from);
        if member == ofi.rank {
            return inquiry.hear(self.is_clear(member, &question, &taken));
        }
        inquiry.stage = Stage::Asked;
        self.notes.push_back(Note {
            taken,
            ..Note::plain(member, ASKED, question.to_args())
        });
    }

    /// Messages of a rank that match and that probes have taken out of matching: no receive has met
    /// them.
    pub(super) fn taken_of(&self, member: u32, from: &Pattern) -> Vec<Mark> {
        let taken = self.slots.iter().filter_map(|slot| match &slot.what {
            What::Taken(arrival) => Some(arrival),
            What::Receive(receive) => receive.claimed.as_ref(),
            _ => None,
        });
        let theirs = taken.filter(|arrival| {
            let Envelope {
                context, source, ..
            } = arrival.envelope;
            from.matches(&arrival.envelope)
                && self.contexts.process(context, source) == Some(member)
        });
        let mut theirs: Vec<&Arrival> = theirs.collect();
        // The longest first: what is short has left its sender, mostly, which does not look for it.
        theirs.sort_by_key(|arrival| Reverse(arrival.len));
        let named = theirs.iter().take(NAMED);
        named.map(|arrival| arrival.label.mark).collect()
    }

    /// Does what another rank's device says.
    pub(crate) fn hear(&mut self, note: &Note) {
        match note.handler {
            MATCHED => self.acknowledged(note.peer, note.args[0] as u32),
            ASKED => self.asked(note),
            _ => self.answered(note.peer, note.args),
        }
    }

    /// A peer asks whether what it is receiving may have been sent from here.
    fn asked(&mut self, note: &Note) {
        let question = Question::of(note.args);
        let clear = self.is_clear(note.peer, &question, &note.taken);
        let args = [question.number.into(), clear.into()];
        self.notes.push_back(Note::plain(note.peer, ANSWERED, args));
    }

    /// A peer answers.
    fn answered(&mut self, peer: u32, args: [u64; 2]) {
        let asked = self.inquiries.iter_mut().find(|inquiry| {
            u64::from(inquiry.number) == args[0]
                && inquiry.stage == Stage::Asked
                && inquiry.open.last() == Some(&peer)
        });
        if let Some(inquiry) = asked {
            inquiry.hear(args[1] != 0);
        }
    }

    /// Whether no message to a rank is under way that matches and that was sent before the one that
    /// has met no receive there; those `taken` out of matching there do not count.
    fn is_clear(&self, to: u32, question: &Question, taken: &[Mark]) -> bool {
        let fitting = |slot: &Slot| match &slot.what {
            What::Send(send) if slot.under_way && send.peer == to => {
                let fits = question.from.matches(&self.bits.unpack(send.tag));
                fits.then(|| (send.turn, Label::unpack(send.label).mark))
            }
            _ => None,
        };
        let sends: Vec<(u64, Mark)> = self.slots.iter().filter_map(fitting).collect();
        // Of two with one mark, 8 million messages apart, nobody knows which has been taken.
        let alike = |mark: Mark| sends.iter().filter(|send| send.1 == mark).count();
        let counts = |send: &&(u64, Mark)| !taken.contains(&send.1) || alike(send.1) > 1;
        let Some(first) = sends.iter().filter(counts).map(|send| send.0).min() else {
            return true;
        };
        let unmet = match question.unmet {
            // At the latest: as if it were the last of those with these bits.
            Some(Mark::Turn(low)) => Some(Mark::latest(self.turn, low)),
            Some(Mark::Awaited(number)) => self.awaited(to, number).map(|send| send.turn),
            None => None,
        };
        unmet.is_some_and(|unmet| unmet <= first)
    }

    /// The synchronous send of a number to a peer, if it is still to be matched.
    fn awaited(&self, peer: u32, number: u32) -> Option<&Outgoing> {
        let slot = self.slots.iter().nth(number as usize)?;
        match &slot.what {
            What::Send(send) if send.peer == peer && send.awaited => Some(send),
            _ => None,
        }
    }
}
