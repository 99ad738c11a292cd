//! How a backend makes its devices for the tests.

use portolan_core::Device;
use portolan_core::config::Settings;

/// A system under test.
pub trait Sut {
    /// The device, at any thread level.
    type Device: Device;
    /// The device at the thread level at which every thread may call.
    type Shared: Device + Sync;

    /// Name in test output.
    const NAME: &'static str;

    /// Why the backend has no such level, if it has none. `Shared` is not used then.
    const NO_SHARED: Option<&'static str> = None;

    /// Why the backend cannot be tested on this machine: something that it needs is not installed.
    /// Every test is skipped then, and reports this.
    fn missing() -> Option<String> {
        None
    }

    /// Runs a job whose ranks are threads of this process: makes the devices, calls `body` once on
    /// each rank, ends the devices, and returns the results by rank.
    ///
    /// When `body` panics on a rank, that rank must be declared failed
    /// ([`Device::declare_self_failed`]), so that the others do not wait for it. The panic must be
    /// resumed when all have ended.
    fn run<R: Send>(job: &Job, body: impl Fn(&Self::Device) -> R + Sync) -> Vec<R>;

    /// As [`run`](Self::run), with devices that several threads may use.
    fn run_shared<R: Send>(job: &Job, body: impl Fn(&Self::Shared) -> R + Sync) -> Vec<R>;
}

/// The job that a test needs.
#[derive(Clone, Debug)]
pub struct Job {
    /// Number of ranks.
    pub ranks: u32,
    /// Settings of every rank.
    pub settings: Settings,
}

impl Job {
    /// A job with default settings, with two exceptions. A failed rank does not end the others,
    /// which are threads of the test program. And a rank that waits for long reports what it is
    /// waiting for.
    #[must_use]
    pub fn new(ranks: u32) -> Self {
        Self {
            ranks,
            settings: Settings::default(),
        }
        .set("ON_FAILURE", "return")
        .set("STUCK_AFTER", "20")
    }

    /// Returns the job with a setting changed, by its name without the prefix.
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
