//! Active messages: handlers that run where the message arrives.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use portolan_core::device::{ActiveMessage, HandlerId, Port, Turn};
use portolan_core::{Device, ErrorKind, ProcId};

use crate::bytes::content;
use crate::case::Verdict;
use crate::rank::{Rank, fails};

/// A handler id of this case.
fn id<D: Device>(rank: &Rank<'_, D>, n: u32) -> HandlerId {
    HandlerId(HandlerId::OTHER + rank.unique(n))
}

/// Registers a handler that records the messages.
fn recorder<D: Device>(rank: &Rank<'_, D>, id: HandlerId) -> Arc<Mutex<Vec<Record>>> {
    let records = Arc::new(Mutex::new(Vec::new()));
    let target = Arc::clone(&records);
    let handler = move |_: &mut dyn Port, message: ActiveMessage<'_>| {
        let record = (message.from.index(), message.args, message.payload.to_vec());
        target.lock().expect("no handler panics").push(record);
    };
    rank.device
        .register_handler(id, Box::new(handler))
        .expect("registering a handler");
    records
}

/// Sender, arguments, payload.
type Record = (u32, [u64; 2], Vec<u8>);

/// Lengths of payloads that active messages can have.
fn lengths<D: Device>(rank: &Rank<'_, D>) -> Vec<usize> {
    let max = rank.device.attributes().active_max;
    let mut lengths = vec![0, 1, 7, 8, 64, 180, max / 2, max - 1, max];
    lengths.retain(|&len| len <= max);
    lengths
}

/// Messages between two ranks arrive once, whole and in order.
pub fn order<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let rounds = rank.many(60, 10) as usize;
    let (id, lengths) = (id(rank, 0), lengths(rank));
    let records = recorder(rank, id);
    for number in 0..rounds * lengths.len() {
        let payload = content(number as u64, lengths[number % lengths.len()]);
        for peer in 0..rank.size() {
            let args = [number as u64, u64::from(rank.me())];
            rank.device
                .active_send(ProcId::new(peer), id, args, &payload)
                .expect("a message");
        }
    }
    let total = rounds * lengths.len() * rank.size() as usize;
    rank.until(|| records.lock().expect("no handler panics").len() == total);
    let records = records.lock().expect("no handler panics");
    for peer in 0..rank.size() {
        let theirs = records.iter().filter(|(from, ..)| *from == peer);
        for (number, (_, args, payload)) in theirs.enumerate() {
            assert_eq!(*args, [number as u64, u64::from(peer)]);
            let expected = content(number as u64, lengths[number % lengths.len()]);
            assert!(
                *payload == expected,
                "payload {number} of rank {peer} differs"
            );
        }
    }
    drop(records);
    rank.barrier();
    Ok(())
}

/// Messages that arrive before their handler is registered are kept for it.
pub fn kept_until_registered<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let id = id(rank, 0);
    for number in 0..50 {
        let (peer, payload) = (ProcId::new(rank.next()), content(number, 40));
        rank.device
            .active_send(peer, id, [number, 0], &payload)
            .expect("a message");
    }
    rank.barrier();
    for _ in 0..20 {
        rank.progress(); // the messages may arrive now
    }
    let records = recorder(rank, id);
    rank.until(|| records.lock().expect("no handler panics").len() == 50);
    for (number, (from, args, payload)) in
        (0..50).zip(records.lock().expect("no handler panics").iter())
    {
        assert_eq!((*from, *args), (rank.previous(), [number, 0]));
        assert_eq!(*payload, content(number, 40));
    }
    Ok(())
}

/// Wrong arguments are errors, and send nothing.
pub fn errors<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let (device, id) = (rank.device, id(rank, 0));
    let records = recorder(rank, id);
    let again = device.register_handler(id, Box::new(|_, _| ()));
    fails(
        again,
        ErrorKind::InvalidArgument,
        "a second handler for an id",
    );
    let nobody = device.active_send(ProcId::new(rank.size()), id, [0, 0], &[]);
    fails(nobody, ErrorKind::InvalidRank, "a rank that is not there");
    let long = vec![0; device.attributes().active_max + 1];
    let too_long = device.active_send(ProcId::new(rank.next()), id, [0, 0], &long);
    fails(
        too_long,
        ErrorKind::InvalidCount,
        "a payload that is too long",
    );
    device
        .active_send(ProcId::new(rank.next()), id, [7, 7], &[])
        .expect("a message");
    rank.until(|| !records.lock().expect("no handler panics").is_empty());
    assert_eq!(records.lock().expect("no handler panics")[0].1, [7, 7]);
    rank.barrier();
    Ok(())
}

/// A rank can send to itself.
pub fn to_oneself<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let id = id(rank, 0);
    let records = recorder(rank, id);
    for (number, len) in (0..).zip(lengths(rank)) {
        let payload = content(number, len);
        rank.device
            .active_send(ProcId::new(rank.me()), id, [number, 1], &payload)
            .expect("a message");
    }
    let lengths = lengths(rank);
    rank.until(|| records.lock().expect("no handler panics").len() == lengths.len());
    for (record, (number, len)) in records
        .lock()
        .expect("no handler panics")
        .iter()
        .zip((0..).zip(lengths))
    {
        assert_eq!(*record, (rank.me(), [number, 1], content(number, len)));
    }
    one_after_the_other(rank);
    Ok(())
}

/// A handler that sends its own rank the next message, again and again, as a queue of tasks does.
fn one_after_the_other<D: Device>(rank: &Rank<'_, D>) {
    const MESSAGES: u64 = 20_000;
    let (me, id) = (ProcId::new(rank.me()), id(rank, 1));
    let handled = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&handled);
    let next = move |port: &mut dyn Port, message: ActiveMessage<'_>| {
        let [number, _] = message.args;
        assert_eq!(count.fetch_add(1, Ordering::Relaxed), number);
        if number + 1 < MESSAGES {
            port.send(me, id, [number + 1, 0], &[]).expect("a message");
        }
    };
    let registered = rank.device.register_handler(id, Box::new(next));
    registered.expect("registering a handler");
    let begun = rank.device.active_send(me, id, [0, 0], &[]);
    begun.expect("a message");
    rank.until(|| handled.load(Ordering::Relaxed) == MESSAGES);
}

/// Registers a handler that answers every message with its payload, and one that counts answers.
fn echo<D: Device>(rank: &Rank<'_, D>) -> (HandlerId, Arc<AtomicU64>) {
    let (request, reply) = (id(rank, 0), id(rank, 1));
    let answers = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&answers);
    let count = move |_: &mut dyn Port, message: ActiveMessage<'_>| {
        assert_eq!(
            message.payload.to_vec(),
            content(message.args[0], message.args[1] as usize)
        );
        counter.fetch_add(1, Ordering::Relaxed);
    };
    let answer = move |port: &mut dyn Port, message: ActiveMessage<'_>| {
        let payload = message.payload.to_vec();
        port.send(message.from, reply, message.args, &payload)
            .expect("an answer");
    };
    rank.device
        .register_handler(reply, Box::new(count))
        .expect("registering a handler");
    rank.device
        .register_handler(request, Box::new(answer))
        .expect("registering a handler");
    (request, answers)
}

/// Every rank sends many requests to `targets` without a pause, and waits for the answers.
fn flood<D: Device>(rank: &Rank<'_, D>, targets: &[u32], rounds: u32, len: usize) {
    let (request, answers) = echo(rank);
    let rounds = u64::from(rounds);
    let payloads: Vec<_> = (0..16).map(|number| content(number, len)).collect();
    for round in 0..rounds {
        let number = round % 16;
        for &target in targets {
            let (peer, args) = (ProcId::new(target), [number, len as u64]);
            rank.device
                .active_send(peer, request, args, &payloads[number as usize])
                .expect("a request");
        }
    }
    rank.until(|| answers.load(Ordering::Relaxed) == rounds * targets.len() as u64);
    // Other ranks may still need answers; the barrier serves them.
    rank.barrier();
}

/// All ranks flood one, which answers every message; no rank waits for ever.
pub fn flood_with_replies<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    flood(rank, &[0], rank.many(2000, 50), 40);
    Ok(())
}

/// All ranks flood all ranks, with the longest payloads.
pub fn everybody_floods<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let everybody: Vec<_> = (0..rank.size()).collect();
    let (rounds, longest) = (rank.many(150, 20), rank.device.attributes().active_max);
    flood(rank, &everybody, rounds, longest);
    Ok(())
}

/// Handlers run while their rank is blocked in a receive.
pub fn while_blocked<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let (request, answers) = echo(rank);
    for sleeper in 0..rank.size() {
        if rank.me() == sleeper {
            // The rank that releases the sleeper does so only after the sleeper has answered.
            for _ in 1..rank.size() {
                rank.take(&rank.from(None, sleeper), 0);
            }
        } else {
            let before = answers.load(Ordering::Relaxed);
            let (peer, payload) = (ProcId::new(sleeper), content(5, 30));
            rank.device
                .active_send(peer, request, [5, 30], &payload)
                .expect("a request");
            rank.until(|| answers.load(Ordering::Relaxed) > before);
            rank.send(&rank.to(sleeper, sleeper), &[])
                .expect("a release");
        }
    }
    rank.barrier();
    Ok(())
}

/// Hooks run inside progress and may send.
pub fn hooks<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let id = id(rank, 0);
    let records = recorder(rank, id);
    let runs = Arc::new(AtomicU32::new(0));
    let (counter, to) = (Arc::clone(&runs), ProcId::new(rank.next()));
    let me = rank.me();
    rank.device.register_hook(Box::new(move |port| {
        assert_eq!(port.me(), ProcId::new(me));
        let run = counter.fetch_add(1, Ordering::Relaxed);
        if run < 10 {
            port.send(to, id, [u64::from(run), 0], &run.to_le_bytes())
                .expect("a message");
        }
        match run {
            0..10 => Turn::Busy,
            _ => Turn::Sleep,
        }
    }));
    rank.until(|| runs.load(Ordering::Relaxed) >= 10);
    rank.until(|| records.lock().expect("no handler panics").len() == 10);
    let records = records.lock().expect("no handler panics");
    for (number, record) in (0..10_u32).zip(records.iter()) {
        let expected = (
            rank.previous(),
            [u64::from(number), 0],
            number.to_le_bytes().to_vec(),
        );
        assert_eq!(*record, expected);
    }
    drop(records);
    rank.barrier();
    Ok(())
}
