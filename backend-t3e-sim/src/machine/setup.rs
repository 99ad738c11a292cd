//! The parameters from which a machine is built.

use portolan_core::{Error, ErrorKind, Result};

use super::costs::Costs;
use super::preset::Preset;
use super::time::Time;
use super::torus::{Direction, Torus};

/// The plan of a machine.
#[derive(Clone, Debug)]
pub struct Setup {
    pub(super) pes: u32,
    pub(super) torus: Torus,
    pub(super) costs: Costs,
    pub(super) heap: usize,
    pub(super) statics: usize,
    pub(super) arena: usize,
    pub(super) seed: Option<u64>,
    pub(super) delay: Time,
    pub(super) slow_pes: Vec<(u32, f64)>,
    pub(super) slow_links: Vec<(u32, Direction, f64)>,
}

impl Setup {
    /// A T3E-900 without faults, of `pes` PEs on the torus that fits them, with 16 MiB of heap
    /// each, whose packets keep their order.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if no torus fits.
    pub fn new(pes: u32) -> Result<Self> {
        Ok(Self::on(pes, Torus::fitting(pes)?))
    }

    /// The same on a given torus with at least as many nodes; nodes may stay empty.
    ///
    /// # Panics
    /// If the torus has fewer nodes.
    #[must_use]
    pub fn on(pes: u32, torus: Torus) -> Self {
        assert!(pes > 0 && pes <= torus.nodes(), "{pes} PEs on {torus}");
        Self {
            pes,
            torus,
            costs: Preset::default().costs(),
            heap: 16 << 20,
            statics: 0,
            arena: 1 << 30,
            seed: None,
            delay: Time::from_ns(2000),
            slow_pes: Vec::new(),
            slow_links: Vec::new(),
        }
    }

    /// Sets the costs of the machine's steps.
    #[must_use]
    pub fn costs(mut self, costs: Costs) -> Self {
        self.costs = costs;
        self
    }

    /// Sets the bytes of symmetric heap of each PE.
    #[must_use]
    pub fn heap(mut self, bytes: usize) -> Self {
        self.heap = bytes;
        self
    }

    /// Sets the bytes of static data of each PE. They are symmetric and zeroed, and lie from
    /// address 0 on, before the heap.
    #[must_use]
    pub fn statics(mut self, bytes: usize) -> Self {
        self.statics = bytes;
        self
    }

    /// Sets the bytes that each PE can allocate for itself.
    #[must_use]
    pub fn arena(mut self, bytes: usize) -> Self {
        self.arena = bytes;
        self
    }

    /// Lets packets choose their channels, and lets words that no fence orders arrive in any order;
    /// the seed decides both.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Makes a processor slower: computation that is charged to it takes longer by a factor.
    ///
    /// # Errors
    /// [`InvalidSetting`](ErrorKind::InvalidSetting) if there is no such PE, or the factor is below
    /// 1 or above a million.
    pub fn slow_pe(mut self, pe: u32, factor: f64) -> Result<Self> {
        check_factor(factor)?;
        if pe >= self.pes {
            return Err(bad(format!("there is no PE {pe} among {}", self.pes)));
        }
        self.slow_pes.push((pe, factor));
        Ok(self)
    }

    /// Makes a link slower: each byte takes longer by a factor.
    ///
    /// # Errors
    /// [`InvalidSetting`](ErrorKind::InvalidSetting) if there is no such node, or the factor is
    /// below 1 or above a million.
    pub fn slow_link(mut self, node: u32, direction: Direction, factor: f64) -> Result<Self> {
        check_factor(factor)?;
        if node >= self.torus.nodes() {
            return Err(bad(format!("there is no node {node} on {}", self.torus)));
        }
        self.slow_links.push((node, direction, factor));
        Ok(self)
    }

    /// Adds faults, as settings give them: `pe:3:2.5` or `link:0:+x:10`, separated by commas.
    ///
    /// # Errors
    /// [`InvalidSetting`](ErrorKind::InvalidSetting) with the part that cannot be read, or as
    /// [`slow_pe`](Self::slow_pe) and [`slow_link`](Self::slow_link).
    ///
    /// ```
    /// use portolan_t3e_sim::machine::Setup;
    ///
    /// assert!(Setup::new(4)?.faults("pe:3:2.5,link:0:+x:10").is_ok());
    /// assert!(Setup::new(4)?.faults("pe:4:2").is_err());
    /// assert!(Setup::new(4)?.faults("disk:1").is_err());
    /// # Ok::<(), portolan_core::Error>(())
    /// ```
    pub fn faults(mut self, text: &str) -> Result<Self> {
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let fields: Vec<_> = part.split(':').collect();
            let unread = || bad(format!("`{part}` is no fault"));
            let number = |text: &str| text.parse::<u32>().map_err(|_| unread());
            let factor = |text: &str| text.parse::<f64>().map_err(|_| unread());
            self = match fields[..] {
                ["pe", pe, by] => self.slow_pe(number(pe)?, factor(by)?)?,
                ["link", node, direction, by] => {
                    let direction = Direction::parse(direction).ok_or_else(unread)?;
                    self.slow_link(number(node)?, direction, factor(by)?)?
                }
                _ => return Err(unread()),
            };
        }
        Ok(self)
    }
}

fn check_factor(factor: f64) -> Result<()> {
    if (1.0..=1e6).contains(&factor) {
        return Ok(());
    }
    Err(bad(format!("a factor of {factor} slows nothing down")))
}

fn bad(what: String) -> Error {
    Error::new(ErrorKind::InvalidSetting, what)
        .remedy("give faults such as pe:3:2.5 or link:0:+x:10, with factors from 1")
        .on_device("t3e-sim")
}
