//! Attributes, clocks, and the switches for debugging.

use std::path::PathBuf;

use portolan_core::device::DebugOutput;
use portolan_core::{Device, ErrorKind, ProcId};

use crate::case::Verdict;
use crate::rank::{Rank, fails};

/// The attributes have values that programs can work with.
pub fn attributes<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let attributes = rank.device.attributes();
    assert!(attributes.world_rank < attributes.world_size);
    // MPI-4 section 9.1.2 requires tags up to 32767 at least.
    assert!(
        attributes.tag_ub >= 32767,
        "tag_ub is {}",
        attributes.tag_ub
    );
    assert!(
        attributes.max_context_id >= 32767,
        "{}",
        attributes.max_context_id
    );
    assert!(!attributes.name.is_empty() && !attributes.node_name.is_empty());
    assert!(
        attributes.version.chars().any(|c| c.is_ascii_digit()),
        "{}",
        attributes.version
    );
    assert!(
        attributes.active_max >= 64,
        "active_max is {}",
        attributes.active_max
    );
    for peer in (0..rank.size()).map(ProcId::new) {
        assert_eq!(rank.device.failure_of(peer), None);
    }
    Ok(())
}

/// The clock does not go backwards, and its resolution is a positive duration.
pub fn clocks<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    assert!(rank.device.wtick() > 0.0 && rank.device.wtick() < 1.0);
    let mut last = rank.device.wtime();
    for _ in 0..10_000 {
        let now = rank.device.wtime();
        assert!(now >= last, "the clock went from {last} to {now}");
        last = now;
    }
    if rank.device.attributes().wtime_is_global {
        // A message cannot be seen before it was sent.
        let sent = rank.device.wtime().to_le_bytes();
        rank.send(&rank.to(rank.next(), 0), &sent)
            .expect("a small send");
        let (_, bytes) = rank.take(&rank.from(rank.previous(), 0), 8);
        let sent = f64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        assert!(
            rank.device.wtime() >= sent,
            "received before it was sent at {sent}"
        );
    }
    Ok(())
}

/// Ranks agree on what must be the same everywhere, and on which ranks share a node.
pub fn agreement<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let attributes = rank.device.attributes();
    let mine = format!(
        "{} {} {} {} {} {:?}",
        attributes.name,
        attributes.world_size,
        attributes.tag_ub,
        attributes.max_context_id,
        attributes.active_max,
        attributes.caps,
    );
    let all = rank.all_gather(mine.as_bytes());
    assert!(all.iter().all(|other| *other == mine.as_bytes()), "{all:?}");

    let node = |peer| rank.device.node_of(ProcId::new(peer));
    let together: Vec<_> = (0..rank.size())
        .map(|p| u8::from(node(p) == node(rank.me())))
        .collect();
    for (peer, theirs) in rank.all_gather(&together).iter().enumerate() {
        let agreed = theirs[rank.me() as usize] == together[peer];
        assert!(
            agreed,
            "ranks {} and {peer} disagree on sharing a node",
            rank.me()
        );
    }
    Ok(())
}

/// State and counters can be shown at any time; each counter has a name of its own.
pub fn state_for_people<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let pending = rank.irecv(&rank.from(rank.previous(), 7), 8);
    let lines = rank.device.describe_state();
    assert!(
        !lines.is_empty() && lines.iter().all(|line| !line.contains('\n')),
        "{lines:?}"
    );
    let memory = |line: &String| line.contains("memory: ") && line.ends_with(" bytes");
    assert!(lines.iter().any(memory), "{lines:?}");
    rank.send(&rank.to(rank.next(), 7), b"counted")
        .expect("a small send");
    rank.done(pending);
    let counters = rank.device.counters();
    let mut names: Vec<_> = counters.iter().map(|(name, _)| *name).collect();
    let total = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), total, "counters share a name: {counters:?}");
    assert!(counters.iter().any(|(_, count)| *count > 0), "{counters:?}");
    Ok(())
}

/// A file name that no other test uses.
fn scratch_file<D: Device>(rank: &Rank<'_, D>, what: &str) -> PathBuf {
    let name = format!(
        "portolan-conformance-{}-{:p}-{}-{what}",
        std::process::id(),
        rank.device,
        rank.me(),
    );
    std::env::temp_dir().join(name)
}

/// Debug output and traces go where they are sent, and stop.
pub fn debug_switches<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let (debug, trace) = (scratch_file(rank, "debug"), scratch_file(rank, "trace"));
    let device = rank.device;
    device
        .set_debug(Some(DebugOutput::File(&debug)))
        .expect("a debug file");
    device.set_trace_file(Some(&trace)).expect("a trace file");
    rank.send(&rank.to(rank.next(), 1), b"traced")
        .expect("a small send");
    rank.take(&rank.from(rank.previous(), 1), 16);
    device.set_debug(None).expect("switching debug output off");
    device.set_trace_file(None).expect("closing the trace");
    let said = std::fs::read(&debug).expect("the debug file");
    assert!(!said.is_empty(), "no debug output");
    rank.send(&rank.to(rank.next(), 2), b"untraced")
        .expect("a small send");
    rank.take(&rank.from(rank.previous(), 2), 16);
    let more = std::fs::read(&debug).expect("the debug file");
    assert_eq!(
        more.len(),
        said.len(),
        "debug output after it was switched off"
    );
    let text = std::fs::read_to_string(&trace).expect("the trace file");
    assert!(
        text.trim_start().starts_with(['[', '{']),
        "not the trace event format: {text}"
    );
    let nowhere = std::env::temp_dir()
        .join("portolan-no-such-directory")
        .join("file");
    fails(
        device.set_trace_file(Some(&nowhere)),
        ErrorKind::InvalidArgument,
        "a bad trace file",
    );
    let bad = device.set_debug(Some(DebugOutput::File(&nowhere)));
    fails(bad, ErrorKind::InvalidArgument, "a bad debug file");
    for file in [debug, trace] {
        std::fs::remove_file(file).expect("removing a scratch file");
    }
    Ok(())
}

/// Whatever the packet size, messages arrive.
pub fn packet_size<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let original = rank.eager_max();
    for size in [0, 1, 100, 5000, usize::MAX, original] {
        rank.device.set_packet_size(size);
        for (len, tag) in [0_usize, 1, 99, 100, 101, 6000, 70_000]
            .into_iter()
            .zip(0..)
        {
            let received = rank.irecv(&rank.from(rank.previous(), tag), len);
            let bytes = crate::bytes::content(u64::from(tag), len);
            rank.send(&rank.to(rank.next(), tag), &bytes)
                .expect("a send");
            let (status, bytes) = rank.done(received);
            assert_eq!(status.bytes, len as u64);
            crate::bytes::check(&bytes, u64::from(tag), "after a change of the packet size");
        }
    }
    Ok(())
}
