//! Broadcasts over boards.
//!
//! Data that fits in a cell goes down a tree of cells (with up to nine ranks, to all at once).
//! Longer data goes through the root's chunks, piece by piece: the root writes one piece while the
//! others read earlier ones.

use portolan_core::{Device, Result};

use crate::direct::blocking::choice;
use crate::direct::blocking::common_way::{Able, Agreed, agree};
use crate::direct::blocking::exchange::RADIX;
use crate::direct::blocking::pulled::{Exposed, pulled};
use crate::direct::blocking::steps::{Steps, Way};
use crate::direct::boards::board::{CHUNKS, Header, IN_CELL, Kind, Place};
use crate::direct::boards::limits::is_measured;
use crate::direct::data::Stream;

/// Minimum length of a piece: a shorter one costs more to announce than to copy.
const SHORTEST: usize = 8 << 10;

/// From this length on, ranks do not copy from the root's buffer. Of a longer message the root
/// moves half itself, instead of waiting. (Two ranks on a Xeon, a line taking 130 ns, time relative
/// to boards and messages: 0.67 to 0.91 at 16 KiB, 0.73 to 0.81 at 32 KiB, 0.90 to 0.97 at 64 KiB;
/// 1.1 at 128 and 256 KiB, 2.3 at 1 MiB. It is a power of two because those have measurements of
/// their own.)
const NOT_PULLED: usize = 128 << 10;

/// Bytes per piece of a broadcast of `len` bytes. If the chunks together can hold all of it, there
/// are at most as many pieces as chunks, so that the root can write them all without waiting.
fn piece(len: u64, chunk: usize) -> u64 {
    let even = len.div_ceil(u64::from(CHUNKS)).next_multiple_of(4096);
    even.clamp(SHORTEST as u64, chunk as u64)
}

/// Steps that a broadcast of `len` bytes takes over boards.
fn pieces(len: u64, chunk: usize) -> u64 {
    match len {
        0..=0x2000 => 1,
        _ => len.div_ceil(piece(len, chunk)),
    }
}

/// Steps that a root with `len` bytes takes if another rank has a different length.
fn pieces_in_vain(len: u64, ranks: u32, chunk: usize) -> u64 {
    if is_measured(Kind::Bcast, ranks, len) {
        // The root first takes the step in which ranks agree about the way, and here they do not.
        return 1;
    }
    pieces(len, chunk)
}

const _: () = assert!(SHORTEST == 0x2000 && IN_CELL < SHORTEST);

/// A broadcast.
///
/// # Safety
/// `data` is readable at the root, and writable elsewhere.
#[inline]
pub(in crate::direct) unsafe fn bcast<D: Device>(
    mut steps: Steps<'_, D>,
    data: Stream<'_>,
    root: u32,
) -> Result<Way> {
    let (kind, len) = (Kind::Bcast, data.len());
    let chosen = is_measured(kind, steps.size(), len as u64);
    if chosen {
        // SAFETY: from the caller.
        if let Some(way) = unsafe { another_way(&mut steps, &data, root)? } {
            return steps.end_by(way, kind, len);
        }
    }
    // SAFETY: from the caller.
    unsafe {
        if steps.rank() == root {
            send(&mut steps, &data)?;
        } else if len <= IN_CELL {
            receive_short(&mut steps, &data, root)?;
        } else {
            receive(&mut steps, &data, root)?;
        }
    }
    if chosen {
        choice::over(steps.choice(), steps.comm.device());
    }
    steps.end(kind, len)
}

/// Agrees with the other ranks on the way. If it is not that over boards, returns what is left to
/// do. The judge is a rank that receives, because over boards the root of a broadcast is done
/// early. If ranks do not agree, a receiver takes as many steps as the root.
///
/// # Safety
/// As [`bcast`].
unsafe fn another_way<D: Device>(
    steps: &mut Steps<'_, D>,
    data: &Stream<'_>,
    root: u32,
) -> Result<Option<Way>> {
    let (kind, len) = (Kind::Bcast, data.len());
    let (judge, sends) = (if root == 0 { 1 } else { 0 }, steps.rank() == root);
    let short = len < NOT_PULLED;
    let exposed = match sends && short {
        // SAFETY: from the caller; it is dropped before the operation ends.
        true => unsafe { Exposed::new(steps, data) },
        false => None,
    };
    let receives = !sends && short && data.is_contiguous() && steps.may_pull();
    let able = Able {
        messages: true,
        pulls: receives || exposed.is_some(),
        exposure: exposed.as_ref().map(Exposed::exposure),
    };
    let agreed = agree(steps, (kind, len), data.address(), (judge, root), able)?;
    if agreed == Agreed::Pulls {
        let part = |rank| (rank == root).then(|| (0, data.address()));
        // SAFETY: from the caller.
        let over = unsafe { pulled(steps, (kind, len), part)? };
        return Ok(over.then_some(Way::Done));
    }
    if steps.disagree() && !sends {
        let header = steps.header_of(root)?;
        let_pass(steps, root, header)?;
    } else {
        steps.next();
    }
    Ok((agreed == Agreed::Messages).then_some(Way::Messages))
}

#[inline]
unsafe fn send<D: Device>(steps: &mut Steps<'_, D>, data: &Stream<'_>) -> Result<()> {
    let len = data.len();
    let place = Place::of(len);
    let piece = piece(len as u64, steps.chunk()) as usize;
    let pieces = pieces(len as u64, steps.chunk()) as usize;
    for number in 0..pieces {
        steps.room(place)?;
        let at = number * piece;
        // SAFETY: from the caller; the place is this rank's, free, and has room for a piece.
        unsafe { data.read(at, steps.mine(place), piece.min(len - at)) };
        match number {
            0 => steps.post(Kind::Bcast, len),
            // A rank that called another operation meanwhile must see that this is not a new
            // broadcast.
            _ => steps.post(Kind::BcastMore, pieces - number),
        }
        steps.next();
    }
    Ok(())
}

/// A rank's neighbours in the tree of a short broadcast. Places are counted from the root: the
/// ranks below place p have places RADIX·p + 1 to RADIX·p + RADIX.
#[derive(Clone, Copy)]
struct Branch {
    root: u32,
    size: u32,
    parent: u32,
    /// The first place below this rank's, which may be too high for the number of ranks.
    below: u32,
}

impl Branch {
    #[inline]
    fn of(rank: u32, root: u32, size: u32) -> Self {
        let place = (rank + size - root) % size;
        Self {
            root,
            size,
            parent: ((place - 1) / RADIX + root) % size,
            below: place.saturating_mul(RADIX).saturating_add(1),
        }
    }

    /// Whether no rank is below.
    #[inline]
    fn is_leaf(self) -> bool {
        self.below >= self.size
    }

    /// The ranks below.
    fn children(self) -> impl Iterator<Item = u32> {
        let end = self.size.min(self.below.saturating_add(RADIX));
        (self.below..end).map(move |place| (place + self.root) % self.size)
    }
}

/// Receives data that fits in a cell, and hands it on to the ranks below in the tree.
#[inline]
unsafe fn receive_short<D: Device>(
    steps: &mut Steps<'_, D>,
    data: &Stream<'_>,
    root: u32,
) -> Result<()> {
    let branch = Branch::of(steps.rank(), root, steps.size());
    steps.room(Place::Cell)?;
    if branch.is_leaf() {
        steps.post_apart(Kind::BcastAwaited, data.len(), branch.parent);
    } else {
        // Ranks below may look already. A rank that names another root does not wait for data from
        // this rank.
        steps.post_for_few(Kind::BcastPassing, root as usize);
    }
    // SAFETY: from the caller.
    unsafe { receive_posted(steps, data, branch) }
}

/// Ends a short broadcast that another way has begun: one of two ranks, of which this one receives,
/// and has posted that.
///
/// # Safety
/// As [`bcast`].
pub(in crate::direct) unsafe fn end_begun<D: Device>(
    mut steps: Steps<'_, D>,
    data: &Stream<'_>,
    root: u32,
) -> Result<Way> {
    let branch = Branch::of(steps.rank(), root, steps.size());
    // SAFETY: from the caller.
    unsafe { receive_posted(&mut steps, data, branch)? };
    steps.end(Kind::Bcast, data.len())
}

/// Receives data that fits in a cell once this rank has posted its own cell.
#[inline]
unsafe fn receive_posted<D: Device>(
    steps: &mut Steps<'_, D>,
    data: &Stream<'_>,
    branch: Branch,
) -> Result<()> {
    let (len, root, parent) = (data.len(), branch.root, branch.parent);
    let passes =
        |header: Header| header.kind() == Some(Kind::BcastPassing) && header.len() == root as usize;
    let header = steps.header_such(parent, |header| !passes(header))?;
    let (mut from, mut header) = (parent, header);
    let mut agreed = steps.agrees(from, header, Kind::Bcast, len);
    if !agreed {
        // Perhaps only the parent in the tree is wrong.
        (from, header) = (root, steps.header_of(root)?);
        agreed = steps.agrees(from, header, Kind::Bcast, len);
    }
    let source = steps.at(from, Place::Cell);
    if agreed {
        // SAFETY: `len` bytes have been posted there, and the buffer is the caller's.
        unsafe { data.write(0, source, len) };
    }
    if !branch.is_leaf() {
        if agreed {
            // SAFETY: this rank's cell is free; both have room for `len` bytes.
            unsafe { source.copy_to_nonoverlapping(steps.mine(Place::Cell), len) };
        }
        // The header has the root's sort, which ranks below compare with their own.
        match agreed {
            true => steps.post_as(header.sort(), Kind::Bcast, len),
            false => steps.post_for_few(Kind::BcastAwaited, len),
        }
        branch.children().for_each(|child| steps.wake(child));
    }
    if !agreed {
        return let_pass(steps, root, header);
    }
    steps.next();
    Ok(())
}

/// Receives from the root's chunks.
unsafe fn receive<D: Device>(steps: &mut Steps<'_, D>, data: &Stream<'_>, root: u32) -> Result<()> {
    let len = data.len();
    let piece = piece(len as u64, steps.chunk()) as usize;
    let pieces = pieces(len as u64, steps.chunk()) as usize;
    let takes = steps.takes_from_all();
    for number in 0..pieces {
        steps.room(Place::Cell)?;
        match number {
            0 => steps.post_apart(Kind::BcastAwaited, len, root),
            _ => steps.post_for_few(Kind::BcastAwaited, len),
        }
        let header = steps.header_of(root)?;
        let (kind, told) = match number {
            0 => (Kind::Bcast, len),
            _ => (Kind::BcastMore, pieces - number),
        };
        if header.kind() != Some(kind) || steps.len_of(root, header) != told as u64 {
            return let_pass(steps, root, header);
        }
        steps.see_sort(root, header);
        let at = number * piece;
        let source = steps.at(root, Place::Chunk);
        // SAFETY: the piece has been posted, and the buffer is the caller's.
        unsafe { data.take(at, source, piece.min(len - at), takes) };
        steps.next_published();
    }
    Ok(())
}

/// Follows a root that has another length, by taking as many steps as it does. The cell of the
/// first step has been posted.
#[cold]
fn let_pass<D: Device>(steps: &mut Steps<'_, D>, root: u32, header: Header) -> Result<()> {
    steps.note(root, header);
    let left = match header.kind() {
        Some(Kind::Bcast | Kind::BcastAwaited) => {
            pieces_in_vain(steps.len_of(root, header), steps.size(), steps.chunk())
        }
        Some(Kind::BcastMore) => header.len() as u64,
        _ => 1,
    };
    steps.next_published();
    for _ in 1..left {
        steps.room(Place::Cell)?;
        steps.post_for_few(Kind::BcastAwaited, 0);
        steps.header_of(root)?;
        steps.next_published();
    }
    Ok(())
}

/// For another operation that has seen a piece of a broadcast: moves past the last piece, where the
/// root continues, and shows in every step until then that this rank does not agree.
#[cold]
pub(in crate::direct) fn pass_pieces<D: Device>(
    steps: &mut Steps<'_, D>,
    seen: Header,
) -> Result<()> {
    if seen.kind() != Some(Kind::BcastMore) {
        return Ok(());
    }
    let behind = seen.step().wrapping_add(seen.len() as u32);
    while (behind.wrapping_sub(steps.number()) as i32) > 0 {
        steps.room(Place::Cell)?;
        steps.post(Kind::Disagree, 0);
        steps.next_published();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::boards::board::{CHUNK, CHUNK_IN_TURNS};

    #[test]
    fn pieces_cover_everything_and_fit_chunks() {
        let lens = (0..2_000_000u64).step_by(977);
        let lens = lens.chain([8192, 8193, 1 << 20, 1 << 40]);
        for (len, chunk) in lens.flat_map(|len| [CHUNK, CHUNK_IN_TURNS].map(|chunk| (len, chunk))) {
            let (piece, pieces) = (piece(len, chunk), pieces(len, chunk));
            assert!(piece <= chunk as u64 && pieces >= 1);
            assert!(piece * pieces >= len, "{len}");
            assert!(len == 0 || piece * (pieces - 1) < len, "{len}");
            let all = chunk as u64 * u64::from(CHUNKS);
            assert!(len > all || pieces <= u64::from(CHUNKS), "{len}");
        }
    }
}
