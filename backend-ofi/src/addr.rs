//! The identity of a rank, and the address of its endpoint.
//!
//! Every rank keeps the addresses of all, packed. A peer's address is put into the provider's
//! address vector when the first packet to it leaves.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

/// Version of the format in which ranks introduce themselves, and of the packets and heartbeats
/// between them. A card begins with it in every version.
const FORMAT: u32 = 7;

/// What ranks tell each other before they communicate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub(crate) process: Process,
    /// Identifies the node, whose ranks watch each other and share a file: boot id, and namespaces
    /// of processes and networks.
    pub(crate) node: String,
    /// Name of the host, for messages.
    pub(crate) host: String,
    /// Shows whether two providers can communicate: name, protocol, and the versions of the
    /// protocol and of the library.
    pub(crate) protocol: String,
    /// The endpoint's address, in the provider's format.
    pub(crate) address: Vec<u8>,
    /// The descriptor by which other processes of the node open the roster, if this rank made it.
    pub(crate) roster: Option<i32>,
    /// The address its heartbeats come from, if it has any.
    pub(crate) pulse: Option<SocketAddr>,
}

/// A process, distinguished from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// When it started, in clock ticks since boot; 0 where `/proc` cannot be read.
    pub(crate) start: u64,
}

impl Card {
    pub(crate) fn to_text(&self) -> String {
        use std::fmt::Write;
        let Process { pid, start } = self.process;
        let roster = self.roster.unwrap_or(-1);
        let pulse = self.pulse.map_or("-".to_owned(), |pulse| pulse.to_string());
        let mut text = format!("{FORMAT} {pid} {start} {roster} {pulse} {} ", self.node);
        for byte in &self.address {
            let _ = write!(text, "{byte:02x}");
        }
        let _ = write!(text, " {} {}", self.host, self.protocol);
        text
    }

    /// The name of the provider, with which the description of the protocol begins.
    pub(crate) fn provider(&self) -> &str {
        let end = self.protocol.find(' ');
        &self.protocol[..end.unwrap_or(self.protocol.len())]
    }

    /// The number of the format of another rank's text, whatever follows it.
    pub(crate) fn format(text: &str) -> Option<u32> {
        text.split(' ').next()?.parse().ok()
    }

    /// Parses another rank's text; an error in words if it makes no sense.
    pub(crate) fn from_text(text: &str) -> Result<Self, String> {
        let parse = || {
            let mut parts = text.splitn(9, ' ');
            if parts.next()?.parse() != Ok(FORMAT) {
                return None;
            }
            let process = Process {
                pid: parts.next()?.parse().ok()?,
                start: parts.next()?.parse().ok()?,
            };
            let roster = parts.next()?.parse::<i32>().ok()?;
            let pulse = match parts.next()? {
                "-" => None,
                address => Some(address.parse().ok()?),
            };
            Some(Self {
                process,
                roster: (roster >= 0).then_some(roster),
                pulse,
                node: parts.next()?.to_owned(),
                address: bytes(parts.next()?)?,
                host: parts.next()?.to_owned(),
                protocol: parts.next()?.to_owned(),
            })
        };
        parse().ok_or_else(|| format!("it introduces itself as {text:?}, not in format {FORMAT}"))
    }
}

/// The bytes that a text of hexadecimal digits represents.
fn bytes(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    let pair = |at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(pair).collect()
}

impl Process {
    /// The calling process.
    pub(crate) fn own() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            start: start_of(pid).unwrap_or(0),
        }
    }

    /// Whether the process with this number is known to be another one now. If that cannot be read
    /// (too many open files, or `/proc` is hidden), it proves nothing.
    pub(crate) fn is_another(&self) -> bool {
        self.start != 0 && start_of(self.pid).is_some_and(|start| start != self.start)
    }
}

/// The start time of a process, from `/proc/PID/stat`.
fn start_of(pid: u32) -> Option<u64> {
    field(&format!("/proc/{pid}"), 22)
}

/// Whether a process has lost its memory, or is about to: the kernel marks a thread before it does
/// anything else about its end. The first thread decides, because the kernel reaches a process's
/// memory for others through that one: their accesses fail as soon as it ends, while other threads
/// may not have come to their ends yet.
pub(crate) fn is_ending(pid: u32) -> bool {
    /// `PF_EXITING` of the kernel.
    const EXITING: u64 = 4;
    let process = format!("/proc/{pid}");
    let gone = || !fs::exists(&process).unwrap_or(true);
    field(&process, 9).map_or_else(gone, |flags| flags & EXITING != 0)
}

/// A field of `stat` in the directory of a process. It must come after the second field, which is a
/// name and may contain anything.
fn field(process: &str, number: usize) -> Option<u64> {
    let stat = fs::read_to_string(format!("{process}/stat")).ok()?;
    let behind = &stat[stat.rfind(')')? + 1..];
    behind.split_whitespace().nth(number - 3)?.parse().ok()
}

/// The name of the node this process is on.
pub(crate) fn node() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = |kind: &str| {
        let link = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap_or_default();
        let text = link.to_string_lossy().into_owned();
        text.chars()
            .filter(char::is_ascii_digit)
            .collect::<String>()
    };
    format!("{}:{}:{}", boot.trim(), namespace("pid"), namespace("net"))
}

/// Name of this host, without blanks.
pub(crate) fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim().replace(char::is_whitespace, "_");
    if name.is_empty() {
        "localhost".to_owned()
    } else {
        name
    }
}

/// The addresses of all ranks, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    bytes: Arc<[u8]>,
    /// Where each begins, and where the last ends.
    starts: Arc<[u32]>,
}

impl Addresses {
    pub(crate) fn new<'a>(each: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut bytes = Vec::new();
        let mut starts = vec![0];
        for address in each {
            bytes.extend_from_slice(address);
            starts.push(bytes.len() as u32);
        }
        Self {
            bytes: bytes.into(),
            starts: starts.into(),
        }
    }

    /// The address of a rank below the number of ranks.
    pub(crate) fn of(&self, rank: u32) -> &[u8] {
        let rank = rank as usize;
        &self.bytes[self.starts[rank] as usize..self.starts[rank + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card() -> Card {
        Card {
            process: Process::own(),
            node: node(),
            host: host(),
            protocol: "tcp;ofi_rxm 11.1".to_owned(),
            address: vec![0, 255, 16],
            roster: None,
            pulse: None,
        }
    }

    #[test]
    fn cards_survive_the_journey() {
        let card = card();
        assert_eq!(Card::from_text(&card.to_text()), Ok(card.clone()));
        let with = Card {
            roster: Some(7),
            pulse: Some("[fd00::1]:4711".parse().unwrap()),
            ..card
        };
        assert_eq!(Card::from_text(&with.to_text()), Ok(with));
    }

    #[test]
    fn nonsense_is_no_card() {
        let text = card().to_text();
        for bad in ["", "9 1 2 3", &text[..12], &text.replace("00ff10", "0zff")] {
            assert!(Card::from_text(bad).is_err(), "{bad}");
        }
        let other = text.replacen(&format!("{FORMAT} "), "4 ", 1);
        let why = Card::from_text(&other).unwrap_err();
        assert!(why.contains(&format!("format {FORMAT}")), "{why}");
    }

    #[test]
    fn addresses_may_differ_in_length() {
        let all = Addresses::new([&b"one"[..], b"", b"three"].into_iter());
        assert_eq!(
            (all.of(0), all.of(1), all.of(2)),
            (&b"one"[..], &b""[..], &b"three"[..])
        );
    }

    #[test]
    fn a_process_that_has_ended_is_told_from_one_that_runs() {
        assert!(!is_ending(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        // It keeps its number until it is waited for.
        while !is_ending(child.id()) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(is_ending(child.id()));
    }

    #[test]
    fn a_process_is_the_one_it_was() {
        let own = Process::own();
        assert!(own.start > 0 && !own.is_another());
        let later = Process {
            start: own.start + 1,
            ..own
        };
        assert!(later.is_another());
        let unknown = Process { start: 0, ..own };
        assert!(!unknown.is_another(), "its start could not be read");
        let ended = Process {
            pid: u32::MAX,
            ..own
        };
        assert!(!ended.is_another(), "no number is no proof");
    }
}
