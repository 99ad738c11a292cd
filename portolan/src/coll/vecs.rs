//! Collective operations on vectors whose lengths only their owners know.
//!
//! Ranks first tell each other the lengths, and whether they have memory for what comes: a rank
//! without memory must not leave the others waiting.

use portolan_core::{Device, Error, ErrorKind, Result};
use portolan_datatype::{Datatype, Op};

use super::room::Room;
use super::{Allgather, Alltoall, Bcast, Gather, Scatter};
use crate::Level;
use crate::comm::Comm;

/// # Collective operations on vectors of any length
impl<L: Level, D: Device> Comm<L, D> {
    /// Gives rank `root` the values of all ranks, as one vector per rank; the other ranks get
    /// `None` (MPI-4 section 6.5, `MPI_Gatherv`). The lengths may differ. The root need not know
    /// them, because they are gathered first.
    ///
    /// ```
    /// portolan::try_threads(3, |world| {
    ///     let comm = world.comm();
    ///     let mine = vec![comm.rank(); comm.rank() as usize];
    ///     if let Some(all) = comm.gather_vecs(&mine, 0)? {
    ///         assert_eq!(all, [vec![], vec![1], vec![2, 2]]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`gather_one`](Self::gather_one). If the root has no memory for the values, every rank
    /// gets that error. If it has none for their lengths, one word per rank, it alone gets that
    /// error, and the others may wait for it.
    #[doc(alias = "MPI_Gatherv")]
    pub fn gather_vecs<T: Datatype>(&self, data: &[T], root: u32) -> Result<Option<Vec<Vec<T>>>> {
        let Some(counts) = self.gather_one(data.len(), root)? else {
            if !self.bcast_one(false, root)? {
                return self.raise(Err(self.no_room_elsewhere()));
            }
            self.lend(&mut Gather::contribute(data, root).uneven())?;
            return Ok(None);
        };
        let room = self.room_and_parts(&counts);
        // Before the root raises its error: the other ranks wait for this.
        self.bcast_one(room.is_ok(), root)?;
        let (all, parts) = self.raise(room)?;
        let (_, all) = self.run(Gather::new(data, all, root).counts(&counts))?;
        // SAFETY: every rank has sent as many values as it said.
        let all = unsafe { all.filled() };
        Ok(Some(dealt(&all, &counts, parts)))
    }

    /// Gives every rank the values of all ranks, as one vector per rank (MPI-4 section 6.7,
    /// `MPI_Allgatherv`). The lengths may differ, and no rank needs to know them, because they are
    /// gathered first.
    ///
    /// # Errors
    /// As [`gather_one`](Self::gather_one). If one rank has no memory for the values, every rank
    /// gets that error. If it has none for their lengths, one word per rank, it alone gets that
    /// error, and the others may wait for it.
    #[doc(alias = "MPI_Allgatherv")]
    pub fn allgather_vecs<T: Datatype>(&self, data: &[T]) -> Result<Vec<Vec<T>>> {
        let counts = self.allgather_one(data.len())?;
        let (all, parts) = self.all_have_room(self.room_and_parts(&counts))?;
        let (_, all) = self.run(Allgather::new(data, all).counts(&counts))?;
        // SAFETY: as in `gather_vecs`.
        let all = unsafe { all.filled() };
        Ok(dealt(&all, &counts, parts))
    }

    /// Gives every rank the vector of rank `root`, in place of its own, whose length does not
    /// matter (MPI-4 section 6.4, `MPI_Bcast`). The other ranks need not know the length, because
    /// it is broadcast first.
    ///
    /// ```
    /// let texts = portolan::try_threads(3, |world| {
    ///     let mut text = Vec::new();
    ///     if world.rank() == 1 {
    ///         text.extend_from_slice(b"steps=100");
    ///     }
    ///     world.comm().bcast_vec(&mut text, 1)?;
    ///     Ok(text)
    /// })?;
    /// assert_eq!(texts, [b"steps=100"; 3]);
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run). If one rank has no memory for the values, every rank gets that error,
    /// and keeps its vector.
    #[doc(alias = "MPI_Bcast")]
    pub fn bcast_vec<T: Datatype>(&self, data: &mut Vec<T>, root: u32) -> Result<()> {
        let len = self.bcast_one(data.len(), root)?;
        if self.rank() == root {
            self.all_have_room(Ok(()))?;
            return self.lend(&mut Bcast::from_root(&data[..], root));
        }
        let room = self.all_have_room(Room::new(self, len))?;
        let room = self.run(Bcast::new(room, root))?;
        // SAFETY: the root has sent as many values as it said.
        *data = unsafe { room.filled() };
        Ok(())
    }

    /// Gives rank `i` the vector `parts[i]` of rank `root`; the other ranks' `parts` is ignored
    /// (MPI-4 section 6.6, `MPI_Scatterv`). The lengths may differ. Only the root knows them: they
    /// are scattered first.
    ///
    /// ```
    /// let parts = portolan::try_threads(3, |world| {
    ///     let parts = [vec![], vec![1], vec![2, 2]];
    ///     let is_root = world.rank() == 0;
    ///     world.comm().scatter_vecs(if is_root { &parts[..] } else { &[] }, 0)
    /// })?;
    /// assert_eq!(parts, [vec![], vec![1], vec![2, 2]]);
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run). If one rank has no memory for the values, every rank gets that error.
    #[doc(alias = "MPI_Scatterv")]
    pub fn scatter_vecs<T: Datatype>(&self, parts: &[Vec<T>], root: u32) -> Result<Vec<T>> {
        let is_root = self.rank() == root;
        let counts: Vec<usize> = parts.iter().map(Vec::len).collect();
        let len = self.scatter_one(if is_root { &counts } else { &[] }, root)?;
        let room = Room::new(self, len);
        let room = if is_root {
            let send = self.joined(parts);
            let both = send.and_then(|send| Ok((send, room?)));
            let (send, room) = self.all_have_room(both)?;
            self.run(Scatter::new(&send[..], room, root).counts(&counts))?
                .1
        } else {
            let room = self.all_have_room(room)?;
            self.run(Scatter::receive(room, root).uneven())?
        };
        // SAFETY: the root has sent as many values as it said.
        Ok(unsafe { room.filled() })
    }

    /// Sends the vector `parts[i]` to rank `i`, and returns the vectors that the ranks have sent to
    /// this one, by rank (MPI-4 section 6.8, `MPI_Alltoallv`). The lengths may differ. Only the
    /// senders know them: they are exchanged first.
    ///
    /// ```
    /// let all = portolan::try_threads(2, |world| {
    ///     let me = world.rank();
    ///     world.comm().alltoall_vecs(&[vec![me; 1], vec![me; 3]])
    /// })?;
    /// assert_eq!(all[0], [vec![0], vec![1]]);
    /// assert_eq!(all[1], [vec![0; 3], vec![1; 3]]);
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`scatter_vecs`](Self::scatter_vecs).
    #[doc(alias = "MPI_Alltoallv")]
    pub fn alltoall_vecs<T: Datatype>(&self, parts: &[Vec<T>]) -> Result<Vec<Vec<T>>> {
        let counts: Vec<usize> = parts.iter().map(Vec::len).collect();
        let mut coming = vec![0; self.size() as usize];
        self.alltoall(&counts, &mut coming)?;
        let both = self.joined(parts);
        let both = both.and_then(|send| Ok((send, self.room_and_parts(&coming)?)));
        let (send, (room, parts)) = self.all_have_room(both)?;
        let call = Alltoall::new(&send[..], room).send_counts(&counts);
        let (_, all) = self.run(call.recv_counts(&coming))?;
        // SAFETY: every rank has sent as many values as it said.
        let all = unsafe { all.filled() };
        Ok(dealt(&all, &coming, parts))
    }

    /// Memory for what all ranks send to this one, together and by rank.
    fn room_and_parts<T: Datatype>(&self, counts: &[usize]) -> Result<(Room<T>, Vec<Vec<T>>)> {
        let parts = counts.iter().map(|&count| self.room_for::<T>(count));
        Ok((Room::new(self, sum(counts))?, parts.collect::<Result<_>>()?))
    }

    /// Vectors one behind the other.
    fn joined<T: Datatype>(&self, parts: &[Vec<T>]) -> Result<Vec<T>> {
        let total = parts
            .iter()
            .fold(0usize, |sum, part| sum.saturating_add(part.len()));
        let mut all = self.room_for::<T>(total)?;
        parts.iter().for_each(|part| all.extend_from_slice(part));
        Ok(all)
    }

    /// What this rank has got memory for, if all ranks have got theirs. Collective.
    fn all_have_room<R>(&self, room: Result<R>) -> Result<R> {
        let everywhere = self.allreduce_one(room.is_ok(), &Op::LAND)?;
        let room = self.raise(room)?;
        match everywhere {
            true => Ok(room),
            false => self.raise(Err(self.no_room_elsewhere())),
        }
    }

    #[cold]
    fn no_room_elsewhere(&self) -> Error {
        self.inner.error(
            ErrorKind::Exhausted,
            "another rank has no memory for the values".to_owned(),
            "move less at a time",
        )
    }
}

/// The sum of lengths. (One that does not fit is more than there is memory for.)
fn sum(counts: &[usize]) -> usize {
    counts
        .iter()
        .fold(0, |sum, &count| sum.saturating_add(count))
}

/// Puts the values of `all`, as many as a count says each, into vectors that have room for them.
fn dealt<T: Datatype>(mut all: &[T], counts: &[usize], mut parts: Vec<Vec<T>>) -> Vec<Vec<T>> {
    for (part, &count) in parts.iter_mut().zip(counts) {
        let (first, rest) = all.split_at(count);
        part.extend_from_slice(first);
        all = rest;
    }
    parts
}
