//! An MPI implementation: its identity, its settings, how its programs are started.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::{SOON, said_by};
use super::network::Network;
use super::{as_told, places};
use crate::bench::job::{Job, whole_seconds};
use crate::os;
use crate::run::Bind;

/// Which implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Mpich,
    OpenMpi,
}

/// Settings with which an implementation is faster than by default, for some purpose.
#[derive(Clone, Copy, Debug, Default)]
struct Tuning {
    name: &'static str,
    /// Environment variables of the launcher, which passes them on to the ranks.
    variables: &'static [(&'static str, &'static str)],
    /// Arguments of the launcher.
    words: &'static [&'static str],
}

/// Open MPI over UCX, also on a machine without a fast network.
macro_rules! over_ucx {
    ($($more:literal),*) => {
        &["--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "pml_ucx_tls", "any",
          "--mca", "pml_ucx_devices", "any", $($more),*]
    };
}

/// Settings before version 5. Without `process_vm_readv` (`nocma`), Open MPI copies through shared
/// memory.
const OPENMPI_4: &[Tuning] = &[
    Tuning {
        name: "nocma",
        words: &["--mca", "btl_vader_single_copy_mechanism", "none"],
        variables: &[],
    },
    YIELD,
];
const OPENMPI_5: &[Tuning] = &[
    Tuning {
        name: "nocma",
        words: &["--mca", "smsc", "^cma"],
        variables: &[],
    },
    Tuning {
        name: "ucx",
        words: over_ucx!(),
        variables: &[],
    },
    Tuning {
        name: "ucx-posix",
        words: over_ucx!("-x", "UCX_TLS=posix,self"),
        variables: &[],
    },
    YIELD,
];
/// For ranks that share their cores with each other or with other work in a way that Open MPI does
/// not notice.
const YIELD: Tuning = Tuning {
    name: "yield",
    words: &["--mca", "mpi_yield_when_idle", "1"],
    variables: &[],
};
const MPICH: &[Tuning] = &[
    Tuning {
        name: "ucx-posix",
        variables: &[("MPIR_CVAR_NOLOCAL", "1"), ("UCX_TLS", "posix,self")],
        words: &[],
    },
    COLLECTIVES,
];
/// Without MPICH's own collectives in shared memory, which spin until the scheduler's next tick if
/// there are more ranks than cores.
const COLLECTIVES: Tuning = Tuning {
    name: "nodevcoll",
    variables: &[("MPIR_CVAR_DEVICE_COLLECTIVES", "none")],
    words: &[],
};

/// An implementation, the program built with it, and its settings.
#[derive(Clone, Debug)]
pub(in crate::bench) struct Peer {
    family: Family,
    version: String,
    /// What distinguishes it from another of the same version, such as `@FOLDER`; usually empty.
    mark: String,
    starter: PathBuf,
    program: PathBuf,
    tuning: Tuning,
    /// Why it cannot go over libfabric by itself; `None` if it can.
    no_fabric: Option<&'static str>,
    /// The network that it is to use under libfabric.
    network: Option<Network>,
}

impl Peer {
    /// Identifies the implementation to which an `mpiexec` belongs. Its program is not built yet.
    pub(super) fn identify(starter: &Path) -> Result<Self, String> {
        let said = said_by(Command::new(starter).arg("--version"), SOON)?;
        let family = if said.contains("HYDRA") {
            Family::Mpich
        } else if ["Open MPI", "OpenRTE", "open-mpi"]
            .iter()
            .any(|name| said.contains(name))
        {
            Family::OpenMpi
        } else {
            let first = said.lines().next().unwrap_or_default();
            let starter = starter.display();
            return Err(format!(
                "{starter} is of neither MPICH nor Open MPI: {first}"
            ));
        };
        let number =
            |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
        let version = said.split_whitespace().find(number).map(str::to_owned);
        let (over_fabric, otherwise) = match family {
            Family::Mpich => (
                said.contains("ch4:ofi") || said.contains("ucx,ofi"),
                "this MPICH was built without libfabric: the wheel `mpich` has it",
            ),
            Family::OpenMpi => (
                version.as_deref().is_some_and(|v| v.starts_with("4.")),
                "Open MPI 5 does not start over plain providers (\"PML cm cannot be selected\"): \
                 version 4, Debian's openmpi-bin, does",
            ),
        };
        Ok(Self {
            family,
            version: version
                .ok_or_else(|| format!("{} does not tell its version", starter.display()))?,
            mark: String::new(),
            starter: starter.to_owned(),
            program: PathBuf::new(),
            tuning: Tuning::default(),
            no_fabric: (!over_fabric).then_some(otherwise),
            network: None,
        })
    }

    pub(super) fn with_program(self, program: PathBuf) -> Self {
        Self { program, ..self }
    }

    /// This peer under a name that is not among `taken`, to which the name is added. If another has
    /// its name, the `folder` in which this one was found is appended.
    pub(super) fn distinct_from(mut self, taken: &mut BTreeSet<String>, folder: &str) -> Self {
        // A `+` separates the settings from the name, and a comma the names of `--only`.
        let folder = folder.replace(['+', ','], "-");
        let mut found = 1;
        while !taken.insert(self.plain_name()) {
            self.mark = match found {
                1 => format!("@{folder}"),
                _ => format!("@{folder}-{found}"),
            };
            found += 1;
        }
        self
    }

    /// Name, version and settings, such as `openmpi-5.0.11+ucx-posix`.
    pub(in crate::bench) fn name(&self) -> String {
        let name = self.plain_name();
        match (&self.network, self.tuning.name) {
            (Some(network), _) => self.name_over(network),
            (None, "") => name,
            (None, tuning) => format!("{name}+{tuning}"),
        }
    }

    /// Its name over libfabric.
    fn name_over(&self, network: &Network) -> String {
        format!("{}+ofi-{}", self.plain_name(), network.lowest())
    }

    /// Name and version, and the mark if it has one.
    pub(super) fn plain_name(&self) -> String {
        let family = match self.family {
            Family::Mpich => "mpich",
            Family::OpenMpi => "openmpi",
        };
        format!("{family}-{}{}", self.version, self.mark)
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    fn major(&self) -> u32 {
        let major = self.version.split('.').next();
        major.and_then(|major| major.parse().ok()).unwrap_or(0)
    }

    /// This implementation with each of the settings that are known to be better for the job.
    pub(super) fn tuned(&self, job: &Job) -> Vec<Self> {
        let all = match (self.family, self.major()) {
            (Family::Mpich, _) => MPICH,
            (Family::OpenMpi, 0..5) => OPENMPI_4,
            (Family::OpenMpi, _) => OPENMPI_5,
        };
        let busy = job.busy > 0;
        let shared = busy || matches!(&job.pin, Bind::List(list) if !all_differ(list));
        let applies = |tuning: &&Tuning| match tuning.name {
            // Open MPI yields by itself if it sees more ranks than cores.
            "yield" => shared && !job.crowded,
            "nodevcoll" => job.crowded || shared,
            _ => true,
        };
        let with = |&tuning| Self {
            tuning,
            ..self.clone()
        };
        all.iter().filter(applies).map(with).collect()
    }

    /// This implementation over libfabric and the given network; otherwise the name that it would
    /// have there, and why it cannot.
    pub(super) fn over(&self, network: &Network) -> Result<Self, (String, String)> {
        match self.no_fabric {
            None => Ok(Self {
                network: Some(network.clone()),
                ..self.clone()
            }),
            Some(why) => Err((self.name_over(network), why.to_owned())),
        }
    }

    /// Adds the network to the launcher's arguments and environment.
    fn use_network(&self, command: &mut Command, network: &Network) {
        let provider = network.lowest();
        if let Some(domain) = &network.domain {
            command.env("FI_TCP_IFACE", domain);
        }
        match self.family {
            Family::Mpich => {
                command
                    .env("MPIR_CVAR_NOLOCAL", "1")
                    .env("MPIR_CVAR_CH4_NETMOD", "ofi")
                    .env("FI_PROVIDER", provider);
            }
            Family::OpenMpi => {
                command.args(["--mca", "pml", "cm", "--mca", "mtl", "ofi"]);
                command.args(["--mca", "mtl_ofi_provider_include", provider]);
            }
        }
    }

    /// Starts the program as the job requires. `begun` is the moment of the monotonic clock at
    /// which the job began.
    pub(in crate::bench) fn command(&self, job: &Job, begun: u64) -> Command {
        let mut command = Command::new(&self.starter);
        command.envs(self.tuning.variables.iter().copied());
        command.args(self.tuning.words);
        if let Some(network) = &self.network {
            self.use_network(&mut command, network);
        }
        let patience = whole_seconds(job.patience());
        match self.family {
            Family::Mpich => {
                command.env("MPIEXEC_TIMEOUT", patience);
                command.args(["-bind-to", "none"]);
            }
            Family::OpenMpi => {
                if os::is_root() {
                    command.arg("--allow-run-as-root");
                }
                command.args(["--timeout", &patience]);
                command.args(["--bind-to", "none"]);
                if job.crowded && self.major() < 5 {
                    command.arg("--oversubscribe");
                } else if job.crowded {
                    command.args(["--map-by", ":OVERSUBSCRIBE"]);
                }
            }
        }
        if let Some(places) = places(job) {
            // The program binds itself: each launcher binds in its own way, or not at all.
            command.env("PEER_PROCESSORS", as_told(&places));
            if self.family == Family::OpenMpi {
                command.args(["-x", "PEER_PROCESSORS"]);
            }
        }
        command
            .args(["-n", &job.ranks.to_string()])
            .arg(&self.program)
            .args(job.words(begun));
        command
    }
}

fn all_differ(list: &[usize]) -> bool {
    let mut sorted = list.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}

#[cfg(test)]
mod tests {
    use portolan_benches::{Pattern, Plan};

    use super::super::joined;
    use super::*;
    use crate::bench::job::Contender;
    use crate::bench::job::tests::job;
    use crate::run;

    fn peer(family: Family, version: &str) -> Peer {
        Peer {
            family,
            version: version.to_owned(),
            mark: String::new(),
            starter: PathBuf::new(),
            program: PathBuf::new(),
            tuning: Tuning::default(),
            no_fabric: None,
            network: None,
        }
    }

    /// Launchers number cores in different orders. With two sockets, another launcher's ranks could
    /// be on one socket while Portolan's ranks are on both.
    #[test]
    fn peers_have_the_places_that_ours_have() {
        let cores = run::cores().unwrap();
        let whole: Vec<_> = cores.iter().map(|core| joined(core, "+")).collect();
        let turns = [&whole[..], &whole[..]].concat().join(",");
        let twice = 2 * whole.len() as u32;
        for (pin, ranks, told) in [
            (Bind::Core, twice, Some(&*turns)),
            (Bind::List(vec![1, 0]), 2, Some("1,0")),
            (Bind::None, 2, None),
        ] {
            let job = Job {
                pin,
                ranks,
                ..job(Pattern::Latency)
            };
            for family in [Family::Mpich, Family::OpenMpi] {
                let command = peer(family, "5.0.11").command(&job, 0);
                let set = command
                    .get_envs()
                    .find(|(name, _)| *name == "PEER_PROCESSORS");
                let set = set
                    .and_then(|(_, value)| value)
                    .map(|set| set.to_string_lossy());
                assert_eq!(set.as_deref(), told, "{family:?}");
                let words: Vec<_> = command.get_args().collect();
                let own = words
                    .windows(2)
                    .find(|w| w[0].to_string_lossy().ends_with("-bind-to"));
                assert_eq!(own.unwrap()[1], "none", "{words:?}");
            }
        }
    }

    #[test]
    fn an_mpiexec_is_ended_after_its_own_time_and_ours_by_its_launcher() {
        let job = Job {
            limit: 700.0,
            plans: vec![Plan::with_rounds(0, 1)],
            ..job(Pattern::Idle)
        };
        let patience = job.patience();
        assert!(patience.as_secs() > 700, "{patience:?}");
        let limit = Contender::Peer(peer(Family::Mpich, "4.2.0")).limit(&job);
        assert!(limit.is_some_and(|limit| limit > patience), "{limit:?}");
        assert_eq!(Contender::Ours(None).limit(&job), None);
        let told = Some(whole_seconds(patience));
        let mpich = peer(Family::Mpich, "4.2.0").command(&job, 0);
        let set = mpich
            .get_envs()
            .find(|(name, _)| *name == "MPIEXEC_TIMEOUT");
        let set = set
            .and_then(|(_, value)| value)
            .and_then(|set| set.to_str());
        assert_eq!(set, told.as_deref());
        let open = peer(Family::OpenMpi, "5.0.11").command(&job, 0);
        let words: Vec<_> = open.get_args().filter_map(|word| word.to_str()).collect();
        let set = words.windows(2).find(|words| words[0] == "--timeout");
        assert_eq!(set.map(|words| words[1]), told.as_deref());
    }

    #[test]
    fn a_command_that_is_no_mpiexec_is_refused() {
        let error = Peer::identify(Path::new("/bin/true")).unwrap_err();
        assert!(error.contains("neither MPICH nor Open MPI"), "{error}");
    }

    #[test]
    fn peers_of_one_version_have_different_names() {
        let mut taken = BTreeSet::new();
        let mut name = |version: &str, folder: &str| {
            let peer = peer(Family::Mpich, version).distinct_from(&mut taken, folder);
            let job = job(Pattern::Latency);
            (peer.name(), peer.tuned(&job)[0].name())
        };
        let named = |name: &str| (name.to_owned(), format!("{name}+ucx-posix"));
        assert_eq!(name("4.0.2", "mpich"), named("mpich-4.0.2"));
        assert_eq!(name("4.0.2", "a+b,c"), named("mpich-4.0.2@a-b-c"));
        assert_eq!(name("4.0.2", "a-b-c"), named("mpich-4.0.2@a-b-c-2"));
        assert_eq!(name("5.0.2", "mpich"), named("mpich-5.0.2"));
    }

    #[test]
    fn names_have_version_and_settings() {
        let peer = peer(Family::OpenMpi, "5.0.11");
        let mut job = Job {
            pin: Bind::Core,
            ..job(Pattern::Latency)
        };
        let names = |job: &Job| -> Vec<String> {
            let tuned = peer.tuned(job);
            tuned.iter().map(Peer::name).collect()
        };
        assert_eq!(peer.name(), "openmpi-5.0.11");
        let usual = [
            "openmpi-5.0.11+nocma",
            "openmpi-5.0.11+ucx",
            "openmpi-5.0.11+ucx-posix",
        ];
        assert_eq!(names(&job), usual);
        job.pin = Bind::List(vec![0, 0]);
        assert_eq!(names(&job).last().unwrap(), "openmpi-5.0.11+yield");
        (job.pin, job.busy) = (Bind::Core, 2);
        assert_eq!(names(&job).last().unwrap(), "openmpi-5.0.11+yield");
        job.crowded = true;
        assert_eq!(names(&job), usual, "it sees that by itself");
    }
}
