//! Offers for a receive in hand. That they need no request shows where there is no free slot.

use super::{Scripted, arrives, scripted};
use crate::Request;
use crate::buffer::ContigBuf;
use crate::config::Settings;
use crate::device::Device;
use crate::engine::Engine;
use crate::engine::long::ways::Way;
use crate::error::{ErrorKind, Result};
use crate::level::{Single, StateLock};
use crate::matching::Pattern;
use crate::request::State as Stage;
use crate::status::Status;
use crate::transport::packet::flags;
use crate::transport::{Header, PacketKind, Pulls};

type Rank = Engine<Scripted, Single>;

/// A rank without free slots, whose peer's messages are pulled as `pulls` says.
fn rank_without_slots(pulls: Pulls) -> Rank {
    let mut transport = scripted();
    (transport.pulled, transport.pulls) = (Some(Vec::new()), pulls);
    let engine: Rank = Engine::new(transport, &Settings::default()).expect("an engine");
    let mut state = engine.state.lock();
    for _ in 1..Request::MAX_ACTIVE {
        state.proto.table.claim(Stage::Active).expect("a slot");
    }
    drop(state);
    engine
}

/// Offers `sent` bytes, of a sender that waits for them or not, to a blocking receive of `room`.
fn receive(rank: &Rank, sent: usize, waited: bool, room: usize) -> Result<Status> {
    let header = Header {
        kind: PacketKind::Offer as u8,
        flags: flags::EXPOSED | if waited { flags::WAITED } else { 0 },
        context: 3,
        source: 1,
        tag: 5,
        cookie: 40,
        ..Header::default()
    };
    let mut offer = [0; 48];
    offer[..8].copy_from_slice(&(sent as u64).to_le_bytes());
    offer[16] = 1;
    arrives(rank, header, &offer);
    let pattern = Pattern {
        context: 3,
        source: Some(1),
        tag: Some(5),
    };
    let mut target = vec![0_u8; room];
    let buf = ContigBuf::from_bytes_mut(&mut target);
    // SAFETY: the vector outlives the call.
    let outcome = unsafe { rank.recv_contig_unchecked(&pattern, buf) };
    if outcome.is_ok() {
        assert!(target[..sent].iter().all(|&byte| byte == 1));
        assert!(target[sent..].iter().all(|&byte| byte == 0));
    }
    outcome
}

/// Lets the rank find that pulls are the best way of messages of this length.
fn learn_to_pull(rank: &Rank, len: usize) {
    let ways = &mut rank.state.lock().proto.ways;
    for _ in 0..10_000 {
        if ways.go_on_pulling(1, len, false) {
            return;
        }
        let way = ways.begin(1, len, false, 0, |way| way == Way::Pull);
        assert_eq!(way, Some(Way::Pull));
        assert!(ways.end(1).is_empty());
    }
    panic!("no period of pulls goes on");
}

fn sent(rank: &Rank) -> Vec<(u8, u32)> {
    let state = rank.state.lock();
    let sent = state.transport.sent.iter();
    sent.map(|header| (header.kind, header.cookie)).collect()
}

#[test]
fn what_is_to_be_pulled_is_pulled_at_once_and_acknowledged() {
    for (pulls, len) in [
        (Pulls::Whole, 20_000),
        (Pulls::Always, 1000),
        (Pulls::Measured, 1000),
        (Pulls::Measured, 20_000),
    ] {
        let rank = rank_without_slots(pulls);
        learn_to_pull(&rank, len);
        let status = receive(&rank, len, true, len + 7).expect("no slot is needed");
        assert_eq!((status.bytes, status.sent), (len as u64, len as u64));
        assert_eq!(rank.state.lock().transport.pulled, Some(vec![len]));
        assert_eq!(sent(&rank), [(PacketKind::Done as u8, 40)], "{pulls:?}");
        let counters = rank.counters();
        let state = rank.state.lock();
        let is_loaded = pulls == Pulls::Whole;
        assert_eq!(state.proto.unasked.goes_both_ways(1), !is_loaded);
        let received = counters.iter().find(|(name, _)| *name == "bytes_pulled");
        assert_eq!(received.map(|found| found.1), Some(len as u64));
    }
}

/// What takes another way, or may, becomes an ordinary receive, for which there is no slot here.
#[test]
fn everything_else_needs_a_request() {
    // Long enough that the sender copies a half; a sender that may not be in a call; one that is
    // not; nothing known of the ways; a buffer that is too short; and a message that takes turns.
    for (pulls, len, waited, room, learnt) in [
        (Pulls::Always, 20_000, true, 20_000, true),
        (Pulls::Measured, 1000, false, 1000, true),
        (Pulls::Absent, 1000, true, 1000, true),
        (Pulls::Measured, 1000, true, 1000, false),
        (Pulls::Measured, 1000, true, 999, true),
        (Pulls::Measured, (1 << 20) + 1, true, (1 << 20) + 1, true),
    ] {
        let rank = rank_without_slots(pulls);
        if learnt {
            learn_to_pull(&rank, len);
        }
        let error = receive(&rank, len, waited, room).expect_err("there is no slot");
        let case = (pulls, len, waited, room, learnt);
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{case:?}");
        assert_eq!(rank.state.lock().transport.pulled, Some(vec![]), "{case:?}");
    }
}

/// What is being pulled comes first, and a pull that is refused goes the usual way. Neither leaves
/// a transfer open.
#[test]
fn nothing_is_overtaken_or_left_open() {
    const LEN: usize = 1000;
    for refused in [false, true] {
        let rank = rank_without_slots(Pulls::Measured);
        learn_to_pull(&rank, LEN);
        match refused {
            true => rank.state.lock().transport.refuses_pulls = true,
            false => rank.state.lock().proto.pulls.push_back(1),
        }
        let error = receive(&rank, LEN, true, LEN).expect_err("there is no slot");
        assert_eq!(error.kind(), ErrorKind::Exhausted);
        let state = rank.state.lock();
        assert_eq!(state.transport.pulled, Some(vec![]));
        let goes_on = state.proto.ways.go_on_pulling(1, LEN, false);
        assert!(goes_on, "nothing is under way");
    }
}
