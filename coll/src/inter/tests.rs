//! Operations between two groups, in the simulation.

use portolan_core::buffer::{MemoryKind, TypedBuf};
use portolan_datatype::Layout;

use super::{Groups, InterOperation, Root, write};
use crate::algorithms::moved::{Shape, shapes};
use crate::algorithms::moving::{Buffer, Form, LAYOUTS, Side, exchange};
use crate::algorithms::reference::{Case, Forms, affine, cases};
use crate::options::Options;
use crate::schedule::Base;
use crate::simulate::{Random, Simulation};
use crate::team::Team;

/// Sizes of the two groups; the ranks of the first one come first in the communicator of both.
const SIZES: [[u32; 2]; 7] = [[1, 1], [1, 3], [4, 1], [2, 3], [3, 3], [5, 8], [40, 2]];

/// The groups as a rank of the communicator of both sees them.
fn groups([low, high]: [u32; 2], rank: u32) -> Groups {
    match rank.checked_sub(low) {
        None => Groups {
            local: Team::range(rank, 0, low),
            first: low,
            remote: high,
        },
        Some(place) => Groups {
            local: Team::range(place, low, high),
            first: 0,
            remote: low,
        },
    }
}

/// Every possible root, but only three in a large group: the root's group (0 is the low one) and
/// its rank in that group.
fn roots(sizes: [u32; 2]) -> impl Iterator<Item = (usize, u32)> {
    let of_group = move |group: usize| {
        let size = sizes[group];
        let some = move |rank: &u32| size <= 8 || [0, size / 2, size - 1].contains(rank);
        (0..size).filter(some).map(move |rank| (group, rank))
    };
    (0..2).flat_map(of_group)
}

/// The root as a rank sees it.
fn seen(sizes: [u32; 2], (group, root): (usize, u32), rank: u32) -> Root {
    let own = usize::from(rank >= sizes[0]);
    let place = rank - own as u32 * sizes[0];
    match () {
        () if own != group => Root::Remote(root),
        () if place == root => Root::Here,
        () => Root::Beside,
    }
}

/// Runs an operation and compares all memory.
fn check<'s>(
    sizes: [u32; 2],
    sides: &'s [Side],
    seed: u64,
    operation: impl Fn(u32, &'s Side) -> InterOperation<'s>,
) -> Simulation {
    let options = Options::default();
    let ran = exchange("between groups", sides, seed, |b, side| {
        let operation = operation(b.rank(), side);
        write(b, &options, &groups(sizes, b.rank()), &operation);
        true
    });
    ran.expect("everything can be written")
}

/// One side for each rank of both groups.
fn sides(sizes: [u32; 2], side: impl FnMut(u32) -> Side) -> Vec<Side> {
    (0..sizes[0] + sizes[1]).map(side).collect()
}

/// The ranks, in the communicator of both, of the group to which a rank does not belong.
fn others(sizes: [u32; 2], rank: u32) -> std::ops::Range<u32> {
    match rank < sizes[0] {
        true => sizes[0]..sizes[0] + sizes[1],
        false => 0..sizes[0],
    }
}

#[test]
fn the_other_group_gets_what_the_root_has() {
    let mut random = Random::new(20);
    for sizes in SIZES {
        for root in roots(sizes) {
            for units in [0, 1, 50, 9_000] {
                let what = (root.1, 7, units);
                let side = |rank| {
                    let mut side = Side::default();
                    let where_it_is = seen(sizes, root, rank);
                    if where_it_is != Root::Beside {
                        side.recv = Some(Buffer::one(units, 2));
                    }
                    match where_it_is {
                        Root::Here => side.kept = vec![(0, what)],
                        Root::Remote(_) => side.expected = vec![(0, what)],
                        Root::Beside => {}
                    }
                    side
                };
                let sides = sides(sizes, side);
                check(sizes, &sides, random.next(), |rank, side| {
                    InterOperation::Bcast {
                        data: side.recv.as_ref().map(Buffer::typed),
                        root: seen(sizes, root, rank),
                    }
                });
            }
        }
    }
}

#[test]
fn roots_gather_from_the_other_group_and_scatter_to_it() {
    let mut random = Random::new(21);
    for sizes in SIZES {
        for root in roots(sizes) {
            let other = sizes[1 - root.0];
            let given = shapes(other, &mut random);
            for Shape {
                form,
                layout,
                units,
                ..
            } in given
            {
                let first = others(sizes, root_rank(sizes, root)).start;
                let place = |rank: u32| rank - first;
                let what = |place: u32| (place, 3, units[place as usize]);
                let all: Vec<_> = (0..other).map(|p| (p as usize, what(p))).collect();
                let side = |rank, gather: bool, random: &mut Random| {
                    let mut side = Side::default();
                    match seen(sizes, root, rank) {
                        Root::Beside => {}
                        Root::Here if gather => {
                            side.recv = Some(Buffer::new(form, &units, layout, random));
                            side.expected = all.clone();
                        }
                        Root::Here => {
                            side.send = Some(Buffer::new(form, &units, layout, random));
                            side.sent = (0..other).map(what).collect();
                        }
                        Root::Remote(_) => {
                            let (_, what) = all[place(rank) as usize];
                            let one = Some(Buffer::one(what.2, (layout + 1) % LAYOUTS));
                            if gather {
                                (side.send, side.sent) = (one, vec![what]);
                            } else {
                                (side.recv, side.expected) = (one, vec![(0, what)]);
                            }
                        }
                    }
                    side
                };
                let gathering = sides(sizes, |rank| side(rank, true, &mut random));
                check(sizes, &gathering, random.next(), |rank, side| {
                    InterOperation::Gather {
                        send: side.send.as_ref().map(Buffer::typed),
                        recv: side.recv.as_ref().map(Buffer::many),
                        root: seen(sizes, root, rank),
                    }
                });
                let scattering = sides(sizes, |rank| side(rank, false, &mut random));
                check(sizes, &scattering, random.next(), |rank, side| {
                    InterOperation::Scatter {
                        send: side.send.as_ref().map(Buffer::many),
                        recv: side.recv.as_ref().map(Buffer::typed),
                        root: seen(sizes, root, rank),
                    }
                });
            }
        }
    }
}

/// The rank of the root in the communicator of both.
fn root_rank(sizes: [u32; 2], (group, root): (usize, u32)) -> u32 {
    group as u32 * sizes[0] + root
}

#[test]
fn each_group_gathers_the_other_s_contributions() {
    let mut random = Random::new(22);
    for sizes in SIZES {
        for (form, layout) in [
            (Form::Equal, 0),
            (Form::Equal, 2),
            (Form::Blocks, 1),
            (Form::Blocks, 3),
        ] {
            let units = |rank: u32| match form {
                Form::Equal => 3,
                _ => [0, 2, 7][rank as usize % 3],
            };
            let what = |rank: u32| (rank, 0, units(rank));
            let side = |rank| {
                let from = others(sizes, rank);
                let lens: Vec<_> = from.clone().map(units).collect();
                Side {
                    send: Some(Buffer::one(units(rank), (layout + 1) % LAYOUTS)),
                    sent: vec![what(rank)],
                    recv: Some(Buffer::new(form, &lens, layout, &mut random)),
                    expected: from.map(what).enumerate().collect(),
                    ..Side::default()
                }
            };
            let sides = sides(sizes, side);
            check(sizes, &sides, 5, |_, side| InterOperation::Allgather {
                send: side.send.as_ref().expect("it was made").typed(),
                recv: side.recv.as_ref().expect("it was made").many(),
            });
        }
    }
}

#[test]
fn every_rank_hears_from_every_rank_of_the_other_group() {
    let mut random = Random::new(23);
    for sizes in SIZES {
        for form in [Form::Equal, Form::Blocks, Form::Layouts] {
            let units = |from: u32, to: u32| match form {
                Form::Equal => 2,
                _ => [0, 4, 1][(from + 2 * to) as usize % 3],
            };
            let side = |rank| {
                let other = others(sizes, rank);
                let sent: Vec<_> = other
                    .clone()
                    .map(|to| (rank, to, units(rank, to)))
                    .collect();
                let got: Vec<_> = other.map(|from| (from, rank, units(from, rank))).collect();
                let lens = |of: &[(u32, u32, usize)]| of.iter().map(|m| m.2).collect::<Vec<_>>();
                Side {
                    send: Some(Buffer::new(form, &lens(&sent), 1, &mut random)),
                    recv: Some(Buffer::new(form, &lens(&got), 2, &mut random)),
                    sent,
                    expected: got.into_iter().enumerate().collect(),
                    ..Side::default()
                }
            };
            let sides = sides(sizes, side);
            let ran = check(sizes, &sides, 6, |_, side| InterOperation::Alltoall {
                send: side.send.as_ref().expect("it was made").many(),
                recv: side.recv.as_ref().expect("it was made").many(),
            });
            if form == Form::Equal {
                let messages = others(sizes, 0).len();
                assert_eq!(ran.sent(0), messages);
                let rounds = sizes[0].max(sizes[1]).div_ceil(32) as usize;
                assert!(ran.waits(0) <= rounds);
            }
        }
    }
}

#[test]
fn barriers_synchronise_both_groups() {
    let options = Options::default();
    for sizes in [[1, 1], [2, 3], [5, 4]] {
        let mut run = Simulation::new(sizes[0] + sizes[1], 3);
        run.schedule_all(|b| {
            let groups = groups(sizes, b.rank());
            write(b, &options, &groups, &InterOperation::Barrier);
        });
        run.assert_synchronises("between groups");
    }
}

/// All ranks, with the contributions of a case and room for its results.
fn filled(case: &Case, sizes: [u32; 2], seed: u64) -> Simulation {
    let mut run = Simulation::new(sizes[0] + sizes[1], seed);
    let (input, output) = case.fill(&mut run, Forms::Apart);
    for rank in 0..run.size() {
        for (base, origin) in [(Base::Send, input), (Base::Recv, output)] {
            let memory = run.memory(rank, base).to_vec();
            run.set_memory(rank, base, memory, origin);
        }
    }
    run
}

fn buf(layout: &Layout, count: usize) -> TypedBuf<'_> {
    TypedBuf {
        ptr: std::ptr::dangling_mut(),
        count,
        layout,
        memory: MemoryKind::Host,
    }
}

#[test]
fn roots_get_what_the_other_group_comes_to() {
    let options = Options::default();
    for case in cases().iter().filter(|case| !case.woven) {
        for sizes in [[1, 1], [1, 3], [4, 1], [5, 3]] {
            for root in roots(sizes) {
                let mut run = filled(case, sizes, 8);
                let root_rank = root_rank(sizes, root);
                let expected = case.reduced(&run, Forms::Apart, others(sizes, root_rank));
                run.schedule_all(|b| {
                    let buf = buf(&case.layout, case.count);
                    let operation = InterOperation::Reduce {
                        send: Some(buf),
                        recv: Some(buf),
                        op: &case.op,
                        root: seen(sizes, root, b.rank()),
                    };
                    write(b, &options, &groups(sizes, b.rank()), &operation);
                });
                run.run("reduce");
                let got = run.packed(root_rank, Base::Recv, &case.layout, case.count);
                assert_eq!(got, expected, "{case:?} {sizes:?} {root:?}");
            }
        }
    }
}

#[test]
fn each_group_gets_what_the_other_comes_to() {
    let options = Options::default();
    for case in cases().iter().filter(|case| !case.woven) {
        for sizes in [[1, 1], [1, 3], [4, 1], [5, 3]] {
            let mut run = filled(case, sizes, 9);
            let ranks = 0..run.size();
            let reduced = |rank| case.reduced(&run, Forms::Apart, others(sizes, rank));
            let expected: Vec<_> = ranks.clone().map(reduced).collect();
            run.schedule_all(|b| {
                let operation = InterOperation::Allreduce {
                    send: buf(&case.layout, case.count),
                    recv: buf(&case.layout, case.count),
                    op: &case.op,
                };
                write(b, &options, &groups(sizes, b.rank()), &operation);
            });
            run.run("allreduce");
            for (rank, expected) in ranks.zip(&expected) {
                let got = run.packed(rank, Base::Recv, &case.layout, case.count);
                assert_eq!(&got, expected, "{case:?} {sizes:?} rank {rank}");
            }
        }
    }
}

#[test]
fn what_a_group_comes_to_is_scattered_over_the_other() {
    let options = Options::default();
    // Twelve items: equal blocks, and uneven ones, some of them empty.
    let uneven = |size: u32| {
        let mut counts = vec![0; size as usize];
        (0..12).for_each(|item| counts[(item * item) % size as usize] += 1);
        counts
    };
    let case = affine(12);
    for sizes in [[1, 1], [1, 3], [4, 1], [2, 6], [4, 3]] {
        for equal in [false, true] {
            let mut run = filled(&case, sizes, 10);
            let own = |rank: u32| usize::from(rank >= sizes[0]);
            let counts = sizes.map(|size| match equal {
                true => vec![12 / size as usize; size as usize],
                false => uneven(size),
            });
            let ranks = 0..run.size();
            let reduced = |rank| case.reduced(&run, Forms::Apart, others(sizes, rank));
            let expected: Vec<_> = ranks.clone().map(reduced).collect();
            run.schedule_all(|b| {
                let groups = groups(sizes, b.rank());
                let counts = &counts[own(b.rank())];
                let mine = counts[groups.local.rank() as usize];
                let operation = match equal {
                    true => InterOperation::ReduceScatterBlock {
                        send: buf(&case.layout, mine),
                        recv: buf(&case.layout, mine),
                        op: &case.op,
                    },
                    false => InterOperation::ReduceScatter {
                        send: buf(&case.layout, 12),
                        recv: buf(&case.layout, mine),
                        counts,
                        op: &case.op,
                    },
                };
                write(b, &options, &groups, &operation);
            });
            run.run("reduce-scatter");
            for (rank, expected) in ranks.zip(&expected) {
                let counts = &counts[own(rank)];
                let place = (rank - own(rank) as u32 * sizes[0]) as usize;
                let first: usize = counts[..place].iter().sum();
                let size = case.layout.size();
                let block = &expected[first * size..(first + counts[place]) * size];
                let got = run.packed(rank, Base::Recv, &case.layout, counts[place]);
                assert_eq!(got, block, "{sizes:?} {counts:?} rank {rank}");
            }
        }
    }
}
