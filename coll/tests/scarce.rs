//! Operations over a device that has room for few requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use portolan_coll::{Many, Operation, Options, configure, run, start};
use portolan_core::comm::Communicator;
use portolan_core::config::Settings;
use portolan_core::device::{HandlerId, Hook, HookId, Port, Upper, delegate_device};
use portolan_core::level::Single;
use portolan_core::matching::Pattern;
use portolan_core::transport::memory::{self, InMemory};
use portolan_core::{
    ContigBuf, Device, Engine, Error, ErrorKind, Group, MemoryKind, ProcId, Request, Result,
    SendArgs, Status, TypedBuf,
};
use portolan_datatype::{Layout, Op};

/// A device with room for a limited number of messages that were started and not waited for.
struct Scarce {
    device: Engine<InMemory, Single>,
    room: Arc<Room>,
}

/// Room for a limited number of messages that were started and not waited for.
struct Room {
    room: u32,
    active: AtomicU32,
    refused: AtomicU32,
}

/// The port that hooks get: messages that they start also take room.
struct ScarcePort<'a> {
    port: &'a mut dyn Port,
    room: &'a Room,
}

macro_rules! inner {
    ($self:ident, $device:ident => $call:expr) => {{
        let $device = &$self.device;
        $call
    }};
}

impl Room {
    fn started(&self, start: impl FnOnce() -> Result<Request>) -> Result<Request> {
        if self.active.load(Ordering::Relaxed) == self.room {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Error::new(ErrorKind::Exhausted, "no room"));
        }
        let request = start()?;
        self.active.fetch_add(1, Ordering::Relaxed);
        Ok(request)
    }
}

// SAFETY: every call goes to a device that keeps the contract.
unsafe impl Device for Scarce {
    unsafe fn isend_contig_unchecked(&self, args: &SendArgs, buf: ContigBuf) -> Result<Request> {
        self.room.started(|| {
            // SAFETY: from the caller.
            unsafe { self.device.isend_contig_unchecked(args, buf) }
        })
    }

    unsafe fn irecv_contig_unchecked(&self, from: &Pattern, buf: ContigBuf) -> Result<Request> {
        self.room.started(|| {
            // SAFETY: from the caller.
            unsafe { self.device.irecv_contig_unchecked(from, buf) }
        })
    }

    fn wait(&self, request: Request) -> Result<Status> {
        let outcome = self.device.wait(request);
        self.room.active.fetch_sub(1, Ordering::Relaxed);
        outcome
    }

    fn register_hook(&self, mut hook: Hook) -> HookId {
        let room = Arc::clone(&self.room);
        self.device.register_hook(Box::new(move |port| {
            let room = &room;
            hook(&mut ScarcePort { port, room })
        }))
    }

    delegate_device! { inner:
        lifecycle, leaving, send_contig_unchecked, recv_contig_unchecked, datatypes, driven, persistent, queues,
        is_complete, test, peek, cancel, free, attach, device_check, completion_epoch,
        packing, active_messages, wake_hook, has_request_room, upper_request, complete_upper, fail_upper, one_sided, stores,
    }
}

impl Port for ScarcePort<'_> {
    unsafe fn isend(&mut self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<Request> {
        // SAFETY: from the caller, here and below.
        self.room.started(|| unsafe { self.port.isend(args, buf) })
    }

    unsafe fn irecv(&mut self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Request> {
        // SAFETY: as above.
        self.room.started(|| unsafe { self.port.irecv(from, buf) })
    }

    fn test(&mut self, request: Request) -> Result<Option<Status>> {
        let outcome = self.port.test(request);
        if !matches!(outcome, Ok(None)) {
            self.room.active.fetch_sub(1, Ordering::Relaxed);
        }
        outcome
    }

    fn me(&self) -> ProcId {
        self.port.me()
    }
    fn wtime(&self) -> f64 {
        self.port.wtime()
    }
    fn send(&mut self, to: ProcId, id: HandlerId, args: [u64; 2], payload: &[u8]) -> Result<()> {
        self.port.send(to, id, args, payload)
    }
    fn is_complete(&self, request: Request) -> bool {
        self.port.is_complete(request)
    }
    fn cancel(&mut self, request: Request) -> Result<()> {
        self.port.cancel(request)
    }
    fn upper_request(&mut self, upper: Box<dyn Upper>) -> Result<Request> {
        self.port.upper_request(upper)
    }
    fn complete(&mut self, request: Request, status: Status) -> Result<()> {
        self.port.complete(request, status)
    }
    fn fail(&mut self, request: Request, peer: ProcId) -> Result<()> {
        self.port.fail(request, peer)
    }
    fn fail_with(&mut self, request: Request, error: Error) -> Result<()> {
        self.port.fail_with(request, error)
    }
    fn dead_member(&self, group: &Group) -> Option<ProcId> {
        self.port.dead_member(group)
    }
    fn wake_hook(&mut self, hook: HookId) {
        self.port.wake_hook(hook);
    }
    fn notify(&mut self, peer: ProcId) {
        self.port.notify(peer);
    }
}

fn typed<'a>(data: &mut [u32], count: usize, layout: &'a Layout) -> TypedBuf<'a> {
    TypedBuf {
        ptr: data.as_mut_ptr().cast(),
        count,
        layout,
        memory: MemoryKind::Host,
    }
}

/// Runs `body` on `n` ranks, which are threads; returns how many requests were refused on all of
/// them together.
fn on_all(n: u32, room: u32, body: impl Fn(&Communicator<Scarce>) + Sync) -> u32 {
    on_all_with(n, room, &Options::default(), body)
}

fn on_all_with(
    n: u32,
    room: u32,
    options: &Options,
    body: impl Fn(&Communicator<Scarce>) + Sync,
) -> u32 {
    let mut options = options.clone();
    options.direct = false;
    let refused = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for transport in memory::network(n) {
            let (body, options, refused) = (&body, options.clone(), &refused);
            scope.spawn(move || {
                let device = Arc::new(Scarce {
                    device: Engine::new(transport, &Settings::default()).unwrap(),
                    room: Arc::new(Room {
                        room,
                        active: AtomicU32::new(0),
                        refused: AtomicU32::new(0),
                    }),
                });
                let world = Communicator::world(Arc::clone(&device)).unwrap();
                configure(&world, options).unwrap();
                body(&world);
                assert_eq!(device.room.active.load(Ordering::Relaxed), 0);
                let here = device.room.refused.load(Ordering::Relaxed);
                refused.fetch_add(here, Ordering::Relaxed);
                device.end().unwrap();
            });
        }
    });
    refused.into_inner()
}

#[test]
fn operations_wait_for_room_in_the_middle() {
    const N: u32 = 6;
    // An exchange with one rank takes two requests; an alltoall takes ten.
    for room in 2..=4 {
        let refused = on_all(N, room, |world| {
            let (me, layout) = (world.rank(), Layout::of::<u32>());
            for len in [1_usize, 30_000] {
                let mut mine: Vec<u32> = (0..N).flat_map(|to| vec![me * 10 + to; len]).collect();
                let mut all = vec![0; mine.len()];
                let alltoall = Operation::Alltoall {
                    send: Some(Many::Equal(typed(&mut mine, len, &layout))),
                    recv: Many::Equal(typed(&mut all, len, &layout)),
                };
                // SAFETY: the buffers live until the operation is over, here and below.
                unsafe { run(world, &alltoall) }.unwrap();
                let expected = (0..N).flat_map(|from| vec![from * 10 + me; len]);
                assert!(all.iter().copied().eq(expected));
                let gather = Operation::Gather {
                    send: Some(typed(&mut mine, len, &layout)),
                    recv: (me == 1).then(|| Many::Equal(typed(&mut all, len, &layout))),
                    root: 1,
                    uneven: true,
                };
                // SAFETY: as above.
                unsafe { run(world, &gather) }.unwrap();
                let expected = (0..N).flat_map(|from| vec![from * 10; len]);
                assert!(me != 1 || all.iter().copied().eq(expected));
                let mut sum = vec![me; len];
                let allreduce = Operation::Allreduce {
                    send: None,
                    recv: typed(&mut sum, len, &layout),
                    op: &Op::SUM,
                };
                // SAFETY: as above.
                unsafe { run(world, &allreduce) }.unwrap();
                assert!(sum.iter().all(|&sum| sum == N * (N - 1) / 2));
            }
        });
        assert!(refused > 0);
    }
}

/// The limit applies only to messages of the hook here: the request for which the program waits is
/// not one of them.
#[test]
fn those_under_way_wait_for_room_in_the_middle() {
    const N: u32 = 6;
    for room in 2..=4 {
        let refused = on_all(N, room, |world| {
            let (me, layout) = (world.rank(), Layout::of::<u32>());
            for len in [1_usize, 30_000] {
                // The root has a receive for every rank.
                let (mut mine, mut all) = (vec![me; len], vec![0; len * N as usize]);
                let gather = Operation::Gather {
                    send: Some(typed(&mut mine, len, &layout)),
                    recv: (me == 1).then(|| Many::Equal(typed(&mut all, len, &layout))),
                    root: 1,
                    uneven: true,
                };
                // SAFETY: the buffers live until the operation is over.
                let request = unsafe { start(world, &gather) }.unwrap();
                world.device().device.wait(request).unwrap();
                let expected = (0..N).flat_map(|from| vec![from; len]);
                assert!(me != 1 || all.iter().copied().eq(expected));
            }
        });
        assert!(refused > 0);
    }
}

/// Without the limit, each operation would hold requests for which another one waits.
#[test]
fn those_that_would_block_each_other_are_not_begun_together() {
    const N: u32 = 4;
    const ROUNDS: u32 = 40;
    for room in 3..=5 {
        let mut options = Options::default();
        options.requests = room as usize;
        let kept_out = AtomicU32::new(0);
        let refused = on_all_with(N, room, &options, |world| {
            let (me, layout) = (world.rank(), Layout::of::<u32>());
            let other = world.dup().unwrap();
            let len = |round: u32| [30_000_usize, 1][(round / 2 % 2) as usize];
            let mut sums: Vec<Vec<u32>> = (0..ROUNDS).map(|n| vec![me + n; len(n)]).collect();
            let wait = |request| world.device().device.wait(request).unwrap();
            let mut under_way = std::collections::VecDeque::new();
            for (round, sum) in (0..).zip(&mut sums) {
                let comm = [world, &other][round as usize % 2];
                let allreduce = Operation::Allreduce {
                    send: None,
                    recv: typed(sum, len(round), &layout),
                    op: &Op::SUM,
                };
                let request = loop {
                    // SAFETY: the buffers live until all operations are over.
                    match unsafe { start(comm, &allreduce) } {
                        Ok(request) => break request,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
                            kept_out.fetch_add(1, Ordering::Relaxed);
                            wait(under_way.pop_front().expect("others are under way"));
                        }
                    }
                };
                under_way.push_back(request);
            }
            under_way.into_iter().for_each(|request| _ = wait(request));
            for (round, sum) in (0..).zip(&sums) {
                let expected = N * (N - 1) / 2 + N * round;
                assert!(sum.iter().all(|&sum| sum == expected), "{round}");
            }
        });
        assert_eq!(refused, 0, "what was begun had room");
        assert!(kept_out.into_inner() > 0);
    }
}
