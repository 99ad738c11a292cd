//! Limits of the machine and of this process on which features depend.

use std::fs;
use std::path::Path;

use portolan_core::config::{Bytes, SettingValue};

use crate::os;

/// One limit, with its effect on a job.
#[derive(Debug, serde::Serialize)]
pub(super) struct Limit {
    /// Its name.
    pub(super) name: &'static str,
    /// Its value in readable form.
    pub(super) value: String,
    /// What depends on it.
    pub(super) meaning: &'static str,
}

/// The limits that matter, most important first.
pub(super) fn limits() -> Vec<Limit> {
    let limit = |name, value, meaning| Limit {
        name,
        value,
        meaning,
    };
    let memory = cgroup_memory(Path::new("/"));
    vec![
        limit("cores", cores(), "more ranks than these take turns"),
        limit(
            "memory",
            unlimited_or_size(memory),
            match memory {
                Some(_) => "of the control group: a job beyond it is killed",
                None => "of the control group",
            },
        ),
        limit(
            "ptrace_scope",
            ptrace_scope(),
            "whether ranks may read each other's memory",
        ),
        limit(
            "memlock",
            unlimited_or_size(os::limit_memlock()),
            "memory that networks may register",
        ),
        limit(
            "open files",
            count(os::limit_open_files()),
            "a rank costs the launcher up to 3",
        ),
        limit(
            "/dev/shm",
            dev_shm(&fs::read_to_string("/proc/self/mounts").unwrap_or_default()),
            "not used by `shm`; foreign libraries put files there",
        ),
    ]
}

fn cores() -> String {
    match os::allowed_cpus() {
        Ok(cpus) => {
            let all = std::thread::available_parallelism().map_or(0, usize::from);
            // The standard library takes the control group's quota into account.
            let quota = if all < cpus.len() {
                format!(", quota for {all}")
            } else {
                String::new()
            };
            format!("{} allowed{quota}", cpus.len())
        }
        Err(error) => format!("unknown ({error})"),
    }
}

/// The tightest limit of this process's control groups and of their ancestors. `root` is `/` except
/// in tests.
fn cgroup_memory(root: &Path) -> Option<u64> {
    let memberships = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = memberships.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        // Version 2 has one hierarchy for everything, version 1 a separate one for memory.
        let (tree, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            some if some.split(',').any(|one| one == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        // A container may see only the top of the hierarchy that the path describes. Then the limit
        // is that of the visible top.
        let groups = Path::new(path.trim_start_matches('/')).ancestors();
        let limits = groups.filter_map(|group| read_number(root.join(tree).join(group).join(file)));
        limits.min()
    });
    // Without a limit, version 1 reports the largest number of whole pages.
    limits.min().filter(|&bytes| bytes < 1 << 62)
}

fn ptrace_scope() -> String {
    match read_number("/proc/sys/kernel/yama/ptrace_scope") {
        None => "not restricted (no yama)".to_owned(),
        Some(0) => "0 (allowed between processes of one user)".to_owned(),
        Some(1) => "1 (only between parent and child, unless allowed by prctl)".to_owned(),
        Some(n) => format!("{n} (not allowed)"),
    }
}

/// Its size, which the kernel shows in units of 1024 bytes.
fn dev_shm(mounts: &str) -> String {
    let mount = mounts
        .lines()
        .find(|line| line.split(' ').nth(1) == Some("/dev/shm"));
    let options = mount.and_then(|line| line.split(' ').nth(3));
    match options {
        None => "not mounted".to_owned(),
        Some(options) => match options.split(',').find_map(|o| o.strip_prefix("size=")) {
            Some(text) => match Bytes::parse(text) {
                Ok(Bytes(bytes)) => size(bytes as u64),
                Err(_) => text.to_owned(),
            },
            None => "half of the memory".to_owned(),
        },
    }
}

fn read_number(path: impl AsRef<Path>) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn unlimited_or_size(limit: Option<u64>) -> String {
    limit.map_or_else(|| "without limit".to_owned(), size)
}

fn count(limit: Option<u64>) -> String {
    limit.map_or_else(|| "without limit".to_owned(), |n| n.to_string())
}

/// A size with three digits: limits are rarely round.
fn size(bytes: u64) -> String {
    let exact = Bytes(usize::try_from(bytes).unwrap_or(usize::MAX)).show();
    if exact.len() <= 6 {
        return exact;
    }
    let (mut value, mut unit) = (bytes as f64, "");
    for next in ["k", "M", "G", "T", "P"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_limit_of_either_version_counts() {
        let name = format!("portolan-limits-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let write = |file: &str, text: &str| {
            let file = root.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let mut found = vec![cgroup_memory(&root)];
        write("proc/self/cgroup", "0::/job/step\n");
        write("sys/fs/cgroup/job/step/memory.max", "max\n");
        found.push(cgroup_memory(&root));
        write("sys/fs/cgroup/job/step/memory.max", "8388608\n");
        write("sys/fs/cgroup/job/memory.max", "4194304\n");
        found.push(cgroup_memory(&root));
        write("proc/self/cgroup", "5:cpu,memory:/a/b\n2:cpuset:/a\n0::/\n");
        let of_version_1 = |group: &str| format!("sys/fs/cgroup/memory/{group}limit_in_bytes");
        write(&of_version_1("a/b/memory."), "9223372036854771712\n");
        found.push(cgroup_memory(&root));
        write(&of_version_1("memory."), "2097152\n");
        found.push(cgroup_memory(&root));
        fs::remove_dir_all(&root).unwrap();
        let of_jobs = [None, None, Some(4 << 20), None, Some(2 << 20)];
        assert_eq!(found, of_jobs);
    }

    #[test]
    fn sizes_are_shown_as_everywhere() {
        let mounted =
            |options: &str| format!("proc /proc proc rw 0 0\ntmpfs /dev/shm tmpfs {options} 0 0\n");
        for (mounts, shown) in [
            (mounted("rw,nosuid,size=65536k,inode64"), "64M"),
            (mounted("rw,size=16396508k"), "15.6G"),
            (mounted("rw,size=50%"), "50%"),
            (mounted("rw,nosuid"), "half of the memory"),
            ("proc /proc proc rw 0 0\n".to_owned(), "not mounted"),
        ] {
            assert_eq!(dev_shm(&mounts), shown, "{mounts}");
        }
    }
}
