//! Limits of the machine and of this process that decide what works.

use std::fs;

use portolan_core::config::{Bytes, SettingValue};

use crate::os;

/// One limit, with what it means for a job.
#[derive(Debug, serde::Serialize)]
pub(super) struct Limit {
    /// Its name.
    pub(super) name: &'static str,
    /// Its value, for people.
    pub(super) value: String,
    /// What it decides.
    pub(super) meaning: &'static str,
}

/// The limits that matter, most important first.
pub(super) fn limits() -> Vec<Limit> {
    let limit = |name, value, meaning| Limit {
        name,
        value,
        meaning,
    };
    vec![
        limit("cores", cores(), "more ranks than these take turns"),
        limit(
            "memory",
            cgroup_memory(),
            "of the control group: a job beyond it is killed",
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
            dev_shm(),
            "not used by `shm`; foreign libraries put files there",
        ),
    ]
}

fn cores() -> String {
    match os::allowed_cpus() {
        Ok(cpus) => {
            let all = std::thread::available_parallelism().map_or(0, usize::from);
            // The standard library counts the control group's quota in.
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

fn cgroup_memory() -> String {
    let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = group
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .unwrap_or("/");
    // The nearest limit counts; a group without one inherits its parent's.
    let mut folder = format!("/sys/fs/cgroup{}", path.trim_end_matches('/'));
    loop {
        if let Some(bytes) = read_number(&format!("{folder}/memory.max")) {
            return size(bytes);
        }
        match folder.rsplit_once('/') {
            Some((parent, _)) if parent.starts_with("/sys/fs/cgroup") => folder = parent.to_owned(),
            _ => return "without limit".to_owned(),
        }
    }
}

fn ptrace_scope() -> String {
    match read_number("/proc/sys/kernel/yama/ptrace_scope") {
        None => "not restricted (no yama)".to_owned(),
        Some(0) => "0 (allowed between processes of one user)".to_owned(),
        Some(1) => "1 (only between parent and child, unless allowed by prctl)".to_owned(),
        Some(n) => format!("{n} (not allowed)"),
    }
}

fn dev_shm() -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mount = mounts
        .lines()
        .find(|line| line.split(' ').nth(1) == Some("/dev/shm"));
    let options = mount.and_then(|line| line.split(' ').nth(3));
    match options {
        None => "not mounted".to_owned(),
        Some(options) => match options.split(',').find_map(|o| o.strip_prefix("size=")) {
            Some(size) => size.to_owned(),
            None => "half of the memory".to_owned(),
        },
    }
}

fn read_number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn unlimited_or_size(limit: Option<u64>) -> String {
    limit.map_or_else(|| "without limit".to_owned(), size)
}

fn count(limit: Option<u64>) -> String {
    limit.map_or_else(|| "without limit".to_owned(), |n| n.to_string())
}

/// To three digits: limits are rarely round.
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
