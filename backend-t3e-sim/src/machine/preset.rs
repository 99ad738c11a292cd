//! The known machines. Each number has its source, or the word "fitted".
//!
//! Sources, by the short names used below:
//! - *MP_Lite*: "MP_Lite Performance on the Cray T3E", Ames Laboratory: SHMEM reaches 340 MB/s and
//!   a latency of 2 to 3 µs.
//! - *CSC*: "Cray T3E User's Guide", CSC: p. 21, the local memory bus is limited to 600 MB/s; p.
//!   26, 512 E-registers for users; p. 62, starting a SHMEM transfer takes about 1 µs.
//! - *Overview*: netlib's "Overview of recent supercomputers": point to point 300 MB/s on the T3E
//!   and T3E-900; links of 480 MB/s payload in each direction.
//! - *Lecture*: Mississippi State EE 8063: local access takes 13 to 38 clocks, remote access 150
//!   to 300.
//! - *ARSC*: "Performance of the Cray T3E-1200E": the system logic runs at 75 MHz on every model.
//!
//! "Fitted" numbers are chosen so that the sums meet the figures of *MP_Lite* on the T3E-900. On
//! the other models, work of the processor is scaled with its clock, and work of the system logic
//! is not.

use portolan_core::{Error, ErrorKind, Result};

use super::costs::Costs;
use super::time::Time;

/// A model of the T3E.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// The T3E, later called T3E-600: 300 MHz.
    T3e600,
    /// The T3E-900: 450 MHz. The figures are checked on this model.
    #[default]
    T3e900,
    /// The T3E-1200: 600 MHz.
    T3e1200,
}

impl Preset {
    /// All models.
    pub const ALL: [Self; 3] = [Self::T3e600, Self::T3e900, Self::T3e1200];

    /// The name of the model in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::T3e600 => "t3e-600",
            Self::T3e900 => "t3e-900",
            Self::T3e1200 => "t3e-1200",
        }
    }

    /// The model of that name.
    ///
    /// # Errors
    /// [`InvalidSetting`](ErrorKind::InvalidSetting) with the known names, if there is no such
    /// model.
    ///
    /// ```
    /// use portolan_t3e_sim::Preset;
    ///
    /// assert_eq!(Preset::named("t3e-900").unwrap(), Preset::T3e900);
    /// assert!(Preset::named("t3f").is_err());
    /// ```
    pub fn named(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|preset| preset.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::new(
                ErrorKind::InvalidSetting,
                format!("there is no machine `{name}`"),
            )
            .remedy(format!("set PORTOLAN_T3E_PRESET to one of {names}"))
            .on_device("t3e-sim")
        })
    }

    /// Clock of the processor in MHz (*ARSC*).
    #[must_use]
    pub const fn megahertz(self) -> u32 {
        match self {
            Self::T3e600 => 300,
            Self::T3e900 => 450,
            Self::T3e1200 => 600,
        }
    }

    /// The costs of the model's steps.
    #[must_use]
    pub fn costs(self) -> Costs {
        let clocks = |n: f64| Time::from_us(n / f64::from(self.megahertz()));
        let register_rate = match self {
            Self::T3e600 => 300.0,  // Overview
            Self::T3e900 => 340.0,  // MP_Lite; Overview has 300
            Self::T3e1200 => 340.0, // fitted: the same system logic as the T3E-900
        };
        Costs {
            name: self.name().to_owned(),
            start: clocks(450.0), // CSC: 1 µs, at 450 MHz
            register_rate,
            strided_rate: register_rate / 2.0, // fitted: a packet for each word
            registers: 512,                    // CSC
            inject: Time::from_ns(300),        // fitted, inside of Lecture's 150 to 300 clocks
            hop: Time::from_ns(40),            // fitted: three clocks of 75 MHz (ARSC)
            link_rate: 480.0,                  // Overview
            eject: Time::from_ns(300),         // fitted, as `inject`
            access: clocks(38.0),              // Lecture
            copy_rate: 300.0,                  // CSC: 600 MB/s, shared by reading and writing
            poll: clocks(387.0),               // fitted: rounds the latency off to MP_Lite's 2.5 µs
            atomic: Time::from_ns(160),        // fitted: twelve clocks of 75 MHz (ARSC)
            barrier: Time::from_ns(1000),      // fitted
            partial_word: clocks(90.0),        // fitted
            clock: clocks(45.0),               // fitted
            emulation: Time::from_ns(1),       // no such thing on the machine
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_access_takes_what_the_lecture_says() {
        for preset in Preset::ALL {
            let clocks = preset.costs().way(1).as_us() * f64::from(preset.megahertz());
            assert!(
                (150.0..400.0).contains(&clocks),
                "{}: {clocks}",
                preset.name()
            );
        }
    }

    #[test]
    fn a_word_takes_two_and_a_half_microseconds() {
        let costs = Preset::T3e900.costs();
        let all = costs.start + costs.registers_take(8, false) + costs.way(1) + costs.poll;
        assert!((all.as_us() - 2.52).abs() < 0.01, "{all}");
    }
}
