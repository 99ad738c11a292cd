//! A panic while a nonblocking operation begins: its buffer is lent already, and its caller has no
//! handle of it yet.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use portolan_core::config::Settings;
use portolan_core::device::Check;
use portolan_core::level::Single;
use portolan_core::matching::Pattern;
use portolan_core::transport::decorate::{Decorated, Hook};
use portolan_core::transport::memory::{self, InMemory};
use portolan_core::transport::{Header, PacketKind, Sent};
use portolan_core::{Adi, Device, Engine, ProcId, SendArgs};

const LEN: usize = 1 << 20;

/// Panics, as a subscriber of `tracing` or a driver may, as soon as it is told to.
#[derive(Clone, Default)]
struct Panics(Arc<AtomicBool>);

impl Panics {
    fn now(&self) {
        assert!(
            !self.0.load(Ordering::Relaxed),
            "it is what this test is about"
        );
    }
}

impl Hook for Panics {
    fn sending(&mut self, _peer: u32, header: &Header, _len: usize) -> Option<Sent> {
        if header.kind != PacketKind::Eager as u8 {
            self.now();
        }
        None
    }

    fn reaches(&mut self, _peer: u32, _len: usize) -> bool {
        self.now();
        true
    }

    fn condemns(&mut self) -> Option<(u32, String)> {
        self.now();
        None
    }
}

type Rank = Engine<Decorated<InMemory, Panics>, Single>;

fn two(panics: &Panics) -> [Rank; 2] {
    let mut network = memory::network(2).into_iter();
    std::array::from_fn(|_| {
        let transport = Decorated::new(network.next().unwrap(), panics.clone());
        Engine::new(transport, &Settings::default()).unwrap()
    })
}

/// The offer of a long message.
fn send_one(ranks: &[Rank; 2], panics: &Panics) {
    panics.0.store(true, Ordering::Relaxed);
    let (to, bytes) = (SendArgs::new(ProcId::new(1), 0, 0, 5), vec![7_u8; LEN]);
    // SAFETY: the process ends while the bytes are there.
    let _ = unsafe { ranks[0].isend_contig(&to, bytes.as_ptr(), LEN) };
}

/// The progress that a burst of short messages, which wait to leave together, makes in passing.
fn send_many(ranks: &[Rank; 2], panics: &Panics) {
    panics.0.store(true, Ordering::Relaxed);
    let (to, bytes) = (SendArgs::new(ProcId::new(1), 0, 0, 5), vec![7_u8; 8]);
    for _ in 0..100 {
        // SAFETY: as above.
        let _ = unsafe { ranks[0].isend_contig(&to, bytes.as_ptr(), 8) };
    }
}

/// The copy of a long message that was announced before.
fn receive(ranks: &[Rank; 2], panics: &Panics) {
    let (to, sent) = (SendArgs::new(ProcId::new(1), 0, 0, 5), vec![7_u8; LEN]);
    // SAFETY: as above.
    unsafe { ranks[0].isend_contig(&to, sent.as_ptr(), LEN) }.unwrap();
    ranks[1].device_check(Check::NonBlocking).unwrap();
    panics.0.store(true, Ordering::Relaxed);
    let mut bytes = vec![0_u8; LEN];
    // SAFETY: as above.
    let _ = unsafe { ranks[1].irecv_contig(&Pattern::any(0), bytes.as_mut_ptr(), LEN) };
}

/// Names what is to panic, in the process that the test starts.
const PANICS: &str = "PORTOLAN_TEST_PANICS";

#[test]
fn ends_the_process() {
    let ways = [
        ("send_one", send_one as fn(&_, &_)),
        ("send_many", send_many),
        ("receive", receive),
    ];
    if let Some(way) = std::env::var_os(PANICS) {
        let panics = Panics::default();
        let ranks = two(&panics);
        let (_, run) = ways.iter().find(|(name, _)| way == *name).unwrap();
        run(&ranks, &panics);
        unreachable!("it panics or ends");
    }
    for (way, _) in ways {
        let me = std::env::current_exe().unwrap();
        let words = ["--exact", "ends_the_process", "--nocapture"];
        let output = Command::new(me)
            .args(words)
            .env(PANICS, way)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{way}: {said}");
        assert!(
            said.contains("during the start of an operation"),
            "{way}: {said}"
        );
    }
}
