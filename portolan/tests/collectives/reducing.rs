//! Reductions, and received values of types with invalid bit patterns.

use std::sync::Arc;

use portolan::coll::{
    Allreduce, Exscan, Reduce, ReduceScatter, ReduceScatterBlock, Scan, reduce_local,
};
use portolan::{Datatype, ErrorKind, Op};

use crate::SIZES;
use crate::common::jobs;

/// Composition of the functions `a·x + b` modulo a prime: associative, not commutative.
fn compose(f: [u64; 2], g: [u64; 2]) -> [u64; 2] {
    [f[0] * g[0] % 65_537, (f[1] * g[0] + g[1]) % 65_537]
}

fn function(rank: u32, index: usize) -> [u64; 2] {
    [u64::from(rank) + 2, index as u64 + 3 * u64::from(rank)]
}

/// The values of ranks `first..last` at each place, composed in their order.
fn composed(first: u32, last: u32, len: usize) -> Vec<[u64; 2]> {
    let at = |index| {
        let functions = (first..last).map(|rank| function(rank, index));
        functions.reduce(compose).unwrap_or_default()
    };
    (0..len).map(at).collect()
}

fn functions(rank: u32, len: usize) -> Vec<[u64; 2]> {
    (0..len).map(|index| function(rank, index)).collect()
}

#[test]
fn reductions_keep_the_order_of_the_ranks_in_every_form() {
    jobs(&SIZES, |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        let op = Op::new(false, compose);
        for len in [0, 1, 3, 700] {
            let root = len as u32 % n;
            let all = composed(0, n, len);
            let zeros = || vec![[0; 2]; len];
            in_all_forms!(
                comm,
                functions(me, len),
                zeros(),
                |s, r| Allreduce::new(s, r, op.clone()),
                all.clone()
            );
            in_all_forms!(
                comm,
                functions(me, len),
                zeros(),
                |s, r| Reduce::new(s, r, op.clone(), root),
                if me == root { all.clone() } else { zeros() }
            );
            in_all_forms!(
                comm,
                functions(me, len),
                zeros(),
                |s, r| Scan::new(s, r, op.clone()),
                composed(0, me + 1, len)
            );
            in_all_forms!(
                comm,
                functions(me, len),
                zeros(),
                |s, r| Exscan::new(s, r, op.clone()),
                composed(0, me, len)
            );

            let blocks = composed(0, n, len * n as usize);
            let mine = blocks[len * me as usize..][..len].to_vec();
            in_all_forms!(
                comm,
                functions(me, len * n as usize),
                zeros(),
                |s, r| ReduceScatterBlock::new(s, r, op.clone()),
                mine.clone()
            );
            let counts: Vec<_> = (0..n as usize).map(|rank| len + rank % 2).collect();
            let first: usize = counts[..me as usize].iter().sum();
            let total: usize = counts.iter().sum();
            let uneven = composed(0, n, total)[first..][..counts[me as usize]].to_vec();
            in_all_forms!(
                comm,
                functions(me, total),
                vec![[0; 2]; counts[me as usize]],
                |s, r| ReduceScatter::new(s, r, &counts, op.clone()),
                uneven.clone()
            );

            let mut data = functions(me, len);
            comm.run(Allreduce::in_place(&mut data, op.clone()))?;
            assert_eq!(data, all);
            let mut data = functions(me, len);
            comm.run(Reduce::in_place(&mut data, op.clone(), root))?;
            assert_eq!(data, if me == root { all } else { functions(me, len) });
            let mut data = functions(me, len);
            comm.run(Exscan::in_place(&mut data, op.clone()))?;
            let before = if me == 0 {
                functions(0, len)
            } else {
                composed(0, me, len)
            };
            assert_eq!(data, before);
            let mut data = functions(me, len * n as usize);
            comm.run(ReduceScatterBlock::in_place(&mut data, op.clone()))?;
            assert_eq!(data[..len], mine);
            let mut data = functions(me, total);
            comm.run(ReduceScatter::in_place(&mut data, &counts, op.clone()))?;
            assert_eq!(data[..uneven.len()], uneven);
        }
        Ok(())
    });
}

#[derive(Clone, Copy, Debug, PartialEq, Datatype)]
#[repr(u8)]
enum Light {
    Red = 1,
    Green = 2,
}

#[test]
fn received_values_are_values() {
    jobs(&[2, 3, 5], |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        assert_eq!(comm.bcast_one(['a', 'b'][usize::from(me == 1)], 1)?, 'b');
        assert!(!comm.allreduce_one(me != 1, &Op::LAND)?);
        let lights = comm.allgather_one([Light::Red, Light::Green][me as usize % 2])?;
        let expected = (0..n).map(|rank| [Light::Red, Light::Green][rank as usize % 2]);
        assert_eq!(lights, expected.collect::<Vec<_>>());
        assert_eq!(comm.scatter_one(&lights, 0)?, lights[me as usize]);
        let or = Op::new(true, |a: bool, b: bool| a | b);
        assert!(comm.allreduce_one(me == 1, &or)?);
        assert_eq!(comm.scan_one(me == 1, &or)?, me >= 1);

        // Rank 1 has bytes where the others have lights.
        let mut light = [Light::Red];
        let outcome = match me {
            1 => comm.bcast(&mut [7u8], 1),
            _ => comm.bcast(&mut light, 1),
        };
        let kind = outcome.map_err(|error| error.kind());
        assert_eq!(
            kind,
            if me == 1 {
                Ok(())
            } else {
                Err(ErrorKind::InvalidValue)
            }
        );
        assert_eq!(light, [Light::Red]);
        // An operator on lights never sees an invalid one.
        let seen = |a: Light, b: Light| if a == Light::Red { b } else { a };
        let kind = match me {
            1 => comm
                .allreduce_in_place(&mut [7u8], Op::new(true, |_: u8, _: u8| 9))
                .map_err(|error| error.kind()),
            _ => comm
                .allreduce_in_place(&mut light, Op::new(true, seen))
                .map_err(|error| error.kind()),
        };
        assert_eq!(
            kind,
            if me == 1 {
                Ok(())
            } else {
                Err(ErrorKind::InvalidValue)
            }
        );
        Ok(())
    });
}

/// An operator may own anything, which must be dropped when the program drops the operator.
#[test]
fn operators_are_not_kept_after_their_operations() {
    jobs(&[1, 2, 3], |world| {
        let comm = world.comm();
        let held = Arc::new(());
        let kept = Arc::clone(&held);
        let op = Op::new(true, move |a: u64, b: u64| {
            let _: &() = &kept;
            a + b
        });
        for len in [1, 10_000] {
            let (mine, mut sum) = (vec![1_u64; len], vec![0; len]);
            comm.run(Allreduce::new(&mine, &mut sum, op.clone()))?;
            comm.run(Reduce::new(&mine, &mut sum, op.clone(), 0))?;
            comm.run(Scan::new(&mine, &mut sum, op.clone()))?;
            let owned = Allreduce::new(mine.clone(), sum.clone(), op.clone());
            comm.start_owned(owned)?.wait()?;
            let mut again = comm.persistent(Allreduce::new(mine, sum, op.clone()))?;
            again.start()?;
            again.wait()?;
        }
        drop(op);
        assert_eq!(Arc::strong_count(&held), 1, "rank {}", comm.rank());
        Ok(())
    });
}

#[test]
fn a_local_reduction_that_is_refused_says_once_what_to_do() {
    let refused = |outcome: Result<(), portolan::Error>, kind, says: &str| {
        let error = outcome.expect_err(says);
        let text = error.to_string();
        assert_eq!(error.kind(), kind, "{text}");
        assert!(
            text.starts_with("reduce_local: ") && text.contains(says),
            "{text}"
        );
        assert!(text.matches(';').count() <= 1, "two remedies: {text}");
    };
    let floats = reduce_local(&[1.0], &mut [2.0], &Op::BAND);
    refused(floats, ErrorKind::InvalidLayout, "; use integers");
    let lengths = reduce_local(&[1, 2], &mut [3], &Op::SUM);
    refused(
        lengths,
        ErrorKind::InvalidCount,
        "; both buffers need the same length",
    );
    let pairs = reduce_local(&[1.0], &mut [2.0], &Op::MAXLOC);
    refused(pairs, ErrorKind::InvalidLayout, "such as Pair<f64>");
    let types = reduce_local(&[1.0], &mut [2.0], Op::new(true, |a: u8, b: u8| a | b));
    refused(types, ErrorKind::InvalidLayout, "; use Layout::of::<");
    let one_sided = reduce_local(&[1], &mut [2], &Op::NO_OP);
    refused(
        one_sided,
        ErrorKind::InvalidArgument,
        "`no_op` is for one-sided",
    );
}
