//! Reductions in the reproducible mode: every algorithm gives the same bits, at every number of
//! ranks.

use portolan_datatype::{Complex, Datatype, Layout, Op};

use super::*;
use crate::algorithms::{Ask, names};
use crate::args::Name;
use crate::lower::Problem;
use crate::problem::{Allreduce, Reduce, ReduceScatter, Scan};
use crate::schedule::{Base, Blocks, Builder};
use crate::select::{Rule, Table};
use crate::simulate::Simulation;

/// A table that chooses one algorithm for everything.
fn only(name: Name, algorithm: &str) -> Table {
    Table::with(vec![Rule::always(name, algorithm)])
}

/// Runs a reduction in the reproducible mode and returns the contents of each rank's receive
/// buffer.
fn reduced<T: Datatype>(
    inputs: &[Vec<T>],
    name: Name,
    algorithm: &str,
    op: &Op,
    problem: impl Fn(&mut Builder, &Layout, usize) -> Problem,
) -> Vec<Vec<u8>> {
    let (size, count) = (inputs.len() as u32, inputs[0].len());
    let layout = Layout::of::<T>();
    let mut run = Simulation::new(size, 21);
    let len = count * layout.size();
    for (rank, input) in (0..).zip(inputs) {
        // SAFETY: the data of a slice of plain numbers.
        let bytes = unsafe { std::slice::from_raw_parts(input.as_ptr().cast::<u8>(), len) };
        run.set_memory(rank, Base::Send, bytes.to_vec(), 0);
        run.set_memory(rank, Base::Recv, vec![0x77; len], 0);
    }
    let table = only(name, algorithm);
    run.schedule_all(|b| {
        b.set_op(op);
        let problem = problem(b, &layout, count);
        let ask = Ask {
            ranks: size,
            bytes: len,
            items: count,
        };
        write(b, &table, name, &problem, &ask, (op, &layout));
    });
    run.run(algorithm);
    (0..size)
        .map(|rank| run.memory(rank, Base::Recv).to_vec())
        .collect()
}

fn allreduce(b: &mut Builder, layout: &Layout, count: usize) -> Problem {
    Problem::Allreduce(Allreduce {
        input: b.span(Base::Send, 0, count, layout),
        output: b.span(Base::Recv, 0, count, layout),
        commutative: true,
    })
}

#[test]
fn sums_over_ranks_do_not_depend_on_ranks_placement_or_algorithm() {
    // 40 numbers for each of 30 elements, spread over 1 to 8 ranks. A rank adds its own numbers
    // exactly, and contributes the sum.
    let mut random = Random::new(3);
    let numbers: Vec<Vec<f64>> = (0..30)
        .map(|_| (0..40).map(|_| nasty(&mut random)).collect())
        .collect();
    let expected: Vec<u64> = numbers.iter().map(|all| slow_sum(all).to_bits()).collect();
    for size in 1..=8 {
        for turn in 0..size {
            let inputs: Vec<Vec<Sum<f64>>> = (0..size)
                .map(|rank| {
                    let share = part(40, (rank + turn) % size, size);
                    let sum = |all: &Vec<f64>| all[share.clone()].iter().copied().collect();
                    numbers.iter().map(sum).collect()
                })
                .collect();
            for algorithm in names(Name::Allreduce) {
                let op = Sum::<f64>::op();
                let got = reduced(&inputs, Name::Allreduce, algorithm, &op, allreduce);
                for memory in got {
                    let sums = memory.as_ptr().cast::<Sum<f64>>();
                    // SAFETY: the memory has 30 sums; any bits are valid.
                    let value = |i| unsafe { sums.add(i).read_unaligned() }.value().to_bits();
                    assert_eq!(
                        (0..30).map(value).collect::<Vec<_>>(),
                        expected,
                        "{algorithm} {size}"
                    );
                }
            }
        }
    }
}

fn doubles(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks_exact(8)
        .map(|x| u64::from_ne_bytes(x.try_into().expect("8 bytes")))
        .collect()
}

/// Contributions of `size` ranks whose sum for each element is the same for every size: with fewer
/// ranks, pairs that cancel are left out.
fn contributions(size: usize, count: usize) -> Vec<Vec<f64>> {
    let mut random = Random::new(5);
    // One vector that is contributed once; the others come in pairs that cancel.
    let mut some = || -> Vec<f64> { (0..count).map(|_| nasty(&mut random)).collect() };
    let mut all = vec![some()];
    for _ in 0..3 {
        let numbers = some();
        let opposite = numbers.iter().map(|x| -x).collect();
        all.extend([numbers, opposite]);
    }
    all.push(vec![0.0; count]);
    all.truncate(if size.is_multiple_of(2) {
        size - 1
    } else {
        size
    });
    if size.is_multiple_of(2) {
        all.push(vec![0.0; count]);
    }
    all
}

#[test]
fn every_operation_and_algorithm_gives_the_same_bits_at_1_to_8_ranks() {
    // More items than fit in one part.
    let count = 4_001;
    let expected: Vec<u64> = contributions(1, count)[0]
        .iter()
        .map(|x| (x + 0.0).to_bits())
        .collect();
    let same = |got: &[u8], what: (&str, usize)| {
        // A single number keeps the sign of its zero, sums with +0 do not.
        let plus = |bits: u64| (f64::from_bits(bits) + 0.0).to_bits();
        let got: Vec<_> = doubles(got).into_iter().map(plus).collect();
        assert_eq!(got, expected, "{what:?}");
    };
    for size in 1..=8usize {
        let inputs = contributions(size, count);
        for algorithm in names(Name::Allreduce) {
            let got = reduced(&inputs, Name::Allreduce, algorithm, &Op::SUM, allreduce);
            got.iter().for_each(|got| same(got, (algorithm, size)));
        }
        let root = size as u32 / 2;
        for algorithm in names(Name::Reduce) {
            let got = reduced(
                &inputs,
                Name::Reduce,
                algorithm,
                &Op::SUM,
                |b, layout, count| {
                    let output = b.span(Base::Recv, 0, count, layout);
                    Problem::Reduce(Reduce {
                        input: b.span(Base::Send, 0, count, layout),
                        output: (b.rank() == root).then_some(output),
                        root,
                        commutative: true,
                    })
                },
            );
            same(&got[root as usize], (algorithm, size));
        }
        for algorithm in names(Name::ReduceScatter) {
            let got = reduced(
                &inputs,
                Name::ReduceScatter,
                algorithm,
                &Op::SUM,
                |b, layout, count| {
                    let whole = b.span(Base::Send, 0, count, layout);
                    let output = b.span(Base::Recv, 0, count, layout);
                    Problem::ReduceScatter(ReduceScatter {
                        input: Blocks::Listed(
                            (0..size).map(|rank| whole.part(rank, size)).collect(),
                        ),
                        whole,
                        output: output.items(0, part(count, b.rank() as usize, size).len()),
                        commutative: true,
                    })
                },
            );
            let blocks = got
                .iter()
                .enumerate()
                .map(|(rank, got)| &got[..part(count, rank, size).len() * 8]);
            same(&blocks.collect::<Vec<_>>().concat(), (algorithm, size));
        }
        for (name, exclusive) in [(Name::Scan, false), (Name::Exscan, true)] {
            for algorithm in names(name) {
                let got = reduced(&inputs, name, algorithm, &Op::SUM, |b, layout, count| {
                    Problem::Scan(Scan {
                        input: b.span(Base::Send, 0, count, layout),
                        output: b.span(Base::Recv, 0, count, layout),
                        exclusive,
                        commutative: true,
                    })
                });
                if exclusive {
                    assert!(
                        got[0].iter().all(|&byte| byte == 0x77),
                        "rank 0's is left alone"
                    );
                } else {
                    same(&got[0], (algorithm, size));
                    same(&got[size - 1], (algorithm, size));
                }
            }
        }
    }
}

#[test]
fn complex_numbers_and_singles_are_widened_too() {
    let inputs: Vec<Vec<Complex<f32>>> = (0..5)
        .map(|rank| {
            let re = [1e30, 1.0, -1e30, 1e-30, 0.0][rank];
            vec![Complex { re, im: -2.0 * re }; 700]
        })
        .collect();
    let got = reduced(&inputs, Name::Allreduce, "ring", &Op::SUM, allreduce);
    for item in got[3].chunks_exact(8) {
        let float = |at: usize| f32::from_ne_bytes(item[at..at + 4].try_into().expect("4 bytes"));
        assert_eq!((float(0), float(4)), (1.0, -2.0));
    }
}

#[test]
fn other_operators_keep_the_order_of_the_ranks() {
    let (double, int) = (Layout::of::<f64>(), Layout::of::<i32>());
    let user = Op::new(true, |a: f64, b: f64| a + b);
    assert_eq!(treatment(&user, &double), Treatment::Fixed);
    assert_eq!(treatment(&Op::PROD, &double), Treatment::Fixed);
    assert_eq!(treatment(&Op::PROD, &int), Treatment::AsIs);
    assert_eq!(treatment(&Op::MIN, &double), Treatment::AsIs);
    assert_eq!(treatment(&Op::MAX, &int), Treatment::AsIs);
    // Of +0 and -0 the latter is the smaller, in whatever position and with whatever algorithm.
    for size in 2..=8usize {
        let inputs: Vec<Vec<f64>> = (0..size)
            .map(|rank| vec![if rank % 3 == 1 { -0.0 } else { 0.0 }; 64])
            .collect();
        let expected = (-0.0_f64).to_bits();
        for algorithm in names(Name::Allreduce) {
            for got in reduced(&inputs, Name::Allreduce, algorithm, &Op::MIN, allreduce) {
                assert_eq!(doubles(&got), vec![expected; 64], "{algorithm} {size}");
            }
        }
    }
    // Products are rounded in one order, whatever the table says.
    let mut random = Random::new(9);
    let inputs: Vec<Vec<f64>> = (0..7)
        .map(|_| (0..64).map(|_| random.next() as f64 * 1e-19).collect())
        .collect();
    let results: Vec<_> = names(Name::Allreduce)
        .into_iter()
        .map(|algorithm| reduced(&inputs, Name::Allreduce, algorithm, &Op::PROD, allreduce))
        .collect();
    assert!(results.windows(2).all(|two| two[0] == two[1]));
    assert!(results[0].windows(2).all(|two| two[0] == two[1]));
}
