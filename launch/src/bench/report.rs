//! A row per size, as soon as it is known: for people, or one JSON object per line.

use std::io::{self, Write};

use portolan::Comm;
use serde::Serialize;

use super::measure::Measured;
use crate::cli::{BenchArgs, BenchKind};

/// A row for programs, its fields in the order in which people read them.
#[derive(Serialize)]
struct Row {
    bench: &'static str,
    transport: &'static str,
    ranks: u32,
    bytes: usize,
    value: f64,
    unit: &'static str,
    best: f64,
    samples: usize,
    rounds: u64,
}

/// Writes the rows; only rank 0 does.
pub(super) struct Report {
    kind: BenchKind,
    json: bool,
    rank: u32,
    ranks: u32,
    transport: &'static str,
}

impl Report {
    pub(super) fn new(args: &BenchArgs, comm: &Comm) -> Self {
        let report = Self {
            kind: args.kind,
            json: args.json,
            rank: comm.rank(),
            ranks: comm.size(),
            transport: comm.transport(),
        };
        if !args.json {
            let (name, unit) = (report.name(), report.unit());
            report.write(&format!(
                "# {name} over {}, {} ranks\n",
                report.transport, report.ranks
            ));
            report.write(&format!("{:>10} {:>14} {:>14}\n", "bytes", unit, "best"));
        }
        report
    }

    pub(super) fn row(&self, bytes: usize, measured: &Measured) {
        let Measured {
            value,
            best,
            rounds,
            samples,
        } = *measured;
        if !self.json {
            let (value, best) = (self.number(value), self.number(best));
            return self.write(&format!("{bytes:>10} {value:>14} {best:>14}\n"));
        }
        let row = Row {
            bench: self.name(),
            transport: self.transport,
            ranks: self.ranks,
            bytes,
            value,
            unit: self.unit(),
            best,
            samples,
            rounds,
        };
        // Numbers and names: nothing that JSON could not say.
        let line = serde_json::to_string(&row).unwrap_or_default();
        self.write(&format!("{line}\n"));
    }

    fn number(&self, value: f64) -> String {
        match self.kind {
            BenchKind::Latency => format!("{value:.3}"),
            BenchKind::Bandwidth => format!("{value:.1}"),
            BenchKind::Rate => format!("{value:.0}"),
        }
    }

    fn name(&self) -> &'static str {
        match self.kind {
            BenchKind::Latency => "latency",
            BenchKind::Bandwidth => "bandwidth",
            BenchKind::Rate => "rate",
        }
    }

    fn unit(&self) -> &'static str {
        match self.kind {
            BenchKind::Latency => "us",
            BenchKind::Bandwidth => "MB/s",
            BenchKind::Rate => "messages/s",
        }
    }

    fn write(&self, text: &str) {
        if self.rank == 0 {
            // That nobody reads the rows to their end is no failure of the measurement.
            let _ = io::stdout().lock().write_all(text.as_bytes());
        }
    }
}
