//! Starts this command again, as the ranks of a job.

use std::ffi::OsString;

use crate::cli::RunArgs;
use crate::os;
use crate::run::{self, Bind};

/// Whether a launcher has started this process as a rank.
pub(crate) fn is_rank() -> bool {
    ["PMI_FD", "PMI_PORT"]
        .iter()
        .any(|name| std::env::var_os(name).is_some())
}

/// A job whose ranks are this command with other words.
#[derive(Clone, Debug)]
pub(crate) struct Again {
    /// Number of ranks.
    pub(crate) ranks: u32,
    /// `None` puts each rank on a core of its own if there are enough.
    pub(crate) bind: Option<Bind>,
    /// As `--transport`.
    pub(crate) transport: Option<String>,
    /// Variables for the ranks.
    pub(crate) variables: Vec<(String, String)>,
    /// Arguments of the ranks, without the command's own name.
    pub(crate) words: Vec<OsString>,
}

impl Again {
    /// Runs the job to its end and returns its exit code.
    pub(crate) fn run(self) -> u8 {
        let program = match std::env::current_exe() {
            Ok(program) => program,
            Err(error) => {
                run::say(&format!("cannot find this program's own file: {error}"));
                return 125;
            }
        };
        let cores = os::allowed_cpus().map_or(1, |cpus| cpus.len());
        let enough = self.ranks as usize <= cores;
        let bind = self
            .bind
            .unwrap_or(if enough { Bind::Core } else { Bind::None });
        run::run(&RunArgs {
            ranks: self.ranks,
            transport: self.transport,
            bind,
            label: false,
            timeout: None,
            stuck_after: None,
            variables: self.variables,
            on_failure: None,
            command: std::iter::once(program.into()).chain(self.words).collect(),
        })
    }
}
