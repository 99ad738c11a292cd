//! The suite on the reference transport: unchanged, cramped, and under decorators that make the
//! worst of what the contract allows.

use portolan_conformance::{Job, Over, Transports, suite};
use portolan_core::transport::decorate::{Decorated, Delay, Refuse};
use portolan_core::transport::memory::{self, InMemory, Options};
use portolan_core::transport::{Limits, TransportCaps};

/// The reference transport, unchanged.
struct Plain;

impl Transports for Plain {
    type Transport = InMemory;

    const NAME: &'static str = "memory";

    fn open(job: &Job) -> Vec<InMemory> {
        memory::network(job.ranks)
    }
}

#[test]
fn a_rank_that_leaves() {
    portolan_conformance::leaving::<Plain>();
}

mod plain {
    use super::*;
    suite!(Over<Plain>);
}

/// The smallest transport that the contract allows, without any extras: it is full all the time.
struct Cramped;

impl Transports for Cramped {
    type Transport = InMemory;

    const NAME: &'static str = "memory, cramped";

    fn open(job: &Job) -> Vec<InMemory> {
        let limits = Limits {
            short: 192,
            bulk: 1024,
            eager: 500,
            piece: 500,
            bundle: 1000,
            grows: 0,
        };
        let (packets, per_poll) = (2, 1);
        let caps = TransportCaps::empty();
        memory::network_with(
            job.ranks,
            Options {
                packets,
                per_poll,
                limits,
                caps,
                ..Options::default()
            },
        )
    }
}

mod cramped {
    use super::*;
    suite!(Over<Cramped>, few);
}

/// Packets grow: a receiver finds the first half of one, and the rest at its next poll. Nobody can
/// read the memory of others, so messages of middle length go unasked, in one such packet.
struct Growing;

impl Transports for Growing {
    type Transport = InMemory;

    const NAME: &'static str = "memory, growing";

    fn open(job: &Job) -> Vec<InMemory> {
        let all = Options::default();
        let limits = Limits {
            eager: 1 << 10,
            grows: all.limits.bulk,
            ..all.limits
        };
        let caps = all.caps - TransportCaps::PULL;
        memory::network_with(
            job.ranks,
            Options {
                limits,
                caps,
                ..all
            },
        )
    }
}

mod growing {
    use super::*;
    suite!(Over<Growing>, few);
}

/// A network that reaches registered memory by its own means, in place of shared memory.
fn remote(job: &Job, more: TransportCaps) -> Vec<InMemory> {
    let all = Options::default().caps | TransportCaps::REMOTE | more;
    let caps = all - TransportCaps::DIRECT;
    memory::network_with(
        job.ranks,
        Options {
            caps,
            ..Options::default()
        },
    )
}

/// Packets are delayed for random times; the network puts to, gets from and changes memory.
struct Delayed;

impl Transports for Delayed {
    type Transport = Decorated<InMemory, Delay>;

    const NAME: &'static str = "memory, delayed";

    fn open(job: &Job) -> Vec<Self::Transport> {
        let ranks = remote(job, TransportCaps::ATOMICS).into_iter();
        ranks
            .zip(0..)
            .map(|(rank, n)| Decorated::new(rank, Delay::new(n, 5)))
            .collect()
    }
}

#[test]
fn a_rank_that_leaves_behind_delays() {
    portolan_conformance::leaving::<Delayed>();
}

mod delayed {
    use super::*;
    suite!(Over<Delayed>, few);
}

/// One packet in three is refused although there is room, and the others are delayed. The network
/// puts and gets; atomic operations go by packets.
struct Refused;

impl Transports for Refused {
    type Transport = Decorated<Decorated<InMemory, Delay>, Refuse>;

    const NAME: &'static str = "memory, refusing";

    fn open(job: &Job) -> Vec<Self::Transport> {
        let decorate =
            |(rank, n)| Decorated::new(Decorated::new(rank, Delay::new(n, 2)), Refuse::new(n, 3));
        remote(job, TransportCaps::empty())
            .into_iter()
            .zip(0..)
            .map(decorate)
            .collect()
    }
}

mod refused {
    use super::*;
    suite!(Over<Refused>, few);
}
