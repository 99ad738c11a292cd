//! Heartbeats among a few ranks, with a clock and a network that only the tests drive.

use super::*;
use crate::deaths::roster::Roster;

/// Ranks whose messages to each other pass as far as the tests let them.
struct Net {
    ranks: Vec<(Pulse, Shared)>,
    /// Pairs of ranks between which nothing passes.
    cut: Vec<(usize, usize)>,
    /// Ranks that nothing reaches.
    deaf: Vec<usize>,
    /// Datagrams that have been sent, whether they arrived or not.
    sent: usize,
}

fn address(rank: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, rank as u8], 1000))
}

fn endpoint(rank: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, rank as u8], 2000))
}

impl Net {
    /// One rank on each of the given nodes.
    fn new(nodes: &[u32]) -> Self {
        let size = nodes.len();
        let rank = |own: usize| {
            let other = |rank: usize| {
                let host = format!("node{}", nodes[rank]).into();
                let (node, far) = (nodes[rank], nodes[rank] != nodes[own]);
                let other = || Other::new(address(rank), host, node, far).at(Some(endpoint(rank)));
                (rank != own).then(other)
            };
            let others = (0..size).map(other).collect();
            let period = Duration::from_secs(5);
            let pulse = Pulse::new(own as u32, 7, period, "tcp".to_owned(), others);
            (pulse, Shared::new(Roster::within(size as u32), size as u32))
        };
        Self {
            ranks: (0..size).map(rank).collect(),
            cut: Vec::new(),
            deaf: Vec::new(),
            sent: 0,
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
            under_way.extend(out.into_iter().map(|(_, to, bytes)| (rank, to, bytes)));
        }
        while let Some((from, to, bytes)) = under_way.pop() {
            self.sent += 1;
            assert!(self.sent < 1_000_000, "they never stop");
            let to = (0..self.ranks.len())
                .find(|&rank| address(rank) == to)
                .unwrap();
            let cut = [(from, to), (to, from)]
                .iter()
                .any(|it| self.cut.contains(it));
            if cut || self.deaf.contains(&to) {
                continue;
            }
            let (pulse, shared) = &mut self.ranks[to];
            let mut out = Out::new();
            pulse.heard(address(from), &bytes, shared, &mut out);
            pulse.notice(shared, &mut out);
            under_way.extend(out.into_iter().map(|(_, next, bytes)| (to, next, bytes)));
        }
    }

    /// Nothing passes between such ranks and any others from now on. Returns which they are.
    fn cut_off(&mut self, such: impl Fn(usize) -> bool) -> Vec<u32> {
        let all = 0..self.ranks.len();
        let cut: Vec<usize> = all.clone().filter(|&rank| such(rank)).collect();
        let pairs = |&one: &usize| all.clone().map(move |other| (one, other));
        self.cut = cut.iter().flat_map(pairs).collect();
        cut.into_iter().map(|rank| rank as u32).collect()
    }

    fn why(&self, rank: usize, dead: u32) -> Option<String> {
        self.ranks[rank].1.deaths.reason(dead, u32::MAX)
    }

    /// Which ranks a rank holds to be dead.
    fn dead(&self, rank: usize) -> Vec<u32> {
        let all = 0..self.ranks.len() as u32;
        all.filter(|&dead| self.why(rank, dead).is_some()).collect()
    }

    /// Lets as many periods pass as a rank may be silent without being lost, and one more.
    fn tick_until_lost(&mut self) {
        (0..=MISSES).for_each(|_| self.tick());
    }
}

/// Two ranks miss each other, between which others hear both. The first word counts, and the one
/// that is given up learns it.
#[test]
fn a_link_that_breaks_costs_one_rank() {
    for nodes in [&[0, 1, 2][..], &[0, 1, 2, 3], &[0, 0, 1, 1, 2, 2]] {
        let mut net = Net::new(nodes);
        let last = nodes.len() - 1;
        net.speak(0, last);
        net.tick();
        net.cut = vec![(0, last)];
        net.tick_until_lost();
        let lost = net.dead(1);
        assert!(lost == [0] || lost == [last as u32], "{lost:?}");
        let stays = last - lost[0] as usize;
        for rank in (0..=last).filter(|&rank| rank != stays) {
            assert!(net.dead(rank).contains(&lost[0]), "rank {rank}");
        }
        assert_eq!(net.dead(stays), lost, "it hears nothing of the lost one");
        for rank in 1..last {
            assert_eq!(net.dead(rank), lost, "rank {rank}");
        }
    }
}

/// Accusations cross, and ranks believe different ones.
#[test]
fn accusations_that_cross_lead_to_one_opinion() {
    let mut net = Net::new(&[0, 1, 2, 3]);
    net.speak(0, 2);
    net.tick();
    // Rank 1 hears that of rank 0 first, and rank 3 that of rank 2.
    net.cut = vec![(0, 2), (0, 3), (1, 2)];
    net.ranks[0].1.deaths.declare(2, "it is silent");
    net.ranks[2].1.deaths.declare(0, "it is silent");
    net.each(|pulse, shared, out| pulse.notice(shared, out));
    assert_eq!((net.dead(1), net.dead(3)), (vec![2], vec![0]));
    net.cut = vec![(0, 2)];
    (0..MISSES).for_each(|_| net.tick());
    for rank in 0..4 {
        assert_eq!(net.dead(rank), [0, 2], "rank {rank}");
    }
}

/// A node is cut off from all others, and the network heals before, when or after the ranks miss
/// each other and report it.
#[test]
fn a_node_that_comes_back_costs_no_other() {
    let jobs = [&[0, 1, 2][..], &[2, 1, 0], &[1, 0, 2], &[0, 0, 1, 2, 2]];
    let times = (0..2 * UNREACHED).flat_map(|time| jobs.map(|nodes| (time, nodes)));
    for (time, nodes) in times {
        let mut net = Net::new(nodes);
        net.tick();
        let (cut, rest): (Vec<_>, Vec<_>) = (0..nodes.len()).partition(|&rank| nodes[rank] == 0);
        let pairs = |&one: &usize| rest.iter().map(move |&other| (one, other));
        net.cut = cut.iter().flat_map(pairs).collect();
        (0..time).for_each(|_| net.tick());
        net.cut.clear();
        (0..UNREACHED).for_each(|_| net.tick());
        let numbers = |ranks: &[usize]| -> Vec<u32> { ranks.iter().map(|&r| r as u32).collect() };
        let lost = if time < MISSES { vec![] } else { numbers(&cut) };
        for &rank in &rest {
            assert_eq!(
                net.dead(rank),
                lost,
                "rank {rank} of {nodes:?} after {time}"
            );
        }
        for &rank in cut.iter().filter(|_| !lost.is_empty()) {
            let knows = [lost.clone(), numbers(&rest)].contains(&net.dead(rank));
            assert!(knows, "rank {rank} of {nodes:?}: {:?}", net.dead(rank));
        }
    }
}

/// The link to the one that has found it is cut.
#[test]
fn who_is_given_up_hears_of_it_from_others() {
    let mut net = Net::new(&[0, 1, 2]);
    net.speak(0, 2);
    net.cut = vec![(0, 2)];
    net.ranks[0].1.deaths.declare(2, "it sent nonsense");
    net.each(|pulse, shared, out| pulse.notice(shared, out));
    let why = net.why(2, 2).expect("rank 1 tells it");
    assert!(why.contains("rank 1 on node1 says: rank 0 on node0 says: it sent"));
}

/// A rank that can send and hears nothing.
#[test]
fn a_deaf_rank_is_the_one_that_is_lost() {
    for deaf in 0..4 {
        let mut net = Net::new(&[0, 1, 2, 3]);
        net.tick();
        net.deaf = vec![deaf];
        (0..2).for_each(|_| net.tick_until_lost());
        let rest: Vec<usize> = (0..4).filter(|&rank| rank != deaf).collect();
        for &rank in &rest {
            assert_eq!(net.dead(rank), [deaf as u32], "rank {rank}");
            let why = net.why(rank, deaf as u32).unwrap();
            assert!(why.ends_with("it hears no rank of another node"), "{why}");
        }
        let others: Vec<u32> = rest.iter().map(|&rank| rank as u32).collect();
        assert_eq!(net.dead(deaf), others);
    }
}

/// The ranks of a deaf node agree with each other.
#[test]
fn a_deaf_node_is_the_one_that_is_lost() {
    let mut net = Net::new(&[0, 0, 1, 1, 2, 2]);
    net.tick();
    net.deaf = vec![0, 1];
    (0..2).for_each(|_| net.tick_until_lost());
    for rank in 2..6 {
        assert_eq!(net.dead(rank), [0, 1], "rank {rank}");
    }
}

/// Both sides of a job on two nodes give each other up, and go on without each other when the
/// network is there again.
#[test]
fn sides_that_have_given_each_other_up_ignore_each_other() {
    let mut net = Net::new(&[0, 1]);
    net.tick();
    net.cut = vec![(0, 1)];
    net.tick_until_lost();
    net.cut.clear();
    (0..3 * MISSES).for_each(|_| net.tick());
    assert_eq!((net.dead(0), net.dead(1)), (vec![1], vec![0]));
}

#[test]
fn who_asks_although_it_is_dead_is_told() {
    let mut net = Net::new(&[0, 1]);
    net.speak(0, 1);
    net.cut = vec![(0, 1)];
    net.ranks[0].1.deaths.declare(1, "it sent nonsense");
    // All reports are lost.
    (0..REPORTS).for_each(|_| net.tick());
    assert_eq!(net.dead(1), []);
    net.cut.clear();
    net.tick();
    assert!(net.why(1, 1).unwrap().ends_with("it sent nonsense"));
    assert_eq!(net.dead(0), [1]);
}

#[test]
fn a_rank_that_knows_of_its_own_death_says_so() {
    let mut net = Net::new(&[0, 1]);
    net.speak(0, 1);
    net.cut = vec![(0, 1)];
    net.ranks[1].1.deaths.declare(1, "its endpoint is broken");
    (0..REPORTS).for_each(|_| net.tick());
    assert_eq!(net.dead(0), []);
    net.cut.clear();
    net.tick();
    assert!(net.why(0, 1).unwrap().ends_with("its endpoint is broken"));
}

/// Heartbeats carry how many packets a rank has sent, and what a rank that leaves has sent in all.
#[test]
fn counts_of_packets_travel_along() {
    let mut net = Net::new(&[0, 1]);
    net.tick();
    assert!(net.ranks[1].1.deaths.take_call());
    net.ranks[1].1.counts.publish([Some(5), None].into_iter());
    assert_eq!(net.ranks[0].1.counts.latest(1), None);
    net.tick();
    let told = net.ranks[0].1.counts.latest(1).map(|count| count.packets);
    assert_eq!(told, Some(5));
    net.ranks[1].1.counts.publish([Some(6), None].into_iter());
    net.each(|pulse, shared, out| {
        if pulse.own == 1 {
            pulse.leave(shared, out);
        }
    });
    assert!(net.ranks[0].1.roster.has_left(1));
    assert_eq!(net.ranks[0].1.counts.last(1), Some(6));
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
    for part in ["10.0.0.3:1000 on node2", "PORTOLAN_OFI_HEARTBEAT=0 allows"] {
        assert!(why.contains(part), "{why}");
    }
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

/// The neighbours on the ring of each rank of a node watch it, whoever has talked to it.
#[test]
fn a_node_is_lost_as_soon_as_a_rank_of_it() {
    for each in [1, 3, 16] {
        let nodes: Vec<u32> = (0..3).flat_map(|node| vec![node; each]).collect();
        let mut net = Net::new(&nodes);
        net.tick();
        let lost = net.cut_off(|rank| nodes[rank] == 1);
        net.tick_until_lost();
        for rank in (0..nodes.len()).filter(|&rank| nodes[rank] != 1) {
            assert_eq!(net.dead(rank), lost, "rank {rank} of {nodes:?}");
        }
    }
}

/// The neighbours on the ring of the ranks of node 3 are lost with it. A rank of another node has
/// talked to one of these ranks, and misses that one. The others are lost within the same time
/// again, however many there are.
#[test]
fn nodes_next_to_each_other_are_lost_within_twice_the_time_of_a_rank() {
    for each in [1, 2, 8, 16] {
        let nodes: Vec<u32> = (0..5).flat_map(|node| vec![node; each]).collect();
        let mut net = Net::new(&nodes);
        net.tick();
        net.speak(0, 3 * each + each / 2);
        net.tick();
        let lost = net.cut_off(|rank| nodes[rank] > 1);
        for _ in 0..2 {
            net.tick_until_lost();
        }
        for rank in 0..2 * each {
            assert_eq!(net.dead(rank), lost, "rank {rank} of {nodes:?}");
        }
    }
}

/// What rank 0 knows of another one: whether it has heard from it, asks it now because others of
/// its node are lost, and asks it for ever.
fn seen(net: &Net, rank: usize) -> (bool, bool, bool) {
    let other = net.ranks[0].0.others[rank].as_ref().expect("another");
    (other.heard, other.suspect, other.contact)
}

/// One rank of a node is stopped. Ranks of the node that have never talked to those that miss it
/// are asked whether they live, until they answer.
#[test]
fn who_lives_where_one_is_lost_is_asked_once() {
    let mut net = Net::new(&[0, 0, 1, 1, 1, 1, 1, 1, 2, 2]);
    net.speak(0, 4);
    net.tick();
    assert_eq!(seen(&net, 6), (false, false, false));
    net.cut_off(|rank| rank == 4);
    net.tick_until_lost();
    assert_eq!(
        seen(&net, 6),
        (true, false, false),
        "it has answered at once"
    );
    assert!(!net.ranks[6].0.others[0].as_ref().unwrap().contact);
    (0..3 * UNREACHED).for_each(|_| net.tick());
    for rank in (0..10).filter(|&rank| rank != 4) {
        assert_eq!(net.dead(rank), [4], "rank {rank}");
    }
}

/// Nothing passes between rank 0 and rank 4, which lives, before the last question in time.
#[test]
fn who_answers_late_lives() {
    let mut net = Net::new(&[0, 1, 2, 3, 3, 3, 4]);
    net.tick();
    net.speak(0, 3);
    net.tick();
    net.cut_off(|rank| [2, 3, 5, 6].contains(&rank));
    net.cut.push((0, 4));
    net.tick_until_lost();
    assert_eq!(net.dead(0), [2, 3, 6], "rank 5 is watched by those only");
    (0..MISSES - 1).for_each(|_| net.tick());
    assert_eq!(seen(&net, 4), (false, true, false));
    net.cut.pop();
    net.tick();
    assert!(seen(&net, 4).0);
    (0..3 * UNREACHED).for_each(|_| net.tick());
    for rank in [0, 1] {
        assert_eq!(net.dead(rank), [2, 3, 5, 6], "rank {rank}");
    }
    let accuses = |rank| net.why(4, rank).is_some();
    assert!(![0, 1, 4].into_iter().any(accuses), "{:?}", net.dead(4));
}

/// The watching thread of its node has seen the process end. If another one of the node follows,
/// their ends may have one cause.
#[test]
fn who_ends_alone_puts_no_others_in_doubt() {
    let mut net = Net::new(&[0, 0, 1, 1, 1, 1, 2, 2]);
    net.speak(0, 5);
    net.tick();
    for (dead, asked) in [(2, false), (5, true)] {
        net.ranks[3].1.deaths.declare(dead, "its process has died");
        net.each(|pulse, shared, out| pulse.notice(shared, out));
        assert_eq!(seen(&net, 4), (asked, false, false), "after rank {dead}");
    }
    (0..3 * UNREACHED).for_each(|_| net.tick());
    assert_eq!(net.dead(0), [2, 5]);
}

/// Datagrams from one rank are blocked, but packets come from it. Another rank of its node is lost.
#[test]
fn silence_that_means_nothing_still_does_not_when_others_are_lost() {
    let mut net = Net::new(&[0, 1, 1, 1]);
    net.cut_off(|rank| rank == 2);
    net.tick();
    net.ranks[0].1.contacts.note(2, Contacts::ARRIVED);
    net.cut_off(|rank| rank == 1 || rank == 2);
    (0..3).for_each(|_| net.tick_until_lost());
    assert_eq!(net.dead(0), [1]);
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

/// Ranks that are neighbours and have nothing to say to each other.
#[test]
fn silence_means_nothing_between_quiet_ranks_where_heartbeats_never_came() {
    let mut net = Net::new(&[0, 1, 2, 2]);
    net.cut = (0..4)
        .flat_map(|one| (0..one).map(move |other| (one, other)))
        .collect();
    (0..3 * UNREACHED).for_each(|_| net.tick());
    assert!((0..4).all(|rank| net.dead(rank).is_empty()));
    assert!(net.ranks.iter().all(|(pulse, _)| pulse.warned));
    // Later, one has something to say, and does not reach the other.
    net.speak(0, 1);
    (0..UNREACHED).for_each(|_| net.tick());
    assert_eq!(net.dead(0), []);
    net.tick();
    assert_eq!(
        net.dead(0),
        [1],
        "and nothing is concluded about the others"
    );
}

/// The receiver computes, so that no packet of its comes back.
#[test]
fn silence_means_nothing_where_there_is_a_connection_and_heartbeats_never_came() {
    let mut net = Net::new(&[0, 1, 1]);
    net.cut = vec![(0, 1), (0, 2)];
    net.speak(0, 1);
    for _ in 0..3 * UNREACHED {
        let (pulse, shared) = &mut net.ranks[0];
        if pulse.doubts(shared) {
            pulse.reach([address(1), endpoint(1)].into_iter());
            assert!(!pulse.doubts(shared));
        }
        net.tick();
    }
    assert_eq!(net.dead(0), []);
    // A packet shows the same for the other ranks of its node.
    net.ranks[0].1.contacts.note(1, Contacts::ARRIVED);
    net.speak(0, 2);
    (0..3 * UNREACHED).for_each(|_| net.tick());
    assert_eq!(net.dead(0), []);
}

/// Datagrams to one node are blocked. Another one is lost.
#[test]
fn a_node_whose_heartbeats_never_came_is_not_lost_with_another() {
    let mut net = Net::new(&[0, 1, 2]);
    net.cut = vec![(0, 1), (1, 2)];
    (0..2).for_each(|_| net.tick());
    net.cut = vec![(0, 1), (1, 2), (0, 2)];
    net.tick_until_lost();
    assert_eq!(net.dead(0), [2]);
}

/// Otherwise all ranks that find a death would tell rank 0 first.
#[test]
fn each_rank_begins_with_the_next_one() {
    let mut net = Net::new(&[0, 1, 2, 3]);
    let (pulse, shared) = &mut net.ranks[2];
    let mut out = Out::new();
    pulse.notice(shared, &mut out);
    out.clear();
    shared.deaths.declare(1, "it sent nonsense");
    pulse.notice(shared, &mut out);
    let to: Vec<u32> = out.iter().map(|(rank, ..)| *rank).collect();
    // The death leaves it with another neighbour, which is asked first.
    assert_eq!(to, [0, 3, 0, 1]);
    let error = std::io::Error::from_raw_os_error(libc::ENETUNREACH);
    pulse.sent(3, Some(&error));
    let errors = pulse
        .others()
        .map(|(rank, other)| (rank, other.error.is_some()));
    assert!(errors.eq([(3, true), (0, false), (1, false)]));
}

#[test]
fn strangers_are_not_believed() {
    let mut net = Net::new(&[0, 1]);
    let beat = |job, from, dead| Beat {
        kind: Kind::Report,
        job,
        from,
        count: Count {
            packets: 0,
            turn: 0,
        },
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
