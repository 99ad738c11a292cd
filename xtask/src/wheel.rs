//! What MPICH's wheel brings beside MPICH.

use std::path::PathBuf;

/// The libfabric 2 in MPICH's wheel, where `benches/peers/get-wheels` has put it.
pub(crate) fn newer_libfabric() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let peers = std::fs::read_dir(cache.join("portolan").join("peers")).ok()?;
    let library = |peer: PathBuf| peer.join("lib").join("mpich").join("libfabric.so.1");
    let mut found: Vec<PathBuf> = peers
        .flatten()
        .map(|peer| library(peer.path()))
        .filter(|library| library.is_file())
        .collect();
    found.sort();
    found.pop()
}
