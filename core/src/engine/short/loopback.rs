//! Messages from a rank to itself: matched like any other, copied once.

use portolan_datatype::MsgRep;

use crate::buffer::ContigBuf;
use crate::device::{Completion, SendArgs, SendMode};
use crate::engine::data::Data;
use crate::engine::entry::{Op, SendStage};
use crate::engine::long::flows::fault;
use crate::engine::short::recv::signatures_match;
use crate::engine::short::unexpected::Arrived;
use crate::engine::state::{Proto, State};
use crate::error::{ErrorKind, Result};
use crate::staging::CHUNK;
use crate::status::Status;
use crate::transport::{Header, PacketKind, Transport};

/// Size of the pieces in which data moves between two scattered layouts.
const PIECE: usize = 4096;

impl<T: Transport> State<T> {
    /// Sends to this rank itself.
    pub(in crate::engine) fn loop_send(&mut self, index: u32) {
        let Some(op) = self.proto.table.send(index) else {
            return;
        };
        let bytes = op.data.len();
        let envelope = op.args.envelope;
        let header = crate::engine::short::send::header(
            PacketKind::Eager,
            &op.args,
            op.data.signature(bytes).bits(),
        );
        if let Some(receive) = self.proto.posted.match_arrival(&envelope) {
            return self.proto.finish_loop(index, receive, &header);
        }
        self.proto.counters.unexpected += 1;
        let arrived = Arrived::Looped {
            send: index,
            header,
            bytes,
        };
        let id = self.proto.unexpected.push(envelope, arrived);
        if let Some(op) = self.proto.table.send(index) {
            op.stage = SendStage::Looped(id);
        }
        self.proto.shared.tell();
    }

    /// A blocking send to this rank itself. It must not wait for a receive that this thread posts
    /// later, so a standard send is copied. A synchronous one comes here at level `Single` only,
    /// where no other thread could receive.
    pub(in crate::engine) fn send_to_self(&mut self, args: &SendArgs, data: Data) -> Result<()> {
        if args.mode == SendMode::Synchronous
            && self.proto.posted.peek_arrival(&args.envelope).is_none()
        {
            return Err(self.proto.error(
                ErrorKind::InvalidArgument,
                format!(
                    "a synchronous send of rank {} to itself would wait for ever: no receive for tag \
                     {} is posted",
                    args.envelope.source, args.envelope.tag
                ),
                "post the receive first, or send nonblocking",
            ));
        }
        let len = data.len();
        let mut copy = vec![0_u8; len].into_boxed_slice();
        // SAFETY: the caller vouches for the buffer; the copy has the packed stream's length.
        unsafe { data.read(0, copy.as_mut_ptr(), len, args.rep) };
        let buf = ContigBuf {
            signature: data.signature(len),
            ..ContigBuf::from_bytes(&copy)
        };
        // SAFETY: the copy is kept until the send is over, by the attachment.
        let request = unsafe { self.start_send(args, Data::Contig(buf))? };
        self.proto.attach(
            request,
            Completion {
                keep: Box::new(copy),
                then: None,
            },
        )?;
        self.proto.free_request(request)
    }
}

impl Proto {
    /// Copies from a send of this rank to the receive that it matched, and completes both.
    pub(in crate::engine) fn finish_loop(&mut self, send: u32, receive: u32, header: &Header) {
        let source = match &self.table.entry(send).op {
            Op::Send(op) => (op.data.clone(), op.args.rep),
            _ => (Data::NONE, MsgRep::Native),
        };
        let target = match &self.table.entry(receive).op {
            Op::Recv(op) => op.data.clone(),
            _ => Data::NONE,
        };
        let sent = source.0.len();
        let wanted = sent.min(target.len());
        let mut status = Status {
            sent: sent as u64,
            ..Status::received(header.source, header.tag, wanted as u64)
        };
        if self.check_signature && !signatures_match(header.signature, &target, sent) {
            status.error = Some(ErrorKind::TypeMismatch);
            status.bytes = 0;
        } else {
            copy(&source.0, &target, wanted, source.1);
            status.rep = target.delivers(source.1);
            if wanted < sent {
                status.error = Some(ErrorKind::Truncated);
            }
        }
        let faults = (fault(&source.0), fault(&target));
        self.blame(receive, &mut status, faults.1.or_else(|| faults.0.clone()));
        self.counters.looped += 1;
        self.counters.bytes_received += status.bytes;
        self.complete(receive, status);
        match faults.0 {
            Some(why) => self.fail_driven(send, why),
            None => self.complete_send(send),
        }
    }
}

/// Copies `len` bytes of the packed stream of one buffer to another.
fn copy(source: &Data, target: &Data, len: usize, rep: MsgRep) {
    if let (Some((from, _)), MsgRep::Native) = (source.contiguous(), rep) {
        // SAFETY: both buffers belong to active operations, so they are the device's; `len` is at
        // most either's length. MPI forbids overlap of send and receive buffers, and callers of the
        // unsafe entries promise that a receive's buffer is not read meanwhile.
        return unsafe { target.write(0, from, len, rep) };
    }
    let (mut small, mut large);
    let piece: &mut [u8] = match source.driven().or(target.driven()) {
        None => {
            small = [0; PIECE];
            &mut small
        }
        // Each copy by a driver has a fixed cost.
        Some(_) => {
            large = vec![0; len.min(CHUNK)];
            &mut large
        }
    };
    let mut done = 0;
    while done < len {
        let step = (len - done).min(piece.len());
        // SAFETY: as above; `piece` is apart from both and has `step` bytes.
        unsafe {
            source.read(done, piece.as_mut_ptr(), step, rep);
            target.write(done, piece.as_ptr(), step, rep);
        }
        done += step;
    }
}
