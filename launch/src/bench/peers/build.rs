//! Builds this project's C programs with another implementation's compiler.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use portolan_benches::{Collective, Form, Pattern};

use crate::bench::job::{PATIENCE, Watch, start};
use crate::bench::output::Output;
use crate::run::leftovers;

macro_rules! sources {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../benches/peers/", $name)))),*]
    };
}

/// The sources of the peers' programs, which are embedded in this command.
pub(super) const SOURCES: &[(&str, &str)] = sources![
    "bandwidth.c",
    "barrier.c",
    "bibandwidth.c",
    "collective.c",
    "depth-unexpected.c",
    "depth-wildcard.c",
    "depth.c",
    "drain-random.c",
    "drain-reverse.c",
    "drain.h",
    "fabric.h",
    "idle.c",
    "latency.c",
    "libfabric.c",
    "memory-all.c",
    "memory-ring.c",
    "multithread.c",
    "overlap.c",
    "pair.h",
    "peer.h",
    "ping_pong.h",
    "rate.c",
    "readv.c",
    "sampling.h",
    "startup.c",
    "talk.h",
    "waiting.h",
    "windows.h",
];

/// Builds the program of a pattern, or finds it in the cache.
pub(super) fn build(compiler: &Path, version: &str, pattern: Pattern) -> Result<PathBuf, String> {
    let shown = said_by(Command::new(compiler).arg("-show"), SOON)?;
    let defines = defines(pattern);
    let mut arguments = vec!["-O3", "-w", "-pthread"];
    arguments.extend(defines.iter().map(String::as_str));
    let salt = format!("{version} {shown}");
    make(
        compiler,
        &salt,
        pattern.name(),
        &source(pattern),
        &arguments,
        &[],
    )
}

/// Builds a program from one source, or finds it in the cache. `salt` is anything else on which the
/// result depends. The `arguments` should suppress warnings about the other implementation's
/// headers.
pub(super) fn make(
    compiler: &Path,
    salt: &str,
    name: &str,
    source: &str,
    arguments: &[&str],
    libraries: &[&str],
) -> Result<PathBuf, String> {
    let mut hasher = DefaultHasher::new();
    compiler
        .canonicalize()
        .unwrap_or_default()
        .hash(&mut hasher);
    (salt, arguments, libraries, SOURCES).hash(&mut hasher);
    let folder = cache().join(format!("peers-{:016x}", hasher.finish()));
    let program = folder.join(name);
    if program.is_file() {
        return Ok(program);
    }
    let say = |error| format!("cannot write to {}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(say)?;
    for (name, text) in SOURCES {
        fs::write(folder.join(name), text).map_err(say)?;
    }
    // Another command may build the same program at the same time. Then the later of the two
    // replaces an identical file.
    let draft = folder.join(format!("{name}.{}", std::process::id()));
    let mut command = Command::new(compiler);
    command.args(arguments).arg("-o").arg(&draft);
    command.arg(folder.join(source)).args(libraries);
    said_by(&mut command, PATIENCE)?;
    fs::rename(&draft, &program).map_err(say)?;
    Ok(program)
}

/// The source of a pattern's program.
fn source(pattern: Pattern) -> String {
    match pattern {
        Pattern::Collective(..) => "collective.c".to_owned(),
        _ => format!("{}.c", pattern.name()),
    }
}

/// The macros that select one pattern of a source that several patterns share.
fn defines(pattern: Pattern) -> Vec<String> {
    let Pattern::Collective(which, form) = pattern else {
        return Vec::new();
    };
    let name = Pattern::Collective(which, Form::Blocking).name();
    let operation = match which {
        Collective::Barrier => "BARRIER".to_owned(),
        _ => name.to_uppercase().replace('-', "_"),
    };
    let form = match form {
        Form::Blocking => "BLOCKING",
        Form::Nonblocking => "NONBLOCKING",
        Form::Hidden => "HIDDEN",
        Form::Persistent => "PERSISTENT",
    };
    vec![
        format!("-DOPERATION=OP_{operation}"),
        format!("-DFORM=FORM_{form}"),
    ]
}

/// The folder for files that can be generated again.
pub(super) fn cache() -> PathBuf {
    // Tests do not use the user's cache.
    if cfg!(test)
        && let Ok(program) = env::current_exe()
    {
        return program.with_file_name("cache-of-tests");
    }
    let set = |name| env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let cache = set("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| Path::new(&home).join(".cache")));
    cache.unwrap_or_else(env::temp_dir).join("portolan")
}

/// How long a command may take to say what it is. Compiler and launcher wrappers on a file system
/// that hangs never end.
pub(super) const SOON: Duration = Duration::from_secs(60);

/// The standard output of a command that succeeds. A command that has not ended after `time` is
/// killed.
pub(super) fn said_by(command: &mut Command, time: Duration) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let (mut child, remarks) = start(command)?;
    let watch = Watch::over(&child, time);
    let said: String = Output::of(&mut child)
        .flat_map(|line| [line, "\n".to_owned()])
        .collect();
    let in_time = watch.until_end_of(&child);
    let status = child
        .wait()
        .map_err(|error| format!("cannot wait for {name}: {error}"))?;
    if !status.success() {
        leftovers::remove(&[child.id() as i32]);
    }
    let why = shortened(&remarks.text());
    in_time.map_err(|late| format!("{name}: {late}: {why}"))?;
    if status.success() {
        return Ok(said);
    }
    Err(format!("{name} failed ({status}): {why}"))
}

/// Shortens a compiler's output to its first and last lines, where the important messages are.
fn shortened(said: &str) -> String {
    let lines: Vec<_> = said.trim_end().lines().collect();
    match &lines[..] {
        [first, second, .., last] if lines.len() > 4 => [*first, *second, "...", *last].join("\n"),
        few => few.join("\n"),
    }
}

/// The path of a command that can be called by its name.
pub(super) fn on_path(command: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .find(|folder| folder.join(command).is_file())
        // The folder itself, and not a link to it: Open MPI looks for its files beside the folder
        // from which it was started.
        .map(|folder| folder.canonicalize().unwrap_or(folder).join(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_does_not_end_is_ended() {
        let mut endless = Command::new("sh");
        // Its child holds the output open, and must be killed with it.
        endless.args(["-c", "echo why >&2; sleep 100000 & wait"]);
        let error = said_by(&mut endless, Duration::from_millis(20)).unwrap_err();
        assert!(
            error.starts_with("sh: it had not ended after 20ms"),
            "{error}"
        );
        let mut brief = Command::new("echo");
        brief.arg("here");
        let said = said_by(&mut brief, PATIENCE);
        assert_eq!(said.as_deref(), Ok("here\n"));
        let failed = said_by(&mut Command::new("false"), PATIENCE).unwrap_err();
        assert!(failed.starts_with("false failed"), "{failed}");
    }

    #[test]
    fn every_pattern_has_its_program() {
        for pattern in Pattern::ALL {
            let name = source(pattern);
            assert!(SOURCES.iter().any(|source| source.0 == name), "{name}");
        }
    }
}
