//! Many ranks that send to one without a pause.

use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use super::*;
use crate::deaths::sever;
use crate::quirks::room;
use crate::testing::Count;

/// Ranks, and packets from each of them to rank 0 and back.
const RANKS: u32 = 16;
const PACKETS: usize = 60;
/// Far longer than it takes, and than `ofi_rxd` waits before it resends (4 s at most).
const LONG_ENOUGH: Duration = Duration::from_secs(60);

/// The ranks of a job over `ofi_rxd`; `None` if there is none here, which has been printed.
fn over_datagrams(what: &str, ranks: u32) -> Option<Vec<Ofi>> {
    let config = Config {
        provider: Some("ofi_rxd".to_owned()),
        interface: Some("lo".to_owned()),
        ..Config::default()
    };
    opened_or_skipped(what, ranks, &config)
}

/// Sends as many of the remaining packets as there is room for. Each `long`-th is long.
fn send(from: &mut Ofi, to: u32, left: &mut usize, long: usize, bytes: &[u8]) {
    while *left > 0 {
        let (header, data) = (Header::default(), bytes.as_ptr());
        // SAFETY: another rank, which exists; all of the bytes are readable.
        let sent = unsafe {
            match *left % long {
                0 => from.send_bulk_from(to, &header, data, bytes.len()),
                _ => from.send_short(to, &header, data, 8),
            }
        };
        match sent {
            Sent::Done => *left -= 1,
            Sent::Full => return,
            Sent::Gone => panic!("rank {to} is held to be dead"),
        }
    }
}

/// With as much under way as over other providers, `ofi_rxd` (1.17) stopped for good. With buffers
/// for many messages, a call into that of 2.5 did not return (see `caps::takes_many`).
#[test]
fn a_flood_of_datagrams_ends() {
    let Some(mut ranks) = over_datagrams("a flood of datagrams", RANKS) else {
        return; // The skip has been printed.
    };
    // Their sockets limit how much comes at once, too. Here they do so as little as the system
    // allows.
    let own = |rank: &Ofi| Some(sever::parse(rank.addresses.of(rank.rank))?.port());
    let ports: Vec<u16> = ranks.iter().filter_map(own).collect();
    let theirs = sever::sockets().filter(|socket| ports.contains(&socket.here.port()));
    let widened = theirs.map(|socket| room::widen(socket.fd.as_raw_fd(), 4 << 20));
    assert_eq!(widened.count(), RANKS as usize, "a socket each");
    for long in [1, 3] {
        if let Err(why) = flood(&mut ranks, long) {
            std::mem::forget(ranks); // They would wait for what is under way.
            panic!("{why}");
        }
    }
}

fn flood(ranks: &mut [Ofi], long: usize) -> Result<(), String> {
    let others = RANKS as usize - 1;
    let all = others * PACKETS;
    let bytes = vec![7; ranks[0].limits().bulk];
    let (mut there, mut back) = (vec![PACKETS; others], vec![PACKETS; others]);
    let (mut came, mut answered) = (Count(0), Count(0));
    let (begin, mut polls) = (Instant::now(), 0_u64);
    while (came.0, answered.0) != (all, all) {
        let (zero, rest) = ranks.split_at_mut(1);
        for (rank, left) in rest.iter_mut().zip(&mut there) {
            send(rank, 0, left, long, &bytes);
            rank.poll(&mut answered);
        }
        polls += 1;
        // Rank 0 is slower than all of them together.
        if polls.is_multiple_of(8) {
            for (peer, left) in (1..).zip(&mut back) {
                send(&mut zero[0], peer, left, long, &bytes);
            }
            zero[0].poll(&mut came);
        }
        if begin.elapsed() > LONG_ENOUGH {
            let (came, answered) = (came.0, answered.0);
            return Err(format!(
                "of {all} packets each way {came} and {answered} have arrived"
            ));
        }
    }
    Ok(())
}

/// Ranks that do not poll keep slots, of which there are few; there are some for others.
#[test]
fn who_does_not_poll_leaves_slots_to_the_others_over_datagrams() {
    let Some(mut ranks) = over_datagrams("slots over datagrams", 6) else {
        return; // The skip has been printed.
    };
    let bytes = vec![7; ranks[0].limits().bulk];
    let (first, rest) = ranks.split_at_mut(1);
    let (zero, last) = (&mut first[0], &mut rest[4]);
    for deaf in 1..5 {
        let mut left = 1000;
        send(zero, deaf, &mut left, 1, &bytes);
        assert!(left < 1000, "rank {deaf} gets some");
    }
    let (mut left, mut came) = (30, Count(0));
    let begin = Instant::now();
    while came.0 < 30 {
        send(zero, 5, &mut left, 1, &bytes);
        zero.poll(&mut Nobody);
        last.poll(&mut came);
        assert!(begin.elapsed() < LONG_ENOUGH, "{} have arrived", came.0);
    }
}
