//! What a backend says of itself: how its devices are made.

use portolan_core::Device;
use portolan_core::config::Settings;

/// A system under test.
pub trait Sut {
    /// The device, at any thread level.
    type Device: Device;
    /// The device at the level that lets every thread call.
    type Shared: Device + Sync;

    /// Name in test output.
    const NAME: &'static str;

    /// Why there is no level that lets every thread call, where there is none. `Shared` is not used
    /// then.
    const NO_SHARED: Option<&'static str> = None;

    /// Why there is nothing to test on this machine: what it stands on is not installed. Every test
    /// is skipped then, and says so.
    fn missing() -> Option<String> {
        None
    }

    /// Runs a job whose ranks are threads of this process: makes the devices, calls `body` once on
    /// each rank, ends the devices, and returns the results by rank.
    ///
    /// When `body` panics on a rank, that rank must be declared failed
    /// ([`Device::declare_self_failed`]), so that the others do not wait for it, and the panic
    /// carried on when all have ended.
    fn run<R: Send>(job: &Job, body: impl Fn(&Self::Device) -> R + Sync) -> Vec<R>;

    /// The same with devices that several threads may use.
    fn run_shared<R: Send>(job: &Job, body: impl Fn(&Self::Shared) -> R + Sync) -> Vec<R>;
}

/// The job that a test wants.
#[derive(Clone, Debug)]
pub struct Job {
    /// Number of ranks.
    pub ranks: u32,
    /// Settings of every rank.
    pub settings: Settings,
}

impl Job {
    /// A job with default settings, except that a failed rank does not end the others: in a test
    /// they are threads of the test program; and that a rank that waits for long says for what.
    #[must_use]
    pub fn new(ranks: u32) -> Self {
        Self {
            ranks,
            settings: Settings::default(),
        }
        .set("ON_FAILURE", "return")
        .set("STUCK_AFTER", "20")
    }

    /// The same with a setting changed, by its name without the prefix.
    ///
    /// # Panics
    /// If there is no such setting or it cannot have that value.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        if let Err(error) = self.settings.set(name, value) {
            panic!("a test wants {name}={value}: {error}");
        }
        self
    }
}
