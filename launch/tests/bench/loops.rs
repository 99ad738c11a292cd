//! The loops over libfabric that a C program runs, beside Portolan over the same provider.

use std::process::Command;

use crate::common::{outcome, portolan};
use crate::{expect_row, rows};

/// Whether the compiler finds libfabric's headers. If so, the program must build.
fn has_headers() -> bool {
    Command::new("cc")
        .args(["-E", "-include", "rdma/fabric.h", "-x", "c", "/dev/null"])
        .output()
        .is_ok_and(|said| said.status.success())
}

#[test]
#[expect(clippy::print_stderr, reason = "skips are counted by the runner")]
fn loops_over_libfabric_are_built_and_run_over_the_same_provider() {
    if !has_headers() {
        eprintln!("skipped: loops over libfabric: there is no rdma/fabric.h");
        return;
    }
    for (pattern, unit, way) in [
        ("latency", "us", "tagged"),
        ("latency", "us", "copied"),
        ("latency", "us", "read"),
        ("bandwidth", "MB/s", "tagged"),
        ("bibandwidth", "MB/s", "tagged"),
        ("rate", "messages/s", "tagged"),
    ] {
        // Three messages: an injected one, one sent at once, and one that the receiver requests.
        let mut command = portolan(&["bench", pattern, "--transport", "ofi", "--peers", "--json"]);
        command
            .args(["--only", "libfabric-", "--sizes", "8,4k,100k"])
            .args(["--repeat", "1", "--iterations", "3"])
            .env("PORTOLAN_OFI_PROVIDER", "tcp")
            .env("PORTOLAN_OFI_INTERFACE", "lo")
            .env("LIBFABRIC_WAY", way)
            .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
        let (rows, _) = rows(&outcome(command, b""));
        let loops: Vec<_> = rows
            .iter()
            .filter(|row| {
                row["peer"]
                    .as_str()
                    .is_some_and(|peer| peer.ends_with("+tcp"))
            })
            .collect();
        assert_eq!(loops.len(), 3, "{rows:?}");
        for row in loops {
            expect_row(row, pattern, 2, unit);
            assert!(row["peer"].as_str().unwrap().contains('.'), "{row}");
        }
    }
}
