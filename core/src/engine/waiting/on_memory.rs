//! Waiting on memory that peers store into, where they can. No packet announces the change.
//!
//! The latency that matters is that of one cache line. So the memory is looked at many times for
//! each poll, with nothing else in between. Before this rank sleeps, it announces that
//! (`Transport::arm`) and looks once more; a peer stores first and then checks for the announcement
//! (`Transport::nudge`). The barrier between the two is in `arm`, so a store and the nudge after it
//! cost no fence.

use crate::device::ProcId;
use crate::engine::Engine;
use crate::engine::state::{Proto, State};
use crate::engine::waiting::wait::{Target, Waiter};
use crate::error::Result;
use crate::group::Group;
use crate::level::{Level, StateLock};
use crate::transport::Transport;

/// Looks at the memory before the first poll: enough for a peer that answers at once, some 300 ns
/// away, even where the processor's spin hint is short.
const FIRST_LOOKS: u32 = 128;
/// The same where ranks outnumber cores, so that the peer may want this very core. But the peer on
/// the other core is often nearly there, and it pays to look for half as long as it takes to give
/// the core away and get it back (a barrier of 4 ranks on two cores: 2.5 µs with one look, 1.8 with
/// 8, 2.9 with 100).
const CROWDED_LOOKS: u32 = 8;
/// Looks between two further polls, while this rank spins.
const LOOKS: u32 = 64;

impl<T: Transport, L: Level> Engine<T, L> {
    /// See [`Device::wait_for`](crate::Device::wait_for).
    #[inline]
    pub(in crate::engine) fn wait_for_memory(
        &self,
        group: &Group,
        peer: Option<u32>,
        mut ready: impl FnMut() -> bool,
    ) -> Result<()> {
        let looks = FIRST_LOOKS.min(self.policy.spin.max(CROWDED_LOOKS));
        for _ in 0..looks {
            if ready() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.watch_memory(group, peer, &mut ready)
    }

    #[cold]
    #[inline(never)]
    fn watch_memory(
        &self,
        group: &Group,
        peer: Option<u32>,
        ready: &mut impl FnMut() -> bool,
    ) -> Result<()> {
        let look = |state: &mut State<T>, ready: &mut dyn FnMut() -> bool| {
            if ready() {
                return Some(Ok(()));
            }
            state.proto.hopeless(group, ready).map(Err)
        };
        {
            let mut state = self.state.lock();
            state.proto.check_live()?;
            state.transport.set_present(true);
        }
        let mut polls = 0;
        let result = loop {
            if polls >= self.policy.closely {
                let target = Target::Memory(peer.or_else(|| self.only_other(group)));
                let mut waiter = Waiter::after_spinning(target, polls, self.shared.polls());
                let mut look = |state: &mut State<T>| look(state, ready);
                break self.block_patiently(&mut waiter, &mut look);
            }
            if let Some(result) = {
                let mut state = self.state.lock();
                state.progress();
                look(&mut state, ready)
            } {
                break result;
            }
            let mut looks = 0;
            while looks < LOOKS && !ready() {
                std::hint::spin_loop();
                looks += 1;
            }
            polls = polls.saturating_add(looks.max(1));
        };
        self.state.lock().transport.set_present(false);
        result
    }

    /// The only other member of a group, if there is exactly one: this rank can only be waiting for
    /// it.
    fn only_other(&self, group: &Group) -> Option<u32> {
        let mut others = group
            .iter()
            .map(ProcId::index)
            .filter(|&peer| peer != self.shared.rank);
        others.next().filter(|_| others.next().is_none())
    }

    /// See [`Device::notify`](crate::Device::notify).
    #[inline]
    pub(in crate::engine) fn notify_of_memory(&self, peer: u32) {
        self.state.lock().nudge(peer);
    }
}

impl<T: Transport> State<T> {
    /// Wakes a sleeper that waits on memory: a peer, or another thread of this rank.
    #[inline]
    pub(in crate::engine) fn nudge(&mut self, peer: u32) {
        if peer == self.proto.me {
            // Another thread of this rank announces its sleep under the lock, which is held here.
            self.proto.shared.wake();
        } else if (peer as usize) < self.proto.peers.len() {
            self.transport.nudge(peer);
        }
    }
}

impl Proto {
    /// The error for a wait that may never end because a member of `group` has died. Stores that
    /// the dead member made before its death still count, so `ready` is tried once more.
    #[inline]
    fn hopeless(
        &self,
        group: &Group,
        ready: &mut dyn FnMut() -> bool,
    ) -> Option<crate::error::Error> {
        if !self.trouble {
            return None;
        }
        let dead = self.first_dead(group)?;
        (!ready()).then(|| self.peer_failed(dead))
    }
}
