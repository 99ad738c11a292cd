//! Long messages that a hook's receive meets.

use std::sync::{Arc, Mutex};

use portolan_core::config::Settings;
use portolan_core::device::{Check, Turn};
use portolan_core::level::Single;
use portolan_core::matching::Pattern;
use portolan_core::transport::memory;
use portolan_core::{Adi, Device, Engine, MemoryKind, ProcId, Request, SendArgs, TypedBuf};
use portolan_datatype::Layout;

const LEN: usize = 1 << 20;

/// The call that starts an operation runs its hook, and is to return without having copied.
#[test]
fn are_read_in_the_next_poll() {
    let settings = Settings::default();
    let mut network = memory::network(2);
    let sender = Engine::<_, Single>::new(network.remove(0), &settings).unwrap();
    let receiver = Engine::<_, Single>::new(network.remove(0), &settings).unwrap();
    let (sent, mut received) = (vec![3_u8; LEN], vec![0_u8; LEN]);
    let args = SendArgs::new(ProcId::new(1), 0, 0, 5);
    // SAFETY: both buffers live until the requests are over.
    let send = unsafe { sender.isend_contig(&args, sent.as_ptr(), LEN) }.unwrap();
    // The offer comes before its receive.
    receiver.device_check(Check::NonBlocking).unwrap();

    let started = Arc::new(Mutex::new(None::<Request>));
    let (place, layout) = (received.as_mut_ptr() as usize, Layout::byte());
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
            count: LEN,
            layout: &layout,
            memory: MemoryKind::Host,
        };
        // SAFETY: as above.
        started.get_or_insert_with(|| unsafe { port.irecv(&pattern, buf) }.unwrap());
        Turn::Sleep
    }));
    receiver.wake_hook(hook);
    receiver.device_check(Check::NonBlocking).unwrap();
    let request = started.lock().unwrap().expect("the hook has run");
    assert_eq!(receiver.snapshot().bytes_pulled, 0);
    receiver.wait(request).unwrap();
    assert_eq!(receiver.snapshot().bytes_pulled, LEN as u64);
    sender.wait(send).unwrap();
    assert_eq!(sent, received);
}
