//! The start of a PE's call, and what the call does then.

use std::sync::Arc;

use super::address::Addr;
use super::call::{Answer, Atomic, Call, Condition, Reason, Refusal, Stride};
use super::event::Kind;
use super::memory::reach;
use super::pe::{Doing, Get, Meeting, Put};
use super::run::Machine;
use super::time::Time;

impl Machine {
    pub(super) fn start(&mut self, pe: u32) {
        // Running for the moment, because a PE that acts does not wait.
        let doing = std::mem::replace(&mut self.pes[pe as usize].doing, Doing::Running);
        let Doing::Starting(call) = doing else {
            unreachable!("PE {pe} starts no call")
        };
        if let Err(refusal) = self.execute(pe, call) {
            self.refuse(pe, refusal);
        }
    }

    fn execute(&mut self, pe: u32, call: Call) -> Result<(), Refusal> {
        let now = self.now;
        match call {
            Call::Now => self.end(pe, now + self.costs.clock, Answer::Done),
            Call::Load { addr, len } => {
                let answer = Answer::Bytes(self.own(pe, addr, len)?);
                self.end(pe, now + self.costs.touch(len), answer);
            }
            Call::Store { addr, data } => {
                self.write_own(pe, addr, &data)?;
                self.end(pe, now + self.costs.touch(data.len()), Answer::Done);
            }
            Call::Peek { addr, len } => {
                let answer = Answer::Bytes(self.own(pe, addr, len)?);
                self.end(pe, now + self.costs.emulation, answer);
            }
            Call::Poke { addr, data } => {
                self.write_own(pe, addr, &data)?;
                self.end(pe, now + self.costs.emulation, Answer::Done);
            }
            Call::Put {
                pe: to,
                addr,
                data,
                stride,
            } => self.start_put(pe, to, addr, data, stride, None)?,
            Call::PutThen {
                pe: to,
                addr,
                data,
                flag,
                word,
            } => {
                self.check_remote(to, flag, 8, None)?;
                self.start_put(pe, to, addr, data, None, Some((flag, word)))?;
            }
            Call::Get {
                pe: from,
                addr,
                len,
                stride,
            } => self.start_get(pe, from, addr, len, stride)?,
            Call::Atomic { pe: on, addr, op } => self.start_atomic(pe, on, addr, op)?,
            Call::Quiet => {
                let at = self.pes[pe as usize].registers.all_free(now);
                self.end(pe, at, Answer::Done);
            }
            Call::Barrier => self.meet(pe, Meeting::Barrier),
            Call::Allocate { len } => self.meet(pe, Meeting::Allocate(len)),
            Call::Free { addr } => self.meet(pe, Meeting::Free(addr)),
            Call::WaitUntil { addr, until } => self.wait_until(pe, addr, until)?,
            Call::WaitChange {
                seen,
                failures,
                deadline,
            } => {
                let changed = self.pes[pe as usize].changes > seen;
                self.sleep(pe, Doing::Sleeping, changed, failures, deadline);
            }
            Call::WaitArrival {
                failures,
                deadline,
                note,
            } => {
                if let Some(note) = note {
                    self.pes[pe as usize].note = note;
                }
                let arrived = !self.pes[pe as usize].arrivals.is_empty();
                self.sleep(pe, Doing::Watching, arrived, failures, deadline);
            }
            Call::Leave => self.leave(pe),
            other => self.execute_free(pe, other)?,
        }
        Ok(())
    }

    /// Executes calls that the real machine does not have, which cost next to nothing.
    fn execute_free(&mut self, pe: u32, call: Call) -> Result<(), Refusal> {
        let answer = match call {
            Call::ArenaAllocate { len } => Answer::At(self.pes[pe as usize].memory.allocate(len)?),
            Call::ArenaFree { addr } => {
                self.pes[pe as usize].memory.free(addr)?;
                Answer::Done
            }
            Call::Declare { pe: whom, why } => {
                self.check_pe(whom)?;
                self.declare(whom, why);
                Answer::Done
            }
            Call::FailureOf { pe: whom } => {
                self.check_pe(whom)?;
                Answer::Text(self.pes[whom as usize].failed.clone())
            }
            Call::Watch { addr, len } => {
                self.check_own(pe, addr, len)?;
                let watching = &mut self.pes[pe as usize];
                watching.watched = (addr, len);
                watching.arrivals.clear();
                Answer::Done
            }
            Call::Note { text } => {
                self.pes[pe as usize].note = text;
                Answer::Done
            }
            other => unreachable!("{other:?} is not free"),
        };
        self.end(pe, self.now + self.costs.emulation, answer);
        Ok(())
    }

    fn start_put(
        &mut self,
        pe: u32,
        to: u32,
        addr: Addr,
        data: Vec<u8>,
        stride: Option<Stride>,
        then: Option<(Addr, u64)>,
    ) -> Result<(), Refusal> {
        self.check_remote(to, addr, data.len(), stride)?;
        let begins = self.now + self.start_of(addr, data.len());
        if data.is_empty() {
            self.put_is_issued(pe, to, begins, then);
            return Ok(());
        }
        self.pes[pe as usize].doing = Doing::Putting(Put {
            to,
            addr,
            data: Arc::new(data),
            stride,
            issued: 0,
            then,
        });
        self.events.add(begins, pe, Kind::Issue);
        Ok(())
    }

    fn start_get(
        &mut self,
        pe: u32,
        from: u32,
        addr: Addr,
        len: usize,
        stride: Option<Stride>,
    ) -> Result<(), Refusal> {
        self.check_remote(from, addr, len, stride)?;
        let begins = self.now + self.start_of(addr, len);
        if len == 0 {
            self.end(pe, begins, Answer::Bytes(Vec::new()));
            return Ok(());
        }
        self.pes[pe as usize].doing = Doing::Getting(Get {
            from,
            addr,
            data: vec![0; len],
            stride,
            issued: 0,
            arrived: 0,
            held_up: false,
        });
        self.events.add(begins, pe, Kind::Issue);
        Ok(())
    }

    fn start_atomic(&mut self, pe: u32, on: u32, addr: Addr, op: Atomic) -> Result<(), Refusal> {
        self.check_remote(on, addr, 8, None)?;
        check_aligned(addr)?;
        let ready = self.now + self.costs.start;
        let at = self.network.carry(pe, on, ready, 8);
        self.pes[pe as usize].doing = Doing::Operating { on, addr };
        let from = pe;
        self.events.add(at, on, Kind::Queue { from, addr, op });
        Ok(())
    }

    fn wait_until(&mut self, pe: u32, addr: Addr, until: Condition) -> Result<(), Refusal> {
        check_aligned(addr)?;
        self.check_own(pe, addr, 8)?;
        self.pes[pe as usize].doing = Doing::Until { addr, until };
        let cost = self.costs.access;
        self.wake(pe, cost);
        Ok(())
    }

    /// Lets a PE wait in the way `how`, unless what it waits for has `already` happened.
    fn sleep(&mut self, pe: u32, how: Doing, already: bool, failures: u32, deadline: Time) {
        let waiting = &mut self.pes[pe as usize];
        let poll = self.now + self.costs.poll;
        if already || self.failures != failures || deadline <= poll {
            self.end(pe, poll, Answer::Done);
            return;
        }
        waiting.doing = how;
        waiting.sleep += 1;
        if deadline != Time::NEVER {
            let sleep = waiting.sleep;
            self.events.add(deadline, pe, Kind::Deadline { sleep });
        }
    }

    pub(super) fn deadline(&mut self, pe: u32, sleep: u64) {
        let waiting = &self.pes[pe as usize];
        if waiting.sleep == sleep && waiting.doing.sleeps() {
            self.end(pe, self.now, Answer::Done);
        }
    }

    /// Handles a change of a PE's memory: if the PE waits for that, it continues `cost` later.
    pub(super) fn wake(&mut self, pe: u32, cost: Time) {
        let waiting = &self.pes[pe as usize];
        let goes_on = match waiting.doing {
            Doing::Sleeping => true,
            Doing::Watching => !waiting.arrivals.is_empty(),
            Doing::Until { addr, until } => {
                let word = waiting.memory.word(addr);
                word.is_none_or(|word| until.holds(word.cast_signed()))
            }
            _ => false,
        };
        if goes_on {
            self.end(pe, self.now + cost, Answer::Done);
        }
    }

    /// The cost of the software's part of a transfer to or from `addr`.
    fn start_of(&self, addr: Addr, len: usize) -> Time {
        let whole = addr.0.is_multiple_of(8) && len.is_multiple_of(8);
        let extra = if whole {
            Time::ZERO
        } else {
            self.costs.partial_word
        };
        self.costs.start + extra
    }

    fn own(&self, pe: u32, addr: Addr, len: usize) -> Result<Vec<u8>, Refusal> {
        let found = self.pes[pe as usize].memory.bytes(addr, len);
        found.ok_or_else(|| self.nowhere(pe, addr, len))
    }

    fn write_own(&mut self, pe: u32, addr: Addr, data: &[u8]) -> Result<(), Refusal> {
        if self.pes[pe as usize].memory.write(addr, data) {
            return Ok(());
        }
        Err(self.nowhere(pe, addr, data.len()))
    }

    fn check_own(&self, pe: u32, addr: Addr, len: usize) -> Result<(), Refusal> {
        if self.pes[pe as usize].memory.contains(addr, len) {
            return Ok(());
        }
        Err(self.nowhere(pe, addr, len))
    }

    fn check_pe(&self, pe: u32) -> Result<(), Refusal> {
        if pe < self.pes() {
            return Ok(());
        }
        Err(Refusal::new(
            Reason::Pe,
            format!("there is no PE {pe}"),
            &format!("use PEs 0 to {}", self.pes() - 1),
        ))
    }

    fn check_remote(
        &self,
        pe: u32,
        addr: Addr,
        len: usize,
        stride: Option<Stride>,
    ) -> Result<(), Refusal> {
        self.check_pe(pe)?;
        let Some(reach) = reach(len, stride) else {
            return Err(Refusal::new(
                Reason::Argument,
                format!("{len} bytes cannot lie as {stride:?} says"),
                "use elements of 4 or 8 bytes that do not overlap",
            ));
        };
        self.check_own(pe, addr, reach)
    }

    #[cold]
    fn nowhere(&self, pe: u32, addr: Addr, len: usize) -> Refusal {
        Refusal::new(
            Reason::Address,
            format!(
                "PE {pe} has no {len} bytes at {addr} (its symmetric heap has {})",
                self.heap_size()
            ),
            "use addresses that an allocation gave, and stay inside of it",
        )
    }
}

fn check_aligned(addr: Addr) -> Result<(), Refusal> {
    if addr.0.is_multiple_of(8) {
        return Ok(());
    }
    Err(Refusal::new(
        Reason::Address,
        format!("{addr} is not aligned to a word of 8 bytes"),
        "use a multiple of 8",
    ))
}
