//! One host thread that steps all PEs gives the same virtual times as threads do.

use std::thread;

use portolan_core::ErrorKind;
use portolan_t3e_sim::drive::{self, Program, step};
use portolan_t3e_sim::machine::{Call, Machine, Reply};
use portolan_t3e_sim::{Addr, Condition, Config, Time};

const PES: u32 = 12;

/// A program without choices: for each call, the computation before it, and the call.
#[derive(Clone)]
struct Script(std::vec::IntoIter<(Time, Call)>);

impl Program for Script {
    fn next(&mut self, _reply: Option<&Reply>) -> Option<(Time, Call)> {
        self.0.next()
    }
}

/// Passes a word around the ring, with other traffic at the same time.
fn ring(pe: u32) -> Script {
    let next = (pe + 1) % PES;
    let put = |word: u64, at: u64| Call::Put {
        pe: next,
        addr: Addr(at),
        data: word.to_le_bytes().to_vec(),
        stride: None,
    };
    let wait = Call::WaitUntil {
        addr: Addr(0),
        until: Condition::Greater(0),
    };
    let mut calls = vec![(Time::from_ns(u64::from(pe) * 7), Call::Barrier)];
    calls.push((Time::ZERO, put(5, 64)));
    if pe == 0 {
        calls.push((Time::ZERO, put(1, 0)));
        calls.push((Time::ZERO, wait));
    } else {
        calls.push((Time::ZERO, wait));
        calls.push((Time::from_ns(100), put(u64::from(pe) + 1, 0)));
    }
    calls.push((Time::ZERO, Call::Quiet));
    Script(calls.into_iter())
}

fn machine(seed: Option<u64>) -> Machine {
    let config = Config {
        seed,
        statics: 128,
        ..Config::default()
    };
    config.machine(PES).unwrap()
}

/// The moments at which all PEs' last calls end, with threads.
fn with_threads(seed: Option<u64>) -> Vec<Time> {
    let links = drive::threads(machine(seed), None).unwrap();
    thread::scope(|scope| {
        let threads: Vec<_> = links
            .into_iter()
            .map(|mut link| {
                scope.spawn(move || {
                    for (charged, call) in ring(link.welcome().pe).0 {
                        link.call(charged, call).unwrap();
                    }
                    link.call(Time::ZERO, Call::Leave).unwrap().clock
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[test]
fn stepping_takes_the_same_virtual_time() {
    for seed in [None, Some(11)] {
        let mut programs: Vec<_> = (0..PES).map(ring).collect();
        let stepped = step(&mut machine(seed), &mut programs).unwrap();
        assert_eq!(stepped, with_threads(seed), "seed {seed:?}");
    }
}

#[test]
fn a_deadlock_ends_it() {
    let stuck = Script(
        vec![(
            Time::ZERO,
            Call::WaitUntil {
                addr: Addr(0),
                until: Condition::Greater(0),
            },
        )]
        .into_iter(),
    );
    let mut programs = vec![stuck; PES as usize];
    let error = step(&mut machine(None), &mut programs).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
    assert!(error.to_string().contains("12 of 12 PEs wait"), "{error}");
}
