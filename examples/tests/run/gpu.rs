//! The example for GPUs: on those of this machine, and with a driver of these tests in place of
//! CUDA's, which computes on the processor.

use std::process::{Command, Stdio};

use libtest_mimic::{Failed, Trial};
use portolan::device_memory::Cuda;

use crate::command::{Job, Outcome};

/// The driver's source.
const DRIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/libcuda.c");

pub(crate) fn trials() -> Vec<Trial> {
    let gpu = Cuda::open().is_some();
    if !gpu {
        eprintln!("ignored: gpu_heat: there is no CUDA driver, or no GPU, on this machine");
    }
    let mut compiler = Command::new("cc");
    let compiler = compiler.arg("--version").stdout(Stdio::null()).status();
    let compiler = compiler.is_ok_and(|status| status.success());
    if !compiler {
        eprintln!("ignored: gpu_heat with a driver in place of CUDA's: there is no cc");
    }
    let alone = [1, 2, 3, 4].map(|ranks| {
        let test = move || says_right(&Job::new("gpu_heat", ranks)).map(drop);
        Trial::test(format!("gpu_heat_{ranks}"), test).with_ignored_flag(!gpu)
    });
    let mut trials = Vec::from(alone);
    trials.extend([
        Trial::test("gpu_heat_with_a_driver_in_place_of_cudas", in_place)
            .with_ignored_flag(!compiler),
        Trial::test("gpu_heat_without_a_gpu", without),
        Trial::test("gpu_heat_on_more_ranks_than_rows", more_ranks_than_rows),
    ]);
    trials
}

/// The program compares the result with the solution, and fails if they differ.
fn says_right(job: &Job) -> Result<Outcome, Failed> {
    let many = job.clone().option("--size", "61").option("--steps", "100");
    many.run().succeeded()?;
    // Rows that are too long to travel with their envelopes.
    let long = job.clone().option("--size", "257").option("--steps", "30");
    let long = long.with(&[("EAGER_MAX", "1k".to_owned())]);
    let outcome = long.run().succeeded()?;
    assert!(outcome.number("largest error ")? < 1e-12, "{outcome:?}");
    assert!(outcome.number("largest change ")? > 1e-6, "{outcome:?}");
    Ok(outcome)
}

fn in_place() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let library = folder.path().join("libcuda.so.1");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", DRIVER, "-o"])
        .arg(&library)
        .arg("-lpthread")
        .status()?;
    assert!(status.success(), "the driver does not compile");
    // Portolan opens the name above, `cudarc` this one if there is one. A link, because a copy
    // would be another driver, which does not know the memory of the first.
    std::os::unix::fs::symlink(&library, folder.path().join("libcuda.so"))?;
    for ranks in 1..=4 {
        let job = Job::new("gpu_heat", ranks).variable("LD_LIBRARY_PATH", folder.path());
        says_right(&job)?.says(&format!(" on {ranks} × the processor: "))?;
    }
    Ok(())
}

fn without() -> Result<(), Failed> {
    // A driver shows the programs no others than the GPUs of this list.
    let job = Job::new("gpu_heat", 2).variable("CUDA_VISIBLE_DEVICES", "");
    let says = ["error: rank ", ": there is no GPU: ", "; install NVIDIA's"];
    job.run().failed(1, &says).map(drop)
}

fn more_ranks_than_rows() -> Result<(), Failed> {
    let outcome = Job::new("gpu_heat", 4).option("--size", "3").run();
    let says = "3 rows cannot be shared by 4 ranks; take a larger --size, or fewer ranks";
    outcome.failed(1, &[says]).map(drop)
}
