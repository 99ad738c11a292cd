//! A control group with a limit of memory, of either version.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// A group below that of this process. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct MemoryGroup {
    directory: PathBuf,
    /// The file with the count of processes that were killed.
    events: &'static str,
}

impl MemoryGroup {
    /// A group that may use `limit` bytes, or the reason why there is none.
    pub(crate) fn new(limit: u64) -> Result<Self, String> {
        let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let path = |prefix: &str| {
            let mut lines = memberships.lines().filter_map(|line| line.split_once(':'));
            lines.find_map(|(_, rest)| rest.strip_prefix(prefix).map(str::to_owned))
        };
        let one = path("memory:").map(|path| {
            (
                "/sys/fs/cgroup/memory",
                path,
                "memory.limit_in_bytes",
                "memory.oom_control",
            )
        });
        let two = path(":").map(|path| ("/sys/fs/cgroup", path, "memory.max", "memory.events"));
        let (mount, path, file, events) = one
            .or(two)
            .ok_or("this process is in no control group for memory")?;
        let name = format!("portolan-test-{}-{}", std::process::id(), unique());
        let directory = Path::new(mount)
            .join(path.trim_start_matches('/'))
            .join(name);
        fs::create_dir(&directory)
            .map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
        let group = Self { directory, events };
        let limit_file = group.directory.join(file);
        // Opened, not created: without the controller there is no such file.
        let mut open = fs::OpenOptions::new();
        let set = open
            .write(true)
            .open(&limit_file)
            .and_then(|mut to| write!(to, "{limit}"));
        set.map_err(|error| format!("cannot set {}: {error}", limit_file.display()))?;
        // Memory beyond the limit must not be swapped out instead. A missing file limits nothing.
        for (file, most) in [
            ("memory.memsw.limit_in_bytes", limit),
            ("memory.swap.max", 0),
        ] {
            let _ = open
                .open(group.directory.join(file))
                .and_then(|mut to| write!(to, "{most}"));
        }
        group.try_to_enter()?;
        Ok(group)
    }

    /// A group with limits for its subgroups admits no process (version 2).
    fn try_to_enter(&self) -> Result<(), String> {
        let mut probe = Command::new("true");
        self.hold(&mut probe);
        match probe.status() {
            Ok(status) if status.success() => Ok(()),
            outcome => Err(format!(
                "cannot enter {}: {outcome:?}",
                self.directory.display()
            )),
        }
    }

    /// Puts a command into the group from its start.
    pub(crate) fn hold(&self, command: &mut Command) {
        let file = self.directory.join("cgroup.procs");
        let procs = fs::OpenOptions::new().write(true).open(file);
        // SAFETY: between fork and exec the closure makes one system call, on a descriptor that it
        // keeps.
        unsafe {
            command.pre_exec(move || {
                let Ok(procs) = &procs else {
                    return Err(io::ErrorKind::PermissionDenied.into());
                };
                // 0 stands for the process that writes.
                match libc::write(procs.as_raw_fd(), c"0".as_ptr().cast(), 1) {
                    1 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            });
        }
    }

    /// How many processes were killed because the group had no memory left.
    pub(crate) fn killed(&self) -> u64 {
        let text = fs::read_to_string(self.directory.join(self.events)).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count
            .and_then(|count| count.trim().parse().ok())
            .unwrap_or(0)
    }
}

impl Drop for MemoryGroup {
    /// The job is over, but its last processes may need a moment to leave the group.
    fn drop(&mut self) {
        let begun = Instant::now();
        while fs::remove_dir(&self.directory).is_err() && begun.elapsed().as_secs() < 10 {
            std::thread::yield_now();
        }
    }
}

/// A unique number: tests of one process run side by side.
fn unique() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
