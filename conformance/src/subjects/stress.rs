//! Many messages, many requests, many operations at random.

use portolan_core::device::{Caps, Upper};
use portolan_core::matching::Pattern;
use portolan_core::transport::decorate::Random;
use portolan_core::{Device, ErrorKind, ProcId, Request, SendArgs, SendMode, Status};

use crate::bytes::{check, content, seed};
use crate::case::Verdict;
use crate::pending::Pending;
use crate::rank::{Rank, fails};

/// How many messages [`unexpected_messages`] sends: 100,000; 5000 where two packets fill the
/// transport, or where each step is a request to another process.
pub fn how_many_unexpected<D: Device>(rank: &Rank<'_, D>) -> u32 {
    let few = 5000;
    match rank.is_cramped() {
        true => few,
        false => rank.many(100_000, few),
    }
}

/// How many of the last ones are received from last to first where the hardware or a library below
/// matches, which may search one by one: each of these is found behind all others. All 100,000 of
/// them in that order are 5 billion steps, which took the provider `tcp;ofi_rxm` of libfabric a
/// minute (1.17) or half of one (2.5).
const SEARCHED: u32 = 1000;

/// [So many](how_many_unexpected) unexpected messages, received from last to first. Where the
/// device does not match by itself, all but the last 1000 are received in order, after those.
pub fn unexpected_messages<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let many = how_many_unexpected(rank);
    let caps = rank.device.attributes().caps;
    let backwards = match caps.contains(Caps::NATIVE_MATCHING) {
        true => SEARCHED.min(many),
        false => many,
    };
    if rank.me() == rank.last() {
        for tag in 0..many {
            rank.send(&rank.to(0, tag), &tag.to_le_bytes())
                .expect("a small send");
        }
    }
    rank.barrier(); // after all of them, from the last rank
    if rank.me() == 0 {
        let (first, last) = (0..many - backwards, many - backwards..many);
        for tag in last.rev().chain(first) {
            let (_, bytes) = rank.take(&rank.from(rank.last(), tag), 4);
            assert_eq!(bytes, tag.to_le_bytes());
        }
        assert_eq!(
            rank.device
                .iprobe_unchecked(&rank.from(None, None))
                .expect("iprobe"),
            None
        );
    }
    Ok(())
}

/// Running out of requests is an error, which comes no earlier than it should; freed requests can
/// be used again.
pub fn requests_run_out<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    if rank.me() != 0 {
        return Ok(());
    }
    let mut requests = Vec::new();
    let pattern = rank.from(rank.me(), 1);
    let buf = portolan_core::ContigBuf::from_bytes_mut(&mut []);
    let error = loop {
        assert!(
            requests.len() <= Request::MAX_ACTIVE,
            "more requests than there can be"
        );
        // SAFETY: there are no bytes to write.
        match unsafe { rank.device.irecv_contig_unchecked(&pattern, buf) } {
            Ok(request) => requests.push(request),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    assert!(
        requests.len() >= 65_536,
        "only {} requests at once",
        requests.len()
    );
    for &request in &requests {
        rank.device.cancel(request).expect("cancel");
    }
    for request in requests {
        assert!(rank.device.wait(request).expect("wait").cancelled);
    }
    let received = rank.irecv(&pattern, 1);
    rank.send(&rank.to(rank.me(), 1), &[1])
        .expect("a small send");
    assert_eq!(rank.done(received).1, [1]);
    Ok(())
}

/// A request that no operation completes.
struct Held;

impl Upper for Held {
    fn query(&mut self, status: Status) -> Status {
        status
    }

    fn cancel(&mut self, _complete: bool) -> bool {
        false
    }
}

/// A message that a matched probe has taken stays when no request is free to receive it, and none
/// is needed to discard it.
pub fn taken_when_requests_run_out<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let (device, long) = (rank.device, rank.long());
    if rank.me() == rank.last() {
        let to = |tag| rank.to(0, tag);
        let kept = [(1, 10), (2, long)].map(|(tag, len)| rank.isend(&to(tag), content(1, len)));
        let discarded = [(3, 10), (4, long)].map(|(tag, len)| {
            let args = to(tag).mode(SendMode::Synchronous);
            rank.isend(&args, content(1, len))
        });
        for pending in discarded {
            assert!(!rank.done(pending).0.cancelled);
        }
        rank.send(&to(5), &[]).expect("a small send");
        for pending in kept {
            rank.done(pending);
        }
    }
    if rank.me() != 0 {
        return Ok(());
    }
    let take = |tag| {
        let taken = device.mprobe_unchecked(&rank.from(rank.last(), tag));
        taken.expect("mprobe").0
    };
    let (kept, discarded) = ([(take(1), 10), (take(2), long)], [take(3), take(4)]);
    let mut requests = Vec::new();
    let error = loop {
        match device.upper_request(Box::new(Held)) {
            Ok(request) => requests.push(request),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    for _ in 0..2 {
        for (message, len) in kept {
            fails(
                rank.imrecv(message, len),
                ErrorKind::Exhausted,
                "a receive without a request",
            );
        }
    }
    for message in discarded {
        device.discard(message).expect("discard");
        fails(
            device.discard(message),
            ErrorKind::InvalidRequest,
            "a second discard",
        );
    }
    let told = take(5); // the sender knows of both
    device.discard(told).expect("discard");
    for (message, len) in kept {
        let request = requests.pop().expect("there are many");
        device
            .complete_upper(request, Status::EMPTY)
            .expect("complete");
        device.free(request).expect("free");
        let pending = rank.imrecv(message, len).expect("a request is free");
        let (status, bytes) = rank.done(pending);
        assert_eq!(status.bytes, len as u64);
        check(&bytes, 1, "a message that was kept");
    }
    for request in requests {
        device
            .complete_upper(request, Status::EMPTY)
            .expect("complete");
        device.free(request).expect("free");
    }
    Ok(())
}

/// A message of the soak. Both sides know it, because it follows from the seed.
#[derive(Clone, Debug)]
struct Planned {
    /// The class of receive that gets it: see [`pattern`].
    class: u32,
    tag: u32,
    len: usize,
    mode: SendMode,
    seed: u64,
}

/// Classes of receives, each in its own context, so that no wildcard takes a message that an exact
/// receive needs.
const CLASSES: u32 = 4;
const TAGS: u32 = 3;
/// Messages from each rank to each rank.
const MESSAGES: usize = 80;

/// The pattern of a receive of a class for a message from `source` with `tag`.
fn pattern<D: Device>(rank: &Rank<'_, D>, class: u32, source: u32, tag: u32) -> Pattern {
    Pattern {
        context: rank.context(class),
        source: (class & 1 == 0).then_some(source),
        tag: (class & 2 == 0).then_some(tag),
    }
}

/// The messages from one rank to another, in order.
fn plan<D: Device>(rank: &Rank<'_, D>, from: u32, to: u32) -> Vec<Planned> {
    let mut random = Random::new(seed(from, to, 4711));
    let modes = [
        SendMode::Standard,
        SendMode::Standard,
        SendMode::Synchronous,
        SendMode::Buffered,
    ];
    (0..MESSAGES)
        .map(|number| Planned {
            class: random.below(u64::from(CLASSES)) as u32,
            tag: random.below(u64::from(TAGS)) as u32,
            len: match random.below(10) {
                0..=4 => random.below(100) as usize,
                5..=7 => random.below(rank.eager_max() as u64 + 2) as usize,
                _ => rank.eager_max() + random.below(100_000) as usize,
            },
            mode: modes[random.below(4) as usize],
            seed: seed(from, to, number),
        })
        .collect()
}

/// A receive of the soak: its pattern, and later what it received.
struct Received {
    class: u32,
    pattern: Pattern,
    outcome: Option<(Status, Vec<u8>)>,
}

/// The state of one rank in the soak.
struct Soak<'r, 'd, D> {
    rank: &'r Rank<'d, D>,
    random: Random,
    longest: usize,
    /// Sends that are still to be started, by destination.
    sends: Vec<std::vec::IntoIter<Planned>>,
    /// Receives that are still to be made, as class and pattern.
    wanted: Vec<(u32, Pattern)>,
    /// Receives in the order in which they were posted.
    received: Vec<Received>,
    sending: Vec<Pending>,
    receiving: Vec<(usize, Pending)>,
}

impl<'r, 'd, D: Device> Soak<'r, 'd, D> {
    fn new(rank: &'r Rank<'d, D>) -> Self {
        let mut random = Random::new(u64::from(rank.me()) + 99);
        let mut wanted: Vec<_> = (0..rank.size())
            .flat_map(|from| {
                plan(rank, from, rank.me())
                    .into_iter()
                    .map(move |m| (from, m))
            })
            .map(|(from, m)| (m.class, pattern(rank, m.class, from, m.tag)))
            .collect();
        for last in (1..wanted.len()).rev() {
            wanted.swap(last, random.below(last as u64 + 1) as usize);
        }
        let sends = (0..rank.size())
            .map(|to| plan(rank, rank.me(), to).into_iter())
            .collect();
        Self {
            rank,
            random,
            longest: rank.eager_max() + 100_000,
            sends,
            wanted,
            received: Vec::new(),
            sending: Vec::new(),
            receiving: Vec::new(),
        }
    }

    /// Starts the next send to a rank chosen at random. Returns whether one was left.
    fn start_send(&mut self) -> bool {
        let first = self.random.below(self.sends.len() as u64) as usize;
        for n in 0..self.sends.len() {
            let to = (first + n) % self.sends.len();
            if let Some(message) = self.sends[to].next() {
                self.send(to as u32, &message);
                return true;
            }
        }
        false
    }

    fn send(&mut self, to: u32, message: &Planned) {
        let (rank, bytes) = (self.rank, content(message.seed, message.len));
        let args = SendArgs::new(
            ProcId::new(to),
            rank.context(message.class),
            rank.me(),
            message.tag,
        );
        if message.mode == SendMode::Buffered {
            match rank.send(&args.mode(SendMode::Buffered), &bytes) {
                Ok(()) => return,
                // It could not leave at once: the caller buffers it, as the paper says.
                Err(error) => assert_eq!(error.kind(), ErrorKind::MayBlock, "{error}"),
            }
            self.sending.push(rank.isend(&args, bytes));
        } else {
            self.sending
                .push(rank.isend(&args.mode(message.mode), bytes));
        }
    }

    /// Posts the next receive. Returns whether one was left.
    fn post_receive(&mut self) -> bool {
        let Some((class, pattern)) = self.wanted.pop() else {
            return false;
        };
        let pending = self.rank.irecv(&pattern, self.longest);
        self.receiving.push((self.received.len(), pending));
        self.received.push(Received {
            class,
            pattern,
            outcome: None,
        });
        true
    }

    /// Makes the next receive by a blocking call, or through a matched probe.
    fn receive_now(&mut self) -> bool {
        let Some((class, pattern)) = self.wanted.pop() else {
            return false;
        };
        let rank = self.rank;
        let outcome = if self.random.one_in(2) {
            rank.take(&pattern, self.longest)
        } else {
            let (message, status) = rank.device.mprobe_unchecked(&pattern).expect("mprobe");
            let pending = rank.imrecv(message, status.bytes as usize).expect("imrecv");
            rank.done(pending)
        };
        self.received.push(Received {
            class,
            pattern,
            outcome: Some(outcome),
        });
        true
    }

    /// Tests an active request chosen at random.
    fn test_one(&mut self) {
        if !self.sending.is_empty() && self.random.one_in(2) {
            let chosen = self.random.below(self.sending.len() as u64) as usize;
            if self
                .rank
                .device
                .test(self.sending[chosen].request)
                .expect("test")
                .is_some()
            {
                self.rank.reclaim(self.sending.swap_remove(chosen));
            }
        } else if !self.receiving.is_empty() {
            let chosen = self.random.below(self.receiving.len() as u64) as usize;
            let request = self.receiving[chosen].1.request;
            if let Some(status) = self.rank.device.test(request).expect("test") {
                let (place, pending) = self.receiving.swap_remove(chosen);
                self.received[place].outcome = Some((status, self.rank.reclaim(pending)));
            }
        }
    }

    /// Sends, receives, tests and probes at random until all sends have been started. From then on
    /// blocking receives are safe too, because no rank waits for this one to start something.
    fn run(&mut self) {
        loop {
            match self.random.below(5) {
                0 | 1 if !self.start_send() => break,
                2 => drop(self.post_receive()),
                3 => self.test_one(),
                4 => {
                    let class = self.random.below(u64::from(CLASSES)) as u32;
                    let any = Pattern::any(self.rank.context(class));
                    self.rank.device.iprobe_unchecked(&any).expect("iprobe");
                }
                _ => {}
            }
        }
        while !self.wanted.is_empty() {
            let now = self.random.one_in(3);
            let _ = if now {
                self.receive_now()
            } else {
                self.post_receive()
            };
            self.test_one();
        }
        for (place, pending) in std::mem::take(&mut self.receiving) {
            self.received[place].outcome = Some(self.rank.done(pending));
        }
        for pending in std::mem::take(&mut self.sending) {
            self.rank.done(pending);
        }
    }

    /// Compares what the receives got with the model: among receives that were served in posting
    /// order, each source's messages arrive in the order of its plan.
    fn check(&self) {
        let rank = self.rank;
        let mut plans: Vec<Vec<Option<Planned>>> = (0..rank.size())
            .map(|from| plan(rank, from, rank.me()).into_iter().map(Some).collect())
            .collect();
        for (number, received) in self.received.iter().enumerate() {
            let (status, bytes) = received
                .outcome
                .as_ref()
                .expect("every receive was completed");
            let theirs = &mut plans[status.source as usize];
            // The earliest message of that source that the receive could have got.
            let fits = |m: &Planned| {
                m.class == received.class && received.pattern.tag.is_none_or(|tag| tag == m.tag)
            };
            let earliest = theirs.iter_mut().find(|m| m.as_ref().is_some_and(fits));
            let message = earliest
                .and_then(Option::take)
                .unwrap_or_else(|| panic!("receive {number} got a message too many: {status:?}"));
            assert_eq!(
                (status.tag, status.bytes),
                (message.tag, message.len as u64),
                "{number}"
            );
            let expected = content(message.seed, message.len);
            assert!(
                bytes[..message.len] == expected,
                "receive {number}: wrong bytes"
            );
        }
        assert!(
            plans.iter().flatten().all(Option::is_none),
            "messages were not received"
        );
    }
}

/// Random sizes, tags, wildcards, modes and forms, against a model: every message arrives once, in
/// order.
pub fn soak<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let mut soak = Soak::new(rank);
    soak.run();
    soak.check();
    rank.barrier();
    Ok(())
}
