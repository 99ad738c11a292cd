//! The order of arrivals: nothing arrives early, puts may arrive out of order, and never across a
//! fence.

use portolan_t3e_sim::{Addr, Atomic, Condition, Config, Shmem, Time, run};

fn seeded(seed: u64) -> Config {
    Config {
        seed: Some(seed),
        ..Config::default()
    }
}

/// PE 0 puts two words, with or without a fence between them, while PE 1 keeps looking at both.
/// Returns whether PE 1 ever saw the second word without the first.
fn second_before_first(config: &Config, fence: bool) -> bool {
    const ROUNDS: u64 = 20;
    let seen = run(2, config, |pe| {
        let words = pe.malloc(128).unwrap();
        let (first, second) = (words, words + 64);
        pe.barrier_all().unwrap();
        let mut out_of_order = false;
        for round in 1..=ROUNDS {
            if pe.my_pe() == 0 {
                pe.put64(1, first, &[round]).unwrap();
                if fence {
                    pe.fence().unwrap();
                }
                pe.put64(1, second, &[round]).unwrap();
            } else {
                let mut last = [0; 2];
                while last != [round; 2] {
                    // Load the second word first: behind a fence, if it has arrived, so has the
                    // first by the next load.
                    last = [second, first].map(|word| pe.load_u64(word).unwrap());
                    out_of_order |= last == [round, round - 1];
                }
            }
            pe.barrier_all().unwrap();
        }
        out_of_order
    })
    .unwrap();
    seen[1]
}

#[test]
fn before_a_fence_writes_may_overtake_each_other_and_after_it_never() {
    assert!((1..=8).any(|seed| second_before_first(&seeded(seed), false)));
    assert!((1..=8).all(|seed| !second_before_first(&seeded(seed), true)));
    assert!(
        !second_before_first(&Config::default(), false),
        "channels keep their order"
    );
}

/// A small put can arrive word by word; only single words are whole.
#[test]
fn a_header_can_come_in_words() {
    let torn = |config: &Config| {
        let seen = run(2, config, |pe| {
            let header = pe.malloc(24).unwrap();
            pe.barrier_all().unwrap();
            let mut torn = false;
            if pe.my_pe() == 0 {
                pe.put64(1, header, &[1, 1, 1]).unwrap();
            } else {
                let mut bytes = [0; 24];
                while bytes.chunks(8).any(|word| word[0] == 0) {
                    let seen = pe.changes();
                    pe.load(header, &mut bytes).unwrap();
                    let words = bytes.chunks(8).filter(|word| word[0] == 1).count();
                    torn |= (1..3).contains(&words);
                    if words < 3 {
                        pe.wait_change(seen, Time::NEVER).unwrap();
                    }
                }
            }
            pe.barrier_all().unwrap();
            torn
        });
        seen.unwrap()[1]
    };
    assert!((1..=8).any(|seed| torn(&seeded(seed))));
    assert!(!torn(&Config::default()));
}

/// Whatever the seed, both a PE that waits and a PE that polls see a write when it has arrived, and
/// not before.
#[test]
fn nothing_is_visible_early() {
    for config in [Config::default(), seeded(1), seeded(2)] {
        let times = run(2, &config, |pe| {
            let word = pe.malloc(8).unwrap();
            pe.barrier_all().unwrap();
            let begin = pe.clock();
            if pe.my_pe() == 0 {
                pe.charge(Time::from_ns(10_000));
                pe.put64(1, word, &[1]).unwrap();
                (begin, pe.clock())
            } else {
                while pe.load_u64(word).unwrap() == 0 {}
                (begin, pe.clock())
            }
        })
        .unwrap();
        let costs = &config.costs;
        let sent = times[0].1;
        let earliest = sent + costs.way(1);
        assert!(
            times[1].1 >= earliest,
            "seen at {}, sent at {sent}",
            times[1].1
        );
        assert!(times[1].1 <= earliest + Time::from_ns(2000) + costs.access * 2);
    }
}

/// All PEs do atomic operations on one word: none is lost, and the memory does one at a time.
#[test]
fn atomics_are_atomic_and_queue_at_the_memory() {
    const EACH: u64 = 20;
    for config in [Config::default(), seeded(9)] {
        let all = run(8, &config, |pe| {
            let words = pe.malloc(32).unwrap();
            pe.barrier_all().unwrap();
            let begin = pe.clock();
            let olds: Vec<u64> = (0..EACH)
                .map(|_| pe.fetch_increment(0, words).unwrap())
                .collect();
            let took = pe.clock() - begin;
            pe.barrier_all().unwrap();
            assert_eq!(pe.fetch_add(0, words + 8, 3).unwrap() % 3, 0);
            pe.masked_swap(0, words + 16, 1 << pe.my_pe(), u64::MAX)
                .unwrap();
            pe.barrier_all().unwrap();
            if pe.my_pe() == 0 {
                assert_eq!(pe.load_u64(words + 8).unwrap(), 24);
                assert_eq!(pe.load_u64(words + 16).unwrap(), 0xff);
                assert_eq!(pe.swap(0, words + 16, 5).unwrap(), 0xff);
                assert_eq!(pe.compare_swap(0, words + 16, 4, 9).unwrap(), 5);
                assert_eq!(pe.compare_swap(0, words + 16, 5, 9).unwrap(), 5);
                assert_eq!(pe.atomic(0, words + 16, Atomic::Swap(0)).unwrap(), 9);
            }
            pe.barrier_all().unwrap();
            (olds, took)
        })
        .unwrap();
        let mut olds: Vec<u64> = all.iter().flat_map(|(olds, _)| olds.clone()).collect();
        olds.sort_unstable();
        assert!(olds.iter().copied().eq(0..8 * EACH), "{olds:?}");
        let longest = all.iter().map(|(_, took)| *took).max().unwrap();
        assert!(
            longest >= config.costs.atomic * (8 * EACH),
            "they did not queue: {longest}"
        );
    }
}

/// A seed determines everything: the same seed gives the same times on every run, another seed
/// gives other times.
#[test]
fn a_seed_reproduces_a_run() {
    let trace = |config: &Config| run(12, config, busy).unwrap();
    for config in [Config::default(), seeded(3)] {
        assert_eq!(trace(&config), trace(&config));
    }
    assert_ne!(trace(&seeded(3)), trace(&seeded(4)));
}

/// Sends to all PEs, with contention. Returns the clock after each step.
fn busy(pe: &mut Shmem) -> Vec<Time> {
    let n = pe.n_pes();
    let inbox = pe.malloc(4096 * n as usize).unwrap();
    let counter = pe.malloc(8).unwrap();
    let mut clocks = Vec::new();
    for step in 1..n {
        let to = (pe.my_pe() + step) % n;
        let mine = inbox + 4096 * pe.my_pe() as usize;
        pe.put(to, mine, &vec![step as u8; 100 * step as usize])
            .unwrap();
        pe.fence().unwrap();
        pe.fetch_increment(to, counter).unwrap();
        pe.charge(Time::from_ns(u64::from(pe.my_pe()) * 10));
        clocks.push(pe.clock());
    }
    let all = Condition::GreaterEqual(i64::from(n) - 1);
    pe.wait_until(counter, all).unwrap();
    pe.barrier_all().unwrap();
    clocks.push(pe.now().unwrap());
    clocks
}

/// PEs that know its address can reach memory of a PE's own, until it is freed.
#[test]
fn arenas_are_reached_by_address() {
    run(2, &Config::default(), |pe| {
        let mailbox = pe.malloc(8).unwrap();
        pe.barrier_all().unwrap();
        if pe.my_pe() == 0 {
            let buffer = pe.arena_malloc(100).unwrap();
            pe.put64(1, mailbox, &[buffer.0]).unwrap();
            pe.barrier_all().unwrap();
            pe.barrier_all().unwrap();
            let mut bytes = [0; 100];
            pe.peek(buffer, &mut bytes).unwrap();
            assert_eq!(bytes, [7; 100]);
            pe.arena_free(buffer).unwrap();
            pe.barrier_all().unwrap();
        } else {
            pe.barrier_all().unwrap();
            let buffer = Addr(pe.load_u64(mailbox).unwrap());
            pe.put(0, buffer, &[7; 100]).unwrap();
            pe.barrier_all().unwrap();
            pe.barrier_all().unwrap();
            let error = pe.put(0, buffer, &[7; 100]).unwrap_err();
            assert_eq!(error.kind(), portolan_core::ErrorKind::RemoteAccess);
        }
    })
    .unwrap();
}

/// Only writes to the watched range are told, and in the order in which they can be seen.
#[test]
fn watched_memory_tells_what_reaches_it() {
    for config in [Config::default(), seeded(7)] {
        let told = run(2, &config, |pe| {
            let place = pe.malloc(256).unwrap();
            if pe.my_pe() == 1 {
                pe.watch(place + 64, 64).unwrap();
            }
            pe.barrier_all().unwrap();
            if pe.my_pe() == 0 {
                pe.put64(1, place, &[1; 9]).unwrap();
                pe.fence().unwrap();
                pe.fetch_add(1, place + 72, 5).unwrap();
                pe.put64(1, place + 120, &[3; 9]).unwrap();
            }
            let early = pe.clock();
            if pe.my_pe() == 1 {
                // A write to other memory does not wake it.
                pe.wait_arrival(Time::NEVER).unwrap();
                assert!(pe.clock() > early);
                assert_eq!(pe.load_u64(place).unwrap(), 1);
                pe.wait_arrival(Time::NEVER).unwrap();
            }
            pe.barrier_all().unwrap();
            pe.take_arrivals()
        })
        .unwrap();
        let told: Vec<_> = told[1]
            .iter()
            .map(|a| (a.addr, a.data[0], a.data.len()))
            .collect();
        let place = told[0].0;
        assert_eq!(told, [(place, 1, 8), (place + 8, 5, 8), (place + 56, 3, 8)]);
    }
}

/// The one call that stands for three takes the same times, and its word arrives after the bytes.
#[test]
fn put_then_is_what_three_calls_are() {
    for seed in [None, Some(1), Some(2)] {
        let config = Config {
            seed,
            ..Config::default()
        };
        let times = |in_one: bool| {
            run(2, &config, |pe| {
                let place = pe.malloc(4096).unwrap();
                let flag = place + 4088;
                pe.barrier_all().unwrap();
                if pe.my_pe() == 1 {
                    pe.wait_until(flag, Condition::Equal(9)).unwrap();
                    let mut bytes = [0; 2000];
                    pe.load(place, &mut bytes).unwrap();
                    assert_eq!(bytes, [3; 2000]);
                } else if in_one {
                    pe.put_then(1, place, &[3; 2000], flag, 9).unwrap();
                } else {
                    pe.put(1, place, &[3; 2000]).unwrap();
                    pe.quiet().unwrap();
                    pe.put64(1, flag, &[9]).unwrap();
                }
                pe.clock()
            })
            .unwrap()
        };
        assert_eq!(times(true), times(false));
    }
}
