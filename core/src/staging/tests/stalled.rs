//! Peers that make no progress keep their chunks; no other peer waits for them.

use super::*;
use crate::Device;
use crate::transport::TransportCaps;
use crate::transport::memory::Options;

const LEN: usize = (1 << 20) + 17;
/// Ranks that stall: each message's receiver. No more than two messages to one peer have chunks.
const STALLED: [u32; 4] = [1, 1, 3, 3];
/// Number of messages that get chunks; the last of them gets two.
const SERVED: usize = 3;
/// All chunks of a direction.
const CHUNKS: usize = 8;

/// Rank 0 has an accelerator; the others receive into host memory.
struct Four {
    ranks: [Rank; 4],
    fake: Arc<Fake>,
    staging: Staging,
}

impl Four {
    fn new() -> Self {
        let mut options = Options::default();
        options.caps.remove(TransportCaps::PULL);
        // Less room than one chunk has bytes.
        options.packets = 4;
        let mut ranks = memory::network_with(4, options).into_iter();
        let fake = Fake::new(LEN);
        fake.write(0, &bytes(LEN, 5));
        Self {
            ranks: std::array::from_fn(|_| {
                let transport = ranks.next().expect("four ranks");
                Engine::new(transport, &Settings::default()).expect("an engine")
            }),
            staging: Staging::new(vec![fake.clone()]),
            fake,
        }
    }

    fn send(&self, to: u32) -> Request {
        let byte = Layout::primitive(Primitive::U8);
        let args = SendArgs::new(ProcId::new(to), 1, 0, 5);
        // SAFETY: the accelerator outlives the request.
        let sent = unsafe {
            let data = buf(self.fake.at(0), LEN, &byte);
            self.staging.isend(&self.ranks[0], &args, data)
        };
        sent.expect("a send")
    }

    fn receive(&self, rank: usize, room: &mut [u8]) -> Request {
        let room = ContigBuf::from_bytes_mut(room);
        // SAFETY: the buffer outlives the request, and is not read before the request is over.
        unsafe { self.ranks[rank].irecv_contig_unchecked(&from(), room) }.expect("a receive")
    }

    /// Makes progress on some ranks, for more rounds than they need.
    fn look(&self, ranks: &[usize]) {
        for _ in 0..1000 {
            for &rank in ranks {
                self.ranks[rank]
                    .device_check(Check::NonBlocking)
                    .expect("progress");
            }
        }
    }

    fn over(&self, rank: usize, request: Request) -> Result<Status, ErrorKind> {
        for _ in 0..1000 {
            if let Some(outcome) = self.ranks[rank].test(request).transpose() {
                return outcome.map_err(|error| error.kind());
            }
            self.look(&[0, rank]);
        }
        panic!("it never ends: {:?}", self.ranks[rank].describe_state());
    }
}

/// Messages whose data ranks 1 and 3 have asked for; these make no more progress.
struct Stalled {
    rooms: Vec<Vec<u8>>,
    requests: Vec<(u32, Request, Request)>,
}

impl Stalled {
    fn new(four: &Four, messages: usize) -> Self {
        let mut rooms = vec![vec![0_u8; LEN]; messages];
        let receives: Vec<_> = rooms
            .iter_mut()
            .zip(STALLED)
            .map(|(room, to)| (to, four.receive(to as usize, room)))
            .collect();
        let requests = receives
            .into_iter()
            .map(|(to, receive)| (to, receive, four.send(to)))
            .collect();
        four.look(&[1, 3]);
        four.look(&[0]);
        assert_eq!(four.fake.pinned(), CHUNKS, "all chunks are on loan");
        Self { rooms, requests }
    }

    /// All ranks make progress again.
    fn arrive(self, four: &Four) {
        for (to, receive, send) in self.requests {
            assert_eq!(four.over(to as usize, receive).unwrap().bytes, LEN as u64);
            four.over(0, send).unwrap();
        }
        let sent = bytes(LEN, 5);
        assert!(self.rooms.into_iter().all(|room| room == sent));
    }
}

#[test]
fn a_peer_that_does_not_look_holds_up_nobody_else() {
    let four = Four::new();
    let stalled = Stalled::new(&four, SERVED);
    for good in [usize::MAX, 0, 3] {
        let mut room = vec![0_u8; LEN];
        let receive = four.receive(2, &mut room);
        four.fake.fail_after(good);
        let send = four.send(2);
        let (received, sent) = (four.over(2, receive), four.over(0, send));
        four.fake.fail_after(usize::MAX);
        if good == usize::MAX {
            assert_eq!(received.map(|status| status.bytes), Ok(LEN as u64));
            assert_eq!(sent.map(|_| ()), Ok(()));
            assert!(room == bytes(LEN, 5));
        } else {
            assert_eq!(received.unwrap_err(), ErrorKind::UnsupportedMemory);
            assert_eq!(sent.unwrap_err(), ErrorKind::UnsupportedMemory);
        }
    }
    stalled.arrive(&four);
}

#[test]
fn what_nobody_takes_is_not_copied_again_all_the_time() {
    let four = Four::new();
    let stalled = Stalled::new(&four, SERVED + 1);
    let before = four.fake.copies();
    for _ in 0..10 {
        four.look(&[0]);
    }
    let more = four.fake.copies() - before;
    assert!((1..100).contains(&more), "{more} copies in 10,000 looks");
    stalled.arrive(&four);
}

#[test]
fn nor_does_a_get_wait_for_it() {
    let four = Four::new();
    let stalled = Stalled::new(&four, SERVED);
    let mut host = vec![0_u8; LEN];
    let memory = ContigBuf {
        ptr: four.fake.at(0),
        len: LEN,
        memory: MemoryKind::Cuda,
        ..ContigBuf::from_bytes(&[])
    };
    // SAFETY: accelerator and buffer outlive the operations on them.
    unsafe {
        let region = four.staging.register(&four.ranks[0], &memory).unwrap();
        let get = four.ranks[2].get(ProcId::new(0), &region.key, 0, host.as_mut_ptr(), LEN);
        four.over(2, get.unwrap()).unwrap();
        four.ranks[0].free_region(region).unwrap();
    }
    assert!(host == bytes(LEN, 5));
    stalled.arrive(&four);
}
