//! Routes words to ranks that do not know who sends to them. The edges of a distributed graph reach
//! their ends this way.

use super::super::Communicator;
use super::super::tags::Of;
use crate::device::Device;
use crate::error::{ErrorKind, Result};

/// A unit of routing: the destination rank, then anything.
pub(super) type Parcel<const N: usize> = [u64; N];

impl<D: Device> Communicator<D> {
    /// Brings every parcel to the rank that its first word names, by way of other ranks: in round
    /// k, a rank passes on, over a distance of 2^k, the parcels whose remaining distance has that
    /// bit set. Collective. A rank needs memory only for the parcels that pass through it.
    ///
    /// A rank that has no memory for them still takes part in all rounds, because others wait for
    /// its messages. In the end all ranks learn of it, and return an error.
    pub(super) fn route<const N: usize>(
        &self,
        mut parcels: Vec<Parcel<N>>,
    ) -> Result<Vec<Parcel<N>>> {
        let (rank, size) = (u64::from(self.rank()), u64::from(self.size()));
        let (mut distance, mut round) = (1, 0);
        let mut lost = None;
        while distance < size {
            let far = |parcel: &Parcel<N>| ((parcel[0] + size - rank) % size) & distance != 0;
            let (leaving, staying): (Vec<_>, Vec<_>) = parcels.into_iter().partition(far);
            parcels = staying;
            let to = ((rank + distance) % size) as u32;
            let from = ((rank + size - distance) % size) as u32;
            let mut count = [0; 8];
            let sent = (leaving.len() as u64).to_le_bytes();
            self.exchange(to, &sent, from, &mut count, Of::RouteLength.in_round(round))?;
            let bytes: Vec<u8> = leaving
                .iter()
                .flatten()
                .flat_map(|w| w.to_le_bytes())
                .collect();
            let tag = Of::Route.in_round(round);
            match self.room(u64::from_le_bytes(count), &mut parcels, from) {
                Ok(mut coming) => {
                    self.exchange(to, &bytes, from, &mut coming, tag)?;
                    let (coming, _) = coming.as_chunks::<8>();
                    let (coming, _) = coming.as_chunks::<N>();
                    let coming = coming.iter().map(|parcel| parcel.map(u64::from_le_bytes));
                    parcels.extend(coming);
                }
                Err(error) => {
                    self.exchange_dropping(to, &bytes, from, tag)?;
                    lost.get_or_insert(error);
                }
            }
            distance *= 2;
            round += 1;
        }
        let mut all_here = [u64::from(lost.is_none())];
        self.and_words(&mut all_here)?;
        match lost {
            Some(error) => Err(error),
            None if all_here == [0] => Err(self.error(
                ErrorKind::Exhausted,
                "another rank has no memory for the edges of a graph".to_owned(),
                FEWER,
            )),
            None => Ok(parcels),
        }
    }

    /// A zeroed buffer for as many parcels as a peer announces, and room for them in `parcels`, if
    /// that much memory can be had.
    fn room<const N: usize>(
        &self,
        count: u64,
        parcels: &mut Vec<Parcel<N>>,
        from: u32,
    ) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let place = |count: usize| {
            let len = count.checked_mul(N * 8)?;
            bytes.try_reserve_exact(len).ok()?;
            parcels.try_reserve(count).ok()?;
            bytes.resize(len, 0);
            Some(())
        };
        #[cfg(test)]
        let count = if tests::HAS_NO_ROOM.get() {
            u64::MAX
        } else {
            count
        };
        match usize::try_from(count).ok().and_then(place) {
            Some(()) => Ok(bytes),
            None => Err(self.error(
                ErrorKind::Exhausted,
                format!("no memory for the {count} edges of a graph that come from rank {from}"),
                FEWER,
            )),
        }
    }
}

/// What helps against [`ErrorKind::Exhausted`].
const FEWER: &str = "give fewer edges, or spread them over more ranks";

#[cfg(test)]
pub(in crate::comm) mod tests {
    use std::cell::Cell;

    thread_local! {
        /// Whether the rank of this thread has no memory for what others send.
        pub(in crate::comm) static HAS_NO_ROOM: Cell<bool> = const { Cell::new(false) };
    }
}
