//! Types that do not match are errors, and only those.

use portolan_core::{Device, ErrorKind};
use portolan_datatype::{Layout, Primitive, Signature};

use crate::bytes::content;
use crate::case::Verdict;
use crate::rank::Rank;

/// A different primitive is a mismatch, in every protocol; the next message arrives as usual.
pub fn mismatch<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let doubles = Signature::homogeneous(Primitive::F64);
    let longs = Signature::homogeneous(Primitive::I64);
    for len in [8, 1000, rank.long() & !7] {
        for posted_first in [false, true] {
            let from = rank.from(rank.previous(), 1);
            let early = posted_first.then(|| rank.irecv_signed(&from, len, longs));
            rank.barrier();
            let to = rank.to(rank.next(), 1);
            let wrong = rank.isend_signed(&to, content(1, len), doubles);
            let right = rank.isend_signed(&to, content(2, len), longs);
            let pending = early.unwrap_or_else(|| rank.irecv_signed(&from, len, longs));
            let error = rank
                .finish(pending)
                .0
                .expect_err("doubles received as integers");
            assert_eq!(error.kind(), ErrorKind::TypeMismatch, "{error}");
            let pending = rank.irecv_signed(&from, len, longs);
            assert_eq!(rank.done(pending).1, content(2, len), "the next message");
            rank.done(wrong);
            rank.done(right);
        }
    }
    Ok(())
}

/// Bytes match everything, on either side; an empty message matches everything too.
pub fn bytes_match_everything<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let doubles = Signature::homogeneous(Primitive::F64);
    let longs = Signature::homogeneous(Primitive::I64);
    let pairs = [
        (doubles, Signature::ANY, 64),
        (Signature::ANY, longs, 64),
        (doubles, doubles, 64),
    ];
    for (sent, received, len) in pairs {
        let pending = rank.isend_signed(&rank.to(rank.next(), 1), content(1, len), sent);
        let receive = rank.irecv_signed(&rank.from(rank.previous(), 1), len, received);
        assert_eq!(rank.done(receive).1, content(1, len));
        rank.done(pending);
    }
    let empty = Layout::of::<f64>();
    rank.send_typed(&rank.to(rank.next(), 2), &empty, 0, &[], 0)
        .expect("no doubles");
    let receive = rank.irecv_signed(&rank.from(rank.previous(), 2), 8, longs);
    assert_eq!(rank.done(receive).0.bytes, 0);
    Ok(())
}

/// A structure matches the same sequence of primitives, however it is laid out, and a prefix of a
/// longer sequence; it does not match a different one.
pub fn mixed_types<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let (int, double) = (Layout::of::<i32>(), Layout::of::<f64>());
    let spread =
        Layout::structure(&[1, 1], &[0, 8], &[int.clone(), double.clone()]).expect("spread");
    let backwards =
        Layout::structure(&[1, 1], &[8, 0], &[int.clone(), double.clone()]).expect("backwards");
    let other = Layout::structure(&[1, 1], &[0, 8], &[double, int]).expect("other");
    let from = rank.from(rank.previous(), 1);
    for count in [1, 3, rank.long() / 12] {
        // More room than the message needs: the receiver's type is compared only as far as the
        // message goes.
        let room = count + 2;
        for (layout, fits) in [(&spread, true), (&backwards, true), (&other, false)] {
            let memory = content(3, 16 * count);
            let sent = rank.isend_typed(&rank.to(rank.next(), 1), &spread, count, memory, 0);
            let mut target = vec![0; 16 * room];
            let outcome = rank.recv_typed(&from, layout, room, &mut target, 0);
            match (outcome, fits) {
                (Ok(status), true) => assert_eq!(status.bytes, 12 * count as u64),
                (Err(error), false) => {
                    assert_eq!(error.kind(), ErrorKind::TypeMismatch, "{error}");
                }
                (outcome, _) => panic!("{count} items: {outcome:?}, fits: {fits}"),
            }
            rank.done(sent);
        }
    }
    Ok(())
}
