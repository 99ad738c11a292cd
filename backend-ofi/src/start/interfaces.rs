//! The network interfaces of this machine, by their names and addresses, and which of them are
//! down.
//!
//! libfabric's list leaves out most interfaces that are down, so that a user who names one is told
//! that there is no such network. Others, such as a loopback interface that nobody has brought up,
//! it does list, with an address that reaches nobody.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::start::info::Info;

/// All interfaces.
#[derive(Debug, Default)]
pub(crate) struct Interfaces(Vec<Interface>);

#[derive(Debug)]
struct Interface {
    name: String,
    is_up: bool,
    /// One of its addresses. The interface has one entry for each.
    address: Option<IpAddr>,
}

impl Interfaces {
    /// Asks the system. Empty if that fails.
    pub(crate) fn now() -> Self {
        let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
        // SAFETY: a place for the list, which is freed below.
        if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
            return Self::default();
        }
        let mut all = Vec::new();
        let mut next = first;
        // SAFETY: the list's entries, up to its end, are valid until it is freed.
        while let Some(entry) = unsafe { next.as_ref() } {
            // SAFETY: every entry has a name that ends with a zero byte.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            all.push(Interface {
                name: name.to_string_lossy().into_owned(),
                is_up: entry.ifa_flags & libc::IFF_UP as u32 != 0,
                // SAFETY: null, or a valid address.
                address: unsafe { ip_at(entry.ifa_addr) },
            });
            next = entry.ifa_next;
        }
        // SAFETY: the list that getifaddrs returned, freed once.
        unsafe { libc::freeifaddrs(first) };
        Self(all)
    }

    /// The interface of an entry in libfabric's list, if that interface is down.
    pub(crate) fn below(&self, info: &Info) -> Option<&str> {
        let address = info.ip()?;
        self.named(&info.domain(), Some(address))
    }

    /// The interface that a setting names, by its name or an address, if it is down.
    pub(crate) fn wished(&self, wish: &str) -> Option<&str> {
        self.named(wish, wish.parse().ok())
    }

    /// Whether an interface of this name has this address: a network's name may differ from that of
    /// the interface over which IP reaches it.
    pub(crate) fn has(&self, name: &str, address: IpAddr) -> bool {
        let all = &mut self.0.iter();
        all.any(|one| one.name == name && one.address == Some(address))
    }

    /// Finds an interface that is down: by its name, if one has that name; otherwise by an address,
    /// unless an interface that is up has it as well.
    fn named(&self, name: &str, address: Option<IpAddr>) -> Option<&str> {
        let all = || self.0.iter();
        let named = all().find(|one| one.name == name);
        let having = all().filter(|one| one.address.is_some() && one.address == address);
        let one = named.or_else(|| having.max_by_key(|one| one.is_up));
        one.filter(|one| !one.is_up).map(|one| &*one.name)
    }
}

/// The IP address in a socket address, if it is one.
///
/// # Safety
/// `address` is null, or valid for its family.
unsafe fn ip_at(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: from the caller; every address begins with its family.
    let family = unsafe { address.as_ref() }?.sa_family;
    // SAFETY: from the caller: the family says what it is.
    unsafe {
        match i32::from(family) {
            libc::AF_INET => {
                let address = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let address = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use portolan_core::ErrorKind;

    use super::*;
    use crate::config::Config;
    use crate::start::provider::{choose, offers};
    use crate::testing::skipped;

    #[test]
    fn an_interface_is_known_by_its_name_and_by_its_addresses() {
        let interface = |name: &str, is_up, address: Option<&str>| Interface {
            name: name.to_owned(),
            is_up,
            address: address.map(|text| text.parse().expect("an address")),
        };
        let interfaces = Interfaces(vec![
            interface("va", false, None),
            interface("va", false, Some("10.1.2.3")),
            interface("vb", false, Some("fe80::1")),
            interface("wg", false, Some("10.1.2.9")),
            interface("eth", true, Some("10.1.2.9")),
        ]);
        assert_eq!(interfaces.wished("va"), Some("va"));
        assert_eq!(interfaces.wished("10.1.2.3"), Some("va"));
        assert_eq!(interfaces.wished("fe80::1"), Some("vb"));
        assert_eq!(interfaces.wished("10.1.2.4"), None);
        assert_eq!(interfaces.wished("v"), None);
        // Another interface, which is up, has it as well.
        assert_eq!(interfaces.wished("10.1.2.9"), None);
        let address = "10.1.2.9".parse().ok();
        assert_eq!(interfaces.named("eth", address), None);
        assert_eq!(interfaces.named("wg", address), Some("wg"));
    }

    /// Runs in a network namespace of its own, whose loopback interface is down; `None` if that is
    /// not allowed here.
    fn without_a_network<R: Send>(body: impl FnOnce() -> R + Send) -> Option<R> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: no memory is involved. Only this thread's network changes.
                let alone = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
                alone.then(body)
            });
            thread.join().expect("the thread")
        })
    }

    #[test]
    fn an_interface_that_is_down_is_told_with_what_to_do() {
        let what = "an interface that is down";
        let config = Config {
            provider: Some("tcp".to_owned()),
            interface: Some("lo".to_owned()),
            ..Config::default()
        };
        // The library looks for providers once, for all threads: do that where there is a network.
        let usable = offers(&config).is_ok_and(|(_, all)| all.iter().any(|o| o.unusable.is_none()));
        if !usable {
            return skipped(what, "there is no provider tcp");
        }
        assert_eq!(Interfaces::now().wished("lo"), None);
        let Some((error, listed)) =
            without_a_network(|| (choose(&config).map(drop), offers(&config)))
        else {
            return skipped(what, "no network namespace may be made here");
        };
        let error = error.expect_err("the only interface is down");
        assert_eq!(error.kind(), ErrorKind::TransportUnavailable);
        let text = error.to_string();
        for part in [
            "interface lo is down",
            "ip link set lo up",
            "PORTOLAN_OFI_INTERFACE",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let (_, listed) = listed.expect("a list");
        let over_lo =
            |offer: &&crate::Offer| offer.domain == "lo" && offer.provider.starts_with("tcp");
        for offer in listed.iter().filter(over_lo) {
            assert!(offer.unusable.is_some(), "{offer}");
        }
    }
}
