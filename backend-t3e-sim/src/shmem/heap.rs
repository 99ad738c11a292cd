//! Memory: symmetric memory, and a PE's own.

use portolan_core::Result;

use super::{Shmem, unexpected};
use crate::machine::{Addr, Answer, Call};

impl Shmem {
    /// Allocates symmetric memory, zeroed at the machine's start (`shmalloc`): at the same address
    /// on every PE, aligned to a cache line of 64 bytes. Every PE makes the same call; includes a
    /// barrier.
    ///
    /// # Errors
    /// On every PE: [`Exhausted`](portolan_core::ErrorKind::Exhausted) if the heap is full,
    /// [`InvalidArgument`](portolan_core::ErrorKind::InvalidArgument) if the PEs ask for different
    /// sizes, which the error names.
    pub fn malloc(&mut self, len: usize) -> Result<Addr> {
        self.allocate(Call::Allocate { len })
    }

    /// Frees symmetric memory (`shfree`). Every PE makes the same call; includes a barrier.
    ///
    /// # Errors
    /// [`InvalidArgument`](portolan_core::ErrorKind::InvalidArgument) on every PE, if the PEs name
    /// different memory or memory that was not allocated.
    pub fn free(&mut self, addr: Addr) -> Result<()> {
        self.done(Call::Free { addr })
    }

    /// Allocates zeroed memory of this PE alone. Other PEs can put and get there, if they are told
    /// the address. This stands for `malloc` on a machine where all memory can be reached. Costs
    /// next to no time.
    ///
    /// # Errors
    /// [`Exhausted`](portolan_core::ErrorKind::Exhausted) if there is no room.
    pub fn arena_malloc(&mut self, len: usize) -> Result<Addr> {
        self.allocate(Call::ArenaAllocate { len })
    }

    /// Frees memory of this PE alone; its address is never used again. Costs next to no time.
    ///
    /// # Errors
    /// [`RemoteAccess`](portolan_core::ErrorKind::RemoteAccess) if it was not allocated.
    pub fn arena_free(&mut self, addr: Addr) -> Result<()> {
        self.done(Call::ArenaFree { addr })
    }

    /// Bytes of symmetric heap that each PE has.
    #[must_use]
    pub fn heap_size(&self) -> usize {
        self.welcome.heap
    }

    fn allocate(&mut self, call: Call) -> Result<Addr> {
        match self.call(call)?.answer {
            Answer::At(addr) => Ok(addr),
            other => Err(unexpected(&other)),
        }
    }
}
