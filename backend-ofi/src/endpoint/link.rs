//! An open endpoint with everything that it uses, and the order in which these are closed.
//!
//! No memory that the provider may write or read is freed before the provider has released it; a
//! closed endpoint shows that it has. Where memory is registered for endpoints (`FI_MR_ENDPOINT`),
//! an endpoint does not close while anything is registered for it. So the endpoint is closed first.
//! If it refuses, the registrations are closed and it is closed again; the memory stays meanwhile.
//! If it still refuses, everything stays for good. If the provider may then still be writing to the
//! program's memory, which will be freed whatever this crate does, the process ends.

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
    /// Memory from elsewhere that the provider still has.
    pub(crate) lent: ManuallyDrop<Option<Box<dyn Any + Send>>>,
    pub(crate) domain: ManuallyDrop<Domain>,
    pub(crate) limits: Limits,
    /// Longest payload of one provider message that this rank sends.
    pub(crate) part: usize,
    /// The longest message that the provider, if it matches, sends before it is matched.
    pub(crate) at_once: usize,
    /// By how many bytes a message that the provider matches may exceed its buffer without the
    /// provider noticing.
    pub(crate) sink: usize,
    /// Whether no packet overtakes another to the same rank.
    pub(crate) in_order: bool,
    /// Whether the provider matches.
    pub(crate) matches: bool,
    /// A setting of a provider's layer that must be the same for all peers
    /// ([`Config::RXM_AT_ONCE`]).
    told: Option<String>,
}

impl Link {
    /// Opens an endpoint as `info` describes it. `tried` says that another endpoint like it has
    /// already shown that the provider can match, if it is to.
    pub(crate) fn new(
        library: libfabric_sys::Library,
        mut info: Info,
        config: &Config,
        size: u32,
        tried: bool,
    ) -> Result<Self, String> {
        let (limits, part) = caps::limits(config, &info);
        let told = caps::told_of_rxm(config, &info);
        let (at_once, sink) = (caps::at_once(config, &info), caps::sink(config, &info));
        // The parts of a packet may overtake each other while a connection is made.
        let in_order = caps::keeps_order(config, &info) && part >= limits.bulk;
        if limits.bulk < 1024 {
            let provider = info.provider();
            return Err(format!(
                "messages of provider {provider} have at most {} bytes; 1064 are needed",
                info.ep_attr().max_msg_size
            ));
        }
        if let Some(count) = caps::receives(&info) {
            info.limit_receives(count);
        }
        let (slots, reserve) = caps::slots(config, &info);
        // Other ranks may send longer parts than this one.
        let largest = Wire::LEN + limits.bulk;
        // Providers install signal handlers when an endpoint is made, too.
        let opened = keeping_signals(|| Domain::open(library, info, size, largest))?;
        // If something fails below, the endpoint is dropped before the domain.
        let (domain, ep) = (opened.1, opened.0);
        portolan_core::log!(
            DEBUG,
            provider = domain.info.provider(),
            network = domain.info.domain(),
            registration = domain.info.registration(),
            "an endpoint is open"
        );
        let least = Wire::LEN + limits.short;
        // Either all parts of a packet are sent at once, or none.
        let parts = limits.bulk.div_ceil(part);
        let small = Slots::new(&domain, Kind::Short, (4 * slots, 4 * reserve), least)?;
        let large = Slots::new(
            &domain,
            Kind::Bulk,
            (slots.max(parts), reserve.max(parts)),
            largest,
        )?;
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
            at_once,
            sink,
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

    /// Returns an error if the provider cannot match.
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

    /// The address by which peers reach the endpoint.
    pub(crate) fn name(&self) -> Result<Vec<u8>, String> {
        self.domain.name(&self.ep)
    }

    /// Describes which providers can communicate with this one: name, protocol and version of the
    /// library, and the format of packets. Providers of two library versions may report the same
    /// protocol number and yet wait for each other for ever (`shm` and `tcp;ofi_rxm` of 1.17 and
    /// 2.5 do).
    pub(crate) fn protocol(&self) -> String {
        let (info, attr) = (&self.domain.info, self.domain.info.ep_attr());
        // Either all ranks' atomic operations go by the provider, or none.
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
    /// Closes the endpoint. Returns libfabric's error if it stays open.
    fn hang_up(&mut self) -> Result<(), i32> {
        // SAFETY: taken once, when the link is dropped, and not used afterwards.
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

    /// Whether the endpoint, if it stays open with nothing registered, may write to the program's
    /// memory.
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
        // SAFETY: dropped here and nowhere else; registrations in the domain are dropped before it.
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
