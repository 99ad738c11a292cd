//! Things that a run must not leave behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::lane::Run;
use crate::{Failure, Repo};

/// What can be left behind: shared memory (whoever made it), abstract sockets, processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Leftovers {
    memory: BTreeSet<String>,
    sockets: BTreeSet<String>,
    processes: BTreeSet<String>,
}

/// The lane: nothing may be there that was not there before the first lane.
pub(super) fn lane(run: &mut Run<'_>) -> Result<(), Failure> {
    let now = Leftovers::look(run.repo);
    let new = |before: &BTreeSet<String>, now: &BTreeSet<String>| -> Vec<String> {
        now.difference(before).cloned().collect()
    };
    let mut memory = new(&run.before.memory, &now.memory);
    memory.retain(|name| is_ours(name));
    run.check("files in /dev/shm", &memory);
    run.check("abstract sockets", &new(&run.before.sockets, &now.sockets));
    run.check("processes", &new(&run.before.processes, &now.processes));
    Ok(())
}

impl Leftovers {
    /// Lists what is there now.
    pub(super) fn look(repo: &Repo) -> Self {
        Self {
            memory: shared_memory(),
            sockets: sockets(),
            processes: processes(repo),
        }
    }
}

fn shared_memory() -> BTreeSet<String> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.collect()
}

/// Whether a file in `/dev/shm` that is new is one that the tests should have removed.
fn is_ours(name: &str) -> bool {
    // MPICH also runs under Portolan's launcher, which must clean up after it.
    name.contains("portolan") || name.contains("mpich") || orphaned(name)
}

/// Whether this is a file of libfabric's shm provider, `PID:USER:NUMBER`, whose process has gone.
fn orphaned(name: &str) -> bool {
    let numbers: Option<Vec<u32>> = name.split(':').map(|part| part.parse().ok()).collect();
    match numbers.as_deref() {
        Some([pid, _, _]) => !Path::new("/proc").join(pid.to_string()).exists(),
        _ => false,
    }
}

fn sockets() -> BTreeSet<String> {
    let list = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let names = list.lines().filter_map(|line| line.rsplit_once(" @"));
    let ours = names.filter(|(_, name)| name.contains("portolan"));
    ours.map(|(_, name)| format!("@{name}")).collect()
}

/// Processes that run a program from the build folder, except this one.
fn processes(repo: &Repo) -> BTreeSet<String> {
    let Ok(target) = repo.target().canonicalize() else {
        return BTreeSet::new();
    };
    let me = std::process::id().to_string();
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if pid == me || !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        // If the process has ended meanwhile or is another user's, the link cannot be read.
        if let Ok(program) = fs::read_link(entry.path().join("exe"))
            && program.starts_with(&target)
            && !program.ends_with("xtask")
        {
            found.insert(format!("process {pid}: {}", program.display()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_seen_as_no_leftover() {
        let repo = Repo::find().unwrap();
        let me = format!("process {}:", std::process::id());
        assert!(processes(&repo).iter().all(|line| !line.starts_with(&me)));
    }

    #[test]
    fn a_file_of_libfabrics_is_a_leftover_when_its_process_has_gone() {
        // Above every pid that Linux assigns.
        assert!(orphaned("2147483071:0:3"));
        assert!(!orphaned(&format!("{}:0:3", std::process::id())));
        for other in ["2147483071:0", "2147483071:0:3:1", "sem.2147483071:0:3", ""] {
            assert!(!orphaned(other), "{other}");
        }
    }

    #[test]
    fn an_abstract_socket_is_seen() {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixListener};
        let name = format!("portolan-xtask-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        assert!(sockets().contains(&format!("@{name}")));
        drop(listener);
        assert!(!sockets().contains(&format!("@{name}")));
    }
}
