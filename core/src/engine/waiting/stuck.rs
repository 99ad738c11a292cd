//! A rank that has waited too long reports what it waits for: in full on its standard error, and to
//! its launcher in a form that can be combined with the reports of other ranks.

use std::sync::PoisonError;
use std::time::Instant;

use crate::engine::Engine;
use crate::engine::deaths::finish::OWN_CONTEXT;
use crate::engine::entry::{Entry, Op, RecvOp, RecvStage};
use crate::engine::state::Proto;
use crate::engine::waiting::wait::{Target, Waiter};
use crate::level::{Level, StateLock};
use crate::matching::Pattern;
use crate::observe::{WaitKind, Waiting};
use crate::transport::Transport;

/// Hears of a rank's long waits: gets what the rank waits for, or an empty list once that wait is
/// over.
pub type StuckHook = Box<dyn FnMut(&[Waiting]) + Send>;

impl<T: Transport, L: Level> Engine<T, L> {
    /// Sets the hook that hears of waits that last longer than the setting `STUCK_AFTER`. Usually
    /// the hook tells the launcher, through the bootstrap.
    ///
    /// The hook runs on the waiting thread, which holds no lock on the engine's state meanwhile.
    /// Once a wait that was reported is over, the hook is called with an empty list.
    pub fn on_stuck(&self, hook: StuckHook) {
        let mut place = self
            .hooks
            .stuck
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *place = Some(hook);
    }

    /// Reports, once, what this rank is waiting for, if it has waited too long.
    pub(in crate::engine) fn report_if_stuck(&self, waiter: &mut Waiter) {
        let Some(limit) = self.policy.stuck_after else {
            return;
        };
        if waiter.reported || waiter.since.get_or_insert_with(Instant::now).elapsed() < limit {
            return;
        }
        waiter.reported = true;
        let (lines, waits) = {
            let state = self.state.lock();
            (state.proto.describe(), state.proto.waits(waiter.target))
        };
        let text = format!(
            "portolan: rank {} has waited for {} s:\n  {}\n",
            self.shared.rank,
            limit.as_secs_f64(),
            lines.join("\n  ")
        );
        // Standard error may be closed; then there is nowhere else to report.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
        self.say_stuck(&waits);
    }

    #[cold]
    pub(in crate::engine) fn say_stuck(&self, waits: &[Waiting]) {
        let mut hook = self
            .hooks
            .stuck
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(hook) = hook.as_mut() {
            hook(waits);
        }
    }
}

/// A wait for something other than a message.
fn event(peer: Option<u32>) -> Waiting {
    Waiting {
        kind: WaitKind::Event,
        peer,
        context: 0,
        tag: None,
        bytes: 0,
    }
}

impl Proto {
    /// What a wait is for: the request that it names, or else all active ones, any of which may end
    /// it. Never empty.
    fn waits(&self, target: Target) -> Vec<Waiting> {
        let named = match target {
            Target::Request(request) => Some(request.index()),
            Target::Message(pattern) => return vec![self.probing(&pattern)],
            Target::Memory(peer) => return vec![event(peer)],
            Target::Any => None,
        };
        let all = || self.table.active();
        let of_named = all()
            .filter(|&(index, _)| Some(index) == named)
            .find_map(|(_, entry)| self.waiting_of(entry));
        if let Some(waiting) = of_named {
            return vec![waiting];
        }
        let mut list: Vec<_> = all().filter_map(|(_, e)| self.waiting_of(e)).collect();
        if list.is_empty() || named.is_some() {
            // An active message has no request, and a request of another crate does not say which
            // peer it needs.
            list.push(event(None));
        }
        list
    }

    /// The wait of a probe: for a message, as a receive waits for one.
    fn probing(&self, pattern: &Pattern) -> Waiting {
        let process = |local| self.process_of(pattern.context, local);
        Waiting {
            kind: WaitKind::Probe,
            peer: pattern.source.and_then(process),
            context: pattern.context,
            tag: pattern.tag,
            bytes: 0,
        }
    }

    fn waiting_of(&self, entry: &Entry) -> Option<Waiting> {
        let waiting = |kind, peer, context, tag, bytes| {
            let kind = match context {
                OWN_CONTEXT => WaitKind::End,
                _ => kind,
            };
            Some(Waiting {
                kind,
                peer,
                context,
                tag,
                bytes,
            })
        };
        if let Some((args, len, _)) = entry.op.send() {
            return waiting(
                WaitKind::Send,
                Some(args.dest.index()),
                args.envelope.context,
                Some(args.envelope.tag),
                len as u64,
            );
        }
        match &entry.op {
            Op::Recv(RecvOp {
                wanted,
                data,
                stage: RecvStage::Posted(_),
            }) => {
                let pattern = wanted.pattern();
                waiting(
                    WaitKind::Receive,
                    pattern
                        .source
                        .and_then(|local| self.process_of(pattern.context, local)),
                    pattern.context,
                    pattern.tag,
                    data.len() as u64,
                )
            }
            Op::Recv(RecvOp {
                stage: RecvStage::Transfer(transfer),
                ..
            }) => waiting(
                WaitKind::Transfer,
                Some(transfer.peer),
                transfer.header.context,
                Some(transfer.header.tag),
                transfer.wanted as u64,
            ),
            Op::Recv(RecvOp {
                wanted,
                data,
                stage: RecvStage::Arriving { peer, .. },
            }) => waiting(
                WaitKind::Transfer,
                Some(*peer),
                wanted.pattern().context,
                wanted.pattern().tag,
                data.len() as u64,
            ),
            Op::Fetch(op) => waiting(WaitKind::Fetch, Some(op.peer), 0, None, op.len as u64),
            Op::Remote(op) => waiting(WaitKind::Fetch, Some(op.peer), 0, None, op.len() as u64),
            Op::Recv(_) | Op::Idle | Op::Upper(_) | Op::Queued(_) | Op::Send(_) => None,
        }
    }
}
