//! Memory for unexpected messages is bounded: a slow receiver costs time, and never ends the job.

use portolan_core::Device;
use portolan_core::device::Caps;

use crate::bytes::{check, content};
use crate::case::Verdict;
use crate::rank::Rank;
use crate::sut::{Job, Sut};

/// All ranks flood rank 0 with eager messages, only a small part of which fit into its memory for
/// them. The rest wait with the senders, and all arrive in order.
pub fn flood<S: Sut>(ranks: u32) -> Verdict {
    const MANY: usize = 4000;
    const LEN: usize = 1000;
    let job = Job::new(ranks).set("UNEXPECTED_MAX", "64k");
    S::run(&job, |device| {
        let rank = Rank::new(device, 0);
        let number = |sender, n: usize| u64::from(sender) << 32 | n as u64;
        if rank.me() != 0 {
            let mut sends = Vec::with_capacity(MANY);
            for n in 0..MANY {
                sends.push(rank.isend(&rank.to(0, 1), content(number(rank.me(), n), LEN)));
            }
            rank.barrier();
            // Rank 0 is in the library and has received nothing.
            let waiting = sends
                .iter()
                .filter(|s| !device.is_complete(s.request))
                .count();
            rank.barrier();
            for pending in sends {
                rank.done(pending);
            }
            // A library below the device decides by itself how much it keeps.
            let native = device.attributes().caps.contains(Caps::NATIVE_MATCHING);
            assert!(
                native || waiting > MANY / 2,
                "only {waiting} of {MANY} messages waited here"
            );
        } else {
            rank.barrier();
            rank.barrier();
            for n in 0..MANY {
                for sender in 1..ranks {
                    let (_, bytes) = rank.take(&rank.from(sender, 1), LEN);
                    check(
                        &bytes,
                        number(sender, n),
                        &format!("message {n} of rank {sender}"),
                    );
                }
            }
        }
    });
    Ok(())
}

/// With a packet size of zero, every message is announced first; all still arrive.
pub fn tiny_packets<S: Sut>(ranks: u32) -> Verdict {
    for eager in ["0", "1", "64"] {
        let job = Job::new(ranks).set("EAGER_MAX", eager);
        S::run(&job, |device| exchange(&Rank::new(device, 0)));
    }
    Ok(())
}

fn exchange<D: Device>(rank: &Rank<'_, D>) {
    for (tag, len) in [0, 1, 63, 64, 65, 1000, 100_000].into_iter().enumerate() {
        let received = rank.irecv(&rank.from(rank.previous(), tag as u32), len);
        let sent = rank.isend(&rank.to(rank.next(), tag as u32), content(tag as u64, len));
        check(&rank.done(received).1, tag as u64, &format!("{len} bytes"));
        rank.done(sent);
    }
}
