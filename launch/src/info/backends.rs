//! The transports that there are, which are compiled in, and which work here.

/// What is known of one transport.
#[derive(Debug, serde::Serialize)]
pub(super) struct Backend {
    /// Its name, as `PORTOLAN_TRANSPORT` takes it.
    pub(super) name: &'static str,
    /// What it is.
    pub(super) what: &'static str,
    /// Whether this command has it.
    pub(super) compiled_in: bool,
    /// Why it cannot be used here; `None` if nothing speaks against it.
    pub(super) obstacle: Option<String>,
}

/// Every transport of the project, in order of preference.
pub(super) fn backends() -> Vec<Backend> {
    let shm = cfg!(feature = "shm");
    vec![Backend {
        name: "shm",
        what: "shared memory inside a node",
        compiled_in: shm,
        obstacle: if shm {
            shm_obstacle()
        } else {
            Some("not compiled in".to_owned())
        },
    }]
}

/// What shared memory needs of the system: a file without a name.
fn shm_obstacle() -> Option<String> {
    let file = crate::os::memory_file(c"portolan-info");
    file.err().map(|error| format!("memfd_create: {error}"))
}
