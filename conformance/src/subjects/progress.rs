//! `device_check` and its guarantee.

use portolan_core::Device;
use portolan_core::device::Check;

use crate::bytes::{check, content};
use crate::case::Verdict;
use crate::rank::Rank;

/// The epoch moves when a request completes, and stays when none does.
pub fn epoch<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    // Messages to oneself: no other rank influences when they complete.
    let received = rank.irecv(&rank.from(rank.me(), 1), 8);
    let before = rank.device.completion_epoch();
    rank.progress();
    assert_eq!(
        rank.device.completion_epoch(),
        before,
        "nothing completed, but the epoch moved"
    );
    rank.send(&rank.to(rank.me(), 1), &[1; 8])
        .expect("a small send");
    rank.until(|| rank.device.is_complete(received.request));
    assert_ne!(
        rank.device.completion_epoch(),
        before,
        "a completion did not move the epoch"
    );
    rank.done(received);
    Ok(())
}

/// A blocking check returns at once if the epoch has moved, and otherwise when something completes.
pub fn blocking_check<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let first = rank.irecv(&rank.from(rank.me(), 1), 8);
    let old = rank.device.completion_epoch();
    rank.send(&rank.to(rank.me(), 1), &[1; 8])
        .expect("a small send");
    rank.until(|| rank.device.is_complete(first.request));
    // This would wait for ever if it did not look at the epoch first.
    rank.device
        .device_check(Check::Blocking(old))
        .expect("a check that has reason to return");
    rank.done(first);
    Ok(())
}

/// The paper's loop: read the epoch, test, block. No completion is missed, over many rounds.
pub fn no_lost_wakeups<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for round in 0..500_u32 {
        let len = if round % 50 == 49 { rank.long() } else { 4 };
        let received = rank.irecv(&rank.from(rank.previous(), 1), len);
        let sent = rank.isend(&rank.to(rank.next(), 1), content(u64::from(round), len));
        for request in [received.request, sent.request] {
            loop {
                let epoch = rank.device.completion_epoch();
                if rank.device.test(request).expect("test").is_some() {
                    break;
                }
                rank.device
                    .device_check(Check::Blocking(epoch))
                    .expect("a blocking check");
            }
        }
        check(
            &rank.reclaim(received),
            u64::from(round),
            "a tested receive",
        );
        rank.reclaim(sent);
    }
    Ok(())
}

/// A rank that is blocked in a receive serves the other ranks meanwhile.
pub fn blocked_while_others_talk<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    // Each rank in turn is the last to be released.
    for sleeper in 0..rank.size() {
        let sent: Vec<_> = (0..rank.size())
            .map(|peer| rank.isend(&rank.to(peer, 1), content(2, rank.long())))
            .collect();
        let receives: Vec<_> = (0..rank.size())
            .map(|peer| rank.irecv(&rank.from(peer, 1), rank.long()))
            .collect();
        if rank.me() == sleeper {
            let releasers = if rank.size() == 1 { 1 } else { rank.size() - 1 };
            if rank.size() == 1 {
                rank.send(&rank.to(sleeper, 2), &[]).expect("a release");
            }
            for _ in 0..releasers {
                rank.take(&rank.from(None, 2), 0);
            }
        }
        for (pending, peer) in receives.into_iter().zip(0..) {
            check(&rank.done(pending).1, 2, &format!("from rank {peer}"));
        }
        for pending in sent {
            if rank.me() != sleeper {
                rank.done(pending);
            } else {
                rank.finish(pending).0.expect("a send");
            }
        }
        if rank.me() != sleeper {
            rank.send(&rank.to(sleeper, 2), &[]).expect("a release");
        }
    }
    Ok(())
}
