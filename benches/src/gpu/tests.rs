use std::io::Write;
use std::path::Path;
use std::process::Command;

use super::*;
use crate::{Pattern as Measured, Plan, Sample, Setup, Steps, measure};

fn skipped(what: &str, why: &str) {
    let _ = writeln!(std::io::stdout(), "skipped: {what}: {why}");
}

fn sample(pattern: Measured) -> Result<Vec<Sample>> {
    let setup = Setup {
        window: 8,
        buffers: 3,
        cuda: true,
        ..Setup::usual(pattern)
    };
    let plan = Plan::with_rounds(1000, 3);
    portolan::try_threads(2, |world| measure(&world.comm(), &setup, &plan))
}

#[test]
fn without_a_driver_it_is_said_what_is_needed() {
    if Cuda::open().is_some() {
        return skipped("buffers on a GPU that is not there", "there is one");
    }
    let error = sample(Measured::Latency).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedMemory);
    let needed = "--cuda needs CUDA's driver (libcuda.so.1) and a GPU";
    assert!(error.to_string().contains(needed), "{error}");
    assert_eq!(copies().unwrap_err().kind(), ErrorKind::UnsupportedMemory);
}

#[test]
fn what_has_no_such_buffers_is_refused() {
    for pattern in [Measured::Overlap, Measured::Barrier, Measured::Multithread] {
        let error = sample(pattern).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
}

#[test]
fn messages_go_from_gpu_to_gpu() {
    if Cuda::open().is_none() {
        return skipped("buffers on a GPU", "there is no CUDA driver, or no GPU");
    }
    for pattern in [
        Measured::Latency,
        Measured::Bandwidth,
        Measured::Bibandwidth,
    ] {
        for (bytes, count) in [(0, 1), (1, 1), (5000, 3), (1 << 20, 1)] {
            portolan::try_threads(3, |world| {
                let comm = world.comm();
                let mine = comm.rank() as u8 + 1;
                let mut buffers = GpuBuffers::new(&comm, count, bytes, mine)?;
                Steps::new(pattern, bytes, 7).run_on_gpus(&comm, 3, &mut buffers)?;
                let theirs = match Role::of(comm.rank(), comm.size()) {
                    Role::Starts { .. } if pattern == Measured::Bandwidth => 0,
                    role => role.peer().map_or(0, |peer| peer as u8 + 1),
                };
                let arrived = buffers.received();
                assert!(
                    arrived.len() == bytes && arrived.iter().all(|&byte| byte == theirs),
                    "{pattern:?}, {bytes} bytes"
                );
                Ok(())
            })
            .unwrap();
        }
        let samples = sample(pattern).unwrap();
        assert!(samples[0].value > 0.0 && samples[0] == samples[1]);
    }
    let error = portolan::try_threads(1, |world| {
        GpuBuffers::new(&world.comm(), 1, 1 << 60, 0).map(drop)
    });
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Exhausted);
    let copies = copies().unwrap();
    let times = [copies.short, copies.long].concat();
    assert!(times.iter().all(|&time| time > 0.0), "{copies:?}");
}

/// The same with a driver of our own in place of CUDA's, on machines without a GPU, too.
#[test]
fn messages_go_from_gpu_to_gpu_of_a_driver_without_any() {
    let place = std::env::temp_dir().join(format!("portolan-benches-cuda-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a directory");
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../portolan/tests/device_memory/libcuda.c");
    let compiler = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
        .arg(place.join("libcuda.so.1"))
        .arg(source)
        .arg("-lpthread")
        .status();
    match compiler {
        Err(why) => return skipped("a driver in place of CUDA's", &format!("no cc: {why}")),
        Ok(status) => assert!(status.success(), "the driver does not compile"),
    }
    let this = std::env::current_exe().expect("this program");
    let output = Command::new(this)
        .args([
            "--exact",
            "gpu::tests::messages_go_from_gpu_to_gpu",
            "--nocapture",
        ])
        .env("LD_LIBRARY_PATH", &place)
        .output()
        .expect("this program");
    std::fs::remove_dir_all(&place).expect("a directory");
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{failed}");
    assert!(
        said.contains("1 passed") && !said.contains("skipped: "),
        "{said}"
    );
}
