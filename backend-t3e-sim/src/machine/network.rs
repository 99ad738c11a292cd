//! The links: how long a packet is under way when other packets are, too.

use std::collections::BTreeMap;

use super::costs::Costs;
use super::rng::Rng;
use super::time::Time;
use super::torus::{Direction, Torus};

/// All links of the machine.
///
/// Packets are routed by cut-through: the head of a packet leaves a router before its tail has come
/// in. Each link remembers until when it is busy; a packet that comes earlier waits.
#[derive(Debug)]
pub(crate) struct Network {
    torus: Torus,
    inject: Time,
    hop: Time,
    link_rate: f64,
    eject: Time,
    /// The moment at which each link will be free, by node and direction.
    free: Vec<Time>,
    /// The factors by which some links are slower than they should be.
    slow: BTreeMap<usize, f64>,
    /// Chooses channels, on a machine whose packets need not keep to the fixed order of directions.
    adaptive: Option<Rng>,
}

impl Network {
    pub(crate) fn new(torus: Torus, costs: &Costs, adaptive: Option<Rng>) -> Self {
        Self {
            torus,
            inject: costs.inject,
            hop: costs.hop,
            link_rate: costs.link_rate,
            eject: costs.eject,
            free: vec![Time::ZERO; torus.nodes() as usize * 6],
            slow: BTreeMap::new(),
            adaptive,
        }
    }

    /// Makes a link slower by a factor.
    pub(crate) fn slow_down(&mut self, node: u32, direction: Direction, factor: f64) {
        self.slow.insert(link(node, direction), factor);
    }

    pub(crate) fn torus(&self) -> &Torus {
        &self.torus
    }

    /// The moment at which the last of `bytes` reaches the memory of `to`, if it is in its
    /// E-register at `ready`.
    pub(crate) fn carry(&mut self, from: u32, to: u32, ready: Time, bytes: usize) -> Time {
        let mut tail = ready + self.inject;
        let mut node = from;
        while let Some(direction) = self.choose(node, to) {
            tail = self.cross(link(node, direction), tail, bytes);
            node = self.torus.neighbour(node, direction);
        }
        tail + self.eject
    }

    /// The time from a memory to its requester, for a packet too short to keep a link busy.
    pub(crate) fn acknowledge(&self, from: u32, to: u32) -> Time {
        let hops = u64::from(self.torus.hops(from, to));
        self.inject + self.hop * hops + self.eject
    }

    /// The moment at which the tail of a packet reaches the other end of a link, if it reaches this
    /// end at `tail`.
    fn cross(&mut self, link: usize, tail: Time, bytes: usize) -> Time {
        let mut busy = Time::of_bytes(bytes, self.link_rate);
        if let Some(factor) = self.slow.get(&link) {
            busy = busy.scaled(*factor);
        }
        let starts = tail.since(busy).max(self.free[link]);
        let ends = starts + busy;
        self.free[link] = ends;
        ends.max(tail) + self.hop
    }

    fn choose(&mut self, node: u32, to: u32) -> Option<Direction> {
        let mut ways = self.torus.productive(node, to);
        let Some(rng) = &mut self.adaptive else {
            return ways.next();
        };
        let free = |direction: &Direction| self.free[link(node, *direction)];
        // Takes the link that is free first; the seed decides among equals.
        ways.map(|way| (free(&way), rng.next(), way))
            .min_by_key(|(free, draw, _)| (*free, *draw))
            .map(|(_, _, way)| way)
    }
}

fn link(node: u32, direction: Direction) -> usize {
    node as usize * 6 + direction.index()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Preset;

    fn network(pes: u32, adaptive: Option<Rng>) -> Network {
        let costs = Preset::T3e900.costs();
        Network::new(Torus::fitting(pes).unwrap(), &costs, adaptive)
    }

    #[test]
    fn without_others_a_packet_takes_its_way() {
        let costs = Preset::T3e900.costs();
        let mut net = network(64, None);
        let ready = Time::from_ns(5000);
        for to in 0..64 {
            // Packets would share links of one network, so each packet gets a fresh one.
            let mut alone = network(64, None);
            let hops = alone.torus().hops(0, to);
            assert_eq!(alone.carry(0, to, ready, 64), ready + costs.way(hops));
        }
        let first = net.carry(0, 1, ready, 512);
        let second = net.carry(0, 1, ready, 512);
        let busy = Time::of_bytes(512, costs.link_rate);
        assert_eq!(second, first + busy, "the second waits for the link");
    }

    #[test]
    fn a_slow_link_delays_whoever_takes_it() {
        let ready = Time::from_ns(5000);
        let sound = network(8, None).carry(0, 1, ready, 512);
        let mut net = network(8, None);
        net.slow_down(0, Direction::ORDER[0], 10.0);
        assert!(net.carry(0, 1, ready, 512) > sound);
        assert_eq!(net.carry(2, 3, ready, 512), sound);
    }

    #[test]
    fn adaptive_packets_avoid_a_busy_link() {
        let ready = Time::from_ns(5000);
        let all = |adaptive: Option<Rng>| {
            let mut net = network(64, adaptive);
            (0..8).map(|_| net.carry(0, 21, ready, 4096)).max().unwrap()
        };
        assert!(all(Some(Rng::new(1))) < all(None));
    }
}
