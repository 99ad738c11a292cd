//! Contiguous messages: every form, mode and size.

use portolan_core::device::Caps;
use portolan_core::{ContigBuf, Device, MemoryKind, SendMode};
use portolan_datatype::Signature;

use crate::bytes::{check, content, seed, sizes};
use crate::case::{Skip, Verdict};
use crate::rank::Rank;

const MODES: [SendMode; 3] = [SendMode::Standard, SendMode::Synchronous, SendMode::Ready];

/// Around the ring with blocking sends; the receives are posted before, as ready mode requires.
pub fn blocking_in_every_mode<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for (mode, round) in MODES.into_iter().zip(0..) {
        for (len, number) in [0, 1, 8, 100, 1000, rank.long()].into_iter().zip(0..) {
            let tag = round * 100 + number;
            let received = rank.irecv(&rank.from(rank.previous(), tag), len);
            rank.barrier();
            let bytes = content(seed(rank.me(), rank.next(), len), len);
            rank.send(&rank.to(rank.next(), tag).mode(mode), &bytes)
                .expect("a blocking send");
            let (status, bytes) = rank.done(received);
            assert_eq!((status.source, status.tag), (rank.previous(), tag));
            assert_eq!(
                (status.bytes, status.sent, status.error),
                (len as u64, len as u64, None)
            );
            check(
                &bytes,
                seed(rank.previous(), rank.me(), len),
                &format!("{mode:?} {len}"),
            );
        }
    }
    Ok(())
}

/// Around the ring with nonblocking sends and blocking receives.
pub fn nonblocking_in_every_mode<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for (mode, round) in MODES.into_iter().zip(0..) {
        if mode == SendMode::Ready {
            continue; // its receive would have to be posted: see `modes::ready`
        }
        for (len, number) in [0, 1, 8, 100, 1000, rank.long()].into_iter().zip(0..) {
            let tag = round * 100 + number;
            let bytes = content(seed(rank.me(), rank.next(), len), len);
            let sent = rank.isend(&rank.to(rank.next(), tag).mode(mode), bytes);
            let (status, bytes) = rank.take(&rank.from(rank.previous(), tag), len);
            assert_eq!(status.bytes, len as u64);
            check(
                &bytes,
                seed(rank.previous(), rank.me(), len),
                &format!("{mode:?} {len}"),
            );
            let (status, _) = rank.done(sent);
            assert!(!status.cancelled && status.error.is_none());
        }
    }
    Ok(())
}

/// Every size around every limit, expected and unexpected.
pub fn every_size<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for (len, tag) in sizes(rank.eager_max()).into_iter().zip(0..) {
        let expected = rank.irecv(&rank.from(rank.previous(), tag), len);
        let unexpected = rank.context(1);
        let mut other = rank.to(rank.next(), tag);
        other.envelope.context = unexpected;
        let bytes = content(seed(rank.me(), rank.next(), len), len);
        let first = rank.isend(&other, bytes.clone());
        let second = rank.isend(&rank.to(rank.next(), tag), bytes);
        let from = seed(rank.previous(), rank.me(), len);
        let (status, bytes) = rank.done(expected);
        assert_eq!(status.bytes, len as u64);
        check(&bytes, from, &format!("{len} bytes, expected"));
        let mut pattern = rank.from(rank.previous(), tag);
        pattern.context = unexpected;
        let (status, bytes) = rank.take(&pattern, len);
        assert_eq!(status.bytes, len as u64);
        check(&bytes, from, &format!("{len} bytes, unexpected"));
        rank.done(first);
        rank.done(second);
    }
    Ok(())
}

/// Empty messages need no memory on either side.
pub fn empty_messages<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let nothing = ContigBuf {
        ptr: std::ptr::null_mut(),
        len: 0,
        signature: Signature::ANY,
        memory: MemoryKind::Host,
    };
    let args = rank.to(rank.next(), 3);
    // SAFETY: there are no bytes to read.
    unsafe { rank.device.send_contig_unchecked(&args, nothing) }.expect("an empty send");
    // SAFETY: there are no bytes to write.
    let status = unsafe {
        rank.device
            .recv_contig_unchecked(&rank.from(rank.previous(), 3), nothing)
    };
    assert_eq!(status.expect("an empty receive").bytes, 0);
    Ok(())
}

/// One large message, from the first rank to the last.
fn one_large<D: Device>(rank: &Rank<'_, D>, len: usize) {
    if rank.me() == rank.last() {
        let received = rank.irecv(&rank.from(0, 64), len);
        if rank.me() == 0 {
            let sent = rank.isend(&rank.to(0, 64), content(9, len));
            rank.done(sent);
        }
        let (status, bytes) = rank.done(received);
        assert_eq!((status.bytes, status.sent), (len as u64, len as u64));
        check(&bytes, 9, "the large message");
    } else if rank.me() == 0 {
        rank.send(&rank.to(rank.last(), 64), &content(9, len))
            .expect("the large send");
    }
}

/// 64 MiB; where packets are tiny, 2 MiB, which also takes thousands of them.
pub fn sixty_four_mebibytes<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    one_large(rank, if rank.is_cramped() { 2 } else { 64 } << 20);
    Ok(())
}

/// The variable that switches off the message of more than 4 GiB, with the value `0`.
const HUGE: &str = "PORTOLAN_TEST_HUGE";
/// Memory that it needs: the message twice, and some reserve.
const HUGE_MEMORY: u64 = 12 << 30;

/// More than 4 GiB, where there is enough memory: lengths need more than 32 bits. Between two
/// processes only, which is enough, and never twice at once.
pub fn more_than_four_gibibytes<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    if std::env::var_os(HUGE).is_some_and(|value| value == "0") {
        return Err(Skip(format!("switched off by {HUGE}=0")));
    }
    let processes = rank.device.attributes().caps.contains(Caps::PROCESSES);
    if !processes || rank.size() != 2 {
        return Err(Skip("is done between two processes".to_owned()));
    }
    // All ranks must make the same decision, whatever each of them has seen.
    let all = rank.all_gather(&free_memory().to_le_bytes());
    let seen = all
        .iter()
        .map(|b| b.as_slice().try_into().map_or(0, u64::from_le_bytes));
    let least = seen.min().unwrap_or(0);
    if least < HUGE_MEMORY {
        let (needed, least) = (HUGE_MEMORY >> 20, least >> 20);
        let why = format!("needs {needed} MiB of free memory, not {least} MiB");
        return Err(Skip(why));
    }
    one_large(rank, (4 << 30) + 4097);
    Ok(())
}

/// Bytes of memory available to the machine, and to the control group that a container sees as the
/// root.
fn free_memory() -> u64 {
    let number = |path: &str| -> Option<u64> {
        let text = std::fs::read_to_string(path).ok()?;
        text.trim().parse().ok()
    };
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    let machine = kibibytes.unwrap_or(0_u64) << 10;
    let groups = [
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ];
    let left = groups.into_iter().filter_map(|(limit, used)| {
        let (limit, used) = (number(limit)?, number(used)?);
        Some(limit.saturating_sub(used))
    });
    left.chain([machine]).min().unwrap_or(0)
}

/// All ranks send to all ranks at once, small and large; no rank waits for ever.
pub fn everybody_to_everybody<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for (len, tag) in [8, rank.eager_max(), rank.long(), 300_000]
        .into_iter()
        .zip(0..)
    {
        let receives: Vec<_> = (0..rank.size())
            .map(|peer| rank.irecv(&rank.from(peer, tag), len))
            .collect();
        let sends: Vec<_> = (0..rank.size())
            .map(|peer| {
                rank.isend(
                    &rank.to(peer, tag),
                    content(seed(rank.me(), peer, len), len),
                )
            })
            .collect();
        for (pending, peer) in receives.into_iter().zip(0..) {
            let (status, bytes) = rank.done(pending);
            assert_eq!((status.source, status.bytes), (peer, len as u64));
            check(
                &bytes,
                seed(peer, rank.me(), len),
                &format!("{len} from {peer}"),
            );
        }
        for pending in sends {
            rank.done(pending);
        }
    }
    Ok(())
}
