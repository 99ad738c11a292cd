//! Progress: one poll of the transport, then handling what has arrived and sending what is queued.
//!
//! The fast part is [`State::progress`]: a poll and one test. Work that needs the transport cannot
//! be done while packets are being delivered; it is noted then and done in [`State::work`], right
//! after the poll.

use crate::engine::long::transfer::TURN;
use crate::engine::short::unexpected::{OfferBody, envelope};
use crate::engine::state::{Proto, State};
use crate::transport::packet::flags;
use crate::transport::{Destination, Header, PacketKind, Payload, Sink, Transport};

/// Once one step has handled this much, it polls for no more offers.
const OFFERS: usize = 256;

impl<T: Transport> State<T> {
    /// Makes progress once. Returns how much was done; 0 means that there was nothing to do.
    #[inline]
    pub(super) fn progress(&mut self) -> usize {
        self.proto.shared.count_poll();
        self.proto.unpolled = 0;
        let packets = self.transport.poll(&mut Inbound(&mut self.proto));
        if self.proto.work || self.transport.failures() != self.proto.failures_seen {
            return packets + self.work(packets);
        }
        packets
    }

    /// Takes in what has arrived, to make room to `peer`, in a call that only begins a send.
    /// Everything that may take long is left to the next progress step: nothing is pulled, pushed
    /// or streamed, and no hook runs. Not counted as a poll. Returns how much was done; 0 means
    /// that there was nothing to do.
    ///
    /// Nothing may be waiting to leave to `peer`: only answers to what arrives leave here.
    pub(super) fn take_in(&mut self, peer: u32) -> usize {
        let mut done = self.transport.poll(&mut Inbound(&mut self.proto));
        if self.proto.deferred.is_some() {
            // Pretend that this step has copied enough, so that what is matched is pulled later.
            let has_pulled = std::mem::replace(&mut self.proto.has_pulled, true);
            done += self.match_offers();
            self.proto.has_pulled = has_pulled;
        }
        // A receive that is over by now may be seen as complete as soon as this call returns.
        self.withdraw_closed();
        self.flush_answers(peer);
        if self.proto.work {
            self.proto.leave_work();
        }
        done
    }

    /// Withdraws the exposures that are closed to their pushers.
    fn withdraw_closed(&mut self) {
        for exposure in std::mem::take(&mut self.proto.withdrawals) {
            self.transport.withdraw(&exposure);
        }
    }

    /// The slow part, after a poll that delivered `packets` packets: deferred offers, queued
    /// packets, streams, pulls, pushes, hooks, failures.
    ///
    /// The order matters:
    /// - deferred offers come first, because matching them may poll again, and what such a poll
    ///   notes is handled below;
    /// - failures come before transfers, so that no transfer of a failed peer is advanced;
    /// - transfers come before hooks, which see what the transfers have completed;
    /// - queued packets come last: every phase before may queue some, and they leave in this step.
    ///
    /// `work` is computed anew at the end. Offers and `Done` packets that polls have noted
    /// have been handled by then; what may still be to do is in queues, with awake hooks or in
    /// `gone`.
    #[cold]
    #[inline(never)]
    fn work(&mut self, packets: usize) -> usize {
        self.proto.has_pulled = false;
        self.proto.has_pulled_absent = false;
        if self.attends() {
            self.transport.note_look();
        }
        let mut done = self.match_offers();
        // A spinning thread checks its condition only after something was done. What is noted here
        // may have come in an earlier poll, of `take_in`.
        while let Some((peer, header)) = self.proto.active.done_packets.pop() {
            self.on_done(peer, &header);
            done += 1;
        }
        if self.transport.failures() != self.proto.failures_seen {
            self.notice_failures();
            done += 1;
        }
        done += self.declare_misbehaved();
        done += self.fail_gone(packets);
        done += self.advance_pulls();
        done += self.begin_late();
        while let Some(index) = self.proto.begins.pop_front() {
            self.begin_transfer(index);
            done += 1;
        }
        done += self.advance_pushes();
        done += self.advance_remotes();
        done += self.advance_landings();
        self.withdraw_closed();
        done += self.do_noted();
        done += self.run_hooks();
        done += self.flush_outgoing();
        self.proto.has_pulled = false;
        self.proto.pulls_until = self.proto.counters.bytes_pulled + TURN as u64;
        let proto = &mut self.proto;
        proto.work = proto.has_outgoing() || proto.hooks.awake() || !proto.gone.is_empty();
        done
    }

    /// Matches the offer that a poll has found, and the offers behind it that have already arrived.
    /// A sender may say something behind a window of offers, such as that it takes this rank's
    /// offers; that should not wait until the data of each offer has been copied.
    fn match_offers(&mut self) -> usize {
        let mut done = 0;
        while let Some((peer, header, body)) = self.proto.deferred.take() {
            self.match_offer(peer, &header, &body);
            done += 1;
            if std::mem::take(&mut self.proto.held_up) && done < OFFERS {
                done += self.transport.poll(&mut Inbound(&mut self.proto));
            }
        }
        done
    }
}

/// The engine's side of a poll.
struct Inbound<'a>(&'a mut Proto);

impl Sink for Inbound<'_> {
    #[inline]
    fn accepts(&mut self, _peer: u32) -> bool {
        if self.0.deferred.is_none() {
            return true;
        }
        self.0.held_up = true;
        false
    }

    #[inline(always)]
    fn looks_ahead(&self) -> usize {
        self.0.posted.looks_ahead()
    }

    fn ahead(&mut self, header: &Header, places: usize) {
        if header.kind != PacketKind::Eager as u8 {
            return;
        }
        if let Some(&index) = self.0.posted.prefetch(&envelope(header), places) {
            self.0.table.prefetch(index);
        }
    }

    #[inline(always)]
    fn packet(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
        if header.kind == PacketKind::Eager as u8 {
            self.0.on_eager(peer, header, payload);
        } else {
            // A copy, so that an eager message's header need not be written to memory for this
            // call.
            let header = *header;
            self.0.on_other(peer, &header, payload);
        }
    }

    fn grows(&mut self, peer: u32, header: &Header, len: usize) -> Destination {
        self.0.destination_of(peer, header, len)
    }

    fn placed(&mut self, peer: u32, header: &Header, len: usize, here: usize) {
        self.0.on_placed(peer, &{ *header }, len, here);
    }

    fn part(&mut self, peer: u32, header: &Header, len: usize, at: usize, payload: Payload<'_>) {
        self.0.on_part(peer, &{ *header }, len, at, payload);
    }

    fn finished(&mut self, id: u32, outcome: Option<u64>) {
        self.0.on_finished(id, outcome);
    }
}

impl Proto {
    /// Notes that this call leaves something for the next progress step. If the program has several
    /// threads, this one may not make another step, and a thread that sleeps in a call makes none
    /// before something comes: so that thread is woken, and does it.
    pub(super) fn leave_work(&mut self) {
        self.work = true;
        self.shared.tell();
    }

    /// Handles every packet but an eager message.
    #[inline(never)]
    fn on_other(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
        match PacketKind::from_wire(header.kind) {
            Some(PacketKind::Data) => self.on_data(peer, header, payload),
            Some(PacketKind::Next) => self.on_next(peer, payload),
            Some(PacketKind::Bundle) => self.on_bundle(peer, payload),
            Some(PacketKind::First) => self.on_first(peer, header, payload),
            Some(PacketKind::Offer) => {
                match OfferBody::parse(payload, header.flags & flags::EXPOSED != 0) {
                    Some(body) => {
                        self.deferred = Some((peer, *header, body));
                        self.work = true;
                    }
                    None => self.misbehaves(peer, "sent an offer that is none"),
                }
            }
            Some(PacketKind::Take) => self.on_take(peer, header, payload),
            Some(PacketKind::Pushed) => self.on_pushed(peer, header),
            Some(PacketKind::Done) => {
                self.active.done_packets.push((peer, *header));
                self.work = true;
            }
            Some(PacketKind::Hold) => self.held_by(peer, header),
            Some(PacketKind::Credit) => self.credited_by(peer, header),
            Some(PacketKind::Active) => self.on_active(peer, header, payload),
            Some(PacketKind::OneSided) => self.on_one_sided(peer, header, payload),
            Some(PacketKind::Eager) | None => {
                self.misbehaves(peer, "sent a packet of no known kind");
            }
        }
    }
}
