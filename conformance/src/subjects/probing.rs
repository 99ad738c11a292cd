//! Probes, matched probes and the handles they give.

use portolan_core::{Device, ErrorKind};

use crate::bytes::{check, content};
use crate::case::Verdict;
use crate::rank::{Rank, fails};

/// A probe where no message can come finds none.
pub fn nothing_there<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for pattern in [rank.from(None, None), rank.from(rank.previous(), 1)] {
        for _ in 0..50 {
            assert_eq!(
                rank.device.iprobe_unchecked(&pattern).expect("iprobe"),
                None
            );
            assert_eq!(
                rank.device.improbe_unchecked(&pattern).expect("improbe"),
                None
            );
        }
    }
    rank.barrier(); // no rank goes on and sends before every rank has looked
    Ok(())
}

/// A probe tells what a receive will get, however often it is repeated, and takes nothing.
pub fn probe_keeps_the_message<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for len in [0, 9, 2000, rank.long()] {
        let sent = rank.isend(&rank.to(rank.next(), 4), content(4, len));
        let pattern = rank.from(rank.previous(), 4);
        let status = rank.device.probe_unchecked(&pattern).expect("probe");
        assert_eq!((status.source, status.tag), (rank.previous(), 4));
        assert_eq!((status.bytes, status.sent), (len as u64, len as u64));
        for _ in 0..3 {
            let again = rank.device.iprobe_unchecked(&pattern).expect("iprobe");
            assert_eq!(again, Some(status));
        }
        let (status, bytes) = rank.take(&pattern, len);
        assert_eq!(status.bytes, len as u64);
        check(&bytes, 4, "a probed message");
        assert_eq!(
            rank.device.iprobe_unchecked(&pattern).expect("iprobe"),
            None
        );
        rank.done(sent);
        rank.barrier(); // the next message must not come before every rank has looked
    }
    Ok(())
}

/// Among several messages, a probe sees the one that a receive with its pattern would get.
pub fn probe_sees_the_earliest<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for (tag, len) in [(3, 30), (2, 20), (3, 31), (1, 10)] {
        rank.send(&rank.to(rank.next(), tag), &content(5, len))
            .expect("a small send");
    }
    let previous = rank.previous();
    for (tag, seen, len) in [
        (None, 3, 30),
        (Some(1), 1, 10),
        (Some(3), 3, 30),
        (Some(2), 2, 20),
    ] {
        let status = rank
            .device
            .probe_unchecked(&rank.from(previous, tag))
            .expect("probe");
        assert_eq!(
            (status.tag, status.bytes),
            (seen, len),
            "probing for tag {tag:?}"
        );
    }
    for (tag, len) in [(3, 30), (2, 20), (3, 31), (1, 10)] {
        let (status, _) = rank.take(&rank.from(previous, None), 100);
        assert_eq!((status.tag, status.bytes), (tag, len));
    }
    Ok(())
}

/// A matched probe takes the message, which can be received later.
pub fn matched<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for len in [0, 9, 2000, rank.long()] {
        let sent = rank.isend(&rank.to(rank.next(), 4), content(7, len));
        let pattern = rank.from(None, 4);
        let (message, status) = rank.device.mprobe_unchecked(&pattern).expect("mprobe");
        assert_eq!((status.source, status.bytes), (rank.previous(), len as u64));
        let pending = rank.imrecv(message, len).expect("imrecv");
        let (status, bytes) = rank.done(pending);
        assert_eq!(
            (status.source, status.tag, status.bytes),
            (rank.previous(), 4, len as u64)
        );
        check(&bytes, 7, "a taken message");
        rank.done(sent);
    }
    Ok(())
}

/// No receive or probe sees a message that a matched probe took; and taken messages may be received
/// in any order.
pub fn taken_messages_are_gone<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for number in 0..3_u8 {
        rank.send(&rank.to(rank.next(), 1), &[number])
            .expect("a small send");
    }
    let pattern = rank.from(rank.previous(), None);
    let first = rank.device.mprobe_unchecked(&pattern).expect("mprobe").0;
    let second = rank.device.mprobe_unchecked(&pattern).expect("mprobe").0;
    assert_eq!(rank.take(&pattern, 1).1, [2]);
    assert_eq!(
        rank.device.iprobe_unchecked(&pattern).expect("iprobe"),
        None
    );
    for (message, number) in [(second, 1), (first, 0)] {
        let pending = rank.imrecv(message, 1).expect("imrecv");
        assert_eq!(rank.done(pending).1, [number]);
    }
    Ok(())
}

/// A discarded message counts as received: even a synchronous send of it completes.
pub fn discarded<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for len in [0, 10, rank.long()] {
        let args = rank
            .to(rank.next(), 8)
            .mode(portolan_core::SendMode::Synchronous);
        let sent = rank.isend(&args, content(8, len));
        let pattern = rank.from(rank.previous(), 8);
        let (message, _) = rank.device.mprobe_unchecked(&pattern).expect("mprobe");
        rank.device.discard(message).expect("discard");
        let (status, _) = rank.done(sent);
        assert!(!status.cancelled);
        fails(
            rank.device.discard(message),
            ErrorKind::InvalidRequest,
            "a second discard",
        );
        assert_eq!(
            rank.device.iprobe_unchecked(&pattern).expect("iprobe"),
            None
        );
        rank.barrier(); // the next message must not come before every rank has looked
    }
    Ok(())
}

/// A handle can be used for one receive only.
pub fn stale_messages<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let mut stale = Vec::new();
    for number in 0..20_u8 {
        rank.send(&rank.to(rank.next(), 2), &[number])
            .expect("a small send");
        let pattern = rank.from(rank.previous(), 2);
        let (message, _) = rank.device.mprobe_unchecked(&pattern).expect("mprobe");
        for &old in &stale {
            fails(
                rank.imrecv(old, 1),
                ErrorKind::InvalidRequest,
                "receiving a stale message",
            );
            fails(
                rank.device.discard(old),
                ErrorKind::InvalidRequest,
                "discarding it",
            );
        }
        let pending = rank.imrecv(message, 1).expect("imrecv");
        assert_eq!(rank.done(pending).1, [number]);
        stale.push(message);
    }
    Ok(())
}

/// Unknown numbers of messages from all ranks: probe, size the buffer, receive from that source.
pub fn wildcards<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let mut sends = Vec::new();
    for peer in 0..rank.size() {
        for number in 0..10_u32 {
            let len = if number == 7 {
                rank.long()
            } else {
                number as usize * 33
            };
            let seed = u64::from(rank.me()) * 100 + u64::from(number);
            sends.push(rank.isend(&rank.to(peer, number), content(seed, len)));
        }
    }
    let mut next = vec![0; rank.size() as usize];
    for _ in 0..10 * rank.size() {
        let status = rank
            .device
            .probe_unchecked(&rank.from(None, None))
            .expect("probe");
        let number = &mut next[status.source as usize];
        assert_eq!(status.tag, *number, "from rank {}", status.source);
        *number += 1;
        let exact = rank.from(status.source, status.tag);
        let (received, bytes) = rank.take(&exact, status.bytes as usize);
        assert_eq!(received, status);
        let seed = u64::from(status.source) * 100 + u64::from(status.tag);
        check(&bytes, seed, "a probed message");
    }
    for pending in sends {
        rank.done(pending);
    }
    Ok(())
}
