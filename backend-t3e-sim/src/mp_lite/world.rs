//! Programs of PEs on the model memory, and the conditions that must hold at their end.

use std::hash::{Hash, Hasher};

use portolan_core::matching::{Envelope, Pattern};

use super::header::{Form, Label};
use super::lite::{Lite, Mode, Outcome, Outgoing};
use super::model::{Chooser, Memory, Model, POOL, QUEUE, Rule, base};
use super::peer::Logged;
use super::place::Places;
use super::pool::Pool;
use super::stats::Stats;

/// A step of a PE's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Starts to send message number `.0` of `len` bytes with this tag.
    Send {
        to: u32,
        tag: u32,
        len: usize,
        mode: Mode,
    },
    /// Starts to receive.
    Recv {
        from: Option<u32>,
        tag: Option<u32>,
        room: usize,
    },
    /// Asks for the PE's receive number `.0` to be taken back.
    Cancel(usize),
    /// A round of waiting.
    Wait,
}

/// A receive of a program, and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Receipt {
    pattern: Pattern,
    /// The message that it got (its sender, its number there, its length), or that it was
    /// cancelled.
    outcome: Option<Result<(u32, u8, usize), ()>>,
}

/// PEs with their programs, and the memory between them.
#[derive(Clone)]
pub(super) struct World {
    memory: Memory,
    pes: Vec<Pe>,
}

#[derive(Clone)]
struct Pe {
    lite: Lite<Vec<u8>>,
    program: Vec<Act>,
    at: usize,
    /// The number of sends so far, and how many of them are over.
    sent: u8,
    over: u8,
    receipts: Vec<Receipt>,
    /// Numbers of the receives in the protocol.
    ids: Vec<u32>,
}

/// Tokens of sends; the token of a receive is its number.
const SEND: u64 = 1 << 32;

impl World {
    pub(super) fn new(programs: &[Vec<Act>], chooser: Chooser, broken: Option<Rule>) -> Self {
        let size = programs.len() as u32;
        let places = Places {
            base: 0,
            queue: QUEUE,
        };
        let pes = (0..).zip(programs).map(|(me, program)| {
            let mut lite = Lite::new(me, size, places, Pool::new(base(), POOL), POOL);
            lite.broken = broken;
            Pe {
                lite,
                program: program.clone(),
                at: 0,
                sent: 0,
                over: 0,
                receipts: Vec::new(),
                ids: Vec::new(),
            }
        });
        let fenced = broken != Some(Rule::Fence);
        Self {
            pes: pes.collect(),
            memory: Memory::new(size, fenced, chooser),
        }
    }

    /// The number of events that may happen next.
    pub(super) fn options(&self) -> usize {
        2 * self.pes.len()
    }

    /// Lets the `n`-th of the possible next events happen: a PE continues its program, or makes a
    /// round of waiting.
    pub(super) fn step(&mut self, n: usize) {
        let pes = self.pes.len();
        if n < pes {
            self.act(n);
        } else {
            self.wait(n - pes);
        }
    }

    /// Whether all programs have been carried out.
    pub(super) fn is_over(&self) -> bool {
        self.pes.iter().all(|pe| pe.at == pe.program.len())
    }

    /// Lets everything that was started come to its end: words arrive, and PEs wait and receive the
    /// messages that no receive has taken. Then the receives that still wait are taken back.
    pub(super) fn finish(&mut self) {
        self.calm_down();
        let pes = self.pes.len();
        for pe in 0..pes {
            let sent = self.messages_to(pe as u32).count();
            let received = |receipt: &&Receipt| matches!(receipt.outcome, Some(Ok(_)));
            let received = self.pes[pe].receipts.iter().filter(received).count();
            for _ in received..sent {
                self.extend(
                    pe,
                    Act::Recv {
                        from: None,
                        tag: None,
                        room: 64,
                    },
                );
            }
        }
        self.calm_down();
        for pe in 0..pes {
            for receive in 0..self.pes[pe].receipts.len() {
                self.extend(pe, Act::Cancel(receive));
            }
        }
        self.calm_down();
    }

    fn extend(&mut self, pe: usize, act: Act) {
        self.pes[pe].program.push(act);
        self.act(pe);
    }

    /// The messages that the programs send to a PE: sender, number there, tag.
    fn messages_to(&self, pe: u32) -> impl Iterator<Item = (u32, u8, u32)> {
        let senders = (0..).zip(&self.pes);
        senders.flat_map(move |(from, sender)| {
            let sends = sender.program.iter().filter_map(|act| match *act {
                Act::Send { to, tag, .. } => Some((to, tag)),
                _ => None,
            });
            let numbered = (0..).zip(sends).filter(move |(_, (to, _))| *to == pe);
            numbered.map(move |(number, (_, tag))| (from, number, tag))
        })
    }

    /// Lets everything arrive, and every PE make rounds of waiting, until nothing changes any more.
    fn calm_down(&mut self) {
        let mut calm = 0;
        while calm < 3 {
            calm = if self.memory.is_calm() { calm + 1 } else { 0 };
            self.memory.land_all();
            for pe in 0..self.pes.len() {
                self.wait(pe);
            }
        }
    }

    fn act(&mut self, n: usize) {
        let pe = &mut self.pes[n];
        let Some(&act) = pe.program.get(pe.at) else {
            return;
        };
        pe.at += 1;
        let mut wire = Model {
            memory: &mut self.memory,
            me: n as u32,
        };
        match act {
            Act::Send { to, tag, len, mode } => {
                let outgoing = Outgoing {
                    peer: to,
                    label: Label { context: 0, tag },
                    // The number of the message, even of one without bytes.
                    form: Form {
                        rep: 0,
                        signature: u32::from(pe.sent),
                    },
                    mode,
                    buffer: content(n as u32, pe.sent, len),
                    token: SEND | u64::from(pe.sent),
                };
                pe.sent += 1;
                pe.lite.asend(&mut wire, outgoing);
            }
            Act::Recv { from, tag, room } => {
                let pattern = Pattern {
                    context: 0,
                    source: from,
                    tag,
                };
                let token = pe.receipts.len() as u64;
                pe.receipts.push(Receipt {
                    pattern,
                    outcome: None,
                });
                let id = pe.lite.arecv(&mut wire, pattern, vec![0xee; room], token);
                pe.ids.push(id);
            }
            Act::Cancel(receive) => {
                if pe.receipts[receive].outcome.is_none() {
                    pe.lite.cancel_receive(&mut wire, pe.ids[receive]);
                }
            }
            Act::Wait => pe.lite.progress(&mut wire),
        }
        pe.collect();
    }

    fn wait(&mut self, n: usize) {
        let mut wire = Model {
            memory: &mut self.memory,
            me: n as u32,
        };
        self.pes[n].lite.progress(&mut wire);
        self.pes[n].collect();
    }

    /// Whether messages and receives were matched as MPI demands (4.1, section 3.5): each message
    /// once, and the earliest message of a sender with the earliest receive that matches it.
    pub(super) fn check_order(&self) -> Result<(), String> {
        for pe in 0..self.pes.len() {
            self.check_order_at(pe)
                .map_err(|what| format!("PE {pe}: {what}"))?;
        }
        Ok(())
    }

    fn check_order_at(&self, pe: usize) -> Result<(), String> {
        let receipts = &self.pes[pe].receipts;
        let cancels = self.pes[pe].program.iter().position(|act| {
            matches!(act, Act::Recv { room: 64, .. }) // the first receive that `finish` adds
        });
        let given_up = |receive: usize| {
            let own = &self.pes[pe].program[..cancels.unwrap_or(self.pes[pe].program.len())];
            own.contains(&Act::Cancel(receive))
        };
        for (from, number, tag) in self.messages_to(pe as u32) {
            let envelope = Envelope {
                context: 0,
                source: from,
                tag,
            };
            let got = |receipt: &Receipt| matches!(receipt.outcome, Some(Ok((f, n, _))) if (f, n) == (from, number));
            let takers: Vec<usize> = (0..receipts.len()).filter(|&r| got(&receipts[r])).collect();
            let [taker] = takers[..] else {
                return Err(format!(
                    "message {number} of PE {from} was received by {takers:?}"
                ));
            };
            for (r, receipt) in receipts.iter().enumerate() {
                if !receipt.pattern.matches(&envelope) {
                    continue;
                }
                match receipt.outcome {
                    // A later message of the same sender must not go to an earlier receive.
                    Some(Ok((f, later, _))) if f == from && later > number && r < taker => {
                        return Err(format!("message {later} of PE {from} overtook {number}"));
                    }
                    Some(Err(())) if r < taker && !given_up(r) => {
                        return Err(format!("receive {r} was passed over by message {number}"));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// The sum of all PEs' counts: a count above 0 means that the thing happened.
    pub(super) fn stats(&self) -> Stats {
        let mut all = Stats::default();
        for pe in &self.pes {
            all.add(&pe.lite.stats());
        }
        all
    }

    /// Checks the state once everything has come to rest, and returns what is wrong.
    pub(super) fn check_rest(&self) -> Result<(), String> {
        for (n, pe) in self.pes.iter().enumerate() {
            if pe.over != pe.sent {
                return Err(format!("PE {n}: {} of {} sends are over", pe.over, pe.sent));
            }
            if let Some(lost) = pe.receipts.iter().position(|r| r.outcome.is_none()) {
                return Err(format!("PE {n}: receive {lost} waits for ever"));
            }
            pe.lite
                .check_empty()
                .map_err(|what| format!("PE {n}: {what}"))?;
        }
        Ok(())
    }

    /// Hashes everything that the future depends on.
    pub(super) fn digest(&self, hasher: &mut impl Hasher) {
        self.memory.digest(hasher);
        for pe in &self.pes {
            (pe.at, pe.sent, pe.over, &pe.ids).hash(hasher);
            for receipt in &pe.receipts {
                receipt.outcome.hash(hasher);
            }
            pe.lite.digest(hasher);
        }
    }
}

impl Pe {
    fn collect(&mut self) {
        while let Some(done) = self.lite.next_done() {
            if done.token & SEND != 0 {
                self.over += 1;
                continue;
            }
            let receipt = &mut self.receipts[done.token as usize];
            assert!(receipt.outcome.is_none(), "a receive is over twice");
            receipt.outcome = Some(match done.outcome {
                Outcome::Received(arrival) => {
                    let len = arrival.len as usize;
                    let here = &done.buffer[..len.min(done.buffer.len())];
                    let number = arrival.signature as u8;
                    let sent = content(arrival.peer, number, len);
                    assert_eq!(here, &sent[..here.len()], "damaged, or of another message");
                    Ok((arrival.peer, number, len))
                }
                _ => {
                    assert!(done.buffer.iter().all(|&byte| byte == 0xee), "written to");
                    Err(())
                }
            });
        }
    }
}

/// The bytes of a message; each identifies its message.
fn content(from: u32, number: u8, len: usize) -> Vec<u8> {
    let first = number.wrapping_mul(8) ^ from as u8;
    (0..len as u8).map(|n| first ^ n.wrapping_mul(37)).collect()
}

impl Lite<Vec<u8>> {
    /// Checks that nothing is left in any queue, log or buffer.
    fn check_empty(&self) -> Result<(), String> {
        let mut left = Vec::new();
        let mut note = |what: &str, count: usize| {
            if count != 0 {
                left.push(format!("{count} {what}"));
            }
        };
        note("bytes of buffers", self.pool.used() as usize);
        note("bytes counted as buffered", self.buffered_now as usize);
        note("sends", self.sends.len());
        note("receives", self.receives.len());
        note("posted", self.posted.len());
        note("receives apart", self.apart.len());
        note("spilled messages", self.spilled.len());
        note("starved receives", self.starved.len());
        note("busy peers", self.busy.len());
        for state in self.peers.values() {
            note("headers in smsg", state.smsg.len() as usize);
            note("headers in rmsg", state.rmsg.len() as usize);
            note("pending sends", state.pending.len());
            let owed = state.owed.len() + state.replies.len() + state.takes.len();
            note("headers owed", owed);
            let announced = |entry: &&Logged| matches!(entry, Logged::Announced { .. });
            note(
                "announced messages",
                state.log.iter().filter(announced).count(),
            );
            note("preposts", state.preposts as usize);
            let buffered = state.log.iter().filter(|entry| entry.buffer().is_some());
            note("buffered messages in the log", buffered.count());
            // Small messages are cleared by headers that come back, at the latest when the queue
            // has gone round once.
            note(
                "small messages in the log, too many",
                state.log.len() / (QUEUE as usize + 1),
            );
        }
        if left.is_empty() {
            Ok(())
        } else {
            Err(left.join(", "))
        }
    }

    fn digest(&self, hasher: &mut impl Hasher) {
        (
            &self.peers,
            &self.pool,
            &self.apart,
            &self.busy,
            self.buffered_now,
        )
            .hash(hasher);
        for (_, _, message) in self.spilled.iter() {
            message.hash(hasher);
        }
        for (_, pattern, id) in self.posted.iter() {
            (pattern, id).hash(hasher);
        }
        for (id, op) in self.receives.iter() {
            (id, op.token, op.stage, op.posted.is_some()).hash(hasher);
        }
        for (id, send) in self.sends.iter() {
            (id, send.token).hash(hasher);
        }
    }
}
