//! Settings of this transport, taken from the job's settings table.

use std::path::PathBuf;
use std::time::Duration;

use portolan_core::config::{MatchMode, Origin, Settings, Switch};

/// What is wanted of libfabric, and the transport's sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The library; `None` means the one that the dynamic linker finds.
    pub library: Option<PathBuf>,
    /// The provider, by its full name (`tcp;ofi_rxm`) or by a part of a layered one (`tcp`); `None`
    /// means the best.
    pub provider: Option<String>,
    /// The domain, such as `mlx5_0`; `None` means the best.
    pub domain: Option<String>,
    /// The network interface by its name or address; `None` means the best.
    pub interface: Option<String>,
    /// How often ranks on different nodes check that the others are alive; zero means never.
    pub heartbeat: Duration,
    /// Whether the provider is asked to support accelerator memory (`FI_HMEM`).
    pub hmem: Switch,
    /// Whether the engine or the provider matches messages with receives.
    pub matching: MatchMode,
    /// Largest message, in bytes, that is sent eagerly; a packet's capacity over the provider
    /// limits it.
    pub eager: usize,
    /// The value of [`RXM_AT_ONCE`](Config::RXM_AT_ONCE), which `ofi_rxm` reads as well. It is the
    /// same on all ranks.
    pub at_once: Option<String>,
    /// Large packets that may be under way from one rank to one peer, if there are none to others;
    /// four times as many small ones. A quarter more is kept for the other peers. Over `ofi_rxd`
    /// there are at most 8, and 8 more.
    pub slots: usize,
    /// Bytes of one receive buffer, in any case enough for the longest packet; at most 64 KiB over
    /// libfabric's shared memory. There are [`Config::RECEIVES`] of them; where each takes one
    /// message only, as many small ones as have their size, and over `ofi_rxd` at most 64.
    pub receive: usize,
}

impl Config {
    /// Receive buffers per rank, whatever the number of peers.
    pub const RECEIVES: usize = 4;

    /// The variable that tells `ofi_rxm`, libfabric's layer over TCP, the size up to which it sends
    /// at once. `portolan run` sets it, because a process that has threads must not change its
    /// environment (ADR 32 says why).
    ///
    /// What follows from its value, everywhere:
    ///
    /// - *Packets* are as long as what is sent at once: 64 KiB if that has room for a packet and
    ///   its header, else 16 KiB (`caps::limits`).
    /// - *Peers* have to have the same value, because `ofi_rxm` connects to no other. It is part of
    ///   what ranks compare before they communicate (`caps::told_of_rxm`, `Link::protocol`,
    ///   `start::verdict`).
    /// - *Order*: below its default, `ofi_rxm` announces packets, and these may overtake each
    ///   other. A missing packet is then no sign of a loss (`caps::keeps_order`, `packets::gap`).
    /// - *Matching by the provider*: the memory behind each receive for the excess of a message
    ///   that is too long has room for all that is sent at once (`caps::sink`, `native::receives`),
    ///   and the trial of the provider sends such a message (`native::able`). Longer messages to a
    ///   rank that has left fail (`caps::at_once`, `native::sends`).
    /// - *Launchers* set it for all ranks of a job (`portolan::rank_variables`).
    pub const RXM_AT_ONCE: &str = "FI_OFI_RXM_EAGER_LIMIT";

    /// The value to which a launcher sets it for every rank, unless it is set already.
    pub const RXM_AT_ONCE_OF_RANKS: &str = "131072";
}

impl Default for Config {
    fn default() -> Self {
        Self {
            library: None,
            provider: None,
            domain: None,
            interface: None,
            heartbeat: Duration::from_secs(5),
            hmem: Switch::Auto,
            matching: MatchMode::Auto,
            eager: usize::MAX,
            at_once: None,
            slots: 64,
            receive: 512 << 10,
        }
    }
}

impl Config {
    /// The values from the job's settings.
    #[must_use]
    pub fn from_settings(settings: &Settings) -> Self {
        Self {
            library: settings.ofi_library().map(PathBuf::from),
            provider: settings.ofi_provider().map(str::to_owned),
            domain: settings.ofi_domain().map(str::to_owned),
            interface: settings.ofi_interface().map(str::to_owned),
            heartbeat: settings.ofi_heartbeat(),
            hmem: settings.ofi_hmem(),
            matching: settings.matching(),
            eager: match settings.origin("EAGER_MAX") {
                Some(Origin::Default) => usize::MAX,
                _ => settings.eager_max(),
            },
            at_once: std::env::var(Self::RXM_AT_ONCE).ok(),
            ..Self::default()
        }
    }

    /// Whether the provider is to match.
    pub(crate) fn native(&self) -> bool {
        self.matching == MatchMode::Native
    }

    /// The wishes in words, for error messages; empty if there are none.
    pub(crate) fn wishes(&self) -> String {
        let wish = |name: &str, value: &Option<String>| {
            let value = value.as_ref()?;
            Some(format!("PORTOLAN_OFI_{name}={value}"))
        };
        let all = [
            wish("PROVIDER", &self.provider),
            wish("DOMAIN", &self.domain),
            wish("INTERFACE", &self.interface),
        ];
        let memory = (self.hmem == Switch::On).then(|| "PORTOLAN_OFI_HMEM=on".to_owned());
        let all = all.into_iter().chain([memory]);
        all.flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most programs set nothing: the table of settings and this file have to agree.
    #[test]
    fn where_nothing_is_set_the_defaults_hold() {
        let unset = Config {
            at_once: None,
            ..Config::from_settings(&Settings::default())
        };
        assert_eq!(unset, Config::default());
        assert_eq!(
            unset.heartbeat,
            Duration::from_secs(5),
            "as docs/ofi.md says"
        );
    }

    #[test]
    fn wishes_are_named_as_they_are_set() {
        assert_eq!(Config::default().wishes(), "");
        let mut settings = Settings::default();
        settings.set("OFI_PROVIDER", "tcp").unwrap();
        settings.set("OFI_INTERFACE", "lo").unwrap();
        let config = Config::from_settings(&settings);
        assert_eq!(
            config.wishes(),
            "PORTOLAN_OFI_PROVIDER=tcp, PORTOLAN_OFI_INTERFACE=lo"
        );
        let config = Config {
            hmem: Switch::On,
            ..Config::default()
        };
        assert_eq!(config.wishes(), "PORTOLAN_OFI_HMEM=on");
    }
}
