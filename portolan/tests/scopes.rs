//! Scopes: borrowed buffers stay safe, whatever the program does with its handles.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use common::{SIZES, jobs, value};
use portolan::coll::{Allreduce, Barrier};
use portolan::{Builder, Error, ErrorKind, Op, Source, Tags};

#[test]
fn everything_started_in_a_scope_is_over_when_it_ends() {
    jobs(&SIZES, |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        // More requests than the inline registry has room for, some of them long.
        for length in [1, 1000, 50_000] {
            let data: Vec<u64> = (0..length).map(|i| value(me, i)).collect();
            let mut got = vec![vec![0u64; length]; 10 * n as usize];
            comm.scope(|s| {
                for (index, buf) in got.iter_mut().enumerate() {
                    s.recv(buf, index as u32 % n, index as u32 / n)?;
                }
                for tag in 0..10 {
                    for peer in 0..n {
                        s.send(&data, peer, tag)?;
                    }
                }
                Ok(())
            })?;
            for (index, buf) in got.iter().enumerate() {
                assert!((0..length).all(|i| buf[i] == value(index as u32 % n, i)));
            }
        }
        Ok(())
    });
}

/// SND-01: forgetting a request does not end the borrow of its buffer.
#[test]
#[expect(
    clippy::forget_non_drop,
    reason = "what a program may do, and what may gain a Drop"
)]
fn forgotten_requests_are_completed_by_the_scope() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let other = 1 - comm.rank();
        let data = [comm.rank(); 64];
        for _ in 0..100 {
            let mut got = [u32::MAX; 64];
            comm.scope(|s| {
                std::mem::forget(s.recv(&mut got, other, 0)?);
                std::mem::forget(s.send(&data, other, 0)?);
                Ok(())
            })?;
            assert_eq!(got, [other; 64]);
        }
        Ok(())
    });
}

#[test]
fn waiting_gives_the_buffer_back_inside_the_scope() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let other = 1 - comm.rank();
        let mut buf = [comm.rank(); 8];
        comm.scope(|s| {
            comm.send(&[7u32; 8], other, 0)?;
            let incoming = s.recv(&mut buf, other, 0)?;
            let (buf, status) = incoming.wait()?;
            assert_eq!((buf[7], status.bytes), (7, 32));
            buf[0] = 100;
            comm.send(&buf[..1], other, 1)?;
            let (buf, _) = s.recv(buf, other, 1)?.wait()?;
            assert_eq!(buf[..2], [100, 7]);
            Ok(())
        })
    });
}

/// rsmpi b and j: a panic neither ends a borrow early nor waits for a peer that never comes.
#[test]
fn a_panic_in_a_scope_takes_its_receives_back() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let other = 1 - comm.rank();
        let mut buf = [1u8; 16];
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            comm.scope(|s| -> portolan::Result<()> {
                s.recv(&mut buf, other, 0)?;
                panic!("on purpose");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(buf, [1; 16]);
        // The cancelled receive does not take this message.
        comm.send(&[2u8; 16], other, 0)?;
        assert_eq!(comm.recv::<u8>(other, 0)?.0, [2; 16]);
        assert_eq!(buf, [1; 16]);
        Ok(())
    });
}

#[test]
fn a_panic_in_a_scope_takes_long_sends_back() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let other = 1 - comm.rank();
        let big = vec![1u8; 1 << 20];
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            comm.scope(|s| -> portolan::Result<()> {
                s.send(&big, other, 0)?;
                panic!("on purpose");
            })
        }));
        assert!(panicked.is_err());
        drop(big);
        // No rank receives before both have cancelled their sends.
        comm.barrier()?;
        comm.send(&[3u8], other, 0)?;
        assert_eq!(comm.recv_one::<u8>(other, 0)?.0, 3);
        Ok(())
    });
}

/// A collective operation cannot be cancelled, and the other ranks may wait for something that was
/// to follow it.
#[test]
fn a_panic_in_a_scope_with_a_collective_operation_is_heard_by_all() {
    for transport in common::transports() {
        let job = Builder::new().transport(transport).threads(3, |world| {
            let comm = world.comm();
            if comm.rank() == 1 {
                let panicked = catch_unwind(AssertUnwindSafe(|| {
                    comm.scope(|s| -> portolan::Result<()> {
                        s.start(Barrier::new())?;
                        panic!("on purpose");
                    })
                }));
                assert!(panicked.is_err());
                assert_eq!(comm.barrier().unwrap_err().kind(), ErrorKind::PeerFailed);
            } else {
                // After the barrier, for rank 1.
                let error = comm.recv_one::<u8>(1, 0).unwrap_err();
                assert_eq!(
                    (error.kind(), error.peer()),
                    (ErrorKind::PeerFailed, Some(1)),
                    "{error}"
                );
            }
        });
        job.expect(transport);
    }
}

#[test]
fn an_error_in_a_scope_lets_collective_operations_go_their_way() {
    jobs(&[1, 2, 3], |world| {
        let comm = world.comm();
        let (mine, mut sum) = ([comm.rank() + 1], [0]);
        let outcome = comm.scope(|s| -> portolan::Result<()> {
            s.start(Allreduce::new(&mine, &mut sum, Op::SUM))?;
            Err(Error::new(ErrorKind::Exhausted, "on purpose"))
        });
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Exhausted);
        assert_eq!(sum, [comm.size() * (comm.size() + 1) / 2]);
        Ok(())
    });
}

#[test]
fn an_error_in_a_scope_takes_back_what_was_started() {
    jobs(&[1, 3], |world| {
        let comm = world.comm();
        let mut buf = [1u8; 4];
        let error = comm
            .scope(|s| {
                s.recv(&mut buf, Source::Any, Tags::Any)?;
                s.send(&[1u8], comm.size(), 0).map(drop)
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRank);
        assert_eq!(buf, [1; 4]);
        comm.barrier()
    });
}

/// Within `Ok` it would count as an orderly end, and the scope would wait for the message.
#[test]
fn an_error_of_the_programs_own_takes_back_what_was_started() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let other = 1 - comm.rank();
        let mut buf = [9u8; 10];
        let outcome = comm.try_scope(|s| -> Result<(), Box<dyn std::error::Error>> {
            s.recv(&mut buf, other, 99)?;
            "seven".parse::<u32>()?;
            Ok(())
        });
        assert!(outcome.unwrap_err().is::<std::num::ParseIntError>());
        assert_eq!(buf, [9; 10]);
        // Errors of this crate convert, those of calls in the scope and those of its end.
        let wrong = comm.try_scope(|s| -> Result<(), Box<dyn std::error::Error>> {
            s.send(&[1u8], 7, 0)?;
            Ok(())
        });
        assert!(wrong.unwrap_err().is::<Error>());
        let left = comm.try_scope(|s| -> Result<(), Box<dyn std::error::Error>> {
            s.recv(&mut buf[..1], other, 0)?;
            comm.send(&[1u8, 2], other, 0)?;
            Ok(())
        });
        let left = left
            .unwrap_err()
            .downcast::<Error>()
            .expect("an error of this crate");
        assert_eq!(left.kind(), ErrorKind::Truncated);
        comm.barrier()
    });
}

#[test]
fn errors_of_unfinished_requests_are_those_of_the_scope() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let other = 1 - comm.rank();
        let mut small = [0u8; 2];
        let error = comm
            .scope(|s| {
                s.recv(&mut small, other, 0)?;
                comm.send(&[1u8, 2, 3], other, 0)
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated);
        assert_eq!(small, [1, 2]);
        Ok(())
    });
}

#[test]
fn a_cancelled_receive_says_so() {
    jobs(&[1], |world| {
        let comm = world.comm();
        let mut buf = [5u8; 2];
        comm.scope(|s| {
            let incoming = s.recv(&mut buf, 0, 0)?;
            assert!(!incoming.is_complete());
            incoming.cancel()?;
            let (buf, status) = incoming.wait()?;
            assert!(status.cancelled);
            assert_eq!(buf, [5, 5]);
            Ok(())
        })
    });
}

#[test]
fn scopes_nest() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let other = 1 - comm.rank();
        let (mut outer, mut inner) = ([0u8; 1], [0u8; 1]);
        comm.scope(|s| {
            let incoming = s.recv(&mut outer, other, 1)?;
            comm.scope(|t| {
                t.recv(&mut inner, other, 2)?;
                t.send(&[2u8], other, 2)?;
                t.send(&[1u8], other, 1).map(drop)
            })?;
            assert_eq!(incoming.wait()?.0, [1]);
            Ok(())
        })?;
        assert_eq!(inner, [2]);
        Ok(())
    });
}
