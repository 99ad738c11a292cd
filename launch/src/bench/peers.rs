//! Other implementations: finding them, building our programs with them, starting these.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use portolan_benches::Pattern;

use super::job::{Job, PATIENCE};
use crate::os;
use crate::run::Bind;

/// The sources of the peers' programs, which this command carries along.
const SOURCES: [(&str, &str); 9] = [
    (
        "ping_pong.h",
        include_str!("../../../benches/peers/ping_pong.h"),
    ),
    ("depth.c", include_str!("../../../benches/peers/depth.c")),
    ("peer.h", include_str!("../../../benches/peers/peer.h")),
    (
        "windows.h",
        include_str!("../../../benches/peers/windows.h"),
    ),
    (
        "latency.c",
        include_str!("../../../benches/peers/latency.c"),
    ),
    (
        "bandwidth.c",
        include_str!("../../../benches/peers/bandwidth.c"),
    ),
    (
        "bibandwidth.c",
        include_str!("../../../benches/peers/bibandwidth.c"),
    ),
    ("rate.c", include_str!("../../../benches/peers/rate.c")),
    (
        "barrier.c",
        include_str!("../../../benches/peers/barrier.c"),
    ),
];

/// Which implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Mpich,
    OpenMpi,
}

/// Settings with which an implementation is better than by default, for some purpose.
#[derive(Clone, Copy, Debug)]
struct Tuning {
    name: &'static str,
    variables: &'static [(&'static str, &'static str)],
    words: &'static [&'static str],
}

/// An implementation, the program built with it, and how it is run.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    family: Family,
    version: String,
    starter: PathBuf,
    program: PathBuf,
    tuning: Option<Tuning>,
}

/// What was looked for.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) peers: Vec<Peer>,
    /// Those that are not here, and why.
    pub(super) missing: Vec<(String, String)>,
}

/// Looks for MPICH and Open MPI on the path and in `folders`, and builds the program of `pattern` with
/// each.
pub(super) fn find(pattern: Pattern, folders: &[PathBuf], tuned: bool) -> Found {
    let mut found = Found::default();
    for (name, packages) in [
        ("mpich", "mpich libmpich-dev"),
        ("openmpi", "openmpi-bin libopenmpi-dev"),
    ] {
        let commands = [format!("mpicc.{name}"), format!("mpiexec.{name}")];
        match commands.each_ref().map(|command| on_path(command)) {
            [Some(compiler), Some(starter)] => found.add(name, &compiler, &starter, pattern, tuned),
            _ => {
                let [compiler, starter] = commands;
                let why = format!(
                    "{compiler} and {starter} are not on the path (Debian: apt-get install {packages}; \
                     or name a folder with --peer-dir)"
                );
                found.missing.push((name.to_owned(), why));
            }
        }
    }
    if found.peers.is_empty()
        && let (Some(compiler), Some(starter)) = (on_path("mpicc"), on_path("mpiexec"))
    {
        found.add("mpicc", &compiler, &starter, pattern, tuned);
    }
    for folder in folders {
        let bin = [folder.join("bin"), folder.clone()];
        let bin = bin.iter().find(|bin| bin.join("mpicc").is_file());
        let name = folder.display().to_string();
        match bin {
            Some(bin) => {
                found.add(
                    &name,
                    &bin.join("mpicc"),
                    &bin.join("mpiexec"),
                    pattern,
                    tuned,
                );
            }
            None => {
                let why = "there is no bin/mpicc in it".to_owned();
                found.missing.push((name, why));
            }
        }
    }
    found
}

impl Found {
    fn add(&mut self, name: &str, compiler: &Path, starter: &Path, pattern: Pattern, tuned: bool) {
        let built = identify(starter).and_then(|(family, version)| {
            let program = build(compiler, &version, pattern)?;
            Ok(Peer {
                family,
                version,
                starter: starter.to_owned(),
                program,
                tuning: None,
            })
        });
        match built {
            Ok(peer) => {
                let tunings = if tuned { peer.tunings() } else { Vec::new() };
                let with = |&tuning: &Tuning| Peer {
                    tuning: Some(tuning),
                    ..peer.clone()
                };
                let all = tunings.iter().map(with).collect::<Vec<_>>();
                self.peers.push(peer);
                self.peers.extend(all);
            }
            Err(why) => self.missing.push((name.to_owned(), why)),
        }
    }
}

impl Peer {
    /// Name and version, such as `openmpi-4.1.4`.
    pub(super) fn name(&self) -> String {
        let family = match self.family {
            Family::Mpich => "mpich",
            Family::OpenMpi => "openmpi",
        };
        let tuning = self.tuning.map_or("", |tuning| tuning.name);
        let dash = if tuning.is_empty() { "" } else { "-" };
        format!("{family}-{}{dash}{tuning}", self.version)
    }

    fn major(&self) -> u32 {
        let major = self.version.split('.').next();
        major.and_then(|major| major.parse().ok()).unwrap_or(0)
    }

    /// Settings that are known to be better for shared memory than the defaults.
    fn tunings(&self) -> Vec<Tuning> {
        let plain = |name, words| Tuning {
            name,
            variables: &[],
            words,
        };
        match (self.family, self.major()) {
            (Family::OpenMpi, 0..5) => vec![plain(
                "nocma",
                &["--mca", "btl_vader_single_copy_mechanism", "none"],
            )],
            (Family::OpenMpi, _) => vec![
                plain("nocma", &["--mca", "smsc", "^cma"]),
                plain(
                    "ucx",
                    &[
                        "--mca",
                        "pml",
                        "ucx",
                        "--mca",
                        "pml_ucx_tls",
                        "any",
                        "--mca",
                        "pml_ucx_devices",
                        "any",
                        "-x",
                        "UCX_TLS=posix,self",
                    ],
                ),
            ],
            (Family::Mpich, _) => vec![
                Tuning {
                    name: "ucx",
                    variables: &[("MPIR_CVAR_NOLOCAL", "1"), ("UCX_TLS", "posix,self")],
                    words: &[],
                },
                Tuning {
                    name: "nodevcoll",
                    variables: &[("MPIR_CVAR_DEVICE_COLLECTIVES", "none")],
                    words: &[],
                },
            ],
        }
    }

    /// Starts the program as the job has it.
    pub(super) fn command(&self, job: &Job) -> Command {
        let mut command = Command::new(&self.starter);
        if let Some(tuning) = self.tuning {
            command.envs(tuning.variables.iter().copied());
            command.args(tuning.words);
        }
        let core = job.pin == Bind::Core && !job.crowded;
        match self.family {
            Family::Mpich => {
                command.env("MPIEXEC_TIMEOUT", PATIENCE);
                command.args(["-bind-to", if core { "core" } else { "none" }]);
            }
            Family::OpenMpi => {
                if os::is_root() {
                    command.arg("--allow-run-as-root");
                }
                command.args(["--timeout", PATIENCE]);
                command.args(["--bind-to", if core { "core" } else { "none" }]);
                if job.crowded && self.major() < 5 {
                    command.arg("--oversubscribe");
                } else if job.crowded {
                    command.args(["--map-by", ":OVERSUBSCRIBE"]);
                }
            }
        }
        if let Bind::List(list) = &job.pin {
            let list: Vec<String> = list.iter().map(usize::to_string).collect();
            // The program puts itself there: each launcher has a way of its own, or none.
            command.env("PEER_PROCESSORS", list.join(","));
            if self.family == Family::OpenMpi {
                command.args(["-x", "PEER_PROCESSORS"]);
            }
        }
        command
            .args(["-n", &job.ranks.to_string()])
            .arg(&self.program)
            .arg(job.window.to_string())
            .arg(job.limit.to_string())
            .args(job.plans.iter().map(ToString::to_string));
        command
    }
}

/// Which implementation an `mpiexec` belongs to, and its version.
fn identify(starter: &Path) -> Result<(Family, String), String> {
    let said = said_by(Command::new(starter).arg("--version"))?;
    let version = || {
        let digits =
            |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
        said.split_whitespace().find(digits).map(str::to_owned)
    };
    let family = if said.contains("HYDRA") {
        Family::Mpich
    } else if said.contains("Open MPI") || said.contains("OpenRTE") || said.contains("open-mpi") {
        Family::OpenMpi
    } else {
        let first = said.lines().next().unwrap_or_default();
        return Err(format!(
            "{} is of neither MPICH nor Open MPI: {first}",
            starter.display()
        ));
    };
    version()
        .map(|version| (family, version))
        .ok_or_else(|| format!("{} does not tell its version", starter.display()))
}

/// Builds the program of a pattern, or finds it as it was built before.
fn build(compiler: &Path, version: &str, pattern: Pattern) -> Result<PathBuf, String> {
    let mut hasher = DefaultHasher::new();
    version.hash(&mut hasher);
    compiler
        .canonicalize()
        .unwrap_or_default()
        .hash(&mut hasher);
    said_by(Command::new(compiler).arg("-show"))?.hash(&mut hasher);
    SOURCES.hash(&mut hasher);
    let folder = cache().join(format!("peers-{:016x}", hasher.finish()));
    let program = folder.join(pattern.name());
    if program.is_file() {
        return Ok(program);
    }
    let say = |error| format!("cannot write to {}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(say)?;
    for (name, text) in SOURCES {
        fs::write(folder.join(name), text).map_err(say)?;
    }
    // Another command may be building the same: whoever is last replaces what is the same.
    let draft = folder.join(format!("{}.{}", pattern.name(), std::process::id()));
    let mut command = Command::new(compiler);
    command.arg("-O3").arg("-o").arg(&draft);
    said_by(command.arg(folder.join(format!("{}.c", pattern.name()))))?;
    fs::rename(&draft, &program).map_err(say)?;
    Ok(program)
}

/// Where things are kept that can be made again.
fn cache() -> PathBuf {
    let set = |name| env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let cache = set("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| Path::new(&home).join(".cache")));
    cache.unwrap_or_else(env::temp_dir).join("portolan")
}

/// What a command says on its standard output, if it succeeds.
fn said_by(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("cannot start {name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "{name} failed ({}): {}",
        output.status,
        why.trim_end()
    ))
}

fn on_path(command: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(command))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_a_compiler_is_said_to_be_missing() {
        let folder = PathBuf::from("/no/such/folder");
        let found = find(Pattern::Latency, &[folder], false);
        let (name, why) = found.missing.last().unwrap();
        assert_eq!(name, "/no/such/folder");
        assert!(why.contains("bin/mpicc"), "{why}");
    }

    #[test]
    fn a_command_that_is_no_mpiexec_is_refused() {
        let error = identify(Path::new("/bin/true")).unwrap_err();
        assert!(error.contains("neither MPICH nor Open MPI"), "{error}");
    }

    #[test]
    fn every_pattern_has_its_program() {
        for pattern in Pattern::ALL {
            let name = format!("{}.c", pattern.name());
            assert!(SOURCES.iter().any(|source| source.0 == name), "{name}");
        }
    }
}
