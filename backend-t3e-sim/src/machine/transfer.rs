//! Transfers: pieces of puts and gets on their way, and atomic operations.

use super::address::Addr;
use super::call::{Answer, Atomic, Call, Stride};
use super::event::{Kind, Piece};
use super::memory::reach;
use super::pe::Doing;
use super::run::Machine;
use super::time::Time;

/// Most bytes that are issued together: transfers share the links piece by piece.
const PIECE: usize = 512;

/// On a machine that reorders, puts of at most this many bytes are torn into words.
const TORN: usize = 64;

impl Machine {
    /// Lets a PE issue the next piece of its transfer.
    pub(super) fn issue(&mut self, pe: u32) {
        match self.pes[pe as usize].doing {
            Doing::Putting(_) => self.issue_put(pe),
            Doing::Getting(_) => self.issue_get(pe),
            ref other => unreachable!("PE {pe} issues nothing: {other:?}"),
        }
    }

    fn issue_put(&mut self, pe: u32) {
        let (now, most) = (self.now, self.piece());
        let issuing = &mut self.pes[pe as usize];
        let Doing::Putting(put) = &mut issuing.doing else {
            return;
        };
        let len = most.min(put.data.len() - put.issued);
        let words = len.div_ceil(8);
        let room = issuing.registers.room(now, words, self.costs.registers);
        if room > now {
            self.events.add(room, pe, Kind::Issue);
            return;
        }
        let (to, stride) = (put.to, put.stride);
        let addr = put.addr + offset(put.issued, stride);
        let data = Piece {
            all: put.data.clone(),
            range: put.issued..put.issued + len,
        };
        put.issued += len;
        let last = put.issued == put.data.len();
        let then = put.then;

        let ready = now + self.costs.registers_take(len, stride.is_some());
        let arrives = self.network.carry(pe, to, ready, len);
        let landed = self.send_off(pe, to, arrives, addr, data, stride);
        let acknowledged = landed + self.network.acknowledge(to, pe);
        self.pes[pe as usize].registers.hold(words, acknowledged);
        if last {
            self.put_is_issued(pe, to, ready, then);
        } else {
            self.events.add(ready, pe, Kind::Issue);
        }
    }

    /// Handles a put that is in the E-registers as a whole at `ready`: the put ends, or continues
    /// as a quiet and a put of a word would.
    pub(super) fn put_is_issued(
        &mut self,
        pe: u32,
        to: u32,
        ready: Time,
        then: Option<(Addr, u64)>,
    ) {
        let Some((addr, word)) = then else {
            self.end(pe, ready, Answer::Done);
            return;
        };
        let issuing = &mut self.pes[pe as usize];
        issuing.doing = Doing::Starting(Call::Put {
            pe: to,
            addr,
            data: word.to_le_bytes().to_vec(),
            stride: None,
        });
        let quiet = issuing.registers.all_free(ready);
        self.events.add(quiet, pe, Kind::Start);
    }

    /// Sends a piece to its target, whole or torn. Returns when all of it will have landed.
    fn send_off(
        &mut self,
        from: u32,
        to: u32,
        arrives: Time,
        addr: Addr,
        data: Piece,
        stride: Option<Stride>,
    ) -> Time {
        let Some((rng, delay)) = &mut self.reorder else {
            let land = Kind::Land {
                from,
                addr,
                data,
                stride,
            };
            self.events.add(arrives, to, land);
            return arrives;
        };
        let mut latest = arrives;
        for (addr, data) in torn(addr, data, stride) {
            let at = arrives + Time::from_ps(rng.below(delay.as_ps() + 1));
            latest = latest.max(at);
            let land = Kind::Land {
                from,
                addr,
                data,
                stride,
            };
            self.events.add(at, to, land);
        }
        latest
    }

    pub(super) fn land(
        &mut self,
        pe: u32,
        from: u32,
        addr: Addr,
        data: &Piece,
        stride: Option<Stride>,
    ) {
        let target = &mut self.pes[pe as usize];
        if !target.memory.land(addr, data.bytes(), stride) {
            let len = data.bytes().len();
            let now = self.now;
            self.stop(
                format!(
                    "{len} bytes from PE {from} reached PE {pe} at {now}, for memory at {addr} that \
                     was freed while they were under way"
                ),
                "free memory when the sender has said that its writes are complete",
            );
            return;
        }
        // A PE's puts to itself count, too: they land after it has looked.
        let reach = reach(data.bytes().len(), stride).unwrap_or_default();
        target.changed(addr, reach);
        self.wake(pe, self.costs.poll);
    }

    fn issue_get(&mut self, pe: u32) {
        let (now, most) = (self.now, self.piece());
        let issuing = &mut self.pes[pe as usize];
        let Doing::Getting(get) = &mut issuing.doing else {
            return;
        };
        let len = most.min(get.data.len() - get.issued);
        let words = len.div_ceil(8);
        let held = (get.issued - get.arrived).div_ceil(8);
        if held > 0 && held + words > self.costs.registers {
            // The next piece that arrives makes room for this one.
            get.held_up = true;
            return;
        }
        let room = issuing
            .registers
            .room(now, words + held, self.costs.registers);
        if room > now {
            self.events.add(room, pe, Kind::Issue);
            return;
        }
        let (on, stride, start) = (get.from, get.stride, get.issued);
        let addr = get.addr + offset(start, stride);
        get.issued += len;
        let more = get.issued < get.data.len();

        // The request is a packet of one word; the bytes come back through as many registers.
        let at = self.network.carry(pe, on, now, 8);
        let read = Kind::Read {
            from: pe,
            addr,
            len,
            stride,
            offset: start,
        };
        self.events.add(at, on, read);
        if more {
            let next = now + self.costs.registers_take(len, stride.is_some());
            self.events.add(next, pe, Kind::Issue);
        }
    }

    /// Reads memory of `pe` for a get of `from`.
    pub(super) fn read(
        &mut self,
        pe: u32,
        from: u32,
        addr: Addr,
        len: usize,
        stride: Option<Stride>,
        offset: usize,
    ) {
        let Some(data) = self.pes[pe as usize].memory.gather(addr, len, stride) else {
            let now = self.now;
            self.stop(
                format!(
                    "PE {from} reads {len} bytes of PE {pe} at {now}, from memory at {addr} that was \
                     freed while the request was under way"
                ),
                "free memory when its reader has said that it is done",
            );
            return;
        };
        let ready = self.now + self.costs.registers_take(len, stride.is_some());
        let at = self.network.carry(pe, from, ready, len);
        self.events.add(at, from, Kind::Arrive { offset, data });
    }

    pub(super) fn arrive(&mut self, pe: u32, offset: usize, data: &[u8]) {
        let Doing::Getting(get) = &mut self.pes[pe as usize].doing else {
            unreachable!("PE {pe} gets nothing")
        };
        get.data[offset..offset + data.len()].copy_from_slice(data);
        get.arrived += data.len();
        if get.arrived == get.data.len() {
            let bytes = std::mem::take(&mut get.data);
            self.end(pe, self.now, Answer::Bytes(bytes));
        } else if std::mem::take(&mut get.held_up) {
            self.events.add(self.now, pe, Kind::Issue);
        }
    }

    /// Queues an atomic operation at the memory of `pe`, which does one after the other.
    pub(super) fn queue_atomic(&mut self, pe: u32, from: u32, addr: Addr, op: Atomic) {
        let memory = &mut self.pes[pe as usize];
        let done = self.now.max(memory.atomics_done) + self.costs.atomic;
        memory.atomics_done = done;
        self.events.add(done, pe, Kind::Operate { from, addr, op });
    }

    pub(super) fn operate(&mut self, pe: u32, from: u32, addr: Addr, op: Atomic) {
        let target = &mut self.pes[pe as usize];
        let Some(old) = target.memory.word(addr) else {
            let now = self.now;
            self.stop(
                format!(
                    "an atomic operation of PE {from} reached PE {pe} at {now}, for a word at {addr} \
                     that was freed while it was under way"
                ),
                "free memory when nobody uses it any more",
            );
            return;
        };
        target.memory.write(addr, &op.apply(old).to_le_bytes());
        target.changed(addr, 8);
        self.wake(pe, self.costs.poll);
        let at = self.network.carry(pe, from, self.now, 8);
        self.events.add(at, from, Kind::Answer { word: old });
    }

    /// Bytes of a piece, which are no more than fit into the registers.
    fn piece(&self) -> usize {
        PIECE.min(self.costs.registers.max(1) * 8)
    }
}

/// Offset in memory, from the start of a transfer, of its byte `done`.
fn offset(done: usize, stride: Option<Stride>) -> usize {
    stride.map_or(done, |Stride { element, step }| done / element * step)
}

/// The parts in which a put lands: a small put in words, as they are aligned at the target, a
/// larger one in one part.
fn torn(addr: Addr, data: Piece, stride: Option<Stride>) -> Vec<(Addr, Piece)> {
    if data.range.len() > TORN || stride.is_some() {
        return vec![(addr, data)];
    }
    let mut parts = Vec::with_capacity(TORN / 8 + 1);
    let mut at = 0;
    while at < data.range.len() {
        let place = addr + at;
        let len = (8 - place.0 as usize % 8).min(data.range.len() - at);
        let start = data.range.start + at;
        let part = Piece {
            all: data.all.clone(),
            range: start..start + len,
        };
        parts.push((place, part));
        at += len;
    }
    parts
}
