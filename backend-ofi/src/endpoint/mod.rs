//! An open endpoint, and its domain with completion queue and address vector.

pub(crate) mod bell;
pub(crate) mod link;
pub(crate) mod objects;
pub(crate) mod op;
pub(crate) mod slab;

use std::ffi::c_void;
use std::os::fd::RawFd;
use std::ptr;

use libfabric_sys::{
    FI_ATOMIC, FI_AV_MAP, FI_AV_UNSPEC, FI_CQ_FORMAT_TAGGED, FI_GETWAIT, FI_HMEM_DEVICE_ONLY,
    FI_MR_ENDPOINT, FI_MR_LOCAL, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, FI_RECV, FI_RMA,
    FI_TRANSMIT, FI_WAIT_FD, FI_WAIT_NONE, Library, fi_av_attr, fi_av_open, fi_bind, fi_control,
    fi_cq_attr, fi_cq_open, fi_domain, fi_enable, fi_endpoint, fi_getname, fi_mr_attr,
    fi_mr_attr__bindgen_ty_1, fi_mr_desc, fi_mr_regattr, fi_setopt, fi_trywait, fid, fid_av,
    fid_cq, fid_domain, fid_ep, fid_fabric, fid_mr,
};

use portolan_core::MemoryKind;

use crate::caps::{over, takes_many};
use crate::endpoint::objects::Fid;
use crate::memory::atomics;
use crate::memory::hmem::{self, Hmem, Site};
use crate::start::info::Info;
use crate::start::provider::announces;

/// How many completions a queue has room for.
const COMPLETIONS: usize = 1024;

/// From this version on, the shm provider, and later others, make receive queues when an endpoint
/// is enabled, and ignore the smallest space left in buffers if it is set after that. Before this
/// version, the shm provider had no place for the setting until then.
const ROOM_BEFORE: (u32, u32) = (1, 19);

/// Providers that have no receive queue before an endpoint is enabled, and nothing else that could
/// take the space left in buffers: they crash if it is set earlier (`sm2`, seen with 2.5).
const ROOM_AFTER: &[&str] = &["sm2"];

/// Whether the least space left in buffers is set before an endpoint is enabled.
fn room_comes_first(version: (u32, u32), info: &Info) -> bool {
    version >= ROOM_BEFORE && !ROOM_AFTER.iter().any(|layer| over(info, layer))
}

/// The objects that an endpoint depends on. Fields are dropped in their order; the endpoint, and
/// memory that is registered here, must be closed before.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) av: Fid<fid_av>,
    pub(crate) cq: Fid<fid_cq>,
    domain: Fid<fid_domain>,
    fabric: Fid<fid_fabric>,
    pub(crate) info: Info,
    pub(crate) library: Library,
    endpoint: Endpoint,
    /// Descriptor that becomes readable when there is something to do; `None` if the provider has
    /// none.
    pub(crate) wait: Option<RawFd>,
    /// Whether one receive buffer takes many messages.
    pub(crate) multi: bool,
    /// Whether peers' memory can be read and written.
    pub(crate) rma: bool,
    /// Whether it can be written such that the completion means that the bytes are there.
    pub(crate) remote: bool,
    /// Whether every atomic operation works on it.
    pub(crate) atomics: bool,
    /// The accelerator memory that the provider takes; `None` if it takes only the host's.
    pub(crate) hmem: Option<Hmem>,
}

/// The endpoint, for regions that belong to it. Not owned.
#[derive(Debug)]
struct Endpoint(*mut fid);

// SAFETY: libfabric's objects belong to no thread.
unsafe impl Send for Endpoint {}

impl Domain {
    /// Opens an endpoint as described, for a job of `peers` ranks. A buffer for many messages is
    /// released when it has less than `least` bytes left.
    pub(crate) fn open(
        library: Library,
        info: Info,
        peers: u32,
        least: usize,
    ) -> Result<(Fid<fid_ep>, Self), String> {
        let null = ptr::null_mut::<c_void>();
        // SAFETY: attributes that outlive the call, room for the result.
        let fabric = Fid::open(&library, |fabric| unsafe {
            library.fi_fabric(info.get().fabric_attr, fabric, null)
        })?;
        // SAFETY: an open object, a description that outlives the call, room for the result.
        let domain = Fid::open(&library, |domain| unsafe {
            fi_domain(fabric.get(), info.as_ptr(), domain, null)
        })?;
        let silent = || queue(&library, &domain, FI_WAIT_NONE);
        let cq = match announces(&info) {
            true => queue(&library, &domain, FI_WAIT_FD).or_else(|_| silent()),
            false => silent(),
        }?;
        let av =
            vector(&library, &domain, &info, peers).map_err(|why| of_ranks(&why, &info, peers))?;
        // SAFETY: as above.
        let ep = Fid::open(&library, |ep| unsafe {
            fi_endpoint(domain.get(), info.as_ptr(), ep, null)
        })?;
        let check = |what: &str, result: i32| match result {
            0 => Ok(()),
            error => Err(format!(
                "{what} failed: {}",
                library.fi_strerror(i64::from(error))
            )),
        };
        let multi = takes_many(&info);
        // SAFETY: an open endpoint; the option takes a size.
        let leave_room = || unsafe {
            fi_setopt(
                ep.get(),
                FI_OPT_ENDPOINT as i32,
                FI_OPT_MIN_MULTI_RECV as i32,
                (&raw const least).cast(),
                size_of::<usize>(),
            )
        };
        // SAFETY: open objects.
        unsafe {
            check("binding the address vector", fi_bind(ep.fid(), av.fid(), 0))?;
            let both = FI_TRANSMIT | FI_RECV;
            check(
                "binding the completion queue",
                fi_bind(ep.fid(), cq.fid(), both),
            )?;
            let early = multi && room_comes_first(library.version(), &info) && leave_room() == 0;
            check("enabling the endpoint", fi_enable(ep.fid()))?;
            if multi && !early {
                check("setting the space of receive buffers", leave_room())?;
            }
        }
        let rma = info.get().caps & FI_RMA != 0;
        let remote = rma && info.delivers;
        let atomics = remote && info.get().caps & FI_ATOMIC != 0 && atomics::complete(&ep);
        let wait = descriptor(&cq);
        let mut domain = Self {
            av,
            cq,
            domain,
            fabric,
            info,
            library,
            endpoint: Endpoint(ep.fid()),
            wait,
            multi,
            rma,
            remote,
            atomics,
            hmem: None,
        };
        domain.hmem = Hmem::examine(&domain);
        Ok((ep, domain))
    }

    /// The address by which peers reach an endpoint of this domain.
    pub(crate) fn name(&self, ep: &Fid<fid_ep>) -> Result<Vec<u8>, String> {
        let mut name = vec![0_u8; 512];
        let mut len = name.len();
        // SAFETY: an open endpoint; `len` says how much room there is.
        let result = unsafe { fi_getname(ep.get(), name.as_mut_ptr().cast(), &raw mut len) };
        if result != 0 || len > name.len() {
            let why = self.library.fi_strerror(i64::from(result));
            return Err(format!("asking for the endpoint's address failed: {why}"));
        }
        name.truncate(len);
        Ok(name)
    }

    /// Registers memory for this rank's own operations, if the provider requires that; `None` if it
    /// does not. The key is for providers that do not choose keys themselves, and must not be in
    /// use.
    pub(crate) fn register_local(
        &self,
        start: *mut u8,
        len: usize,
        access: u64,
        key: u64,
    ) -> Result<Option<Fid<fid_mr>>, String> {
        if !self.wants_local(start) {
            return Ok(None);
        }
        self.register(start, len, access, key).map(Some)
    }

    /// Whether the provider requires memory to be registered for this rank's own operations.
    pub(crate) fn wants_local(&self, start: *const u8) -> bool {
        let hmem = self.hmem.as_ref();
        self.info.mr_mode(FI_MR_LOCAL) || hmem.is_some_and(|hmem| hmem.wants(start))
    }

    /// Registers memory.
    pub(crate) fn register(
        &self,
        start: *mut u8,
        len: usize,
        access: u64,
        key: u64,
    ) -> Result<Fid<fid_mr>, String> {
        let site = match &self.hmem {
            Some(hmem) => hmem.site_of(start)?,
            None => Site::HOST,
        };
        self.register_as(start, len, access, key, site)
            .map_err(|(_, why)| {
                format!("{why} ({len} bytes; the limit of locked memory may be too low: ulimit -l)")
            })
    }

    /// Registers memory at a site. An error has libfabric's result and its words.
    pub(crate) fn register_as(
        &self,
        start: *mut u8,
        len: usize,
        access: u64,
        key: u64,
        site: Site,
    ) -> Result<Fid<fid_mr>, (i32, String)> {
        let mut code = 0;
        let bytes = libc::iovec {
            iov_base: start.cast(),
            iov_len: len,
        };
        let mut attr = fi_mr_attr {
            mr_iov: &raw const bytes,
            iov_count: 1,
            access,
            offset: 0,
            requested_key: key,
            context: ptr::null_mut(),
            auth_key_size: 0,
            auth_key: ptr::null_mut(),
            iface: hmem::interface(site.kind),
            device: fi_mr_attr__bindgen_ty_1 { reserved: 0 },
        };
        attr.device.cuda = site.device; // All kinds use this place.
        let mut open = |flags| {
            // SAFETY: an open domain, attributes that outlive the call; the caller makes sure that
            // the memory outlives the region.
            let opened = Fid::open(&self.library, |mr| unsafe {
                code = fi_mr_regattr(self.domain.get(), &raw const attr, flags, mr);
                code
            });
            opened.map_err(|why| (code, why))
        };
        let region = match site.direct {
            // A provider that does not know the flag may refuse it.
            true => open(FI_HMEM_DEVICE_ONLY).or_else(|_| open(0)),
            false => open(0),
        }?;
        if self.info.mr_mode(FI_MR_ENDPOINT) {
            self.join(&region)?;
        }
        Ok(region)
    }

    /// Whether the provider takes memory of a kind.
    pub(crate) fn takes(&self, kind: MemoryKind) -> bool {
        let hmem = self.hmem.as_ref();
        hmem.map_or(kind == MemoryKind::Host, |hmem| hmem.takes(kind))
    }

    /// Whether the processor can load and store memory at this address.
    pub(crate) fn is_host(&self, address: *const u8) -> bool {
        self.hmem.as_ref().is_none_or(|hmem| hmem.is_host(address))
    }

    /// Binds a region to the endpoint, where regions belong to endpoints.
    fn join(&self, region: &Fid<fid_mr>) -> Result<(), (i32, String)> {
        // SAFETY: open objects: nothing is registered after the endpoint has been closed
        // (`link.rs`).
        let result = unsafe {
            match fi_bind(region.fid(), self.endpoint.0, 0) {
                0 => fi_enable(region.fid()),
                error => error,
            }
        };
        match result {
            0 => Ok(()),
            error => Err((error, self.library.fi_strerror(i64::from(error)))),
        }
    }

    /// Whether it is safe to sleep on the descriptor: `false` if there is something to do first.
    pub(crate) fn may_sleep(&self) -> bool {
        if self.wait.is_none() {
            return true;
        }
        let mut queue: *mut fid = self.cq.fid();
        // SAFETY: one open queue.
        unsafe { fi_trywait(self.fabric.get(), &raw mut queue, 1) == 0 }
    }

    /// Whether the provider has something to read or to report, as far as it or its descriptor
    /// tells: a sleep would end at once.
    pub(crate) fn has_unread(&self) -> bool {
        let Some(fd) = self.wait else {
            return false;
        };
        let mut entry = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry, and the call does not wait.
        !self.may_sleep() || unsafe { libc::poll(&raw mut entry, 1, 0) > 0 }
    }
}

/// The descriptor for operations on registered memory; null where none is needed.
pub(crate) fn desc(region: Option<&Fid<fid_mr>>) -> *mut c_void {
    // SAFETY: open as long as it is borrowed.
    region.map_or(ptr::null_mut(), |region| unsafe {
        fi_mr_desc(region.get())
    })
}

fn queue(library: &Library, domain: &Fid<fid_domain>, wait: u32) -> Result<Fid<fid_cq>, String> {
    // SAFETY: numbers and null pointers, for which zero is a value.
    let mut attr = unsafe { std::mem::zeroed::<fi_cq_attr>() };
    attr.size = COMPLETIONS;
    attr.format = FI_CQ_FORMAT_TAGGED;
    attr.wait_obj = wait;
    // SAFETY: an open domain, attributes, room for the result.
    Fid::open(library, |cq| unsafe {
        fi_cq_open(domain.get(), &raw mut attr, cq, ptr::null_mut())
    })
}

/// Most endpoints that libfabric's shared memory joins. Beyond that, opening the address vector
/// fails as if the provider had none (1.17 to 2.5).
const MOST_OVER_SHM: u32 = 256;

/// Adds to an error for how many ranks an address vector was to be opened, and which limit that
/// exceeds.
fn of_ranks(why: &str, info: &Info, peers: u32) -> String {
    match over(info, "shm") && peers > MOST_OVER_SHM {
        true => format!("{why}, for {peers} ranks; provider shm joins {MOST_OVER_SHM} at most"),
        false => format!("{why}, for {peers} ranks"),
    }
}

fn vector(
    library: &Library,
    domain: &Fid<fid_domain>,
    info: &Info,
    peers: u32,
) -> Result<Fid<fid_av>, String> {
    // SAFETY: numbers and null pointers, for which zero is a value.
    let mut attr = unsafe { std::mem::zeroed::<fi_av_attr>() };
    attr.type_ = match info.domain_attr().av_type {
        FI_AV_UNSPEC => FI_AV_MAP,
        kind => kind,
    };
    attr.count = peers as usize;
    // SAFETY: an open domain, attributes, room for the result.
    Fid::open(library, |av| unsafe {
        fi_av_open(domain.get(), &raw mut attr, av, ptr::null_mut())
    })
}

fn descriptor(cq: &Fid<fid_cq>) -> Option<RawFd> {
    let mut fd: RawFd = -1;
    // SAFETY: an open queue; the command writes a descriptor.
    let result = unsafe { fi_control(cq.fid(), FI_GETWAIT as i32, (&raw mut fd).cast()) };
    (result == 0 && fd >= 0).then_some(fd)
}

#[cfg(test)]
mod tests;
