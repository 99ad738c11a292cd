//! Settings of the emulator, taken from the job's settings table and completed.

use std::time::Duration;

use portolan_core::Result;
use portolan_core::config::Settings;

use crate::machine::{Costs, Machine, Preset, Setup, Torus};

/// The description of an emulated machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The costs of the machine's steps.
    pub costs: Costs,
    /// Sides of the torus, such as `8x8x4`; `None` for a torus that fits the job.
    pub torus: Option<String>,
    /// The seed by which the machine reorders what it may reorder, and chooses channels; `None`
    /// keeps everything in order.
    pub seed: Option<u64>,
    /// Faults, as [`Setup::faults`] reads them.
    pub faults: String,
    /// Bytes of static data of each PE; the layer above SHMEM says how many it needs.
    pub statics: usize,
    /// Bytes of symmetric heap of each PE.
    pub heap: usize,
    /// Bytes that each PE can allocate for itself.
    pub arena: usize,
    /// How long, in the host's time, a PE's program may make no call; `None` for no limit.
    pub watchdog: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            costs: Preset::default().costs(),
            torus: None,
            seed: None,
            faults: String::new(),
            statics: 0,
            heap: 16 << 20,
            arena: 1 << 30,
            watchdog: Some(Duration::from_secs(60)),
        }
    }
}

impl Config {
    /// Reads the configuration of the emulator from the job's settings.
    ///
    /// # Errors
    /// [`InvalidSetting`](portolan_core::ErrorKind::InvalidSetting) if there is no such machine.
    pub fn from_settings(settings: &Settings) -> Result<Self> {
        let seed = settings.t3e_seed();
        let watchdog = settings.t3e_watchdog();
        Ok(Self {
            costs: Preset::named(settings.t3e_preset().unwrap_or_default())?.costs(),
            torus: settings.t3e_torus().map(str::to_owned),
            seed: (seed != 0).then_some(seed),
            faults: settings.t3e_faults().unwrap_or_default().to_owned(),
            statics: 0,
            heap: settings.t3e_heap(),
            arena: settings.t3e_arena(),
            watchdog: (!watchdog.is_zero()).then_some(watchdog),
        })
    }

    /// Builds the machine for a job of `pes` PEs.
    ///
    /// # Errors
    /// [`InvalidArgument`](portolan_core::ErrorKind::InvalidArgument) if no torus fits so many PEs,
    /// [`InvalidSetting`](portolan_core::ErrorKind::InvalidSetting) if the given torus does not fit
    /// them, or a fault cannot be read.
    pub fn machine(&self, pes: u32) -> Result<Machine> {
        let torus = match &self.torus {
            Some(sides) => Torus::parse(sides, pes)?,
            None => Torus::fitting(pes)?,
        };
        let mut setup = Setup::on(pes, torus)
            .costs(self.costs.clone())
            .statics(self.statics)
            .heap(self.heap)
            .arena(self.arena)
            .faults(&self.faults)?;
        if let Some(seed) = self.seed {
            setup = setup.seed(seed);
        }
        Ok(Machine::new(setup))
    }
}

#[cfg(test)]
mod tests {
    use portolan_core::ErrorKind;

    use super::*;

    #[test]
    fn the_tables_defaults_are_ours() {
        let config = Config::from_settings(&Settings::default()).unwrap();
        assert_eq!(config, Config::default());
    }

    #[test]
    fn settings_that_cannot_be_used_are_refused() {
        let mut settings = Settings::default();
        settings.set("T3E_PRESET", "t3d").unwrap();
        let error = Config::from_settings(&settings).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSetting);
        let tries = |torus: Option<&str>, faults: &str| {
            let config = Config {
                torus: torus.map(str::to_owned),
                faults: faults.to_owned(),
                ..Config::default()
            };
            config.machine(3).unwrap_err().kind()
        };
        assert_eq!(tries(Some("1x2x1"), ""), ErrorKind::InvalidSetting);
        assert_eq!(tries(None, "pe:3:2"), ErrorKind::InvalidSetting);
        assert_eq!(tries(None, "pe:2:0.5"), ErrorKind::InvalidSetting);
    }
}
