//! One device out of those that are compiled in: an enum, and one match per call.
//!
//! With one feature the match folds away.

use std::convert::Infallible;
use std::marker::PhantomData;

use portolan_core::device::{Device, delegate_device};
#[cfg(any(feature = "memory", feature = "ofi", feature = "shm"))]
use portolan_core::engine::Engine;
use portolan_core::engine::StuckHook;
use portolan_core::level::{Level, Single};

/// The device of a rank: one of those that the features of this crate compile in.
///
/// Choosing is [`Builder`](crate::Builder)'s; what the device can do, its
/// [`attributes`](Device::attributes) say.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyDevice<L: Level = Single> {
    /// The engine over node-local shared memory (feature `shm`).
    #[cfg(feature = "shm")]
    Shm(Engine<portolan_shm::Shm, L>),
    /// The engine over libfabric (feature `ofi`).
    #[cfg(feature = "ofi")]
    Ofi(Engine<portolan_ofi::Ofi, L>),
    /// Libfabric, whose provider matches messages with receives (feature `ofi`,
    /// `PORTOLAN_MATCH=native`).
    #[cfg(feature = "ofi")]
    OfiNative(portolan_ofi::Native<L>),
    /// The engine over the reference transport, which joins threads of one process (feature
    /// `memory`, for tests).
    #[cfg(feature = "memory")]
    Memory(Engine<portolan_core::transport::memory::Memory, L>),
    /// MP_Lite on an emulated Cray T3E, in virtual time (feature `t3e-sim`). At level `Single`
    /// only.
    #[cfg(feature = "t3e-sim")]
    T3e(crate::one_thread::OneThread<portolan_t3e_sim::T3e, L>),
    /// Keeps the enum an enum when nothing is compiled in. Cannot be made.
    #[doc(hidden)]
    Never(Infallible, PhantomData<fn() -> L>),
}

macro_rules! each_variant {
    ($self:ident, $device:ident => $call:expr) => {
        match $self {
            #[cfg(feature = "shm")]
            Self::Shm($device) => $call,
            #[cfg(feature = "ofi")]
            Self::Ofi($device) => $call,
            #[cfg(feature = "ofi")]
            Self::OfiNative($device) => $call,
            #[cfg(feature = "memory")]
            Self::Memory($device) => $call,
            #[cfg(feature = "t3e-sim")]
            Self::T3e($device) => $call,
            Self::Never(never, _) => match *never {},
        }
    };
}

impl<L: Level> AnyDevice<L> {
    /// Says who hears of waits that last too long.
    #[cfg_attr(
        not(any(
            feature = "memory",
            feature = "ofi",
            feature = "shm",
            feature = "t3e-sim"
        )),
        allow(unused_variables, reason = "there is no device to tell")
    )]
    pub(crate) fn on_stuck(&self, hook: StuckHook) {
        each_variant!(self, device => device.on_stuck(hook));
    }
}

#[cfg_attr(
    not(any(
        feature = "memory",
        feature = "ofi",
        feature = "shm",
        feature = "t3e-sim"
    )),
    allow(
        unused_variables,
        reason = "there is no device to hand the arguments to"
    )
)]
// SAFETY: every call goes to a device that keeps the contract.
unsafe impl<L: Level> Device for AnyDevice<L> {
    delegate_device! { each_variant: everything }
}
