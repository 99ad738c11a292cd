//! Looks at messages that have arrived and matched nothing: for probes, and for receives that the
//! provider has no room for.

use libfabric_sys::{FI_ADDR_UNSPEC, FI_CLAIM, FI_PEEK, fi_msg_tagged, fi_trecvmsg};
use portolan_core::device::Message as Handle;
use portolan_core::engine::Data;
use portolan_core::matching::Pattern;
use portolan_core::{ContigBuf, Request, Status};

use super::bits::Label;
use super::buffers::NoMemory;
use super::deaths::PATIENCE;
use super::matched::Matched;
use super::slots::{Arrival, Look, What};
use super::tags::{End, NO_ROOM, Tags};
use crate::ofi::Ofi;

/// The result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The provider has not answered yet.
    Later,
    /// There is no such message.
    Nothing,
    /// There is this message.
    Message(Arrival),
}

/// The search for messages for receives that the provider has no room for. Such a receive gets a
/// message if no earlier queued receive matches that, whenever the message came: the receives that
/// the provider has did not match it when it arrived.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The look under way, the receive it is for, and whether it takes the message.
    look: Option<(u32, u32, bool)>,
    /// The value of `takings` when the look began.
    takings: u64,
    /// The search continues with the receives from this turn on.
    turn: u64,
    /// Polls in which the look was not answered although this rank is dead.
    unanswered: u32,
}

impl Scan {
    /// Whether a message is being taken for this receive.
    pub(super) fn takes_for(&self, receive: u32) -> bool {
        matches!(self.look, Some((_, wanting, true)) if wanting == receive)
    }

    /// Goes on with a look of the caller's, which takes a message for this receive.
    #[cfg(test)]
    pub(super) fn take_with(&mut self, look: u32, receive: u32) {
        self.look = Some((look, receive, true));
    }
}

impl Tags {
    /// Starts a look for the earliest message that `from` matches. With `claim`, the message is
    /// taken out of matching. Returns the number for [`seen`](Self::seen); `None` if there is no
    /// room for a look now, or if the endpoint is broken and answers no looks.
    pub(crate) fn look(&mut self, ofi: &mut Ofi, from: &Pattern, claim: bool) -> Option<u32> {
        if self.blind {
            return None;
        }
        let look = Look {
            claim,
            answer: None,
        };
        let number = self.slots.add(What::Look(look), Request::NULL);
        let (tag, ignore) = self.bits.pattern(from);
        let msg = fi_msg_tagged {
            msg_iov: std::ptr::null(),
            desc: std::ptr::null_mut(),
            iov_count: 0,
            addr: FI_ADDR_UNSPEC,
            tag,
            ignore,
            context: self.slots.context(number),
            data: 0,
        };
        let flags = if claim { FI_PEEK | FI_CLAIM } else { FI_PEEK };
        // SAFETY: an open endpoint; no memory is used except the context, which stays where it is.
        match unsafe { fi_trecvmsg(ofi.link.ep.get(), &raw const msg, flags) } {
            0 => {
                self.slots.at(number).under_way = true;
                self.takings += u64::from(claim);
            }
            NO_ROOM => {
                drop(self.slots.remove(number));
                return None;
            }
            error => {
                self.clear(number);
                self.refused_look(ofi, error);
                return None;
            }
        }
        Some(number)
    }

    /// The provider refuses a look: it no longer works, and so neither does this rank.
    #[cold]
    fn refused_look(&mut self, ofi: &Ofi, error: isize) {
        let why = ofi.link.domain.library.fi_strerror(error as i64);
        let provider = ofi.link.domain.info.provider();
        let why = format!("looking for a message failed on provider {provider}: {why}");
        ofi.shared.deaths.declare(ofi.rank, &why);
        self.blind = true;
    }

    /// Gives up a look that the provider has not answered for long, if this rank is dead: then its
    /// endpoint may be broken. Returns whether it did. (The endpoint of a rank that only the others
    /// hold to be dead answers.) The slot remains the provider's.
    #[cold]
    pub(crate) fn give_up_look(&mut self, ofi: &Ofi, number: u32) -> bool {
        let slot = self.slots.at(number);
        if !slot.under_way || !ofi.has_adopted(ofi.rank) {
            return false;
        }
        slot.what = std::mem::take(&mut slot.what).into_lost();
        self.blind = true;
        true
    }

    /// Handles the provider's answer to a look.
    pub(super) fn looked(&mut self, ofi: &mut Ofi, matched: &Matched) {
        let arrival = (matched.error == 0).then(|| Arrival {
            envelope: self.bits.unpack(matched.tag),
            label: Label::unpack(matched.data),
            len: matched.len,
        });
        if let Some(arrival) = &arrival {
            self.heard(ofi, arrival);
        }
        self.answer(matched.index, arrival);
    }

    fn answer(&mut self, number: u32, arrival: Option<Arrival>) {
        if let What::Look(look) = &mut self.slots.at(number).what {
            look.answer = Some(arrival);
        }
    }

    /// Returns the result of a look. Once there is an answer, the look is over; a message that was
    /// taken stays in the look's slot.
    pub(crate) fn seen(&mut self, number: u32) -> Seen {
        let slot = self.slots.at(number);
        let What::Look(look) = &slot.what else {
            return Seen::Nothing;
        };
        let Some(answer) = look.answer else {
            return Seen::Later;
        };
        match answer {
            Some(arrival) if look.claim => slot.what = What::Taken(arrival),
            _ => drop(self.slots.remove(number)),
        }
        answer.map_or(Seen::Nothing, Seen::Message)
    }

    /// Whether a receive that waits for room is to get this message.
    pub(crate) fn is_wanted(&mut self, arrival: &Arrival) -> bool {
        self.first_wanting(arrival).is_some()
    }

    /// The first receive that waits for room and matches this message.
    fn first_wanting(&mut self, arrival: &Arrival) -> Option<u32> {
        let slots = &mut self.slots;
        self.unposted.values().copied().find(|&number| {
            matches!(&slots.at(number).what,
                What::Receive(receive) if receive.from.matches(&arrival.envelope))
        })
    }

    /// Whether receives wait for room.
    pub(crate) fn overflows(&self) -> bool {
        !self.unposted.is_empty()
    }

    /// Makes a handle for the message that a look with this number has taken.
    pub(crate) fn keep(&mut self, number: u32) -> Handle {
        self.last_handle += 1;
        self.handles.insert(self.last_handle, number);
        Handle::from_bits(self.last_handle)
    }

    /// Receives a message that was taken; `false` if the handle is stale.
    ///
    /// # Safety
    /// The buffer must stay writable until the request completes.
    pub(crate) unsafe fn receive_taken(
        &mut self,
        ofi: &mut Ofi,
        message: Handle,
        request: Request,
        data: Data,
    ) -> Result<bool, NoMemory> {
        let Some(&number) = self.handles.get(&message.to_bits()) else {
            return Ok(false);
        };
        let bytes = self.bytes(&data)?;
        self.handles.remove(&message.to_bits());
        // SAFETY: the caller's promise.
        unsafe { self.receive_claimed(ofi, number, request, data, bytes) };
        Ok(true)
    }

    /// Discards a message that was taken; `false` if the handle is stale. The message is received
    /// into a buffer without room, because a provider that discards a long message does not tell
    /// the sender. That needs neither memory, however long the message is, nor a request.
    pub(crate) fn discard(&mut self, ofi: &mut Ofi, message: Handle) -> bool {
        let Some(number) = self.handles.remove(&message.to_bits()) else {
            return false;
        };
        let data = Data::Contig(ContigBuf::from_bytes_mut(&mut []));
        // SAFETY: no byte is written to the buffer.
        unsafe { self.receive_claimed(ofi, number, Request::NULL, data, None) };
        true
    }

    /// Takes one step in the search for messages for the receives that wait for room.
    pub(super) fn scan_unposted(&mut self, ofi: &mut Ofi) -> usize {
        if let Some((number, receive, claim)) = self.scan.look {
            match self.seen(number) {
                Seen::Later => return self.wait_for_look(ofi, number, receive),
                Seen::Nothing if claim => {
                    self.scan.look = None;
                    self.not_taken(receive);
                    return 1;
                }
                Seen::Nothing => self.end_if_doomed(ofi, receive),
                // By now, a receive posted meanwhile may have got that message, so that another one
                // is this receive's.
                Seen::Message(_) if !claim && self.scan.takings != self.takings => {}
                Seen::Message(_) if claim => {
                    self.scan.look = None;
                    self.hand_on(ofi, number, receive);
                    return 1;
                }
                Seen::Message(arrival) => {
                    self.scan.look = None;
                    return self.take_for_first(ofi, &arrival, receive);
                }
            }
            self.scan.look = None;
        }
        let later = self.unposted.range(self.scan.turn..).next();
        let Some((&turn, &receive)) = later.or_else(|| self.unposted.first_key_value()) else {
            return 0;
        };
        self.scan.turn = turn + 1;
        if let What::Receive(incoming) = &self.slots.at(receive).what {
            let from = incoming.from;
            let look = self.look(ofi, &from, false);
            self.scan.look = look.map(|number| (number, receive, false));
            self.scan.takings = self.takings;
        }
        1
    }

    /// The search's look has no answer yet. Gives it up after a while if this rank is dead: then
    /// its endpoint may be broken, and never answer.
    fn wait_for_look(&mut self, ofi: &Ofi, look: u32, receive: u32) -> usize {
        if !ofi.has_adopted(ofi.rank) {
            return 0;
        }
        self.scan.unanswered += 1;
        if self.scan.unanswered < PATIENCE || !self.give_up_look(ofi, look) {
            return 0;
        }
        self.scan.look = None;
        self.not_taken(receive);
        1
    }

    /// The message meant for a queued receive was taken otherwise.
    fn not_taken(&mut self, receive: u32) {
        let end = match &self.slots.at(receive).what {
            What::Receive(incoming) if incoming.cancelled => match incoming.doom {
                Some(dead) => End::Failed(dead),
                None => End::Over(Status::cancelled()),
            },
            _ => return,
        };
        if let What::Receive(incoming) = &self.slots.at(receive).what {
            self.unposted.remove(&incoming.turn);
        }
        self.finish(receive, end);
    }

    /// There was no message for a queued receive when the search looked. Ends it if it waits for
    /// nothing but a rank that has left, and had then.
    fn end_if_doomed(&mut self, ofi: &mut Ofi, receive: u32) {
        let turn = self.scan.turn.wrapping_sub(1);
        if self.scan.takings == self.takings
            && self.unposted.get(&turn) == Some(&receive)
            && let Some(dead) = self.doom_of_unposted(receive)
        {
            self.retract(ofi, receive, End::Failed(dead));
        }
    }

    /// There is a message that a queued receive matches: takes it, unless an earlier receive
    /// matches it too.
    fn take_for_first(&mut self, ofi: &mut Ofi, arrival: &Arrival, receive: u32) -> usize {
        if let Some(first) = self.first_wanting(arrival) {
            if first == receive {
                let look = self.look(ofi, &Pattern::exact(&arrival.envelope), true);
                self.scan.look = look.map(|number| (number, receive, true));
            } else if let What::Receive(earlier) = &self.slots.at(first).what {
                self.scan.turn = earlier.turn;
            }
        }
        1
    }

    /// Gives a message that was taken to a queued receive.
    fn hand_on(&mut self, ofi: &mut Ofi, taken: u32, receive: u32) {
        // The receive is still there: while a message is being taken for it, it is neither posted
        // nor cancelled.
        let request = self.slots.at(receive).request;
        if let What::Receive(incoming) = self.slots.remove(receive) {
            self.unposted.remove(&incoming.turn);
            let (data, bytes) = (incoming.data, incoming.bytes);
            // SAFETY: the caller that started the receive has promised the buffer.
            unsafe { self.receive_claimed(ofi, taken, request, data, bytes) };
        }
    }
}
