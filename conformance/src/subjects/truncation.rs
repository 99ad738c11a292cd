//! Messages that are longer than their buffer: the rest is lost, and the error says so.

use portolan_core::{Device, Error, ErrorKind};
use portolan_datatype::Layout;

use crate::bytes::{check, content};
use crate::case::Verdict;
use crate::rank::Rank;

/// Sent and received lengths of each protocol.
fn lengths<D: Device>(rank: &Rank<'_, D>) -> [(usize, usize); 7] {
    let long = rank.long();
    [
        (1, 0),
        (8, 3),
        (1000, 999),
        (long, 0),
        (long, 1),
        (long, 1000),
        (long, long - 1),
    ]
}

/// Asserts that the error says how much arrived, how much was sent and by which rank.
#[track_caller]
fn says<D: Device>(rank: &Rank<'_, D>, error: &Error, tag: u32, sent: usize, room: usize) {
    assert_eq!(error.kind(), ErrorKind::Truncated, "{error}");
    let status = error.status().expect("the status of a truncated receive");
    assert_eq!(
        (status.source, status.tag),
        (rank.previous(), tag),
        "{error}"
    );
    assert_eq!(
        (status.bytes, status.sent),
        (room as u64, sent as u64),
        "{error}"
    );
    assert_eq!(status.error, Some(ErrorKind::Truncated));
    let text = error.to_string();
    assert!(
        text.contains(&sent.to_string()),
        "does not name the length: {text}"
    );
}

/// Blocking receives; the next message is not affected.
pub fn blocking<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for (sent, room) in lengths(rank) {
        let long = rank.isend(&rank.to(rank.next(), 1), content(1, sent));
        let next = rank.isend(&rank.to(rank.next(), 1), content(2, sent));
        let mut bytes = vec![0xee; room + 64];
        let outcome = rank.recv(&rank.from(rank.previous(), 1), &mut bytes[..room]);
        says(
            rank,
            &outcome.expect_err("a message longer than its buffer"),
            1,
            sent,
            room,
        );
        check(&bytes[..room], 1, "what fits");
        assert!(
            bytes[room..].iter().all(|&byte| byte == 0xee),
            "written behind the buffer"
        );
        check(
            &rank.take(&rank.from(rank.previous(), 1), sent).1,
            2,
            "the next message",
        );
        rank.done(long);
        rank.done(next);
    }
    Ok(())
}

/// Nonblocking receives, posted before the message arrives: the completion returns the error.
pub fn nonblocking<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for (sent, room) in lengths(rank) {
        let short = rank.irecv(&rank.from(None, 1), room);
        let next = rank.irecv(&rank.from(None, 1), sent);
        rank.barrier();
        let sends = [1, 2].map(|seed| rank.isend(&rank.to(rank.next(), 1), content(seed, sent)));
        let (outcome, bytes) = rank.finish(short);
        says(
            rank,
            &outcome.expect_err("a message longer than its buffer"),
            1,
            sent,
            room,
        );
        check(&bytes, 1, "what fits");
        check(&rank.done(next).1, 2, "the next message");
        for pending in sends {
            let (status, _) = rank.done(pending);
            assert_eq!(status.error, None, "truncation is the receiver's error");
        }
    }
    Ok(())
}

/// Layouts are filled as far as the message goes.
pub fn layouts<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let pairs = Layout::vector(2, 1, 2, &Layout::of::<u8>()).expect("a vector");
    for count in [3_usize, rank.long() / 2] {
        let sent = rank.isend(&rank.to(rank.next(), 1), content(1, 2 * count + 5));
        let mut memory = vec![0xee; 3 * count];
        let outcome = rank.recv_typed(
            &rank.from(rank.previous(), 1),
            &pairs,
            count,
            &mut memory,
            0,
        );
        says(
            rank,
            &outcome.expect_err("a longer message"),
            1,
            2 * count + 5,
            2 * count,
        );
        let expected = content(1, 2 * count);
        for item in 0..count {
            let found = &memory[3 * item..3 * item + 3];
            assert_eq!(
                found,
                [expected[2 * item], 0xee, expected[2 * item + 1]],
                "item {item}"
            );
        }
        rank.done(sent);
    }
    Ok(())
}
