//! `cargo xtask goals`: measures the goals that the project has set itself, and writes the page
//! that says which are met.
//!
//! The goals are in [`list`]. Each names the `portolan bench` that measures it, so the page
//! (`docs/figures.md`) has the command of every figure. [`figure`] reads the output of that
//! command, [`verdict`] compares, [`page`] writes.

mod figure;
mod list;
mod page;
mod verdict;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode, Stdio};

use crate::wheel::newer_libfabric;
use crate::{Failure, Repo};
use figure::Run;
use list::{Command, Goal, Library};

/// Where the page is.
const PAGE: &str = "docs/figures.md";

/// Samples of each figure, unless a run or the command line gives another number.
const REPEAT: u32 = 5;

/// Patterns without rounds, whose time `--seconds` could limit: `portolan bench` refuses it there.
const WITHOUT_ROUNDS: [&str; 3] = ["startup", "memory-ring", "memory-all"];

/// Prefixes of the names of settings: Portolan's, and those of the peers and of the libraries below
/// them, which `launch/src/bench/args.rs` has as well. (This crate builds without the others.)
const SETTINGS: [&str; 14] = [
    "PORTOLAN_",
    "FI_",
    "HCOLL_",
    "HYDRA_",
    "LIBFABRIC_",
    "MPICH_",
    "MPIEXEC_",
    "MPIR_CVAR_",
    "OMPI_",
    "OPAL_",
    "PMIX_",
    "PRTE_",
    "UCC_",
    "UCX_",
];

/// The setting that selects the libfabric of Portolan, and of the loops beside it.
const LIBRARY: &str = "PORTOLAN_OFI_LIBRARY";

/// `cargo xtask goals`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Groups of goals to measure; unset means all
    #[arg(value_parser = list::groups())]
    groups: Vec<String>,
    /// Samples of each figure
    #[arg(long, default_value_t = REPEAT)]
    repeat: u32,
    /// Longest time of one size in one sample
    #[arg(long, default_value_t = 0.1)]
    seconds: f64,
    /// Of the peers, only those whose names contain one of these
    #[arg(long)]
    only: Option<String>,
    /// Measure with this build of the command `portolan`, instead of building it
    #[arg(long)]
    program: Option<PathBuf>,
    /// Write the figures into a page, in place of its earlier figures of these groups; unset PAGE
    /// means docs/figures.md, for other machines name another: --write=docs/figures-zen4.md
    #[arg(long, value_name = "PAGE", num_args = 0..=1, require_equals = true, default_missing_value = PAGE)]
    write: Option<String>,
}

/// Measures the goals of the chosen groups, prints their tables, and writes the tables into a page
/// if that was asked for.
pub(crate) fn main(repo: &Repo, args: &Args) -> Result<ExitCode, Failure> {
    let program = match &args.program {
        Some(program) => fs::canonicalize(program)
            .map_err(|error| format!("there is no {}: {error}", program.display()))?,
        None => built(repo)?,
    };
    let chosen = |group: &str| args.groups.is_empty() || args.groups.iter().any(|g| g == group);
    let newer = newer_libfabric();
    let when = when(repo, args)?;
    // If several goals need the same run, it is measured once.
    let mut runs: BTreeMap<Key, Result<Run, String>> = BTreeMap::new();
    let mut status = ExitCode::SUCCESS;
    for group in list::GROUPS.iter().filter(|group| chosen(group.name)) {
        for command in group.goals.iter().flat_map(Goal::commands) {
            let key = key(command, args);
            if runs.contains_key(&key) {
                continue;
            }
            eprintln!("portolan {}", key.2.join(" "));
            let run = if command.library == Library::OfTheWheel && newer.is_none() {
                Err("there is no wheel of MPICH, whose libfabric is needed".to_owned())
            } else {
                let run = measure(repo, &program, command, newer.as_deref(), &key.2);
                // What the other runs have measured, in many minutes, is written all the same.
                run.map_err(|why| {
                    status = ExitCode::FAILURE;
                    why.to_string()
                })
            };
            match &run {
                Ok(run) => {
                    for absent in &run.failed {
                        eprintln!("{} failed in {}: {}", absent.peer, absent.bench, absent.why);
                    }
                }
                Err(why) => eprintln!("not measured: {why}"),
            }
            runs.insert(key, run);
        }
        let typed = |command: &Command| typed(command, &words(command, args));
        let part = page::group(group, &how(group.name, args), &when, typed, |command| {
            let run = runs.get(&key(command, args));
            run.map_or(Err("it was not asked for".to_owned()), |run| {
                run.as_ref().map_err(Clone::clone)
            })
        });
        println!("{part}");
        if let Some(page) = &args.write {
            let path = repo.path(page);
            let before = fs::read_to_string(&path).unwrap_or_default();
            fs::write(&path, page::with(&before, group.name, &part))?;
        }
    }
    Ok(status)
}

/// The command that measures a group in the same way.
fn how(group: &str, args: &Args) -> String {
    let Args {
        repeat, seconds, ..
    } = args;
    let only = args.only.as_ref();
    let only = only.map_or(String::new(), |only| format!(" --only {only}"));
    format!("cargo xtask goals {group} --repeat {repeat} --seconds {seconds}{only}")
}

/// The day, and the commit of the build that measures. Figures are of the code as it was, which
/// other figures of the same page need not be.
fn when(repo: &Repo, args: &Args) -> Result<String, Failure> {
    let said = |command: &mut process::Command| -> Result<String, Failure> {
        let output = command.output()?;
        if !output.status.success() {
            return Err(format!("{command:?}: {}", output.status).into());
        }
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let day = said(repo.command("date").args(["-u", "+%F"]))?;
    if args.program.is_some() {
        return Ok(measured(&day, None));
    }
    let commit = said(repo.command("git").args(["rev-parse", "--short=8", "HEAD"]))?;
    let changes = [
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ".",
        ":!docs",
    ];
    let changed = !said(repo.command("git").args(changes))?.is_empty();
    Ok(measured(&day, Some((&commit, changed))))
}

/// `build` is a commit, and whether there were changes beyond it; `None` if `--program` named it.
fn measured(day: &str, build: Option<(&str, bool)>) -> String {
    match build {
        None => format!("Measured on {day} by a build that --program named."),
        Some((commit, false)) => format!("Measured on {day} at {commit}."),
        Some((commit, true)) => {
            format!("Measured on {day} at {commit}, with changes that were not committed.")
        }
    }
}

/// Builds the command `portolan` in the way users build it.
fn built(repo: &Repo) -> Result<PathBuf, Failure> {
    let build = [
        "build",
        "--release",
        "--package",
        "portolan-launch",
        "--locked",
    ];
    if !repo.cargo(&build).status()?.success() {
        return Err("the command `portolan` does not build".into());
    }
    Ok(repo.target().join("release/portolan"))
}

/// The identity of a run: its settings, its libfabric and its arguments.
type Key = (
    &'static [(&'static str, &'static str)],
    Library,
    Vec<String>,
);

fn key(command: &Command, args: &Args) -> Key {
    (command.settings, command.library, words(command, args))
}

/// The arguments of `portolan` for a run.
fn words(command: &Command, args: &Args) -> Vec<String> {
    let mut words = vec!["bench".to_owned()];
    words.extend(command.words.split_whitespace().map(str::to_owned));
    let own = |flag: &str| command.words.split_whitespace().any(|word| word == flag);
    let mut add = |flag: &str, value: String| {
        if !own(flag) {
            words.extend([flag.to_owned(), value]);
        }
    };
    add("--repeat", args.repeat.to_string());
    if !WITHOUT_ROUNDS.iter().any(|pattern| own(pattern)) {
        add("--seconds", args.seconds.to_string());
    }
    if let Some(only) = &args.only
        && own("--peers")
    {
        add("--only", only.clone());
    }
    words
}

/// A run as a user would type it: the settings, and the arguments.
fn typed(command: &Command, words: &[String]) -> String {
    let mut settings = command.settings.to_vec();
    if command.library == Library::OfTheWheel {
        settings.push((LIBRARY, "WHEEL/lib/mpich/libfabric.so.1"));
    }
    let settings = settings
        .iter()
        .map(|(name, value)| format!("{name}={value} "));
    format!(
        "{}portolan {}",
        settings.collect::<String>(),
        words.join(" ")
    )
}

/// Whether a variable of the environment is a setting of Portolan or of a peer.
fn is_setting(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    SETTINGS.iter().any(|prefix| name.starts_with(prefix))
}

/// Measures a run.
fn measure(
    repo: &Repo,
    program: &Path,
    command: &Command,
    newer: Option<&Path>,
    words: &[String],
) -> Result<Run, Failure> {
    let mut bench = repo.command(program);
    // The page prints the command, so exactly that must run: the caller's own settings are removed.
    for (name, _) in std::env::vars_os() {
        if is_setting(&name) {
            bench.env_remove(name);
        }
    }
    bench
        .args(words)
        .arg("--json")
        .envs(command.settings.iter().copied())
        .stderr(Stdio::inherit());
    if let (Library::OfTheWheel, Some(newer)) = (command.library, newer) {
        bench.env(LIBRARY, newer);
    }
    let output = bench.output()?;
    if !output.status.success() {
        return Err(format!("portolan {}: {}", words.join(" "), output.status).into());
    }
    Run::read(&String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_as_a_setting_is_removed() {
        let recorded = include_str!("../../../launch/src/bench/args.rs");
        let (_, list) = recorded.split_once("const OF_OTHERS").unwrap();
        let (list, _) = list.split_once("];\n").unwrap();
        let prefixes: Vec<_> = list.split('"').skip(1).step_by(2).collect();
        assert_eq!(prefixes, SETTINGS[1..]);
        let removed = |name: &str| is_setting(OsStr::new(name));
        assert!(
            ["UCX_TLS", "OMPI_MCA_pml", "PORTOLAN_WAIT"]
                .into_iter()
                .all(removed)
        );
        assert!(!["PATH", "HOME", "CARGO_HOME"].into_iter().any(removed));
    }

    #[test]
    fn a_group_says_the_day_and_the_build() {
        assert_eq!(
            measured("2026-11-26", Some(("0e132390", false))),
            "Measured on 2026-11-26 at 0e132390."
        );
        assert!(measured("2026-11-26", Some(("0e132390", true))).contains("not committed"));
        assert!(measured("2026-11-26", None).ends_with("by a build that --program named."));
    }

    #[test]
    fn every_group_on_a_page_says_when_it_was_measured() {
        for (page, least) in [
            (include_str!("../../../docs/figures.md"), 3),
            (include_str!("../../../docs/figures-zen4.md"), 3),
            (include_str!("../../../docs/figures-xeon.md"), 1),
        ] {
            let mut groups = 0;
            for part in page.split("\n## ").skip(1) {
                let mut paragraphs = part.split("\n\n").skip(2);
                let when = paragraphs.next().unwrap();
                assert!(when.starts_with("Measured on 20"), "{when}");
                groups += 1;
            }
            assert!(groups >= least, "{groups}");
        }
    }

    #[test]
    fn other_settings_are_another_run() {
        let args = Args {
            groups: Vec::new(),
            repeat: 1,
            seconds: 0.1,
            only: Some("a".to_owned()),
            program: None,
            write: None,
        };
        let command = |settings| Command {
            words: "latency --peers --repeat 3",
            settings,
            library: Library::Systems,
        };
        let (plain, mut set) = (command(&[]), command(&[("A", "b")]));
        assert_ne!(key(&plain, &args), key(&set, &args));
        assert_eq!(key(&plain, &args), key(&plain, &args));
        let line = |command: &Command| typed(command, &key(command, &args).2);
        let printed = line(&plain);
        assert_eq!(
            printed,
            "portolan bench latency --peers --repeat 3 --seconds 0.1 --only a"
        );
        assert_eq!(line(&set), format!("A=b {printed}"));
        set.library = Library::OfTheWheel;
        let library = "PORTOLAN_OFI_LIBRARY=WHEEL/lib/mpich/libfabric.so.1";
        assert_eq!(line(&set), format!("A=b {library} {printed}"));
        let start = Command {
            words: "startup",
            ..command(&[])
        };
        assert_eq!(line(&start), "portolan bench startup --repeat 1");
        let memory = Command {
            words: "memory-ring -n 8",
            ..command(&[])
        };
        assert_eq!(line(&memory), "portolan bench memory-ring -n 8 --repeat 1");
    }
}
