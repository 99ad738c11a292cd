//! Heartbeats among a few ranks, with a clock and a network that only the tests drive.

use super::*;
use crate::deaths::roster::Roster;

/// Ranks whose messages to each other pass as far as the tests let them.
struct Net {
    ranks: Vec<(Pulse, Shared)>,
    /// Pairs of ranks between which nothing passes.
    cut: Vec<(usize, usize)>,
}

fn address(rank: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, rank as u8], 1000))
}

impl Net {
    /// One rank on each of the given nodes.
    fn new(nodes: &[u32]) -> Self {
        let size = nodes.len();
        let rank = |own: usize| {
            let other = |rank: usize| {
                let host = format!("node{}", nodes[rank]);
                (rank != own).then(|| Other::new(address(rank), host, nodes[rank] != nodes[own]))
            };
            let others = (0..size).map(other).collect();
            let period = Duration::from_secs(5);
            let pulse = Pulse::new(own as u32, 7, period, "tcp".to_owned(), others);
            (pulse, Shared::new(Roster::within(size as u32), size as u32))
        };
        Self {
            ranks: (0..size).map(rank).collect(),
            cut: Vec::new(),
        }
    }

    /// `from` sends its first packet to `to`.
    fn speak(&mut self, from: usize, to: usize) {
        self.ranks[from]
            .1
            .contacts
            .note(to as u32, Contacts::SPOKEN);
        self.each(|pulse, shared, out| pulse.notice(shared, out));
    }

    fn tick(&mut self) {
        self.each(|pulse, shared, out| pulse.tick(shared, out));
    }

    /// Every rank does something; then their datagrams travel until no rank sends any more.
    fn each(&mut self, what: impl Fn(&mut Pulse, &Shared, &mut Out)) {
        let mut under_way = Vec::new();
        for (rank, (pulse, shared)) in self.ranks.iter_mut().enumerate() {
            let mut out = Out::new();
            what(pulse, shared, &mut out);
            under_way.extend(out.into_iter().map(|(to, bytes)| (rank, to, bytes)));
        }
        while let Some((from, to, bytes)) = under_way.pop() {
            let to = (0..self.ranks.len())
                .find(|&rank| address(rank) == to)
                .unwrap();
            if self.cut.contains(&(from, to)) || self.cut.contains(&(to, from)) {
                continue;
            }
            let (pulse, shared) = &mut self.ranks[to];
            let mut out = Out::new();
            pulse.heard(address(from), &bytes, shared, &mut out);
            pulse.notice(shared, &mut out);
            under_way.extend(out.into_iter().map(|(next, bytes)| (to, next, bytes)));
        }
    }

    fn why(&self, rank: usize, dead: u32) -> Option<String> {
        self.ranks[rank].1.deaths.reason(dead, u32::MAX)
    }
}

#[test]
fn nobody_is_lost_as_long_as_all_answer() {
    let mut net = Net::new(&[0, 1, 2]);
    net.speak(0, 1);
    net.speak(2, 1);
    for _ in 0..3 * UNREACHED {
        net.tick();
    }
    assert!((0..3).all(|rank| net.ranks[rank].1.deaths.count() == 0));
}

#[test]
fn silence_is_a_loss_after_four_periods_and_everybody_hears_of_it() {
    let mut net = Net::new(&[0, 1, 2, 2]);
    net.speak(0, 3);
    // Nothing reaches rank 3 any more, and it has never communicated with rank 1.
    net.cut = vec![(3, 0), (3, 1), (3, 2)];
    for _ in 0..MISSES {
        net.tick();
        assert_eq!(net.why(0, 3), None);
    }
    net.tick();
    let why = net.why(0, 3).expect("lost in the fifth period");
    assert!(why.contains("10.0.0.3:1000 on node2") && why.contains("PORTOLAN_OFI_HEARTBEAT"));
    for rank in [1, 2] {
        let why = net.why(rank, 3).expect("reported, or found");
        let cause = "no heartbeat has come from 10.0.0.3";
        assert!(why.contains(cause), "{why}");
    }
    assert!(
        net.why(3, 0).is_some(),
        "it holds the other to be lost as well"
    );
}

#[test]
fn a_node_that_nobody_has_talked_to_is_missed_as_well() {
    let mut net = Net::new(&[0, 0, 1, 1, 1, 2]);
    net.tick();
    net.cut = (2..5)
        .flat_map(|lost| [0, 1, 5].map(|rank| (lost, rank)))
        .collect();
    // Ranks that are nobody's neighbour among the others are found one after the other.
    for _ in 0..3 * (UNREACHED + 1) {
        net.tick();
    }
    for rank in [0, 1, 5] {
        let dead = (0..6).filter(|&dead| net.why(rank, dead).is_some());
        assert_eq!(dead.collect::<Vec<_>>(), [2, 3, 4], "rank {rank}");
    }
}

#[test]
fn a_report_that_is_lost_is_said_again() {
    let mut net = Net::new(&[0, 1, 2]);
    net.speak(0, 2);
    net.cut = vec![(0, 2), (0, 1)];
    net.ranks[0].1.deaths.declare(2, "it is gone");
    net.each(|pulse, shared, out| pulse.notice(shared, out));
    assert!(net.why(1, 2).is_none());
    net.cut.pop();
    net.tick();
    assert!(net.why(1, 2).unwrap().ends_with("it is gone"));
}

#[test]
fn who_is_given_up_hears_of_it() {
    let mut net = Net::new(&[0, 1]);
    net.speak(0, 1);
    net.ranks[0].1.deaths.declare(1, "it sent nonsense");
    net.each(|pulse, shared, out| pulse.notice(shared, out));
    let why = net.why(1, 1).unwrap();
    assert_eq!(why, "rank 0 on node0 says: it sent nonsense");
}

#[test]
fn who_leaves_is_not_lost() {
    let mut net = Net::new(&[0, 1, 1]);
    net.speak(0, 1);
    net.each(|pulse, shared, out| {
        if pulse.own == 1 {
            assert!(!pulse.leave(shared, out), "rank 0 has to be told");
        }
    });
    let (leaving, shared) = &mut net.ranks[1];
    assert!(leaving.leave(shared, &mut Out::new()), "rank 0 knows");
    assert!(net.ranks[0].1.roster.has_left(1));
    net.cut = vec![(0, 1), (1, 2)];
    (0..2 * UNREACHED).for_each(|_| net.tick());
    assert_eq!(net.why(0, 1), None);
}

#[test]
fn what_was_never_reached_is_given_more_time() {
    let mut net = Net::new(&[0, 1]);
    net.cut = vec![(0, 1)];
    net.speak(0, 1);
    for _ in 0..UNREACHED {
        net.tick();
        assert_eq!(net.why(0, 1), None);
    }
    net.tick();
    let why = net.why(0, 1).unwrap();
    assert!(
        why.contains("neither a packet over tcp nor a heartbeat"),
        "{why}"
    );
}

#[test]
fn silence_means_nothing_where_packets_come_and_heartbeats_never_did() {
    let mut net = Net::new(&[0, 1]);
    net.cut = vec![(0, 1)];
    net.speak(0, 1);
    net.ranks[0].1.contacts.note(1, Contacts::ARRIVED);
    (0..3 * UNREACHED).for_each(|_| net.tick());
    assert_eq!(net.why(0, 1), None);
}

#[test]
fn strangers_are_not_believed() {
    let mut net = Net::new(&[0, 1]);
    let beat = |job, from, dead| Beat {
        kind: Kind::Report,
        job,
        from,
        dead: vec![(dead, String::new())],
    };
    let (pulse, shared) = &mut net.ranks[0];
    let mut out = Out::new();
    for (address, beat) in [
        (address(1), beat(8, 1, 1)),
        (address(0), beat(7, 1, 1)),
        (address(1), beat(7, 2, 1)),
        (address(1), beat(7, 0, 1)),
        (address(1), beat(7, 1, 2)),
        (address(1), beat(7, 1, u32::MAX)),
    ] {
        pulse.heard(address, &beat.to_bytes(), shared, &mut out);
    }
    assert_eq!((shared.deaths.count(), out.len()), (0, 0));
    pulse.heard(address(1), &beat(7, 1, 0).to_bytes(), shared, &mut out);
    assert!(shared.deaths.is_dead(0), "the right one is");
}
