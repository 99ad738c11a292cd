//! On the emulated T3E, processes have exactly the virtual times that threads have.

// Ranks talk to the tests through their output.
#![allow(clippy::print_stderr, clippy::print_stdout)]

mod common;
#[path = "common/rank.rs"]
mod rank;

use std::process::ExitCode;

use libtest_mimic::{Failed, Trial};
use portolan_core::config::Settings;
use portolan_core::device::RegionKey;
use portolan_core::matching::Pattern;
use portolan_core::{Adi, Device, ProcId, Result, SendArgs, job};
use portolan_t3e_sim::{T3e, device, open, run_owned};

/// Sizes around the thresholds that decide how a message travels: nothing, the header's 8 bytes, an
/// aligned word more, the longest packet of the machine, and lengths that fit no packet.
const SIZES: [usize; 7] = [0, 8, 9, 512, 1_000, 8_192, 100_001];

/// One machine that delivers in order, and two that reorder.
const SEEDS: [Option<u64>; 3] = [None, Some(5), Some(6)];

fn main() -> ExitCode {
    rank::main(play, || {
        let mut trials = Vec::new();
        for ranks in [2, 3, 4] {
            for seed in SEEDS {
                let name = match seed {
                    None => format!("{ranks}_processes_have_the_times_of_threads"),
                    Some(seed) => {
                        format!("{ranks}_processes_have_the_times_of_threads_seed_{seed}")
                    }
                };
                trials.push(Trial::test(name, move || same(ranks, seed)));
            }
        }
        trials.push(Trial::test("times_depend_on_the_seed", the_seed_is_seen));
        trials
    })
}

fn same(ranks: u32, seed: Option<u64>) -> Result<(), Failed> {
    assert_eq!(on_processes(ranks, seed), on_threads(ranks, seed)?);
    Ok(())
}

/// Different seeds give different times. Otherwise the comparison above would prove little.
fn the_seed_is_seen() -> Result<(), Failed> {
    for (one, other) in [(None, Some(5)), (Some(5), Some(6)), (Some(6), None)] {
        let (a, b) = (on_processes(4, one), on_threads(4, other)?);
        let differ = a.iter().zip(&b).filter(|(a, b)| a != b).count();
        assert!(
            a.len() == b.len() && 2 * differ > a.len(),
            "{differ} of {} lines differ between the seeds {one:?} and {other:?}",
            a.len()
        );
    }
    Ok(())
}

/// Runs a job of processes under the launcher. Returns the output of all ranks, sorted.
fn on_processes(ranks: u32, seed: Option<u64>) -> Vec<String> {
    let mut command = rank::command(&["--transport", "t3e-sim"], ranks, "exchange");
    if let Some(seed) = seed {
        command.env("PORTOLAN_T3E_SEED", seed.to_string());
    }
    let outcome = common::outcome(command, b"");
    let lines = outcome.expect_code(0).sorted().into_iter();
    lines.map(str::to_owned).collect()
}

fn play(_role: &str) -> ExitCode {
    match process() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// One rank of a job of processes.
fn process() -> Result<(), Box<dyn std::error::Error>> {
    let settings = Settings::from_env()?;
    if settings.transport() != Some("t3e-sim") {
        return Err("the launcher has not handed the transport on".into());
    }
    let mut bootstrap = job::from_environment(false)?;
    let config = device::config(bootstrap.size(), &settings)?;
    let pe = open(&mut *bootstrap, &config)?;
    let size = bootstrap.size();
    for line in exchange(T3e::new(pe, &settings, true)?, size)? {
        println!("{line}");
    }
    bootstrap.finalize()?;
    Ok(())
}

/// The same with threads as ranks.
fn on_threads(ranks: u32, seed: Option<u64>) -> Result<Vec<String>, Failed> {
    let mut settings = Settings::default();
    if let Some(seed) = seed {
        settings.set("T3E_SEED", &seed.to_string())?;
    }
    let config = device::config(ranks, &settings)?;
    let said = run_owned(ranks, &config, |pe| {
        exchange(T3e::new(pe, &settings, false)?, ranks)
    })?;
    let mut lines = Vec::new();
    for rank in said {
        lines.extend(rank?);
    }
    lines.sort_unstable();
    Ok(lines)
}

/// The part of each rank. Returns a line with the clock after each step.
fn exchange(device: T3e, size: u32) -> Result<Vec<String>> {
    let mut rank = Rank {
        me: device.attributes().world_rank,
        size,
        device,
        said: Vec::new(),
    };
    rank.say("start");
    for (number, bytes) in (0..).zip(SIZES) {
        rank.round(number, bytes)?;
        rank.say(&format!("{bytes} bytes around"));
    }
    rank.fan_in()?;
    rank.say("any source");
    rank.barrier()?;
    rank.say("barrier");
    rank.put()?;
    rank.say("put");
    rank.device.end()?;
    rank.say("end");
    Ok(rank.said)
}

struct Rank {
    device: T3e,
    me: u32,
    size: u32,
    said: Vec<String>,
}

impl Rank {
    fn say(&mut self, step: &str) {
        let (number, ps) = (self.said.len(), self.device.clock().as_ps());
        let line = format!("rank {} step {number:02} at {ps:12} ps: {step}", self.me);
        self.said.push(line);
    }

    fn send(&self, to: u32, tag: u32, bytes: &[u8]) -> Result<()> {
        let args = SendArgs::new(ProcId::new(to), 0, self.me, tag);
        self.device.send_contig(&args, bytes)
    }

    /// Receives from one rank, or from any. Returns the source.
    fn receive(&self, from: Option<u32>, tag: u32, place: &mut [u8]) -> Result<u32> {
        let pattern = Pattern {
            context: 0,
            source: from,
            tag: Some(tag),
        };
        let status = self.device.recv_contig(&pattern, place)?;
        assert_eq!(status.bytes, place.len() as u64);
        Ok(status.source)
    }

    /// Messages both ways around the ring: one receive waits for its message, the other finds it
    /// waiting.
    fn round(&self, number: u32, bytes: usize) -> Result<()> {
        let (up, down) = (
            (self.me + 1) % self.size,
            (self.me + self.size - 1) % self.size,
        );
        let mut place = vec![0; bytes];
        let pattern = Pattern {
            context: 0,
            source: Some(down),
            tag: Some(number),
        };
        // SAFETY: `place` outlives the request, which is waited for below.
        let incoming = unsafe {
            self.device
                .irecv_contig(&pattern, place.as_mut_ptr(), bytes)?
        };
        let sent = self.send(up, number, &vec![self.me as u8; bytes]);
        let received = self.device.wait(incoming);
        sent?;
        received?;
        assert!(place.iter().all(|byte| *byte == down as u8));

        // Each rank computes for a different time.
        let computed = std::time::Duration::from_nanos(u64::from(self.me * 1_700 + number));
        self.device.charge(computed);
        if self.me == 0 {
            self.send(down, 50 + number, &place)?;
            self.receive(Some(up), 50 + number, &mut place)?;
        } else {
            self.receive(Some(up), 50 + number, &mut place)?;
            self.send(down, 50 + number, &place)?;
        }
        Ok(())
    }

    /// All ranks send to rank 0, which receives in the order of arrival and records the sources.
    fn fan_in(&mut self) -> Result<()> {
        for (number, bytes) in (100..).zip(SIZES) {
            if self.me != 0 {
                self.send(0, number, &vec![self.me as u8; bytes])?;
                continue;
            }
            for _ in 1..self.size {
                let mut place = vec![0; bytes];
                let source = self.receive(None, number, &mut place)?;
                assert!(place.iter().all(|byte| *byte == source as u8));
                self.say(&format!("{bytes} bytes from rank {source}"));
            }
        }
        Ok(())
    }

    /// A barrier: in each step a rank hears from one further away, until all have heard of all.
    fn barrier(&self) -> Result<()> {
        let mut step = 1;
        while step < self.size {
            let (up, down) = (
                (self.me + step) % self.size,
                (self.me + self.size - step) % self.size,
            );
            self.send(up, 200 + step, &[])?;
            self.receive(Some(down), 200 + step, &mut [])?;
            step *= 2;
        }
        Ok(())
    }

    /// Writes a word and some bytes into the memory of the next rank.
    fn put(&self) -> Result<()> {
        const BYTES: usize = 3_000;
        let (up, down) = (
            (self.me + 1) % self.size,
            (self.me + self.size - 1) % self.size,
        );
        let region = self.device.alloc_region(BYTES)?;
        self.send(down, 300, &region.key.0)?;
        let mut key = RegionKey([0; 56]);
        self.receive(Some(up), 300, &mut key.0)?;
        let bytes = vec![self.me as u8 + 1; BYTES];
        let to = ProcId::new(up);
        // SAFETY: `bytes` outlives the request, which is waited for at once.
        let request = unsafe { self.device.put(to, &key, 0, bytes.as_ptr(), BYTES)? };
        self.device.wait(request)?;
        self.device.flush(to)?;
        self.barrier()?;
        // SAFETY: the region lives, and after the barrier nobody writes to it.
        let written = unsafe { std::slice::from_raw_parts(region.ptr, BYTES) };
        assert!(written.iter().all(|byte| *byte == down as u8 + 1));
        self.barrier()?;
        // SAFETY: nobody uses the region any more.
        unsafe { self.device.free_region(region) }
    }
}
