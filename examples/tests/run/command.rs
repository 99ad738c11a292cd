//! Starts the examples as processes, with the command `portolan`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use libtest_mimic::Failed;

/// Seconds after which a job that has not ended is assumed to hang.
const GUARD: &str = "120";

/// A job to start.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    program: &'static str,
    ranks: u32,
    args: Vec<String>,
    on_failure: &'static str,
    /// Settings: names without `PORTOLAN_`, and values.
    settings: Vec<(&'static str, String)>,
    /// Other variables of the environment.
    variables: Vec<(&'static str, OsString)>,
    /// How many ranks run on each of several hosts; `None` if all run on this one.
    each: Option<u32>,
}

/// A script that makes hosts out of network namespaces, and runs jobs across them.
const HOSTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../launch/tests/failure/hosts");

/// Why hosts cannot be made here.
pub(crate) fn no_hosts() -> Option<String> {
    let output = Command::new(HOSTS).arg("can").output();
    let output = output.expect("the script for hosts starts");
    let why = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (!output.status.success()).then_some(why)
}

impl Job {
    pub(crate) fn new(program: &'static str, ranks: u32) -> Self {
        Self {
            program,
            ranks,
            args: Vec::new(),
            on_failure: "abort",
            settings: Vec::new(),
            variables: Vec::new(),
            each: None,
        }
    }

    /// Runs over this transport, instead of the one that is chosen by default.
    pub(crate) fn over(self, transport: &str) -> Self {
        self.with(&[("TRANSPORT", transport.to_owned())])
    }

    /// Runs with these settings, by their names without `PORTOLAN_`.
    pub(crate) fn with(mut self, settings: &[(&'static str, String)]) -> Self {
        self.settings.extend_from_slice(settings);
        self
    }

    /// Runs with a variable of the environment that is no setting.
    #[cfg(feature = "cuda")]
    pub(crate) fn variable(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// Runs under MPICH's launcher on three hosts, with this many ranks on each. (The last host has
    /// what is left.)
    pub(crate) fn across_hosts(self, each: u32) -> Self {
        let settings = [("OFI_PROVIDER", "tcp"), ("OFI_INTERFACE", "dat")];
        let settings = settings.map(|(name, value)| (name, value.to_owned()));
        Self {
            each: Some(each),
            ..self.over("ofi").with(&settings)
        }
    }

    pub(crate) fn option(mut self, name: &str, value: impl AsRef<Path>) -> Self {
        let value = value
            .as_ref()
            .to_str()
            .expect("arguments of the tests are texts");
        self.args.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// Lets ranks go on when another has failed.
    pub(crate) fn ranks_go_on(self) -> Self {
        Self {
            on_failure: "return",
            ..self
        }
    }

    /// The command that starts the program.
    fn launcher(&self) -> Command {
        if let Some(each) = self.each {
            let mut command = Command::new("timeout");
            let name = format!("{}-{}-{each}", std::process::id(), self.program);
            command.args([GUARD, HOSTS, "with", &name, &self.ranks.to_string()]);
            command.env("HOSTS_EACH", each.to_string());
            return command;
        }
        let mut command = Command::new(portolan());
        command.args(["run", "--timeout", GUARD, "--on-failure", self.on_failure]);
        command.args(["-n", &self.ranks.to_string(), "--"]);
        command
    }

    /// Runs the job to its end.
    pub(crate) fn run(&self) -> Outcome {
        let mut command = self.launcher();
        command
            .arg(program(self.program))
            .args(&self.args)
            .stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if ["PORTOLAN_", "PMI", "OMPI_"]
                .iter()
                .any(|ours| name.starts_with(ours))
            {
                command.env_remove(&*name);
            }
        }
        for (name, value) in &self.settings {
            command.env(format!("PORTOLAN_{name}"), value);
        }
        command.envs(self.variables.iter().cloned());
        let Output {
            status,
            stdout,
            stderr,
        } = command.output().expect("the command starts");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Outcome {
            code: status.code(),
            out: text(stdout),
            err: text(stderr),
        }
    }
}

/// The outcome of a job.
#[derive(Debug)]
pub(crate) struct Outcome {
    code: Option<i32>,
    pub(crate) out: String,
    err: String,
}

impl Outcome {
    /// Asserts that the job succeeded, and printed nothing on its standard error.
    pub(crate) fn succeeded(self) -> Result<Self, Failed> {
        match (self.code, self.err.as_str()) {
            (Some(0), "") => Ok(self),
            _ => Err(format!("it did not succeed: {self:#?}").into()),
        }
    }

    /// Asserts that the job failed by itself (not by the guard's time), and printed all of this on
    /// its standard error.
    pub(crate) fn failed(self, code: i32, parts: &[&str]) -> Result<Self, Failed> {
        if self.code != Some(code) {
            return Err(format!("its code is not {code}: {self:#?}").into());
        }
        match parts.iter().find(|part| !self.err.contains(**part)) {
            None => Ok(self),
            Some(part) => Err(format!("`{part}` is missing: {self:#?}").into()),
        }
    }

    /// Asserts that the standard output is these lines, in any order, because ranks run side by
    /// side.
    pub(crate) fn lines(&self, mut expected: Vec<String>) -> Result<(), Failed> {
        let mut lines: Vec<_> = self.out.lines().collect();
        lines.sort_unstable();
        expected.sort_unstable();
        if lines == expected {
            return Ok(());
        }
        Err(format!("it should have said {expected:#?}: {self:#?}").into())
    }

    /// Asserts that this is part of the standard output.
    pub(crate) fn says(&self, part: &str) -> Result<(), Failed> {
        if self.out.contains(part) {
            return Ok(());
        }
        Err(format!("`{part}` is missing: {self:#?}").into())
    }

    /// The number that follows a word on the standard output; the word begins a line, or follows
    /// another on it.
    pub(crate) fn number(&self, name: &str) -> Result<f64, Failed> {
        let found = self.out.split_once(name).and_then(|(_, rest)| {
            let word = rest.split_whitespace().next()?;
            word.trim_end_matches([';', ',']).parse().ok()
        });
        found.ok_or_else(|| format!("no number after `{name}`: {self:#?}").into())
    }
}

/// The command `portolan`, built from this workspace in the same profile as this test.
fn portolan() -> &'static Path {
    static COMMAND: OnceLock<PathBuf> = OnceLock::new();
    COMMAND.get_or_init(|| {
        // This test is TARGET/PROFILE/deps/run-…
        let test = std::env::current_exe().expect("a test knows where it is");
        let folder = test
            .ancestors()
            .nth(2)
            .expect("a test is in a folder of its profile");
        let target = folder
            .parent()
            .expect("a profile's folder is in the target's");
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            None | Some("debug") => "dev",
            Some(name) => name,
        };
        let built = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--package",
                "portolan-launch",
                "--bin",
                "portolan",
            ])
            .args(["--profile", profile, "--target-dir"])
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(
            built.is_ok_and(|status| status.success()),
            "cannot build the command"
        );
        folder.join("portolan")
    })
}

/// The path of an example.
fn program(name: &str) -> &'static str {
    match name {
        "adi_blocking" => env!("CARGO_BIN_EXE_adi_blocking"),
        "adi_nonblocking" => env!("CARGO_BIN_EXE_adi_nonblocking"),
        "fft2" => env!("CARGO_BIN_EXE_fft2"),
        #[cfg(feature = "cuda")]
        "gpu_heat" => env!("CARGO_BIN_EXE_gpu_heat"),
        "heat" => env!("CARGO_BIN_EXE_heat"),
        "hello" => env!("CARGO_BIN_EXE_hello"),
        "least_squares" => env!("CARGO_BIN_EXE_least_squares"),
        "master_worker" => env!("CARGO_BIN_EXE_master_worker"),
        "poisson" => env!("CARGO_BIN_EXE_poisson"),
        "ring" => env!("CARGO_BIN_EXE_ring"),
        "rod" => env!("CARGO_BIN_EXE_rod"),
        "sample_sort" => env!("CARGO_BIN_EXE_sample_sort"),
        "tasks" => env!("CARGO_BIN_EXE_tasks"),
        _ => panic!("there is no example {name}"),
    }
}
