//! What freed regions and dead peers leave behind.

use portolan_core::transport::{Begun, Header, Payload, Pulled, Remote, Sent, Sink, Transport};

use super::{PATIENCE, Slot, UNDER_WAY, Way, take};
use crate::config::Config;
use crate::ofi::Ofi;
use crate::testing::{opened_or_skipped, skipped};

/// More polls than anything here takes.
const POLLS: u32 = 5_000_000;

/// Counts packets.
struct Count(usize);

impl Sink for Count {
    fn accepts(&mut self, _peer: u32) -> bool {
        true
    }

    fn packet(&mut self, _peer: u32, _header: &Header, _payload: Payload<'_>) {
        self.0 += 1;
    }

    fn finished(&mut self, _id: u32, _outcome: Option<u64>) {}
}

/// Ranks over tcp, with remote operations; `None` where there is no such provider.
fn ranks<const N: usize>() -> Option<[Ofi; N]> {
    let config = Config {
        provider: Some("tcp".to_owned()),
        interface: Some("lo".to_owned()),
        ..Config::default()
    };
    let what = "remote operations";
    let ranks = opened_or_skipped(what, N as u32, &config)?;
    if !ranks[0].link.domain.remote {
        skipped(what, "the provider has none");
        return None;
    }
    ranks.try_into().ok()
}

/// A packet goes from one rank to another.
fn meet(ranks: &mut [Ofi], from: usize, to: usize) {
    let mut count = Count(0);
    let mut sent = Sent::Full;
    let mut polls = 0;
    while count.0 == 0 {
        if sent == Sent::Full {
            // SAFETY: another rank, which exists; no bytes are read.
            sent = unsafe {
                ranks[from].send_short(to as u32, &Header::default(), std::ptr::null(), 0)
            };
        }
        ranks[from].poll(&mut Count(0));
        ranks[to].poll(&mut count);
        polls += 1;
        assert!(polls < POLLS, "the packet does not arrive");
    }
}

#[test]
fn a_message_out_of_a_region_that_is_freed_is_read() {
    const LEN: usize = 1 << 20;
    let (mut source, mut target) = (vec![7_u8; LEN], vec![0_u8; LEN]);
    let Some(mut ranks) = ranks::<2>() else {
        return; // It has said why.
    };
    meet(&mut ranks, 0, 1);
    let [zero, one] = &mut ranks;
    let start = source.as_mut_ptr();
    // SAFETY: the source outlives the ranks.
    let (token, exposure) = unsafe {
        let token = one.register(start, LEN, portolan_core::MemoryKind::Host);
        (token.expect("a region"), one.expose(start, LEN))
    };
    let exposure = exposure.expect("the provider has RMA");
    one.deregister(&token);
    let mut polls = 0;
    loop {
        // SAFETY: the target outlives the ranks.
        let pulled = unsafe { zero.pull(1, &exposure, 0, target.as_mut_ptr(), LEN) };
        match pulled {
            Pulled::Later => {}
            Pulled::Done => break,
            other => panic!("{other:?}"),
        }
        zero.poll(&mut Count(0));
        one.poll(&mut Count(0));
        polls += 1;
        assert!(polls < POLLS, "the read never ends");
    }
    assert!(target == source);
    one.withdraw(&exposure);
    assert_eq!(zero.failures(), 0);
}

#[test]
fn operations_on_the_dead_give_their_places_to_the_living() {
    let mut memory = [[0_u8; 64]; 2];
    let bytes = [7_u8; 64];
    let Some(mut ranks) = ranks::<3>() else {
        return; // It has said why.
    };
    meet(&mut ranks, 0, 1);
    meet(&mut ranks, 0, 2);
    let [zero, one, two] = &mut ranks;
    let [first, second] = &mut memory;
    // SAFETY: the memory outlives the ranks.
    let tokens = unsafe {
        let kind = portolan_core::MemoryKind::Host;
        let first = one.register(first.as_mut_ptr(), 64, kind);
        let second = two.register(second.as_mut_ptr(), 64, kind);
        [first, second].map(|token| token.expect("a region"))
    };
    let put = Remote::Put {
        source: bytes.as_ptr(),
        len: 64,
    };
    for id in 0..UNDER_WAY as u32 {
        // SAFETY: readable bytes, inside of the region.
        let begun = unsafe { zero.begin_remote(1, &tokens[0], 0, put, id) };
        assert_eq!(begun, Begun::Bytes(64));
    }
    zero.shared.deaths.declare(1, "its node is gone");
    let mut polls = 0;
    loop {
        // SAFETY: as above.
        match unsafe { zero.begin_remote(2, &tokens[1], 0, put, 100) } {
            Begun::Bytes(_) => break,
            Begun::Full => {}
            other => panic!("{other:?}"),
        }
        zero.poll(&mut Count(0));
        two.poll(&mut Count(0));
        polls += 1;
        assert!(polls < POLLS, "the dead keep their places");
    }
}

#[test]
fn slots_that_the_dead_never_give_back_are_not_waited_for() {
    let mut memory = [0_u8; 64];
    let bytes = [7_u8; 64];
    let Some(mut ranks) = ranks::<3>() else {
        return; // It has said why.
    };
    meet(&mut ranks, 0, 2);
    let [zero, _, two] = &mut ranks;
    let start = memory.as_mut_ptr();
    // SAFETY: the memory outlives the ranks.
    let token = unsafe { two.register(start, 64, portolan_core::MemoryKind::Host) };
    let token = token.expect("a region");
    zero.shared.deaths.declare(1, "its node is gone");
    let mut polls = 0;
    while zero.failures() == 0 {
        zero.poll(&mut Count(0));
        polls += 1;
        assert!(polls < POLLS, "the death is not believed");
    }
    // As if the provider had operations that it never ends.
    let remotes = &mut zero.link.memory.remotes;
    remotes.free.clear();
    remotes.slots.fill_with(|| {
        Some(Slot {
            id: 0,
            peer: 1,
            kind: Way::Out,
            _region: None,
        })
    });
    let put = Remote::Put {
        source: bytes.as_ptr(),
        len: 64,
    };
    // SAFETY: readable bytes, inside of the region.
    let mut begin = |id| unsafe { zero.begin_remote(2, &token, 0, put, id) };
    for id in 0..PATIENCE {
        assert_eq!(begin(id), Begun::Full);
    }
    assert_eq!(begin(PATIENCE), Begun::Refused);
    for index in 0..UNDER_WAY {
        assert!(take(zero, index).is_some());
    }
}
