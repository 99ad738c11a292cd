//! Waiting on memory that peers store into, where they can: no packet says that it has changed.
//!
//! What counts is the time that one cache line takes: the memory is looked at often, and with
//! nothing else in between, for each poll. Before this rank sleeps it announces that
//! (`Transport::arm`) and looks once more; a peer stores first and looks for the announcement then
//! (`Transport::nudge`). The barrier between the two is in `arm`, so a store and the nudge behind
//! it cost no fence.

use crate::device::ProcId;
use crate::engine::Engine;
use crate::engine::state::{Proto, State};
use crate::engine::waiting::wait::{Target, Waiter};
use crate::error::Result;
use crate::group::Group;
use crate::level::{Level, StateLock};
use crate::transport::Transport;

/// Looks at the memory before the first poll: enough for a peer that answers at once, some 300 ns
/// away, however short the processor's pause is.
const FIRST_LOOKS: u32 = 128;
/// The same where ranks outnumber cores: the peer may want this very core. But the one on the other
/// core is often nearly there, and looking for half as long as it takes to give the core away and
/// get it back pays (a barrier of 4 ranks on two cores 2.5 µs with one look, 1.8 with 8, 2.9 with
/// 100).
const CROWDED_LOOKS: u32 = 8;
/// Looks for each further poll, while this rank spins.
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

    /// The member of a group whom this rank can only be waiting for.
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
    /// Wakes whoever sleeps on memory: a peer, or another thread of this rank.
    #[inline]
    pub(in crate::engine) fn nudge(&mut self, peer: u32) {
        if peer == self.proto.me {
            // Another thread of this rank: it has announced its sleep under the lock.
            self.proto.shared.wake();
        } else if (peer as usize) < self.proto.peers.len() {
            self.transport.nudge(peer);
        }
    }
}

impl Proto {
    /// The error for a wait that a dead member of `group` may leave without an end. What the dead
    /// have stored before counts.
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
