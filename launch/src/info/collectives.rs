//! `portolan info --collectives`: the algorithms, and when each is chosen.

use std::fmt::Write as _;

use portolan_coll::{Name, Options, algorithms};
use portolan_core::config::Settings;

/// The table in use and all algorithms.
///
/// # Errors
/// If the settings have a table that cannot be read.
pub(super) fn page(settings: &Settings) -> Result<String, String> {
    let options = Options::from_settings(settings).map_err(|error| error.to_string())?;
    let mut text = String::from(
        "Which algorithm does a collective operation: the first rule that matches and whose algorithm\n\
         can do it. PORTOLAN_COLL_TABLE puts rules in front; `portolan bench tune` measures a table.\n",
    );
    text.push_str(memory(&options));
    if options.reproducible {
        text.push_str(REPRODUCIBLE);
    }
    let _ = write!(text, "\nRules\n{}\nAlgorithms", options.table);
    text.push('\n');
    for operation in Name::ALL {
        let described = algorithms::described(operation);
        if !described.is_empty() {
            let _ = writeln!(text, "{operation}");
        }
        for (name, summary) in described {
            let _ = writeln!(text, "  {name:<24} {summary}");
        }
    }
    Ok(text)
}

/// The operations for which the table does not apply, because they use no messages.
fn memory(options: &Options) -> &'static str {
    if !options.direct {
        "Memory that ranks share is not used (PORTOLAN_COLL_DIRECT=off).\n"
    } else if options.compare {
        "Memory that ranks share is not used: ranks compare what they call (PORTOLAN_COLL_CHECK=on).\n"
    } else {
        "If all ranks share memory, these operations use it and ignore the table: blocking ones of up to 256\n\
         ranks (except some long ones); short nonblocking and persistent ones of up to 8 ranks (nonblocking\n\
         ones only after a blocking or persistent one has run on the communicator).\n\
         PORTOLAN_COLL_DIRECT=off: none; PORTOLAN_COLL_CHECK=on: none.\n"
    }
}

/// How the table applies in the reproducible mode.
const REPRODUCIBLE: &str = "\
Reductions give the same bits every time (PORTOLAN_REPRODUCIBLE=on): all are messages. Products of\n\
floating-point numbers and operators of the program have one algorithm each whatever the rules say:\n\
reduce binomial, allreduce reduce-bcast, reduce-scatter reduce-scatter, scan chain. Sums of\n\
floating-point numbers are chosen for by the length that they travel in (48 or 280 bytes each).\n";
