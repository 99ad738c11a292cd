//! Memory that is registered for longer than one operation: the regions of the device.
//!
//! It serves twice. Peers reach it by remote operations; and what this rank itself sends from it, or
//! receives into it, needs no registration of its own, because it is found here by its address. That is all
//! of the cache there is: nothing tells this crate when other memory is unmapped, see ADR 14. A registration that
//! is ended while a message or an operation of this rank still goes by it ends with that.

use std::collections::BTreeMap;
use std::sync::Arc;

use libfabric_sys::{
    FI_MR_ENDPOINT, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_READ, FI_RECV, FI_REMOTE_READ,
    FI_REMOTE_WRITE, FI_SEND, FI_WRITE, fi_mr_key, fid_ep, fid_mr,
};

use crate::endpoint::Domain;
use crate::fid::Fid;
use crate::one_sided::Place;

/// Everything that anybody does with a region.
const ACCESS: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

/// The regions.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    /// By their number.
    all: BTreeMap<u64, Registered>,
    /// Numbers by first address, of those that can be used for this rank's own operations.
    starts: BTreeMap<usize, u64>,
}

#[derive(Debug)]
struct Registered {
    region: Arc<Fid<fid_mr>>,
    place: Place,
    start: usize,
}

impl Registrations {
    /// Registers memory under a number that is not in use; `None` if the provider refuses.
    pub(crate) fn add(
        &mut self,
        domain: &Domain,
        ep: &Fid<fid_ep>,
        start: *mut u8,
        len: usize,
        number: u64,
    ) -> Option<Place> {
        let region = domain.register(start, len, ACCESS, number).ok()?;
        let place = published(domain, ep, &region, start, len, number)?;
        let start = start as usize;
        let registered = Registered {
            region: Arc::new(region),
            place,
            start,
        };
        self.all.insert(number, registered);
        // Of two with one start the longer one serves.
        let longest = self
            .starts
            .get(&start)
            .and_then(|number| self.all.get(number));
        if longest.is_none_or(|known| known.place.len <= len as u64) {
            self.starts.insert(start, number);
        }
        Some(place)
    }

    /// Ends a registration.
    pub(crate) fn remove(&mut self, number: u64) {
        if let Some(gone) = self.all.remove(&number)
            && self.starts.get(&gone.start) == Some(&number)
        {
            self.starts.remove(&gone.start);
        }
    }

    /// Ends all of them.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The region in which these bytes lie, and where peers find them.
    pub(crate) fn find(&self, data: *const u8, len: usize) -> Option<(&Arc<Fid<fid_mr>>, Place)> {
        let data = data as usize;
        let (&start, number) = self.starts.range(..=data).next_back()?;
        let known = self.all.get(number)?;
        let (offset, len) = ((data - start) as u64, len as u64);
        let inside = offset.checked_add(len)? <= known.place.len;
        let place = Place {
            base: known.place.base.wrapping_add(offset),
            len,
            number: 0,
            ..known.place
        };
        inside.then_some((&known.region, place))
    }
}

/// How peers name a new region; `None` if it does not become one.
pub(crate) fn published(
    domain: &Domain,
    ep: &Fid<fid_ep>,
    region: &Fid<fid_mr>,
    start: *const u8,
    len: usize,
    number: u64,
) -> Option<Place> {
    if domain.info.mr_mode(FI_MR_ENDPOINT) && !domain.join(region, ep) {
        return None;
    }
    // SAFETY: an open region.
    let given = unsafe { fi_mr_key(region.get()) };
    Some(Place {
        key: if domain.info.mr_mode(FI_MR_PROV_KEY) {
            given
        } else {
            number
        },
        base: if domain.info.mr_mode(FI_MR_VIRT_ADDR) {
            start as u64
        } else {
            0
        },
        len: len as u64,
        number,
    })
}
