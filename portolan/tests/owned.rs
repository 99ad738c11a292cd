//! Requests that own their buffer, persistent requests and buffered sends.

mod common;

use std::future::IntoFuture;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use common::{SIZES, jobs};
use portolan::coll::Allreduce;
use portolan::{ErrorKind, Errors, Op, Source, Tags, in_process, wait_any_of};

#[test]
fn buffers_come_back_with_the_status() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let other = 1 - comm.rank();
        let mut data = Vec::with_capacity(100);
        data.extend([1u32, 2, 3]);
        let at = data.as_ptr();
        let boxed: Box<[u32]> = vec![0; 5].into();
        let incoming = comm.irecv_owned(boxed, other, 0)?;
        let outgoing = comm.isend_owned(data, other, 0)?;
        let done = incoming.wait()?;
        assert_eq!(
            (&*done.buf, done.status.count::<u32>()),
            (&[1, 2, 3, 0, 0][..], Some(3))
        );
        let data = outgoing.wait()?.buf;
        assert_eq!((data.as_ptr(), data.capacity()), (at, 100));

        let shared: Arc<[u32]> = vec![9; 50_000].into();
        let forever: &'static [u32] = &[4, 5];
        let sends = (
            comm.isend_owned(Arc::clone(&shared), other, 1)?,
            comm.isend_owned(forever, other, 2)?,
        );
        assert_eq!(comm.recv::<u32>(other, 2)?.0, [4, 5]);
        assert_eq!(comm.recv::<u32>(other, 1)?.0, *shared);
        assert!(Arc::ptr_eq(&sends.0.wait()?.buf, &shared));
        sends.1.wait()?;
        Ok(())
    });
}

/// COR-03: an error gives the buffer back, too.
#[test]
fn buffers_come_back_on_errors() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let other = 1 - comm.rank();
        let failed = comm.isend_owned(vec![1u8, 2], 2, 0).unwrap_err();
        assert_eq!(
            (failed.error.kind(), failed.buf),
            (ErrorKind::InvalidRank, vec![1, 2])
        );
        let failed = comm.irecv_owned(vec![1u8, 2], 0, u32::MAX).unwrap_err();
        assert_eq!(
            (failed.error.kind(), failed.buf),
            (ErrorKind::InvalidTag, vec![1, 2])
        );

        let incoming = comm.irecv_owned(vec![0u8; 2], other, 0)?;
        comm.send(&[1u8, 2, 3], other, 0)?;
        let failed = incoming.wait().unwrap_err();
        assert_eq!(
            (failed.error.kind(), failed.buf),
            (ErrorKind::Truncated, vec![1, 2])
        );
        Ok(())
    });
}

/// SND-04: dropping a request in any state leaves no writer behind.
#[test]
fn requests_may_be_dropped_in_every_state() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let other = 1 - comm.rank();
        // A receive that no message matches: once dropped, it takes no message.
        drop(comm.irecv_owned(vec![0u8; 10], other, 0)?);
        // Dropped sends still deliver: a short one, a long one, and one that no receive has matched
        // yet.
        drop(comm.isend_owned(vec![1u8; 10], other, 0)?);
        drop(comm.isend_owned(vec![2u8; 1 << 20], other, 0)?);
        let shared: Arc<[u8]> = vec![3; 1 << 20].into();
        drop(comm.isend_owned(Arc::clone(&shared), other, 0)?);
        assert_eq!(comm.recv::<u8>(other, 0)?.0, [1; 10]);
        assert_eq!(comm.recv::<u8>(other, 0)?.0, vec![2; 1 << 20]);
        assert_eq!(comm.recv::<u8>(other, 0)?.0, vec![3; 1 << 20]);
        // A complete receive whose result is never read.
        let incoming = comm.irecv_owned(vec![0u8; 1], other, 1)?;
        comm.send(&[1u8], other, 1)?;
        while !incoming.is_complete() {}
        drop(incoming);
        Ok(())
    });
}

#[test]
fn a_dropped_send_keeps_its_buffer_until_it_is_over() {
    let worlds = in_process(2).unwrap();
    let (zero, one) = (worlds[0].comm(), worlds[1].comm());
    let shared: Arc<[u8]> = vec![3; 1 << 20].into();
    drop(zero.isend_owned(Arc::clone(&shared), 1, 0).unwrap());
    assert_eq!(Arc::strong_count(&shared), 2, "the runtime keeps it");
    let incoming = one.irecv_owned(vec![0u8; 1 << 20], 0, 0).unwrap();
    while !incoming.is_complete() {
        assert!(zero.iprobe(1, 9).unwrap().is_none());
    }
    assert_eq!(incoming.wait().unwrap().buf, *shared);
    while Arc::strong_count(&shared) > 1 {
        assert!(one.iprobe(0, 9).unwrap().is_none() && zero.iprobe(1, 9).unwrap().is_none());
    }
}

#[test]
fn forgotten_requests_leak_and_do_no_harm() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let other = 1 - comm.rank();
        for _ in 0..50 {
            std::mem::forget(comm.irecv_owned(vec![0u8; 10], other, 0)?);
            std::mem::forget(comm.isend_owned(vec![1u8; 10], other, 0)?);
        }
        comm.barrier()
    });
}

#[test]
fn wait_any_and_wait_some_lose_nothing() {
    jobs(&[3], |world| {
        let comm = world.comm();
        if comm.rank() != 0 {
            comm.send(&[comm.rank(); 3], 0, 0)?;
            comm.barrier()?;
            return comm.send(&[comm.rank(); 2], 0, 1);
        }
        // Two that complete with an error, two that complete well, later.
        let mut requests = Vec::new();
        for tag in 0..2u32 {
            for source in 1..3u32 {
                requests.push(comm.irecv_owned(vec![0u32; 2], source, tag)?);
            }
        }
        let mut first = Vec::new();
        while first.len() < 2 {
            let (_, outcome) = portolan::wait_any(&mut requests)?.expect("there are requests");
            let failed = outcome.unwrap_err();
            assert_eq!(failed.error.kind(), ErrorKind::Truncated);
            first.push(failed.buf[0]);
        }
        first.sort_unstable();
        assert_eq!(first, [1, 2]);
        comm.barrier()?;
        let mut second = Vec::new();
        while second.len() < 2 {
            for (_, outcome) in portolan::wait_some(&mut requests)? {
                let done = outcome?;
                assert_eq!(done.buf, [done.status.source; 2]);
                second.push(done.status.source);
            }
        }
        assert!(requests.is_empty());
        assert!(portolan::wait_any(&mut requests)?.is_none());
        assert!(portolan::wait_some(&mut requests)?.is_empty());
        Ok(())
    });
}

#[test]
fn requests_of_different_types_are_waited_for_together() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let mut sum = comm.persistent(Allreduce::new(vec![2], vec![0], Op::SUM))?;
        if comm.rank() == 1 {
            // One after the other, each when the previous one has been noticed.
            for tag in 0..5u32 {
                match tag {
                    0 => comm.send(&[1.5], 0, tag)?,
                    1 => assert_eq!(comm.recv::<u8>(0, tag)?.0.len(), 1 << 20),
                    2 => {
                        sum.start()?;
                        sum.wait()?;
                    }
                    3 => comm.send(&[7u64], 0, tag)?,
                    _ => comm.send(b"end", 0, tag)?,
                }
                comm.recv_one::<u32>(0, 9)?;
            }
            return comm.idup()?.wait().map(drop);
        }
        let mut text = [0u8; 3];
        comm.scope(|s| {
            let mut values = Some(comm.irecv_owned(vec![0.0], 1, 0)?);
            let mut long = Some(comm.issend_owned(vec![1u8; 1 << 20], 1, 1)?);
            let mut again = comm.recv_init(vec![0u64], 1, 3)?;
            let mut text = Some(s.recv(&mut text, 1, 4)?);
            sum.start()?;
            again.start()?;
            let mut order = Vec::new();
            while let Some(index) = wait_any_of(&[&text, &again, &sum, &long, &values])? {
                order.push(index);
                match index {
                    0 => assert_eq!(text.take().expect("it was there").wait()?.0, b"end"),
                    1 => assert_eq!(again.wait()?.source, 1),
                    2 => sum.wait()?,
                    3 => drop(long.take().expect("it was there").wait()?),
                    _ => drop(values.take().expect("it was there").wait()?),
                }
                comm.send_one(&0u32, 1, 9)?;
            }
            assert_eq!(order, [4, 3, 2, 1, 0]);
            assert_eq!((again.buf()?, sum.buffers()?.1), (&[7][..], &[4][..]));
            Ok(())
        })?;
        let duplicate = comm.idup()?;
        assert_eq!(wait_any_of(&[&duplicate])?, Some(0));
        assert_eq!(wait_any_of(&[])?, None);
        duplicate.wait().map(drop)
    });
}

#[test]
fn requests_are_futures() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let other = 1 - comm.rank();
        let incoming = comm.irecv_owned(vec![0u8; 100_000], other, 0)?;
        let outgoing = comm.isend_owned(vec![5u8; 100_000], other, 0)?;
        let both = async {
            let sent = outgoing.await?;
            let got = incoming.into_future().await?;
            Ok::<_, portolan::Error>((sent, got))
        };
        let mut both = pin!(both);
        let mut cx = Context::from_waker(Waker::noop());
        let (sent, got) = loop {
            if let Poll::Ready(done) = both.as_mut().poll(&mut cx) {
                break done?;
            }
        };
        assert_eq!(sent.buf, got.buf);
        Ok(())
    });
}

#[test]
fn a_cancelled_receive_gives_its_buffer_back_untouched() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let incoming = comm.irecv_owned(vec![7u8; 3], Source::Any, Tags::Any)?;
        incoming.cancel()?;
        let done = incoming.wait()?;
        assert!(done.status.cancelled);
        assert_eq!(done.buf, [7; 3]);
        comm.barrier()
    });
}

/// SND-02: persistent operations own their buffer, which cannot move or be freed under them.
#[test]
fn persistent_requests_guard_their_buffer() {
    jobs(&SIZES, |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        let (left, right) = ((me + n - 1) % n, (me + 1) % n);
        for length in [1usize, 40_000] {
            let mut incoming = comm.recv_init(vec![0u32; length], Source::Any, 3)?;
            let mut outgoing = comm.send_init(vec![0u32; length], right, 3)?;
            for step in 0..20 {
                outgoing.buf_mut()?.fill(100 * me + step);
                incoming.start()?;
                assert_eq!(
                    incoming.buf().unwrap_err().kind(),
                    ErrorKind::InvalidRequest
                );
                assert_eq!(
                    incoming.start().unwrap_err().kind(),
                    ErrorKind::InvalidRequest
                );
                outgoing.start()?;
                let status = loop {
                    if let Some(status) = incoming.test()? {
                        break status;
                    }
                };
                assert_eq!(status.source, left);
                assert_eq!(incoming.buf()?[length - 1], 100 * left + step);
                outgoing.wait()?;
                comm.barrier()?;
            }
            assert_eq!(
                incoming.wait()?,
                portolan::Status::EMPTY,
                "it is not active"
            );
            // Dropped while active, it is cancelled.
            incoming.start()?;
            assert_eq!(outgoing.into_buf()?.len(), length);
            drop(incoming);
            comm.barrier()?;
        }
        Ok(())
    });
}

#[test]
fn buffered_sends_do_not_wait_for_anybody() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let other = 1 - comm.rank();
        // Far more than a transport takes at once, and no rank receives yet.
        let messages = 200;
        for index in 0..messages {
            comm.bsend(&vec![index as u16; 10_000], other, 0)?;
        }
        let odd = vec![(1u8, 2.0f64); 5000];
        comm.bsend(&odd, other, 1)?;
        for index in 0..messages {
            assert_eq!(comm.recv::<u16>(other, 0)?.0, vec![index as u16; 10_000]);
        }
        assert_eq!(comm.recv::<(u8, f64)>(other, 1)?.0, odd);
        comm.flush_buffer()
    });
}

#[test]
fn buffered_sends_respect_the_attached_buffer() {
    let worlds = in_process(2).unwrap();
    let (zero, one) = (worlds[0].comm(), worlds[1].comm());
    zero.attach_buffer(3 << 20).unwrap();
    assert_eq!(
        zero.attach_buffer(1).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    let message = vec![1u8; 1 << 20];
    for _ in 0..3 {
        zero.bsend(&message, 1, 0).unwrap();
    }
    let error = zero.bsend(&message, 1, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    assert!(
        error
            .to_string()
            .contains("no room to buffer 1048576 bytes for rank 1: 3145728 of 3145728 are in use"),
        "{error}"
    );
    let incoming = one.irecv_owned(vec![0u8; 1 << 20], 0, 0).unwrap();
    while !incoming.is_complete() {
        assert!(zero.iprobe(1, 9).unwrap().is_none());
    }
    // There is room again as soon as the sender learns of the receipt.
    while zero.bsend(&message, 1, 0).is_err() {
        assert!(one.iprobe(0, 9).unwrap().is_none());
    }
    for _ in 0..3 {
        let incoming = one.irecv_owned(vec![0u8; 1 << 20], 0, 0).unwrap();
        while !incoming.is_complete() {
            assert!(zero.iprobe(1, 9).unwrap().is_none());
        }
    }
    // The receiver's acknowledgements may wait for room, and only this thread can step the
    // receiver.
    for _ in 0..100 {
        assert!(one.iprobe(0, 9).unwrap().is_none() && zero.iprobe(1, 9).unwrap().is_none());
    }
    assert_eq!(zero.detach_buffer().unwrap(), 3 << 20);
    assert_eq!(zero.detach_buffer().unwrap(), 0);
}

#[test]
fn a_lost_buffered_send_is_told_at_the_flush() {
    let mut worlds = in_process(2).unwrap();
    let one = worlds.pop().unwrap();
    let zero = worlds[0].comm();
    zero.attach_buffer(3 << 20).unwrap();
    for _ in 0..2 {
        zero.bsend(&vec![1u8; 1 << 20], 1, 0).unwrap();
    }
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _one = one;
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    let error = zero.detach_buffer().unwrap_err();
    assert_eq!(
        (error.kind(), error.peer()),
        (ErrorKind::PeerFailed, Some(1))
    );
    let text = error.to_string();
    let lost = "a buffered message of 1048576 bytes to rank 1 was lost: world rank 1 has failed: ";
    assert!(text.contains(lost), "{text}");
    // The error is returned once, and the buffer is detached.
    zero.flush_buffer().unwrap();
    zero.attach_buffer(1).unwrap();
    assert_eq!(zero.detach_buffer().unwrap(), 1);
}

/// It is chance which call finds that a message is lost. The communicator that the message was sent
/// on decides how the error is handled.
#[test]
fn a_lost_buffered_send_is_judged_by_the_communicator_that_it_was_sent_on() {
    let mut worlds = in_process(2).unwrap();
    let one = worlds.pop().unwrap();
    let (zero, own) = (worlds[0].comm(), worlds[0].own().unwrap());
    own.set_errors(Errors::Abort);
    zero.bsend(&vec![1u8; 1 << 20], 1, 0).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _one = one;
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    // In that communicator's error mode the job would end, and this process with it.
    let error = own.flush_buffer().unwrap_err();
    assert_eq!(
        (error.kind(), error.peer()),
        (ErrorKind::PeerFailed, Some(1))
    );
}
