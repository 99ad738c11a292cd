//! A transport of one's own, which a crate outside of Portolan can have as well: queues between the
//! threads of one process. `Engine` makes a device of it, and `World::from_device` a world. The
//! ranks then compute a sum that goes around a ring.
//!
//! It has what a transport must have, and none of the extras. `portolan_core::transport` is the
//! contract; `core/src/transport/memory.rs` does the same with every extra, and the crate
//! `portolan-conformance` tests a transport over which it is run.
//!
//! ```text
//! target/release/own_transport
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use portolan::{Result, Settings, Single, World};
use portolan_core::Engine;
use portolan_core::transport::{
    Bell, Header, Limits, Payload, Sent, Sink, Transport, TransportCaps,
};

/// Packets that may be under way between two ranks, in each direction.
const ROOM: usize = 64;

fn main() -> ExitCode {
    match job(4) {
        Ok(sum) => {
            println!("the sum of 4 ranks is {sum}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a job of `n` threads; returns the sum of their numbers.
pub(crate) fn job(n: u32) -> Result<u64> {
    let settings = Settings::from_env()?;
    let rank = |transport| rank(transport, &settings);
    let sums: Result<Vec<u64>> = thread::scope(|scope| {
        let ranks = network(n).into_iter();
        let ranks: Vec<_> = ranks.map(|mine| scope.spawn(|| rank(mine))).collect();
        let ended = ranks.into_iter().map(|rank| rank.join().expect("no panic"));
        ended.collect()
    });
    Ok(sums?[0])
}

/// What each rank does. Nothing below the second line depends on the transport.
fn rank(transport: Queues, settings: &Settings) -> Result<u64> {
    let device = Engine::<_, Single>::new(transport, settings)?;
    // SAFETY: no other code uses the device, and the level is `Single`.
    let world = unsafe { World::<Single, _>::from_device(device, settings) }?;
    let comm = world.comm();
    let (me, n) = (comm.rank(), comm.size());
    let mine = vec![u64::from(me); 10_000];
    let mut sum = mine.clone();
    let mut passing = mine;
    for _ in 1..n {
        let incoming = comm.irecv_owned(vec![0; passing.len()], (me + n - 1) % n, 7)?;
        comm.isend_owned(passing, (me + 1) % n, 7)?.wait()?;
        passing = incoming.wait()?.buf;
        sum.iter_mut()
            .zip(&passing)
            .for_each(|(sum, next)| *sum += next);
    }
    assert!(
        sum.iter().all(|&value| value == sum[0]),
        "damaged on the way"
    );
    world.finalize()?;
    Ok(sum[0])
}

/// Packets on their way from one rank to another.
type Queue = Mutex<VecDeque<(Header, Vec<u8>)>>;

/// What the ranks share.
struct Network {
    size: u32,
    /// Packets from rank to rank; see [`Network::queue`].
    queues: Vec<Queue>,
    left: Vec<AtomicBool>,
    failed: Mutex<Vec<Option<String>>>,
    failures: AtomicU32,
}

impl Network {
    fn queue(&self, from: u32, to: u32) -> &Queue {
        &self.queues[(from * self.size + to) as usize]
    }
}

/// One rank of the network.
struct Queues {
    network: Arc<Network>,
    rank: u32,
}

fn network(size: u32) -> Vec<Queues> {
    let network = Arc::new(Network {
        size,
        queues: (0..size * size).map(|_| Mutex::default()).collect(),
        left: (0..size).map(|_| AtomicBool::new(false)).collect(),
        failed: Mutex::new(vec![None; size as usize]),
        failures: AtomicU32::new(0),
    });
    let rank = |rank| Queues {
        network: Arc::clone(&network),
        rank,
    };
    (0..size).map(rank).collect()
}

// SAFETY: packets are vectors, which `fill` is given room in and polls hand out as slices. No
// memory of the program is kept after a call.
unsafe impl Transport for Queues {
    fn name(&self) -> &'static str {
        "queues"
    }

    fn caps(&self) -> TransportCaps {
        TransportCaps::empty()
    }

    fn limits(&self) -> Limits {
        Limits {
            short: 192,
            bulk: 16 << 10,
            eager: 4 << 10,
            piece: 16 << 10,
            bundle: 0,
            grows: 0,
        }
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.network.size
    }

    fn node_of(&self, _peer: u32) -> u32 {
        0
    }

    fn node_name(&self) -> String {
        "here".to_owned()
    }

    unsafe fn send_short(
        &mut self,
        peer: u32,
        header: &Header,
        data: *const u8,
        len: usize,
    ) -> Sent {
        // SAFETY: the caller's promise, passed on; nothing is read if `len` is 0.
        unsafe {
            self.send_bulk(peer, header, len, |place| {
                if len > 0 {
                    std::ptr::copy_nonoverlapping(data, place, len);
                }
            })
        }
    }

    unsafe fn send_bulk<F: FnOnce(*mut u8)>(
        &mut self,
        peer: u32,
        header: &Header,
        len: usize,
        fill: F,
    ) -> Sent {
        if self.has_left(peer) || self.failure_of(peer).is_some() {
            return Sent::Gone;
        }
        let mut queue = self
            .network
            .queue(self.rank, peer)
            .lock()
            .expect("no panic");
        if queue.len() == ROOM {
            return Sent::Full;
        }
        // A transport for use would keep these vectors: the path of a packet should not allocate.
        let mut bytes = Vec::with_capacity(len);
        fill(bytes.as_mut_ptr());
        // SAFETY: there is room for `len` bytes, and `fill` has written all of them.
        unsafe { bytes.set_len(len) };
        queue.push_back((*header, bytes));
        Sent::Done
    }

    fn poll<S: Sink>(&mut self, sink: &mut S) -> usize {
        let mut packets = 0;
        for peer in (0..self.network.size).filter(|&peer| peer != self.rank) {
            let queue = self.network.queue(peer, self.rank);
            // At most as many as there is room for, so that the poll ends.
            for _ in 0..ROOM {
                let is_empty = queue.lock().expect("no panic").is_empty();
                if is_empty || !sink.accepts(peer) {
                    break;
                }
                // The lock is not held while the sink runs.
                let next = queue.lock().expect("no panic").pop_front();
                let Some((header, bytes)) = next else { break };
                sink.packet(peer, &header, Payload::from_slice(&bytes));
                packets += 1;
            }
        }
        packets
    }

    fn bell(&self) -> Arc<dyn Bell> {
        Arc::new(Silent)
    }

    fn arm(&mut self) {}

    fn disarm(&mut self) {}

    fn failures(&self) -> u32 {
        // Relaxed: the reason is read under the mutex.
        self.network.failures.load(Ordering::Relaxed)
    }

    fn failure_of(&self, peer: u32) -> Option<String> {
        self.network.failed.lock().expect("no panic")[peer as usize].clone()
    }

    fn has_left(&mut self, peer: u32) -> bool {
        // Acquire: pairs with the Release store in `drop`. What the peer had sent is in its queue.
        self.network.left[peer as usize].load(Ordering::Acquire)
    }

    fn declare_failed(&mut self, peer: u32, why: &str) {
        let mut failed = self.network.failed.lock().expect("no panic");
        failed[peer as usize].get_or_insert_with(|| why.to_owned());
        // Relaxed: see `failures`.
        self.network.failures.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        if thread::panicking() {
            // Otherwise the other ranks would wait for something that never comes.
            self.declare_failed(self.rank, "it panicked");
        } else {
            // Release: pairs with the Acquire load in `has_left`.
            self.network.left[self.rank as usize].store(true, Ordering::Release);
        }
    }
}

/// The bell of a transport that wakes nobody (it has no `TransportCaps::SLEEP`): a rank that would
/// sleep looks again soon.
struct Silent;

impl Bell for Silent {
    fn seen(&self) -> u32 {
        0
    }

    fn sleep(&self, _seen: u32, limit: Option<Duration>) {
        let short = Duration::from_micros(100);
        thread::sleep(limit.unwrap_or(short).min(short));
    }

    fn ring(&self) {}
}
