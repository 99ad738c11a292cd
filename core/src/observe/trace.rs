//! A trace of protocol events, in the JSON format that Chromium's and Perfetto's viewers open.

use std::fs::File;
use std::io::{BufWriter, LineWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// An event in an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    /// The kind of event: `send`, `recv`, `wait`, …
    pub(crate) name: &'static str,
    /// Peer's world rank; `u32::MAX` if there is none.
    pub(crate) peer: u32,
    pub(crate) tag: u32,
    pub(crate) bytes: u64,
}

/// Writes events to a file. The file is a JSON array, which viewers accept even if it is
/// unfinished, so the trace of a rank that died is readable up to the last buffer written.
pub(crate) struct Tracer {
    to: Box<dyn Write + Send>,
    rank: u32,
    json: bool,
}

impl Tracer {
    /// Creates a trace file for viewers.
    pub(crate) fn create(path: &Path, rank: u32) -> Result<Self> {
        let to = Box::new(BufWriter::new(create(path)?));
        let mut tracer = Self {
            to,
            rank,
            json: true,
        };
        tracer.line("[");
        Ok(tracer)
    }

    /// Writes plain lines for people, to a file or to standard error.
    pub(crate) fn plain(path: Option<&Path>, rank: u32) -> Result<Self> {
        let to: Box<dyn Write + Send> = match path {
            Some(path) => Box::new(LineWriter::new(create(path)?)),
            None => Box::new(std::io::stderr()),
        };
        Ok(Self {
            to,
            rank,
            json: false,
        })
    }

    fn line(&mut self, text: &str) {
        // A full disk must not end the job. Only the trace ends.
        let _ = writeln!(self.to, "{text}");
    }

    /// Records an event at `seconds` on the device's clock.
    pub(crate) fn record(&mut self, seconds: f64, event: &Event) {
        let Event {
            name,
            peer,
            tag,
            bytes,
        } = *event;
        let rank = self.rank;
        let line = if self.json {
            format!(
                "{{\"name\":\"{name}\",\"ph\":\"i\",\"s\":\"t\",\"ts\":{:.3},\"pid\":{rank},\"tid\":0,\
                 \"args\":{{\"peer\":{peer},\"tag\":{tag},\"bytes\":{bytes}}}}},",
                seconds * 1e6
            )
        } else {
            format!("{seconds:.9} rank {rank} {name} peer {peer} tag {tag} bytes {bytes}")
        };
        self.line(&line);
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.to.flush();
    }
}

/// The trace file of a rank: `%r` in its name stands for the rank. Without it, the ranks of a job
/// of several would overwrite each other's; then the rank follows the name.
pub(crate) fn of_rank(path: &Path, rank: u32, size: u32) -> PathBuf {
    let name = path.to_string_lossy();
    if name.contains("%r") || size == 1 {
        return name.replace("%r", &rank.to_string()).into();
    }
    format!("{name}.{rank}").into()
}

fn create(path: &Path) -> Result<File> {
    File::create(path).map_err(|e| {
        Error::new(
            ErrorKind::InvalidArgument,
            format!("cannot write {}: {e}", path.display()),
        )
        .remedy("give a file in a folder that exists and is writable")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_of_a_job_has_a_trace_file_of_its_own() {
        for (given, size, expected) in [
            ("trace.json", 2, ["trace.json.0", "trace.json.1"]),
            ("%r/trace-%r", 2, ["0/trace-0", "1/trace-1"]),
            ("trace.json", 1, ["trace.json"; 2]),
        ] {
            let names = [0, 1].map(|rank| of_rank(given.as_ref(), rank, size));
            assert_eq!(names, expected.map(PathBuf::from), "{given}, {size} ranks");
        }
    }
}
