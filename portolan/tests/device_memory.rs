//! Messages from and to accelerator memory: that of a fake which faults when the host touches it,
//! and that of a GPU where there is one.

#[path = "device_memory/gpu.rs"]
mod gpu;
#[path = "device_memory/one_sided.rs"]
mod one_sided;

use std::process::Command;
use std::sync::Arc;

use portolan::device_memory::{MemoryKind, Slice, SliceMut};
use portolan::{Comm, ErrorKind, World};

use portolan_core::staging::Fake;

/// Bytes of the longest message.
const MOST: usize = 900_001;
/// Shorter than a packet, eager, and announced.
const SIZES: [usize; 5] = [0, 1, 1000, 40_000, MOST];

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|n| ((n + seed) * 31 / 7) as u8).collect()
}

/// A world with its own fake accelerator, which has `len` bytes.
fn with_device(world: &World, len: usize) -> Arc<Fake> {
    let fake = Fake::new(len);
    assert!(world.set_accelerators(vec![Arc::clone(&fake) as _]));
    fake
}

/// # Safety
/// As for `Slice::new`.
unsafe fn data<'a>(fake: &Fake, at: usize, len: usize) -> Slice<'a, u8> {
    // SAFETY: the caller's promise.
    unsafe { Slice::new(MemoryKind::Cuda, fake.address(at), len) }
}

/// # Safety
/// As for `SliceMut::new`.
unsafe fn room<'a>(fake: &Fake, at: usize, len: usize) -> SliceMut<'a, u8> {
    // SAFETY: the caller's promise.
    unsafe { SliceMut::new(MemoryKind::Cuda, fake.address(at), len) }
}

/// Around a ring, from accelerator to accelerator; then through the host in between.
fn ring(world: &World) -> portolan::Result<()> {
    let (comm, fake) = (world.comm(), with_device(world, 2 * MOST));
    let (me, n) = (comm.rank(), comm.size());
    let (left, right) = ((me + n - 1) % n, (me + 1) % n);
    for (step, len) in SIZES.into_iter().enumerate() {
        fake.write(0, &bytes(len, me as usize + step));
        let expected = bytes(len, left as usize + step);
        // SAFETY: the halves of this rank's accelerator, which lives until the ring is over; only
        // `ring` uses it.
        let (mine, mut theirs) = unsafe { (data(&fake, 0, len), room(&fake, MOST, MOST)) };
        let status = comm.sendrecv_device(&mine, right, 1, &mut theirs, left, 1)?;
        assert_eq!((status.source, status.bytes), (left, len as u64));
        assert!(fake.read(MOST, len) == expected, "{len} bytes");
        // From the host, and back to it.
        let mut host = vec![0_u8; MOST];
        comm.scope(|s| {
            let incoming = s.recv(&mut host, left, 2)?;
            // SAFETY: as above.
            s.send_device(unsafe { data(&fake, 0, len) }, right, 2)?;
            assert_eq!(incoming.wait()?.1.bytes, len as u64);
            Ok(())
        })?;
        assert!(host[..len] == expected, "{len} bytes to the host");
        comm.scope(|s| {
            // SAFETY: as above.
            let incoming = s.recv_device(unsafe { room(&fake, 0, len) }, left, 3)?;
            s.send(&host[..len], right, 3)?;
            assert_eq!(incoming.wait()?.bytes, len as u64);
            Ok(())
        })?;
        let sender = (left as usize + n as usize - 1) % n as usize;
        assert!(
            fake.read(0, len) == bytes(len, sender + step),
            "{len} bytes from the host"
        );
    }
    Ok(())
}

#[test]
fn between_devices_and_hosts() {
    for ranks in [1, 2, 3] {
        portolan::try_threads(ranks, |world| ring(&world)).expect("a ring");
    }
}

fn blocking(world: &World) -> portolan::Result<()> {
    let (comm, fake): (Comm, _) = (world.comm(), with_device(world, 100));
    if comm.rank() == 0 {
        fake.write(0, &bytes(100, 3));
        // SAFETY: this rank's accelerator lives until the call returns.
        return comm.send_device(&unsafe { data(&fake, 0, 100) }, 1, 5);
    }
    fake.write(0, &[9; 100]);
    // SAFETY: as above.
    let mut short = unsafe { room(&fake, 0, 60) };
    assert_eq!(
        (short.len(), short.is_empty(), short.kind()),
        (60, false, MemoryKind::Cuda)
    );
    let error = comm.recv_device(&mut short, 0, 5).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Truncated);
    assert_eq!(fake.read(0, 100), [bytes(60, 3), vec![9; 40]].concat());
    Ok(())
}

#[test]
fn a_rank_may_send_to_itself() {
    portolan::try_threads(1, |world| {
        let (comm, fake) = (world.comm(), with_device(&world, 2 * MOST));
        for len in SIZES {
            fake.write(0, &bytes(len, 7));
            // SAFETY: the halves of this rank's accelerator, which no other code uses.
            let (mine, mut room) = unsafe { (data(&fake, 0, len), room(&fake, MOST, len)) };
            comm.send_device(&mine, 0, 1)?;
            let mut host = bytes(len, 9);
            // SAFETY: the array outlives the call.
            let from_host = unsafe { Slice::new(MemoryKind::Host, host.as_ptr() as u64, len) };
            comm.send_device::<u8>(&from_host, 0, 2)?;
            comm.recv_device(&mut room, 0, 1)?;
            assert!(fake.read(MOST, len) == bytes(len, 7), "{len} bytes");
            host.fill(0);
            comm.recv_into(&mut host, 0, 2)?;
            assert!(host == bytes(len, 9), "{len} bytes of the host");
        }
        Ok(())
    })
    .expect("a job");
}

#[test]
fn a_message_to_a_rank_whose_driver_fails_is_not_taken_back() {
    portolan::try_threads(2, |world| {
        let (comm, fake) = (world.comm(), with_device(&world, 2 * MOST));
        fake.write(0, &bytes(MOST, 1));
        // SAFETY: the halves of this rank's accelerator, which lives until this is over.
        let (mine, mut theirs) = unsafe { (data(&fake, 0, MOST), room(&fake, MOST, MOST)) };
        if comm.rank() == 0 {
            fake.fail_after(0);
            let sent = comm.send_device(&mine, 1, 1).unwrap_err();
            assert_eq!(sent.kind(), ErrorKind::UnsupportedMemory);
            // Later than the other rank learns that no message comes.
            let mut host = vec![0; MOST];
            comm.recv_into(&mut host, 1, 1)?;
            assert!(host == bytes(MOST, 1));
        } else {
            let received = comm.sendrecv_device(&mine, 0, 1, &mut theirs, 0, 1);
            assert_eq!(received.unwrap_err().kind(), ErrorKind::UnsupportedMemory);
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_message_that_is_too_long_stays_within_its_room() {
    portolan::try_threads(2, |world| blocking(&world)).expect("what fits");
}

#[test]
fn without_a_driver_such_memory_is_refused_and_not_touched() {
    portolan::threads(1, |world| {
        assert!(world.set_accelerators(Vec::new()));
        assert!(!world.set_accelerators(Vec::new()), "it is settled");
        let (comm, fake) = (world.comm(), Fake::new(100));
        // SAFETY: nothing is sent or received; if it were, the access would fault.
        let (mine, mut theirs) = unsafe { (data(&fake, 0, 10), room(&fake, 50, 10)) };
        let refused = |kind: ErrorKind| assert_eq!(kind, ErrorKind::UnsupportedMemory);
        refused(comm.send_device(&mine, 0, 1).unwrap_err().kind());
        refused(comm.recv_device(&mut theirs, 0, 1).unwrap_err().kind());
    })
    .expect("a rank");
}

#[test]
fn an_address_that_the_driver_does_not_know_is_an_error() {
    portolan::threads(1, |world| {
        let (comm, _fake) = (world.comm(), with_device(&world, 100));
        let host = [0_u8; 8];
        // SAFETY: memory of the host, which the driver does not touch, because it recognises its
        // own.
        let wrong = unsafe { Slice::<u8>::new(MemoryKind::Cuda, host.as_ptr() as u64, 8) };
        let error = comm.send_device(&wrong, 0, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedMemory, "{error}");
    })
    .expect("a rank");
}

#[test]
fn put_and_get() {
    portolan::try_threads(2, |world| {
        let (comm, fake) = (world.comm(), Fake::new(2 * MOST));
        for len in SIZES {
            let sent = bytes(len, 4);
            fake.write(0, &sent);
            fake.write(len, &vec![9; len]);
            let driver = Arc::clone(&fake) as _;
            // SAFETY: this rank's accelerator, which no other code uses.
            unsafe { one_sided::there_and_back(&comm, driver, fake.address(0), len) }?;
            let arrived = if comm.rank() == 0 { sent } else { vec![9; len] };
            assert!(fake.read(len, len) == arrived, "{len} bytes");
        }
        Ok(())
    })
    .expect("puts and gets");
}

#[test]
fn memory_of_devices_is_shared() {
    for ranks in [1, 2, 3] {
        portolan::try_threads(ranks, |world| {
            let (comm, fake) = (world.comm(), with_device(&world, 3 * MOST));
            let (me, n) = (comm.rank(), comm.size());
            let left = (me + n - 1) % n;
            for len in SIZES {
                fake.write(0, &bytes(len, me as usize));
                fake.write(MOST, &vec![9; 2 * MOST]);
                let places = [0, MOST, 2 * MOST].map(|at| fake.address(at));
                // SAFETY: thirds of this rank's accelerator, which no other code uses.
                unsafe { one_sided::to_the_right(&comm, MemoryKind::Cuda, places, len) }?;
                assert!(
                    fake.read(MOST, len) == bytes(len, left as usize),
                    "{len} bytes put"
                );
                assert!(
                    fake.read(2 * MOST, len) == bytes(len, me as usize),
                    "{len} bytes got"
                );
                assert!(len == MOST || fake.read(MOST + len, 1) == [9]);
            }
            Ok(())
        })
        .expect("puts and gets");
    }
}

#[test]
fn between_gpus() {
    gpu::between_gpus(&[], true);
}

/// Through the host: libfabric's TCP provider does not accept such memory.
#[test]
fn between_gpus_over_tcp() {
    let settings = [
        ("TRANSPORT", "ofi"),
        ("OFI_PROVIDER", "tcp"),
        ("OFI_INTERFACE", "lo"),
    ];
    gpu::between_gpus(&settings, true);
}

/// Directly by the provider, where the library was built with CUDA. Its calls of CUDA fail while a
/// thread captures a stream, and it waits for them for ever (2.1).
#[test]
fn between_gpus_over_libfabrics_shared_memory() {
    let settings = [
        ("TRANSPORT", "ofi"),
        ("OFI_PROVIDER", "shm"),
        ("OFI_HMEM", "auto"),
    ];
    gpu::between_gpus(&settings, false);
}

#[test]
fn managed_memory_is_the_hosts_too() {
    gpu::managed();
}

/// The same with a driver of our own in place of CUDA's. It records which functions are called, in
/// which order and with which arguments, on machines without a GPU, too.
#[test]
fn between_gpus_of_a_driver_without_any() {
    let place = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = place.join(format!("cuda-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a directory");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/device_memory/libcuda.c");
    let compiler = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", source, "-o"])
        .arg(place.join("libcuda.so.1"))
        .arg("-lpthread")
        .status();
    match compiler {
        Err(why) => return gpu::skipped("a driver in place of CUDA's", &format!("no cc: {why}")),
        Ok(status) => assert!(status.success(), "the driver does not compile"),
    }
    let tests = [
        "between_gpus",
        "between_gpus_over_tcp",
        "between_gpus_over_libfabrics_shared_memory",
        "managed_memory_is_the_hosts_too",
    ];
    for test in tests {
        with_driver(test, &place);
    }
    std::fs::remove_dir_all(&place).expect("a directory");
}

/// Runs a test with the driver in this directory, and checks what the driver prints at the end.
fn with_driver(test: &str, place: &std::path::Path) {
    let this = std::env::current_exe().expect("this program");
    let output = Command::new(this)
        .args(["--exact", test, "--nocapture"])
        .env("LD_LIBRARY_PATH", place)
        .env("FAKE_CUDA_REPORT", "1")
        .output()
        .expect("this program");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{test}: {said}");
    if let Some(skip) = said.lines().find_map(|line| line.strip_prefix("skipped: ")) {
        // libfabric may be missing.
        assert!(test.contains("_over_"), "{test}: {said}");
        return gpu::skipped(test, skip);
    }
    let report = said.lines().find(|line| line.contains("copies started"));
    let report = report.expect("a word of the driver");
    let left = "0 pieces locked, 0 streams";
    assert!(report.contains(left), "{test}: {report}");
    // The test's own threads keep theirs.
    let kept = if test.starts_with("managed") { 1 } else { 2 };
    let kept = format!(" {kept} contexts kept");
    assert!(report.contains(&kept), "{test}: {report}");
    assert!(!report.contains(" 0 copies"), "{test}: {report}");
}
