//! Awaiting at level `Multiple`: tasks are suspended, and woken by the completion of their request.

mod common;

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use portolan::coll::Allreduce;
use portolan::{Builder, ErrorKind, Multiple, Op, RecvRequest, RequestFuture, Result, World};

/// No wait of these tests takes as long, unless something is never woken.
const LIMIT: Duration = Duration::from_secs(60);
/// Polls of a request that is awaited: those before it is suspended, one that suspends it, and one
/// that finds it complete.
const POLLS: usize = 66;

/// A task whose waker puts its number into a queue.
struct Numbered {
    number: usize,
    queue: Mutex<Sender<usize>>,
}

impl Wake for Numbered {
    fn wake(self: Arc<Self>) {
        // The executor may be gone.
        let _ = self.queue.lock().unwrap().send(self.number);
    }
}

type Task<'t> = Pin<Box<dyn Future<Output = Result<()>> + 't>>;

/// An executor of one thread: polls a task only when it has been woken.
struct Executor<'t> {
    tasks: Vec<Option<Task<'t>>>,
    wakers: Vec<Waker>,
    woken: Receiver<usize>,
    polls: usize,
}

impl<'t> Executor<'t> {
    fn new(tasks: Vec<Task<'t>>) -> Self {
        let (sender, woken) = channel();
        let waker = |number| {
            let queue = Mutex::new(sender.clone());
            Waker::from(Arc::new(Numbered { number, queue }))
        };
        let wakers = (0..tasks.len()).map(waker).collect();
        for number in 0..tasks.len() {
            sender.send(number).unwrap();
        }
        let tasks = tasks.into_iter().map(Some).collect();
        Self {
            tasks,
            wakers,
            woken,
            polls: 0,
        }
    }

    fn poll(&mut self, number: usize) -> Result<()> {
        let Some(task) = &mut self.tasks[number] else {
            return Ok(());
        };
        self.polls += 1;
        let mut cx = Context::from_waker(&self.wakers[number]);
        match task.as_mut().poll(&mut cx) {
            Poll::Ready(done) => {
                self.tasks[number] = None;
                done
            }
            Poll::Pending => Ok(()),
        }
    }

    /// Polls whatever has been woken already.
    fn poll_woken(&mut self) -> Result<()> {
        while let Ok(number) = self.woken.try_recv() {
            self.poll(number)?;
        }
        Ok(())
    }

    /// Runs all tasks to their ends.
    fn run(&mut self) -> Result<()> {
        while self.tasks.iter().any(Option::is_some) {
            let number = self.woken.recv_timeout(LIMIT).expect("a task is woken");
            self.poll(number)?;
        }
        Ok(())
    }
}

/// Runs `body` as jobs of two ranks, which share a flag, over every transport.
#[track_caller]
fn two(body: impl Fn(World<Multiple>, &AtomicBool) -> Result<()> + Sync) {
    for transport in common::transports() {
        let (flag, job) = (AtomicBool::new(false), Builder::new().multiple());
        let results = job
            .transport(transport)
            .try_threads(2, |world| body(world, &flag));
        results.expect(transport);
    }
}

/// Waits for the other rank, which is a thread of this process, without a message.
fn await_flag(flag: &AtomicBool) {
    while !flag.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
}

#[test]
fn a_task_is_suspended_until_its_message_is_there() {
    two(|world, suspended| {
        let comm = world.comm();
        if comm.rank() == 1 {
            await_flag(suspended);
            return comm.send(&[1.5, 2.5], 0, 7);
        }
        let incoming = comm.irecv_owned(vec![0.0; 2], 1, 7)?;
        let mut executor = Executor::new(vec![Box::pin(async {
            assert_eq!(incoming.await?.buf, [1.5, 2.5]);
            Ok(())
        })]);
        executor.poll_woken()?;
        assert_eq!(executor.polls, POLLS - 1, "nothing wakes it before");
        suspended.store(true, Ordering::Release);
        executor.run()?;
        assert_eq!(executor.polls, POLLS);
        Ok(())
    });
}

#[test]
fn each_task_is_woken_by_its_own_request() {
    const TASKS: usize = 50;
    two(|world, suspended| {
        let comm = world.comm();
        if comm.rank() == 1 {
            await_flag(suspended);
            // In another order than they are awaited in. Each answer shows that its task has run,
            // before the next message is sent.
            for n in 0..TASKS as u32 {
                let tag = n * 7 % TASKS as u32;
                comm.send(&[tag], 0, tag)?;
                assert_eq!(comm.recv_one::<u32>(0, tag)?.0, tag);
            }
            let sum = Allreduce::new(vec![1_u64], vec![0], Op::SUM);
            assert_eq!(comm.start_owned(sum)?.wait()?.buf.1, [2]);
            return Ok(());
        }
        let answer = |tag: u32| {
            let comm = &comm;
            async move {
                let got = comm.irecv_owned(vec![0_u32], 1, tag)?.await?;
                comm.isend_owned(got.buf, 1, tag)?.await.map(drop)?;
                Ok(())
            }
        };
        let sum = async {
            let sum = Allreduce::new(vec![1_u64], vec![0], Op::SUM);
            assert_eq!(comm.start_owned(sum)?.await?.buf.1, [2]);
            Ok(())
        };
        let mut tasks: Vec<Task<'_>> = Vec::new();
        tasks.extend((0..TASKS as u32).map(|tag| Box::pin(answer(tag)) as Task<'_>));
        tasks.push(Box::pin(sum));
        let mut executor = Executor::new(tasks);
        executor.poll_woken()?;
        assert_eq!(executor.polls, (TASKS + 1) * (POLLS - 1));
        suspended.store(true, Ordering::Release);
        executor.run()?;
        // A send of four bytes is complete when it begins, or soon after.
        let most = (TASKS + 1) * POLLS + TASKS * (POLLS - 1);
        assert!(executor.polls <= most, "{} of {most}", executor.polls);
        Ok(())
    });
}

#[test]
fn a_suspended_task_may_be_dropped() {
    two(|world, suspended| {
        let comm = world.comm();
        if comm.rank() == 1 {
            await_flag(suspended);
            return comm.send(&[3_u8], 0, 1);
        }
        let dropped = comm.irecv_owned(vec![0_u8], 1, 1)?;
        let mut executor = Executor::new(vec![Box::pin(async {
            dropped.await?;
            unreachable!("it is never polled again")
        })]);
        executor.poll_woken()?;
        executor.tasks.clear();
        suspended.store(true, Ordering::Release);
        // The receive was cancelled, so that the message is there for another one.
        assert_eq!(comm.recv_one::<u8>(1, 1)?.0, 3);
        assert!(executor.woken.try_recv().is_err(), "nobody waits");
        Ok(())
    });
}

#[test]
fn a_task_follows_its_executor() {
    two(|world, suspended| {
        let comm = world.comm();
        if comm.rank() == 1 {
            await_flag(suspended);
            return comm.send(&[3_u8], 0, 1);
        }
        let incoming = comm.irecv_owned(vec![0_u8], 1, 1)?;
        let mut first = Executor::new(vec![Box::pin(async {
            incoming.await.map(drop).map_err(Into::into)
        })]);
        first.poll_woken()?;
        let mut second = Executor::new(
            std::mem::take(&mut first.tasks)
                .into_iter()
                .flatten()
                .collect(),
        );
        second.poll_woken()?;
        suspended.store(true, Ordering::Release);
        second.run()?;
        assert!(
            first.woken.try_recv().is_err(),
            "only the latest waker counts"
        );
        Ok(())
    });
}

#[test]
fn an_awaited_request_ends_with_its_peer() {
    for transport in common::transports() {
        let (suspended, failed) = (AtomicBool::new(false), AtomicBool::new(false));
        let job = Builder::new().multiple().transport(transport);
        let outcome = job.try_threads(2, |world| {
            let comm = world.comm();
            if comm.rank() == 1 {
                await_flag(&suspended);
                return comm.send(&[0_u8], 9, 0);
            }
            let incoming = comm.irecv_owned(vec![0_u8], 1, 1)?;
            let mut executor = Executor::new(vec![Box::pin(async {
                let error = incoming.await.unwrap_err().error;
                assert_eq!(error.kind(), ErrorKind::PeerFailed);
                failed.store(true, Ordering::Relaxed);
                Ok(())
            })]);
            executor.poll_woken()?;
            suspended.store(true, Ordering::Release);
            executor.run()
        });
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidRank);
        assert!(failed.load(Ordering::Relaxed), "{transport}");
    }
}

type Receiving = RequestFuture<RecvRequest<Vec<u8>, Multiple>>;

/// A task that nothing but its waker keeps.
struct Lonely {
    future: Mutex<Option<Receiving>>,
    /// The test has dropped its handles of the rank.
    alone: Mutex<Receiver<()>>,
    /// Tells the test which thread has dropped the last one.
    gone: Mutex<Sender<String>>,
}

impl Wake for Lonely {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Lonely {
    fn drop(&mut self) {
        self.alone.get_mut().unwrap().recv().unwrap();
        drop(self.future.get_mut().unwrap().take());
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        self.gone.get_mut().unwrap().send(name).unwrap();
    }
}

#[test]
fn a_waker_may_drop_the_last_handle_of_its_rank() {
    let (go, alone) = channel();
    let (gone, went) = channel();
    let world = Builder::new().multiple().build().unwrap();
    let comm = world.comm();
    let incoming = comm.irecv_owned(vec![0_u8], 0, 1).unwrap();
    let task = Arc::new(Lonely {
        future: Mutex::new(Some(incoming.into_future())),
        alone: Mutex::new(alone),
        gone: Mutex::new(gone),
    });
    let waker = Waker::from(Arc::clone(&task));
    for _ in 0..POLLS - 1 {
        let mut future = task.future.lock().unwrap();
        let future = Pin::new(future.as_mut().unwrap());
        assert!(future.poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drop((waker, task));
    comm.send(&[1_u8], 0, 1).unwrap();
    drop((comm, world));
    go.send(()).unwrap();
    let name = went.recv_timeout(LIMIT).expect("the rank ends");
    assert_eq!(name, "portolan-wake-0");
}
