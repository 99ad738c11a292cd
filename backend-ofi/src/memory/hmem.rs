//! Accelerator memory in the provider's hands (`FI_HMEM`).
//!
//! A provider that was asked for `FI_HMEM` registers memory together with the interface and the
//! accelerator that own it. The accelerators' drivers are asked who owns an address, once for each
//! registration. Without `FI_HMEM` nothing is asked: then all memory that comes here is the host's.

use libfabric_sys::{
    FI_ENOSYS, FI_EOPNOTSUPP, FI_HMEM_CUDA, FI_HMEM_NEURON, FI_HMEM_ROCR, FI_HMEM_SYNAPSEAI,
    FI_HMEM_SYSTEM, FI_HMEM_ZE, FI_MR_HMEM, FI_SEND, fi_hmem_iface,
};
use portolan_core::MemoryKind;
use portolan_core::config::{MatchMode, SettingValue, Switch};
use portolan_core::staging::Staging;

use crate::config::Config;
use crate::endpoint::Domain;
use crate::start::open::in_process_with;

/// Kinds of memory that libfabric knows.
const KINDS: [MemoryKind; 6] = [
    MemoryKind::Host,
    MemoryKind::Cuda,
    MemoryKind::Rocm,
    MemoryKind::LevelZero,
    MemoryKind::Neuron,
    MemoryKind::SynapseAi,
];

/// Key of registrations that only test whether a provider has an interface. Nothing else uses it.
const TRIAL: u64 = 15;

/// A page, aligned as any interface needs it.
#[repr(align(4096))]
struct Page([u8; 4096]);

/// This machine's accelerators, and how they are to be served.
#[derive(Clone, Debug)]
pub(crate) struct Accelerators {
    /// The drivers, which know the accelerators' memory.
    pub(crate) drivers: Staging,
    /// Whether the host's memory is registered like theirs, because the setting is `on`.
    pub(crate) always: bool,
    /// Whether each rank is a process of its own: a process cannot open its own accelerator memory
    /// the way it opens another's.
    pub(crate) apart: bool,
}

/// Where memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) kind: MemoryKind,
    /// The accelerator's number.
    pub(crate) device: i32,
    /// Whether a provider may have the accelerator copy between this memory and another process's
    /// (`FI_HMEM_DEVICE_ONLY`), which is far faster than by way of the host.
    pub(crate) direct: bool,
}

impl Site {
    pub(crate) const HOST: Self = Self::on(MemoryKind::Host);

    /// Memory of a kind, on the first accelerator.
    pub(crate) const fn on(kind: MemoryKind) -> Self {
        Self {
            kind,
            device: 0,
            direct: false,
        }
    }
}

impl Accelerators {
    /// The accelerators under a setting; `None` if the provider is not to be asked for `FI_HMEM`.
    pub(crate) fn wanted(setting: Switch) -> Option<Self> {
        let always = setting == Switch::On;
        if setting == Switch::Off {
            return None;
        }
        let drivers = Staging::detected();
        (always || !drivers.is_empty()).then_some(Self {
            drivers,
            always,
            apart: false,
        })
    }
}

/// The kinds of memory that a domain's provider takes.
#[derive(Debug)]
pub(crate) struct Hmem {
    owners: Accelerators,
    kinds: Vec<MemoryKind>,
    /// Whether accelerator buffers have to be registered for every operation.
    registers: bool,
}

impl Hmem {
    /// What an open domain takes. `None` if it was not asked for `FI_HMEM`, or takes nothing of
    /// this machine's accelerators: then no driver need be asked who owns an address, because all
    /// memory that comes here is the host's.
    pub(crate) fn examine(domain: &Domain) -> Option<Self> {
        let owners = domain.info.memory.clone()?;
        let kinds = kinds(domain);
        let serves = owners
            .drivers
            .kinds()
            .iter()
            .any(|kind| kinds.contains(kind));
        (serves || owners.always).then(|| Self {
            owners,
            kinds,
            registers: domain.info.mr_mode(FI_MR_HMEM),
        })
    }

    /// Where the memory at an address is, which is about to be registered; an error if the provider
    /// does not take it.
    pub(crate) fn site_of(&self, address: *const u8) -> Result<Site, String> {
        let drivers = &self.owners.drivers;
        let (kind, device) = drivers.place_of(address);
        if !self.takes(kind) {
            return Err(format!("the provider takes no {kind:?} memory"));
        }
        // libfabric's copies between accelerators are over when the driver's calls return, and so
        // the driver must be told that these calls wait.
        let direct = kind != MemoryKind::Host && self.owners.apart && drivers.synchronise(address);
        Ok(Site {
            kind,
            device,
            direct,
        })
    }

    /// Whether memory at this address is of a kind, and the provider takes it.
    pub(crate) fn serves(&self, address: *const u8, kind: MemoryKind) -> bool {
        self.takes(kind) && self.owners.drivers.kind_of(address) == kind
    }

    /// Whether the processor can load and store memory at this address.
    pub(crate) fn is_host(&self, address: *const u8) -> bool {
        self.owners.drivers.kind_of(address) == MemoryKind::Host
    }

    /// Whether memory at this address has to be registered before the provider uses it.
    pub(crate) fn wants(&self, address: *const u8) -> bool {
        self.registers && (self.owners.always || !self.is_host(address))
    }

    /// Whether the provider takes memory of a kind.
    pub(crate) fn takes(&self, kind: MemoryKind) -> bool {
        self.kinds.contains(&kind)
    }

    /// The interfaces, in words for users.
    pub(crate) fn shown(&self) -> String {
        shown(&self.kinds)
    }
}

/// How accelerator memory gets to the network under these settings, in words for users: the path
/// through the provider, and, if that is not taken, the reason, in which case the memory goes
/// through the host. Opens an endpoint.
#[must_use]
pub fn accelerators(config: &Config) -> (String, Option<String>) {
    let mode = config.hmem.show();
    let what = format!("memory of accelerators by the provider (PORTOLAN_OFI_HMEM={mode})");
    let instead = |why: &str| Some(format!("through the host instead, because {why}"));
    if config.hmem == Switch::Off {
        return (what, instead("FI_HMEM is not asked for"));
    }
    let asked = Config {
        hmem: Switch::On,
        matching: MatchMode::Software,
        ..config.clone()
    };
    let opened = in_process_with(1, &asked);
    let domain = opened.as_ref().map(|ranks| &ranks[0].link.domain);
    let (provider, kinds) = match domain.map(|domain| (domain.info.provider(), &domain.hmem)) {
        Ok((provider, Some(hmem))) => (provider, hmem.kinds.clone()),
        Ok((provider, None)) => return (what, instead(&format!("{provider} has no FI_HMEM"))),
        Err(why) => return (what, instead(&why.to_string().replace('\n', " "))),
    };
    let what = format!("{what}, {provider} with FI_HMEM of {}", shown(&kinds));
    let drivers = Staging::detected().kinds();
    let why = if drivers.is_empty() {
        Some("no driver of an accelerator was found".to_owned())
    } else if drivers.iter().any(|kind| kinds.contains(kind)) {
        None
    } else {
        Some(format!("there is no {}", shown(&drivers)))
    };
    // A user who sets `on` wants the host's memory registered in that way.
    let why = why.filter(|_| config.hmem != Switch::On);
    (what, why.and_then(|why| instead(&why)))
}

/// The interface of a kind of memory; the host's for kinds that libfabric does not know.
pub(crate) fn interface(kind: MemoryKind) -> fi_hmem_iface {
    match kind {
        MemoryKind::Cuda => FI_HMEM_CUDA,
        MemoryKind::Rocm => FI_HMEM_ROCR,
        MemoryKind::LevelZero => FI_HMEM_ZE,
        MemoryKind::Neuron => FI_HMEM_NEURON,
        MemoryKind::SynapseAi => FI_HMEM_SYNAPSEAI,
        _ => FI_HMEM_SYSTEM,
    }
}

/// Interfaces by libfabric's names.
pub(crate) fn shown(kinds: &[MemoryKind]) -> String {
    let name = |kind: &MemoryKind| match kind {
        MemoryKind::Cuda => "cuda",
        MemoryKind::Rocm => "rocr",
        MemoryKind::LevelZero => "ze",
        MemoryKind::Neuron => "neuron",
        MemoryKind::SynapseAi => "synapseai",
        _ => "system",
    };
    kinds.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Which kinds of memory a domain with `FI_HMEM` registers. To find out, a page of host memory is
/// registered under each interface. libfabric reports one sort of error if it was built without
/// that interface, or found no accelerator, and other errors otherwise.
fn kinds(domain: &Domain) -> Vec<MemoryKind> {
    let mut page = Box::new(Page([0; 4096]));
    let (start, len) = (page.0.as_mut_ptr(), page.0.len());
    let there = |kind: &MemoryKind| {
        let result = domain.register_as(start, len, FI_SEND, TRIAL, Site::on(*kind));
        !matches!(result, Err((code, _)) if [FI_ENOSYS, FI_EOPNOTSUPP].contains(&-code))
    };
    KINDS.into_iter().filter(there).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use libfabric_sys::{FI_READ, FI_REMOTE_READ, FI_TYPE_HMEM_IFACE};
    use portolan_core::Transport;
    use portolan_core::staging::Accelerator;

    use super::*;
    use crate::Ofi;
    use crate::start::open::in_process_as;
    use crate::start::provider::choose;
    use crate::testing::skipped;

    /// An accelerator that owns the second half of some bytes of the host.
    struct Fake(std::ops::Range<usize>);

    // SAFETY: its memory is the host's, and its copies have ended when they return.
    unsafe impl Accelerator for Fake {
        fn kind(&self) -> MemoryKind {
            MemoryKind::Neuron
        }

        fn owns(&self, address: *const u8) -> bool {
            self.0.contains(&(address as usize))
        }

        fn device(&self, _address: *const u8) -> i32 {
            3
        }

        /// Eight bytes further on.
        fn synchronise(&self, address: *const u8) -> bool {
            address as usize >= self.0.start + 8
        }

        unsafe fn fetch(&self, _: *const u8, _: *mut u8, _: usize) -> Result<(), String> {
            Err("it only knows addresses".to_owned())
        }

        unsafe fn store(&self, _: *mut u8, _: *const u8, _: usize) -> Result<(), String> {
            Err("it only knows addresses".to_owned())
        }
    }

    fn shm(hmem: Switch) -> Option<Ofi> {
        let config = Config {
            provider: Some("shm".to_owned()),
            hmem,
            ..Config::default()
        };
        // The shm provider is also offered where it cannot be opened: /dev/shm may be missing or
        // full.
        let ranks = in_process_with(1, &config).map_err(|why| skipped("FI_HMEM", &why.to_string()));
        ranks.ok()?.pop()
    }

    #[test]
    fn each_kind_has_the_interface_that_libfabric_calls_so() {
        let library = match crate::start::library::open(&Config::default()) {
            Ok(library) => library,
            Err(why) => return skipped("the names of interfaces", &why),
        };
        for kind in KINDS {
            let interface = interface(kind);
            // SAFETY: the address is that of an interface, as the type says.
            let name =
                unsafe { library.fi_tostr((&raw const interface).cast(), FI_TYPE_HMEM_IFACE) };
            assert_eq!(
                name.to_lowercase(),
                format!("fi_hmem_{}", shown(&[kind])),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn memory_of_accelerators_is_told_apart_and_refused_where_the_provider_has_none() {
        let Some(mut rank) = shm(Switch::On) else {
            return;
        };
        let mut bytes = vec![0_u8; 4096];
        let (host, device) = (bytes.as_mut_ptr(), bytes[2048..].as_mut_ptr());
        let range = device as usize..device as usize + 2048;
        let drivers = Staging::new(vec![Arc::new(Fake(range))]);
        let domain = &mut rank.link.domain;
        let hmem = domain.hmem.as_mut().expect("FI_HMEM was insisted on");
        assert!(hmem.takes(MemoryKind::Host) && !hmem.takes(MemoryKind::Neuron));
        assert!(hmem.wants(host) && hmem.is_host(device));
        hmem.owners.drivers = drivers;
        assert!(hmem.is_host(host) && !hmem.is_host(device));
        assert_eq!(hmem.site_of(host), Ok(Site::HOST));
        let local = domain.register_local(host, 2048, FI_READ, 100);
        assert!(local.expect("memory of the host").is_some());
        let refused = domain.register(device, 2048, FI_REMOTE_READ, 101);
        assert!(refused.unwrap_err().contains("no Neuron memory"));
        // SAFETY: the bytes outlive the rank's use of them: nothing is exposed or registered.
        unsafe {
            assert!(rank.expose(device, 2048).is_none());
            assert!(rank.register(device, 2048, MemoryKind::Neuron).is_none());
            let token = rank.register(host, 2048, MemoryKind::Host);
            rank.deregister(&token.expect("memory of the host"));
        }
        // Pretends that the library was built with it: interface and accelerator then reach the
        // library, which refuses.
        let hmem = rank.link.domain.hmem.as_mut().expect("as above");
        hmem.kinds.push(MemoryKind::Neuron);
        assert_eq!(
            hmem.site_of(device),
            Ok(Site {
                device: 3,
                ..Site::on(MemoryKind::Neuron)
            })
        );
        let refused = rank.link.domain.register(device, 2048, FI_REMOTE_READ, 102);
        assert!(refused.is_err(), "it has no such interface");
    }

    #[test]
    fn only_memory_that_is_synchronised_is_copied_between_accelerators_and_only_between_processes()
    {
        let Some(mut rank) = shm(Switch::On) else {
            return;
        };
        let bytes = [0_u8; 16];
        let at = |n: usize| bytes[n..].as_ptr();
        let hmem = rank
            .link
            .domain
            .hmem
            .as_mut()
            .expect("FI_HMEM was insisted on");
        hmem.kinds.push(MemoryKind::Neuron);
        let all = at(0) as usize..at(0) as usize + 12;
        hmem.owners.drivers = Staging::new(vec![Arc::new(Fake(all))]);
        let direct =
            |hmem: &Hmem| [0, 8, 12].map(|n| hmem.site_of(at(n)).expect("it is taken").direct);
        assert_eq!(direct(hmem), [false; 3], "the ranks are threads");
        hmem.owners.apart = true;
        assert_eq!(direct(hmem), [false, true, false]);
    }

    /// A provider whose library was built without an accelerator's interface.
    #[test]
    fn nobody_asks_drivers_whose_memory_the_provider_does_not_take() {
        if shm(Switch::On).is_none() {
            return;
        }
        let config = Config {
            provider: Some("shm".to_owned()),
            hmem: Switch::On,
            ..Config::default()
        };
        for always in [false, true] {
            let (library, mut info) = choose(&config).expect("chosen a moment ago");
            let drivers = Staging::new(vec![Arc::new(Fake(0..1))]);
            info.memory = Some(Accelerators {
                drivers,
                always,
                apart: false,
            });
            let ranks = in_process_as(1, &config, (library, info)).expect("it opens");
            assert_eq!(ranks[0].link.domain.hmem.is_some(), always);
            assert!(!ranks[0].serves(std::ptr::null(), MemoryKind::Neuron));
        }
    }

    #[test]
    fn nobody_is_asked_without_accelerators() {
        if !Staging::detected().is_empty() {
            return skipped("machines without accelerators", "this one has some");
        }
        assert!(Accelerators::wanted(Switch::Off).is_none());
        assert!(Accelerators::wanted(Switch::Auto).is_none());
        assert!(Accelerators::wanted(Switch::On).is_some_and(|wanted| wanted.always));
        if let Some(rank) = shm(Switch::Auto) {
            assert!(rank.link.domain.hmem.is_none());
        }
        let config = Config {
            provider: Some("shm".to_owned()),
            ..Config::default()
        };
        if shm(Switch::On).is_none() {
            return;
        }
        let (what, why) = accelerators(&config);
        assert!(what.ends_with("shm with FI_HMEM of system"), "{what}");
        let why = why.expect("nothing is there that could be sent");
        assert!(why.contains("no driver of an accelerator"), "{why}");
        let on = Config {
            hmem: Switch::On,
            ..config.clone()
        };
        assert_eq!(accelerators(&on).1, None);
        let off = Config {
            hmem: Switch::Off,
            ..config
        };
        assert!(accelerators(&off).1.is_some());
    }
}
