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
    pub(super) fn route<const N: usize>(
        &self,
        mut parcels: Vec<Parcel<N>>,
    ) -> Result<Vec<Parcel<N>>> {
        let (rank, size) = (u64::from(self.rank()), u64::from(self.size()));
        let (mut distance, mut round) = (1, 0);
        while distance < size {
            let far = |parcel: &Parcel<N>| ((parcel[0] + size - rank) % size) & distance != 0;
            let (leaving, staying): (Vec<_>, Vec<_>) = parcels.into_iter().partition(far);
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
            let mut coming = self.room(u64::from_le_bytes(count), N * 8, from)?;
            self.exchange(to, &bytes, from, &mut coming, Of::Route.in_round(round))?;
            parcels = staying;
            let (words, _) = coming.as_chunks::<8>();
            let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
            parcels.extend_from_slice(words.as_chunks::<N>().0);
            distance *= 2;
            round += 1;
        }
        Ok(parcels)
    }

    /// A zeroed buffer for as many parcels as a peer announces, if that much memory can be had.
    fn room(&self, parcels: u64, size: usize, from: u32) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let len = usize::try_from(parcels)
            .ok()
            .and_then(|n| n.checked_mul(size));
        match len {
            Some(len) if bytes.try_reserve_exact(len).is_ok() => {
                bytes.resize(len, 0);
                Ok(bytes)
            }
            _ => Err(self.error(
                ErrorKind::Exhausted,
                format!("no memory for the {parcels} edges of a graph that come from rank {from}"),
                "give fewer edges, or spread them over more ranks",
            )),
        }
    }
}
