//! Buffers on GPUs, over a driver of our own in place of CUDA's, so that this runs on machines
//! without a GPU, too.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Outcome, outcome, portolan};
use crate::{bench, expect_row, rows};

/// A folder with the driver as a library, until it is dropped.
struct Driver(PathBuf);

impl Driver {
    /// `None` if there is no compiler.
    fn new(name: &str) -> Option<Self> {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let place = place.join(format!("cuda-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&place).expect("a directory");
        let driver = Self(place);
        let source = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../portolan/tests/device_memory/libcuda.c"
        );
        let compiler = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", source, "-o"])
            .arg(driver.0.join("libcuda.so.1"))
            .arg("-lpthread")
            .status();
        let status = compiler.inspect_err(|why| skipped(&format!("no cc: {why}")));
        assert!(status.ok()?.success(), "the driver does not compile");
        Some(driver)
    }

    /// The smallest possible measurement, with this driver.
    fn bench(&self, arguments: &[&str]) -> Outcome {
        let least = ["--sizes", "8,300k", "--repeat", "1", "--iterations", "3"];
        let mut command = portolan(&[&["bench"], arguments, &["--cuda"], &least].concat());
        command.env("LD_LIBRARY_PATH", &self.0);
        outcome(command, b"")
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[expect(clippy::print_stderr, reason = "skips are counted by the runner")]
fn skipped(why: &str) {
    eprintln!("skipped: buffers on GPUs: {why}");
}

#[test]
fn buffers_on_gpus_are_measured() {
    let Some(driver) = Driver::new("rows") else {
        return;
    };
    for (pattern, unit) in [
        ("latency", "us"),
        ("bandwidth", "MB/s"),
        ("bibandwidth", "MB/s"),
    ] {
        let (rows, others) = rows(&driver.bench(&[pattern, "--json"]));
        let sizes: Vec<_> = rows.iter().map(|row| row["bytes"].as_u64()).collect();
        assert_eq!(sizes, [Some(8), Some(300 << 10)]);
        for row in &rows {
            expect_row(row, pattern, 2, unit);
            assert_eq!(row["cuda"], true, "{row}");
        }
        let machine = others.iter().find_map(|row| row.get("machine"));
        let gpu = &machine.expect("a machine")["gpu"];
        assert_eq!(gpu["name"], "fake");
        assert!(gpu["from_mb_s"].as_f64() > Some(0.0), "{gpu}");
    }
    let folder = driver.0.join("report");
    let report = folder.to_str().expect("a name");
    let table = driver.bench(&["bandwidth", "--buffers", "2", "--report", report]);
    table.expect_code(0);
    let head = table.out.lines().next().unwrap_or_default();
    assert!(
        head.ends_with(" in 2 buffers, buffers on GPUs"),
        "{table:#?}"
    );
    assert!(table.out.contains("# GPU fake: copies"), "{table:#?}");
    let kept = folder.join("bandwidth-2-buffers2-cuda.json");
    assert!(kept.exists(), "{}", kept.display());
}

#[test]
fn a_rank_of_another_launcher_has_its_gpu_too() {
    let Some(driver) = Driver::new("rank") else {
        return;
    };
    let me = env!("CARGO_BIN_EXE_portolan");
    let rank = ["run", "-n", "2", "--", me, "bench", "latency", "--cuda"];
    let least = [
        "--sizes",
        "8",
        "--json",
        "--repeat",
        "1",
        "--iterations",
        "3",
    ];
    let mut command = portolan(&[&rank[..], &least].concat());
    command.env("LD_LIBRARY_PATH", &driver.0);
    let (rows, _) = rows(&outcome(command, b""));
    expect_row(&rows[0], "latency", 2, "us");
    assert_eq!(rows[0]["cuda"], true);
}

#[test]
fn where_there_is_no_driver_it_is_said_what_is_needed() {
    // A file that is no library hides the driver of this machine, if it has one.
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = place.join(format!("cuda-none-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a directory");
    std::fs::write(place.join("libcuda.so.1"), "").expect("a file");
    let mut command = portolan(&["bench", "latency", "--cuda", "--sizes", "8"]);
    command.env("LD_LIBRARY_PATH", &place);
    let outcome = outcome(command, b"");
    std::fs::remove_dir_all(&place).expect("a directory");
    outcome.expect_code(1).expect_err(&[
        "CUDA's driver cannot be opened: ",
        "; --cuda needs CUDA's driver (libcuda.so.1) and a GPU",
    ]);
}

#[test]
fn a_dry_run_says_that_buffers_are_on_gpus() {
    let told = bench(&["bandwidth", "--cuda", "--dry-run", "--sizes", "8"]);
    told.expect_code(0);
    assert!(
        told.out.contains(", buffers on GPUs; 1 each"),
        "{}",
        told.out
    );
}
