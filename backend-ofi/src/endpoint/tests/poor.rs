//! Providers that offer less than others, or work in another way: everything still arrives.

use libfabric_sys::{FI_AV_TABLE, FI_ENOMEM, FI_SEND, fi_ops_mr};
use portolan_core::matching::Pattern;
use portolan_core::{ContigBuf, SendArgs};

use super::*;

const LEN: usize = (1 << 20) + 3;

/// Two ranks over a provider whose description `change` has altered; `None` where there is no such
/// provider.
fn changed(what: &str, provider: &str, change: impl Fn(&mut Info)) -> Option<[Ofi; 2]> {
    let config = Config {
        provider: Some(provider.to_owned()),
        interface: (provider != "shm").then(|| "lo".to_owned()),
        ..Config::default()
    };
    opened_or_skipped(what, 2, &config)?;
    let (library, mut info) = choose(&config).expect("chosen a moment ago");
    change(&mut info);
    let ranks = in_process_as(2, &config, (library, info)).expect("it opens");
    Some(ranks.try_into().expect("two ranks"))
}

/// Sends a long message from rank 0 to rank 1. Returns how many bytes of it rank 1 has read by the
/// provider.
fn send_long(ranks: [Ofi; 2]) -> u64 {
    let ranks: [Engine<Ofi, Single>; 2] =
        ranks.map(|rank| Engine::new(rank, &Settings::default()).expect("an engine"));
    let bytes: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    let mut room = vec![0; LEN];
    let args = SendArgs::new(ProcId::new(1), 1, 0, 5);
    let from = Pattern {
        context: 1,
        source: None,
        tag: Some(5),
    };
    // SAFETY: the buffers live until the requests are over, and nothing else uses them meanwhile.
    let (receive, send) = unsafe {
        let room = ContigBuf::from_bytes_mut(&mut room);
        let receive = ranks[1].irecv_contig_unchecked(&from, room);
        let send = ranks[0].isend_contig_unchecked(&args, ContigBuf::from_bytes(&bytes));
        (receive.expect("a receive"), send.expect("a send"))
    };
    let (mut received, mut sent) = (None, None);
    for _ in 0..10_000_000 {
        for rank in &ranks {
            rank.device_check(Check::NonBlocking).expect("progress");
        }
        received = received.or_else(|| ranks[1].test(receive).expect("a receive"));
        sent = sent.or_else(|| ranks[0].test(send).expect("a send"));
        if let (Some(status), Some(_)) = (received, sent) {
            assert_eq!(status.bytes, LEN as u64);
            assert!(room == bytes, "other bytes");
            return ranks[1].snapshot().bytes_pulled;
        }
    }
    panic!("the message never ends");
}

#[test]
fn what_is_longer_than_the_providers_longest_message_goes_in_pieces() {
    for provider in PROVIDERS {
        let what = format!("short messages over {provider}");
        let short = || changed(&what, provider, |info| info.set_longest(5000));
        let Some(ranks) = short() else {
            continue;
        };
        assert!(ranks[0].link.part < 5000, "{provider}");
        assert_eq!(send_long(ranks), 0, "{provider}: read at once");
        let done = remotely(short().expect("it opened a moment ago"));
        assert!(done >= 2, "{provider}: not by the provider");
    }
}

/// The word of a packet without a header does not tell an acknowledgement that many have overtaken.
#[test]
fn where_messages_overtake_each_other_all_packets_have_headers() {
    for provider in ["tcp", "shm"] {
        let what = format!("messages that overtake each other over {provider}");
        let Some(ranks) = changed(&what, provider, |_| {}) else {
            continue;
        };
        assert!(
            ranks[0].words,
            "{provider} keeps the order, and transmits words"
        );
        let ranks = changed(&what, provider, Info::set_no_order).expect("it opened a moment ago");
        assert!(!ranks[0].words, "{provider}");
        send_long(ranks);
    }
}

#[test]
fn addresses_may_be_kept_as_a_table() {
    for provider in PROVIDERS {
        let what = format!("addresses in a table over {provider}");
        let table = || changed(&what, provider, |info| info.set_av_type(FI_AV_TABLE));
        let Some(mut ranks) = table() else {
            continue;
        };
        read(&mut ranks);
        // The first address of the vector: an address goes there with the first packet.
        assert_eq!(ranks[1].peers[0].addr, 0, "{provider}");
        put_add_get(ranks);
        send_long(table().expect("it opened a moment ago"));
    }
}

unsafe extern "C" fn refuse(
    _domain: *mut fid,
    _attr: *const fi_mr_attr,
    _flags: u64,
    _region: *mut *mut fid_mr,
) -> c_int {
    -FI_ENOMEM
}

/// Makes every registration of a rank fail from now on, as if the limit of locked memory were too
/// low. The table is never freed, since the domain uses it as long as it is open.
fn refuse_all(rank: &mut Ofi) {
    let domain = rank.link.domain.domain.get();
    // SAFETY: an open domain, which only this thread uses, and whose table has at least the checked
    // size.
    unsafe {
        assert!((*(*domain).mr).size >= size_of::<fi_ops_mr>());
        let mut table = Box::new((*domain).mr.read());
        table.size = size_of::<fi_ops_mr>();
        table.regattr = Some(refuse);
        (*domain).mr = Box::leak(table);
    }
}

#[test]
fn what_cannot_be_registered_goes_by_packets() {
    for provider in PROVIDERS {
        let refused = || {
            let mut ranks = pair(provider, Way::Asked)?;
            ranks.iter_mut().for_each(refuse_all);
            Some(ranks)
        };
        let Some(ranks) = refused() else {
            continue;
        };
        let mut memory = [0_u8; 64];
        let domain = &ranks[0].link.domain;
        let why = domain.register(memory.as_mut_ptr(), 64, FI_SEND, 80);
        let why = why.expect_err("it is refused");
        for part in ["memory", "64 bytes", "ulimit -l"] {
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(send_long(ranks), 0, "{provider}: it was read");
        let done = remotely(refused().expect("it opened a moment ago"));
        assert_eq!(done, 0, "{provider}: by the provider");
    }
}

/// The owner's region is registered, but not this side's buffers, which the provider requires to be
/// registered as well.
#[test]
fn what_cannot_be_registered_on_this_side_passes_through_memory_that_is() {
    for provider in PROVIDERS {
        let Some(mut ranks) = pair(provider, Way::Local) else {
            continue;
        };
        refuse_all(&mut ranks[0]);
        // The put and the get of 100,000 bytes go in parts.
        let done = remotely(ranks);
        assert!(done > 20, "{provider}: {done} operations of the provider");
    }
}

#[test]
fn a_rank_asleep_is_woken_by_the_providers_descriptor() {
    let Some(mut ranks) = pair("tcp", Way::Asked) else {
        return;
    };
    let [zero, one] = &mut ranks;
    assert!(one.link.domain.wait.is_some(), "tcp has one");
    let (bell, mut heard) = (one.bell(), Heard(0));
    one.arm();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sent = Sent::Full;
            while sent != Sent::Done || !zero.has_nothing_to_say() {
                if sent == Sent::Full {
                    // SAFETY: the rank exists and is another; as many bytes are readable.
                    sent = unsafe { zero.send_short(1, &Header::default(), b"ahoy".as_ptr(), 4) };
                }
                progress::poll(zero, &mut Nobody);
            }
        });
        loop {
            let seen = bell.seen();
            progress::poll(one, &mut heard);
            if heard.0 != 0 {
                break;
            }
            assert!(!one.bell.is_brief(), "it wakes by itself");
            // Without a limit: only the provider's descriptor can end this sleep, because nothing
            // else rings.
            bell.sleep(seen, None);
        }
    });
    one.disarm();
    assert_eq!(heard.0, 4);
}
