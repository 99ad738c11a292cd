//! Memory that is registered for longer than one operation: the device's regions.
//!
//! Peers reach a region by remote operations until its registration is ended, and not a moment
//! longer. When this rank itself sends from a region or receives into it, it uses a second
//! registration, which is found by the address and through which no peer can write. A message or an
//! operation may hold that one for as long as it takes, even when the owner has its memory back
//! already. The second registration is made when it is first needed. There is no other registration
//! cache, because nothing tells this crate when other memory is unmapped; see ADR 14 and ADR 20.

use std::collections::BTreeMap;
use std::sync::Arc;

use libfabric_sys::{
    FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND,
    FI_WRITE, fi_mr_key, fid_mr,
};

use crate::endpoint::Domain;
use crate::endpoint::objects::Fid;
use crate::one_sided::Place;

/// What peers may do with a region.
const THEIRS: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;
/// What this rank does with it. Peers also read the messages that it announces.
const OURS: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ;
/// Numbers below this are keys of the memory for packets.
const FIRST: u64 = 16;

/// All regions.
#[derive(Debug)]
pub(crate) struct Registrations {
    /// By their number.
    all: BTreeMap<u64, Registered>,
    /// Numbers by start address, for the regions found for this rank's own operations.
    starts: BTreeMap<usize, u64>,
    /// The next number that has not been used.
    next: u64,
    /// Registrations that the provider has refused to end. They are tried again: until they end, a
    /// peer that was told of such a region may reach the memory.
    refused: Vec<Fid<fid_mr>>,
    /// Registrations for operations that the provider had no room for, until these begin.
    kept: Vec<Kept>,
}

/// What a registration is for: a name that no other operation ever has, whatever happens to the
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// An operation on a region, by the engine's id.
    Remote(u32),
    /// A message of a peer, by the peer and its number for the exposed memory.
    Message(u32, u64),
}

/// The registration for an operation that is tried again soon, unless it is given up, which nothing
/// reports.
#[derive(Debug)]
struct Kept {
    whose: Whose,
    start: usize,
    len: usize,
    region: Arc<Fid<fid_mr>>,
    /// Polls since it was last tried.
    age: u32,
}

/// How many are kept, and for how many polls: more than pass between two tries.
const KEPT: usize = 64;
const AGE: u32 = 1024;

#[derive(Debug)]
struct Registered {
    /// Peers reach the memory as long as this exists.
    region: Fid<fid_mr>,
    /// For this rank's own transfers, and the place by which peers read from there.
    own: Option<(Arc<Fid<fid_mr>>, Place)>,
    start: *mut u8,
    len: usize,
}

// SAFETY: the address is only handed to the provider, under `Transport::register`'s promise,
// whichever thread does it.
unsafe impl Send for Registered {}

impl Registrations {
    pub(crate) fn new() -> Self {
        Self {
            all: BTreeMap::new(),
            starts: BTreeMap::new(),
            next: FIRST,
            refused: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// A number that nothing else has, as a key for providers that do not choose keys themselves.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Registers memory for peers; `None` if the provider refuses.
    pub(crate) fn add(&mut self, domain: &Domain, start: *mut u8, len: usize) -> Option<Place> {
        let number = self.number();
        let region = domain.register(start, len, THEIRS, number).ok()?;
        let place = published(domain, &region, start, len, number);
        let registered = Registered {
            region,
            own: None,
            start,
            len,
        };
        self.all.insert(number, registered);
        // Of two regions with the same start, the longer one is used.
        let longest = self.starts.get(&(start as usize));
        let longest = longest.and_then(|number| self.all.get(number));
        if longest.is_none_or(|known| known.len <= len) {
            self.starts.insert(start as usize, number);
        }
        Some(place)
    }

    /// Ends a registration.
    pub(crate) fn remove(&mut self, number: u64) {
        let Some(gone) = self.all.remove(&number) else {
            return;
        };
        if self.starts.get(&(gone.start as usize)) == Some(&number) {
            self.starts.remove(&(gone.start as usize));
        }
        self.end(gone.region);
        if let Some((own, _)) = gone.own {
            self.end_one(own);
        }
    }

    /// Closes a registration if this was its last use; otherwise does nothing.
    pub(crate) fn end_one(&mut self, region: Arc<Fid<fid_mr>>) {
        if let Some(region) = Arc::into_inner(region) {
            self.end(region);
        }
    }

    fn end(&mut self, region: Fid<fid_mr>) {
        if let Err((region, code)) = region.close() {
            portolan_core::log!(
                ERROR,
                code,
                "a registration does not end: it is tried again"
            );
            self.refused.push(region);
        }
    }

    /// Whether some registration has not ended although it should have.
    #[inline]
    pub(crate) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Tries again to end the registrations that the provider has refused to end.
    #[cold]
    pub(crate) fn end_again(&mut self) {
        let all = std::mem::take(&mut self.refused).into_iter();
        let still = all.filter_map(|region| region.close().err());
        self.refused = still.map(|(region, _)| region).collect();
    }

    /// Keeps the registration for an operation, on these bytes, that the provider had no room for.
    pub(crate) fn keep(
        &mut self,
        whose: Whose,
        (start, len): (*mut u8, usize),
        region: Option<Arc<Fid<fid_mr>>>,
    ) {
        // The registration of a region stays without this.
        let Some(region) = region.filter(|region| Arc::strong_count(region) == 1) else {
            return;
        };
        if self.kept.len() == KEPT {
            let oldest = self.kept.remove(0);
            self.end_one(oldest.region);
        }
        self.kept.push(Kept {
            whose,
            start: start as usize,
            len,
            region,
            age: 0,
        });
    }

    /// Whether there is something for [`look`](Self::look).
    #[inline]
    pub(crate) fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Ends kept registrations whose operations are not tried any more.
    pub(crate) fn look(&mut self) {
        for kept in &mut self.kept {
            kept.age += 1;
        }
        while let Some(at) = self.kept.iter().position(|kept| kept.age > AGE) {
            let old = self.kept.remove(at);
            self.end_one(old.region);
        }
    }

    /// Ends all registrations.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
        self.all.clear();
        self.starts.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// This rank's own registration of the region that contains these bytes, and the place where
    /// peers read them. `None` if no region contains them, or the provider refuses.
    pub(crate) fn own(
        &mut self,
        domain: &Domain,
        data: *const u8,
        len: usize,
    ) -> Option<(Arc<Fid<fid_mr>>, Place)> {
        let (&start, number) = self.starts.range(..=data as usize).next_back()?;
        let known = self.all.get_mut(number)?;
        let offset = data as usize - start;
        if offset.checked_add(len)? > known.len {
            return None;
        }
        if known.own.is_none() {
            let number = self.next;
            self.next += 1;
            let region = domain.register(known.start, known.len, OURS, number).ok()?;
            let place = published(domain, &region, known.start, known.len, number);
            known.own = Some((Arc::new(region), place));
        }
        let (region, place) = known.own.as_ref()?;
        let place = Place {
            base: place.base.wrapping_add(offset as u64),
            len: len as u64,
            number: 0,
            ..*place
        };
        Some((Arc::clone(region), place))
    }

    /// The registration that the provider needs for memory that this rank sends from or receives
    /// into. It is the region's, or one for this operation alone: either [kept](Self::keep) from an
    /// earlier try, or new. `None` if the provider needs none.
    pub(crate) fn local(
        &mut self,
        domain: &Domain,
        data: *mut u8,
        len: usize,
        access: u64,
        whose: Whose,
    ) -> Result<Option<Arc<Fid<fid_mr>>>, String> {
        if !domain.wants_local(data) {
            return Ok(None);
        }
        if let Some((own, _)) = self.own(domain, data, len) {
            return Ok(Some(own));
        }
        let this = (whose, data as usize, len);
        let kept = &mut self.kept.iter();
        if let Some(at) = kept.position(|kept| (kept.whose, kept.start, kept.len) == this) {
            return Ok(Some(self.kept.remove(at).region));
        }
        let number = self.number();
        let region = domain.register(data, len, access, number)?;
        Ok(Some(Arc::new(region)))
    }
}

/// The place by which peers name a new region.
pub(crate) fn published(
    domain: &Domain,
    region: &Fid<fid_mr>,
    start: *const u8,
    len: usize,
    number: u64,
) -> Place {
    // SAFETY: an open region.
    let given = unsafe { fi_mr_key(region.get()) };
    Place {
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
    }
}
