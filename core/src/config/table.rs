//! The table. One entry is all that a setting needs.
//!
//! Form of an entry: its meaning as a doc comment, then
//! `"NAME" => accessor: Type, default "text", unit "text"[, range least, greatest];`
//! where an empty default means "unset" and the type is one of those in `value.rs`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use super::machinery::{Entry, Origin, Setting, Shown};
use super::unknown::{UnknownName, nearest};
use super::value::{Bytes, Count, LogLevel, MatchMode, OnFailure, SettingValue, Switch, WaitMode};
use super::{PREFIX, SettingError};

settings! {
    /// Which transport carries the messages. An explicit choice is used or the job does not start;
    /// unset means the best one that is usable.
    "TRANSPORT" => transport: Option<String>, default "", unit "";

    /// How a rank waits: `spin` only polls; `yield` polls `PORTOLAN_SPIN` times, then gives its
    /// core away between polls; `park` polls `PORTOLAN_SPIN` times, then sleeps until it is woken;
    /// `auto` polls, then gives its core away some hundred times, then sleeps (or goes on giving it
    /// away, over a transport that cannot wake it). Change it to `spin` where each rank has a core
    /// of its own and nothing else runs, to `park` where other programs need the cores. If the
    /// ranks on this node outnumber the cores that they may run on, all but `spin` poll once only;
    /// over shared memory, a rank that would give its core away polls a little longer for a rank
    /// that waits on another core. Over shared memory and libfabric, the cores of all ranks of the
    /// node count; else only those of this rank and of its launcher are known.
    "WAIT" => wait: WaitMode, default "auto", unit "";

    /// How often a waiting rank polls before it gives its core away or sleeps.
    "SPIN" => spin: Count, default "2000", unit "polls", range 0, 1 << 32;

    /// Longest message that travels with its envelope; a longer one is announced, and moves when
    /// its receive has been posted. Over shared memory some forms of sends depart from this rule:
    /// the table "How a message travels" in docs/shm.md has them. A value that is longer than a
    /// packet counts as the packet's length: over shared memory 32k, or a quarter of
    /// `PORTOLAN_SHM_BULK` if that is less; over libfabric 16k or a little less, and 64k over its
    /// TCP if that sends as much at once. Where this is not set, that length is the limit over
    /// libfabric, so a value can only lower it there.
    "EAGER_MAX" => eager_max: Bytes, default "16k", unit "bytes", range 0, 1 << 30;

    /// Memory for messages that have arrived before their receive was posted. Beyond it messages
    /// stay with their sender, whatever their size.
    "UNEXPECTED_MAX" => unexpected_max: Bytes, default "64M", unit "bytes", range 0, 1 << 40;

    /// Memory for buffered sends that have no buffer attached.
    "BUFFER_MAX" => buffer_max: Bytes, default "64M", unit "bytes", range 0, 1 << 40;

    /// Compares the type signatures of sender and receiver; a mismatch is an error instead of
    /// garbage.
    "CHECK_SIGNATURE" => check_signature: bool, default "on", unit "";

    /// Sends short messages to one rank together, where a packet costs much more than a message:
    /// those of a burst of nonblocking sends, from the 17th on. They leave when this rank makes
    /// progress the next time.
    "BUNDLE" => bundle: bool, default "on", unit "";

    /// Size of one ring of the shared-memory transport: what one rank may have under way to another
    /// in small messages.
    "SHM_RING" => shm_ring: Bytes, default "64k", unit "bytes per pair", range 4 << 10, 64 << 20;

    /// Size of the bulk area of the shared-memory transport: the ring of bytes through which one
    /// rank pipes long messages to another.
    "SHM_BULK" => shm_bulk: Bytes, default "256k", unit "bytes per pair", range 16 << 10, 1 << 30;

    /// Whether the shared-memory transport copies from and to the other rank's memory directly
    /// (`process_vm_readv`): `auto` measures whether that is the faster way, `on` does so whenever
    /// the system allows it, `off` never.
    "SHM_CMA" => shm_cma: Switch, default "auto", unit "";

    /// Whether a rank that has read what another wrote into shared memory takes the cache lines in
    /// which it lay, so that their writer has them back sooner: `auto` does on AMD's Zen 3 and Zen
    /// 4 (measured on Zen 4), `on` everywhere, `off` nowhere.
    "TAKE_LINES" => take_lines: Switch, default "auto", unit "";

    /// Most that the shared memory of one job on one node may grow to; unset means twice the
    /// machine's memory, or less where `ulimit -f` or half of `ulimit -v` is less. The file is
    /// sparse: what is not used costs nothing, and what would use more than there is is refused.
    "SHM_MAX" => shm_max: Option<Bytes>, default "", unit "bytes", range 1 << 20, 1 << 46;

    /// Shortest allocation that lies in memory which the ranks of a node share, in programs whose
    /// allocator is `portolan::SharedAllocator`.
    "SHM_ALLOC_MIN" => shm_alloc_min: Bytes, default "8k", unit "bytes", range 4 << 10, 1 << 46;

    /// The libfabric that the transport `ofi` uses, by its path; unset means the one that the
    /// dynamic linker finds.
    "OFI_LIBRARY" => ofi_library: Option<PathBuf>, default "", unit "";

    /// Provider of libfabric, such as `tcp`, `verbs` or, whole, `tcp;ofi_rxm`; unset means the
    /// best.
    "OFI_PROVIDER" => ofi_provider: Option<String>, default "", unit "";

    /// Domain of libfabric, such as `mlx5_0`; unset means the best.
    "OFI_DOMAIN" => ofi_domain: Option<String>, default "", unit "";

    /// Network interface of the transport `ofi`, by its name or its address; unset means the best.
    "OFI_INTERFACE" => ofi_interface: Option<String>, default "", unit "";

    /// How often ranks on different nodes that have talked over the transport `ofi` ask each other
    /// whether they are there. One that gives no sign for more than four periods has failed; 0
    /// means that nobody asks.
    "OFI_HEARTBEAT" => ofi_heartbeat: Duration, default "5", unit "seconds", range 0, 3600;

    /// Whether libfabric's provider is asked for memory of accelerators (`FI_HMEM`): `auto` if
    /// there is one here and nothing else is given up for it, `on`, always, or the job does not
    /// start, or `off`. What the provider does not take goes through the host. `off` is for
    /// programs that capture CUDA graphs while they communicate: libfabric's copies disturb a
    /// capture.
    "OFI_HMEM" => ofi_hmem: Switch, default "auto", unit "";

    /// Who matches messages with receives over libfabric: `native`, its provider (or the job does
    /// not start), `software`, Portolan, or `auto`, which is Portolan today.
    "MATCH" => matching: MatchMode, default "auto", unit "";

    /// Which machine the T3E emulator is: `t3e-600`, `t3e-900` or `t3e-1200`.
    "T3E_PRESET" => t3e_preset: Option<String>, default "t3e-900", unit "";

    /// Sides of the emulated torus, such as `8x8x4`; unset means the one that fits the job.
    "T3E_TORUS" => t3e_torus: Option<String>, default "", unit "nodes";

    /// Seed of everything random on the emulated machine: it reorders what a T3E may reorder. With
    /// 0 nothing is random.
    "T3E_SEED" => t3e_seed: Count, default "0", unit "", range 0, 1 << 62;

    /// Faults of the emulated machine, separated by commas: `pe:3:2.5` computes 2.5 times as long,
    /// `link:0:+x:10` takes ten times as long for each byte.
    "T3E_FAULTS" => t3e_faults: Option<String>, default "", unit "";

    /// Symmetric heap of each emulated PE. What is not touched costs address space only.
    "T3E_HEAP" => t3e_heap: Bytes, default "16M", unit "bytes", range 0, 1 << 40;

    /// Memory that each emulated PE can allocate for itself: for messages under way.
    "T3E_ARENA" => t3e_arena: Bytes, default "1G", unit "bytes", range 0, 1 << 40;

    /// An emulated PE whose program makes no call for so long of the host's time stops the machine,
    /// because all others wait for it; 0 means never.
    "T3E_WATCHDOG" => t3e_watchdog: Duration, default "60", unit "seconds";

    /// Rules that come before the built-in ones when the algorithm of a collective operation is
    /// chosen, separated by semicolons (`bcast bytes<=64k binomial`), or `@` and the name of a file
    /// of them. Conditions are `ranks<=N`, `bytes<=N`, `on=TRANSPORT`, `levels` (ranks are on
    /// several nodes, and some share one) and `flat` (they are not); a tree may have a `radix=K`.
    /// Bytes are those of the whole message, or of one rank's block where there is one per rank
    /// (reduce-scatter: one block).
    "COLL_TABLE" => coll_table: Option<String>, default "", unit "";

    /// Compares what the ranks call before data moves: another operation, root, length, type or
    /// operator on some rank is an error on all instead of a hang or garbage. Still errors only
    /// where they arrive are lengths in gatherv, scatterv, alltoallv and along edges, and types in
    /// alltoallv and along edges; of the program's own operators only commutativity is compared.
    /// Creations of communicators are compared, too, but for `create_group`. Costs two messages
    /// more. Blocks with gaps that are received are looked at byte by byte for overlaps, in up to
    /// 256 MiB of memory, twice.
    "COLL_CHECK" => coll_check: bool, default "off", unit "";

    /// Lets collective operations go through memory that ranks share instead of messages.
    "COLL_DIRECT" => coll_direct: bool, default "on", unit "";

    /// Gives sums of floating-point numbers the same bits whatever the number of ranks, their
    /// placement and the algorithm. They are slower.
    "REPRODUCIBLE" => reproducible: bool, default "off", unit "";

    /// What happens when a rank dies: the whole job ends (`abort`), or calls that need the dead
    /// rank give an error (`return`).
    "ON_FAILURE" => on_failure: OnFailure, default "abort", unit "";

    /// A rank that has waited this long says for what, once; 0 means never.
    "STUCK_AFTER" => stuck_after: Duration, default "0", unit "seconds";

    /// Prints one line when the job starts: what was chosen, and why.
    "REPORT" => report: bool, default "off", unit "";

    /// Prints the counters of each rank when it ends: those of its device, and what collective
    /// operations have cost. The table "Counters" at the end of docs/settings.md says what they
    /// count.
    "COUNTERS" => counters: bool, default "off", unit "";

    /// How much is logged to standard error. A program with a subscriber of the crate `tracing`
    /// gets the messages there instead. Of several worlds in a process the most talkative one
    /// decides for all.
    "LOG" => log: LogLevel, default "warn", unit "";

    /// Where to write a trace of every message. `%r` in the name stands for the rank; without it,
    /// in a job of several ranks, the rank follows the name.
    "TRACE" => trace: Option<PathBuf>, default "", unit "";

    /// Starts as a job of one rank even where a launcher has left signs that cannot be understood.
    "ALLOW_SINGLETON" => allow_singleton: bool, default "off", unit "";
}

/// Names that the launcher sets for its ranks.
const RESERVED: &[&str] = &["JOB_ID", "SESSION", "SHM_FD"];

/// Whether `name`, without its prefix, is one that the launcher sets for its ranks, or that tests
/// set for themselves (`TEST_…`): neither a setting nor an unknown variable.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name) || name.starts_with("TEST_")
}

impl Settings {
    /// The settings that the environment gives.
    ///
    /// # Errors
    /// The first value that cannot be used, in the order of the table.
    pub fn from_env() -> Result<Self, SettingError> {
        Self::from_variables(std::env::vars_os())
    }

    /// [`from_env`](Self::from_env) with the variables given: for tests and for embedding.
    ///
    /// # Errors
    /// The first value that cannot be used, in the order of the table.
    pub fn from_variables<N, V>(
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, SettingError>
    where
        N: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        let (settings, errors) = Self::inspect(variables);
        errors.into_iter().next().map_or(Ok(settings), Err)
    }

    /// The settings with all usable values, and every error: for showing all errors to a person.
    ///
    /// An empty variable counts as unset.
    pub fn inspect<N, V>(variables: impl IntoIterator<Item = (N, V)>) -> (Self, Vec<SettingError>)
    where
        N: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        let mut given: Vec<(String, OsString)> = variables
            .into_iter()
            .filter_map(|(name, value)| {
                let name = name.as_ref().to_str()?.strip_prefix(PREFIX)?.to_owned();
                let value = value.as_ref().to_owned();
                (!value.is_empty()).then_some((name, value))
            })
            .collect();
        let place = |name: &str| SETTINGS.iter().position(|row| row.name == name);
        given.sort_by_cached_key(|(name, _)| (place(name).unwrap_or(usize::MAX), name.clone()));

        let mut settings = Self::default();
        let mut errors = Vec::new();
        for (name, value) in given {
            // Text that is not Unicode is converted to text that only paths and names accept.
            let text = value.to_string_lossy();
            match settings.assign(&name, &text, Origin::Environment) {
                Ok(()) => {}
                Err(SettingError::NoSuchSetting { name, nearest }) => {
                    if !is_reserved(&name) {
                        settings.unknown.push(UnknownName { name, nearest });
                    }
                }
                Err(error) => errors.push(error),
            }
        }
        (settings, errors)
    }

    /// Sets a setting on behalf of the program. `name` has no prefix.
    ///
    /// # Errors
    /// If there is no such setting, or the value cannot be used. The old value stays.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        self.assign(name, value, Origin::Builder)
    }

    /// Variables that start with `PORTOLAN_` but are not settings; probably misspelt.
    #[must_use]
    pub fn unknown(&self) -> &[UnknownName] {
        &self.unknown
    }
}

/// The row of a setting, which must exist.
fn row(name: &str) -> &'static Setting {
    SETTINGS
        .iter()
        .find(|row| row.name == name)
        .expect("the macro gives names of the table only")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid() {
        let settings = Settings::default();
        for shown in settings.shown() {
            assert_eq!(shown.origin, Origin::Default);
            assert_eq!(
                shown.value, shown.setting.default,
                "{} is not canonical",
                shown.setting.name
            );
        }
    }

    #[test]
    fn rows_are_complete_and_names_unique() {
        for (i, row) in SETTINGS.iter().enumerate() {
            assert!(
                row.meaning.trim_end().ends_with('.'),
                "{}: no sentence",
                row.name
            );
            assert!(!is_reserved(row.name), "{} is reserved", row.name);
            assert!(
                SETTINGS[i + 1..].iter().all(|other| other.name != row.name),
                "{}",
                row.name
            );
        }
    }

    #[test]
    fn every_setting_can_be_set_and_says_so() {
        let mut settings = Settings::default();
        for row in SETTINGS {
            let text = if !row.default.is_empty() {
                row.default
            } else if row.range.is_some() {
                "1M"
            } else {
                "x"
            };
            settings.set(row.name, text).unwrap();
            assert_eq!(settings.origin(row.name), Some(Origin::Builder));
        }
    }

    #[test]
    fn the_environment_gives_values_and_origins() {
        let given = [
            ("PORTOLAN_TRANSPORT", "shm"),
            ("PORTOLAN_LOG", ""),
            ("HOME", "/"),
        ];
        let settings = Settings::from_variables(given).unwrap();
        assert_eq!(settings.transport(), Some("shm"));
        assert_eq!(settings.origin("TRANSPORT"), Some(Origin::Environment));
        assert_eq!(
            settings.origin("LOG"),
            Some(Origin::Default),
            "set to nothing is not set"
        );
    }

    #[test]
    fn bad_values_are_errors_that_help() {
        let error = Settings::from_variables([("PORTOLAN_WAIT", "spinn")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "PORTOLAN_WAIT=spinn (environment) cannot be used: there is no choice `spinn`\n  \
             fix: give one of auto, spin, yield, park, or unset it for the default (auto)"
        );
        let error = Settings::from_variables([("PORTOLAN_SHM_RING", "1k")]).unwrap_err();
        assert!(
            error.to_string().contains("1024 is out of range"),
            "{error}"
        );
        assert!(
            error.to_string().contains("a size from 4k to 64M"),
            "{error}"
        );
        let error = Settings::from_variables([("PORTOLAN_SHM_MAX", "1k")]).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("unset it for the default (unset)"),
            "{error}"
        );
    }

    #[test]
    fn every_error_can_be_seen_at_once() {
        let given = [
            ("PORTOLAN_WAIT", "x"),
            ("PORTOLAN_SPIN", "-1"),
            ("PORTOLAN_REPORT", "on"),
        ];
        let (settings, errors) = Settings::inspect(given);
        assert_eq!(errors.len(), 2);
        assert!(settings.report());
    }

    #[test]
    fn a_refused_value_leaves_the_old_one() {
        let mut settings = Settings::default();
        settings.set("SPIN", "7").unwrap();
        settings.set("SPIN", "many").unwrap_err();
        assert_eq!(settings.spin(), 7);
        let error = settings.set("SPINN", "7").unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no setting PORTOLAN_SPINN (did you mean PORTOLAN_SPIN?)"
        );
    }

    #[test]
    fn misspelt_names_are_reported_and_reserved_ones_are_not() {
        let given = [
            ("PORTOLAN_EAGER_LIMT", "1"),
            ("PORTOLAN_SHM_FD", "5"),
            ("PORTOLAN_ZZZZZZZZ", "1"),
        ];
        let settings = Settings::from_variables(given).unwrap();
        let warnings: Vec<_> = settings.unknown().iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "unknown variable PORTOLAN_EAGER_LIMT (did you mean PORTOLAN_EAGER_MAX?)",
                "unknown variable PORTOLAN_ZZZZZZZZ (`portolan info` lists the known ones)",
            ]
        );
    }
}
