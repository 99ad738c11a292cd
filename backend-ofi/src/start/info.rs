//! Descriptions of what providers offer, in the library's own memory.
//!
//! A newer library's description is longer than the bindings say. It is only copied and freed by
//! the library itself; the fields that the bindings know are at the same offsets.

use std::ffi::{CStr, c_char};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr::NonNull;

use libfabric_sys::{
    FI_CONTEXT, FI_CONTEXT2, FI_DELIVERY_COMPLETE, FI_EP_RDM, FI_HMEM, FI_MR_ALLOCATED,
    FI_MR_ENDPOINT, FI_MR_HMEM, FI_MR_LOCAL, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_MSG, FI_ORDER_SAS,
    FI_PROGRESS_MANUAL, FI_RM_ENABLED, FI_SOCKADDR_IN, FI_SOCKADDR_IN6, FI_TAGGED,
    FI_THREAD_DOMAIN, Library, fi_domain_attr, fi_ep_attr, fi_fabric_attr, fi_info, fi_rx_attr,
    fi_tx_attr,
};

#[cfg(test)]
use libfabric_sys::FI_RM_DISABLED;

use crate::memory::hmem::Accelerators;

/// One description, owned.
#[derive(Debug)]
pub(crate) struct Info {
    library: Library,
    info: NonNull<fi_info>,
    /// Whether its provider can report that written data has been delivered.
    pub(crate) delivers: bool,
    /// The accelerators whose memory its provider is to take, if it was asked for that.
    pub(crate) memory: Option<Accelerators>,
}

// SAFETY: plain memory of the library, belonging to no thread.
unsafe impl Send for Info {}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: it came from this library and is not used any more.
        unsafe { self.library.fi_freeinfo(self.info.as_ptr()) };
    }
}

impl Info {
    fn of(library: Library, info: NonNull<fi_info>) -> Self {
        Self {
            library,
            info,
            delivers: false,
            memory: None,
        }
    }

    /// Makes an empty one, for hints.
    fn empty(library: Library) -> Result<Self, String> {
        NonNull::new(library.fi_allocinfo())
            .map(|info| Self::of(library, info))
            .ok_or_else(|| "libfabric has no memory for a description".to_owned())
    }

    /// What is wanted of every provider: reliable datagrams with these capabilities in addition to
    /// messages, and any mode that this crate supports.
    pub(crate) fn hints(library: Library, caps: u64) -> Result<Self, String> {
        let mut hints = Self::empty(library)?;
        let info = hints.get_mut();
        info.caps = FI_MSG | caps;
        info.mode = FI_CONTEXT | FI_CONTEXT2;
        // SAFETY: an empty description has all of its parts.
        unsafe {
            (*info.ep_attr).type_ = FI_EP_RDM;
            (*info.domain_attr).mr_mode =
                (FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT)
                    as i32;
            if caps & FI_HMEM != 0 {
                (*info.domain_attr).mr_mode |= FI_MR_HMEM as i32;
            }
            (*info.domain_attr).threading = FI_THREAD_DOMAIN;
            // The provider refuses what it has no room for, for a while: this crate does not count
            // how much its queues hold.
            (*info.domain_attr).resource_mgmt = FI_RM_ENABLED;
            if caps & FI_TAGGED != 0 {
                // Messages that the provider matches are not numbered.
                (*info.tx_attr).msg_order = FI_ORDER_SAS;
                (*info.rx_attr).msg_order = FI_ORDER_SAS;
            }
        }
        Ok(hints)
    }

    /// Asks for completions which mean that sent or written data has been delivered.
    pub(crate) fn ask_delivery(&mut self) {
        // SAFETY: a description has all of its parts.
        unsafe { (*self.get_mut().tx_attr).op_flags = FI_DELIVERY_COMPLETE };
    }

    /// Asks the provider to do its work in the program's calls, not in a thread of its own.
    pub(crate) fn ask_no_thread(&mut self) {
        // SAFETY: a description has all of its parts.
        unsafe { (*self.get_mut().domain_attr).data_progress = FI_PROGRESS_MANUAL };
    }

    /// Has the endpoint made with room for no more than `count` receives.
    pub(crate) fn limit_receives(&mut self, count: usize) {
        // SAFETY: a description has all of its parts.
        unsafe { (*self.get_mut().rx_attr).size = count };
    }

    /// Asks for exactly the provider, fabric and domain that `like` describes.
    pub(crate) fn name(&mut self, like: &Self) {
        let info = self.get_mut();
        // SAFETY: both have all of their parts. The library frees the strings of hints as memory of
        // `malloc`, which `strdup` returns.
        unsafe {
            (*info.fabric_attr).prov_name = copied((*like.get().fabric_attr).prov_name);
            (*info.fabric_attr).name = copied((*like.get().fabric_attr).name);
            (*info.domain_attr).name = copied((*like.get().domain_attr).name);
        }
    }

    /// Everything that the library offers under `hints`; without hints, everything there is.
    pub(crate) fn list(library: Library, hints: Option<&Self>) -> Result<Vec<Self>, String> {
        let null = std::ptr::null();
        let hints = hints.map_or(null, |hints| hints.info.as_ptr().cast_const());
        let mut first = std::ptr::null_mut();
        // SAFETY: no strings, hints of this library, room for the list.
        let result =
            unsafe { library.fi_getinfo(std::ptr::null(), null.cast(), 0, hints, &raw mut first) };
        if result != 0 {
            return Err(library.fi_strerror(i64::from(result)));
        }
        let mut list = Vec::new();
        let mut at = first;
        // SAFETY: a list that ends with null; each entry is copied without its successors.
        unsafe {
            while let Some(entry) = at.as_ref() {
                list.extend(
                    NonNull::new(library.fi_dupinfo(at)).map(|info| Self::of(library, info)),
                );
                at = entry.next;
            }
            library.fi_freeinfo(first);
        }
        Ok(list)
    }

    /// Another one like this.
    pub(crate) fn duplicate(&self) -> Result<Self, String> {
        // SAFETY: owned and live, of this library.
        let copy = unsafe { self.library.fi_dupinfo(self.info.as_ptr()) };
        let library = self.library;
        NonNull::new(copy)
            .map(|info| Self {
                library,
                info,
                delivers: self.delivers,
                memory: self.memory.clone(),
            })
            .ok_or_else(|| "libfabric has no memory for a description".to_owned())
    }

    /// The description as libfabric's functions take it.
    pub(crate) fn as_ptr(&self) -> *mut fi_info {
        self.info.as_ptr()
    }

    pub(crate) fn get(&self) -> &fi_info {
        // SAFETY: owned and live.
        unsafe { self.info.as_ref() }
    }

    fn get_mut(&mut self) -> &mut fi_info {
        // SAFETY: owned and live.
        unsafe { self.info.as_mut() }
    }

    pub(crate) fn fabric_attr(&self) -> &fi_fabric_attr {
        // SAFETY: descriptions have all of their parts.
        unsafe { &*self.get().fabric_attr }
    }

    pub(crate) fn domain_attr(&self) -> &fi_domain_attr {
        // SAFETY: as above.
        unsafe { &*self.get().domain_attr }
    }

    pub(crate) fn ep_attr(&self) -> &fi_ep_attr {
        // SAFETY: as above.
        unsafe { &*self.get().ep_attr }
    }

    pub(crate) fn tx_attr(&self) -> &fi_tx_attr {
        // SAFETY: as above.
        unsafe { &*self.get().tx_attr }
    }

    pub(crate) fn rx_attr(&self) -> &fi_rx_attr {
        // SAFETY: as above.
        unsafe { &*self.get().rx_attr }
    }

    /// Name of the provider; layers are separated by semicolons.
    pub(crate) fn provider(&self) -> String {
        text(self.fabric_attr().prov_name)
    }

    /// Name of the fabric: for IP networks the subnet.
    pub(crate) fn fabric(&self) -> String {
        text(self.fabric_attr().name)
    }

    /// Name of the domain: for IP networks the interface.
    pub(crate) fn domain(&self) -> String {
        text(self.domain_attr().name)
    }

    /// Whether the memory modes have one of these bits.
    pub(crate) fn mr_mode(&self, bits: u64) -> bool {
        self.domain_attr().mr_mode as u64 & bits != 0
    }

    /// Makes memory be registered in other ways than the provider asks for.
    #[cfg(test)]
    pub(crate) fn set_mr_modes(&mut self, bits: u64) {
        // SAFETY: a description has all of its parts.
        unsafe { (*self.get_mut().domain_attr).mr_mode = bits as i32 };
    }

    /// Makes addresses be kept in another way than the provider would.
    #[cfg(test)]
    pub(crate) fn set_av_type(&mut self, kind: libfabric_sys::fi_av_type) {
        // SAFETY: a description has all of its parts.
        unsafe { (*self.get_mut().domain_attr).av_type = kind };
    }

    /// Pretends that the provider has no longer messages.
    #[cfg(test)]
    pub(crate) fn set_longest(&mut self, len: usize) {
        // SAFETY: a description has all of its parts.
        unsafe { (*self.get_mut().ep_attr).max_msg_size = len };
    }

    /// Pretends that messages overtake each other.
    #[cfg(test)]
    pub(crate) fn set_no_order(&mut self) {
        // SAFETY: a description has all of its parts.
        unsafe { (*self.get_mut().tx_attr).msg_order = 0 };
    }

    /// Pretends that the provider lets its queues overflow.
    #[cfg(test)]
    pub(crate) fn let_overflow(&mut self) {
        // SAFETY: a description has all of its parts.
        unsafe { (*self.get_mut().domain_attr).resource_mgmt = FI_RM_DISABLED };
    }

    /// Pretends that the provider's domain has this name.
    #[cfg(test)]
    pub(crate) fn set_domain(&mut self, name: &str) {
        let name = std::ffi::CString::new(name).expect("no zero inside");
        // SAFETY: a description has all of its parts; their strings are memory of `malloc`.
        unsafe {
            let attr = self.get_mut().domain_attr;
            libc::free((*attr).name.cast());
            (*attr).name = copied(name.as_ptr());
        }
    }

    /// How memory is registered, in words for users.
    pub(crate) fn registration(&self) -> String {
        let choice = |bits, yes, no| if self.mr_mode(bits) { yes } else { no };
        let parts = [
            choice(FI_MR_VIRT_ADDR, "virtual addresses", "offsets"),
            choice(FI_MR_PROV_KEY, "the provider's keys", "own keys"),
            choice(FI_MR_LOCAL, "local buffers, too", ""),
            choice(FI_MR_ENDPOINT, "for an endpoint", ""),
        ];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(", ")
    }

    /// The address of this side, where it is an IP address.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        let info = self.get();
        if info.src_addr.is_null() {
            return None;
        }
        // SAFETY: the format says what lies there, and the length shows that it is complete.
        unsafe {
            if info.addr_format == FI_SOCKADDR_IN
                && info.src_addrlen >= size_of::<libc::sockaddr_in>()
            {
                let address = info.src_addr.cast::<libc::sockaddr_in>().read_unaligned();
                return Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into());
            }
            if info.addr_format == FI_SOCKADDR_IN6
                && info.src_addrlen >= size_of::<libc::sockaddr_in6>()
            {
                let address = info.src_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                return Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into());
            }
        }
        None
    }
}

/// A string of libfabric, empty where it is null.
fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: libfabric's strings end with a zero byte and live as long as the object that holds
    // them.
    unsafe { CStr::from_ptr(string) }
        .to_string_lossy()
        .into_owned()
}

/// A copy for `free`.
fn copied(string: *const c_char) -> *mut c_char {
    if string.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: a string that ends with a zero byte.
    unsafe { libc::strdup(string) }
}
