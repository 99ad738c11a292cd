//! Jobs inside one process: how they start, end and fail.

mod common;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use common::{SIZES, jobs, jobs_with};
use portolan::coll::Allreduce;
use portolan::{Builder, ErrorKind, Errors, Key, Op, Source, Tags, World, in_process};

#[test]
fn a_job_needs_a_rank() {
    assert_eq!(
        portolan::threads(0, |_| ()).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    assert_eq!(
        in_process(0).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
}

#[test]
fn settings_that_cannot_be_used_are_errors() {
    let error = Builder::new()
        .transport("pigeons")
        .threads(2, |_| ())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TransportUnavailable);
    let text = error.to_string();
    assert!(
        text.starts_with(
            "transport `pigeons` was requested (by the program) but is not usable\n  compiled in: "
        ),
        "{text}"
    );
    let error = Builder::new()
        .setting("SPINN", "1")
        .threads(2, |_| ())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSetting);
    assert!(
        error.to_string().contains("did you mean PORTOLAN_SPIN?"),
        "{error}"
    );
}

/// A panic is an event for the other ranks, and names its rank.
#[test]
fn a_panic_ends_the_waiting_of_the_others_and_names_its_rank() {
    for transport in common::transports() {
        let failures = AtomicU32::new(0);
        let outcome = std::panic::catch_unwind(|| {
            Builder::new().transport(transport).threads(4, |world| {
                let comm = world.comm();
                if comm.rank() == 2 {
                    panic!("out of luck");
                }
                let error = comm.recv_one::<u8>(2, 0).unwrap_err();
                assert_eq!(
                    (error.kind(), error.peer()),
                    (ErrorKind::PeerFailed, Some(2))
                );
                let others = [
                    comm.send(&[0u8], 2, 0).unwrap_err(),
                    comm.probe(2, 0).unwrap_err(),
                    comm.barrier().unwrap_err(),
                    comm.dup().unwrap_err(),
                ];
                for error in others.iter().chain([&error]) {
                    let (text, rank) = (error.to_string(), world.rank());
                    let what = format!("rank {rank} ({transport}): world rank 2 has failed: ");
                    assert!(text.starts_with(&what), "{text}");
                    let remedy =
                        "; look at the output of the rank that failed; the others can go on";
                    assert!(text.contains(remedy), "{text}");
                }
                failures.fetch_add(1, Ordering::Relaxed);
            })
        });
        let payload = outcome.unwrap_err();
        assert_eq!(
            payload.downcast_ref::<String>().unwrap(),
            "rank 2 panicked: out of luck"
        );
        assert_eq!(failures.load(Ordering::Relaxed), 3);
    }
}

#[test]
fn the_first_error_of_a_rank_is_the_jobs() {
    let error = portolan::try_threads(3, |world| {
        let comm = world.comm();
        match comm.rank() {
            1 => comm.send(&[0u8], 17, 0),
            _ => comm.recv_one::<u8>(1, 0).map(drop),
        }
    })
    .unwrap_err();
    assert_eq!(
        (error.kind(), error.rank()),
        (ErrorKind::InvalidRank, Some(1))
    );
}

/// With `threads`, where such an error is a value like any other, the other ranks would wait.
#[test]
fn a_rank_that_ends_with_an_error_of_the_programs_own_has_failed() {
    #[derive(Debug, PartialEq)]
    enum Own {
        Input(u32),
        Exchange(ErrorKind),
    }
    impl std::fmt::Display for Own {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{self:?}")
        }
    }
    impl std::error::Error for Own {}
    impl From<portolan::Error> for Own {
        fn from(error: portolan::Error) -> Self {
            Self::Exchange(error.kind())
        }
    }

    let typed = |world: World| {
        let comm = world.comm();
        if comm.rank() == 1 {
            return Err(Own::Input(7));
        }
        comm.recv_one::<u8>(1, 0)?;
        Ok(())
    };
    let boxed = |world: World| -> Result<u32, Box<dyn std::error::Error>> {
        typed(world)?;
        Ok(5)
    };
    for transport in common::transports() {
        let job = || Builder::new().transport(transport);
        let error = job().run_threads(3, typed).unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&Own::Input(7)), "{error}");
        // This one has to stay in its thread, so only the text is left.
        let error = job().run_threads(3, boxed).unwrap_err();
        assert_eq!(error.to_string(), "Input(7)");
        let all = job().run_threads(3, |world| match world.rank() {
            0 => Err("rank 0 has no input"),
            rank => Ok(rank),
        });
        assert_eq!(all.unwrap_err().to_string(), "rank 0 has no input");
    }
    let error = portolan::run_threads(0, boxed).unwrap_err();
    let error = error.downcast::<portolan::Error>().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

/// SND-16 and COR-07: handles that are leaked or outlive the end do not make other ranks wait.
#[test]
fn leaked_handles_do_not_keep_the_job_from_ending() {
    jobs(&[3], |world| {
        if world.rank() == 1 {
            std::mem::forget(world);
        }
        Ok(())
    });
}

#[test]
fn finalize_says_what_was_left() {
    jobs(&SIZES, |world| {
        let comm = world.comm();
        let extra = comm.dup()?;
        assert_eq!(world.finalize()?.communicators, 1);
        drop((comm, extra));
        Ok(())
    });
    jobs(&[2], |world| {
        drop(world.comm().dup()?);
        assert_eq!(world.finalize()?.communicators, 0);
        Ok(())
    });
}

/// MPI-4 section 11.2.4: when the world goes, the attributes of the communicator of one rank alone
/// go too, even if a handle of it is left, in the reverse of the order in which they were set.
#[test]
fn the_rank_alone_says_farewell_first() {
    for finalize in [true, false] {
        jobs(&[1, 3], |world| {
            let rank = world.rank();
            let own = world.own()?;
            assert!(world.own()?.same_as(&own));
            assert_eq!((own.rank(), own.size()), (0, 1));
            own.send_one(&rank, 0, 5)?;
            assert_eq!(own.recv_one::<u32>(0, 5)?.0, rank);
            assert_eq!(own.allgather_one(rank)?, [rank]);
            let said = Arc::new(Mutex::new(Vec::new()));
            for n in [1, 2, 3] {
                let said = Arc::clone(&said);
                let key = Key::<u32>::new().on_delete(move |n| said.lock().unwrap().push(*n));
                own.set_attribute(&key, n);
            }
            assert_eq!(*said.lock().unwrap(), []);
            if finalize {
                assert_eq!(world.finalize()?.communicators, 1, "a handle is left");
            } else {
                drop(world);
            }
            assert_eq!(*said.lock().unwrap(), [3, 2, 1]);
            drop(own);
            Ok(())
        });
    }
}

#[test]
fn a_rank_that_gives_up_after_an_error_does_not_wait_and_is_not_waited_for() {
    let results = portolan::threads(2, |world| {
        let comm = world.comm();
        if comm.rank() == 0 {
            comm.send(&[0u8], 5, 0)
        } else {
            comm.recv_one::<u8>(0, 0).map(drop)
        }
    })
    .unwrap();
    assert_eq!(
        results[0].as_ref().unwrap_err().kind(),
        ErrorKind::InvalidRank
    );
    let error = results[1].as_ref().unwrap_err();
    assert_eq!(
        (error.kind(), error.peer()),
        (ErrorKind::PeerFailed, Some(0))
    );
    assert!(error.to_string().contains("left after an error"), "{error}");
}

/// A rank that has dealt with an error and says so loses none of the operations that it had
/// started.
#[test]
fn a_rank_that_deals_with_an_error_and_says_so_is_waited_for() {
    let body = |world: &World| -> portolan::Result<()> {
        let comm = world.comm();
        if comm.rank() == 1 {
            comm.send(&[1u8, 2], 0, 0)?;
            assert_eq!(comm.recv::<u8>(0, 1)?.0.len(), 1 << 20);
            return Ok(());
        }
        let error = comm.recv_into(&mut [0u8; 1], 1, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated);
        drop(comm.isend_owned(vec![0u8; 1 << 20], 1, 1)?);
        Ok(())
    };
    portolan::try_threads(2, |world| body(&world)).unwrap();
    let ends = portolan::threads(2, |world| {
        body(&world).unwrap();
        world.finalize().map(drop)
    });
    assert_eq!(ends.unwrap().into_iter().filter(Result::is_ok).count(), 2);
}

#[test]
fn one_thread_steps_several_ranks() {
    let worlds = in_process(5).unwrap();
    let comms: Vec<_> = worlds.iter().map(portolan::World::comm).collect();
    let mut incoming = Vec::new();
    for comm in &comms {
        incoming.push(
            comm.irecv_owned(vec![0u32; 1], Source::Any, Tags::Any)
                .unwrap(),
        );
    }
    for comm in &comms {
        let right = (comm.rank() + 1) % comm.size();
        comm.isend_owned(vec![comm.rank()], right, 0)
            .unwrap()
            .wait()
            .unwrap();
    }
    // One wait over requests of several ranks.
    let mut seen = 0;
    while let Some((_, outcome)) = portolan::wait_any(&mut incoming).unwrap() {
        let done = outcome.unwrap();
        assert_eq!(done.buf[0], done.status.source);
        seen |= 1 << done.buf[0];
    }
    assert_eq!(seen, 0b11111);
}

/// The rank's memory is gone with it: no rank reads the rest of a message that it had given up, and
/// no rank waits for it.
#[test]
fn what_a_rank_that_left_still_had_to_send_is_an_error() {
    for transport in common::transports() {
        let worlds = Builder::new().transport(transport).in_process(2).unwrap();
        let [zero, one] = worlds.try_into().unwrap();
        let comm = zero.comm();
        drop(comm.isend_owned(vec![7_u8; 1 << 20], 1, 0).unwrap());
        drop((comm, zero));
        let error = one.comm().recv::<u8>(0, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerFailed, "{transport}: {error}");
        assert!(
            error.to_string().contains("left the job"),
            "{transport}: {error}"
        );
    }
}

/// A rank that copies from its memory either has copied the data that was there, or gets an error.
#[test]
fn a_rank_that_fails_takes_its_memory_when_nobody_reads_it() {
    for transport in common::transports() {
        for round in 0..16 {
            let outcome = Builder::new().transport(transport).try_threads(2, |world| {
                let comm = world.comm();
                if comm.rank() == 0 {
                    drop(comm.isend_owned(vec![7_u8; 16 << 20], 1, 0)?);
                    for _ in 0..round * 50 {
                        std::thread::yield_now();
                    }
                    return comm.send(&[0_u8], 99, 0);
                }
                match comm.recv::<u8>(0, 0) {
                    Ok((data, _)) => assert!(data.iter().all(|&byte| byte == 7)),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}"),
                }
                Ok(())
            });
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidRank);
        }
    }
}

/// The last thing that it tells the others is not that it has received what waits for it.
#[test]
fn a_rank_that_leaves_after_an_error_has_not_received_what_waits() {
    for transport in common::transports() {
        let worlds = Builder::new().transport(transport).in_process(2).unwrap();
        let [zero, one] = worlds.try_into().unwrap();
        let send = zero.comm().issend_owned(vec![7_u8; 8], 1, 0).unwrap();
        let comm = one.comm();
        while comm.iprobe(0, 0).unwrap().is_none() {}
        let error = comm.send(&[0_u8], 99, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRank);
        drop((comm, one));
        let failed = send.wait().unwrap_err();
        assert_eq!(failed.error.kind(), ErrorKind::PeerFailed, "{transport}");
    }
}

/// They end whether or not the messages found room first.
#[test]
fn sends_to_a_rank_that_left_end() {
    for transport in common::transports() {
        for sends in [1, 2] {
            let worlds = Builder::new().transport(transport).in_process(2).unwrap();
            let [zero, one] = worlds.try_into().unwrap();
            let comm = one.comm();
            drop(zero);
            let sends: Vec<_> = (0..sends)
                .map(|tag| comm.isend_owned(vec![7_u8; 1 << 20], 0, tag).unwrap())
                .collect();
            for send in sends {
                let failed = send.wait().unwrap_err();
                assert_eq!(failed.error.kind(), ErrorKind::PeerFailed, "{transport}");
                assert_eq!(failed.buf.len(), 1 << 20);
                let text = failed.error.to_string();
                assert!(text.contains("world rank 0 has left the job"), "{text}");
            }
            let error = comm.send(&[7_u8; 1 << 20], 0, 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PeerFailed, "{transport}: {error}");
        }
    }
}

/// What it had sent is received; no rank waits for what it has not sent.
#[test]
fn receives_from_a_rank_that_left_end() {
    for transport in common::transports() {
        let worlds = Builder::new().transport(transport).in_process(3).unwrap();
        let [zero, one, two] = worlds.try_into().unwrap();
        zero.comm().send(&[7_u8; 100], 1, 0).unwrap();
        drop(zero);
        let comm = one.comm();
        let any = comm.irecv_owned(vec![0_u8; 8], Source::Any, 9).unwrap();
        assert_eq!(comm.recv::<u8>(0, 0).unwrap().0, [7; 100]);
        let error = comm.recv::<u8>(0, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerFailed, "{transport}: {error}");
        let text = error.to_string();
        let remedy = "receive, or send, all messages before a rank finalizes";
        assert!(text.contains("world rank 0 has left the job"), "{text}");
        assert!(text.contains(remedy), "{text}");
        // The other ranks still exist.
        two.comm().send(&[1_u8; 8], 1, 9).unwrap();
        assert_eq!(any.wait().unwrap().buf, [1; 8], "{transport}");
    }
}

/// At once, before any call of another rank has failed because of it.
#[test]
fn a_dead_rank_is_among_the_failed_members() {
    for transport in common::transports() {
        let worlds = Builder::new().transport(transport).in_process(3).unwrap();
        let [zero, one, two] = worlds.try_into().unwrap();
        let comms = [one.comm(), two.comm()];
        assert!(comms.iter().all(|comm| comm.failed().is_empty()));
        // A rank that ends after an error has failed.
        zero.comm().send(&[0_u8], 99, 0).unwrap_err();
        drop(zero);
        for comm in &comms {
            let dead = comm.group().include(&[0]).unwrap();
            assert_eq!(comm.failed(), dead, "{transport}, rank {}", comm.rank());
            let living = comm.group().difference(&comm.failed());
            assert_eq!(living.size(), 2, "{transport}");
        }
    }
}

/// Ranks have other numbers in another communicator, and not all are members.
#[test]
fn the_failed_members_are_those_of_the_communicator() {
    for transport in common::transports() {
        let job = Builder::new().transport(transport).threads(4, |world| {
            let (comm, me) = (world.comm(), world.rank());
            let reversed = comm.split(0, -i64::from(me))?.expect("a member");
            let apart = comm.split(u32::from(me == 2), 0)?.expect("a member");
            comm.barrier()?;
            if me == 2 {
                return comm.send(&[0_u8], 99, 0);
            }
            let error = reversed.recv_one::<u8>(1, 0).unwrap_err();
            assert_eq!(error.peer(), Some(2), "{error}");
            assert_eq!(reversed.failed(), reversed.group().include(&[1])?);
            assert_eq!(comm.failed(), reversed.failed());
            assert!(apart.failed().is_empty());
            Ok(())
        });
        let outcomes = job.unwrap();
        let failed = outcomes.iter().position(Result::is_err);
        assert_eq!(failed, Some(2), "{transport}: {outcomes:?}");
    }
}

/// As long as nothing is wanted of it, all is well.
#[test]
fn who_has_left_has_failed_whom_it_owes_something() {
    for transport in common::transports() {
        let worlds = Builder::new().transport(transport).in_process(2).unwrap();
        let [zero, one] = worlds.try_into().unwrap();
        let comm = one.comm();
        drop(zero);
        assert!(comm.failed().is_empty(), "{transport}");
        comm.recv_one::<u8>(0, 0).unwrap_err();
        let left = comm.group().include(&[0]).unwrap();
        assert_eq!(comm.failed(), left, "{transport}");
    }
}

#[test]
fn worlds_live_side_by_side() {
    jobs(&[2], |outer| {
        let inner = portolan::try_threads(3, |inner| {
            let comm = inner.comm();
            comm.allreduce_one(comm.rank(), &Op::SUM)
        })?;
        assert_eq!(inner, [3, 3, 3]);
        outer.comm().barrier()
    });
}

#[test]
fn duplicates_keep_their_messages_apart() {
    jobs(&SIZES, |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        let other = comm.dup()?;
        assert!(!other.same_as(&comm) && other.same_as(&other.clone()));
        let (left, right) = ((me + n - 1) % n, (me + 1) % n);
        comm.bsend(&[1u8], right, 0)?;
        other.bsend(&[2u8], right, 0)?;
        assert_eq!(other.recv::<u8>(left, 0)?.0, [2]);
        assert_eq!(comm.recv::<u8>(Source::Any, Tags::Any)?.0, [1]);
        // Ids are reused: many more communicators than there are ids, over time.
        for _ in 0..50 {
            let third = other.dup()?;
            third.barrier()?;
        }
        Ok(())
    });
}

#[test]
fn names_error_modes_and_attributes_are_kept_and_inherited() {
    jobs(&[2], |world| {
        let comm = world.comm();
        assert_eq!(comm.name(), "world");
        comm.set_name("mine");
        comm.set_errors(Errors::Return);
        let inherited = Key::<u32>::new().on_copy(|n| Some(n + 1));
        let private = Key::<u32>::new();
        comm.set_attribute(&inherited, 1);
        comm.set_attribute(&private, 2);
        let other = comm.dup()?;
        assert_eq!(other.errors(), Errors::Return);
        assert_eq!(other.attribute(&inherited).as_deref(), Some(&2));
        assert!(other.attribute(&private).is_none());
        assert!(comm.delete_attribute(&private) && !comm.delete_attribute(&private));
        assert_eq!(world.comm().name(), "mine");
        Ok(())
    });
}

#[test]
fn threads_of_one_rank_share_a_communicator() {
    jobs_with(Builder::new().multiple(), &[2, 3], |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        let (left, right) = ((me + n - 1) % n, (me + 1) % n);
        std::thread::scope(|threads| {
            let comm = &comm;
            let running: Vec<_> = (0..4u32)
                .map(|tag| {
                    threads.spawn(move || -> portolan::Result<()> {
                        for step in 0..200u32 {
                            let mut got = [0];
                            comm.sendrecv(&[me + step], right, tag, &mut got, left, tag)?;
                            assert_eq!(got, [left + step]);
                        }
                        Ok(())
                    })
                })
                .collect();
            running
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap())
        })
    });
}

/// One thread's synchronous send to its own rank waits for another thread's receive.
#[test]
fn threads_of_one_rank_send_to_each_other() {
    jobs_with(Builder::new().multiple(), &[1, 2], |world| {
        let comm = world.comm();
        let me = comm.rank();
        std::thread::scope(|threads| {
            let sender = threads.spawn(|| comm.ssend(&[me, 7], me, 5));
            // The message is there before its receive is.
            comm.probe(me, 5)?;
            assert!(!sender.is_finished(), "no receive has matched it");
            assert_eq!(comm.recv::<u32>(me, 5)?.0, [me, 7]);
            sender.join().unwrap()
        })
    });
}

/// Creations from different parents at once agree on different ids and never wait for each other.
#[test]
fn threads_make_communicators_at_the_same_time() {
    jobs_with(Builder::new().multiple(), &[2, 3], |world| {
        let comm = world.comm();
        let parents = [comm.dup()?, comm.dup()?, comm.dup()?];
        let made = Mutex::new(Vec::new());
        std::thread::scope(|threads| {
            let running: Vec<_> = parents
                .iter()
                .map(|parent| {
                    threads.spawn(|| -> portolan::Result<()> {
                        for _ in 0..10 {
                            let child = parent.dup()?;
                            child.barrier()?;
                            made.lock().unwrap().push(child);
                        }
                        Ok(())
                    })
                })
                .collect();
            running
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap())
        })?;
        assert_eq!(made.into_inner().unwrap().len(), 30);
        Ok(())
    });
}

#[test]
fn collectives_agree_at_every_size() {
    jobs(&SIZES, |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        for root in 0..n {
            for length in [0usize, 1, 5, 60_000] {
                let mut data = vec![if me == root { 1.5 } else { 0.0 }; length];
                comm.bcast(&mut data, root)?;
                assert!(data.iter().all(|&x| x == 1.5));
            }
            let mut flags = [me == root, me != root];
            comm.bcast(&mut flags, root)?;
            assert_eq!(flags, [true, false]);
            let all = comm.gather_vecs(&vec![me; me as usize], root)?;
            assert_eq!(all.is_some(), me == root);
            for (rank, values) in (0..n).zip(all.unwrap_or_default()) {
                assert_eq!(values, vec![rank; rank as usize]);
            }
        }
        let mut sum = [u64::from(me), 1];
        comm.allreduce_in_place(&mut sum, &Op::SUM)?;
        assert_eq!(sum, [u64::from(n * (n - 1) / 2), u64::from(n)]);
        // Associative and not commutative: keeps the left operand's first digit and the right
        // operand's last.
        let ends = Op::new(false, |a: (u32, u32), b: (u32, u32)| (a.0, b.1));
        assert_eq!(comm.allreduce_one((me, me), &ends)?, (0, n - 1));
        // An operator is lent or given away, in either form of the call.
        let mut both = [(me, me)];
        comm.run(Allreduce::in_place(&mut both, &ends))?;
        assert_eq!(both, [(0, n - 1)]);
        assert_eq!(comm.allreduce_one((me, me), ends)?, (0, n - 1));
        comm.barrier()
    });
}

#[test]
fn lengths_that_differ_in_a_collective_are_noticed() {
    let error = portolan::try_threads(2, |world| {
        let comm = world.comm();
        comm.bcast(&mut vec![0u8; 2 + comm.rank() as usize], 0)
    })
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");
}
