//! A rank that dies after a number of its packets, in the middle of everything. Operations that
//! depend on it end with an error that names it; everything else arrives.

use portolan_conformance::{Job, Over, Pending, Rank, Sut, Transports, bytes};
use portolan_core::transport::decorate::{Decorated, DropPeer};
use portolan_core::transport::memory::{self, InMemory};
use portolan_core::{Device, ErrorKind, Result, Status};

/// The last rank is dead to each of the others as soon as `AFTER` of its packets have arrived
/// there.
struct Dropped<const AFTER: u64>;

impl<const AFTER: u64> Transports for Dropped<AFTER> {
    type Transport = Decorated<InMemory, DropPeer>;

    const NAME: &'static str = "memory, losing a rank";

    fn open(job: &Job) -> Vec<Self::Transport> {
        // The rank itself does not notice its death; it learns of it from the others.
        let nobody = u32::MAX;
        let victim = job.ranks - 1;
        let victim_of = |rank| if rank == victim { nobody } else { victim };
        memory::network(job.ranks)
            .into_iter()
            .zip(0..)
            .map(|(transport, rank)| {
                Decorated::new(transport, DropPeer::new(victim_of(rank), AFTER))
            })
            .collect()
    }
}

/// More than the packets after which a rank is lost.
const ROUNDS: usize = 8;

/// All ranks send to all ranks, small and large. Returns how many operations failed.
fn talk<D: Device>(rank: &Rank<'_, D>) -> u32 {
    let (me, victim) = (rank.me(), rank.last());
    let mut failures = 0;
    let mut judge = |peer: u32, outcome: &Result<Status>| match outcome {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
            if me != victim {
                assert_eq!((peer, error.peer()), (victim, Some(victim)), "{error}");
            }
            failures += 1;
            false
        }
    };
    for round in 0..ROUNDS {
        for (len, kind) in [8, rank.long()].into_iter().zip(0..) {
            // Messages of the dead rank arrive late or never, so each round has its own tags.
            let tag = 2 * round as u32 + kind;
            let peers = || (0..rank.size()).filter(|&peer| peer != me);
            let receives: Vec<(u32, Pending)> = peers()
                .map(|peer| (peer, rank.irecv(&rank.from(peer, tag), len)))
                .collect();
            let message = |peer| bytes::content(bytes::seed(me, peer, round), len);
            let sends: Vec<(u32, Pending)> = peers()
                .map(|peer| (peer, rank.isend(&rank.to(peer, tag), message(peer))))
                .collect();
            for (peer, pending) in receives {
                let (outcome, received) = rank.finish(pending);
                if judge(peer, &outcome) {
                    bytes::check(&received, bytes::seed(peer, me, round), "what arrived");
                }
            }
            for (peer, pending) in sends {
                judge(peer, &rank.finish(pending).0);
            }
        }
    }
    failures
}

fn lose<const AFTER: u64>(ranks: u32) {
    let failures =
        Over::<Dropped<AFTER>>::run(&Job::new(ranks), |device| talk(&Rank::new(device, 0)));
    assert!(
        failures.iter().all(|&count| count > 0),
        "at {ranks} ranks, after {AFTER} packets: {failures:?}"
    );
}

#[test]
fn the_first_packet_is_never_seen() {
    [2, 3, 5].into_iter().for_each(lose::<0>);
}

#[test]
fn after_one_message() {
    [2, 3, 5].into_iter().for_each(lose::<1>);
}

#[test]
fn between_an_offer_and_its_data() {
    [2, 3, 5].into_iter().for_each(lose::<2>);
    [2, 3, 5].into_iter().for_each(lose::<3>);
}

#[test]
fn in_a_later_round() {
    [2, 3, 5].into_iter().for_each(lose::<6>);
    [2, 3, 5].into_iter().for_each(lose::<11>);
}
