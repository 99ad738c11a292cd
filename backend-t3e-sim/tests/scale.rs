//! How much of the host's memory thousands of PEs in one process touch. A test program of its own,
//! so that nothing else is counted.

use std::thread;

use portolan_core::config::Settings;
use portolan_core::device::{ProcId, SendArgs};
use portolan_core::matching::Pattern;
use portolan_core::{Adi, Device};
use portolan_t3e_sim::{T3e, device, in_process};

const PES: u32 = 2048;

/// Most KiB of the host's memory that a PE may touch: stack, queues, device and its part of the
/// machine.
const MOST: u64 = 128;

/// Sums a number over all PEs by recursive doubling, through the device.
fn allreduce(device: &T3e, me: u32) -> u64 {
    let mut sum = u64::from(me);
    for round in 0..PES.trailing_zeros() {
        let other = me ^ 1 << round;
        let pattern = Pattern {
            context: 0,
            source: Some(other),
            tag: Some(round),
        };
        let mut theirs = [0; 8];
        // SAFETY: `theirs` lives until the request has been waited for.
        let incoming = unsafe {
            device
                .irecv_contig(&pattern, theirs.as_mut_ptr(), 8)
                .unwrap()
        };
        let args = SendArgs::new(ProcId::new(other), 0, me, round);
        device.send_contig(&args, &sum.to_le_bytes()).unwrap();
        device.wait(incoming).unwrap();
        sum += u64::from_le_bytes(theirs);
    }
    sum
}

#[test]
fn an_allreduce_of_2048_pes_touches_little_memory() {
    let settings = Settings::default();
    let config = device::config(PES, &settings).unwrap();
    let devices: Vec<_> = in_process(PES, &config)
        .unwrap()
        .into_iter()
        .map(|pe| T3e::new(pe, &settings, false).unwrap())
        .collect();
    let clocks: Vec<_> = thread::scope(|scope| {
        let start = |(me, device): (u32, T3e)| {
            let body = move || {
                assert_eq!(allreduce(&device, me), u64::from(PES * (PES - 1) / 2));
                let clock = device.clock();
                device.end().unwrap();
                clock
            };
            let thread = thread::Builder::new().stack_size(256 << 10);
            thread.spawn_scoped(scope, body).unwrap()
        };
        let threads: Vec<_> = (0..).zip(devices).map(start).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    // Eleven exchanges of a dozen microseconds or more each, which end at the same time on all PEs.
    assert!(
        clocks
            .iter()
            .all(|clock| (120.0..200.0).contains(&clock.as_us()))
    );
    let touched = peak_kib() / u64::from(PES);
    assert!(touched <= MOST, "{touched} KiB for each PE");
}

/// The most memory that this process has touched so far.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let field = line.unwrap().split_whitespace().nth(1);
    field.unwrap().parse().unwrap()
}
