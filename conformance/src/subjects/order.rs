//! Messages of a pair do not overtake each other (MPI-4 section 3.5).

use portolan_core::transport::decorate::Random;
use portolan_core::{Device, SendMode};

use crate::bytes::{check, content};
use crate::case::Verdict;
use crate::pending::Pending;
use crate::rank::Rank;

/// Messages per sender.
const MESSAGES: usize = 300;

/// A random size, of any protocol.
fn any_size(random: &mut Random, eager_max: usize, long: usize) -> usize {
    let eager = eager_max as u64;
    match random.below(8) {
        0..=2 => random.below(65) as usize,
        3..=5 => random.below(eager + 1) as usize,
        6 => (eager + random.below(3)) as usize,
        _ => long + random.below(4096) as usize,
    }
}

/// The sizes of a sender's messages, in order; both sides can compute them.
fn plan<D: Device>(rank: &Rank<'_, D>, sender: u32) -> Vec<usize> {
    let mut random = Random::new(1000 + u64::from(sender));
    (0..MESSAGES)
        .map(|_| any_size(&mut random, rank.eager_max(), rank.long()))
        .collect()
}

fn seed_of(sender: u32, number: usize) -> u64 {
    u64::from(sender) << 20 | number as u64
}

/// All other ranks flood rank 0, which receives with wildcards.
pub fn across_sizes<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    if rank.me() != 0 || rank.size() == 1 {
        let sends: Vec<_> = plan(rank, rank.me())
            .into_iter()
            .enumerate()
            .map(|(n, len)| rank.isend(&rank.to(0, 5), content(seed_of(rank.me(), n), len)))
            .collect();
        if rank.size() == 1 {
            collect(rank, &[0]);
        }
        for pending in sends {
            rank.done(pending);
        }
    } else {
        let senders: Vec<_> = (1..rank.size()).collect();
        collect(rank, &senders);
    }
    Ok(())
}

/// Receives all messages that `senders` planned, each sender's in order.
fn collect<D: Device>(rank: &Rank<'_, D>, senders: &[u32]) {
    let plans: Vec<_> = (0..rank.size()).map(|sender| plan(rank, sender)).collect();
    let mut next = vec![0; rank.size() as usize];
    let longest = rank.long() + 4096;
    for _ in 0..MESSAGES * senders.len() {
        let (status, bytes) = rank.take(&rank.from(None, 5), longest);
        let sender = status.source as usize;
        let number = next[sender];
        next[sender] += 1;
        assert_eq!(
            bytes.len(),
            plans[sender][number],
            "message {number} of rank {sender}"
        );
        check(
            &bytes,
            seed_of(status.source, number),
            &format!("message {number} of {sender}"),
        );
    }
    assert!(
        senders
            .iter()
            .all(|&sender| next[sender as usize] == MESSAGES)
    );
}

/// Nonblocking on both sides, waited for in reverse order.
pub fn nonblocking_across_sizes<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let longest = rank.long() + 4096;
    let receives: Vec<_> = (0..MESSAGES)
        .map(|_| rank.irecv(&rank.from(rank.previous(), None), longest))
        .collect();
    let sends: Vec<_> = plan(rank, rank.me())
        .into_iter()
        .enumerate()
        .map(|(n, len)| {
            rank.isend(
                &rank.to(rank.next(), n as u32),
                content(seed_of(rank.me(), n), len),
            )
        })
        .collect();
    for pending in sends.into_iter().rev() {
        rank.done(pending);
    }
    let plan = plan(rank, rank.previous());
    for (number, pending) in receives.into_iter().enumerate().rev() {
        let (status, bytes) = rank.done(pending);
        assert_eq!(
            (status.tag as usize, status.bytes as usize),
            (number, plan[number])
        );
        check(
            &bytes[..plan[number]],
            seed_of(rank.previous(), number),
            "a message",
        );
    }
    Ok(())
}

/// Bursts of short messages that are started with nothing in between, to two ranks alternately,
/// with their receives posted before or after. What is started after a burst does not overtake it:
/// a long message, one whose sender waits for its receive, and a call that returns when its message
/// has left.
pub fn bursts<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for (round, messages) in [2, 16, 17, 40, 200].into_iter().enumerate() {
        let mut receives = Vec::new();
        let posted_before = round % 2 == 0;
        if posted_before {
            receives = post_burst(rank, messages);
        }
        let mut numbers = [0; 2];
        let mut sends: Vec<_> = (0..messages)
            .map(|n| {
                let back = usize::from(n % 3 == 0);
                let to = rank.to([rank.next(), rank.previous()][back], back as u32);
                let number = numbers[back];
                numbers[back] += 1;
                rank.isend(&to, content(number as u64, length_in_burst(number)))
            })
            .collect();
        let (ahead, number) = (rank.to(rank.next(), 0), numbers[0] as u64);
        sends.push(rank.isend(&ahead, content(number, rank.long())));
        let synchronous = ahead.mode(SendMode::Synchronous);
        sends.push(rank.isend(&synchronous, content(number + 1, 8)));
        let last = content(number + 2, 8);
        if posted_before {
            rank.send(&ahead, &last).expect("a small send");
        } else {
            sends.push(rank.isend(&ahead, last));
            receives = post_burst(rank, messages);
        }
        for (pending, number, len) in receives {
            let (status, bytes) = rank.done(pending);
            assert_eq!(status.bytes, len as u64, "{number} of {messages}");
            check(&bytes, number, "a message of a burst");
        }
        for pending in sends {
            rank.done(pending);
        }
        rank.barrier();
    }
    Ok(())
}

fn length_in_burst(number: usize) -> usize {
    number * 37 % 501
}

/// Posts receives for a burst of so many messages, each with its number in the order and its
/// length.
fn post_burst<D: Device>(rank: &Rank<'_, D>, messages: usize) -> Vec<(Pending, u64, usize)> {
    let back = messages.div_ceil(3);
    let of_burst = |count: usize| (0..count).map(length_in_burst);
    let ahead = of_burst(messages - back).chain([rank.long(), 8, 8]);
    let expected: [(u32, Vec<usize>); 2] = [
        (rank.previous(), ahead.collect()),
        (rank.next(), of_burst(back).collect()),
    ];
    let mut posted = Vec::new();
    for ((source, lens), tag) in expected.into_iter().zip(0..) {
        for (len, number) in lens.into_iter().zip(0..) {
            posted.push((rank.irecv(&rank.from(source, tag), len), number, len));
        }
    }
    posted
}

/// Receives that all match are served in the order in which they were posted.
pub fn posted_receives<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let receives: Vec<_> = (0..100)
        .map(|n| {
            let source = (n % 3 != 0).then(|| rank.previous());
            let tag = (n % 2 == 0).then_some(9);
            rank.irecv(&rank.from(source, tag), 8)
        })
        .collect();
    rank.barrier();
    for number in 0..100_u64 {
        rank.send(&rank.to(rank.next(), 9), &number.to_le_bytes())
            .expect("a small send");
    }
    for (number, pending) in (0..100_u64).zip(receives) {
        assert_eq!(rank.done(pending).1, number.to_le_bytes());
    }
    Ok(())
}

/// Tags select among waiting messages, in any order; within a tag, order is kept.
pub fn tags_choose<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let mut sends = Vec::new();
    for number in 0..5_u8 {
        for tag in 0..20 {
            let len = if tag % 5 == 4 { rank.long() } else { 50 };
            sends.push(rank.isend(&rank.to(rank.next(), tag), vec![number; len]));
        }
    }
    for tag in (0..20).rev() {
        for number in 0..5_u8 {
            let (_, bytes) = rank.take(&rank.from(rank.previous(), tag), rank.long());
            assert!(
                bytes.iter().all(|&byte| byte == number),
                "tag {tag}: not number {number}"
            );
        }
    }
    for pending in sends {
        rank.done(pending);
    }
    Ok(())
}

/// Of a wildcard and an exact receive, the one that was posted first gets the first message.
pub fn wildcards_and_exact<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let patterns = [
        rank.from(None, None),
        rank.from(rank.previous(), 1),
        rank.from(None, 1),
        rank.from(rank.previous(), None),
    ];
    for first in 0..4 {
        let receives: Vec<_> = (0..4)
            .map(|n| rank.irecv(&patterns[(first + n) % 4], 1))
            .collect();
        rank.barrier();
        for number in 0..4 {
            rank.send(&rank.to(rank.next(), 1), &[number])
                .expect("a small send");
        }
        for (number, pending) in (0..4_u8).zip(receives) {
            assert_eq!(
                rank.done(pending).1,
                [number],
                "starting with pattern {first}"
            );
        }
    }
    Ok(())
}
