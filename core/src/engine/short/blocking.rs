//! A blocking send that cannot leave at once.

use crate::device::{Device, SendArgs, SendMode};
use crate::engine::Engine;
use crate::engine::data::Data;
use crate::engine::short::send::{Launched, may_block};
use crate::error::Result;
use crate::guard::NoUnwind;
use crate::level::{Level, StateLock};
use crate::transport::Transport;

impl<T: Transport, L: Level> Engine<T, L> {
    /// A send that could not leave at once.
    ///
    /// # Safety
    /// `args` must be legal, and the buffer readable for the length of the call.
    #[cold]
    #[inline(never)]
    pub(in crate::engine) unsafe fn send_slowly(&self, args: &SendArgs, data: Data) -> Result<()> {
        // As in `block_until`: the receiver may be copying from the caller's buffer.
        let guard = NoUnwind::new("a send");
        // SAFETY: the caller's promise.
        let outcome = unsafe { self.send_guarded(args, data) };
        guard.done();
        outcome
    }

    /// # Safety
    /// As above.
    unsafe fn send_guarded(&self, args: &SendArgs, data: Data) -> Result<()> {
        let request = {
            let mut state = self.state.lock();
            if args.mode == SendMode::Buffered {
                // Progress may make room, and is due: a program that makes only buffered sends
                // would otherwise never make progress.
                state.progress();
                let tried = match &data {
                    // SAFETY: the caller's promise.
                    Data::Contig(buf) => unsafe { state.try_eager_contig(args, buf, false) },
                    Data::Typed { .. } | Data::Driven(_) => Launched::No,
                };
                if tried == Launched::Yes {
                    return Ok(());
                }
                return Err(may_block(args, data.len()).on_rank(self.shared.rank));
            }
            // At level Multiple a synchronous send to this rank waits, as any other: another thread
            // may be about to receive it.
            let waits = L::MULTIPLE && args.mode == SendMode::Synchronous;
            if args.dest.index() == state.proto.me && !waits {
                return state.send_to_self(args, data);
            }
            // SAFETY: the caller keeps the buffer until this returns, which is after completion.
            unsafe { state.start_waited_send(args, data)? }
        };
        self.wait(request).map(drop)
    }
}
