//! Buffers in memory of the device (`Comm::alloc`).

mod common;

use common::{SIZES, jobs, jobs_with};
use portolan::coll::{Allreduce, Bcast};
use portolan::{AnyDevice, Builder, ErrorKind, Level, Memory, Op, Result, World, wait_all};

/// Lengths of messages, in values of 8 bytes: short, eager, long.
const LENGTHS: [usize; 4] = [1, 600, 5000, 200_000];

fn filled<L: Level>(world: &World<L>, length: usize, value: u64) -> Result<Memory<u64, L>> {
    let mut memory = world.comm().alloc(length)?;
    memory.fill(value);
    Ok(memory)
}

#[test]
fn requests_own_it_and_give_it_back() {
    jobs(&SIZES, owned);
    jobs_with(Builder::new().multiple(), &[2, 3], owned);
}

fn owned<L: Level>(world: World<L>) -> Result<()>
where
    AnyDevice<L>: Send,
{
    let comm = world.comm();
    let (me, n) = (comm.rank(), comm.size());
    let (left, right) = ((me + n - 1) % n, (me + 1) % n);
    for length in LENGTHS {
        let outgoing = filled(&world, length, u64::from(me))?;
        let incoming = filled(&world, length, u64::MAX)?;
        let places = [incoming.as_ptr(), outgoing.as_ptr()];
        let requests = (
            comm.irecv_owned(incoming, left, 0)?,
            comm.isend_owned(outgoing, right, 0)?,
        );
        let (incoming, outgoing) = (requests.0.wait()?.buf, requests.1.wait()?.buf);
        assert_eq!(places, [incoming.as_ptr(), outgoing.as_ptr()]);
        assert!(incoming.iter().all(|&value| value == u64::from(left)));
        assert!(outgoing.iter().all(|&value| value == u64::from(me)));

        // An error gives it back, too.
        let failed = comm.isend_owned(outgoing, n, 0).unwrap_err();
        assert_eq!(failed.error.kind(), ErrorKind::InvalidRank);
        assert_eq!(failed.buf.as_ptr(), places[1]);

        let mut incoming = comm.recv_init(incoming, left, 1)?;
        let mut outgoing = comm.send_init(failed.buf, right, 1)?;
        for step in 0..5 {
            outgoing.buf_mut()?.fill(10 * u64::from(me) + step);
            incoming.start()?;
            outgoing.start()?;
            incoming.wait()?;
            outgoing.wait()?;
            assert_eq!(incoming.buf()?[length - 1], 10 * u64::from(left) + step);
        }
        assert_eq!(outgoing.into_buf()?.as_ptr(), places[1]);
        assert_eq!(incoming.into_buf()?.as_ptr(), places[0]);
    }
    Ok(())
}

#[test]
fn collective_operations_own_and_borrow_it() {
    jobs(&SIZES, |world| {
        let comm = world.comm();
        let n = u64::from(comm.size());
        for length in LENGTHS {
            let (mine, sum) = (filled(&world, length, 1)?, filled(&world, length, 0)?);
            let place = sum.as_ptr();
            let request = comm.start_owned(Allreduce::new(mine, sum, Op::SUM))?;
            let (mine, mut sum) = request.wait()?.buf;
            assert_eq!((sum.as_ptr(), sum[length - 1]), (place, n));
            sum[0] = u64::from(comm.rank());
            comm.run(Bcast::new(&mut sum, 0))?;
            assert_eq!(sum[0], 0);
            comm.run(Allreduce::new(&mine, &mut sum, Op::SUM))?;
            let mut twice = comm.persistent(Allreduce::in_place(sum, Op::SUM))?;
            twice.start()?;
            twice.wait()?;
            assert_eq!(twice.buffers()?[length - 1], n * n);
        }
        Ok(())
    });
}

#[test]
fn it_is_like_a_slice() {
    jobs(&[1], |world| {
        let mut memory = world.comm().alloc::<u32>(3)?;
        for (value, number) in (&mut memory).into_iter().zip(1..) {
            *value = number;
        }
        memory.as_mut()[0] = 7;
        let mut sum = 0;
        for value in &memory {
            sum += value;
        }
        assert_eq!((sum, memory.as_ref()), (12, &[7, 2, 3][..]));
        assert_eq!(format!("{memory:?}"), "[7, 2, 3]");
        assert!(world.comm().alloc::<u64>(0)?.is_empty());
        Ok(())
    });
}

/// The device keeps the memory of a send whose request was dropped, and is not kept by it.
#[test]
fn a_dropped_send_still_arrives_and_does_not_keep_the_rank_in_the_job() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let other = 1 - comm.rank();
        for (length, tag) in LENGTHS.into_iter().zip(0..) {
            drop(comm.isend_owned(filled(&world, length, 7)?, other, tag)?);
            let mut again = comm.send_init(filled(&world, length, 8)?, other, tag)?;
            again.start()?;
            drop(again);
            drop(comm.irecv_owned(filled(&world, length, 0)?, other, 99)?);
        }
        for (length, tag) in LENGTHS.into_iter().zip(0..) {
            assert_eq!(comm.recv::<u64>(other, tag)?.0, vec![7; length]);
            assert_eq!(comm.recv::<u64>(other, tag)?.0, vec![8; length]);
        }
        let (mine, sum) = (filled(&world, 5000, 1)?, filled(&world, 5000, 0)?);
        drop(comm.start_owned(Allreduce::new(mine, sum, Op::SUM))?);
        comm.barrier()?;
        assert_eq!(world.finalize()?.buffers, 0);
        Ok(())
    });
    for transport in common::transports() {
        let worlds = Builder::new().transport(transport).in_process(2).unwrap();
        let [zero, one] = worlds.try_into().unwrap();
        let comm = zero.comm();
        let long = filled(&zero, 200_000, 7).unwrap();
        drop(comm.isend_owned(long, 1, 0).unwrap());
        let mut again = comm
            .send_init(filled(&zero, 200_000, 8).unwrap(), 1, 1)
            .unwrap();
        again.start().unwrap();
        drop(again);
        // The last handles of rank 0: it leaves.
        drop((comm, zero));
        for tag in [0, 1] {
            let error = one.comm().recv::<u64>(0, tag).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PeerFailed, "{transport}: {error}");
        }
    }
}

#[test]
fn it_outlives_the_end_of_its_rank() {
    jobs(&[1, 2], |world| {
        let comm = world.comm();
        let mut memory = filled(&world, 5000, 7)?;
        let other = (comm.rank() + 1) % comm.size();
        let outgoing = comm.isend_owned(filled(&world, 600, 8)?, other, 0)?;
        assert_eq!(comm.recv::<u64>(other, 0)?.0, [8; 600]);
        let outgoing = outgoing.wait()?.buf;
        drop(filled(&world, 600, 9)?);
        let leaks = world.finalize()?;
        let shared = match comm.transport() {
            "shm" => 2,
            _ => leaks.buffers,
        };
        assert_eq!(leaks.buffers, shared);
        assert!(memory.iter().all(|&value| value == 7));
        memory[4999] = 9;
        drop(comm);
        assert_eq!((memory[0], memory[4999], outgoing[599]), (7, 9, 8));
        Ok(())
    });
}

/// More is allocated in all than there is: what is dropped is free again.
#[cfg(feature = "shm")]
#[test]
fn what_is_dropped_is_free_again_wherever_that_was() {
    let small = || Builder::new().transport("shm").setting("SHM_MAX", "32M");
    fn round<L: Level>(world: World<L>) -> Result<()>
    where
        AnyDevice<L>: Send + 'static,
    {
        for number in 0..40 {
            let memory = filled(&world, 1 << 20, number)?;
            match number % 3 {
                0 => drop(memory),
                1 => std::thread::spawn(move || assert_eq!(memory[9], number))
                    .join()
                    .expect("a thread that drops the memory"),
                _ => {
                    let outgoing = world.comm().isend_owned(memory, 0, 0)?;
                    let incoming = world.comm().irecv_owned(vec![0_u64; 1 << 20], 0, 0)?;
                    for done in wait_all([incoming]) {
                        assert_eq!(done?.buf[5], number);
                    }
                    drop(outgoing);
                }
            }
        }
        assert_eq!(world.finalize()?.buffers, 0);
        Ok(())
    }
    small().try_threads(1, round).unwrap();
    small().multiple().try_threads(1, round).unwrap();
    let error = small().try_threads(1, |world| filled(&world, 8 << 20, 0).map(drop));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Exhausted);
}
