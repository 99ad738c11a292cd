//! Sending tagged messages: MP_Lite's `mp_asend` for the device.

use portolan_core::engine::Data;
use portolan_core::{Error, ErrorKind, Request, SendArgs, SendMode};

use crate::device::{End, Message, Number, State};
use crate::mp_lite::{Form, IN_HEADER, Label, Mode, Outgoing, Wire};

impl State {
    /// Starts a send.
    ///
    /// # Safety
    /// `args` must be legal, and the buffer must stay readable until the request completes.
    pub(crate) unsafe fn start_send(&mut self, request: Request, args: &SendArgs, data: Data) {
        let peer = args.dest.index();
        let dead = self.has_failed(peer).then_some(peer);
        // In a collective operation with a dead member, only a message that can leave at once is
        // sent.
        let long = data.len() > IN_HEADER || args.mode == SendMode::Synchronous;
        let dead = dead.or_else(|| self.failure_in(args.envelope.context).filter(|_| long));
        if let Some(peer) = dead {
            self.ends.push_back((request, End::Failed(peer)));
            return;
        }
        let form = Form {
            rep: args.rep.code(),
            signature: data.signature(data.len()).bits(),
        };
        let outgoing = Outgoing {
            peer,
            label: label(args),
            form,
            mode: match args.mode {
                SendMode::Synchronous => Mode::Synchronous,
                SendMode::Ready => Mode::Ready,
                SendMode::Standard => Mode::Standard,
                SendMode::Buffered => Mode::Immediate,
            },
            buffer: Message {
                data,
                rep: args.rep,
                checked: self.checked,
            },
            token: request.to_bits(),
        };
        let id = self.lite.asend(&mut self.wire, outgoing);
        self.started(request, Number::Send(id));
    }

    /// Whether a blocking synchronous send of this rank to itself would wait for ever.
    pub(crate) fn waits_for_itself(&self, args: &SendArgs) -> bool {
        let me = self.wire.me();
        args.mode == SendMode::Synchronous
            && args.dest.index() == me
            && !self.lite.expects(me, label(args))
    }
}

fn label(args: &SendArgs) -> Label {
    Label {
        context: args.envelope.context,
        tag: args.envelope.tag,
    }
}

/// The error of a blocking synchronous send to oneself that nobody could receive.
#[cold]
pub(crate) fn to_itself(args: &SendArgs) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        format!(
            "a synchronous send of rank {} to itself would wait for ever: no receive for tag {} is posted",
            args.envelope.source, args.envelope.tag
        ),
    )
    .remedy("post the receive first, or send nonblocking")
}

/// The error of a buffered send that found no room.
#[cold]
pub(crate) fn may_block(args: &SendArgs, len: usize) -> Error {
    Error::new(
        ErrorKind::MayBlock,
        format!(
            "a buffered send of {len} bytes to world rank {} would have to wait",
            args.dest.index()
        ),
    )
    .remedy("copy the message and send the copy nonblocking")
}
