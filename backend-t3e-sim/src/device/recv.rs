//! Receiving tagged messages: MP_Lite's `mp_arecv` for the device, and its probes.

use portolan_core::engine::Data;
use portolan_core::matching::Pattern;
use portolan_core::{Request, Status};
use portolan_datatype::MsgRep;

use super::state::{Message, Number, State};
use crate::mp_lite::Arrival;

impl State {
    /// Starts a receive.
    ///
    /// # Safety
    /// `from` must be legal, and the buffer must stay writable until the request completes.
    pub(crate) unsafe fn start_receive(&mut self, request: Request, from: &Pattern, data: Data) {
        let pattern = self.pattern(from);
        let buffer = self.buffer(data);
        let id = self
            .lite
            .arecv(&mut self.wire, pattern, buffer, request.to_bits());
        if !self.lite.has_done()
            && let Some(peer) = self.failure_for(&pattern)
        {
            self.lite.fail_receive(&mut self.wire, id, peer);
        }
        self.started(request, Number::Receive(id));
    }

    /// Receives a message that a matched probe has taken; `false` if there is none with this
    /// number.
    ///
    /// # Safety
    /// The buffer must stay writable until the request completes.
    pub(crate) unsafe fn receive_taken(
        &mut self,
        number: u32,
        request: Request,
        data: Data,
    ) -> bool {
        let buffer = self.buffer(data);
        let known = self
            .lite
            .receive_taken(&mut self.wire, number, buffer, request.to_bits());
        self.collect();
        known
    }

    fn buffer(&self, data: Data) -> Message {
        Message {
            data,
            rep: MsgRep::Native,
            checked: self.checked,
        }
    }

    /// The status that a probe shows.
    pub(crate) fn shown(&self, arrival: &Arrival) -> Status {
        let source = self.local(arrival.context, arrival.peer);
        Status::received(source, arrival.tag, arrival.len)
    }

    /// Asks for a tagged operation to be cancelled; `false` if none with this request is under way.
    pub(crate) fn cancel(&mut self, request: Request) -> bool {
        let Some(&operation) = self.operations.get(&request.to_bits()) else {
            return false;
        };
        if operation.abandoned {
            return false;
        }
        match operation.number {
            Number::Send(id) => self.lite.cancel_send(&mut self.wire, id),
            Number::Receive(id) => self.lite.cancel_receive(&mut self.wire, id),
        }
        self.collect();
        true
    }
}
