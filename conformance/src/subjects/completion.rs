//! Completing several requests at once, of every kind.

use portolan_core::device::Upper;
use portolan_core::{Adi, Device, ErrorKind, Request, Status};

use crate::bytes::{check, content};
use crate::case::Verdict;
use crate::pending::Pending;
use crate::rank::Rank;

/// The simplest request of another crate's kind.
struct Bare;

impl Upper for Bare {}

fn requests(pending: &[Pending]) -> Vec<Request> {
    pending.iter().map(|pending| pending.request).collect()
}

/// One by one, in order of completion, with receives, sends and a request of another crate's kind.
pub fn wait_any<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let lengths = [4, 1000, rank.long(), 0];
    let mut pending: Vec<_> = (0..)
        .zip(lengths)
        .map(|(tag, len)| rank.irecv(&rank.from(rank.previous(), tag), len))
        .collect();
    for (tag, len) in (0..).zip(lengths).collect::<Vec<_>>().into_iter().rev() {
        pending.push(rank.isend(&rank.to(rank.next(), tag), content(u64::from(tag), len)));
    }
    let upper = rank
        .device
        .upper_request(Box::new(Bare))
        .expect("a request");
    let mut active = requests(&pending);
    active.push(upper);
    for _ in 0..pending.len() {
        let (which, outcome) = rank.device.wait_any(&active).expect("requests are left");
        let status = outcome.expect("a success");
        if which < lengths.len() {
            assert_eq!(
                (status.tag as usize, status.bytes),
                (which, lengths[which] as u64)
            );
        }
        assert_ne!(which, pending.len(), "nobody has completed the last one");
        active[which] = Request::NULL;
    }
    rank.device
        .complete_upper(upper, Status::received(1, 2, 3))
        .expect("completing it");
    let (which, outcome) = rank.device.wait_any(&active).expect("one is left");
    assert_eq!(
        (which, outcome.expect("a success").bytes),
        (pending.len(), 3)
    );
    active[which] = Request::NULL;
    assert!(
        rank.device.wait_any(&active).is_none(),
        "only null requests are left"
    );
    assert!(rank.device.wait_any(&[]).is_none());
    for (number, pending) in pending.into_iter().enumerate() {
        let bytes = rank.reclaim(pending);
        if number < lengths.len() {
            check(&bytes, number as u64, "received through wait_any");
        }
    }
    Ok(())
}

/// All, in the order of the list, null requests included.
pub fn wait_all<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let lengths = [4, rank.long(), 0, 500];
    let receives: Vec<_> = (0..)
        .zip(lengths)
        .map(|(tag, len)| rank.irecv(&rank.from(None, tag), len))
        .collect();
    let sends: Vec<_> = (0..)
        .zip(lengths)
        .map(|(tag, len)| rank.isend(&rank.to(rank.next(), tag), content(u64::from(tag), len)))
        .collect();
    let mut all = requests(&receives);
    all.push(Request::NULL);
    all.extend(requests(&sends));
    let outcomes = rank.device.wait_all(&all);
    assert_eq!(outcomes.len(), all.len());
    for (tag, (outcome, len)) in outcomes.iter().zip(lengths).enumerate() {
        let status = outcome.as_ref().expect("a success");
        assert_eq!((status.tag as usize, status.bytes), (tag, len as u64));
    }
    assert_eq!(
        *outcomes[lengths.len()].as_ref().expect("a success"),
        Status::EMPTY
    );
    for (tag, pending) in (0..).zip(receives) {
        check(&rank.reclaim(pending), tag, "received through wait_all");
    }
    for pending in sends {
        rank.reclaim(pending);
    }
    Ok(())
}

/// Some at a time, until none are left.
pub fn wait_some<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    const MANY: u32 = 50;
    let receives: Vec<_> = (0..MANY)
        .map(|tag| rank.irecv(&rank.from(None, tag), rank.long()))
        .collect();
    let sends: Vec<_> = (0..MANY)
        .rev()
        .map(|tag| {
            let len = if tag % 10 == 0 {
                rank.long()
            } else {
                tag as usize
            };
            rank.isend(&rank.to(rank.next(), tag), content(u64::from(tag), len))
        })
        .collect();
    let mut active = requests(&receives);
    let mut left = MANY;
    while left > 0 {
        let done = rank.device.wait_some(&active);
        assert!(
            !done.is_empty(),
            "returned though {left} requests are active"
        );
        for (which, outcome) in done {
            assert_eq!(outcome.expect("a success").tag as usize, which);
            active[which] = Request::NULL;
            left -= 1;
        }
    }
    assert!(rank.device.wait_some(&active).is_empty());
    for pending in receives {
        rank.reclaim(pending);
    }
    for pending in sends {
        rank.done(pending);
    }
    Ok(())
}

/// Testing several does not wait.
pub fn test_any_and_all<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let receives: Vec<_> = (0..3)
        .map(|tag| rank.irecv(&rank.from(None, tag), 4))
        .collect();
    let active = requests(&receives);
    for _ in 0..10 {
        assert!(rank.device.test_any(&active).is_none());
        assert!(rank.device.test_some(&active).is_empty());
    }
    rank.barrier();
    for tag in [2, 0, 1] {
        rank.send(&rank.to(rank.next(), tag), &tag.to_le_bytes())
            .expect("a small send");
    }
    let mut done = Vec::new();
    rank.until(|| {
        let found = rank.device.test_some(&active).into_iter();
        done.extend(
            found
                .filter(|(_, outcome)| outcome.is_ok())
                .map(|(which, _)| which),
        );
        done.len() >= 3
    });
    done.sort_unstable();
    assert_eq!(done, [0, 1, 2]);
    for pending in receives {
        rank.reclaim(pending);
    }
    Ok(())
}

/// One error among several outcomes does not lose the others.
pub fn errors_in_wait_all<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let rooms = [4, 1, 4];
    let receives: Vec<_> = (0..)
        .zip(rooms)
        .map(|(tag, room)| rank.irecv(&rank.from(None, tag), room))
        .collect();
    rank.barrier();
    for tag in 0..3_u32 {
        rank.send(&rank.to(rank.next(), tag), &tag.to_le_bytes())
            .expect("a small send");
    }
    let outcomes = rank.device.wait_all(&requests(&receives));
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    let error = outcomes[1]
        .as_ref()
        .expect_err("a message longer than its buffer");
    assert_eq!(error.kind(), ErrorKind::Truncated, "{error}");
    for (tag, pending) in (0..3_u32).zip(receives) {
        let bytes = rank.reclaim(pending);
        assert_eq!(bytes, tag.to_le_bytes()[..bytes.len()]);
    }
    Ok(())
}
