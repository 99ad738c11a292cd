//! Building our programs with another implementation's compiler.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use portolan_benches::{Form, Pattern};

use crate::bench::job::{PATIENCE, Watch, start};

macro_rules! sources {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../benches/peers/", $name)))),*]
    };
}

/// The sources of the peers' programs, which this command carries along.
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
    "peer.h",
    "ping_pong.h",
    "rate.c",
    "sampling.h",
    "startup.c",
    "talk.h",
    "waiting.h",
    "windows.h",
];

/// Builds the program of a pattern, or finds it as it was built before.
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

/// Builds a program of one source, or finds it as it was built before. `salt` is what else may
/// change it. Warnings about somebody else's headers are nobody's business here: `arguments` should
/// keep them away.
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
    // Another command may be building the same: whoever is last replaces what is the same.
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

/// What makes a program of one pattern of a source that several share.
fn defines(pattern: Pattern) -> Vec<String> {
    let Pattern::Collective(which, form) = pattern else {
        return Vec::new();
    };
    let name = Pattern::Collective(which, Form::Blocking).name();
    let operation = name.to_uppercase().replace('-', "_");
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

/// Where things are kept that can be made again.
pub(super) fn cache() -> PathBuf {
    // Tests leave the user's alone.
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

/// How long a command may take to say what it is: wrappers of compilers and launchers on file
/// systems that stand still are never done.
pub(super) const SOON: Duration = Duration::from_secs(60);

/// What a command says on its standard output, if it succeeds. Where it has not ended in so much
/// time it is ended.
pub(super) fn said_by(command: &mut Command, time: Duration) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let (mut child, remarks) = start(command)?;
    let watch = Watch::over(&child, time);
    let mut said = Vec::new();
    if let Some(mut out) = child.stdout.take() {
        // What cannot be read is not said.
        let _ = out.read_to_end(&mut said);
    }
    let in_time = watch.until_end_of(&child);
    let status = child
        .wait()
        .map_err(|error| format!("cannot wait for {name}: {error}"))?;
    let why = shortened(&remarks.text());
    in_time.map_err(|late| format!("{name}: {late}: {why}"))?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&said).into_owned());
    }
    Err(format!("{name} failed ({status}): {why}"))
}

/// Compilers say much; what matters comes first, or last.
fn shortened(said: &str) -> String {
    let lines: Vec<_> = said.trim_end().lines().collect();
    match &lines[..] {
        [first, second, .., last] if lines.len() > 4 => [*first, *second, "...", *last].join("\n"),
        few => few.join("\n"),
    }
}

/// A command that can be called by its name.
pub(super) fn on_path(command: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(command))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_does_not_end_is_ended() {
        let mut endless = Command::new("sh");
        // What it has started holds its output, and ends with it.
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
