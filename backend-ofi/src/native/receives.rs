//! Receives messages that the provider matches.

use libfabric_sys::{
    FI_ADDR_UNSPEC, FI_CLAIM, FI_ECANCELED, FI_ETRUNC, fi_cancel, fi_msg_tagged, fi_trecvmsg,
};
use portolan_core::engine::Data;
use portolan_core::matching::Pattern;
use portolan_core::{ContigBuf, ErrorKind, Request, Status};
use portolan_datatype::MsgRep;

use super::bits::{Label, Mark};
use super::buffers::{Buffer, NoMemory};
use super::inquiries::Note;
use super::matched::Matched;
use super::packets::MATCHED;
use super::slots::{Arrival, Incoming, What};
use super::tags::{End, NO_ROOM, Tags};
use crate::ofi::Ofi;

impl Incoming {
    fn new(from: Pattern, turn: u64, data: Data) -> Self {
        Self {
            from,
            turn,
            data,
            bytes: None,
            claimed: None,
            doom: None,
            broken: false,
            starved: false,
            cancelled: false,
        }
    }

    /// Copies a message that has arrived to where the program wants it, as far as it fits, and
    /// returns the outcome. As much of it as there was room for is in the device's memory.
    fn deliver(&mut self, arrival: &Arrival, checked: bool) -> Status {
        let (room, sent) = (self.data.len(), arrival.len);
        let (source, tag) = (arrival.envelope.source, arrival.envelope.tag);
        let mut status = Status::received(source, tag, sent as u64);
        let refused = |error| {
            let mut refused = status.with_error(error);
            refused.bytes = 0;
            refused
        };
        if self.starved {
            return refused(ErrorKind::Exhausted);
        }
        if checked && !self.data.accepts(arrival.label.signature, sent) {
            return refused(ErrorKind::TypeMismatch);
        }
        let Some(rep) = MsgRep::from_code(arrival.label.rep) else {
            return refused(ErrorKind::PeerMisbehaved);
        };
        let len = sent.min(room);
        if let Some(bytes) = self.bytes.as_ref().filter(|_| len > 0) {
            // SAFETY: the buffer is the device's until the receive is over. `len` bytes, no more
            // than there is room for, have arrived in memory that does not overlap it.
            unsafe { self.data.write(0, bytes.start(), len, rep) };
        }
        status.rep = self.data.delivers(rep);
        if sent > room {
            status.error = Some(ErrorKind::Truncated);
            status.bytes = room as u64;
        }
        status
    }
}

impl Tags {
    /// Starts a receive.
    ///
    /// # Errors
    /// There is no memory for its message; the receive has not started.
    ///
    /// # Safety
    /// `from` must be legal, and the buffer must stay writable until the request completes.
    pub(crate) unsafe fn start_receive(
        &mut self,
        ofi: &mut Ofi,
        request: Request,
        from: &Pattern,
        data: Data,
    ) -> Result<(), NoMemory> {
        let mut receive = Incoming::new(*from, self.next_turn, data);
        // A receive that has to wait in the device is given its memory when its turn comes.
        if self.unposted.is_empty() {
            receive.bytes = self.bytes(&receive.data)?;
        }
        let turn = self.next_turn;
        self.next_turn += 1;
        let number = self.slots.add(What::Receive(receive), request);
        self.numbers.insert(request.to_bits(), number);
        if !self.unposted.is_empty() || !self.try_post(ofi, number) {
            self.counts.waited += 1;
            self.unposted.insert(turn, number);
        }
        // Messages that the dead have sent are received; nothing waits for those that they have not
        // sent.
        if let Some(dead) = self.contexts.doom(from) {
            self.doom_receive(ofi, number, dead);
        }
        Ok(())
    }

    /// Memory for a message that leaves from this buffer, or arrives for it.
    pub(super) fn bytes(&mut self, data: &Data) -> Result<Option<Buffer>, NoMemory> {
        let len = data.len();
        (len > 0).then(|| self.buffers.take(len)).transpose()
    }

    /// Gives a receive to the provider; `false` if it has no room.
    pub(super) fn try_post(&mut self, ofi: &mut Ofi, number: u32) -> bool {
        self.posted < self.most_posted && self.hand_over(ofi, number, 0)
    }

    /// Gives a receive to the provider, with these flags; `false` if it has no room.
    fn hand_over(&mut self, ofi: &mut Ofi, number: u32, flags: u64) -> bool {
        let context = self.slots.context(number);
        let slot = self.slots.at(number);
        let What::Receive(receive) = &mut slot.what else {
            return true;
        };
        let (tag, ignore) = self.bits.pattern(&receive.from);
        if receive.bytes.is_none() && !receive.data.is_empty() {
            match self.buffers.take(receive.data.len()) {
                Ok(bytes) => receive.bytes = Some(bytes),
                Err(NoMemory(_)) if receive.claimed.is_none() => {
                    let exhausted = Status::EMPTY.with_error(ErrorKind::Exhausted);
                    self.finish(number, End::Over(exhausted));
                    return true;
                }
                Err(NoMemory(_)) => {
                    // The sender waits until the message has been received.
                    receive.data = Data::Contig(ContigBuf::from_bytes_mut(&mut []));
                    receive.starved = true;
                }
            }
        }
        let len = receive.data.len();
        let place = receive
            .bytes
            .as_ref()
            .map_or(std::ptr::null_mut(), Buffer::start);
        // The rest of a message that is too long for the buffer ends in a place of its own: a
        // provider may give up a connection on which more arrives at once than there is room for
        // (the TCP provider of 1.17 does). No message that is sent at once is longer than the sink,
        // so a buffer as long as the sink needs none.
        let sink = self.sink.len();
        let iov = [
            libc::iovec {
                iov_base: place.cast(),
                iov_len: len,
            },
            libc::iovec {
                iov_base: self.sink.as_mut_ptr().cast(),
                iov_len: sink,
            },
        ];
        let skip = usize::from(len == 0);
        let mut desc = [std::ptr::null_mut(); 2];
        let msg = fi_msg_tagged {
            msg_iov: iov[skip..].as_ptr(),
            desc: desc.as_mut_ptr(),
            iov_count: if len < sink { 2 - skip } else { 1 },
            addr: FI_ADDR_UNSPEC,
            tag,
            ignore,
            context,
            data: 0,
        };
        // SAFETY: an open endpoint; the slot's memory and context, and the sink, stay where they
        // are until the completion, or until the endpoint is closed. With `FI_CLAIM` the context is
        // that of the look that took the message.
        match unsafe { fi_trecvmsg(ofi.link.ep.get(), &raw const msg, flags) } {
            0 => {
                slot.under_way = true;
                self.posted += 1;
                self.takings += 1;
            }
            NO_ROOM => return false,
            error => self.broken(ofi, number, "posting a receive", error),
        }
        true
    }

    /// Posts receives that the provider had no room for, in order.
    pub(super) fn post_waiting(&mut self, ofi: &mut Ofi) -> usize {
        let mut done = 0;
        while let Some((&turn, &number)) = self.unposted.first_key_value() {
            if self.scan.takes_for(number) || !self.try_post(ofi, number) {
                break;
            }
            self.unposted.remove(&turn);
            done += 1;
            if let Some(dead) = self.doom_of_unposted(number) {
                self.doom_receive(ofi, number, dead);
            }
        }
        if !self.unposted.is_empty() {
            done += self.scan_unposted(ofi);
        }
        done
    }

    /// Receives a message that was taken out of matching, in its slot; without a request if it is
    /// discarded. `bytes` is the memory for it, if the buffer has any room and there is memory yet.
    ///
    /// # Safety
    /// The buffer must stay writable until the request completes.
    pub(super) unsafe fn receive_claimed(
        &mut self,
        ofi: &mut Ofi,
        number: u32,
        request: Request,
        data: Data,
        bytes: Option<Buffer>,
    ) {
        let slot = self.slots.at(number);
        let What::Taken(arrival) = slot.what else {
            return;
        };
        let from = Pattern::exact(&arrival.envelope);
        let mut receive = Incoming::new(from, 0, data);
        receive.claimed = Some(arrival);
        receive.bytes = bytes;
        slot.what = What::Receive(receive);
        slot.request = request;
        if !request.is_null() {
            self.numbers.insert(request.to_bits(), number);
        }
        if !self.unclaimed.is_empty() || !self.claim(ofi, number) {
            self.unclaimed.push_back(number);
        }
    }

    /// Asks the provider for a message that was taken; `false` if it has no room. A dead sender may
    /// never send the rest.
    fn claim(&mut self, ofi: &mut Ofi, number: u32) -> bool {
        if !self.hand_over(ofi, number, FI_CLAIM) {
            return false;
        }
        let slot = self.slots.at(number);
        let (serial, under_way) = (slot.serial, slot.under_way);
        if let What::Receive(receive) = &mut slot.what
            && under_way
            && let Some(source) = receive.from.source
            && let Some(dead) = self.contexts.process(receive.from.context, source)
            && self.contexts.is_dead(dead)
        {
            receive.doom = Some(dead);
            self.doom(number, serial);
        }
        true
    }

    /// Retries the receives of taken messages that the provider had no room for.
    pub(super) fn claim_waiting(&mut self, ofi: &mut Ofi) -> usize {
        let mut done = 0;
        while let Some(&number) = self.unclaimed.front() {
            if !self.claim(ofi, number) {
                break;
            }
            self.unclaimed.pop_front();
            done += 1;
        }
        done
    }

    /// Handles the end of a receive.
    pub(super) fn received(&mut self, ofi: &mut Ofi, matched: &Matched) {
        self.posted -= 1;
        let (bits, checked, sink) = (self.bits, self.checked, self.sink.len());
        let What::Receive(receive) = &mut self.slots.at(matched.index).what else {
            return;
        };
        let room = receive.data.len();
        let room = room + if room < sink { sink } else { 0 };
        let len = match matched.error {
            0 => matched.len,
            FI_ETRUNC_ERROR => room + matched.lost.max(1),
            _ => return self.not_received(ofi, matched),
        };
        let arrival = receive.claimed.unwrap_or_else(|| Arrival {
            envelope: bits.unpack(matched.tag),
            label: Label::unpack(matched.data),
            len,
        });
        let status = receive.deliver(&arrival, checked);
        self.counts.received += 1;
        self.finish(matched.index, End::Over(status));
        self.heard(ofi, &arrival);
        self.acknowledge(ofi, &arrival);
    }

    /// Notes that a message has arrived from its sender.
    #[inline]
    pub(super) fn heard(&self, ofi: &mut Ofi, arrival: &Arrival) {
        let (context, source) = (arrival.envelope.context, arrival.envelope.source);
        let peer = self.contexts.process(context, source);
        if let Some(peer) = peer.filter(|&peer| peer < ofi.size) {
            ofi.heard(peer);
        }
    }

    /// Tells the sender of a message that it was matched, if it waits for that.
    pub(super) fn acknowledge(&mut self, ofi: &Ofi, arrival: &Arrival) {
        let (context, source) = (arrival.envelope.context, arrival.envelope.source);
        if let Mark::Awaited(number) = arrival.label.mark
            && let Some(peer) = self.contexts.process(context, source)
        {
            if peer == ofi.rank {
                self.acknowledged(peer, number);
            } else {
                let note = Note::plain(peer, MATCHED, [number.into(), 0]);
                self.notes.push_back(note);
            }
        }
    }

    /// Handles a receive that has ended without a message.
    #[cold]
    fn not_received(&mut self, ofi: &mut Ofi, matched: &Matched) {
        let What::Receive(receive) = &mut self.slots.at(matched.index).what else {
            return;
        };
        let (from, doom) = (receive.from, receive.doom);
        let end = match doom {
            Some(dead) => End::Failed(dead),
            None if matched.error == FI_ECANCELED => End::Over(Status::cancelled()),
            None => {
                // The connection broke in the middle of the message.
                let why = ofi
                    .link
                    .domain
                    .library
                    .fi_strerror(i64::from(matched.error));
                let why = format!("a message from it broke off: {why}");
                let source = from.source;
                let peer = source.and_then(|source| self.contexts.process(from.context, source));
                match peer.filter(|&peer| peer < ofi.size && peer != ofi.rank) {
                    Some(peer) if self.contexts.is_dead(peer) => End::Failed(peer),
                    Some(peer) => {
                        // The peer's death is adopted later, and ends this receive.
                        receive.broken = true;
                        return ofi.shared.deaths.declare(peer, &why);
                    }
                    None => {
                        let rank = ofi.rank;
                        portolan_core::log!(
                            WARN,
                            rank,
                            why,
                            "a receive from any source has failed"
                        );
                        End::Over(Status::EMPTY.with_error(ErrorKind::PeerFailed))
                    }
                }
            }
        };
        self.finish(matched.index, end);
    }

    /// Cancels the operation of a request if it is a receive. A send continues, because its message
    /// may have been matched.
    pub(crate) fn cancel(&mut self, ofi: &mut Ofi, request: Request) {
        let Some(&number) = self.numbers.get(&request.to_bits()) else {
            return;
        };
        let slot = self.slots.at(number);
        if matches!(&slot.what, What::Receive(receive) if receive.claimed.is_none()) {
            self.retract(ofi, number, End::Over(Status::cancelled()));
        }
    }

    /// Takes a receive back. If the provider has it, the provider decides whether a message came
    /// first. If a message is being taken for it, it gets this end unless it gets that message.
    /// Otherwise it ends at once, with this end.
    pub(super) fn retract(&mut self, ofi: &mut Ofi, number: u32, end: End) {
        if self.slots.at(number).under_way {
            let context = self.slots.context(number);
            // SAFETY: an open endpoint; the context is of an operation under way. It is not an
            // error if the operation has just ended.
            unsafe { fi_cancel(ofi.link.ep.get(), context) };
            return;
        }
        if self.scan.takes_for(number) {
            if let What::Receive(receive) = &mut self.slots.at(number).what
                && !receive.cancelled
            {
                receive.cancelled = true;
                if let End::Failed(dead) = end {
                    receive.doom = Some(dead);
                }
            }
            return;
        }
        if let What::Receive(receive) = &self.slots.at(number).what {
            self.unposted.remove(&receive.turn);
        }
        self.finish(number, end);
    }

    /// The provider refuses a receive: it no longer works, and so neither does this rank.
    #[cold]
    pub(super) fn broken(&mut self, ofi: &Ofi, number: u32, what: &str, error: isize) {
        let why = ofi.link.domain.library.fi_strerror(error as i64);
        let provider = ofi.link.domain.info.provider();
        let why = format!("{what} failed on provider {provider}: {why}");
        ofi.shared.deaths.declare(ofi.rank, &why);
        self.finish(number, End::Failed(ofi.rank));
    }
}

/// In libfabric's headers, the number has another type than the field that holds it.
pub(super) const FI_ETRUNC_ERROR: i32 = FI_ETRUNC as i32;
