//! The device interface on the emulated T3E.
//!
//! Tagged messages go through MP_Lite: its queues match them, and they are put straight into posted
//! receives or buffered at their source. Everything else that the interface asks for (active
//! messages, one-sided operations, hooks, requests of other crates) is left to the core engine,
//! whose packets travel as MP_Lite's buffered messages do. Both complete requests in the engine's
//! one table, so that all of them can be waited for together; a tagged operation is a request "of
//! another kind" there.
//!
//! The state of a rank is in `state.rs`; sending in `../send.rs`, receiving in `recv.rs`, progress
//! and packets in `../progress.rs`, the port that handlers and hooks are given in `port.rs`, and
//! the interface itself in `adi.rs`.

mod adi;
mod handles;
mod port;
mod recv;
mod state;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use portolan_core::config::Settings;
use portolan_core::device::{Attributes, Persistents, Upper};
use portolan_core::engine::{AbortHook, Engine, StuckHook};
use portolan_core::level::Single;
use portolan_core::{Device, Request, Result};

use crate::caps;
use crate::config::Config;
use crate::machine::Time;
use crate::mp_lite::{Stats, Wire, statics};
use crate::progress::{Packets, Shared, completions};
use crate::shmem::Shmem;
use handles::Handles;
pub(crate) use state::{End, Message, Number, State};

/// Describes the machine that a job of `pes` ranks needs: the one in the settings, with memory for
/// MP_Lite.
///
/// # Errors
/// The errors of [`Config::from_settings`].
pub fn config(pes: u32, settings: &Settings) -> Result<Config> {
    let config = Config::from_settings(settings)?;
    Ok(Config {
        statics: statics(pes, config.arena),
        arena: 0,
        ..config
    })
}

/// A rank on the emulated T3E.
///
/// ```
/// use portolan_core::config::Settings;
/// use portolan_core::matching::Pattern;
/// use portolan_core::{Adi, Device, ProcId, SendArgs};
/// use portolan_t3e_sim::{T3e, device, in_process};
///
/// let settings = Settings::default();
/// let mut pes = in_process(2, &device::config(2, &settings)?)?.into_iter();
/// let (zero, one) = (pes.next().unwrap(), pes.next().unwrap());
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         let device = T3e::new(zero, &settings, false).unwrap();
///         device.send_contig(&SendArgs::new(ProcId::new(1), 0, 0, 7), b"ahoy").unwrap();
///         device.end().unwrap();
///     });
///     let device = T3e::new(one, &settings, false).unwrap();
///     let mut text = [0; 4];
///     let pattern = Pattern { context: 0, source: Some(0), tag: None };
///     let status = device.recv_contig(&pattern, &mut text).unwrap();
///     assert_eq!((&text, status.tag), (b"ahoy", 7));
///     assert!(device.wtime() > 10e-6, "in virtual time, a message takes a dozen microseconds");
///     device.end().unwrap();
/// });
/// # Ok::<(), portolan_core::Error>(())
/// ```
pub struct T3e {
    /// Boxed, because a device is moved around on the small stacks of PEs.
    engine: Box<Engine<Packets, Single>>,
    shared: Shared,
    attributes: Attributes,
    persistents: Persistents,
    handles: RefCell<Handles>,
    ended: Cell<bool>,
}

/// A tagged operation in the engine's table of requests.
struct Tagged;

impl Upper for Tagged {}

impl T3e {
    /// Makes the device of a PE on a machine that [`config`] describes. `processes` says whether
    /// the ranks are processes. Makes no call of the machine.
    ///
    /// # Errors
    /// The errors of [`Engine::new`].
    pub fn new(shmem: Shmem, settings: &Settings, processes: bool) -> Result<Self> {
        let (me, size) = (shmem.my_pe(), shmem.n_pes());
        let shared = Shared::new(State::new(shmem, settings));
        let packets = Packets {
            shared: shared.clone(),
            me,
            size,
            processes,
        };
        let engine = boxed_engine(packets, &virtual_waiting(settings)?)?;
        engine.register_hook(completions(shared.clone()));
        let attributes = caps::attributes(engine.attributes(), settings);
        Ok(Self {
            engine,
            shared,
            attributes,
            persistents: Persistents::default(),
            handles: RefCell::default(),
            ended: Cell::new(false),
        })
    }

    /// Charges computation to the clock. The computation that the program really does takes no
    /// virtual time.
    pub fn charge(&self, computation: Duration) {
        let time = Time::from_secs(computation.as_secs_f64());
        self.shared.lock().wire.shmem().charge(time);
    }

    /// The clock of this PE, without a call of the machine.
    #[must_use]
    pub fn clock(&self) -> Time {
        self.shared.lock().wire.clock()
    }

    /// MP_Lite's counts, as its `.nodeX` log would show them.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.lock().lite.stats()
    }

    /// The lines of this node's `.nodeX` log.
    #[must_use]
    pub fn node_log(&self) -> String {
        let state = self.shared.lock();
        state.lite.stats().log(state.wire.me())
    }

    /// Facts for people about the machine and the way of waiting.
    pub fn facts(&self) -> Vec<(String, String)> {
        self.engine.facts()
    }

    /// Sets the function that ends the job when this rank aborts.
    pub fn on_abort(&self, hook: AbortHook) {
        self.engine.on_abort(hook);
    }

    /// Sets the function that is told of waits that last too long. On this machine there are none:
    /// the machine itself finds that all PEs wait.
    pub fn on_stuck(&self, hook: StuckHook) {
        self.engine.on_stuck(hook);
    }

    pub(crate) fn engine(&self) -> &Engine<Packets, Single> {
        &self.engine
    }

    /// Makes a request for a tagged operation, which `start` starts.
    fn tagged(&self, start: impl FnOnce(&mut State, Request)) -> Result<Request> {
        let request = self.engine.upper_request(Box::new(Tagged))?;
        start(&mut self.shared.lock(), request);
        self.flush();
        Ok(request)
    }

    /// Completes requests whose operations are over. (Operations that a failure has ended wait for
    /// the next progress, which knows the reason.)
    fn flush(&self) {
        loop {
            let next = {
                let mut state = self.shared.lock();
                match state.ends.front() {
                    Some(&(request, End::Over(status))) => {
                        state.ends.pop_front();
                        (request, status)
                    }
                    _ => return,
                }
            };
            let outcome = self.engine.complete_upper(next.0, next.1);
            debug_assert!(outcome.is_ok(), "{outcome:?}");
        }
    }

    /// Notes that the program polls: virtual time has to pass, and other PEs may run.
    fn polled(&self) {
        self.shared.lock().polled = true;
    }
}

/// Makes the engine, in a stack frame of its own.
#[inline(never)]
fn boxed_engine(packets: Packets, settings: &Settings) -> Result<Box<Engine<Packets, Single>>> {
    Ok(Box::new(Engine::new(packets, settings)?))
}

/// The given settings, except for waiting: a wait sleeps at once, in virtual time, and the machine
/// notices a wait that never ends.
fn virtual_waiting(settings: &Settings) -> Result<Settings> {
    let mut settings = settings.clone();
    for (name, value) in [("WAIT", "park"), ("SPIN", "0"), ("STUCK_AFTER", "0")] {
        settings.set(name, value).map_err(|error| {
            portolan_core::Error::new(portolan_core::ErrorKind::InvalidSetting, error.to_string())
        })?;
    }
    Ok(settings)
}

impl std::fmt::Debug for T3e {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("T3e")
            .field("rank", &self.attributes.world_rank)
            .field("size", &self.attributes.world_size)
            .finish_non_exhaustive()
    }
}
