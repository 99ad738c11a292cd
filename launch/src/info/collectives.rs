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
    let direct = if options.direct {
        "Blocking operations go through memory instead where all ranks share it\n\
         (PORTOLAN_COLL_DIRECT=off: never).\n"
    } else {
        "Memory that ranks share is not used (PORTOLAN_COLL_DIRECT=off).\n"
    };
    let _ = write!(text, "{direct}\nRules\n{}\nAlgorithms", options.table);
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
