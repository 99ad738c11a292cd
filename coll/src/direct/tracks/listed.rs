//! Gathers, scatters and alltoalls with block lengths of their own on a track: one rank's part.
//!
//! No rank knows all lengths, but both ends of a block know its length. Up to a length that depends
//! only on the number of ranks the block lies on the board of the rank that gives it; a longer one
//! is a message between the two. A rank that has such messages marks its header, and states the
//! lengths of the blocks that it awaits. A rank that sees that another does not send or await a
//! message drops that message, and no other.

use crate::args::{Many, Name};
use crate::direct::agree::counts;
use crate::direct::agree::sort::Sort;
use crate::direct::agree::verdict::Verdict;
use crate::direct::blocking::exchange::RADIX;
use crate::direct::boards::board::{Header, IN_CELL, Kind, Place};
use crate::direct::boards::list::{List, WORD, before};
use crate::direct::data::Stream;
use crate::direct::tracks::messages::Messages;

/// One rank's part.
pub(in crate::direct) struct Listed<'a> {
    form: Form<'a>,
    rank: u32,
    size: u32,
    /// Bytes of the longest block that lies on a board.
    longest: usize,
    /// Masks of the ranks to which messages go, and from which they come.
    sends: u32,
    receives: u32,
    /// The length in its header, in bytes: of its own block, or of a list.
    len: usize,
    /// Bytes that this rank takes from boards.
    work: usize,
}

/// A rank's role in the operation, with its blocks.
#[derive(Clone, Copy)]
pub(in crate::direct) enum Form<'a> {
    /// Gives its block to the root of a gather.
    Give { block: Stream<'a>, root: u32 },
    /// The root of a gather; without `send` its own block is in place.
    Collect {
        send: Option<Stream<'a>>,
        recv: &'a Many<'a>,
        /// Whether the root alone knows all lengths.
        uneven: bool,
    },
    /// The root of a scatter; without `recv` its own part stays in place.
    Distribute {
        send: &'a Many<'a>,
        recv: Option<Stream<'a>>,
    },
    /// Takes its part from the root of a scatter.
    Take { block: Stream<'a>, root: u32 },
    /// An alltoall; without `send` the contents of `recv` are exchanged.
    Exchange {
        send: Option<&'a Many<'a>>,
        recv: &'a Many<'a>,
    },
}

/// Bytes of the longest part, if a rank shows its parts for all others in `limit` bytes: the same
/// on all ranks.
#[inline]
pub(in crate::direct) fn longest_part(size: u32, limit: usize) -> usize {
    let others = size.max(2) as usize - 1;
    limit / others / WORD * WORD
}

/// Bytes at the beginning of a marked cell: a length, a checksum, and a root ([`AT_ROOT`]).
const MARKED: usize = AT_ROOT + WORD;
/// Offset of the root in a marked cell.
pub(in crate::direct) const AT_ROOT: usize = counts::TAKEN;

const _: () = assert!(MARKED + RADIX as usize * WORD <= IN_CELL);

impl<'a> Listed<'a> {
    // Always inline: otherwise the form would be copied right after the stores that made it, for
    // which the processor stalls.
    #[inline(always)]
    pub(in crate::direct) fn new(form: Form<'a>, (rank, size): (u32, u32), limit: usize) -> Self {
        let longest = match form {
            Form::Give { .. } | Form::Collect { .. } => limit,
            _ => longest_part(size, limit),
        };
        let mut part = Self {
            form,
            rank,
            size,
            longest,
            sends: 0,
            receives: 0,
            len: 0,
            work: 0,
        };
        // Bytes of the parts in its list: packed side by side, and with each part at a word of its
        // own.
        let (mut packed, mut apart) = (0, 0);
        for other in part.others() {
            let (given, got) = (part.gives_len(other), part.gets_len(other));
            match given > longest {
                true => part.sends |= 1 << other,
                false => {
                    packed += given;
                    apart += before(given) + given.next_multiple_of(WORD);
                }
            }
            match got > longest {
                true => part.receives |= 1 << other,
                false => part.work += got,
            }
        }
        part.len = match &part.form {
            Form::Give { block, .. } | Form::Take { block, .. } => block.len(),
            Form::Collect { recv, .. } => Stream::block_len(recv, rank),
            Form::Distribute { .. } | Form::Exchange { .. } => part.list_len(packed, apart),
        };
        part
    }

    /// A list is packed if it fits in a cell that way; readers infer that from its length.
    #[inline]
    fn list_len(&self, packed: usize, apart: usize) -> usize {
        let packed = self.size as usize + packed;
        match packed <= IN_CELL && !self.has_messages() {
            true => packed,
            false => {
                let lens = self.size as usize * WORD;
                self.in_front(self.has_messages()) + lens + apart
            }
        }
    }

    #[inline]
    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let me = self.rank;
        (0..self.size).filter(move |&rank| rank != me)
    }

    /// The block that goes to a rank, if this role gives it one.
    #[inline]
    fn gives(&self, to: u32) -> Option<Stream<'a>> {
        match &self.form {
            Form::Give { block, root } => (to == *root).then_some(*block),
            Form::Distribute { send, .. } => Some(Stream::block(send, to)),
            Form::Exchange { send, recv } => Some(Stream::block(send.unwrap_or(recv), to)),
            Form::Collect { .. } | Form::Take { .. } => None,
        }
    }

    /// The block that comes from a rank, if this role gets one from it.
    #[inline]
    fn gets(&self, from: u32) -> Option<Stream<'a>> {
        match &self.form {
            Form::Collect { recv, .. } | Form::Exchange { recv, .. } => {
                Some(Stream::block(recv, from))
            }
            Form::Take { block, root } => (from == *root).then_some(*block),
            Form::Give { .. } | Form::Distribute { .. } => None,
        }
    }

    /// Bytes that go to a rank.
    #[inline(always)]
    fn gives_len(&self, to: u32) -> usize {
        match &self.form {
            Form::Give { block, root } if to == *root => block.len(),
            Form::Distribute { send, .. } => Stream::block_len(send, to),
            Form::Exchange { send, recv } => Stream::block_len(send.unwrap_or(recv), to),
            Form::Give { .. } | Form::Collect { .. } | Form::Take { .. } => 0,
        }
    }

    /// Bytes that come from a rank.
    #[inline(always)]
    fn gets_len(&self, from: u32) -> usize {
        match &self.form {
            Form::Collect { recv, .. } | Form::Exchange { recv, .. } => {
                Stream::block_len(recv, from)
            }
            Form::Take { block, root } if from == *root => block.len(),
            Form::Take { .. } | Form::Give { .. } | Form::Distribute { .. } => 0,
        }
    }

    /// The kind that this rank shows.
    #[inline]
    pub(in crate::direct) fn kind(&self) -> Kind {
        match self.form {
            Form::Give { .. } if self.has_messages() => Kind::GatherSent,
            Form::Give { .. } => Kind::Gather,
            Form::Collect { .. } => Kind::GatherAwaited,
            Form::Distribute { .. } => Kind::ScatterListed,
            Form::Take { .. } => Kind::ScatterAwaited,
            Form::Exchange { .. } => Kind::AlltoallListed,
        }
    }

    /// The root of the operation; 0 if there is none.
    #[inline]
    pub(in crate::direct) fn root(&self) -> u32 {
        match self.form {
            Form::Give { root, .. } | Form::Take { root, .. } => root,
            Form::Collect { .. } | Form::Distribute { .. } => self.rank,
            Form::Exchange { .. } => 0,
        }
    }

    /// Whether some of the data goes as messages.
    #[inline]
    pub(in crate::direct) fn has_messages(&self) -> bool {
        self.sends | self.receives != 0
    }

    /// Whether its header is marked, which says that there is more to read than the header.
    #[inline]
    pub(in crate::direct) fn is_marked(&self) -> bool {
        self.has_messages() || matches!(self.form, Form::Collect { uneven: true, .. })
    }

    /// The length in its header, in bytes.
    #[inline]
    pub(in crate::direct) fn len(&self) -> usize {
        self.len
    }

    /// Bytes in front of the list of a rank with a marked header: in an alltoall these hold the
    /// lengths of the blocks that it awaits.
    #[inline]
    fn in_front(&self, marked: bool) -> usize {
        match self.form {
            Form::Exchange { .. } if marked => self.size as usize * WORD,
            _ => 0,
        }
    }

    /// The list of a rank with this header.
    #[inline]
    fn list(&self, header: Header, at: impl Fn(Place) -> *mut u8) -> List {
        let marked = header.is_by_messages();
        match header.len() <= IN_CELL && !marked {
            true => List::in_cell(at(Place::Cell), self.size),
            false => {
                let list = at(Place::Chunk).wrapping_add(self.in_front(marked));
                List::in_words(list, self.size)
            }
        }
    }

    /// The place in which this rank shows its part.
    #[inline]
    pub(in crate::direct) fn place(&self) -> Place {
        match &self.form {
            Form::Give { block, .. } if !self.has_messages() => Place::of(block.len()),
            Form::Give { .. } | Form::Take { .. } | Form::Collect { .. } => Place::Cell,
            Form::Distribute { .. } | Form::Exchange { .. } => match self.has_messages() {
                true => Place::Chunk,
                false => Place::of(self.len),
            },
        }
    }

    /// The masks of the ranks that it looks at, and of those that look at it.
    #[inline]
    pub(in crate::direct) fn looks_and_wakes(&self) -> [u32; 2] {
        let all = ((1u32 << self.size) - 1) & !(1 << self.rank);
        match self.form {
            Form::Give { root, .. } => [self.sends, 1 << root],
            Form::Collect { .. } => [all, self.receives],
            Form::Distribute { .. } => [self.sends, all],
            Form::Take { root, .. } => [1 << root, self.receives],
            Form::Exchange { .. } => [all, all],
        }
    }

    /// Shows the data that lies on the board, and copies the block for this rank itself, unless
    /// that is done [while messages are under way](Self::messages).
    ///
    /// # Safety
    /// The buffers are the operation's; `to` is this rank's place, and free.
    #[inline]
    pub(in crate::direct) unsafe fn show(&self, to: *mut u8) {
        let blocks = || {
            let given = |other| self.gives(other).map(|block| (other, block));
            self.others().filter_map(given)
        };
        // SAFETY: from the caller. Places have the room, because they were chosen by it.
        unsafe {
            match &self.form {
                Form::Give { block, .. } => {
                    if !self.has_messages() {
                        block.read(0, to, block.len());
                    }
                }
                Form::Collect { uneven, .. } => {
                    if *uneven {
                        self.expect(to.wrapping_add(MARKED));
                    }
                }
                Form::Distribute { .. } => {
                    self.own_list(to).write(self.rank, blocks(), self.longest);
                }
                Form::Take { .. } => {}
                Form::Exchange { .. } => {
                    if self.has_messages() {
                        self.expect(to);
                    }
                    self.own_list(to).write(self.rank, blocks(), self.longest);
                }
            }
            if let Some((from, to)) = self.to_itself().filter(|_| !self.has_messages()) {
                from.copy_to(&to);
            }
        }
    }

    /// The block for this rank itself, and its place; `None` if it has none, or is in place.
    #[inline]
    fn to_itself(&self) -> Option<(Stream<'a>, Stream<'a>)> {
        let own = |many| Stream::block(many, self.rank);
        match self.form {
            Form::Collect { send, recv, .. } => send.map(|send| (send, own(recv))),
            Form::Distribute { send, recv } => recv.map(|recv| (own(send), recv)),
            Form::Exchange { send, recv } => send.map(|send| (own(send), own(recv))),
            Form::Give { .. } | Form::Take { .. } => None,
        }
    }

    /// This rank's list, to be written.
    #[inline]
    fn own_list(&self, to: *mut u8) -> List {
        match self.place() {
            Place::Cell => List::in_cell(to, self.size),
            Place::Chunk => List::in_words(
                to.wrapping_add(self.in_front(self.has_messages())),
                self.size,
            ),
        }
    }

    /// Writes the lengths that this rank expects of the blocks of all ranks.
    ///
    /// # Safety
    /// There is room for a word for each rank, which is this rank's and free.
    unsafe fn expect(&self, to: *mut u8) {
        for rank in 0..self.size {
            let len = self.gets_len(rank) as u64;
            // SAFETY: from the caller.
            unsafe { to.cast::<u64>().add(rank as usize).write(len) };
        }
    }

    /// Whether a rank shows what this one expects. If neither has messages, this check is enough.
    /// If it fails, [`judge`](Self::judge) finds out what is wrong.
    ///
    /// # Safety
    /// As [`judge`](Self::judge).
    #[inline]
    pub(in crate::direct) unsafe fn agrees(
        &self,
        rank: u32,
        header: Header,
        taken: Sort,
        at: impl Fn(Place) -> *mut u8,
    ) -> bool {
        if self.has_messages() || header.is_by_messages() {
            return false;
        }
        let got = self.gets_len(rank);
        let comes = match (&self.form, header.kind()) {
            (Form::Collect { .. }, Some(Kind::Gather)) => header.len(),
            (Form::Take { .. }, Some(Kind::ScatterListed))
            | (Form::Exchange { .. }, Some(Kind::AlltoallListed)) => {
                // SAFETY: from the caller: a rank that shows this kind has written its list.
                unsafe { self.list(header, at).len(self.rank as usize) }
            }
            _ => return false,
        };
        comes == got && (got == 0 || taken.matches(header.sort()))
    }

    /// Compares what a rank shows with what this one expects; `at` says where the rank's places
    /// are.
    ///
    /// # Safety
    /// The rank has shown its part in this step, with this header.
    #[inline(never)]
    pub(in crate::direct) unsafe fn judge(
        &self,
        rank: u32,
        header: Header,
        taken: Sort,
        at: impl Fn(Place) -> *mut u8,
    ) -> Verdict {
        let mut verdict = Verdict::default();
        let marked = header.is_by_messages();
        // SAFETY: from the caller: a rank that shows this kind has written its list, and a rank
        // with a marked header these words.
        let told = |byte: usize| unsafe { at(Place::Cell).add(byte).cast::<u64>().read() };
        let names_this = || told(AT_ROOT) == self.rank.into();
        // SAFETY: as above.
        let listed = || unsafe { self.list(header, &at).len(self.rank as usize) } as u64;
        let expected = |from: Place, skip: usize| {
            let words = at(from).wrapping_add(skip).cast::<u64>();
            // SAFETY: as above.
            unsafe { words.add(self.rank as usize).read() }
        };
        let (given, got) = (self.gives_len(rank) as u64, self.gets_len(rank) as u64);
        // What the rank states that it gives, and what it states that it awaits; neither if it does
        // something else.
        let (comes, goes) = match (&self.form, header.kind()) {
            (Form::Collect { .. }, Some(Kind::Gather)) if !marked => {
                (Some(header.len() as u64), None)
            }
            (Form::Collect { .. }, Some(Kind::GatherSent)) if names_this() => (Some(told(0)), None),
            (Form::Give { .. }, Some(Kind::GatherAwaited)) => {
                let even = header.len() as u64;
                let awaited = if marked {
                    expected(Place::Cell, MARKED)
                } else {
                    even
                };
                (None, Some(awaited))
            }
            (Form::Distribute { .. }, Some(Kind::ScatterAwaited)) if !marked || names_this() => (
                None,
                Some(if marked { told(0) } else { header.len() as u64 }),
            ),
            (Form::Take { .. }, Some(Kind::ScatterListed)) => (Some(listed()), None),
            (Form::Exchange { .. }, Some(Kind::AlltoallListed)) => {
                let awaited = marked.then(|| expected(Place::Chunk, 0));
                (Some(listed()), awaited)
            }
            (_, kind) => {
                let mine = given.max(got);
                let theirs = match kind {
                    // A rank that waits has no length of its own to state.
                    Some(kind) if kind.waits() => mine,
                    _ if marked => told(0),
                    _ => header.len() as u64,
                };
                verdict.comes(theirs, mine);
                verdict.refuse(rank, 0, true);
                verdict.refuse(rank, 0, false);
                return verdict;
            }
        };
        let is_long = |len: u64| len > self.longest as u64;
        let receives = comes.is_none_or(|comes| comes == got);
        // Short blocks are not sent as messages; the rank that takes one checks it itself.
        let sends = goes == Some(given) || !is_long(given);
        let sorts = got == 0 || is_long(got) || comes.is_none() || taken.matches(header.sort());
        if !receives {
            verdict.comes(comes.unwrap_or(got), got);
            verdict.refuse(rank, 0, false);
        }
        if !sends {
            // A rank without a marked header awaits nothing long, and does not state what it
            // awaits.
            verdict.awaits(goes.unwrap_or(given), given);
            verdict.refuse(rank, 0, true);
        }
        if !sorts {
            verdict.comes(got, got);
        }
        verdict
    }

    /// Takes the blocks that others have shown. `at` says where a rank has shown them, and `header`
    /// with which header.
    ///
    /// # Safety
    /// All that this rank looks at have shown their part, and it has been found to be right; the
    /// buffers are the operation's.
    #[inline]
    pub(in crate::direct) unsafe fn take(
        &self,
        at: impl Fn(u32, Place) -> *mut u8,
        header: impl Fn(u32) -> Header,
        takes: bool,
    ) {
        for rank in self.others() {
            let len = self.gets_len(rank);
            let is_here = (1..=self.longest).contains(&len);
            let Some(block) = self.gets(rank).filter(|_| is_here) else {
                continue;
            };
            let from = match self.form {
                Form::Collect { .. } => at(rank, Place::of(len)),
                _ => {
                    let list = self.list(header(rank), |place| at(rank, place));
                    // SAFETY: from the caller.
                    unsafe { list.part(self.rank as usize, self.longest) }
                }
            };
            // SAFETY: the rank has shown that many bytes there; the block is the caller's.
            unsafe { block.take(0, from, len, takes) };
        }
    }

    /// Bytes that this rank takes from boards.
    #[inline]
    pub(in crate::direct) fn work(&self) -> usize {
        self.work
    }

    /// The messages for the long blocks; the block for this rank itself is copied while they are
    /// under way.
    pub(in crate::direct) fn messages(&self, name: Name) -> Messages {
        let mut messages = Messages::named(self.rank, self.size, name);
        let in_place = matches!(self.form, Form::Exchange { send: None, .. });
        let is_in = |bits: u32| move |&rank: &u32| bits >> rank & 1 != 0;
        let sends = || {
            let to = self.others().filter(is_in(self.sends));
            to.filter_map(|to| self.gives(to).map(|block| (to, block)))
        };
        if in_place {
            sends().for_each(|(to, block)| messages.send_copy(to, &block));
        }
        // Receives come before sends: a message that is announced when its receive is posted
        // already goes straight to its place.
        for from in self.others().filter(is_in(self.receives)) {
            if let Some(block) = self.gets(from) {
                messages.receive(from, 0, &block);
            }
        }
        if !in_place {
            sends().for_each(|(to, block)| messages.send(to, 0, &block));
        }
        if let Some((from, to)) = self.to_itself().filter(|_| self.has_messages()) {
            messages.copy_meanwhile(&from, &to);
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::boards::board::{small, small_list};

    #[test]
    fn all_short_parts_fit_a_chunk_with_their_lengths_and_those_that_are_awaited() {
        for track in [0, 1] {
            for size in 2..=8 {
                let longest = longest_part(size, small(track));
                let parts = (size as usize - 1) * longest;
                assert!(parts <= small(track) && parts + size as usize * WORD > small(track));
                let free = (size as usize - 1) * before(longest);
                assert!(2 * size as usize * WORD + free + parts <= small_list(track));
            }
        }
    }
}
