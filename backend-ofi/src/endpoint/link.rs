//! An open endpoint with everything that it uses, and the order in which that goes.
//!
//! Nothing that the provider may write or read goes before the provider has let go of it, which a
//! closed endpoint says. Where memory is registered for endpoints (`FI_MR_ENDPOINT`) one does not
//! close as long as something is registered for it. So the endpoint is closed first, and, if it
//! refuses, again when the registrations have been closed; the memory stays meanwhile. If it
//! refuses still, everything stays for good; and if it may be writing to the program's memory then,
//! which goes whatever is done here, the process ends.

use std::any::Any;
use std::mem::ManuallyDrop;

use libfabric_sys::{FI_MR_LOCAL, fid_ep};
use portolan_core::transport::{Limits, WIRE_VERSION};

use crate::caps;
use crate::config::Config;
use crate::endpoint::Domain;
use crate::endpoint::objects::Fid;
use crate::endpoint::op::Kind;
use crate::native;
use crate::one_sided::Memory;
use crate::packets::inbox::Inbox;
use crate::packets::slots::Slots;
use crate::packets::wire::Wire;
use crate::start::info::Info;
use crate::start::library::keeping_signals;

/// An endpoint with its buffers.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) ep: ManuallyDrop<Fid<fid_ep>>,
    pub(crate) small: ManuallyDrop<Slots>,
    pub(crate) large: ManuallyDrop<Slots>,
    pub(crate) inbox: ManuallyDrop<Inbox>,
    pub(crate) memory: ManuallyDrop<Memory>,
    /// What the provider still has that is not the link's.
    pub(crate) lent: ManuallyDrop<Option<Box<dyn Any + Send>>>,
    pub(crate) domain: ManuallyDrop<Domain>,
    pub(crate) limits: Limits,
    /// Longest payload of one of the provider's messages that this rank sends.
    pub(crate) part: usize,
    /// No packet overtakes another to the same rank.
    pub(crate) in_order: bool,
    /// The provider matches.
    pub(crate) matches: bool,
    /// What a layer of the provider was told that peers must have been told, too.
    told: Option<String>,
}

impl Link {
    /// Opens an endpoint as `info` describes it. With `tried` another one like it has shown that
    /// the provider can match, if it is to.
    pub(crate) fn new(
        library: libfabric_sys::Library,
        info: Info,
        config: &Config,
        size: u32,
        tried: bool,
    ) -> Result<Self, String> {
        let (limits, part) = caps::limits(config, &info);
        let told = caps::told_of_rxm(config, &info);
        // The parts of a packet may overtake each other while a connection is made.
        let in_order = caps::keeps_order(config, &info) && part >= limits.bulk;
        if limits.bulk < 1024 {
            let provider = info.provider();
            return Err(format!(
                "messages of provider {provider} have at most {} bytes; 1064 are needed",
                info.ep_attr().max_msg_size
            ));
        }
        // Parts of other ranks may be longer than this one's.
        let largest = Wire::LEN + limits.bulk;
        // Providers install handlers of signals when an endpoint is made, too.
        let opened = keeping_signals(|| Domain::open(library, info, size, largest))?;
        // If something fails below, the endpoint goes before what it stands on.
        let (domain, ep) = (opened.1, opened.0);
        portolan_core::log!(
            DEBUG,
            provider = domain.info.provider(),
            network = domain.info.domain(),
            registration = domain.info.registration(),
            "an endpoint is open"
        );
        let (count, least) = (config.slots, Wire::LEN + limits.short);
        // All parts of a packet leave at once, or none.
        let pieces = count.max(limits.bulk.div_ceil(part));
        let small = Slots::new(&domain, Kind::Short, 4 * count, least)?;
        let large = Slots::new(&domain, Kind::Bulk, pieces, largest)?;
        let inbox = Inbox::new(&domain, config, largest, limits.bulk)?;
        let memory = Memory::new(&domain)?;
        let mut link = Self {
            small: ManuallyDrop::new(small),
            large: ManuallyDrop::new(large),
            inbox: ManuallyDrop::new(inbox),
            memory: ManuallyDrop::new(memory),
            lent: ManuallyDrop::new(None),
            ep: ManuallyDrop::new(ep),
            domain: ManuallyDrop::new(domain),
            limits,
            part,
            in_order,
            matches: config.native(),
            told,
        };
        link.inbox.post(&link.ep).map_err(|error| {
            let why = library.fi_strerror(error as i64);
            format!("posting the first receive buffer failed: {why}")
        })?;
        if link.matches && !tried {
            link.check_matching(size)?;
        }
        Ok(link)
    }

    /// An error if the provider cannot match.
    fn check_matching(&self, size: u32) -> Result<(), String> {
        let able = native::examine(&self.domain.info, size).and_then(|()| native::attempt(self));
        able.map_err(|why| {
            let provider = self.domain.info.provider();
            format!(
                "PORTOLAN_MATCH=native was asked for, but provider {provider} {why}; \
                 PORTOLAN_MATCH=software has Portolan match over it"
            )
        })
    }

    /// The address by which peers find it.
    pub(crate) fn name(&self) -> Result<Vec<u8>, String> {
        self.domain.name(&self.ep)
    }

    /// Which providers can talk to this one: name, protocol and version of the library, and what
    /// packets look like. Providers of two versions may have one protocol by their numbers and wait
    /// for each other for ever (`shm` and `tcp;ofi_rxm` of 1.17 and 2.5 do).
    pub(crate) fn protocol(&self) -> String {
        let (info, attr) = (&self.domain.info, self.domain.info.ep_attr());
        // Atomic operations are by the provider for everybody, or for nobody.
        let atomics = if self.domain.atomics { "+atomics" } else { "" };
        let told = self.told.as_ref().map(|told| format!(", {told}"));
        let (major, minor) = self.domain.library.version();
        format!(
            "{} {}.{}{atomics} of libfabric {major}.{minor}, packets {} of {} bytes{}{}",
            info.provider(),
            attr.protocol,
            attr.protocol_version,
            WIRE_VERSION,
            self.limits.bulk,
            if self.matches { ", matching" } else { "" },
            told.unwrap_or_default()
        )
    }
}

impl Link {
    /// Closes the endpoint; an error, libfabric's, if it stays open.
    fn hang_up(&mut self) -> Result<(), i32> {
        // SAFETY: taken once, by the one who drops the link, and not used after.
        let ep = unsafe { ManuallyDrop::take(&mut self.ep) };
        let Err((ep, _)) = ep.close() else {
            return Ok(());
        };
        self.small.slab.unregister();
        self.large.slab.unregister();
        self.inbox.unregister();
        self.memory.unregister();
        ep.close().map_err(|(ep, code)| {
            std::mem::forget(ep);
            code
        })
    }

    /// Whether an endpoint that is open, with nothing registered, may write to memory of the
    /// program's.
    fn endangers(&self) -> bool {
        self.memory.is_reading() && !self.domain.info.mr_mode(FI_MR_LOCAL)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Err(code) = self.hang_up() {
            let why = self.domain.library.fi_strerror(i64::from(code));
            portolan_core::log!(
                ERROR,
                why,
                "the endpoint does not close: its memory stays where it is"
            );
            if self.endangers() {
                portolan_core::log!(
                    ERROR,
                    "a message may still be read into memory of the program"
                );
                std::process::abort();
            }
            return;
        }
        // SAFETY: dropped here and nowhere else; what is registered in the domain goes before that.
        unsafe {
            ManuallyDrop::drop(&mut self.small);
            ManuallyDrop::drop(&mut self.large);
            ManuallyDrop::drop(&mut self.inbox);
            ManuallyDrop::drop(&mut self.memory);
            ManuallyDrop::drop(&mut self.lent);
            ManuallyDrop::drop(&mut self.domain);
        }
    }
}

#[cfg(test)]
mod tests;
