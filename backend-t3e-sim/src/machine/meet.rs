//! What concerns all PEs: the barrier network, symmetric memory, failing and leaving.

use super::address::Addr;
use super::call::{Answer, Reason, Refusal};
use super::pe::{Doing, Meeting, Pe};
use super::report::list;
use super::run::Machine;

impl Machine {
    /// Lets a PE enter the barrier network, for an operation of all PEs.
    pub(super) fn meet(&mut self, pe: u32, meeting: Meeting) {
        if let Some(absent) = self.absent() {
            self.refuse(pe, absent);
            return;
        }
        self.pes[pe as usize].doing = Doing::Meeting(meeting);
        self.met += 1;
        self.met_at = self.now;
        if self.met == self.pes.len() {
            self.met = 0;
            self.all_met();
        }
    }

    fn all_met(&mut self) {
        let depth = u64::from(self.network.torus().diameter()) * 2;
        let at = self.met_at + self.costs.barrier + self.costs.hop * depth;
        let answer = match self.agreed() {
            Ok(Meeting::Barrier) => Answer::Done,
            Ok(Meeting::Allocate(len)) => self.allocate(len),
            Ok(Meeting::Free(addr)) => self.free(addr),
            Err(refusal) => Answer::Refused(refusal),
        };
        for pe in 0..self.pes() {
            self.end(pe, at, answer.clone());
        }
    }

    /// The operation that all PEs want, if it is the same.
    fn agreed(&self) -> Result<Meeting, Refusal> {
        let wants = |pe: &Pe| match &pe.doing {
            Doing::Meeting(meeting) => meeting.clone(),
            other => unreachable!("all PEs have met, one is {other:?}"),
        };
        let first = wants(&self.pes[0]);
        if self.pes.iter().all(|pe| wants(pe) == first) {
            return Ok(first);
        }
        let mut groups: Vec<(Meeting, Vec<u32>)> = Vec::new();
        for (number, pe) in (0..).zip(&self.pes) {
            let meeting = wants(pe);
            match groups.iter_mut().find(|(known, _)| *known == meeting) {
                Some((_, pes)) => pes.push(number),
                None => groups.push((meeting, vec![number])),
            }
        }
        let all: Vec<_> = groups
            .iter()
            .take(8)
            .map(|(meeting, pes)| format!("{}: {meeting}", list(pes)))
            .collect();
        Err(Refusal::new(
            Reason::Argument,
            format!(
                "at {}, the PEs do not do the same together: {}",
                self.now,
                all.join("; ")
            ),
            "allocate and free symmetric memory on all PEs, in one order, with equal sizes",
        ))
    }

    fn allocate(&mut self, len: usize) -> Answer {
        match self.heap.allocate(len) {
            Ok(offset) => Answer::At(Addr(offset as u64)),
            Err(left) => Answer::Refused(Refusal::new(
                Reason::Exhausted,
                format!(
                    "{len} bytes do not fit into the symmetric heap of every PE: {left} of {} bytes \
                     are free",
                    self.heap.size()
                ),
                "raise PORTOLAN_T3E_HEAP, or free symmetric memory",
            )),
        }
    }

    fn free(&mut self, addr: Addr) -> Answer {
        let freed = addr.is_symmetric() && self.heap.free(addr.0 as usize);
        if freed {
            return Answer::Done;
        }
        Answer::Refused(Refusal::new(
            Reason::Address,
            format!("no symmetric memory was allocated at {addr}"),
            "free each allocation once, by the address that it gave",
        ))
    }

    /// Lets a PE leave for good.
    pub(super) fn leave(&mut self, pe: u32) {
        self.pes[pe as usize].doing = Doing::Left;
        self.events.add(self.now, pe, super::event::Kind::Resume);
        self.dismiss();
    }

    /// Holds a PE to be failed from now on.
    pub(super) fn declare(&mut self, pe: u32, why: String) {
        let failed = &mut self.pes[pe as usize].failed;
        if failed.is_some() {
            return;
        }
        *failed = Some(why);
        self.failures += 1;
        for pe in 0..self.pes() {
            if self.pes[pe as usize].doing.sleeps() {
                self.end(pe, self.now + self.costs.poll, Answer::Done);
            }
        }
        self.dismiss();
    }

    /// Ends the waits of PEs that wait in the barrier network for a PE that will not come.
    fn dismiss(&mut self) {
        let Some(absent) = self.absent() else {
            return;
        };
        for pe in 0..self.pes() {
            if matches!(self.pes[pe as usize].doing, Doing::Meeting(_)) {
                self.refuse(pe, absent.clone());
            }
        }
        self.met = 0;
    }

    /// Why not all PEs can meet, if they cannot.
    fn absent(&self) -> Option<Refusal> {
        let mut pes = (0..).zip(&self.pes);
        let (number, how) = pes.find_map(|(number, pe)| match (&pe.failed, &pe.doing) {
            (Some(why), _) => Some((number, format!("has failed: {why}"))),
            (None, Doing::Left) => Some((number, format!("has left at {}", pe.clock))),
            _ => None,
        })?;
        let number: u32 = number;
        Some(Refusal::new(
            Reason::PeerFailed,
            format!("not all PEs can meet at {}: PE {number} {how}", self.now),
            "have every PE make the same collective calls before it ends",
        ))
    }
}
