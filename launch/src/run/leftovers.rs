//! Removes what foreign libraries leave in `/dev/shm` when a rank is killed.
//!
//! Portolan's own shared memory has no name there. libfabric's shm provider has a file per
//! endpoint, `PID:USER:NUMBER`, which only the owning process removes.
//!
//! Containers may share `/dev/shm` and yet number their processes themselves. Then a live process
//! of another container may have the pid of a rank that has ended. A file that is older than this
//! process belongs to no rank, and stays. A younger one of such a process cannot be told from a
//! rank's.

use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::os::has_gone;

/// Where named shared memory lies.
const FOLDER: &str = "/dev/shm";

/// Removes the files that the ranks with these pids have left. The ranks must have ended. If the
/// launcher was killed, the guard calls this.
pub(crate) fn remove(pids: &[i32]) {
    // Both the launcher and the guard started before any rank did.
    if let Some(start) = own_start() {
        remove_in(Path::new(FOLDER), pids, start);
    }
}

/// When this process started, or a little before; `None` if the system does not tell.
fn own_start() -> Option<SystemTime> {
    /// The kernel stamps files with a clock that it advances a hundred times a second or more.
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The 22nd field: clock ticks since boot. The second one, in parentheses, may contain anything.
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks: u64 = fields.split(' ').nth(19)?.parse().ok()?;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is writable.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    // SAFETY: sysconf touches no memory of this process.
    let rate = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok()?;
    let since_boot = Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?);
    let start = Duration::from_millis((ticks * 1000).checked_div(rate)?);
    let age = since_boot.checked_sub(start).filter(|_| result == 0)?;
    SystemTime::now().checked_sub(age + TICK)
}

/// Removes the files that these ranks have made in a folder since a moment before they started.
fn remove_in(folder: &Path, pids: &[i32], since: SystemTime) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        // The file stays if its pid has been given to another process since.
        let ours = name
            .to_str()
            .and_then(owner)
            .is_some_and(|pid| pids.contains(&pid) && has_gone(pid));
        if !ours {
            continue;
        }
        // Nothing follows a symbolic link here.
        let may_be = entry.metadata().is_ok_and(|file| {
            file.is_file() && file.modified().is_ok_and(|modified| modified >= since)
        });
        if may_be {
            // Another user's file with such a name cannot be removed, and must not be.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The pid of the process that has created a file with this name, if it is one of libfabric's.
fn owner(name: &str) -> Option<i32> {
    let numbers: Option<Vec<i32>> = name.split(':').map(|part| part.parse().ok()).collect();
    match numbers?[..] {
        [pid, _, _] if pid > 0 => Some(pid),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_ranks_are_removed() {
        let folder =
            std::env::temp_dir().join(format!("portolan-leftovers-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let names = [
            "2147483071:0:3",
            "2147483073:0:1",
            "2147483072:0:0",
            "2147483071:0",
            "2147483071:0:3:1",
            "-2147483071:0:3",
            "sem.2147483071:0:3",
            "2147483071",
        ];
        for name in names {
            std::fs::write(folder.join(name), "").unwrap();
        }
        // A process of another container, which started before the job did.
        let older = std::fs::File::create(folder.join(names[1])).unwrap();
        let now = SystemTime::now();
        let before = now - Duration::from_secs(3600);
        older.set_modified(before).unwrap();
        remove_in(
            &folder,
            &[2_147_483_071, 2_147_483_073, 99],
            now - Duration::from_secs(60),
        );
        let left: Vec<_> = names
            .into_iter()
            .filter(|name| folder.join(name).exists())
            .collect();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(left, &names[1..]);
    }

    #[test]
    fn this_process_started_a_moment_ago() {
        let start = own_start().unwrap();
        let file = std::env::temp_dir().join(format!("portolan-start-{}", std::process::id()));
        std::fs::write(&file, "").unwrap();
        let modified = std::fs::metadata(&file).unwrap().modified().unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(start <= modified, "{start:?} {modified:?}");
        let executable = std::fs::metadata(std::env::current_exe().unwrap()).unwrap();
        let built = executable.modified().unwrap();
        assert!(start >= built, "{start:?} {built:?}");
    }
}
