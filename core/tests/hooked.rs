//! Long messages that a hook's receive meets.

use std::sync::{Arc, Mutex};

use portolan_core::config::Settings;
use portolan_core::device::{Check, Turn};
use portolan_core::level::Single;
use portolan_core::matching::Pattern;
use portolan_core::transport::decorate::{Count, Decorated};
use portolan_core::transport::memory::{self, InMemory, Options};
use portolan_core::transport::{PacketKind, Pulls};
use portolan_core::{Adi, Device, Engine, MemoryKind, ProcId, Request, SendArgs, TypedBuf};
use portolan_datatype::Layout;

const LEN: usize = 1 << 20;

/// A hook's receive of a message that has been announced, on these transports.
struct Hooked {
    sender: Engine<Decorated<InMemory, Count>, Single>,
    receiver: Engine<Decorated<InMemory, Count>, Single>,
    packets: Count,
    sent: Vec<u8>,
    send: Request,
    receive: Request,
}

/// # Safety
/// As many items must stay writable at the place until the receive is over.
unsafe fn hooked(pulls: Pulls, place: *mut u8, count: usize, layout: &Layout) -> Hooked {
    let settings = Settings::default();
    let packets = Count::new();
    let options = Options {
        pulls,
        ..Options::default()
    };
    let mut network = memory::network_with(2, options).into_iter();
    let mut next = || {
        let transport = Decorated::new(network.next().unwrap(), packets.clone());
        Engine::<_, Single>::new(transport, &settings).unwrap()
    };
    let (sender, receiver) = (next(), next());
    let sent: Vec<u8> = (0..LEN).map(|n| (n / 3) as u8).collect();
    let args = SendArgs::new(ProcId::new(1), 0, 0, 5);
    // SAFETY: the bytes live until the request is over, as long as what this returns.
    let send = unsafe { sender.isend_contig(&args, sent.as_ptr(), LEN) }.unwrap();
    // The offer comes before its receive.
    receiver.device_check(Check::NonBlocking).unwrap();

    let started = Arc::new(Mutex::new(None::<Request>));
    let (place, layout) = (place as usize, layout.clone());
    let here = Arc::clone(&started);
    let hook = receiver.register_hook(Box::new(move |port| {
        let mut started = here.lock().unwrap();
        let pattern = Pattern {
            context: 0,
            source: Some(0),
            tag: Some(5),
        };
        let buf = TypedBuf {
            ptr: place as *mut u8,
            count,
            layout: &layout,
            memory: MemoryKind::Host,
        };
        // SAFETY: the caller's promise.
        started.get_or_insert_with(|| unsafe { port.irecv(&pattern, buf) }.unwrap());
        Turn::Sleep
    }));
    receiver.wake_hook(hook);
    receiver.device_check(Check::NonBlocking).unwrap();
    let receive = started.lock().unwrap().expect("the hook has run");
    Hooked {
        sender,
        receiver,
        packets,
        sent,
        send,
        receive,
    }
}

/// The call that starts an operation runs its hook, and is to return without having copied.
#[test]
fn are_read_in_the_next_poll() {
    let mut received = vec![0_u8; LEN];
    // SAFETY: the room lives until the request is over.
    let it = unsafe { hooked(Pulls::Whole, received.as_mut_ptr(), LEN, &Layout::byte()) };
    assert_eq!(it.receiver.snapshot().bytes_pulled, 0);
    it.receiver.wait(it.receive).unwrap();
    assert_eq!(it.receiver.snapshot().bytes_pulled, LEN as u64);
    it.sender.wait(it.send).unwrap();
    assert_eq!(it.sent, received);
}

/// To ask for a stream takes no time: the sender hears of it from the call that starts the
/// operation.
#[test]
fn are_asked_for_at_once_where_they_are_streamed() {
    // Every other byte.
    let layout = Layout::vector(LEN, 1, 2, &Layout::byte()).unwrap();
    for pulls in [Pulls::Contiguous, Pulls::Measured] {
        let mut received = vec![0_u8; 2 * LEN];
        // SAFETY: the room lives until the request is over.
        let it = unsafe { hooked(pulls, received.as_mut_ptr(), 1, &layout) };
        assert_eq!(it.packets.of(PacketKind::Take).sent, 1, "{pulls:?}");
        while !it.receiver.is_complete(it.receive) {
            it.sender.device_check(Check::NonBlocking).unwrap();
            it.receiver.device_check(Check::NonBlocking).unwrap();
        }
        it.receiver.wait(it.receive).unwrap();
        it.sender.wait(it.send).unwrap();
        assert_eq!(it.receiver.snapshot().bytes_pulled, 0);
        assert!(it.sent.iter().eq(received.iter().step_by(2)));
    }
}
