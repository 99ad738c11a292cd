//! The machine that processes join through sockets: it gives the same virtual times as with
//! threads, and notices deaths.

use std::thread;
use std::time::Duration;

use portolan_core::{ErrorKind, Result};
use portolan_t3e_sim::drive::{Host, join};
use portolan_t3e_sim::machine::Call;
use portolan_t3e_sim::{Condition, Config, Shmem, Time, run};

/// Runs `body` on PEs that talk to the machine as processes do, each from a thread of its own.
fn through_sockets<R: Send>(
    pes: u32,
    config: &Config,
    body: impl Fn(&mut Shmem) -> R + Sync,
) -> Vec<R> {
    let machine = config.machine(pes).unwrap();
    let mut host = Some(Host::start(machine, config.watchdog).unwrap());
    let address = host.as_ref().unwrap().address();
    let (body, address) = (&body, &address);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..pes)
            .map(|pe| {
                let host = host.take();
                scope.spawn(move || {
                    let mut shmem = Shmem::hosted(join(address, pe).unwrap(), host);
                    body(&mut shmem)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

/// Neighbours exchange data, all PEs add to one counter, and all meet in a barrier. Returns the
/// clock after every step.
fn program(pe: &mut Shmem) -> Result<Vec<Time>> {
    let (me, n) = (pe.my_pe(), pe.n_pes());
    let place = pe.malloc(10_000)?;
    let counter = pe.malloc(8)?;
    let mut clocks = Vec::new();
    for round in 1..=5_i64 {
        pe.charge(Time::from_ns(u64::from(me) * 100));
        pe.put((me + 1) % n, place, &vec![round as u8; 9_999])?;
        pe.fence()?;
        pe.fetch_increment((me + 1) % n, counter)?;
        pe.wait_until(counter, Condition::GreaterEqual(round))?;
        let mut bytes = [0; 9_999];
        pe.get((me + n - 1) % n, place, &mut bytes)?;
        clocks.push(pe.now()?);
    }
    pe.barrier_all()?;
    clocks.push(pe.clock());
    Ok(clocks)
}

#[test]
fn virtual_times_do_not_depend_on_the_driver() {
    for seed in [None, Some(5)] {
        let config = Config {
            seed,
            ..Config::default()
        };
        for pes in [1, 2, 5] {
            let threads = run(pes, &config, |pe| program(pe).unwrap()).unwrap();
            let sockets = through_sockets(pes, &config, |pe| program(pe).unwrap());
            assert_eq!(threads, sockets, "{pes} PEs, seed {seed:?}");
        }
    }
}

#[test]
fn a_death_is_noticed_whatever_the_pe_was_doing() {
    let config = Config::default();
    for waiting in [false, true] {
        let host = Host::start(config.machine(2).unwrap(), None).unwrap();
        let address = host.address();
        let mut victim = join(&address, 1).unwrap();
        let mut survivor = Shmem::hosted(join(&address, 0).unwrap(), Some(host));
        // Dropping a link without leaving closes the socket, as a death does.
        let dying = thread::spawn(move || {
            let _ = victim.call(Time::ZERO, Call::Now).unwrap();
            if waiting {
                // Sleeps until the machine is asked about it, or fails it.
                let sleep = Call::WaitChange {
                    seen: 0,
                    failures: 0,
                    deadline: Time::from_ns(1_000_000),
                };
                let _ = victim.call(Time::ZERO, sleep);
            }
        });
        let error = loop {
            if let Err(error) = survivor.barrier() {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::PeerFailed);
        assert!(
            error
                .to_string()
                .contains("PE 1 has failed: its process has ended"),
            "{error}"
        );
        assert_eq!(
            survivor.failure_of(1).unwrap().unwrap(),
            "its process has ended"
        );
        dying.join().unwrap();
    }
}

#[test]
fn a_deadlock_and_a_loop_without_calls_end_in_errors() {
    let config = Config {
        watchdog: Some(Duration::from_millis(300)),
        ..Config::default()
    };
    for error in through_sockets(3, &config, |pe| {
        pe.wait_change(pe.changes(), Time::NEVER).unwrap_err()
    }) {
        assert!(error.to_string().contains("3 of 3 PEs wait"), "{error}");
    }
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    let tell = std::sync::Mutex::new(Some(tell));
    for error in through_sockets(2, &config, |pe| {
        if pe.my_pe() == 1 {
            pe.now().unwrap();
            // Make no call until the other PE has been told.
            let _ = told.lock().unwrap().recv();
            return pe.barrier().unwrap_err();
        }
        let error = pe.barrier().unwrap_err();
        drop(tell.lock().unwrap().take());
        error
    }) {
        assert!(error.to_string().contains("from PE 1 (at "), "{error}");
    }
}

#[test]
fn strangers_are_not_let_in() {
    let host = Host::start(Config::default().machine(1).unwrap(), None).unwrap();
    let address = host.address();
    let (name, _) = address.split_once(' ').unwrap();
    assert!(join(&format!("{name} 123"), 0).is_err());
    assert!(join("nonsense", 0).is_err());
    assert!(join(&address, 7).is_err());
    let mut shmem = Shmem::hosted(join(&address, 0).unwrap(), Some(host));
    shmem.barrier().unwrap();
}
