//! How much memory may still be used: the machine's, and that of every control group above this
//! process.
//!
//! Callers ask before they allocate much, because afterwards is too late: a control group reacts to
//! one page too many with the OOM killer.
//!
//! Swap is not counted. Memory that ranks write all the time is of no use on a disk, and a group's
//! memory limit holds whether or not its pages could be swapped.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// How much is left, and which limit decides it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes left.
    pub bytes: u64,
    /// The limit, named so that a user can find it.
    pub by: String,
}

/// The room under the tightest limit; `None` if no limit can be read.
#[must_use]
pub fn room() -> Option<Room> {
    room_below(Path::new("/"))
}

/// [`room`], with the system's files below `root`.
fn room_below(root: &Path) -> Option<Room> {
    let machine = machine(root);
    let groups = groups(root)
        .into_iter()
        .filter_map(|directory| group(&directory));
    machine
        .into_iter()
        .chain(groups)
        .min_by_key(|room| room.bytes)
}

/// A number that names the control groups of this process: processes for which it is equal are
/// under the same limits.
#[must_use]
pub fn groups_id() -> u64 {
    let mut hash = DefaultHasher::new();
    // A path is relative to its namespace: in every container it may be `/`.
    let namespace = fs::read_link("/proc/self/ns/cgroup").unwrap_or_default();
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    (namespace, groups).hash(&mut hash);
    hash.finish()
}

fn machine(root: &Path) -> Option<Room> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let kib = field(&text, "MemAvailable:")?;
    Some(Room {
        bytes: kib.saturating_mul(1024),
        by: "the machine (MemAvailable)".into(),
    })
}

/// The directories of the control groups that limit this process, with all their ancestors.
fn groups(root: &Path) -> Vec<PathBuf> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let (mounts, memberships) = (read("proc/self/mountinfo"), read("proc/self/cgroup"));
    let mut found = Vec::new();
    for line in memberships.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let unified = controllers.is_empty();
        if !unified && !controllers.split(',').any(|name| name == "memory") {
            continue;
        }
        let Some((top, mount)) = mount_of(&mounts, unified) else {
            continue;
        };
        // Inside a container, the path may lead outside of what is mounted.
        let below = Path::new(path).strip_prefix(&top).unwrap_or(Path::new(""));
        let mount = root.join(mount.strip_prefix("/").unwrap_or(&mount));
        found.extend(below.ancestors().map(|part| mount.join(part)));
    }
    found
}

/// Root and mount point of the control group file system (in version 1, that of the memory
/// controller).
fn mount_of(mounts: &str, unified: bool) -> Option<(PathBuf, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let (name, options) = (kind.next()?, kind.nth(1)?);
        let wanted = match name {
            "cgroup2" => unified,
            "cgroup" => !unified && options.split(',').any(|option| option == "memory"),
            _ => false,
        };
        let mut place = place.split(' ').skip(3);
        let (top, mount) = (place.next()?, place.next()?);
        wanted.then(|| (PathBuf::from(top), PathBuf::from(mount)))
    })
}

/// Room left in one control group: its limit less its use, not counting caches that can be dropped.
fn group(directory: &Path) -> Option<Room> {
    let number = |file: &str| -> Option<u64> {
        fs::read_to_string(directory.join(file))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let limits = ["memory.max", "memory.high", "memory.limit_in_bytes"];
    let (file, limit) = limits
        .iter()
        .filter_map(|file| Some((file, number(file)?)))
        .min_by_key(|(_, limit)| *limit)?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let stat = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    let cache = field(&stat, "total_inactive_file").or_else(|| field(&stat, "inactive_file"));
    Some(Room {
        bytes: limit.saturating_sub(used.saturating_sub(cache.unwrap_or(0))),
        by: format!(
            "the control group's limit {limit} ({})",
            directory.join(file).display()
        ),
    })
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == name)
            .then(|| words.next()?.parse().ok())
            .flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake(PathBuf);

    impl Fake {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("portolan-limit-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        fn with(self, file: &str, text: &str) -> Self {
            let path = self.0.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const V2: &str = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_tightest_ancestor_decides() {
        let fake = Fake::new("v2")
            .with(
                "proc/meminfo",
                "MemTotal: 99 kB\nMemAvailable: 1000000 kB\n",
            )
            .with("proc/self/mountinfo", V2)
            .with("proc/self/cgroup", "0::/job/step\n")
            .with("sys/fs/cgroup/job/step/memory.max", "max\n")
            .with("sys/fs/cgroup/job/memory.max", "50000000\n")
            .with("sys/fs/cgroup/job/memory.current", "20000000\n")
            .with(
                "sys/fs/cgroup/job/memory.stat",
                "anon 5\ninactive_file 1000000\n",
            );
        let room = room_below(&fake.0).unwrap();
        assert_eq!(room.bytes, 31_000_000);
        assert!(room.by.contains("job/memory.max"), "{}", room.by);
    }

    #[test]
    fn version_one_counts_too_and_a_container_s_path_is_survived() {
        let fake = Fake::new("v1")
            .with("proc/meminfo", "MemAvailable: 1000000 kB\n")
            .with(
                "proc/self/mountinfo",
                "31 20 0:27 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
            )
            .with("proc/self/cgroup", "4:memory:/elsewhere\n3:cpu:/x\n")
            .with("sys/fs/cgroup/memory/memory.limit_in_bytes", "8000000\n")
            .with("sys/fs/cgroup/memory/memory.usage_in_bytes", "7000000\n");
        assert_eq!(room_below(&fake.0).unwrap().bytes, 1_000_000);
    }

    #[test]
    fn every_ancestor_counts_in_version_one_beside_a_version_two_without_memory() {
        let v1 = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let unlimited = "9223372036854771712\n";
        let fake = Fake::new("hybrid")
            .with("proc/meminfo", "MemAvailable: 1000000 kB\n")
            .with(
                "proc/self/mountinfo",
                &format!("{v1}36 31 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n"),
            )
            .with("proc/self/cgroup", "4:memory:/a/b/c\n0::/a\n")
            .with("sys/fs/cgroup/unified/a/cgroup.procs", "")
            .with(
                "sys/fs/cgroup/memory/a/b/c/memory.limit_in_bytes",
                unlimited,
            )
            .with("sys/fs/cgroup/memory/a/b/c/memory.usage_in_bytes", "1000\n")
            .with(
                "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
                "9000000\n",
            )
            .with(
                "sys/fs/cgroup/memory/a/b/memory.usage_in_bytes",
                "5000000\n",
            )
            .with("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "8000000\n")
            .with("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "5500000\n")
            .with(
                "sys/fs/cgroup/memory/a/memory.stat",
                "inactive_file 9\ntotal_inactive_file 500000\n",
            );
        let room = room_below(&fake.0).unwrap();
        assert_eq!(room.bytes, 3_000_000);
        assert!(room.by.contains("memory/a/memory.limit"), "{}", room.by);
    }

    #[test]
    fn the_soft_limit_counts_and_swap_does_not() {
        let group = "sys/fs/cgroup/job";
        let fake = Fake::new("swap")
            .with(
                "proc/meminfo",
                "MemAvailable: 1000000 kB\nSwapFree: 8000000 kB\n",
            )
            .with("proc/self/mountinfo", V2)
            .with("proc/self/cgroup", "0::/job\n")
            .with(&format!("{group}/memory.max"), "9000000\n")
            .with(&format!("{group}/memory.high"), "7000000\n")
            .with(&format!("{group}/memory.swap.max"), "50000000\n")
            .with(&format!("{group}/memory.current"), "2000000\n");
        assert_eq!(room_below(&fake.0).unwrap().bytes, 5_000_000);
        // After a limit was lowered, more may be used than allowed: that is no room, not an
        // underflow.
        let fake = fake.with(&format!("{group}/memory.current"), "8000000\n");
        assert_eq!(room_below(&fake.0).unwrap().bytes, 0);
    }

    #[test]
    fn groups_without_limits_leave_what_the_machine_has() {
        let fake = Fake::new("max")
            .with("proc/meminfo", "MemAvailable: 1000 kB\n")
            .with("proc/self/mountinfo", V2)
            .with("proc/self/cgroup", "0::/job/step\n")
            .with("sys/fs/cgroup/job/step/memory.max", "max\n")
            .with("sys/fs/cgroup/job/step/memory.high", "max\n")
            .with("sys/fs/cgroup/job/memory.max", "max\n");
        let room = room_below(&fake.0).unwrap();
        assert_eq!(room.bytes, 1_024_000);
        assert!(room.by.contains("MemAvailable"), "{}", room.by);
    }

    #[test]
    fn without_any_limit_there_is_room() {
        let fake = Fake::new("none").with("proc/other", "");
        assert_eq!(room_below(&fake.0), None);
    }

    #[test]
    fn this_machine_answers() {
        assert!(room().is_some_and(|room| room.bytes > 0));
        assert_eq!(groups_id(), groups_id());
    }
}
