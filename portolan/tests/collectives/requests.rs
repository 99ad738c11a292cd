//! The lives of nonblocking and persistent operations.

use std::pin::pin;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use portolan::coll::{Allreduce, Bcast};
use portolan::{Builder, Comm, ErrorKind, Op, wait_all, wait_any};

use crate::common::jobs;

#[test]
fn many_operations_on_duplicates_are_under_way_at_once() {
    jobs(&[1, 3, 4], |world| {
        let comms = [world.comm(), world.comm().dup()?, world.comm().dup()?];
        let (me, n) = (world.rank(), world.size());
        let mut requests = Vec::new();
        for round in 0..20u32 {
            for (which, comm) in (0u32..).zip(&comms) {
                let mine = vec![round * 100 + which * 10 + me; 50];
                requests.push(comm.start_owned(Allreduce::new(mine, vec![0; 50], Op::MAX))?);
            }
        }
        // Waited for in a different order than started.
        for outcome in wait_all(requests.drain(30..)) {
            outcome?;
        }
        for (index, request) in (0u32..).zip(requests) {
            let (_, most) = request.wait()?.buf;
            assert_eq!(most, [index / 3 * 100 + index % 3 * 10 + n - 1; 50]);
        }
        Ok(())
    });
}

/// Communicators that share some of their ranks. Each rank starts its operations in its own order,
/// and waits in another. Only on a single communicator must the orders agree.
#[test]
fn many_operations_on_groups_that_overlap_are_under_way_at_once() {
    jobs(&[4, 5], |world| {
        let all = world.comm();
        let (me, n) = (all.rank(), all.size());
        let group = |members: &[u32]| all.group().include(members);
        let mut comms = vec![
            all.create(&group(&[0, 1, 2])?)?,
            all.create(&group(&[1, 2, 3])?)?,
            all.create(&group(&[n - 1, 0])?)?,
            all.create_group(&group(&[2, 3, 0])?, 5)?,
            all.split(me % 2, 0)?,
            all.split(me / 2, -i64::from(me))?,
            all.split((me != 1).then_some(0), 0)?,
        ];
        comms.push(Some(all.clone()));
        let mine: Vec<(u32, Comm)> = (0..)
            .zip(comms)
            .filter_map(|(which, comm)| Some((which, comm?)))
            .collect();
        let value = |round: u32, which: u32, rank: u32| round * 1000 + which * 100 + rank * 7;
        let (mut sums, mut casts) = (Vec::new(), Vec::new());
        for round in 0..12 {
            for turn in 0..mine.len() {
                // Each rank starts with a different communicator.
                let (which, comm) = &mine[(turn + (me + round) as usize) % mine.len()];
                let (which, root) = (*which, round % comm.size());
                // Short ones and long ones, over boards and by messages.
                let len = [1, 50, 3000][(round % 3) as usize];
                let given = vec![value(round, which, me); len];
                let sum = Allreduce::new(given.clone(), vec![0; len], Op::SUM);
                let cast = comm.start_owned(Bcast::new(given, root))?;
                casts.push((round, which, comm.group().process(root), cast));
                sums.push((round, which, comm.group(), comm.start_owned(sum)?));
            }
        }
        if me % 2 == 0 {
            sums.reverse();
        } else {
            casts.reverse();
        }
        for (round, which, group, sum) in sums {
            let given = group
                .iter()
                .map(|member| value(round, which, member.index()));
            let expected: u32 = given.sum();
            let (_, got) = sum.wait()?.buf;
            assert!(got.iter().all(|&x| x == expected), "{which} in {round}");
        }
        for (round, which, root, cast) in casts {
            let root = root.expect("it is a member").index();
            let got = cast.wait()?.buf;
            assert!(
                got.iter().all(|&x| x == value(round, which, root)),
                "{which} in {round}"
            );
        }
        Ok(())
    });
}

#[test]
fn requests_can_be_dropped_awaited_and_waited_for_in_any_order() {
    fn ready<F: Future>(future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = future
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
            {
                return output;
            }
        }
    }
    jobs(&[2, 3], |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        let sum = |len| Allreduce::new(vec![1u64; len], vec![0; len], Op::SUM);
        // The other ranks depend on this rank's part, whether or not it looks at the result.
        let dropped = comm.start_owned(sum(20_000))?;
        let kept = comm.start_owned(sum(20_000))?;
        let mut persistent = comm.persistent(sum(20_000))?;
        persistent.start()?;
        assert_eq!(
            persistent.start().unwrap_err().kind(),
            ErrorKind::InvalidRequest
        );
        assert_eq!(
            persistent.buffers_mut().unwrap_err().kind(),
            ErrorKind::InvalidRequest
        );
        if me == 0 {
            drop(dropped);
            drop(persistent);
        } else {
            assert_eq!(dropped.wait()?.buf.1, vec![u64::from(n); 20_000]);
            persistent.wait()?;
            assert_eq!(persistent.into_buffers()?.1, vec![u64::from(n); 20_000]);
        }
        assert_eq!(ready(async { kept.await })?.buf.1[19_999], u64::from(n));

        let mut requests = vec![comm.start_owned(sum(1))?, comm.start_owned(sum(2))?];
        while let Some((_, outcome)) = wait_any(&mut requests)? {
            assert!(outcome?.buf.1.iter().all(|&x| x == u64::from(n)));
        }
        Ok(())
    });
}

#[test]
fn an_operation_in_a_scope_goes_on_when_the_scope_fails() {
    let failed = AtomicBool::new(false);
    jobs(&[3], |world| {
        let comm: Comm = world.comm();
        let (mine, mut sum) = ([1u32; 1000], [0; 1000]);
        let outcome = comm.scope(|s| {
            s.start(Allreduce::new(&mine, &mut sum, Op::SUM))?;
            match comm.rank() {
                1 => Err(portolan::Error::new(ErrorKind::Job, "changed its mind")),
                _ => Ok(()),
            }
        });
        assert_eq!(outcome.is_err(), comm.rank() == 1);
        failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
        assert_eq!(sum, [3; 1000]);
        world.finalize().map(drop)
    });
    assert!(failed.into_inner());
}

/// The variable that tells this program, in the process that the next test starts, to be the one
/// whose operator makes calls.
const CALLS: &str = "PORTOLAN_TEST_OPERATOR_CALLS";

/// At level Multiple, a thread would wait for itself for ever.
#[test]
fn an_operator_that_calls_the_device_ends_the_process_with_a_reason() {
    if std::env::var_os(CALLS).is_some() {
        let builder = Builder::new().multiple();
        let outcome = builder.threads(2, |world| {
            let comm = world.comm();
            let captured = comm.clone();
            let op = Op::new(true, move |a: u64, b: u64| {
                a + b + u64::from(captured.iprobe(0, 9).is_err())
            });
            let (mine, sum) = (vec![1u64; 100_000], vec![0; 100_000]);
            let request = comm.start_owned(Allreduce::new(mine, sum, op));
            request.expect("it starts").wait().map(drop)
        });
        unreachable!("{outcome:?}");
    }
    let me = std::env::current_exe().expect("a test has a program");
    let name = "requests::an_operator_that_calls_the_device_ends_the_process_with_a_reason";
    let output = Command::new(me)
        .args(["--exact", name, "--nocapture"])
        .env(CALLS, "1")
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("one of its own handlers, hooks or operators"),
        "{said}"
    );
    assert!(
        said.contains("an operator (`Op::new`) makes no calls at all"),
        "{said}"
    );
}
