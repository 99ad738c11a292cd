//! Worlds on the emulated T3E, through the facade.
#![cfg(feature = "t3e-sim")]

use portolan::{Builder, ErrorKind};

fn on_t3e() -> Builder {
    Builder::new().transport("t3e-sim")
}

#[test]
fn ranks_talk_in_virtual_time() {
    let times = on_t3e()
        .threads(5, |world| {
            let comm = world.comm();
            let next = (comm.rank() + 1) % comm.size();
            let begun = comm.wtime();
            let sent = comm.isend_owned(vec![comm.rank()], next, 3).unwrap();
            let (number, _) = comm.recv_one::<u32>(portolan::Source::Any, 3).unwrap();
            sent.wait().unwrap();
            assert_eq!(number, (comm.rank() + 4) % 5);
            comm.barrier().unwrap();
            comm.wtime() - begun
        })
        .unwrap();
    assert!(
        times.iter().all(|time| (20e-6..1e-3).contains(time)),
        "{times:?}"
    );
}

#[test]
fn the_same_job_takes_the_same_time() {
    let run = || {
        let job = on_t3e().setting("T3E_SEED", "9");
        let body = |world: portolan::World| {
            world.comm().barrier().unwrap();
            world.comm().wtime()
        };
        job.threads(6, body).unwrap()
    };
    assert_eq!(run(), run());
}

#[test]
fn several_threads_of_a_rank_are_refused() {
    let error = on_t3e().multiple().threads(2, |_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("t3e-sim"), "{error}");
}

#[test]
fn one_thread_cannot_step_its_ranks() {
    let error = on_t3e().in_process(2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TransportUnavailable);
    assert!(
        error.to_string().contains("one thread cannot step"),
        "{error}"
    );
}

#[test]
fn settings_that_fit_no_machine_are_refused() {
    for (ranks, name, value, part) in [
        (3, "T3E_PRESET", "t3d", "t3e-600, t3e-900, t3e-1200"),
        (3, "T3E_TORUS", "2x1x1", "too few for 3 PEs"),
        (3, "T3E_FAULTS", "pe:3:2", "no PE 3"),
        (37, "T3E_SEED", "0", "37 PEs fit no torus"),
    ] {
        let job = on_t3e().setting(name, value);
        let error = job.threads(ranks, |_| ()).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
