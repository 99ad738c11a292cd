//! Many ranks that send to one without a pause.

use super::*;
use crate::testing::Count;

/// Ranks, packets from each of them to rank 0 and back, and polls that are far more than these
/// take.
const RANKS: u32 = 16;
const PACKETS: usize = 60;
const POLLS: usize = 2_000_000;

/// Sends as many of the remaining packets as there is room for.
fn send(from: &mut Ofi, to: u32, left: &mut usize, bytes: &[u8]) {
    while *left > 0 {
        // SAFETY: another rank, which exists; all of the bytes are readable.
        let sent =
            unsafe { from.send_bulk_from(to, &Header::default(), bytes.as_ptr(), bytes.len()) };
        match sent {
            Sent::Done => *left -= 1,
            Sent::Full => return,
            Sent::Gone => panic!("rank {to} is held to be dead"),
        }
    }
}

/// With as much under way as over other providers, `ofi_rxd` (1.17) stopped for good.
#[test]
fn a_flood_of_datagrams_ends() {
    let config = Config {
        provider: Some("ofi_rxd".to_owned()),
        interface: Some("lo".to_owned()),
        ..Config::default()
    };
    let Some(mut ranks) = opened_or_skipped("a flood of datagrams", RANKS, &config) else {
        return; // The skip has been printed.
    };
    let others = RANKS as usize - 1;
    let bytes = vec![7; ranks[0].limits().bulk];
    let (mut there, mut back) = (vec![PACKETS; others], vec![PACKETS; others]);
    let (mut came, mut answered) = (Count(0), Count(0));
    for poll in 0..POLLS {
        let (zero, rest) = ranks.split_at_mut(1);
        for (rank, left) in rest.iter_mut().zip(&mut there) {
            send(rank, 0, left, &bytes);
            rank.poll(&mut answered);
        }
        // Rank 0 is slower than all of them together.
        if poll % 8 == 0 {
            for (peer, left) in (1..).zip(&mut back) {
                send(&mut zero[0], peer, left, &bytes);
            }
            zero[0].poll(&mut came);
        }
        if (came.0, answered.0) == (others * PACKETS, others * PACKETS) {
            return;
        }
    }
    panic!(
        "{} and {} packets have arrived, and no more will",
        came.0, answered.0
    );
}
