//! The collectives that communicators themselves need, built from point-to-point messages on the
//! collective context. The full collectives, with a choice of algorithms, are in `coll`.

use std::sync::atomic::Ordering;

use super::tags::Of;
use super::{Communicator, NoUnwind, Tag};
use crate::buffer::ContigBuf;
use crate::device::{Device, ProcId, SendArgs};
use crate::error::{Error, ErrorKind, Result};
use crate::matching::Pattern;
use crate::status::Status;

impl<D: Device> Communicator<D> {
    /// Returns when every rank has called it (`MPI_Barrier`). Collective.
    ///
    /// By dissemination: in round k each rank signals the rank 2^k after it.
    ///
    /// # Errors
    /// [`PeerFailed`](ErrorKind::PeerFailed).
    pub fn barrier(&self) -> Result<()> {
        self.check_members()?;
        self.disseminate(Of::Barrier, |to, from, tag| {
            self.exchange(to, &[], from, &mut [], tag)
        })
    }

    /// Returns an error that names a dead member, if one is known. Every collective operation
    /// starts with this check, because a rank that only sends would not hear of a death otherwise.
    /// A rank that waits hears of it from its device
    /// ([`CommView::contexts`](crate::device::CommView::contexts)).
    ///
    /// # Errors
    /// [`PeerFailed`](ErrorKind::PeerFailed);
    /// [`InvalidCommunicator`](ErrorKind::InvalidCommunicator) if the ranks perform no collectives
    /// with each other, because they are the remote group of an
    /// [intercommunicator](super::InterCommunicator::messages); [`Finalized`](ErrorKind::Finalized)
    /// after [`end_all`](Self::end_all).
    #[inline(always)]
    pub fn check_members(&self) -> Result<()> {
        if self.0.contexts < 2 || self.has_been_left() {
            return self.not_together();
        }
        match self.device().dead_member(self.group()) {
            None => Ok(()),
            Some(dead) => Err(self.member_failed(dead)),
        }
    }

    #[cold]
    #[inline(never)]
    fn not_together(&self) -> Result<()> {
        if self.0.contexts < 2 {
            return Err(self.remote_only());
        }
        self.check_not_ended()
    }

    #[inline]
    fn has_been_left(&self) -> bool {
        self.0.job.ended.load(Ordering::Relaxed)
    }

    /// Returns an error after [`end_all`](Self::end_all).
    #[inline]
    pub(super) fn check_not_ended(&self) -> Result<()> {
        match self.has_been_left() {
            false => Ok(()),
            true => Err(self.has_ended()),
        }
    }

    #[cold]
    fn remote_only(&self) -> Error {
        self.error(
            ErrorKind::InvalidCommunicator,
            format!(
                "{} is an intercommunicator: its ranks are the other group's",
                self.name()
            ),
            "do it with the communicator of both groups",
        )
    }

    #[cold]
    fn has_ended(&self) -> Error {
        let what = format!(
            "{} is a communicator of a job that this rank has left",
            self.name()
        );
        self.error(ErrorKind::Finalized, what, "make no calls after the end")
    }

    #[cold]
    pub(super) fn member_failed(&self, dead: ProcId) -> Error {
        let why = self.device().failure_of(dead);
        let why = why.unwrap_or_else(|| "it has died".to_owned());
        let attributes = self.device().attributes();
        Error::peer_failed(dead.index(), &why)
            .on_rank(attributes.world_rank)
            .on_device(attributes.name)
    }

    /// Replaces `words` on every rank by the bitwise AND over all ranks. Collective, with the same
    /// length everywhere.
    ///
    /// By dissemination, which may count a rank's contribution twice. That is harmless for AND
    /// only.
    ///
    /// # Errors
    /// [`PeerFailed`](ErrorKind::PeerFailed), [`Truncated`](ErrorKind::Truncated) if the lengths
    /// differ.
    pub fn and_words(&self, words: &mut [u64]) -> Result<()> {
        self.check_members()?;
        let mut received = vec![0; words.len() * 8];
        self.disseminate(Of::And, |to, from, tag| {
            let sent: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            self.exchange(to, &sent, from, &mut received, tag)?;
            let (theirs, _) = received.as_chunks::<8>();
            words
                .iter_mut()
                .zip(theirs)
                .for_each(|(word, t)| *word &= u64::from_le_bytes(*t));
            Ok(())
        })
    }

    /// Gathers the words of all ranks, ordered by rank, on every rank. Collective, with the same
    /// length everywhere.
    ///
    /// In ⌈log₂ size⌉ rounds (Bruck's algorithm): in each, a rank sends what it has so far to the
    /// rank that needs it next.
    ///
    /// # Errors
    /// [`PeerFailed`](ErrorKind::PeerFailed), [`InvalidCount`](ErrorKind::InvalidCount) or
    /// [`Truncated`](ErrorKind::Truncated) if the lengths differ.
    pub fn allgather_words(&self, mine: &[u64]) -> Result<Vec<u64>> {
        self.check_members()?;
        let (rank, size) = (u64::from(self.rank()), u64::from(self.size()));
        let block = mine.len() * 8;
        // Blocks of this rank and of the ranks after it, wrapping around.
        let mut bytes: Vec<u8> = mine.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (mut distance, mut round) = (1, 0);
        while distance < size {
            let blocks = distance.min(size - distance) as usize;
            let mut theirs = vec![0; blocks * block];
            let to = ((rank + size - distance) % size) as u32;
            let from = ((rank + distance) % size) as u32;
            let tag = Of::Gather.in_round(round);
            self.exchange(to, &bytes[..blocks * block], from, &mut theirs, tag)?;
            bytes.extend_from_slice(&theirs);
            distance *= 2;
            round += 1;
        }
        bytes.rotate_right(rank as usize * block);
        let (words, _) = bytes.as_chunks::<8>();
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Copies `data` of rank `root` to every rank (`MPI_Bcast`). Collective, with the same length
    /// everywhere.
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank), [`PeerFailed`](ErrorKind::PeerFailed),
    /// [`InvalidCount`](ErrorKind::InvalidCount) if the lengths differ.
    pub fn bcast(&self, data: &mut [u8], root: u32) -> Result<()> {
        self.check_rank("root", root)?;
        self.check_members()?;
        let tree = Binomial::new(self.rank(), self.size(), root);
        if let Some(parent) = tree.parent() {
            self.receive_on(&self.collective_pattern(parent, Of::Bcast.tag())?, data)?;
        }
        for child in tree.children() {
            self.send_on(&self.collective_args(child, Of::Bcast.tag())?, data)?;
        }
        Ok(())
    }

    fn disseminate(
        &self,
        of: Of,
        mut round: impl FnMut(u32, u32, Tag) -> Result<()>,
    ) -> Result<()> {
        let (rank, size) = (u64::from(self.rank()), u64::from(self.size()));
        let (mut distance, mut number) = (1, 0);
        while distance < size {
            let to = ((rank + distance) % size) as u32;
            let from = ((rank + size - distance) % size) as u32;
            round(to, from, of.in_round(number))?;
            distance *= 2;
            number += 1;
        }
        Ok(())
    }

    /// Sends to one rank and, at the same time, receives from another as many bytes as `received`
    /// holds.
    pub(super) fn exchange(
        &self,
        to: u32,
        sent: &[u8],
        from: u32,
        received: &mut [u8],
        tag: Tag,
    ) -> Result<()> {
        let args = self.collective_args(to, tag)?;
        let pattern = self.collective_pattern(from, tag)?;
        self.exchange_on(&args, &pattern, sent, received)
    }

    /// Like [`exchange`](Self::exchange), with arguments for the device, which must be legal.
    pub(super) fn exchange_on(
        &self,
        args: &SendArgs,
        from: &Pattern,
        sent: &[u8],
        received: &mut [u8],
    ) -> Result<()> {
        let len = received.len();
        let status = self.while_sending(args, sent, || self.receive_up_to(from, received))?;
        self.expect_bytes(&status, len)
    }

    /// Like [`exchange`](Self::exchange), but drops the message that it receives, however long.
    pub(super) fn exchange_dropping(
        &self,
        to: u32,
        sent: &[u8],
        from: u32,
        tag: Tag,
    ) -> Result<()> {
        let args = self.collective_args(to, tag)?;
        let from = self.collective_pattern(from, tag)?;
        self.while_sending(&args, sent, || match self.receive_up_to(&from, &mut []) {
            Err(error) if error.kind() != ErrorKind::Truncated => Err(error),
            _ => Ok(()),
        })
    }

    /// Sends while `receive` receives; the arguments must be legal.
    fn while_sending<R>(
        &self,
        args: &SendArgs,
        sent: &[u8],
        receive: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let device = self.device();
        let guard = NoUnwind::new("a collective operation");
        // SAFETY: the arguments are legal. `sent` is borrowed until this function returns. It
        // returns only after the request is over (`wait` completes the request whatever it
        // returns), and the guard lets no panic escape.
        let request = unsafe { device.isend_contig_unchecked(args, ContigBuf::from_bytes(sent)) };
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                guard.done();
                return Err(error);
            }
        };
        let outcome = receive();
        if outcome.is_err() {
            // The rank that should have taken the message may never do so.
            let _ = device.cancel(request);
        }
        let sent = device.wait(request);
        guard.done();
        let received = outcome?;
        sent?;
        Ok(received)
    }

    /// Sends; the arguments must be legal.
    pub(super) fn send_on(&self, args: &SendArgs, bytes: &[u8]) -> Result<()> {
        // SAFETY: the arguments are legal; `bytes` is borrowed for the length of the call.
        unsafe {
            self.device()
                .send_contig_unchecked(args, ContigBuf::from_bytes(bytes))
        }
    }

    /// Receives exactly `bytes.len()` bytes; the pattern must be legal.
    pub(super) fn receive_on(&self, from: &Pattern, bytes: &mut [u8]) -> Result<()> {
        let len = bytes.len();
        let status = self.receive_up_to(from, bytes)?;
        self.expect_bytes(&status, len)
    }

    fn receive_up_to(&self, from: &Pattern, bytes: &mut [u8]) -> Result<Status> {
        let buf = ContigBuf::from_bytes_mut(bytes);
        // SAFETY: the pattern is legal; `bytes` is borrowed for the length of the call.
        unsafe { self.device().recv_contig_unchecked(from, buf) }
    }

    pub(super) fn expect_bytes(&self, status: &Status, expected: usize) -> Result<()> {
        if status.bytes == expected as u64 {
            return Ok(());
        }
        Err(self.error(
            ErrorKind::InvalidCount,
            format!(
                "rank {} took part with {} bytes, this rank with {expected}",
                status.source, status.bytes
            ),
            "call collectives with equal lengths on every rank, in the same order",
        ))
    }
}

/// A rank's place in a binomial tree. Broadcasts go down the tree, reductions go up.
///
/// ```
/// use portolan_core::comm::Binomial;
///
/// let root = Binomial::new(0, 6, 0);
/// assert_eq!(root.parent(), None);
/// assert_eq!(root.children().collect::<Vec<_>>(), [4, 2, 1]);
/// assert_eq!(Binomial::new(5, 6, 0).parent(), Some(4));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Binomial {
    /// Distance from the root in rank order, wrapping around.
    place: u64,
    size: u64,
    root: u64,
}

impl Binomial {
    /// The place of `rank` in the tree that `size` ranks form under `root`.
    #[must_use]
    pub fn new(rank: u32, size: u32, root: u32) -> Self {
        let (rank, size, root) = (u64::from(rank), u64::from(size), u64::from(root));
        Self {
            place: (rank + size - root) % size,
            size,
            root,
        }
    }

    /// The rank above; `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<u32> {
        (self.place != 0).then(|| self.rank_at(self.place & (self.place - 1)))
    }

    /// The ranks below, starting with the one that has the largest subtree. A reduction should take
    /// them in reverse: each child's subtree then covers the ranks right after those covered
    /// already.
    pub fn children(&self) -> impl DoubleEndedIterator<Item = u32> + use<> {
        let tree = *self;
        let levels = if tree.place == 0 {
            32
        } else {
            tree.place.trailing_zeros()
        };
        (0..levels)
            .rev()
            .map(move |level| tree.place + (1 << level))
            .filter(move |&place| place < tree.size)
            .map(move |place| tree.rank_at(place))
    }

    fn rank_at(&self, place: u64) -> u32 {
        ((place + self.root) % self.size) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_one_parent_that_knows_it() {
        for size in 1..40 {
            for root in 0..size {
                let mut reached = 0;
                for rank in 0..size {
                    let tree = Binomial::new(rank, size, root);
                    assert_eq!(tree.parent().is_none(), rank == root);
                    for child in tree.children() {
                        assert_eq!(Binomial::new(child, size, root).parent(), Some(rank));
                        reached += 1;
                    }
                }
                assert_eq!(reached, size - 1);
            }
        }
    }

    #[test]
    fn children_in_reverse_cover_consecutive_ranks() {
        fn covered(rank: u32, size: u32) -> u32 {
            let mut next = rank + 1;
            for child in Binomial::new(rank, size, 0).children().rev() {
                assert_eq!(child, next);
                next = covered(child, size);
            }
            next
        }
        for size in 1..70 {
            assert_eq!(covered(0, size), size);
        }
    }
}
