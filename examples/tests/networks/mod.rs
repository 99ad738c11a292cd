//! The libfabric networks over which the examples run on this host.

use std::path::Path;

use portolan_ofi::{Config, offers};

/// The variable for a second version of the library: `cargo xtask test` sets it where there is one.
const NEWER: &str = "PORTOLAN_TEST_LIBFABRIC";

/// A provider, and the settings that select it.
pub(crate) struct Network {
    /// The name in the names of tests.
    pub(crate) name: &'static str,
    /// Names without `PORTOLAN_`, and values; the transport is among them.
    pub(crate) settings: Vec<(&'static str, String)>,
    /// The largest number of ranks of test jobs over it.
    pub(crate) most: u32,
    /// Why it is not available here.
    pub(crate) missing: Option<String>,
}

impl Network {
    fn new(name: &'static str, provider: &str, most: u32) -> Self {
        let settings = [("TRANSPORT", "ofi"), ("OFI_PROVIDER", provider)];
        let mut settings: Vec<_> = settings
            .map(|(name, value)| (name, value.to_owned()))
            .into();
        let mut config = Config {
            provider: Some(provider.to_owned()),
            ..Config::default()
        };
        if provider != "shm" {
            settings.push(("OFI_INTERFACE", "lo".to_owned()));
            config.interface = Some("lo".to_owned());
        }
        let missing = match offers(&config) {
            Ok((_, offers)) if offers.iter().any(|offer| offer.unusable.is_none()) => None,
            Ok((version, _)) => Some(format!(
                "libfabric {version} has no provider {provider} on it"
            )),
            Err(why) => Some(why),
        };
        Self {
            name,
            settings,
            most,
            missing,
        }
    }

    /// The same network over a second version of the library.
    fn newer(self, name: &'static str) -> Self {
        let library = std::env::var(NEWER).ok();
        let missing = match &library {
            Some(path) if Path::new(path).is_file() => None,
            Some(path) => Some(format!("{NEWER} names {path}, which is not there")),
            None => Some(format!("{NEWER} names no second libfabric")),
        };
        let mut settings = self.settings;
        settings.extend(library.map(|path| ("OFI_LIBRARY", path)));
        Self {
            name,
            settings,
            missing,
            ..self
        }
    }
}

/// The networks that libfabric offers on every machine, and the second version's where it exists.
/// The timers of the datagram provider are slow with more ranks than cores.
pub(crate) fn networks() -> Vec<Network> {
    vec![
        Network::new("tcp", "tcp", 8),
        Network::new("shm_of_libfabric", "shm", 8),
        Network::new("udp", "udp;ofi_rxd", 3),
        Network::new("sockets", "sockets", 8),
        Network::new("", "tcp", 8).newer("tcp_of_libfabric_2"),
        Network::new("", "shm", 8).newer("shm_of_libfabric_2"),
    ]
}
