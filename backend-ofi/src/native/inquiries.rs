//! Finds out whose message a receive from any source has matched, when a death catches it in the
//! middle of that message.
//!
//! A receive that the provider does not take back has matched a message, and nothing tells which
//! one before all of it has arrived. The rest of a dead rank's message may never come. The rest of
//! a living rank's message does come, and must not be lost. So the living ranks are asked, one
//! after the other:
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
//! The message that the receive has matched was sent before the question. Suppose it was a message
//! of the rank that is asked. If it is not under way there any more, it has arrived before the
//! answer, because messages keep their order, and the receive is over. If it is still under way, it
//! was sent before every message that has matched no receive, because otherwise the receive would
//! have matched that one. So a rank that answers "clear" did not send it. A rank that answers "not
//! clear" is asked again later: its message may have matched another receive, and will end.

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

/// Most messages that a question names: the longest ones. It does not mention the others.
pub(super) const NAMED: usize = 64;

/// A message between devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// The receiver of the message, or its sender.
    pub(crate) peer: u32,
    pub(crate) handler: HandlerId,
    pub(crate) args: [u64; 2],
    /// With a question: messages of its receiver that a probe has taken out of matching.
    pub(crate) taken: Vec<Mark>,
}

impl Note {
    /// A message that consists of its two words only.
    pub(super) fn plain(peer: u32, handler: HandlerId, args: [u64; 2]) -> Self {
        let taken = Vec::new();
        Self {
            peer,
            handler,
            args,
            taken,
        }
    }

    /// The bytes that travel with the two words.
    pub(super) fn payload(&self) -> Vec<u8> {
        let marks = self.taken.iter();
        marks.flat_map(|mark| mark.bits().to_le_bytes()).collect()
    }

    /// Decodes a message of a peer's device.
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

/// A receive whose message is looked for among the living ranks.
#[derive(Debug)]
pub(super) struct Inquiry {
    number: u32,
    /// The receive's slot, and the serial number of the operation in it.
    slot: u32,
    serial: u64,
    from: Pattern,
    /// The rank that has died.
    dead: u32,
    /// The ranks still to be asked; the last one is being asked.
    open: Vec<u32>,
    stage: Stage,
    /// When that rank was first seen to have left.
    left: Option<Instant>,
}

/// The state of the inquiry with the last rank in `open`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begin,
    /// A look for a message of that rank is under way.
    Looking(u32),
    Asked,
    /// Polls until that rank is asked again, or, if all ranks are clear, until the receive is given
    /// up.
    Pause(u32),
}

/// The question whether a message that a receive has matched may come from the rank that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Question {
    /// The number of the inquiry.
    number: u32,
    from: Pattern,
    /// A message of that rank that matches and has not met a receive.
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
    /// The rank that is being asked did not send the message, or will not send the rest.
    fn exclude(&mut self) {
        self.open.pop();
        self.left = None;
        self.stage = match self.open.is_empty() {
            // The provider may still have to report that the message is complete.
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
    /// Starts to find out whose message a receive from any source has matched, to give the receive
    /// up if the sender is dead.
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

    /// Advances each inquiry by a step.
    pub(super) fn pursue(&mut self, ofi: &mut Ofi) {
        let mut all = std::mem::take(&mut self.inquiries);
        all.retain_mut(|inquiry| self.pursue_one(ofi, inquiry));
        self.inquiries = all;
    }

    /// Advances an inquiry. `false` if it is over.
    fn pursue_one(&mut self, ofi: &mut Ofi, inquiry: &mut Inquiry) -> bool {
        // A look has to be completed, whatever has become of the receive.
        let seen = match inquiry.stage {
            Stage::Looking(look) => match self.seen(look) {
                Seen::Later => return true,
                seen => {
                    // Its slot is free now, and the next look may get it.
                    inquiry.stage = Stage::Begin;
                    Some(seen)
                }
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
            // A rank that has left does not answer; what it handed over before may still be on its
            // way.
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

    /// No living rank has sent the message: gives the receive up, after a while.
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

    /// Matching messages of a rank that probes have taken out of matching, so that no receive can
    /// have matched them.
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
        // The longest first: short ones have mostly left their sender, which does not search for
        // them.
        theirs.sort_by_key(|arrival| Reverse(arrival.len));
        let named = theirs.iter().take(NAMED);
        named.map(|arrival| arrival.label.mark).collect()
    }

    /// Handles a message of another rank's device.
    pub(crate) fn hear(&mut self, note: &Note) {
        match note.handler {
            MATCHED => self.acknowledged(note.peer, note.args[0] as u32),
            ASKED => self.asked(note),
            _ => self.answered(note.peer, note.args),
        }
    }

    /// A peer asks whether the message that it is receiving may have been sent from here.
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

    /// Whether no matching message to a rank is under way that was sent before the one that has met
    /// no receive there. Messages `taken` out of matching there do not count.
    fn is_clear(&self, to: u32, question: &Question, taken: &[Mark]) -> bool {
        let fitting = |slot: &Slot| match &slot.what {
            What::Send(send) if slot.under_way && send.peer == to => {
                let fits = question.from.matches(&self.bits.unpack(send.tag));
                fits.then(|| (send.turn, Label::unpack(send.label).mark))
            }
            _ => None,
        };
        let sends: Vec<(u64, Mark)> = self.slots.iter().filter_map(fitting).collect();
        // If two messages have one mark (they are 8 million messages apart), nothing tells which
        // one was taken.
        let alike = |mark: Mark| sends.iter().filter(|send| send.1 == mark).count();
        let counts = |send: &&(u64, Mark)| !taken.contains(&send.1) || alike(send.1) > 1;
        let Some(first) = sends.iter().filter(counts).map(|send| send.0).min() else {
            return true;
        };
        let unmet = match question.unmet {
            // The latest possible one: the last message whose number has these bits.
            Some(Mark::Turn(low)) => Some(Mark::latest(self.turn, low)),
            Some(Mark::Awaited(number)) => self.awaited(to, number).map(|send| send.turn),
            None => None,
        };
        unmet.is_some_and(|unmet| unmet <= first)
    }

    /// The synchronous send with this number to a peer, if it has not been matched yet.
    fn awaited(&self, peer: u32, number: u32) -> Option<&Outgoing> {
        let slot = self.slots.iter().nth(number as usize)?;
        match &slot.what {
            What::Send(send) if send.peer == peer && send.awaited => Some(send),
            _ => None,
        }
    }
}
