//! Ordering, and waiting for other PEs.

use portolan_core::Result;

use super::Shmem;
use crate::machine::{Addr, Arrival, Call, Condition, Time};

impl Shmem {
    /// Every write to a PE before this call arrives before every write to the same PE after it
    /// (`shmem_fence`). On this machine it is [`quiet`](Self::quiet).
    ///
    /// # Errors
    /// If the machine has stopped.
    pub fn fence(&mut self) -> Result<()> {
        self.quiet()
    }

    /// Waits until every write of this PE has arrived (`shmem_quiet`).
    ///
    /// # Errors
    /// If the machine has stopped.
    pub fn quiet(&mut self) -> Result<()> {
        self.done(Call::Quiet)
    }

    /// Enters the hardware's barrier network and waits for all other PEs (`barrier`). Does not wait
    /// for writes: see [`barrier_all`](Self::barrier_all).
    ///
    /// # Errors
    /// [`PeerFailed`](portolan_core::ErrorKind::PeerFailed) if a PE fails or leaves instead.
    pub fn barrier(&mut self) -> Result<()> {
        self.done(Call::Barrier)
    }

    /// Waits for all PEs, and for all of their earlier writes (`shmem_barrier_all`).
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn barrier_all(&mut self) -> Result<()> {
        self.quiet()?;
        self.barrier()
    }

    /// Waits until a word of own memory is no longer `value` (`shmem_wait`).
    ///
    /// # Errors
    /// As [`wait_until`](Self::wait_until).
    pub fn wait(&mut self, addr: Addr, value: i64) -> Result<()> {
        self.wait_until(addr, Condition::NotEqual(value))
    }

    /// Waits until a word of own memory satisfies a condition (`shmem_wait_until`).
    ///
    /// # Errors
    /// [`RemoteAccess`](portolan_core::ErrorKind::RemoteAccess) if there is no such word,
    /// [`Aborted`](portolan_core::ErrorKind::Aborted) if all PEs wait.
    pub fn wait_until(&mut self, addr: Addr, until: Condition) -> Result<()> {
        self.done(Call::WaitUntil { addr, until })
    }

    /// How often puts and atomic operations, of this PE or of others, had changed this PE's memory
    /// at the end of the last call.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// From now on [`take_arrivals`](Self::take_arrivals) returns the data that reaches `len` bytes
    /// of own memory from `addr` on, so that a program can keep a copy of them without reading
    /// them. Costs next to no time; a later call replaces the range.
    ///
    /// # Errors
    /// [`RemoteAccess`](portolan_core::ErrorKind::RemoteAccess) if there is no such memory.
    pub fn watch(&mut self, addr: Addr, len: usize) -> Result<()> {
        self.done(Call::Watch { addr, len })
    }

    /// The data that had reached the watched range by the end of the last call, in that order; each
    /// piece is returned once. This is no call, and costs nothing: looking at memory is to be
    /// [charged](Shmem::charge).
    pub fn take_arrivals(&mut self) -> Vec<Arrival> {
        std::mem::take(&mut self.arrivals)
    }

    /// Sleeps until this PE's memory has been changed more than `seen` times (the value of
    /// [`changes`](Self::changes) before the memory was looked at), a PE has failed since the end
    /// of the last call, or the clock reaches `deadline`. Costs at least one poll.
    ///
    /// # Errors
    /// [`Aborted`](portolan_core::ErrorKind::Aborted) if all PEs wait and none has a deadline.
    pub fn wait_change(&mut self, seen: u64, deadline: Time) -> Result<()> {
        let failures = self.failures;
        self.done(Call::WaitChange {
            seen,
            failures,
            deadline,
        })
    }

    /// Sleeps until data that has not been [taken](Self::take_arrivals) reaches the
    /// [watched](Self::watch) range, a PE has failed since the end of the last call, or the clock
    /// reaches `deadline`. Costs at least one poll.
    ///
    /// # Errors
    /// [`Aborted`](portolan_core::ErrorKind::Aborted) if all PEs wait and none has a deadline.
    pub fn wait_arrival(&mut self, deadline: Time) -> Result<()> {
        self.wait_arrival_noting(deadline, None)
    }

    /// Like [`wait_arrival`](Self::wait_arrival), with a [note](Self::note) for the report of a
    /// deadlock.
    ///
    /// # Errors
    /// As [`wait_arrival`](Self::wait_arrival).
    pub fn wait_arrival_noting(&mut self, deadline: Time, note: Option<String>) -> Result<()> {
        // If a reply has already brought data, there is nothing to wait for, so the deadline is a
        // moment that has passed.
        let deadline = if self.arrivals.is_empty() {
            deadline
        } else {
            Time::ZERO
        };
        self.done(Call::WaitArrival {
            failures: self.failures,
            deadline,
            note,
        })
    }
}
