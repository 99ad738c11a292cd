//! The ADI-2 paper, routine by routine: what the conformance suite does not show already.
//!
//! `docs/adi.md` names these tests. Ranks are engines over the reference transport; one thread
//! steps both, except where the paper's own programs block.

use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use portolan_core::comm::{Communicator, Errors};
use portolan_core::config::Settings;
use portolan_core::device::Check;
use portolan_core::level::{Multiple, Single};
use portolan_core::matching::Pattern;
use portolan_core::transport::memory::{self, InMemory};
use portolan_core::{Adi, Device, Engine, ErrorKind, ProcId, Request, SendArgs, SendMode, Status};
use portolan_core::{TypedBuf, device};
use portolan_datatype::{Layout, MsgRep};

type Rank = Engine<InMemory, Single>;

fn ranks(n: u32) -> Vec<Rank> {
    let settings = Settings::default();
    let make = |transport| Engine::new(transport, &settings).unwrap();
    memory::network(n).into_iter().map(make).collect()
}

fn pair() -> (Rank, Rank) {
    let mut both = ranks(2);
    let one = both.pop().unwrap();
    (both.pop().unwrap(), one)
}

fn to(rank: u32, tag: u32) -> SendArgs {
    SendArgs::new(ProcId::new(rank), 0, 1 - rank, tag)
}

fn from(rank: u32, tag: u32) -> Pattern {
    Pattern {
        context: 0,
        source: Some(rank),
        tag: Some(tag),
    }
}

/// Every second of `count` doubles.
fn strided(count: usize) -> Layout {
    Layout::vector(count, 1, 2, &Layout::of::<f64>()).unwrap()
}

fn doubles(count: usize) -> Vec<u8> {
    (0..2 * count)
        .flat_map(|i| (i as f64 + 0.5).to_ne_bytes())
        .collect()
}

/// The first program of the paper's section 7: no communicator, an explicit context, blocking.
#[test]
fn first_program_of_section_7() {
    let body = |device: &Rank| {
        let mut buf = [0_u8; 256];
        for _ in 0..1000 {
            if device.attributes().world_rank == 0 {
                device.send_contig(&to(1, 0), &buf).unwrap();
                device.recv_contig(&from(1, 0), &mut buf).unwrap();
            } else {
                device.recv_contig(&from(0, 0), &mut buf).unwrap();
                buf[0] = buf[0].wrapping_add(1);
                device.send_contig(&to(0, 0), &buf).unwrap();
            }
        }
        device.end().unwrap();
        buf[0]
    };
    assert_eq!(on_threads(body), [232, 232], "1000 modulo 256");
}

/// The second: a nonblocking receive and the wait for it.
#[test]
fn second_program_of_section_7() {
    let body = |device: &Rank| {
        let mut buf = [0_u8; 256];
        for i in 0..1000_u32 {
            if device.attributes().world_rank == 0 {
                device.send_contig(&to(1, 0), &buf).unwrap();
                // SAFETY: the buffer is left alone until the request is complete.
                let request = unsafe { device.irecv_contig(&from(1, 0), buf.as_mut_ptr(), 256) };
                let status = device.wait(request.unwrap()).unwrap();
                assert_eq!((status.source, status.bytes), (1, 256), "in round {i}");
            } else {
                device.recv_contig(&from(0, 0), &mut buf).unwrap();
                buf[255] = buf[255].wrapping_add(1);
                device.send_contig(&to(0, 0), &buf).unwrap();
            }
        }
        device.end().unwrap();
        buf[255]
    };
    assert_eq!(on_threads(body), [232, 232], "1000 modulo 256");
}

fn on_threads<R: Send>(body: impl Fn(&Rank) -> R + Sync) -> Vec<R> {
    let body = &body;
    std::thread::scope(|scope| {
        let threads: Vec<_> = ranks(2)
            .into_iter()
            .map(|device| scope.spawn(move || body(&device)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

/// `MPID_End` ends, once.
#[test]
fn an_ended_device_is_not_ended_again() {
    let alone = ranks(1).pop().unwrap();
    alone.end().unwrap();
    assert_eq!(alone.end().unwrap_err().kind(), ErrorKind::Finalized);
}

/// `MPID_MyWorldRank` and `MPID_MyWorldSize` belong to a device, so jobs live side by side.
#[test]
fn jobs_side_by_side_have_ranks_of_their_own() {
    let (three, two) = (ranks(3), ranks(2));
    let place = |device: &Rank| {
        (
            device.attributes().world_rank,
            device.attributes().world_size,
        )
    };
    assert_eq!(
        three.iter().map(place).collect::<Vec<_>>(),
        [(0, 3), (1, 3), (2, 3)]
    );
    assert_eq!(two.iter().map(place).collect::<Vec<_>>(), [(0, 2), (1, 2)]);
    two[0].send_contig(&to(1, 5), b"of the pair").unwrap();
    assert_eq!(three[1].iprobe(&Pattern::any(0)).unwrap(), None);
    assert!(two[1].iprobe(&Pattern::any(0)).unwrap().is_some());
}

/// The attributes of section 5.4 that say who can do what.
#[test]
fn attributes_of_the_surroundings() {
    let (zero, _one) = pair();
    let attributes = zero.attributes();
    assert_eq!(attributes.io, device::Which::All);
    assert_eq!(attributes.stdin, device::Which::One(0));
    assert_eq!(attributes.host, device::Which::None);
    assert!(!attributes.heterogeneous);
    assert!(
        attributes.wtime_is_global,
        "threads of one process share a clock"
    );
}

/// A status that nobody wants costs nothing: it is a value, not memory to be filled.
#[test]
fn a_status_may_be_ignored() {
    let (zero, one) = pair();
    zero.send_contig(&to(1, 1), b"x").unwrap();
    let _ = one.recv_contig(&from(0, 1), &mut [0]).unwrap();
    assert!(!std::mem::needs_drop::<Status>());
}

/// `is_complete` is a load: it moves nothing, so an arrival is not seen before the device is
/// called.
#[test]
fn is_complete_calls_nothing() {
    let (zero, one) = pair();
    let mut buf = [0; 4];
    // SAFETY: the buffer is left alone until the request is complete.
    let request = unsafe { one.irecv_contig(&from(0, 1), buf.as_mut_ptr(), 4).unwrap() };
    zero.send_contig(&to(1, 1), b"ahoy").unwrap();
    for _ in 0..1000 {
        assert!(!one.is_complete(request));
    }
    one.device_check(Check::NonBlocking).unwrap();
    assert!(one.is_complete(request));
    assert_eq!(one.wait(request).unwrap().bytes, 4);
    assert_eq!(&buf, b"ahoy");
}

/// `MPID_RecvIcomplete` with an error returns true: the request is complete, with the error, once.
#[test]
fn an_error_completes_the_request() {
    let (zero, one) = pair();
    let mut buf = [0; 2];
    // SAFETY: the buffer is left alone until the request is complete.
    let request = unsafe { one.irecv_contig(&from(0, 1), buf.as_mut_ptr(), 2).unwrap() };
    assert_eq!(one.test(request).unwrap(), None);
    zero.send_contig(&to(1, 1), b"ahoy").unwrap();
    let error = one.test(request).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Truncated);
    let status = error.status().unwrap();
    assert_eq!(
        (status.source, status.tag, status.bytes, status.sent),
        (0, 1, 2, 4)
    );
    assert_eq!(
        one.test(request).unwrap_err().kind(),
        ErrorKind::InvalidRequest
    );
}

/// `MPID_SendFree`, `MPID_RecvFree`: the device finishes what the program has given up, in every
/// protocol.
#[test]
fn freed_requests_are_finished() {
    let (zero, one) = pair();
    let long = vec![7_u8; zero.attributes().eager_max + 1];
    let mut buf = vec![0_u8; long.len()];
    for len in [1, long.len()] {
        // SAFETY: both buffers outlive the operation, which is over when the answer has come.
        unsafe {
            let sent = zero.isend_contig(&to(1, 1), long.as_ptr(), len).unwrap();
            let received = one
                .irecv_contig(&from(0, 1), buf.as_mut_ptr(), len)
                .unwrap();
            zero.free(sent).unwrap();
            one.free(received).unwrap();
            assert_eq!(
                one.wait(received).unwrap_err().kind(),
                ErrorKind::InvalidRequest
            );
        }
        // Messages between two ranks arrive in order: this one comes after the freed one.
        // SAFETY: an empty buffer needs no memory.
        let answer = unsafe {
            one.irecv_contig(&from(0, 2), std::ptr::null_mut(), 0)
                .unwrap()
        };
        zero.send_contig(&to(1, 2), &[]).unwrap();
        while !one.is_complete(answer) || buf[len - 1] != 7 {
            zero.device_check(Check::NonBlocking).unwrap();
            one.device_check(Check::NonBlocking).unwrap();
        }
        one.wait(answer).unwrap();
        buf.fill(0);
    }
}

/// `MPID_SsendDatatype`, `MPID_RsendDatatype`, `MPID_BsendDatatype` and their nonblocking kin.
#[test]
fn datatypes_in_every_mode() {
    let (zero, one) = pair();
    let (layout, memory) = (strided(5), doubles(5));
    let check = |received: &[u8]| {
        for (i, byte) in received.iter().enumerate() {
            let expected = if i / 8 % 2 == 0 { memory[i] } else { 0 };
            assert_eq!(*byte, expected, "byte {i}");
        }
    };
    // The last item of a vector ends where its data ends, not a stride later.
    let extent = layout.span(1).unwrap().end.unsigned_abs();
    for mode in [
        SendMode::Standard,
        SendMode::Ready,
        SendMode::Synchronous,
        SendMode::Buffered,
    ] {
        let mut buf = vec![0_u8; extent];
        let ptr = buf.as_mut_ptr();
        let target = TypedBuf {
            ptr,
            count: 1,
            layout: &layout,
            memory: Default::default(),
        };
        // SAFETY: the buffer holds the item, and is left alone until the request is complete.
        let received = unsafe { one.irecv_datatype(&from(0, 1), target).unwrap() };
        let args = to(1, 1).mode(mode);
        if mode == SendMode::Buffered {
            zero.send_datatype(&args, &memory, 0, 1, &layout).unwrap();
        } else {
            let ptr = memory.as_ptr().cast_mut();
            let source = TypedBuf {
                ptr,
                count: 1,
                layout: &layout,
                memory: Default::default(),
            };
            // SAFETY: the memory outlives the request.
            let sent = unsafe { zero.isend_datatype(&args, source).unwrap() };
            step_until_complete(&zero, sent, &one, received);
            zero.wait(sent).unwrap();
        }
        assert_eq!(one.wait(received).unwrap().bytes, 40, "{mode:?}");
        check(&buf);
    }
}

fn step_until_complete(zero: &Rank, sent: Request, one: &Rank, received: Request) {
    while !(zero.is_complete(sent) && one.is_complete(received)) {
        zero.device_check(Check::NonBlocking).unwrap();
        one.device_check(Check::NonBlocking).unwrap();
    }
}

/// A blocking send announces a message of which a nonblocking one would send a copy, if that is
/// long and the receiver can read the sender's memory.
#[test]
fn blocking_sends_announce_earlier() {
    let eager = pair().0.attributes().eager_max;
    for (len, announced) in [(eager / 2, 0), (eager / 2 + 1, 1), (eager, 1)] {
        let offers = on_threads(|device| {
            let mut buf = vec![1_u8; len];
            if device.attributes().world_rank == 0 {
                device.send_contig(&to(1, 0), &buf).unwrap();
                let args = to(1, 1);
                // SAFETY: the buffer outlives the request, which ends here.
                unsafe {
                    let request = device.isend_contig(&args, buf.as_ptr(), len).unwrap();
                    device.wait(request).unwrap();
                }
            } else {
                for tag in [0, 1] {
                    buf.fill(0);
                    let status = device.recv_contig(&from(0, tag), &mut buf).unwrap();
                    assert_eq!(status.bytes, len as u64);
                    assert!(buf.iter().all(|&byte| byte == 1));
                }
            }
            let offers = device.snapshot().offers_sent;
            device.end().unwrap();
            offers
        });
        assert_eq!(offers, [announced, 0], "{len} bytes");
    }
}

/// The three cases of section 4.2: in the envelope, with the envelope in a buffer, in parts.
#[test]
fn three_ways_of_noncontiguous_data() {
    let (zero, one) = pair();
    let eager = zero.attributes().eager_max;
    for (count, announced) in [(2, 0), (eager / 8 - 1, 0), (eager / 8 * 20, 1)] {
        let (layout, memory) = (strided(count), doubles(count));
        let mut buf = vec![0_u8; memory.len()];
        let offers = |device: &Rank| device.snapshot().offers_sent;
        let before = offers(&zero);
        let ptr = memory.as_ptr().cast_mut();
        let source = TypedBuf {
            ptr,
            count: 1,
            layout: &layout,
            memory: Default::default(),
        };
        let ptr = buf.as_mut_ptr();
        let target = TypedBuf {
            ptr,
            count: 1,
            layout: &layout,
            memory: Default::default(),
        };
        // SAFETY: both buffers outlive their requests and are left alone until then.
        let (sent, received) = unsafe {
            (
                zero.isend_datatype(&to(1, 1), source),
                one.irecv_datatype(&from(0, 1), target),
            )
        };
        let (sent, received) = (sent.unwrap(), received.unwrap());
        step_until_complete(&zero, sent, &one, received);
        zero.wait(sent).unwrap();
        assert_eq!(one.wait(received).unwrap().bytes, 8 * count as u64);
        assert_eq!(offers(&zero) - before, announced, "with {count} doubles");
        let same = (0..buf.len()).all(|i| buf[i] == if i / 8 % 2 == 0 { memory[i] } else { 0 });
        assert!(same, "with {count} doubles");
    }
}

/// `MPID_Pack_size`, `MPID_Pack` and `MPID_Unpack`, in several calls that move their positions.
#[test]
fn packing_goes_on_where_it_stopped() {
    let device = ranks(1).pop().unwrap();
    let (layout, memory) = (strided(3), doubles(3));
    for rep in [MsgRep::Native, MsgRep::Swapped, MsgRep::External32] {
        let ints = Layout::of::<i32>();
        let number = 77_i32.to_ne_bytes();
        let room =
            device.pack_size(1, &layout, rep).unwrap() + device.pack_size(1, &ints, rep).unwrap();
        let mut packed = vec![0_u8; room];
        let mut position = 0;
        device
            .pack(&number, 0, 1, &ints, rep, &mut packed, &mut position)
            .unwrap();
        assert_eq!(position, 4);
        device
            .pack(&memory, 0, 1, &layout, rep, &mut packed, &mut position)
            .unwrap();
        assert_eq!(position, room);
        let full = device.pack(&number, 0, 1, &ints, rep, &mut packed, &mut position);
        assert_eq!(full.unwrap_err().kind(), ErrorKind::Truncated);

        let (mut position, mut back, mut out) = (0, [0; 4], vec![0_u8; memory.len()]);
        device
            .unpack(&packed, &mut position, rep, &mut back, 0, 1, &ints)
            .unwrap();
        assert_eq!((position, back), (4, number));
        let bytes = device
            .unpack(&packed, &mut position, rep, &mut out, 0, 1, &layout)
            .unwrap();
        assert_eq!((bytes, position), (24, room));
        assert!((0..out.len()).all(|i| out[i] == if i / 8 % 2 == 0 { memory[i] } else { 0 }));
        let end = device.unpack(&packed, &mut position, rep, &mut back, 0, 1, &ints);
        assert_eq!(end.unwrap_err().kind(), ErrorKind::Truncated);
        assert_eq!(position, room, "a refused unpack moved the position");
    }
}

/// A layout that was freed before a persistent operation's first start, as in section 3.7.
#[test]
fn a_layout_may_be_freed_before_the_first_start() {
    let (zero, one) = pair();
    let memory = doubles(4);
    let mut buf = vec![0_u8; memory.len()];
    let (sending, receiving) = {
        let layout = strided(4);
        let ptr = memory.as_ptr().cast_mut();
        let source = TypedBuf {
            ptr,
            count: 1,
            layout: &layout,
            memory: Default::default(),
        };
        let ptr = buf.as_mut_ptr();
        let target = TypedBuf {
            ptr,
            count: 1,
            layout: &layout,
            memory: Default::default(),
        };
        // SAFETY: both buffers outlive the requests and are left alone while they are active.
        unsafe {
            let sending = zero.send_init_unchecked(&to(1, 1), source);
            (
                sending.unwrap(),
                one.recv_init_unchecked(&Pattern::any(0), target).unwrap(),
            )
        }
    };
    for round in 0..3 {
        one.start(receiving).unwrap();
        zero.start(sending).unwrap();
        step_until_complete(&zero, sending, &one, receiving);
        zero.wait(sending).unwrap();
        let status = one.wait(receiving).unwrap();
        assert_eq!(
            (status.source, status.tag, status.bytes),
            (0, 1, 32),
            "in round {round}"
        );
    }
    zero.free(sending).unwrap();
    one.free(receiving).unwrap();
}

/// Communicators and groups are counted; an error mode is a value. What is pending when the last
/// handle goes completes as if it were there.
#[test]
fn communicators_and_groups_are_counted() {
    let world = Communicator::world(Arc::new(ranks(1).pop().unwrap())).unwrap();
    let child = world.dup().unwrap();
    world.set_errors(Errors::Abort);
    assert_eq!(
        child.errors(),
        Errors::Return,
        "the copy has a mode of its own"
    );
    let (other, group, context) = (child.clone(), child.group().clone(), child.context());
    drop(child);
    assert_eq!(world.live(), 2, "a handle is left");
    let mut buf = [0; 4];
    // SAFETY: the buffer is left alone until the request is complete.
    let pending = unsafe {
        world
            .device()
            .irecv_contig(&Pattern::any(context), buf.as_mut_ptr(), 4)
    };
    drop(other);
    assert_eq!(world.live(), 1, "the last handle has gone");
    assert_eq!(group.size(), 1);
    let args = SendArgs::new(group.process(0).unwrap(), context, 0, 3);
    world.device().send_contig(&args, b"late").unwrap();
    assert_eq!(world.device().wait(pending.unwrap()).unwrap().tag, 3);
    assert_eq!(&buf, b"late");
}

/// `MPID_THREAD_DS_LOCK` and kin are a type: what is not opened for threads is not `Sync`.
#[test]
fn the_thread_level_is_in_the_type() {
    fn sync<T: Send + Sync>(_: &T) {}
    fn send<T: Send>(_: &T) {}
    let settings = Settings::default();
    let transport = memory::network(1).pop().unwrap();
    let shared: Engine<_, Multiple> = Engine::new(transport, &settings).unwrap();
    sync(&shared);
    assert!(
        shared
            .attributes()
            .caps
            .contains(device::Caps::THREAD_MULTIPLE)
    );
    let alone = ranks(1).pop().unwrap();
    send(&alone);
    assert!(
        !alone
            .attributes()
            .caps
            .contains(device::Caps::THREAD_MULTIPLE)
    );
}

/// Names this program as the one that aborts, in the process that the next test starts.
const ABORTS: &str = "PORTOLAN_TEST_ABORTS";

/// `MPID_Abort` prints who called and why, and hands the code to the environment.
#[test]
fn abort_hands_its_code_to_the_environment() {
    if std::env::var_os(ABORTS).is_some() {
        let device = ranks(1).pop().unwrap();
        device.on_abort(Box::new(|code, text| {
            let told = format!("told: {code} {text}\n");
            std::io::Write::write_all(&mut std::io::stderr(), told.as_bytes()).unwrap();
        }));
        device.abort(41, Some("heat"), Some("it is too hot"));
    }
    let me = std::env::current_exe().unwrap();
    let output = Command::new(me)
        .args([
            "--exact",
            "abort_hands_its_code_to_the_environment",
            "--nocapture",
        ])
        .env(ABORTS, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(41), "{said}");
    assert!(
        said.contains("rank 0 aborts the job with code 41: heat: it is too hot"),
        "{said}"
    );
    assert!(said.contains("told: 41 "), "{said}");
}

/// Says, in the process that the next test starts, that nobody reads its standard error.
const UNREAD: &str = "PORTOLAN_TEST_UNREAD";

/// A rank that aborts ends, and tells its launcher, although its standard error is a pipe that is
/// full.
#[test]
fn abort_waits_for_no_reader() {
    if std::env::var_os(UNREAD).is_some() {
        let device = ranks(1).pop().unwrap();
        let (told, says) = std::io::pipe().unwrap();
        // SAFETY: both descriptors are open; from here on the pipe is this process's standard
        // error.
        let stderr = unsafe { libc::dup2(says.as_raw_fd(), libc::STDERR_FILENO) };
        assert_eq!(stderr, libc::STDERR_FILENO);
        let full = vec![0; 1 << 16];
        // SAFETY: as many bytes are readable; a pipe of the usual size takes them without waiting.
        let written = unsafe { libc::write(says.as_raw_fd(), full.as_ptr().cast(), full.len()) };
        assert_eq!(written, 1 << 16);
        device.on_abort(Box::new(move |code, _| {
            // The other end is open until here: the pipe is full, not broken.
            drop(told.try_clone().unwrap());
            std::process::exit(code + 1)
        }));
        device.abort(41, None, Some(&"it is too hot ".repeat(1000)));
    }
    let me = std::env::current_exe().unwrap();
    let words = ["--exact", "abort_waits_for_no_reader", "--nocapture"];
    let output = Command::new(me).args(words).env(UNREAD, "1").output();
    assert_eq!(output.unwrap().status.code(), Some(42));
}

/// `MPID_Wtime` counts seconds: a span of it lies between a span of the host's clock inside and one
/// outside of it.
#[test]
fn the_clock_counts_seconds() {
    let device = ranks(1).pop().unwrap();
    let outer = Instant::now();
    let start = device.wtime();
    let inner = Instant::now();
    for _ in 0..100_000 {
        std::hint::black_box(device.wtick());
    }
    let inner = inner.elapsed().as_secs_f64();
    let ours = device.wtime() - start;
    let outer = outer.elapsed().as_secs_f64();
    // The difference of two doubles is not exact to the last digit.
    let rounding = 1e-6;
    assert!(
        inner - rounding <= ours && ours <= outer + rounding,
        "{inner} s, {ours} s, {outer} s"
    );
}

/// What a peer is to blame for has a remedy, too.
#[test]
fn a_damaged_message_has_a_remedy() {
    let devices = ranks(2);
    let args = to(1, 5);
    let byte = 7_u8;
    // SAFETY: the byte outlives the request, which is complete before this returns.
    let request = unsafe { devices[0].isend_contig(&args, &raw const byte, 1) }.unwrap();
    assert!(devices[0].is_complete(request), "it has left");
    let completion = device::Completion {
        keep: Box::new(()),
        then: Some(|_, status| status.with_error(ErrorKind::PeerMisbehaved)),
    };
    devices[0].attach(request, completion).unwrap();
    let error = devices[0].wait(request).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerMisbehaved);
    let text = error.to_string();
    assert!(
        text.contains(" is damaged; run the same build of the program on all ranks"),
        "{text}"
    );
}
