//! Running the machine: it takes calls, and says which PE runs next.

use super::call::{Answer, Call, Reason, Refusal, Reply};
use super::costs::Costs;
use super::event::{Event, Events, Kind};
use super::heap::Heap;
use super::memory::Memory;
use super::network::Network;
use super::pe::{Doing, Pe};
use super::report;
use super::rng::Rng;
use super::setup::Setup;
use super::time::Time;

/// A T3E: a pure state machine.
///
/// At the start every PE's program runs. Each hands its calls to [`submit`](Self::submit) and
/// waits. When none [runs](Self::running), [`advance`](Self::advance) lets virtual time pass until
/// the call of one PE ends, and says which PE that is. Only that PE's program runs then. So the
/// order of everything follows from virtual time and the seed alone.
///
/// ```
/// use portolan_t3e_sim::machine::{Call, Machine, Next, Setup};
///
/// let mut machine = Machine::new(Setup::new(1)?);
/// machine.submit(0, Default::default(), Call::Now);
/// let Next::Resume(pe, reply) = machine.advance() else { panic!("a call ends") };
/// assert_eq!((pe, reply.clock.to_string()), (0, "0.100 µs".to_owned()));
/// # Ok::<(), portolan_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Machine {
    pub(super) costs: Costs,
    pub(super) network: Network,
    pub(super) pes: Vec<Pe>,
    pub(super) events: Events,
    pub(super) heap: Heap,
    /// Number of PEs in [`Doing::Meeting`]; `met_at` is the moment at which the last of them came.
    pub(super) met: usize,
    pub(super) met_at: Time,
    pub(super) failures: u32,
    /// Delays of words, on a machine that does not keep them in order.
    pub(super) reorder: Option<(Rng, Time)>,
    /// The moment of the last event that was handled.
    pub(super) now: Time,
    slowness: Vec<f64>,
    running: usize,
    present: usize,
    stopped: Option<Refusal>,
}

/// What happens next.
#[derive(Debug)]
pub enum Next {
    /// The call of this PE has ended: its program runs.
    Resume(u32, Reply),
    /// No PE is left.
    Finished,
    /// All PEs that are left wait, and no event is going to happen; the text says which PE waits
    /// for what. The driver then declares a PE [failed](Machine::declare_failed), or
    /// [stops](Machine::stop) the machine.
    Deadlock(String),
    /// The machine has stopped: every call that has not ended fails with this.
    Stopped(Refusal),
}

impl Machine {
    /// Makes a machine at time 0.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let Setup {
            pes,
            torus,
            costs,
            heap,
            statics,
            arena,
            seed,
            delay,
            slow_pes,
            slow_links,
        } = setup;
        let adaptive = seed.map(Rng::new);
        let mut network = Network::new(torus, &costs, adaptive);
        for (node, direction, factor) in slow_links {
            network.slow_down(node, direction, factor);
        }
        let mut slowness = vec![1.0; pes as usize];
        for (pe, factor) in slow_pes {
            slowness[pe as usize] = factor;
        }
        let heap = Heap::new(statics, heap);
        let memory = || Memory::new(heap.size(), arena);
        Self {
            network,
            pes: (0..pes).map(|_| Pe::new(memory())).collect(),
            events: Events::default(),
            costs,
            met: 0,
            met_at: Time::ZERO,
            failures: 0,
            // A stream of its own, so that delays do not follow the choices of channels.
            reorder: seed.map(|seed| (Rng::new(!seed), delay)),
            now: Time::ZERO,
            slowness,
            running: pes as usize,
            present: pes as usize,
            stopped: None,
            heap,
        }
    }

    /// The number of PEs.
    #[must_use]
    pub fn pes(&self) -> u32 {
        self.pes.len() as u32
    }

    /// The costs of the machine's steps.
    #[must_use]
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Bytes of symmetric memory of each PE: static data and heap.
    #[must_use]
    pub fn heap_size(&self) -> usize {
        self.heap.size()
    }

    /// The factor by which the processor of a PE is slower than it should be.
    #[must_use]
    pub fn slowness(&self, pe: u32) -> f64 {
        self.slowness[pe as usize]
    }

    /// The number of PEs whose programs run on the host. While any of them runs, virtual time
    /// stands still.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running
    }

    /// The PEs whose programs run on the host.
    pub fn runners(&self) -> impl Iterator<Item = u32> {
        let runs = |(_, pe): &(usize, &Pe)| matches!(pe.doing, Doing::Running);
        self.pes
            .iter()
            .enumerate()
            .filter(runs)
            .map(|(n, _)| n as u32)
    }

    /// The clock of a PE: of its last event.
    #[must_use]
    pub fn clock(&self, pe: u32) -> Time {
        self.pes[pe as usize].clock
    }

    /// The number of events so far, which measures what the emulation costs the host.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events.added()
    }

    /// Why the machine has stopped, if it has.
    #[must_use]
    pub fn stopped(&self) -> Option<&Refusal> {
        self.stopped.as_ref()
    }

    /// Stops the machine: every later call fails.
    pub fn stop(&mut self, why: String, remedy: &str) {
        let refusal = Refusal::new(Reason::Aborted, why, remedy);
        self.stopped.get_or_insert(refusal);
    }

    /// Holds a PE to be failed from now on: it has said so itself, or its driver has seen it die.
    ///
    /// # Panics
    /// If there is no such PE.
    pub fn declare_failed(&mut self, pe: u32, why: &str) {
        self.declare(pe, why.to_owned());
    }

    /// Takes a call of a PE, made `computing` after the end of its last one. The PE's program no
    /// longer runs.
    ///
    /// # Panics
    /// If there is no such PE or its program does not run, which is a mistake of the driver.
    pub fn submit(&mut self, pe: u32, computing: Time, call: Call) {
        let caller = &mut self.pes[pe as usize];
        assert!(
            matches!(caller.doing, Doing::Running),
            "PE {pe} calls and does not run"
        );
        caller.clock += computing;
        caller.doing = Doing::Starting(call);
        self.running -= 1;
        self.events.add(caller.clock, pe, Kind::Start);
    }

    /// Lets time pass until a call ends.
    ///
    /// # Panics
    /// If a PE's program still runs, which is a mistake of the driver.
    pub fn advance(&mut self) -> Next {
        assert_eq!(self.running, 0, "time stands still while a program runs");
        loop {
            if let Some(refusal) = &self.stopped {
                return Next::Stopped(refusal.clone());
            }
            let Some(event) = self.events.next() else {
                if self.present == 0 {
                    return Next::Finished;
                }
                return Next::Deadlock(report::deadlock(&self.pes, self.now));
            };
            debug_assert!(event.at >= self.now, "time runs backwards");
            self.now = event.at;
            if let Kind::Resume = event.kind {
                return self.resume(event.pe);
            }
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        let Event { pe, kind, .. } = event;
        match kind {
            Kind::Land {
                from,
                addr,
                data,
                stride,
            } => self.land(pe, from, addr, &data, stride),
            Kind::Queue { from, addr, op } => self.queue_atomic(pe, from, addr, op),
            Kind::Operate { from, addr, op } => self.operate(pe, from, addr, op),
            Kind::Read {
                from,
                addr,
                len,
                stride,
                offset,
            } => self.read(pe, from, addr, len, stride, offset),
            Kind::Arrive { offset, data } => self.arrive(pe, offset, &data),
            Kind::Answer { word } => self.end(pe, self.now, Answer::Word(word)),
            Kind::Issue => self.issue(pe),
            Kind::Start => self.start(pe),
            Kind::Deadline { sleep } => self.deadline(pe, sleep),
            Kind::Resume => unreachable!("`advance` handles it"),
        }
    }

    fn resume(&mut self, pe: u32) -> Next {
        let (failures, now) = (self.failures, self.now);
        let resumed = &mut self.pes[pe as usize];
        resumed.clock = now;
        let arrivals = std::mem::take(&mut resumed.arrivals);
        let (changes, doing) = (resumed.changes, &mut resumed.doing);
        let answer = match std::mem::replace(doing, Doing::Running) {
            Doing::Ending(answer) => {
                self.running += 1;
                answer
            }
            left => {
                *doing = left;
                self.present -= 1;
                Answer::Done
            }
        };
        let reply = Reply {
            clock: now,
            changes,
            failures,
            arrivals,
            answer,
        };
        Next::Resume(pe, reply)
    }

    /// Lets the call of a PE end at `at`.
    pub(super) fn end(&mut self, pe: u32, at: Time, answer: Answer) {
        self.pes[pe as usize].doing = Doing::Ending(answer);
        self.events.add(at, pe, Kind::Resume);
    }

    pub(super) fn refuse(&mut self, pe: u32, refusal: Refusal) {
        let at = self.now + self.costs.emulation;
        self.end(pe, at, Answer::Refused(refusal));
    }
}
