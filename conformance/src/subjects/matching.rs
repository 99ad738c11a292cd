//! Which messages match which receives.

use portolan_core::Device;

use crate::bytes::{check, content};
use crate::case::Verdict;
use crate::rank::Rank;

/// The four kinds of pattern find the right message, and the status describes it.
pub fn wildcards<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for (source, tag) in [
        (Some(rank.previous()), Some(6)),
        (None, Some(6)),
        (Some(rank.previous()), None),
        (None, None),
    ] {
        for len in [0, 10, rank.long()] {
            let sent = rank.isend(&rank.to(rank.next(), 6), content(6, len));
            let (status, bytes) = rank.take(&rank.from(source, tag), len);
            assert_eq!((status.source, status.tag), (rank.previous(), 6));
            assert_eq!(bytes.len(), len);
            check(&bytes, 6, "a message for a wildcard");
            rank.done(sent);
        }
    }
    Ok(())
}

/// A message of one context is not seen by receives of another, wildcards or not.
pub fn contexts<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let receives: Vec<_> = (0..8)
        .map(|n| {
            let mut pattern = rank.from(None, None);
            pattern.context = rank.context(n);
            rank.irecv(&pattern, 4)
        })
        .collect();
    rank.barrier();
    for n in (0..8).rev() {
        let mut args = rank.to(rank.next(), 0);
        args.envelope.context = rank.context(n);
        rank.send(&args, &n.to_le_bytes()).expect("a small send");
    }
    for (n, pending) in (0..8_u32).zip(receives) {
        assert_eq!(rank.done(pending).1, n.to_le_bytes(), "context {n}");
    }
    Ok(())
}

/// A rank can send to itself, with send or receive first, in every size.
pub fn to_oneself<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let me = rank.me();
    for (len, tag) in [0, 1, 100, rank.eager_max(), rank.long(), 1 << 20]
        .into_iter()
        .zip(0..)
    {
        let received = rank.irecv(&rank.from(me, tag), len);
        let sent = rank.isend(&rank.to(me, tag), content(1, len));
        let (status, bytes) = rank.done(received);
        assert_eq!((status.source, status.bytes), (me, len as u64));
        check(&bytes, 1, "expected from oneself");
        rank.done(sent);

        let sent = rank.isend(&rank.to(me, tag), content(2, len));
        let (status, bytes) = rank.take(&rank.from(None, tag), len);
        assert_eq!((status.source, status.bytes), (me, len as u64));
        check(&bytes, 2, "unexpected from oneself");
        rank.done(sent);
    }
    Ok(())
}

/// The smallest and largest tag are tags like any other.
pub fn extreme_tags<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let largest = rank.device.attributes().tag_ub;
    let tags = [0, 1, 32767, largest / 2, largest - 1, largest];
    for tag in tags {
        rank.send(&rank.to(rank.next(), tag), &tag.to_le_bytes())
            .expect("a small send");
    }
    for tag in tags.into_iter().rev() {
        let (status, bytes) = rank.take(&rank.from(rank.previous(), tag), 4);
        assert_eq!(
            (status.tag, bytes.as_slice()),
            (tag, tag.to_le_bytes().as_slice())
        );
    }
    Ok(())
}

/// A message may be shorter than the buffer: the rest of it is not touched.
pub fn shorter_messages<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for len in [0, 5, 1000, rank.long()] {
        let received = rank.irecv(&rank.from(rank.previous(), 2), len + 100);
        let sent = rank.isend(&rank.to(rank.next(), 2), content(3, len));
        let (status, bytes) = rank.done(received);
        assert_eq!((status.bytes, status.sent), (len as u64, len as u64));
        check(&bytes[..len], 3, "a shorter message");
        assert!(
            bytes[len..].iter().all(|&byte| byte == 0xee),
            "bytes behind {len} were touched"
        );
        rank.done(sent);
    }
    Ok(())
}
