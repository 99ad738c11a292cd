//! The lanes in which ranks are processes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::counts::Dialect;
use super::lane::Run;
use super::stock::EVERYTHING;
use crate::Failure;
use crate::wheel::newer_libfabric;

/// Job sizes, as everywhere in this project: odd sizes find errors that even sizes hide. The unit
/// tests run the suite at more sizes (over libfabric at 2 and 3), with threads as ranks.
const SIZES: &[u32] = &[1, 2, 3, 7, 8];

/// Job sizes for the emulator, in which one process runs at a time.
const EMULATED: &[u32] = &[1, 2, 3, 8];

/// Job sizes for providers of libfabric, and for all variants in the full matrix.
const PROVIDERS: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 8];

/// Job sizes for other variants.
const FEW: &[u32] = &[2, 3];

/// The job size for providers that differ little from others, or are chosen by few.
const PAIR: &[u32] = &[2];

/// Job sizes under a foreign launcher, where only the start is tested.
const FOREIGN: &[u32] = &[3];

/// The emulator backend. It copies a message of 4 GiB in small pieces from one process to another,
/// which takes a minute and a half, so that runs only in the full matrix. Cases that repeat
/// something many times repeat it less often here, too, unless the full matrix is asked for: each
/// step is a request to the process that has the machine. (With threads as ranks they always repeat
/// it.)
const EMULATOR: &str = "portolan-t3e-sim";

/// The backend of shared memory. Its program has an allocator that shares vectors.
const SHARED: &str = "portolan-shm";

/// The backend over libfabric. A message of 4 GiB over the loopback interface takes ten seconds
/// each time.
const NETWORK: &str = "portolan-ofi";

/// A script that creates hosts on this machine and runs jobs across them.
const HOSTS: &str = "launch/tests/failure/hosts";

/// Job sizes in the full matrix, which include more ranks than any machine has cores.
const ALL_SIZES: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 8, 12, 16];

/// The example with which a backend runs the suite as processes. The executable is named after the
/// package, with `-rank`.
const PROGRAM: &str = "conformance_rank";

/// Runs the suite over every backend, under Portolan's launcher.
pub(super) fn conformance(run: &mut Run<'_>) -> Result<(), Failure> {
    let packages = backends(run);
    if !build(run, &packages)? {
        return Ok(());
    }
    let launcher = run.repo.target().join("debug").join("portolan");
    for package in &packages {
        for variant in variants(package) {
            for ranks in variant.sizes.of(run.all) {
                let mut command = run.repo.command(&launcher);
                command
                    .args(["run", "-n", &ranks.to_string(), "--"])
                    .arg(program(run, package));
                run.thorough(&mut command);
                command.envs(variant.settings.iter().map(|(name, value)| (name, value)));
                if (package == EMULATOR || package == NETWORK) && !run.all {
                    command.env("PORTOLAN_TEST_HUGE", "0");
                }
                if package == EMULATOR && !run.all {
                    command.env("PORTOLAN_TEST_MANY", "0");
                }
                let what = format!("{package}{}, {ranks} processes", variant.name);
                run.step(&what, Dialect::Cases, command)?;
            }
        }
    }
    match newer_libfabric() {
        Some(library) => over_newer(run, &library),
        None => {
            run.leave_out(
                "ofi over libfabric 2",
                "there is no wheel of MPICH (`sh benches/peers/get-wheels mpich`)",
            );
            Ok(())
        }
    }
}

/// Tests over a second version of libfabric, which is loaded instead of the system's: tests of the
/// library itself, of its endpoints, of full queues, of operations that never end and of dead
/// peers. And the suite with threads as ranks over TCP and shared memory, because to libfabric
/// endpoints of one process differ from those of two processes.
fn over_newer(run: &mut Run<'_>, library: &Path) -> Result<(), Failure> {
    let Some(folder) = library.parent() else {
        return Ok(());
    };
    let parts: [(&str, &[&str]); 7] = [
        ("the library", &["--test=library", "--"]),
        ("endpoints", &["--lib", "--", "endpoint::tests::"]),
        ("without room", &["--lib", "--", "busy::"]),
        ("what never ends", &["--lib", "--", "abandon::"]),
        ("the dead on shm", &["--test=deaths", "--"]),
        ("threads on tcp", &["--test=conformance", "--", "tcp::"]),
        ("threads on shm", &["--test=conformance", "--", "shm::"]),
    ];
    for (part, words) in parts {
        let mut command = run.repo.cargo(&["test"]);
        // With all packages, because otherwise everything would be built again; the filter leaves
        // only tests of one package.
        command.args(EVERYTHING).args(words).arg("--show-output");
        command.env("LD_LIBRARY_PATH", folder);
        if !run.all {
            command.env("PORTOLAN_TEST_HUGE", "0");
        }
        let what = format!("{NETWORK} over libfabric 2, {part}");
        run.step(&what, Dialect::Libtest, command)?;
    }
    Ok(())
}

/// One configuration of a backend.
#[derive(Default)]
struct Variant {
    /// The text after the backend's name.
    name: &'static str,
    settings: Vec<(&'static str, PathBuf)>,
    sizes: Sizes,
}

/// The job sizes for a variant.
#[derive(Clone, Copy, Default)]
enum Sizes {
    #[default]
    Usual,
    Emulated,
    Provider,
    Few,
    Pair,
}

impl Sizes {
    /// The numbers of ranks, by default or in the full matrix.
    fn of(self, all: bool) -> &'static [u32] {
        match (self, all) {
            (Self::Usual, false) => SIZES,
            (Self::Emulated, false) => EMULATED,
            (Self::Usual | Self::Emulated, true) => ALL_SIZES,
            (Self::Few, false) | (Self::Pair, true) => FEW,
            (Self::Pair, false) => PAIR,
            (Self::Provider, _) | (Self::Few, true) => PROVIDERS,
        }
    }
}

/// The configurations in which the suite is run over a backend. The libfabric backend runs with
/// each provider that every machine has, and with a second version of the library if there is one.
fn variants(package: &str) -> Vec<Variant> {
    if package == SHARED {
        let from = |bytes: &'static str| ("PORTOLAN_SHM_ALLOC_MIN", PathBuf::from(bytes));
        return vec![
            Variant {
                settings: vec![from("1T")],
                ..Variant::default()
            },
            Variant {
                name: ", vectors shared",
                settings: vec![from("4k")],
                sizes: Sizes::Few,
            },
        ];
    }
    if package != NETWORK {
        let sizes = match package {
            EMULATOR => Sizes::Emulated,
            _ => Sizes::Usual,
        };
        return vec![Variant {
            sizes,
            ..Variant::default()
        }];
    }
    let provider = |name: &'static str| ("PORTOLAN_OFI_PROVIDER", PathBuf::from(name));
    let loopback = ("PORTOLAN_OFI_INTERFACE", PathBuf::from("lo"));
    let registers = ("PORTOLAN_OFI_HMEM", PathBuf::from("on"));
    let mut variants = vec![
        Variant {
            name: " on tcp",
            settings: vec![provider("tcp"), loopback.clone()],
            sizes: Sizes::Provider,
        },
        Variant {
            name: " on tcp, which matches",
            settings: vec![
                provider("tcp"),
                loopback.clone(),
                ("PORTOLAN_MATCH", PathBuf::from("native")),
            ],
            sizes: Sizes::Few,
        },
        // The provider orders datagrams by itself, and resends lost ones.
        Variant {
            name: " on udp",
            settings: vec![
                provider("udp;ofi_rxd"),
                loopback.clone(),
                ("PORTOLAN_TEST_HUGE", PathBuf::from("0")),
            ],
            sizes: Sizes::Few,
        },
        Variant {
            name: " on sockets",
            settings: vec![provider("sockets"), loopback.clone()],
            sizes: Sizes::Provider,
        },
        Variant {
            name: " on net",
            settings: vec![provider("net"), loopback.clone()],
            sizes: Sizes::Pair,
        },
        Variant {
            name: " on shm",
            settings: vec![provider("shm")],
            sizes: Sizes::Provider,
        },
        Variant {
            name: " on shm with FI_HMEM",
            settings: vec![provider("shm"), registers],
            sizes: Sizes::Few,
        },
    ];
    let matching = [
        (" of libfabric 2 on tcp", "software"),
        (" of libfabric 2 on tcp, which matches", "native"),
    ];
    if let Some(library) = newer_libfabric() {
        variants.extend(matching.map(|(name, matching)| Variant {
            name,
            settings: vec![
                provider("tcp"),
                loopback.clone(),
                ("PORTOLAN_MATCH", PathBuf::from(matching)),
                ("PORTOLAN_OFI_LIBRARY", library.clone()),
            ],
            sizes: match matching {
                "native" => Sizes::Few,
                _ => Sizes::Provider,
            },
        }));
        variants.extend(["auto", "on"].map(|memory| Variant {
            name: match memory {
                "on" => " of libfabric 2 on shm with FI_HMEM",
                _ => " of libfabric 2 on shm",
            },
            settings: vec![
                provider("shm"),
                ("PORTOLAN_OFI_HMEM", PathBuf::from(memory)),
                ("PORTOLAN_OFI_LIBRARY", library.clone()),
            ],
            sizes: match memory {
                "on" => Sizes::Few,
                _ => Sizes::Provider,
            },
        }));
        let others = [
            (" of libfabric 2 on sockets", "sockets"),
            (" of libfabric 2 on udp", "udp;ofi_rxd"),
            (" of libfabric 2 on ofi_rxm", "tcp;ofi_rxm"),
        ];
        variants.extend(others.map(|(name, other)| Variant {
            name,
            settings: vec![
                provider(other),
                loopback.clone(),
                ("PORTOLAN_OFI_LIBRARY", library.clone()),
            ],
            sizes: Sizes::Pair,
        }));
        variants.push(Variant {
            name: " of libfabric 2 on sm2",
            settings: vec![provider("sm2"), ("PORTOLAN_OFI_LIBRARY", library.clone())],
            sizes: Sizes::Few,
        });
    }
    variants
}

/// Runs Portolan's ranks under MPICH's launcher, and MPICH's ranks under Portolan's, so that
/// neither side is tested only against itself.
pub(super) fn interop(run: &mut Run<'_>) -> Result<(), Failure> {
    let Some(hydra) = ["mpiexec.hydra", "mpiexec.mpich"]
        .into_iter()
        .find(|name| starts(name))
    else {
        run.not_here("MPICH is not installed (package mpich)");
        return Ok(());
    };
    let packages = backends(run);
    if !build(run, &packages)? {
        return Ok(());
    }
    for package in &packages {
        for ranks in if run.all { PROVIDERS } else { FOREIGN } {
            let mut command = run.repo.command(hydra);
            command
                .args(["-n", &ranks.to_string()])
                .arg(program(run, package));
            if package == NETWORK && !run.all {
                command.env("PORTOLAN_TEST_HUGE", "0");
            }
            let what = format!("{package}, {ranks} processes under {hydra}");
            run.step(&what, Dialect::Cases, command)?;
        }
    }
    across(run)?;
    for filter in ["hydra", "mpich"] {
        let mut command = run.repo.cargo(&["test"]);
        command
            .args(EVERYTHING)
            .args(["--test", "pmi", "--", filter]);
        let what = format!("the launcher's tests with {filter}");
        run.step(&what, Dialect::Libtest, command)?;
    }
    Ok(())
}

/// Runs the suite on three hosts, which are network namespaces, in both ways of matching. (The loss
/// of a host is covered by the launcher's tests.)
fn across(run: &mut Run<'_>) -> Result<(), Failure> {
    let (ours, theirs) = (("software", ""), ("native", ", where the provider matches"));
    // Of five ranks, the last host has one.
    for ((matching, how), ranks, each) in
        [(ours, 3, 1), (ours, 5, 2), (theirs, 3, 1), (theirs, 5, 2)]
    {
        let mut command = run.repo.command(run.repo.path(HOSTS));
        let name = format!("{}-suite", std::process::id());
        command.args(["with", &name, &ranks.to_string()]);
        command.env("HOSTS_EACH", each.to_string());
        command.arg(program(run, NETWORK));
        for (name, value) in [
            ("OFI_INTERFACE", "dat"),
            ("OFI_PROVIDER", "tcp"),
            ("MATCH", matching),
            ("TEST_HUGE", "0"),
        ] {
            command.env(format!("PORTOLAN_{name}"), value);
        }
        let what = format!("{NETWORK}, {ranks} processes on three hosts{how}");
        run.step(&what, Dialect::Cases, command)?;
    }
    Ok(())
}

/// Backends that have a program for the suite.
fn backends(run: &Run<'_>) -> Vec<String> {
    let has = |folder: &str| {
        run.repo
            .path(&format!("{folder}/examples/{PROGRAM}.rs"))
            .is_file()
    };
    let members = run.repo.backends().filter(|member| has(&member.folder));
    members.map(|member| member.package.clone()).collect()
}

/// Builds the launcher and the backends' programs together with everything that the unit tests have
/// built, because the features of dependencies follow from what is built together.
fn build(run: &mut Run<'_>, packages: &[String]) -> Result<bool, Failure> {
    let mut command = run.repo.cargo(&["build"]);
    command.args(EVERYTHING).args(["--bin", "portolan"]);
    for package in packages {
        command.args(["--example", &name(package)]);
    }
    run.prepare("building the launcher and the programs", command)
}

/// The path of a backend's program.
fn program(run: &Run<'_>, package: &str) -> PathBuf {
    let folder = run.repo.target().join("debug").join("examples");
    folder.join(name(package))
}

fn name(package: &str) -> String {
    format!("{package}-rank")
}

/// Whether a program exists and starts.
fn starts(name: &str) -> bool {
    let mut command = Command::new(name);
    command
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
