//! The bindings in `src/bindings.rs` are what the headers say. This test also makes them.
//!
//! `cargo xtask bindgen` runs it with `LIBFABRIC_SYS_WRITE` set, and it then writes the file.
//! Without libclang, or without the headers from which the file was made, it is skipped and says
//! why.

// The program that reads test results knows these lines.
#![allow(clippy::print_stdout)]

use std::fs;
use std::path::{Path, PathBuf};

use bindgen::callbacks::{IntKind, ParseCallbacks};

/// The version of libfabric that the bindings are for.
const VERSION: &str = "1.17";

/// Flags are 64 bits wide wherever they are used; error numbers are `int`.
#[derive(Debug)]
struct Kinds;

impl ParseCallbacks for Kinds {
    fn int_macro(&self, name: &str, value: i64) -> Option<IntKind> {
        let error = name.starts_with("FI_E") && value < 256;
        Some(if error { IntKind::I32 } else { IntKind::U64 })
    }
}

/// The text of the bindings, formatted like the project's sources.
fn generate(root: &Path, headers: &Path) -> String {
    let bindings = bindgen::Builder::default()
        .header(root.join("headers/libfabric.h").display().to_string())
        .clang_arg(format!("-I{}", headers.display()))
        .allowlist_type("fi_.*|fid|fid_.*")
        .allowlist_var("FI_.*")
        .blocklist_function(".*")
        .blocklist_type("iovec|ssize_t|__ssize_t|off_t|__off_t|pollfd|nfds_t|fi_mutex_cond|pthread.*|__pthread.*|__atomic_wide.*")
        .raw_line("use libc::{iovec, pollfd};")
        .raw_line("")
        .rust_target(bindgen::RustTarget::stable(85, 0).expect("a version that bindgen knows"))
        .rust_edition(bindgen::RustEdition::Edition2024)
        .wrap_unsafe_ops(true)
        .prepend_enum_name(false)
        .derive_debug(false)
        .generate_comments(false)
        .parse_callbacks(Box::new(Kinds))
        .rustfmt_configuration_file(root.join("../../rustfmt.toml").canonicalize().ok())
        .generate();
    bindings.expect("the headers are C").to_string()
}

/// The include folder with the headers of the right version, or the reason why there is none.
fn headers() -> Result<PathBuf, String> {
    let folders = ["/usr/include", "/usr/local/include"].map(PathBuf::from);
    let here = folders
        .iter()
        .find(|folder| folder.join("rdma/fabric.h").exists());
    let folder = here.ok_or("there are no headers of libfabric (package libfabric-dev)")?;
    let text = fs::read_to_string(folder.join("rdma/fabric.h")).map_err(|e| e.to_string())?;
    let number = |name: &str| {
        let line = text.lines().find(|line| line.contains(name))?;
        line.split_whitespace().last()?.parse::<u32>().ok()
    };
    match (
        number("define FI_MAJOR_VERSION"),
        number("define FI_MINOR_VERSION"),
    ) {
        (Some(major), Some(minor)) if format!("{major}.{minor}") == VERSION => Ok(folder.clone()),
        (major, minor) => Err(format!(
            "the headers of libfabric are of version {major:?}.{minor:?}, the bindings of {VERSION}"
        )),
    }
}

/// Whether bindgen can find libclang. Where it cannot, it panics, and it offers no call that
/// returns an error instead.
fn has_libclang() -> bool {
    std::panic::catch_unwind(bindgen::clang_version).is_ok()
}

#[test]
fn bindings_are_what_the_headers_say() {
    let headers = match headers() {
        Ok(headers) if has_libclang() => headers,
        Ok(_) => return println!("skipped: making the bindings again: there is no libclang"),
        Err(why) => return println!("skipped: making the bindings again: {why}"),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = root.join("src/bindings.rs");
    let made = generate(root, &headers);
    if std::env::var_os("LIBFABRIC_SYS_WRITE").is_some() {
        fs::write(file, made).expect("the source folder can be written");
        return;
    }
    // The first line names the version of bindgen.
    let tail = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    let kept = fs::read_to_string(file).expect("the bindings are checked in");
    for (number, (kept, made)) in tail(&kept).iter().zip(&tail(&made)).enumerate() {
        assert_eq!(
            kept,
            made,
            "line {} differs: run `cargo xtask bindgen`",
            number + 2
        );
    }
    assert_eq!(
        kept.lines().count(),
        made.lines().count(),
        "run `cargo xtask bindgen`"
    );
}
