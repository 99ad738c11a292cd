//! A rank that has waited too long says for what: on its standard error in full, and to its
//! launcher in a form that can be put together with what the other ranks say.

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

/// What is told of a rank's long waits: gets what it waits for, or nothing once that wait is over.
pub type StuckHook = Box<dyn FnMut(&[Waiting]) + Send>;

impl<T: Transport, L: Level> Engine<T, L> {
    /// Says who hears of waits that last longer than the setting `STUCK_AFTER`: usually the
    /// launcher, told by its bootstrap.
    ///
    /// The hook runs on the thread that waits, without a lock of the engine. Once a wait that it
    /// was told of is over it is called with an empty list.
    pub fn on_stuck(&self, hook: StuckHook) {
        let mut place = self
            .hooks
            .stuck
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *place = Some(hook);
    }

    /// Says what this rank is waiting for, once, when it has waited too long.
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
        // Standard error may be closed; there is nobody else to tell.
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

/// The wait for something that is no message.
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
    /// What a wait is for: the request it names, or whichever of the active ones ends first. Never
    /// empty.
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
            // An active message has no request; a request of another crate's does not say whom it
            // needs.
            list.push(event(None));
        }
        list
    }

    /// The wait of a probe, which is for a message like that of a receive.
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
