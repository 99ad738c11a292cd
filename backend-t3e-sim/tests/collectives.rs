//! SHMEM's collective calls over active sets of many sizes, with and without reordering.

use portolan_t3e_sim::shmem::{ActiveSet, Reduction, SYNC_WORDS, work_words};
use portolan_t3e_sim::{Addr, Config, Shmem, run};

const PES: u32 = 11;

/// Runs `body` on the PEs of every set, in every order that the seeds give; the other PEs only take
/// part in barriers.
fn over_sets(body: impl Fn(&mut Shmem, ActiveSet, u32) + Sync) {
    for seed in [None, Some(1), Some(2)] {
        let config = Config {
            seed,
            ..Config::default()
        };
        run(PES, &config, |pe| {
            for (start, log_stride, size) in
                [(0, 0, PES), (1, 1, 5), (3, 0, 1), (2, 0, 8), (0, 3, 2)]
            {
                let set = ActiveSet {
                    start,
                    log_stride,
                    size,
                };
                pe.barrier_all().unwrap();
                let memory = pe.malloc(1 << 16).unwrap();
                if let Some(index) = set.index(pe.my_pe()) {
                    body(pe, set, index);
                }
                pe.free(memory).unwrap();
            }
        })
        .unwrap();
    }
}

/// Places in the memory that all sets use in turn, zeroed by hand.
fn place(pe: &mut Shmem, number: usize) -> Addr {
    let at = Addr(0) + number * (8 << 10);
    pe.poke(at, &[0; 8 << 10]).unwrap();
    at
}

fn word(value: u32) -> [u8; 8] {
    u64::from(value).to_le_bytes()
}

#[test]
fn a_barrier_waits_for_the_last() {
    over_sets(|pe, set, index| {
        let sync = place(pe, 0);
        for round in 0..3 {
            let late = round % set.size;
            if index == late {
                pe.charge(portolan_t3e_sim::Time::from_ns(100_000));
            }
            let begin = pe.clock();
            pe.barrier_set(set, sync).unwrap();
            if index != late && round > 0 {
                assert!(pe.clock() > begin);
            }
        }
    });
}

#[test]
fn everybody_gets_what_the_root_has() {
    over_sets(|pe, set, index| {
        let (sync, source, target) = (place(pe, 0), place(pe, 1), place(pe, 2));
        for root in 0..set.size {
            for (n, word) in [7, 8, 9].into_iter().enumerate() {
                pe.store_u64(source + n * 8, word * 100 + u64::from(index))
                    .unwrap();
            }
            // PEs that have gone on must not overwrite words that others have not seen.
            pe.barrier_set(set, sync + SYNC_WORDS * 8).unwrap();
            pe.broadcast64(target, source, 3, root, set, sync).unwrap();
            if index != root {
                assert_eq!(pe.load_u64(target + 16).unwrap(), 900 + u64::from(root));
            }
            pe.barrier_set(set, sync + SYNC_WORDS * 8).unwrap();
        }
        assert!(
            pe.broadcast64(target, source, 3, set.size, set, sync)
                .is_err()
        );
    });
}

#[test]
fn blocks_come_together_in_order() {
    over_sets(|pe, set, index| {
        let (sync, source, target, work) = (place(pe, 0), place(pe, 1), place(pe, 2), place(pe, 3));
        for n in 0..10 {
            pe.poke(source + n * 8, &word(index * 10 + n as u32))
                .unwrap();
        }
        pe.fcollect64(target, source, 2, set, sync).unwrap();
        for other in 0..set.size {
            let at = target + other as usize * 16 + 8;
            assert_eq!(pe.load_u64(at).unwrap(), u64::from(other * 10 + 1));
        }
        pe.barrier_set(set, sync + SYNC_WORDS * 8).unwrap();
        // The PE at place `index` contributes `index` words.
        pe.collect64(
            target,
            source,
            index as usize,
            set,
            work,
            sync + 2 * SYNC_WORDS * 8,
        )
        .unwrap();
        let mut at = target;
        for other in 0..set.size {
            for n in 0..other {
                assert_eq!(pe.load_u64(at).unwrap(), u64::from(other * 10 + n));
                at = at + 8;
            }
        }
    });
}

#[test]
fn reductions_reduce() {
    over_sets(|pe, set, index| {
        let (sync, source, target, work) = (place(pe, 0), place(pe, 1), place(pe, 2), place(pe, 3));
        assert!(work_words(2) * 8 <= 8 << 10);
        let n = i64::from(set.size);
        let expected = [
            (Reduction::Sum, n * (n - 1) / 2 - n),
            (Reduction::Min, -1),
            (Reduction::Max, n - 2),
            (Reduction::And, if n == 1 { -1 } else { 0 }),
        ];
        for (how, expected) in expected.into_iter().cycle().take(12) {
            let mine = i64::from(index) - 1;
            let mine = if how == Reduction::And && index > 0 {
                0
            } else {
                mine
            };
            pe.store(source, &mine.to_le_bytes()).unwrap();
            pe.store(source + 8, &(mine * 2).to_le_bytes()).unwrap();
            pe.reduce_i64(how, target, source, 2, set, work, sync)
                .unwrap();
            assert_eq!(
                pe.load_u64(target).unwrap().cast_signed(),
                expected,
                "{how:?} over {set:?}"
            );
        }
        pe.store(source, &(f64::from(index) + 0.5).to_le_bytes())
            .unwrap();
        pe.reduce_f64(Reduction::Sum, target, source, 1, set, work, sync)
            .unwrap();
        let sum = f64::from_bits(pe.load_u64(target).unwrap());
        assert_eq!(sum, n as f64 * (n - 1) as f64 / 2.0 + 0.5 * n as f64);
        assert!(
            pe.reduce_f64(Reduction::Xor, target, source, 1, set, work, sync)
                .is_err()
        );
    });
}

#[test]
fn a_set_that_cannot_be_is_refused() {
    run(2, &Config::default(), |pe| {
        for (start, log_stride, size) in [(1, 0, 2), (0, 0, 0), (0, 31, 2), (1 - pe.my_pe(), 0, 1)]
        {
            let set = ActiveSet {
                start,
                log_stride,
                size,
            };
            let error = pe.barrier_set(set, Addr(0)).unwrap_err();
            assert_eq!(error.kind(), portolan_core::ErrorKind::InvalidArgument);
        }
    })
    .unwrap();
}
