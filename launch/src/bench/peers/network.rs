//! The network under libfabric for all contenders, if Portolan uses libfabric.

use std::env;
use std::net::IpAddr;

use crate::bench::args::BenchArgs;

/// The network according to Portolan's own settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Network {
    /// The provider, in full or only one layer of a layered provider.
    pub(super) provider: String,
    /// The provider's domain; over TCP the network interface.
    pub(super) domain: Option<String>,
    /// The local address.
    pub(super) address: Option<IpAddr>,
    /// The file of the libfabric library.
    pub(super) library: Option<String>,
}

/// The network of the transport `ofi`, if that transport is measured.
pub(super) fn of(args: &BenchArgs) -> Option<Network> {
    let over = args.transport.iter().any(|transport| transport == "ofi");
    let set = |name: &str| env::var(format!("PORTOLAN_OFI_{name}")).ok();
    over.then(|| Network::set_by(set))
}

impl Network {
    fn set_by(set: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| set(name).filter(|value| !value.is_empty());
        let interface = set("INTERFACE");
        let address = interface.as_deref().and_then(|name| name.parse().ok());
        Self {
            provider: set("PROVIDER").unwrap_or_else(|| "tcp".to_owned()),
            domain: set("DOMAIN").or(interface.filter(|_| address.is_none())),
            address,
            library: set("LIBRARY"),
        }
    }

    /// The lowest layer: `tcp` of `tcp;ofi_rxm`.
    pub(super) fn lowest(&self) -> &str {
        self.provider.split(';').next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_a_domain_or_an_address() {
        let network = |interface: &str| {
            Network::set_by(|name| (name == "INTERFACE").then(|| interface.to_owned()))
        };
        let by_name = network("lo");
        assert_eq!(by_name.domain.as_deref(), Some("lo"));
        assert_eq!((by_name.address, by_name.lowest()), (None, "tcp"));
        let by_address = network("127.0.0.1");
        assert_eq!(by_address.domain, None);
        assert!(
            by_address
                .address
                .is_some_and(|address| address.is_loopback())
        );
    }
}
