//! Sequences of any operations, compared with their expected results.
//!
//! All ranks draw the same sequence from a seed. A rank's contribution follows from the seed, the
//! rank and the index, so every rank can compute what it has to get.

use portolan_core::{Device, Result, TypedBuf};

use super::turn::{Form, GAP, Items, Lie, Turn, displacements, operator};
use super::{World, costs, has_boards, on_all};
use crate::simulate::Random;
use crate::{BlocksArg, LayoutsArg, Many, Operation, Persistent, run, start};

fn go(world: &World, turn: &Turn, operation: &Operation<'_>) -> Result<()> {
    let wait = |request| world.device().wait(request).map(drop);
    // SAFETY: the buffers outlive the call, which waits for the requests, and do not overlap.
    unsafe {
        match turn.form {
            Form::Blocking => run(world, operation),
            Form::Nonblocking => wait(start(world, operation)?),
            Form::Persistent(times) => {
                let mut plan = Persistent::new(world, operation)?;
                (0..times).try_for_each(|_| wait(plan.start()?))
            }
        }
    }
}

/// Takes one turn and checks the result.
pub(super) fn take(world: &World, turn: &Turn) -> Result<()> {
    match turn.what {
        0 => go(world, turn, &Operation::Barrier),
        1 => bcast(world, turn),
        2 if turn.seed.is_multiple_of(4) => even_gather(world, turn),
        2 => gather(world, turn),
        3 if turn.seed.is_multiple_of(2) => scatterv(world, turn),
        3 => scatter(world, turn),
        4 | 5 => allgather(world, turn, turn.what == 5),
        6 | 7 => alltoall(world, turn, turn.what == 7),
        8 => reduce(world, turn),
        9 => allreduce(world, turn),
        10 => reduce_scatter(world, turn),
        _ => scan(world, turn),
    }
}

fn bcast(world: &World, turn: &Turn) -> Result<()> {
    let mut data = match world.rank() == turn.root {
        true => Items::with(turn.lie, turn.values(turn.root, 0, turn.count)),
        false => Items::new(turn.lie, turn.count),
    };
    let data_buf = data.buf(turn.count);
    go(
        world,
        turn,
        &Operation::Bcast {
            data: data_buf,
            root: turn.root,
        },
    )?;
    assert!(
        data.get()
            .into_iter()
            .eq(turn.values(turn.root, 0, turn.count))
    );
    Ok(())
}

fn gather(world: &World, turn: &Turn) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let uneven = !turn.seed.is_multiple_of(2);
    let counts = if uneven {
        turn.counts.clone()
    } else {
        vec![turn.count; size as usize]
    };
    let places = displacements(&counts);
    let own = counts[rank as usize];
    let mut send = Items::with(turn.lie, turn.values(rank, 0, own));
    let total: usize = counts.iter().map(|count| count + 1).sum();
    let mut recv = Items::new(Lie::Plain, total);
    let in_place = turn.in_place && rank == turn.root;
    if in_place {
        recv.set(places[rank as usize] as usize, turn.values(rank, 0, own));
    }
    let even = Items::new(Lie::Plain, 0).layout;
    let target = BlocksArg {
        ptr: recv.ptr(),
        counts: &counts,
        displacements: &places,
        layout: &even,
    };
    go(
        world,
        turn,
        &Operation::Gather {
            send: (!in_place).then(|| send.buf(own)),
            recv: (rank == turn.root).then_some(Many::Blocks(target)),
            root: turn.root,
            uneven: true,
        },
    )?;
    if rank == turn.root {
        let got = recv.get();
        for from in 0..size {
            let (at, count) = (places[from as usize] as usize, counts[from as usize]);
            assert!(
                got[at..at + count]
                    .iter()
                    .copied()
                    .eq(turn.values(from, 0, count))
            );
            assert_eq!(got[at + count], GAP);
        }
    }
    Ok(())
}

fn even_gather(world: &World, turn: &Turn) -> Result<()> {
    let (rank, size, count) = (world.rank(), world.size(), turn.count);
    let mut send = Items::with(turn.lie, turn.values(rank, 0, count));
    let mut recv = Items::new(turn.lie.other(), count * size as usize);
    let in_place = turn.in_place && rank == turn.root;
    if in_place {
        recv.set(rank as usize * count, turn.values(rank, 0, count));
    }
    let operation = Operation::Gather {
        send: (!in_place).then(|| send.buf(count)),
        recv: (rank == turn.root).then(|| Many::Equal(recv.buf(count))),
        root: turn.root,
        uneven: false,
    };
    go(world, turn, &operation)?;
    if rank == turn.root {
        let all = (0..size).flat_map(|from| turn.values(from, 0, count));
        assert!(recv.get().into_iter().eq(all));
    }
    Ok(())
}

fn scatter(world: &World, turn: &Turn) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let count = turn.count;
    let mut send = Items::with(turn.lie, turn.values(turn.root, 0, count * size as usize));
    let mut recv = Items::new(Lie::Plain, count);
    let in_place = turn.in_place && rank == turn.root;
    go(
        world,
        turn,
        &Operation::Scatter {
            send: (rank == turn.root).then(|| Many::Equal(send.buf(count))),
            recv: (!in_place).then(|| recv.buf(count)),
            root: turn.root,
            uneven: false,
        },
    )?;
    if !in_place {
        let first = rank as usize * count;
        assert!(
            recv.get()
                .into_iter()
                .eq(turn.values(turn.root, first, count))
        );
    }
    Ok(())
}

fn scatterv(world: &World, turn: &Turn) -> Result<()> {
    let rank = world.rank() as usize;
    let places = displacements(&turn.counts);
    let total: usize = turn.counts.iter().map(|count| count + 1).sum();
    let mut send = Items::new(turn.lie, total);
    if world.rank() == turn.root {
        for (to, (&at, &count)) in places.iter().zip(&turn.counts).enumerate() {
            send.set(at as usize, turn.values(turn.root, to * 100_000, count));
        }
    }
    let own = turn.counts[rank];
    let mut recv = Items::new(turn.lie.other(), own);
    let in_place = turn.in_place && world.rank() == turn.root;
    let source = BlocksArg {
        ptr: send.ptr(),
        counts: &turn.counts,
        displacements: &places,
        layout: &send.layout,
    };
    go(
        world,
        turn,
        &Operation::Scatter {
            send: (world.rank() == turn.root).then_some(Many::Blocks(source)),
            recv: (!in_place).then(|| recv.buf(own)),
            root: turn.root,
            uneven: true,
        },
    )?;
    if !in_place {
        let expected = turn.values(turn.root, rank * 100_000, own);
        assert!(recv.get().into_iter().eq(expected));
    }
    Ok(())
}

fn allgather(world: &World, turn: &Turn, listed: bool) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let counts = if listed {
        turn.counts.clone()
    } else {
        vec![turn.count; size as usize]
    };
    let places: Vec<isize> = match listed {
        true => displacements(&counts),
        false => (0..size as usize)
            .map(|rank| (rank * turn.count) as isize)
            .collect(),
    };
    let own = counts[rank as usize];
    let mut send = Items::with(turn.lie.other(), turn.values(rank, 0, own));
    let total = counts.iter().map(|count| count + usize::from(listed)).sum();
    let mut recv = Items::new(turn.lie, total);
    if turn.in_place {
        recv.set(places[rank as usize] as usize, turn.values(rank, 0, own));
    }
    let layout = recv.layout.clone();
    let target = match listed {
        false => Many::Equal(TypedBuf {
            layout: &layout,
            ..recv.buf(turn.count)
        }),
        true => Many::Blocks(BlocksArg {
            ptr: recv.ptr(),
            counts: &counts,
            displacements: &places,
            layout: &layout,
        }),
    };
    let send = (!turn.in_place).then(|| send.buf(own));
    go(world, turn, &Operation::Allgather { send, recv: target })?;
    let got = recv.get();
    for from in 0..size {
        let (at, count) = (places[from as usize] as usize, counts[from as usize]);
        assert!(
            got[at..at + count]
                .iter()
                .copied()
                .eq(turn.values(from, 0, count))
        );
    }
    Ok(())
}

fn alltoall(world: &World, turn: &Turn, listed: bool) -> Result<()> {
    let (rank, size) = (world.rank(), world.size() as usize);
    // Rank a sends rank b as many items as b sends a, so that the in-place form is valid too.
    let between = |a: u32, b: u32| match listed {
        true => turn.counts[((a + b) as usize) % size],
        false => turn.count,
    };
    let counts: Vec<usize> = (0..size as u32).map(|other| between(rank, other)).collect();
    let places = displacements(&counts);
    let total: usize = counts.iter().map(|count| count + 1).sum();
    // The data for rank b begins at index 100 000 · b.
    let fill = |items: &mut Items| {
        for (to, (&at, &count)) in places.iter().zip(&counts).enumerate() {
            items.set(at as usize, turn.values(rank, to * 100_000, count));
        }
    };
    let mut send = Items::new(turn.lie.other(), total);
    let mut recv = Items::new(turn.lie, total);
    fill(if turn.in_place { &mut recv } else { &mut send });
    let blocks = |items: &mut Items, layout| {
        Many::Blocks(BlocksArg {
            ptr: items.ptr(),
            counts: &counts,
            displacements: &places,
            layout,
        })
    };
    let (from_layout, to_layout) = (send.layout.clone(), recv.layout.clone());
    let [from_each, to_each] = [&from_layout, &to_layout].map(|layout| vec![layout.clone(); size]);
    let [from_places, to_places] = [&from_layout, &to_layout].map(|layout| {
        let bytes = places.iter().map(|place| place * layout.extent());
        bytes.collect::<Vec<isize>>()
    });
    let each = |items: &mut Items, displacements, layouts| {
        Many::Layouts(LayoutsArg {
            ptr: items.ptr(),
            counts: &counts,
            displacements,
            layouts,
        })
    };
    let of_each = turn.seed.is_multiple_of(3);
    let from = match of_each {
        true => each(&mut send, &from_places, &from_each),
        false => blocks(&mut send, &from_layout),
    };
    let target = match of_each {
        true => each(&mut recv, &to_places, &to_each),
        false => blocks(&mut recv, &to_layout),
    };
    let send = (!turn.in_place).then_some(from);
    go(world, turn, &Operation::Alltoall { send, recv: target })?;
    let got = recv.get();
    for from in 0..size {
        let (at, count) = (places[from] as usize, counts[from]);
        let expected = turn.values(from as u32, rank as usize * 100_000, count);
        assert!(got[at..at + count].iter().copied().eq(expected));
    }
    if !listed && !turn.in_place {
        even_alltoall(world, turn)?;
    }
    Ok(())
}

fn even_alltoall(world: &World, turn: &Turn) -> Result<()> {
    let (rank, size, count) = (world.rank(), world.size() as usize, turn.count);
    let mut send = Items::with(turn.lie, turn.values(rank, 0, count * size));
    let mut recv = Items::new(turn.lie.other(), count * size);
    let (from, to) = (send.buf(count), recv.buf(count));
    let send = Some(Many::Equal(from));
    go(
        world,
        turn,
        &Operation::Alltoall {
            send,
            recv: Many::Equal(to),
        },
    )?;
    let expected =
        (0..size as u32).flat_map(|from| turn.values(from, rank as usize * count, count));
    assert!(recv.get().into_iter().eq(expected));
    Ok(())
}

fn reduce(world: &World, turn: &Turn) -> Result<()> {
    let (op, rank) = (operator(), world.rank());
    let mut send = Items::with(turn.lie, turn.values(rank, 0, turn.count));
    let in_place = turn.in_place && rank == turn.root;
    let mut recv = match in_place {
        true => Items::with(turn.lie, turn.values(rank, 0, turn.count)),
        false => Items::new(turn.lie, turn.count),
    };
    go(
        world,
        turn,
        &Operation::Reduce {
            send: (!in_place).then(|| send.buf(turn.count)),
            recv: (rank == turn.root).then(|| recv.buf(turn.count)),
            op: &op,
            root: turn.root,
        },
    )?;
    if rank == turn.root {
        check(turn, &recv, 0..world.size());
    }
    Ok(())
}

fn check(turn: &Turn, recv: &Items, ranks: std::ops::Range<u32>) {
    check_from(turn, &recv.get(), 0, ranks);
}

/// The same with another first index.
fn check_from(turn: &Turn, got: &[u64], first: usize, ranks: std::ops::Range<u32>) {
    for (index, &got) in got.iter().enumerate() {
        assert_eq!(
            Some(got),
            turn.reduced(ranks.clone(), first + index),
            "item {index}"
        );
    }
}

fn allreduce(world: &World, turn: &Turn) -> Result<()> {
    let (op, rank) = (operator(), world.rank());
    let mut send = Items::with(turn.lie, turn.values(rank, 0, turn.count));
    let mut recv = match turn.in_place {
        true => Items::with(turn.lie, turn.values(rank, 0, turn.count)),
        false => Items::new(turn.lie, turn.count),
    };
    let send = (!turn.in_place).then(|| send.buf(turn.count));
    let recv_buf = recv.buf(turn.count);
    go(
        world,
        turn,
        &Operation::Allreduce {
            send,
            recv: recv_buf,
            op: &op,
        },
    )?;
    check(turn, &recv, 0..world.size());
    Ok(())
}

fn reduce_scatter(world: &World, turn: &Turn) -> Result<()> {
    let (op, rank) = (operator(), world.rank() as usize);
    let (total, own) = (turn.counts.iter().sum(), turn.counts[rank]);
    let first = turn.counts[..rank].iter().sum();
    let mut send = Items::with(turn.lie, turn.values(world.rank(), 0, total));
    let mut recv = match turn.in_place {
        true => Items::with(turn.lie, turn.values(world.rank(), 0, total)),
        false => Items::new(turn.lie, own),
    };
    let operation = Operation::ReduceScatter {
        send: (!turn.in_place).then(|| send.buf(total)),
        recv: recv.buf(if turn.in_place { total } else { own }),
        counts: &turn.counts,
        op: &op,
    };
    go(world, turn, &operation)?;
    check_from(turn, &recv.get()[..own], first, 0..world.size());
    Ok(())
}

fn scan(world: &World, turn: &Turn) -> Result<()> {
    let (op, rank) = (operator(), world.rank());
    let exclusive = turn.seed.is_multiple_of(2);
    let mut send = Items::with(turn.lie, turn.values(rank, 0, turn.count));
    let mut recv = Items::with(turn.lie, turn.values(rank, 0, turn.count));
    let send = (!turn.in_place).then(|| send.buf(turn.count));
    let recv_buf = recv.buf(turn.count);
    go(
        world,
        turn,
        &Operation::Scan {
            send,
            recv: recv_buf,
            op: &op,
            exclusive,
        },
    )?;
    match (exclusive, rank) {
        (true, 0) => check(turn, &recv, 0..1),
        (true, _) => check(turn, &recv, 0..rank),
        (false, _) => check(turn, &recv, 0..rank + 1),
    }
    Ok(())
}

fn any_operations(ranks: u32, turns: usize, longest: usize, seed: u64) {
    operations(ranks, turns, longest, seed, false);
}

fn operations(ranks: u32, turns: usize, longest: usize, seed: u64, any_form: bool) {
    on_all(ranks, |world| {
        let mut random = Random::new(seed);
        let mut own = Random::new(u64::from(world.rank()) + 77);
        for _ in 0..turns {
            let mut turn = Turn::draw(&mut random, ranks, longest);
            if any_form {
                turn = turn.in_any_form(&mut random);
            }
            // Delays some ranks at times, by more than the others wait before they give their core
            // away.
            (0..own.below(8))
                .filter(|_| own.below(4) == 0)
                .for_each(|_| std::thread::yield_now());
            take(world, &turn).unwrap();
        }
        assert!(has_boards(world));
        let [signals, looks, _] = costs(world);
        assert!(any_form || signals >= turns as u64 && looks >= turns as u64 / 2);
    });
}

#[test]
fn any_operations_of_few_ranks() {
    for seed in 0..4 {
        any_operations(2, 150, 30_000, seed);
        any_operations(3, 100, 30_000, seed + 10);
    }
    any_operations(4, 150, 30_000, 5);
    any_operations(5, 100, 8193, 6);
    any_operations(6, 80, 8193, 60);
    any_operations(7, 80, 8193, 61);
    any_operations(2, 60, 140_000, 50);
    any_operations(3, 60, 140_000, 51);
    any_operations(4, 40, 140_000, 52);
}

#[test]
fn any_operations_in_any_form() {
    for seed in 20..24 {
        operations(2, 150, 30_000, seed, true);
        operations(3, 100, 8193, seed + 10, true);
    }
    operations(6, 80, 1024, 42, true);
    operations(7, 80, 1024, 43, true);
    operations(8, 80, 1024, 40, true);
    operations(9, 40, 500, 41, true);
}

#[test]
fn any_operations_of_eight_ranks() {
    any_operations(8, 100, 8193, 7);
}

#[test]
fn any_operations_of_more_ranks_than_one_round_has() {
    any_operations(9, 60, 1024, 8);
    any_operations(17, 40, 500, 9);
}
