//! The address of a rank: its node and its process.
//!
//! A host's name says little: two containers may share one and yet share neither memory nor
//! signals, and one machine may have several. Ranks can share memory when their boot id, network
//! namespace (in which the abstract socket lives) and PID namespace (in which they watch each
//! other) are the same.

use std::fs;
use std::io;
use std::sync::Arc;

/// The facts that the ranks exchange before they share memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) node: Arc<str>,
    pub(crate) process: Process,
    pub(crate) user: u32,
    /// [`layout_hash`](crate::segment::layout::layout_hash) of the build.
    pub(crate) layout: u64,
    /// Name of the host, for messages.
    pub(crate) host: Arc<str>,
}

/// A process, distinguished from a later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// The time at which it started, in clock ticks since boot; 0 where `/proc` cannot be read.
    pub(crate) start: u64,
}

impl Address {
    /// The address of the calling process.
    pub(crate) fn own(layout: u64) -> Self {
        // SAFETY: no arguments, cannot fail.
        let user = unsafe { libc::geteuid() };
        Self {
            node: node().into(),
            process: Process::own(),
            user,
            layout,
            host: node_name().into(),
        }
    }

    pub(crate) fn to_text(&self) -> String {
        let Process { pid, start } = self.process;
        format!(
            "{} {pid} {start} {} {:x} {}",
            self.node, self.user, self.layout, self.host
        )
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let mut parts = text.splitn(6, ' ');
        let node = parts.next()?.into();
        let process = Process {
            pid: parts.next()?.parse().ok()?,
            start: parts.next()?.parse().ok()?,
        };
        let user = parts.next()?.parse().ok()?;
        let layout = u64::from_str_radix(parts.next()?, 16).ok()?;
        Some(Self {
            node,
            process,
            user,
            layout,
            host: parts.next()?.into(),
        })
    }
}

impl Address {
    /// Shares the names with `other` where they are the same, so that the addresses of a large job
    /// take little memory.
    pub(crate) fn sharing(mut self, other: &Self) -> Self {
        for (own, theirs) in [(&mut self.node, &other.node), (&mut self.host, &other.host)] {
            if own == theirs {
                *own = Arc::clone(theirs);
            }
        }
        self
    }
}

impl Process {
    pub(crate) fn own() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            start: start_of(pid).unwrap_or(0),
        }
    }

    /// Whether the process that now has this id is still the one meant.
    pub(crate) fn is_current(self) -> bool {
        self.start == 0 || start_of(self.pid).is_none_or(|start| start == self.start)
    }
}

/// Identity of the node: boot id, network namespace, PID namespace.
fn node() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = |name: &str| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(format!("/proc/self/ns/{name}")).map_or(0, |meta| meta.ino())
    };
    format!("{}/net:{}/pid:{}", boot.trim(), space("net"), space("pid"))
}

/// The host's name.
pub(crate) fn node_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "localhost".to_owned(), |name| name.trim().to_owned())
}

/// Field 22 of `/proc/<pid>/stat`. The name before it may contain anything, even parentheses.
fn start_of(pid: u32) -> Option<u64> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after_name = text.iter().rposition(|&byte| byte == b')')? + 1;
    let rest = std::str::from_utf8(&text[after_name..]).ok()?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// 128 random bits as text, for names that nobody can guess.
pub(crate) fn random_name() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    // SAFETY: room for 16 bytes.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != bytes.len() as isize {
        return Err(io::Error::last_os_error());
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_its_text() {
        let own = Address::own(0xfeed);
        assert_eq!(Address::from_text(&own.to_text()), Some(own));
        assert_eq!(Address::from_text("x 1 2"), None);
        assert_eq!(Address::from_text("node pid 2 3 4 host"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_an_address_or_none(text in ".{0,60}|[0-9a-z]{0,3}( [0-9-]{0,22}){3,4}( [0-9a-f]{0,18} .{0,9})?") {
            if let Some(address) = Address::from_text(&text) {
                proptest::prop_assert_eq!(Address::from_text(&address.to_text()), Some(address));
            }
        }
    }

    #[test]
    fn this_process_is_the_one_it_was() {
        let own = Process::own();
        assert!(own.start > 0 && own.is_current());
        assert!(
            !Process {
                start: own.start + 1,
                ..own
            }
            .is_current()
        );
    }

    #[test]
    fn names_differ() {
        assert_ne!(random_name().unwrap(), random_name().unwrap());
    }
}
