//! Patterns on machines of growing size, and on machines with faults.

use std::path::Path;

use std::thread;
use std::time::Duration;

use portolan_core::config::Settings;
use portolan_core::{Device, Error, ErrorKind, Result};
use portolan_t3e_sim::{Config, Shmem, T3e, Time, device, in_process, run};

use crate::host::{Outcome, peak_memory, run_alone};
use crate::patterns::Rank;
use crate::plot::{Axes, Curve, SeriesLabelPosition, draw};
use crate::raw;

/// A pattern, its name in tables, and the most PEs on which it is run.
const PATTERNS: [(&str, &str, u32); 7] = [
    ("hardware", "hardware barrier", 2048),
    ("raw-barrier", "dissemination barrier (SHMEM)", 2048),
    ("barrier", "dissemination barrier (MP_Lite)", 2048),
    ("raw-allreduce", "allreduce of 8 bytes (SHMEM)", 2048),
    ("allreduce", "allreduce of 8 bytes (MP_Lite)", 2048),
    ("halo", "halo exchange of 1 KiB faces (MP_Lite)", 2048),
    ("pairwise", "pairwise exchange of 8 bytes (MP_Lite)", 512),
];

/// Runs one pattern in this process; prints its virtual time in microseconds and the process's peak
/// memory in KiB.
pub(crate) fn one(pattern: &str, pes: u32, faults: &str) -> Result<(), Box<dyn std::error::Error>> {
    let times = match pattern {
        "hardware" => on_shmem(pes, faults, raw::hardware_barrier),
        "raw-barrier" => on_shmem(pes, faults, raw::dissemination_barrier),
        "raw-allreduce" => on_shmem(pes, faults, raw::allreduce),
        "nothing" => on_device(pes, faults, |_| Ok(())),
        "barrier" => on_device(pes, faults, |rank| rank.dissemination_barrier()),
        "allreduce" => on_device(pes, faults, |rank| {
            assert_eq!(rank.allreduce(1)?, u64::from(rank.n));
            Ok(())
        }),
        "pairwise" => on_device(pes, faults, |rank| rank.pairwise()),
        "halo" => on_device(pes, faults, |rank| rank.halo()),
        _ => return Err(format!("there is no pattern {pattern}").into()),
    }?;
    let longest = times.into_iter().max().unwrap_or_default();
    println!("{} {}", longest.as_us(), peak_memory());
    Ok(())
}

/// Bytes of a PE's stack. This is address space: the host allocates only the pages that are
/// touched.
const STACK: usize = 256 << 10;

/// The computation that every PE does once before a pattern; a slow PE is slow at it.
const COMPUTATION: Time = Time::from_ns(1_000);

/// Runs a pattern on raw SHMEM, after a barrier. Returns its time on each PE.
fn on_shmem(
    pes: u32,
    faults: &str,
    pattern: impl Fn(&mut Shmem) -> Result<()> + Sync,
) -> Result<Vec<Time>> {
    let config = Config {
        faults: faults.to_owned(),
        statics: raw::STATICS,
        heap: 0,
        ..Config::default()
    };
    let timed = |pe: &mut Shmem| {
        pe.barrier_all()?;
        let begin = pe.clock();
        pe.charge(COMPUTATION);
        pattern(pe)?;
        Ok(pe.clock() - begin)
    };
    run(pes, &config, timed)?.into_iter().collect()
}

/// The same on the device, whose messages go through MP_Lite.
fn on_device(
    pes: u32,
    faults: &str,
    pattern: impl Fn(&Rank<'_, T3e>) -> Result<()> + Sync,
) -> Result<Vec<Time>> {
    let mut settings = Settings::default();
    let set = settings.set("T3E_FAULTS", faults);
    set.map_err(|error| Error::new(ErrorKind::InvalidSetting, error.to_string()))?;
    let config = device::config(pes, &settings)?;
    // The devices are made here, as `portolan::threads` does, because making a device takes more
    // stack than using it.
    let devices = in_process(pes, &config)?
        .into_iter()
        .map(|pe| T3e::new(pe, &settings, false))
        .collect::<Result<Vec<_>>>()?;
    let timed = |me, device: &T3e| {
        let rank = Rank { device, me, n: pes };
        rank.dissemination_barrier()?;
        let begin = device.clock();
        device.charge(Duration::from_nanos(COMPUTATION.as_ps() / 1000));
        pattern(&rank)?;
        let took = device.clock() - begin;
        device.end()?;
        Ok(took)
    };
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (me, device) in (0..).zip(devices) {
            let started = thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, move || timed(me, &device));
            threads.push(started.map_err(|e| Error::new(ErrorKind::Exhausted, e.to_string()))?);
        }
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

pub(crate) fn measure(directory: &Path, most: u32) -> Result<(), Box<dyn std::error::Error>> {
    println!("| pattern | PEs | virtual µs | host s | host KiB per PE |");
    println!("| --- | --- | --- | --- | --- |");
    // The memory that the process needs whatever it emulates is not counted as any PE's share.
    let empty = run_alone("hardware", 2, "")?.peak_kib;
    let mut curves = Vec::new();
    for (pattern, name, limit) in PATTERNS {
        let mut points = Vec::new();
        let mut pes = 2;
        while pes <= most.min(limit) {
            let outcome = run_alone(pattern, pes, "")?;
            row(name, pes, &outcome, empty);
            points.push((f64::from(pes), outcome.virtual_us));
            pes *= 2;
        }
        curves.push(Curve {
            name: name.to_owned(),
            points,
            published: false,
        });
    }
    let axes = Axes {
        title: "Emulated T3E-900: patterns",
        x: "PEs",
        y: "µs of virtual time",
        legend: SeriesLabelPosition::UpperLeft,
    };
    draw(&directory.join("scale.svg"), &axes, &curves)
}

fn row(name: &str, pes: u32, outcome: &Outcome, empty: f64) {
    let Outcome {
        virtual_us,
        host_s,
        peak_kib,
    } = outcome;
    let each = (peak_kib - empty).max(0.0) / f64::from(pes);
    println!("| {name} | {pes} | {virtual_us:.2} | {host_s:.2} | {each:.0} |");
}

pub(crate) fn faults() -> Result<(), Box<dyn std::error::Error>> {
    const PES: u32 = 512;
    let faults = [
        ("sound", ""),
        ("link 0 +x ten times slower", "link:0:+x:10"),
        ("link 0 +x a hundred times slower", "link:0:+x:100"),
        ("PE 5 ten times slower", "pe:5:10"),
        ("PE 5 a hundred times slower", "pe:5:100"),
    ];
    println!(
        "| pattern on {PES} PEs | {} |",
        faults.map(|fault| fault.0).join(" | ")
    );
    println!("| --- |{}", " --- |".repeat(faults.len()));
    for (pattern, name, _) in PATTERNS {
        let mut cells = Vec::new();
        for (_, fault) in faults {
            cells.push(format!("{:.2}", run_alone(pattern, PES, fault)?.virtual_us));
        }
        println!("| {name} | {} |", cells.join(" | "));
    }
    Ok(())
}
