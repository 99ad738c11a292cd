//! Blocking sends to a receiver that cannot read the sender's memory: announced at first, then eager.

use std::thread;

use portolan_core::config::Settings;
use portolan_core::level::Single;
use portolan_core::matching::Pattern;
use portolan_core::transport::decorate::{Decorated, Unreach};
use portolan_core::transport::memory;
use portolan_core::{Adi, Device, Engine, ProcId, SendArgs};

/// Above half of the reference transport's eager limit, and below it.
const LEN: usize = 3 << 10;
const MESSAGES: u32 = 200;

fn counter(device: &impl Device, name: &str) -> u64 {
    let counters = device.counters();
    let found = counters.iter().find(|(known, _)| *known == name);
    found.expect("a counter of that name").1
}

#[test]
fn a_receiver_that_streams_is_not_asked_for_ever() {
    let settings = Settings::default();
    let mut ranks = memory::network(2).into_iter().map(|transport| {
        let transport = Decorated::new(transport, Unreach::new(1, 1, usize::MAX));
        Engine::<_, Single>::new(transport, &settings).expect("an engine")
    });
    let (sender, receiver) = (ranks.next().unwrap(), ranks.next().unwrap());
    thread::scope(|scope| {
        scope.spawn(move || {
            for tag in 0..MESSAGES {
                let args = SendArgs::new(ProcId::new(1), 0, 0, tag);
                sender.send_contig(&args, &[tag as u8; LEN]).expect("sent");
            }
            let (offers, eager) = (
                counter(&sender, "offers_sent"),
                counter(&sender, "eager_sent"),
            );
            assert_eq!(offers + eager, u64::from(MESSAGES));
            assert!((1..50).contains(&offers), "{offers} were announced");
            sender.end().expect("ended");
        });
        scope.spawn(move || {
            let mut buf = [0; LEN];
            for tag in 0..MESSAGES {
                let pattern = Pattern {
                    context: 0,
                    source: Some(0),
                    tag: Some(tag),
                };
                let status = receiver.recv_contig(&pattern, &mut buf).expect("received");
                assert_eq!(status.bytes, LEN as u64);
                assert!(buf.iter().all(|&byte| byte == tag as u8), "message {tag}");
            }
            receiver.end().expect("ended");
        });
    });
}
