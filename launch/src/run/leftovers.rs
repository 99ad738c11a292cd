//! Removes what foreign libraries leave in `/dev/shm` when a rank is killed.
//!
//! Portolan's own shared memory has no name there. libfabric's shm provider has a file per
//! endpoint, `PID:USER:NUMBER`, which only the owning process removes.

use std::path::Path;

use crate::os::has_gone;

/// Where named shared memory lies.
const FOLDER: &str = "/dev/shm";

/// Removes the files that the ranks with these pids have left. The ranks must have ended. If the
/// launcher was killed, the guard calls this.
pub(super) fn remove(pids: &[i32]) {
    remove_in(Path::new(FOLDER), pids);
}

fn remove_in(folder: &Path, pids: &[i32]) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        // The file stays if its pid has been given to another process since.
        let ours = name
            .to_str()
            .and_then(owner)
            .is_some_and(|pid| pids.contains(&pid) && has_gone(pid));
        if ours && entry.file_type().is_ok_and(|kind| kind.is_file()) {
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
        remove_in(&folder, &[2_147_483_071, 99]);
        let left: Vec<_> = names
            .into_iter()
            .filter(|name| folder.join(name).exists())
            .collect();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(left, &names[1..]);
    }
}
