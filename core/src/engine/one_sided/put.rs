//! Puts: at once where this rank stores itself, else by the network or in packets.

use crate::device::{ProcId, RegionKey};
use crate::engine::Engine;
use crate::engine::one_sided::Reach;
use crate::engine::one_sided::driven::written;
use crate::engine::waiting::wait::Target;
use crate::error::Result;
use crate::level::{Level, StateLock};
use crate::request::Request;
use crate::transport::{Remote, Transport};

impl<T: Transport, L: Level> Engine<T, L> {
    /// # Safety
    /// As [`crate::Device::put`].
    pub(in crate::engine) unsafe fn put_to(
        &self,
        peer: ProcId,
        (key, offset): (&RegionKey, u64),
        (source, len): (*const u8, usize),
    ) -> Result<Request> {
        let mut state = self.state.lock();
        let reach = state.reach(peer, key, offset, len, 1)?;
        if let Reach::Packets(rank) = reach
            && len > 0
        {
            let what = Remote::Put { source, len };
            let null = std::ptr::null_mut();
            if let Some(request) = state.start_remote(rank, key, offset, what, null)? {
                return Ok(request);
            }
        }
        // For this rank's own regions the lock stays held: without it another thread could store to
        // them or free them.
        let own = peer.index() == state.proto.me;
        let state = own.then_some(state);
        match reach {
            Reach::Direct(target) => {
                // SAFETY: the range is inside of a live region; the caller vouches for the source.
                unsafe { std::ptr::copy(source, target, len) };
            }
            // SAFETY: the range is inside of a live region; the caller vouches for the source.
            Reach::Driven(data, at) => unsafe { written(&data, at, source, len)? },
            Reach::Packets(rank) => {
                drop(state);
                let mut done = 0;
                self.block_until(Target::Any, |state| {
                    // SAFETY: the caller vouches for the source; `done` is at most `len`.
                    let sent = unsafe {
                        let rest = source.add(done);
                        state.put_some(rank, key, offset + done as u64, rest, len - done)
                    };
                    match sent {
                        Ok(sent) => {
                            done += sent;
                            (done == len).then_some(Ok(()))
                        }
                        Err(error) => Some(Err(error)),
                    }
                })?;
            }
        }
        Ok(Request::NULL)
    }
}
