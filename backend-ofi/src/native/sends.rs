//! Sends messages that the receiver's provider matches.
//!
//! Budget of a small message: one call into the provider, which copies it; no allocation, no slot,
//! no completion.

use std::mem::MaybeUninit;

use libfabric_sys::{FI_ADDR_NOTAVAIL, fi_tinjectdata, fi_tsenddata};
use portolan_core::engine::Data;
use portolan_core::transport::Sent;
use portolan_core::{Request, SendArgs, SendMode, Status};
use portolan_datatype::MsgRep;

use super::bits::{Label, Mark};
use super::buffers::NoMemory;
use super::matched::Matched;
use super::slots::{Outgoing, What};
use super::tags::{End, NO_ROOM, Tags};
use crate::ofi::Ofi;
use crate::send::{absent, insert, refused};

/// Longest message of a layout with gaps that is packed on the stack.
const ON_STACK: usize = 192;

/// The bytes of a message, if they can be sent from where they are.
fn in_place(data: &Data, rep: MsgRep) -> Option<(*mut u8, usize)> {
    match data {
        // The data of a contiguous routine already has the message's representation.
        Data::Contig(_) => data.contiguous(),
        Data::Typed { .. } if rep == MsgRep::Native => data.contiguous(),
        Data::Typed { .. } | Data::Driven(_) => None,
    }
}

/// Makes sure that a peer can be sent to, and puts its address into the provider's vector if it is
/// not there. Returns the result of the send if it cannot.
#[inline]
fn reach(ofi: &mut Ofi, peer: u32) -> Option<Sent> {
    // A rank reaches itself even if others hold it to be dead.
    let other = peer != ofi.rank;
    if other && (ofi.shared.deaths.count() != 0 || ofi.shared.roster.anyone_left()) {
        let verdict = absent(ofi, peer);
        if verdict.is_some() {
            return verdict;
        }
    }
    let unknown = ofi.peers[peer as usize].addr == FI_ADDR_NOTAVAIL;
    (unknown && !insert(ofi, peer)).then_some(Sent::Gone)
}

impl Outgoing {
    /// The end of a message whose receiver has left. The message is lost, which is its receiver's
    /// affair. But success would mean that the message was matched, if the send is synchronous or
    /// longer than what the provider sends `at_once`. So such a send fails, unless the receiver has
    /// reported that.
    pub(super) fn end_without_receiver(&self, at_once: usize) -> End {
        match self.awaited || (self.len > at_once && !self.acknowledged) {
            true => End::Left(self.peer),
            false => End::Over(Status::EMPTY),
        }
    }
}

impl Tags {
    fn label(&self, args: &SendArgs, data: &Data, mark: Mark) -> u64 {
        Label {
            signature: data.signature(data.len()).bits(),
            rep: args.rep.code(),
            mark,
        }
        .pack()
    }

    /// Takes the number of the next message.
    #[inline]
    fn next_message(&mut self) -> u64 {
        self.turn += 1;
        self.turn
    }

    /// Sends a small message at once, if nothing prevents that.
    ///
    /// # Safety
    /// `args` must be legal and the buffer readable.
    #[inline]
    pub(crate) unsafe fn launch(&mut self, ofi: &mut Ofi, args: &SendArgs, data: &Data) -> bool {
        let (peer, len) = (args.dest.index(), data.len());
        let waits = !self.unsent.is_empty() && self.unsent.contains_key(&peer);
        if len > ofi.inject || args.mode == SendMode::Synchronous || waits {
            return false;
        }
        match reach(ofi, peer) {
            None => {}
            // Lost with the peer, unless it is known already that the peer has left.
            Some(verdict) => return verdict == Sent::Done && !self.contexts.is_dead(peer),
        }
        let mut stack = [const { MaybeUninit::<u8>::uninit() }; ON_STACK];
        let start = match in_place(data, args.rep) {
            Some((start, _)) => start.cast_const(),
            None if len <= ON_STACK => {
                // SAFETY: the caller vouches for the buffer; there is room for all of it.
                unsafe { data.read(0, stack.as_mut_ptr().cast(), len, args.rep) };
                stack.as_ptr().cast()
            }
            None => return false,
        };
        let mark = Mark::turn(self.next_message());
        let (tag, label) = (self.bits.pack(&args.envelope), self.label(args, data, mark));
        let (ep, addr) = (ofi.link.ep.get(), ofi.peers[peer as usize].addr);
        // SAFETY: an open endpoint, an address of its vector, and readable bytes, which the
        // provider has copied when the call returns.
        let result = unsafe { fi_tinjectdata(ep, start.cast(), len, label, addr, tag) };
        if result != 0 {
            return false;
        }
        self.counts.injected += 1;
        if peer != ofi.rank {
            ofi.peers[peer as usize].injected = true;
        }
        true
    }

    /// Starts a send.
    ///
    /// # Errors
    /// There is no memory for a copy of the message; the send has not started.
    ///
    /// # Safety
    /// `args` must be legal, and the buffer readable.
    pub(crate) unsafe fn start_send(
        &mut self,
        ofi: &mut Ofi,
        request: Request,
        args: &SendArgs,
        data: Data,
    ) -> Result<(), NoMemory> {
        let peer = args.dest.index();
        let dead = self.contexts.is_dead(peer).then_some(peer);
        // In a collective operation with a dead member, only messages that can leave at once are
        // sent.
        let dead = dead.or_else(|| {
            let stays = data.len() > ofi.inject || args.mode == SendMode::Synchronous;
            let dead = self.contexts.dead_in(args.envelope.context);
            dead.filter(|_| stays)
        });
        if let Some(dead) = dead {
            self.ends.push_back((request, End::Failed(dead)));
            return Ok(());
        }
        // SAFETY: the caller's promise.
        if unsafe { self.launch(ofi, args, &data) } {
            self.ends.push_back((request, End::Over(Status::EMPTY)));
            return Ok(());
        }
        let awaited = args.mode == SendMode::Synchronous;
        if awaited && !self.slots.next_below(self.most_awaited) {
            // The number travels with the message, in a limited number of bits.
            self.end_exhausted(request);
            return Ok(());
        }
        let len = data.len();
        let bytes = self.bytes(&data)?;
        if let Some(bytes) = &bytes {
            // SAFETY: the caller vouches for the buffer; there is room for all of it.
            unsafe { data.read(0, bytes.start(), len, args.rep) };
        }
        let turn = self.next_message();
        let send = Outgoing {
            peer,
            context: args.envelope.context,
            tag: self.bits.pack(&args.envelope),
            label: self.label(args, &data, Mark::turn(turn)),
            len,
            bytes,
            turn,
            awaited,
            acknowledged: false,
        };
        let number = self.slots.add(What::Send(send), request);
        self.numbers.insert(request.to_bits(), number);
        if awaited && let What::Send(send) = &mut self.slots.at(number).what {
            let label = Label::unpack(send.label);
            let mark = Mark::Awaited(number);
            send.label = Label { mark, ..label }.pack();
        }
        let waits = !self.unsent.is_empty() && self.unsent.contains_key(&peer);
        if waits || !self.try_send(ofi, number) {
            self.unsent.entry(peer).or_default().push_back(number);
        }
        Ok(())
    }

    /// Gives a message to the provider; `false` if it has to wait.
    fn try_send(&mut self, ofi: &mut Ofi, number: u32) -> bool {
        let context = self.slots.context(number);
        let slot = self.slots.at(number);
        let What::Send(send) = &mut slot.what else {
            return true;
        };
        let peer = send.peer;
        let verdict = reach(ofi, peer).or_else(|| {
            let (ep, addr) = (ofi.link.ep.get(), ofi.peers[peer as usize].addr);
            let (null, len) = (std::ptr::null_mut(), send.len);
            let start = send.bytes.as_ref().map_or(null, |b| b.start().cast());
            // SAFETY: an open endpoint, an address of its vector; the slot's bytes and context stay
            // where they are until the completion, or until the endpoint is closed.
            let result =
                unsafe { fi_tsenddata(ep, start, len, null, send.label, addr, send.tag, context) };
            match result {
                0 => None,
                NO_ROOM => Some(Sent::Full),
                error => Some(refused(ofi, peer, error)),
            }
        });
        match verdict {
            None => {
                slot.under_way = true;
                self.counts.sent += 1;
                ofi.peers[peer as usize].injected = peer != ofi.rank;
            }
            // The peer has left.
            Some(Sent::Done) => {
                let end = send.end_without_receiver(ofi.link.at_once);
                self.finish(number, end);
            }
            // This rank's death would not end what it sends to itself.
            Some(Sent::Gone) if peer == ofi.rank => self.finish(number, End::Failed(peer)),
            // The peer's death is adopted later, and ends this.
            Some(Sent::Full | Sent::Gone) => return false,
        }
        true
    }

    /// Retries the messages that the provider had no room for. A peer without room does not delay
    /// messages to others.
    pub(super) fn send_waiting(&mut self, ofi: &mut Ofi) -> usize {
        let mut done = 0;
        for (peer, mut queue) in std::mem::take(&mut self.unsent) {
            while let Some(&number) = queue.front() {
                if !self.try_send(ofi, number) {
                    break;
                }
                queue.pop_front();
                done += 1;
            }
            if !queue.is_empty() {
                self.unsent.insert(peer, queue);
            }
        }
        done
    }

    /// Handles the completion of a send, with or without an error.
    pub(super) fn sent(&mut self, ofi: &mut Ofi, matched: &Matched) {
        let What::Send(send) = &mut self.slots.at(matched.index).what else {
            return;
        };
        let (peer, context, awaited) = (send.peer, send.context, send.awaited);
        let without_receiver = send.end_without_receiver(ofi.link.at_once);
        if matched.error != 0 || awaited {
            let dead = self.contexts.is_dead(peer).then_some(peer);
            if let Some(dead) = dead.or_else(|| self.contexts.dead_in(context)) {
                self.lose(matched.index, End::Failed(dead));
                return self.release(matched.index);
            }
        }
        if matched.error != 0 && refused(ofi, peer, -(matched.error as isize)) == Sent::Gone {
            if peer == ofi.rank {
                self.finish(matched.index, End::Failed(peer));
            }
            return; // Another peer's death is adopted later, and ends this.
        }
        if matched.error != 0 {
            self.finish(matched.index, without_receiver); // The peer has left.
        } else if !awaited {
            self.finish(matched.index, End::Over(Status::EMPTY));
        }
    }

    /// Handles a peer's report that a message was matched.
    pub(crate) fn acknowledged(&mut self, peer: u32, number: u32) {
        let Some(slot) = self.slots.get(number) else {
            return;
        };
        let under_way = slot.under_way;
        let send = match &mut slot.what {
            What::Send(send) if send.peer == peer && send.awaited => send,
            What::Lost(lost) if lost.awaits == Some(peer) => return self.stop_awaiting(number),
            _ => return, // No correct peer reports this.
        };
        send.awaited = false;
        send.acknowledged = true;
        let waits = self.unsent.get(&peer);
        if !under_way && waits.is_none_or(|queue| !queue.contains(&number)) {
            self.finish(number, End::Over(Status::EMPTY));
        }
    }
}
