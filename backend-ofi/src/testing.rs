//! What the tests of several modules need.

use std::io::Write as _;

use portolan_core::config::MatchMode;

use crate::config::Config;
use crate::ofi::Ofi;
use crate::start::open::in_process_with;
use crate::start::provider::offers;

/// Says what is not tested here, and why, past the capturing of output.
pub(crate) fn skipped(what: &str, why: &str) {
    let why = why.replace('\n', " ");
    let _ = writeln!(std::io::stdout(), "skipped: {what}: {why}");
}

/// The ranks of a job; `None`, which is said, where libfabric does not offer what the test of
/// `what` asks for.
///
/// # Panics
/// If it is offered, and does not open.
pub(crate) fn opened_or_skipped(what: &str, n: u32, config: &Config) -> Option<Vec<Ofi>> {
    let why = match in_process_with(n, config) {
        Ok(ranks) => return Some(ranks),
        Err(why) => why.to_string(),
    };
    if config.native() {
        // It need not be able to match.
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
