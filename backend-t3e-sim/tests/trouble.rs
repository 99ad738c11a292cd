//! Whatever goes wrong results in an error that names PEs, and never in a hang.

use std::time::Duration;

use portolan_core::ErrorKind;
use portolan_t3e_sim::{Addr, Condition, Config, Time, run};

/// Runs `body` on every PE, and returns the errors by PE.
fn errors(
    pes: u32,
    config: &Config,
    body: impl Fn(&mut portolan_t3e_sim::Shmem) -> portolan_core::Result<()> + Sync,
) -> Vec<portolan_core::Error> {
    let outcomes = run(pes, config, body).unwrap();
    outcomes
        .into_iter()
        .map(|outcome| outcome.unwrap_err())
        .collect()
}

#[test]
fn a_deadlock_names_all_pes_and_what_they_wait_for() {
    let all = errors(3, &Config::default(), |pe| {
        let word = pe.malloc(8)?;
        pe.charge(Time::from_ns(5_000));
        match pe.my_pe() {
            0 => pe.wait_until(word, Condition::Greater(6)),
            1 => {
                pe.note("receive of 8 bytes from PE 0, tag 7")?;
                pe.wait_change(pe.changes(), Time::NEVER)
            }
            _ => pe.barrier(),
        }
    });
    for (pe, error) in all.iter().enumerate() {
        assert_eq!(error.kind(), ErrorKind::Aborted);
        let text = error.to_string();
        for part in [
            &format!("rank {pe} (t3e-sim): deadlock at "),
            " of virtual time: 3 of 3 PEs wait",
            "PE 0: since ",
            " for the word at symmetric heap + 0 to be greater than 6",
            " for a change of its memory (receive of 8 bytes from PE 0, tag 7)",
            "PE 2: since ",
            " for all others to enter the barrier",
        ] {
            assert!(text.contains(part), "no {part:?} in:\n{text}");
        }
    }
}

#[test]
fn the_report_of_many_pes_is_cut() {
    let all = errors(100, &Config::default(), |pe| {
        pe.wait_until(Addr(0), Condition::NotEqual(0))
    });
    let text = all[99].to_string();
    assert!(text.contains("PE 15: "), "{text}");
    assert!(!text.contains("PE 16: "), "{text}");
    assert!(text.contains("and 84 more"), "{text}");
}

#[test]
fn a_pe_that_has_left_is_not_waited_for() {
    let outcomes = run(3, &Config::default(), |pe| match pe.my_pe() {
        2 => Ok(()),
        _ => pe.barrier_all(),
    })
    .unwrap();
    assert!(outcomes[2].is_ok());
    for outcome in &outcomes[..2] {
        let error = outcome.as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerFailed);
        assert!(error.to_string().contains("PE 2 has left at"), "{error}");
    }
}

#[test]
fn a_failure_wakes_who_sleeps_and_says_why() {
    run(3, &Config::default(), |pe| {
        if pe.my_pe() == 2 {
            pe.charge(Time::from_ns(1_000));
            pe.declare_failed(2, "out of luck").unwrap();
            return;
        }
        pe.wait_change(pe.changes(), Time::NEVER).unwrap();
        assert_eq!(pe.failures(), 1);
        assert_eq!(pe.failure_of(2).unwrap().unwrap(), "out of luck");
        assert_eq!(pe.failure_of(0).unwrap(), None);
        let error = pe.barrier().unwrap_err();
        assert!(
            error.to_string().contains("PE 2 has failed: out of luck"),
            "{error}"
        );
    })
    .unwrap();
}

#[test]
fn a_full_heap_is_an_error_everywhere_and_the_machine_goes_on() {
    let config = Config {
        heap: 1000,
        ..Config::default()
    };
    run(4, &config, |pe| {
        let error = pe.malloc(1001).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exhausted);
        assert!(
            error.to_string().contains("1001 bytes do not fit"),
            "{error}"
        );
        assert!(error.to_string().contains("PORTOLAN_T3E_HEAP"), "{error}");
        let place = pe.malloc(900).unwrap();
        pe.free(place).unwrap();
        assert_eq!(pe.malloc(900).unwrap(), place);
    })
    .unwrap();
}

#[test]
fn allocations_that_differ_are_told_apart() {
    let all = errors(4, &Config::default(), |pe| {
        let len = if pe.my_pe() == 2 { 16 } else { 8 };
        pe.malloc(len).map(drop)
    });
    for error in all {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error.to_string();
        assert!(text.contains("PEs 0, 1, 3: allocate 8 bytes"), "{text}");
        assert!(text.contains("PE 2: allocate 16 bytes"), "{text}");
    }
    let all = errors(2, &Config::default(), |pe| match pe.my_pe() {
        0 => pe.free(Addr(64)),
        _ => pe.barrier(),
    });
    assert!(
        all[1]
            .to_string()
            .contains("PE 0: free symmetric heap + 64")
    );
    let all = errors(2, &Config::default(), |pe| pe.free(Addr(64)));
    assert_eq!(all[0].kind(), ErrorKind::RemoteAccess);
}

#[test]
fn memory_freed_under_a_write_stops_the_machine() {
    let all = errors(2, &Config::default(), |pe| {
        let mailbox = pe.malloc(8)?;
        if pe.my_pe() == 0 {
            let block = pe.arena_malloc(8)?;
            pe.put64(1, mailbox, &[block.0])?;
            pe.barrier_all()?;
            // The other PE's put is issued 1 µs after the barrier, and is under way for another 640
            // ns.
            pe.charge(Time::from_ns(1_300));
            pe.arena_free(block)?;
            pe.wait_change(pe.changes(), Time::NEVER)
        } else {
            pe.barrier_all()?;
            let block = Addr(pe.load_u64(mailbox)?);
            pe.put64(0, block, &[1])?;
            pe.quiet()?;
            pe.now().map(drop)
        }
    });
    for error in all {
        let text = error.to_string();
        assert!(text.contains("8 bytes from PE 1 reached PE 0 at"), "{text}");
        assert!(
            text.contains("that was freed while they were under way"),
            "{text}"
        );
    }
}

#[test]
fn a_deadline_ends_a_wait() {
    run(1, &Config::default(), |pe| {
        let until = pe.now().unwrap() + Time::from_ns(50_000);
        pe.wait_change(pe.changes(), until).unwrap();
        assert_eq!(pe.clock(), until);
    })
    .unwrap();
}

/// A PE that waits outside the machine for another PE's flag holds up all PEs. The others are told,
/// and so the loop ends.
#[test]
fn a_loop_without_calls_is_noticed() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let told = AtomicBool::new(false);
    let config = Config {
        watchdog: Some(Duration::from_millis(200)),
        ..Config::default()
    };
    let outcomes = run(2, &config, |pe| {
        if pe.my_pe() == 0 {
            pe.now()?;
            while !told.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }
        let outcome = pe.barrier();
        told.store(true, Ordering::Relaxed);
        outcome
    })
    .unwrap();
    for outcome in outcomes {
        let text = outcome.unwrap_err().to_string();
        assert!(
            text.contains("no call for 0.2 s of the host's time from PE 0"),
            "{text}"
        );
        assert!(text.contains("PORTOLAN_T3E_WATCHDOG"), "{text}");
    }
}

/// A thread cannot be ended. So when it makes no call even after the others have been told, its
/// process is ended. The test runs itself once more as the process that does not end.
#[test]
fn a_loop_for_ever_ends_with_its_process() {
    const VICTIM: &str = "PORTOLAN_TEST_VICTIM";
    if std::env::var_os(VICTIM).is_some() {
        let config = Config {
            watchdog: Some(Duration::from_millis(100)),
            ..Config::default()
        };
        let _ = run(1, &config, |pe| {
            pe.barrier().unwrap();
            loop {
                std::hint::spin_loop();
            }
        });
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_loop_for_ever_ends_with_its_process"])
        .arg("--nocapture")
        .env(VICTIM, "1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(70));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(
        words.contains("no call for 0.1 s of the host's time from PE 0"),
        "{words}"
    );
}
