//! Finds what MPICH's wheel contains besides MPICH.

use std::path::{Path, PathBuf};

/// The libfabric 2 in MPICH's wheel, where `benches/peers/get-wheels` has put it.
pub(crate) fn newer_libfabric() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let peers = std::fs::read_dir(cache.join("portolan").join("peers")).ok()?;
    let library = |peer: &Path| peer.join("lib").join("mpich").join("libfabric.so.1");
    let found = peers
        .flatten()
        .map(|peer| peer.path())
        .filter(|peer| library(peer).is_file());
    newest(found).map(|peer| library(&peer))
}

/// The folder whose name has the highest version, wherever the folders are.
fn newest(peers: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    peers.max_by_key(|peer| {
        let name = peer.file_name().unwrap_or_default();
        numbers(&name.to_string_lossy())
    })
}

/// The numbers in a name, which order versions.
fn numbers(name: &str) -> Vec<u64> {
    let digits = name.split(|c: char| !c.is_ascii_digit());
    digits.filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_the_order_of_their_numbers() {
        let mut names = ["mpich-5.0.10/lib", "mpich/lib", "mpich-5.0.2/lib"];
        names.sort_by_key(|name| numbers(name));
        assert_eq!(names, ["mpich/lib", "mpich-5.0.2/lib", "mpich-5.0.10/lib"]);
    }

    #[test]
    fn a_folder_above_has_no_say() {
        let paths = ["/a7/mpich-5.0.2", "/a/mpich-5.0.10", "/a10/mpich-4.3.0"];
        let found = newest(paths.into_iter().map(PathBuf::from));
        assert_eq!(found, Some(PathBuf::from("/a/mpich-5.0.10")));
    }
}
