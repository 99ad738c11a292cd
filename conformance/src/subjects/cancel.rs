//! Cancelling is a request, whose outcome the status reports.

use portolan_core::device::Caps;
use portolan_core::{Device, SendMode};

use crate::bytes::{check, content};
use crate::case::Verdict;
use crate::rank::Rank;

/// A receive that nothing matches is cancelled, and takes no later message.
pub fn receive<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let local = rank.device.attributes().caps.contains(Caps::CANCEL_LOCAL);
    for pattern in [
        rank.from(rank.previous(), 1),
        rank.from(None, 1),
        rank.from(None, None),
    ] {
        let cancelled = rank.irecv(&pattern, 8);
        rank.device.cancel(cancelled.request).expect("cancel");
        if local {
            assert!(
                rank.device.is_complete(cancelled.request),
                "not inside the call"
            );
        }
        let (status, bytes) = rank.done(cancelled);
        assert!(status.cancelled && status.bytes == 0, "{status:?}");
        assert!(
            bytes.iter().all(|&byte| byte == 0xee),
            "written though cancelled"
        );
        rank.barrier();
        rank.send(&rank.to(rank.next(), 1), b"not lost")
            .expect("a small send");
        assert_eq!(rank.take(&rank.from(rank.previous(), 1), 8).1, b"not lost");
    }
    Ok(())
}

/// A receive that has its message is not cancelled, which is no error.
pub fn matched_receive<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for len in [3, 5000, rank.long()] {
        let received = rank.irecv(&rank.from(rank.previous(), 1), len);
        let sent = rank.isend(&rank.to(rank.next(), 1), content(1, len));
        rank.until(|| rank.device.is_complete(received.request));
        rank.device
            .cancel(received.request)
            .expect("cancelling too late is not an error");
        let (status, bytes) = rank.done(received);
        assert!(
            !status.cancelled && status.bytes == len as u64,
            "{status:?}"
        );
        check(&bytes, 1, "a receive cancelled too late");
        rank.done(sent);
    }
    Ok(())
}

/// Cancelling every second of many receives leaves the others in order.
pub fn receive_among_many<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let receives: Vec<_> = (0..400)
        .map(|n| {
            let source = (n % 3 == 0).then(|| rank.previous());
            rank.irecv(&rank.from(source, 1), 4)
        })
        .collect();
    for pending in receives.iter().skip(1).step_by(2) {
        rank.device.cancel(pending.request).expect("cancel");
    }
    rank.barrier();
    for number in 0..200_u32 {
        rank.send(&rank.to(rank.next(), 1), &number.to_le_bytes())
            .expect("a small send");
    }
    for (n, pending) in receives.into_iter().enumerate() {
        let (status, bytes) = rank.done(pending);
        assert_eq!(status.cancelled, n % 2 == 1, "receive {n}");
        if !status.cancelled {
            assert_eq!(bytes, (n as u32 / 2).to_le_bytes(), "receive {n}");
        }
    }
    Ok(())
}

/// A send is cancelled or it is received, never both and never neither.
pub fn send<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for (len, mode) in [
        (8, SendMode::Standard),
        (8, SendMode::Synchronous),
        (rank.long(), SendMode::Standard),
        (rank.long(), SendMode::Synchronous),
    ] {
        let sent = rank.isend(&rank.to(rank.next(), 1).mode(mode), content(1, len));
        rank.device.cancel(sent.request).expect("cancel");
        // A synchronous send that was not cancelled needs its receive to complete.
        let early = rank.irecv(&rank.from(rank.previous(), 1), len);
        let second = rank.isend(&rank.to(rank.next(), 1), content(2, len));
        let (status, _) = rank.done(sent);
        let cancelled = u8::from(status.cancelled);
        let all = rank.all_gather(&[cancelled]);
        let (_, bytes) = rank.done(early);
        if all[rank.previous() as usize] == [1] {
            check(&bytes, 2, "the message after a cancelled one");
        } else {
            check(&bytes, 1, "a message that was not cancelled");
            check(
                &rank.take(&rank.from(rank.previous(), 1), len).1,
                2,
                "the next message",
            );
        }
        rank.done(second);
        rank.barrier();
    }
    Ok(())
}
