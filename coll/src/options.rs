//! The options of a job's collectives.

use portolan_core::comm::{Communicator, Slot};
use portolan_core::config::Settings;
use portolan_core::{Device, Error, ErrorKind, Request, Result, lines};

use crate::select::{Table, parse};
use crate::state::Job;

/// How the collectives of a job work. All ranks have the same options.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The table by which algorithms are chosen. [`configure`] leaves out its rules for other
    /// devices than the job's.
    pub table: Table,
    /// Whether ranks compare their calls before data moves (the setting `COLL_CHECK`).
    pub compare: bool,
    /// Whether operations may go through memory that ranks share (the setting `COLL_DIRECT`).
    pub direct: bool,
    /// Whether reductions of floating-point numbers give the same bits whatever the number of
    /// ranks, their placement and the algorithm (the setting `REPRODUCIBLE`).
    pub reproducible: bool,
    /// Whether ranks report data of different types in operations that go through memory that ranks
    /// share (the setting `CHECK_SIGNATURE`; messages have a check of their own).
    pub types: bool,
    /// Whether a rank that has read what another wrote into shared memory takes its cache lines
    /// (the setting `TAKE_LINES`; [`lines`] explains why).
    pub takes: bool,
    /// Requests that a rank's nonblocking and persistent operations may have under way together; by
    /// default, half of all requests. An operation that would exceed this is not begun while others
    /// are under way, so that no two wait for requests that the other holds.
    pub requests: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            table: Table::default(),
            compare: false,
            direct: true,
            reproducible: false,
            types: true,
            takes: lines::better_taken(),
            requests: Request::MAX_ACTIVE / 2,
        }
    }
}

impl Options {
    /// The options that the settings give.
    ///
    /// # Errors
    /// [`InvalidSetting`](ErrorKind::InvalidSetting) if the table of algorithms cannot be read.
    pub fn from_settings(settings: &Settings) -> Result<Self> {
        let table = match settings.coll_table() {
            None => Table::default(),
            Some(given) => Table::with(rules(given)?),
        };
        Ok(Self {
            table,
            compare: settings.coll_check(),
            direct: settings.coll_direct(),
            reproducible: settings.reproducible(),
            types: settings.check_signature(),
            takes: lines::taken(settings),
            ..Self::default()
        })
    }
}

/// The rules in a text, or in the file that the text names after an `@`.
fn rules(given: &str) -> Result<Vec<crate::select::Rule>> {
    let invalid = |what: String| {
        Error::new(
            ErrorKind::InvalidSetting,
            format!("PORTOLAN_COLL_TABLE: {what}"),
        )
        .remedy("`portolan info --collectives` shows the table in use and all names")
    };
    let text = match given.strip_prefix('@') {
        None => given.to_owned(),
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| invalid(format!("the file {path} cannot be read: {error}")))?,
    };
    parse(&text).map_err(invalid)
}

/// Sets the options of a job's collectives. To be called once per rank, with the same options,
/// before the first collective operation of this crate; otherwise the defaults apply.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if it is too late.
pub fn configure<D: Device>(comm: &Communicator<D>, mut options: Options) -> Result<()> {
    options.table = options.table.on(comm.device().attributes().name);
    let mut fresh = Some(options);
    comm.job_extension(Slot::Coll, || Job::new(fresh.take().unwrap_or_default()));
    match fresh {
        None => Ok(()),
        Some(_) => Err(comm.error(
            ErrorKind::InvalidArgument,
            "collectives are in use already".to_owned(),
            "configure them right after the world was made",
        )),
    }
}
