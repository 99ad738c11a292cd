//! The figures of raw SHMEM, measured as NetPIPE measures, in virtual time.

use portolan_t3e_sim::{Addr, Condition, Config, Preset, Shmem, Time, run};

/// Sizes at which the figures are checked, in bytes.
const SIZES: [usize; 5] = [8, 1 << 10, 8 << 10, 64 << 10, 1 << 20];

/// Half the time of a round trip of `len` bytes between neighbours: a put, and a receiver that
/// polls the last word.
fn ping_pong(config: &Config, len: usize) -> Time {
    const ROUNDS: i64 = 3;
    let clocks = run(2, config, |pe| rounds(pe, len, ROUNDS)).unwrap();
    Time::from_ps(clocks[0].as_ps() / (2 * ROUNDS as u64))
}

fn rounds(pe: &mut Shmem, len: usize, rounds: i64) -> Time {
    let place = pe.malloc(len).unwrap();
    let last = place + (len - 8);
    let (me, other) = (pe.my_pe(), 1 - pe.my_pe());
    pe.barrier_all().unwrap();
    let begin = pe.clock();
    for round in 1..=rounds {
        let data = vec![round as u64; len / 8];
        if me == 0 {
            pe.put64(other, place, &data).unwrap();
        }
        pe.wait_until(last, Condition::Equal(round)).unwrap();
        if me == 1 {
            pe.put64(other, place, &data).unwrap();
        }
    }
    pe.clock() - begin
}

#[test]
fn raw_shmem_is_within_five_percent_of_the_published_figures() {
    let config = Config::default();
    assert_eq!(config.costs.name, Preset::T3e900.name());
    for len in SIZES {
        let published = 2.5 + len as f64 / 340.0;
        let measured = ping_pong(&config, len).as_us();
        let error = measured / published - 1.0;
        assert!(
            error.abs() < 0.05,
            "{len} bytes: {measured:.3} µs, published {published:.3} µs"
        );
    }
}

/// The latency is the sum of the steps: without one of them it is different.
#[test]
fn every_step_counts() {
    let whole = ping_pong(&Config::default(), 8);
    let steps: [fn(&mut Config); 6] = [
        |config| config.costs.start = Time::ZERO,
        |config| config.costs.inject = Time::ZERO,
        |config| config.costs.hop = Time::ZERO,
        |config| config.costs.eject = Time::ZERO,
        |config| config.costs.poll = Time::ZERO,
        |config| config.costs.register_rate = 1e6,
    ];
    for (number, without) in steps.iter().enumerate() {
        let mut config = Config::default();
        without(&mut config);
        assert!(ping_pong(&config, 8) < whole, "step {number} costs nothing");
    }
}

/// With few registers, the words in flight limit the rate, and distance shows.
#[test]
fn few_registers_slow_long_transfers_down() {
    let mut few = Config::default();
    few.costs.registers = 8;
    let (all, some) = (
        ping_pong(&Config::default(), 64 << 10),
        ping_pong(&few, 64 << 10),
    );
    assert!(some > all.scaled(3.0), "{some} against {all}");
}

/// A get takes the way there and back, and its data then comes at the same rate.
#[test]
fn a_get_takes_both_ways() {
    let config = Config::default();
    let times = run(2, &config, |pe| {
        let place = pe.malloc(1 << 20).unwrap();
        let mut times = Vec::new();
        if pe.my_pe() == 0 {
            for len in [8, 1 << 20] {
                let begin = pe.clock();
                pe.get(1, place, &mut vec![0; len]).unwrap();
                times.push(pe.clock() - begin);
            }
        }
        pe.barrier_all().unwrap();
        times
    })
    .unwrap();
    let fixed = config.costs.start + config.costs.way(1) * 2;
    for (time, len) in times[0].iter().zip([8, 1 << 20]) {
        let expected = fixed + config.costs.registers_take(len, false);
        let error = time.as_us() / expected.as_us() - 1.0;
        assert!(
            error.abs() < 0.01,
            "{len} bytes: {time}, expected {expected}"
        );
    }
}

/// Strided words travel one by one.
#[test]
fn strided_words_take_longer() {
    let times = run(2, &Config::default(), |pe| {
        let place = pe.malloc(1 << 16).unwrap();
        let words = [7; 1024];
        let begin = pe.clock();
        if pe.my_pe() == 0 {
            pe.put64(1, place, &words).unwrap();
        }
        let dense = pe.clock() - begin;
        let begin = pe.clock();
        if pe.my_pe() == 0 {
            pe.iput64(1, place, &words, 4, 2, 512).unwrap();
        }
        let strided = pe.clock() - begin;
        pe.barrier_all().unwrap();
        let landed: Vec<u64> = (0..5)
            .map(|n| pe.load_u64(place + n * 32).unwrap())
            .collect();
        (dense, strided, landed)
    })
    .unwrap();
    let (dense, strided, _) = &times[0];
    assert!(
        strided.as_us() > dense.as_us() * 0.9,
        "half the words: {strided}, {dense}"
    );
    assert_eq!(times[1].2, [7; 5]);
}

/// No PE reaches memory that was not allocated.
#[test]
fn addresses_outside_are_refused_and_named() {
    run(2, &Config::default(), |pe| {
        let size = pe.heap_size() as u64;
        let error = pe.put(1, Addr(size - 4), &[0; 8]).unwrap_err();
        assert_eq!(error.kind(), portolan_core::ErrorKind::RemoteAccess);
        assert!(
            error.to_string().contains("PE 1 has no 8 bytes at"),
            "{error}"
        );
        let error = pe.get(2, Addr(0), &mut [0; 8]).unwrap_err();
        assert!(error.to_string().contains("there is no PE 2"), "{error}");
        let error = pe.fetch_increment(1, Addr(4)).unwrap_err();
        assert!(error.to_string().contains("not aligned"), "{error}");
    })
    .unwrap();
}
