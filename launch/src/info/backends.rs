//! All transports: which are compiled in, and which work here.

/// The state of one transport.
#[derive(Debug, serde::Serialize)]
pub(super) struct Backend {
    /// Its name, as `PORTOLAN_TRANSPORT` takes it.
    pub(super) name: &'static str,
    /// A description.
    pub(super) what: &'static str,
    /// Whether this command was built with it.
    pub(super) compiled_in: bool,
    /// Why it cannot be used here; `None` if it was tried and works.
    pub(super) obstacle: Option<String>,
    /// What it has found to work over, such as providers, each with the reason if it cannot be
    /// used.
    pub(super) found: Vec<(String, Option<String>)>,
    /// What else is to be said of it here.
    pub(super) facts: Vec<String>,
}

/// Every transport of the project with its description, in order of preference.
const KNOWN: &[(&str, &str)] = &[
    ("shm", "shared memory inside a node"),
    ("ofi", "libfabric: networks of many kinds"),
    ("memory", "threads of one process, the reference for tests"),
    ("t3e-sim", "an emulated Cray T3E, in virtual time"),
];

/// Every transport of the project. Those compiled in are tried.
pub(super) fn backends() -> Vec<Backend> {
    let compiled = portolan::transports();
    let known = KNOWN.iter().map(|&(name, what)| {
        match compiled.iter().find(|transport| transport.name == name) {
            Some(found) => Backend {
                name,
                what,
                compiled_in: true,
                obstacle: found.unusable.clone(),
                found: found.found.clone(),
                facts: found.facts.clone(),
            },
            None => {
                let obstacle = Some("not compiled in".to_owned());
                Backend {
                    name,
                    what,
                    compiled_in: false,
                    obstacle,
                    found: Vec::new(),
                    facts: Vec::new(),
                }
            }
        }
    });
    known.collect()
}

/// Checks whether the transport that is asked for is compiled in. (Whether it works here is told
/// with it.)
///
/// # Errors
/// What there is instead.
pub(super) fn check_name(wanted: Option<&str>) -> Result<(), String> {
    let here = [
        ("shm", cfg!(feature = "shm")),
        ("ofi", cfg!(feature = "ofi")),
        ("memory", true),
        ("t3e-sim", cfg!(feature = "t3e-sim")),
    ];
    let here: Vec<&str> = here
        .iter()
        .filter(|(_, is)| *is)
        .map(|(name, _)| *name)
        .collect();
    match wanted {
        Some(name) if !here.contains(&name) => {
            let meant = portolan_core::config::nearest_of(name, here.iter().copied());
            let meant = meant.map_or(String::new(), |meant| format!(" (did you mean {meant}?)"));
            Err(format!(
                "PORTOLAN_TRANSPORT={name}: there is no such transport here{meant}; choose from {}",
                here.join(", ")
            ))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_that_is_not_there_is_an_error() {
        for (name, right) in [
            (None, true),
            (Some("shm"), cfg!(feature = "shm")),
            (Some("memory"), true),
            (Some("shmm"), false),
        ] {
            assert_eq!(check_name(name).is_ok(), right, "{name:?}");
        }
    }

    #[test]
    fn every_transport_that_is_compiled_in_is_known_here() {
        for transport in portolan::transports() {
            assert!(
                KNOWN.iter().any(|(name, _)| *name == transport.name),
                "{}",
                transport.name
            );
        }
    }
}
