//! Helpers for the tests of several modules.

use std::io::Write as _;

use portolan_core::config::MatchMode;
use portolan_core::transport::{Header, Payload, Sink};

use crate::config::Config;
use crate::ofi::Ofi;
use crate::start::open::in_process_with;
use crate::start::provider::offers;

/// Counts the packets that arrive.
pub(crate) struct Count(pub(crate) usize);

impl Sink for Count {
    fn accepts(&mut self, _peer: u32) -> bool {
        true
    }

    fn packet(&mut self, _peer: u32, _header: &Header, _payload: Payload<'_>) {
        self.0 += 1;
    }
}

/// Prints what is not tested here, and why, bypassing the capture of output.
pub(crate) fn skipped(what: &str, why: &str) {
    let why = why.replace('\n', " ");
    let _ = writeln!(std::io::stdout(), "skipped: {what}: {why}");
}

/// Opens the ranks of a job. Prints a skip and returns `None` where libfabric does not offer what
/// the test of `what` needs.
///
/// # Panics
/// If it is offered and does not open.
pub(crate) fn opened_or_skipped(what: &str, n: u32, config: &Config) -> Option<Vec<Ofi>> {
    let why = match in_process_with(n, config) {
        Ok(ranks) => return Some(ranks),
        Err(why) => why.to_string(),
    };
    if config.native() {
        // The provider need not be able to match.
        let without = Config {
            matching: MatchMode::Software,
            ..config.clone()
        };
        opened_or_skipped(what, n, &without)?;
    } else {
        let offered = offers(config)
            .is_ok_and(|(_, offers)| offers.iter().any(|offer| offer.unusable.is_none()));
        assert!(!offered, "{what}: there is a provider, which fails: {why}");
    }
    skipped(what, &why);
    None
}
