//! One of the devices that are compiled in: an enum, and one match per call.
//!
//! With a single feature the match folds away.

use std::any::Any;
use std::convert::Infallible;
use std::marker::PhantomData;

use portolan_core::device::{Device, delegate_device};
#[cfg(any(feature = "memory", feature = "ofi", feature = "shm"))]
use portolan_core::engine::Engine;
use portolan_core::engine::StuckHook;
use portolan_core::level::{Level, Multiple, Single};

/// The device of a rank: one of those that the features of this crate compile in.
///
/// [`Builder`](crate::Builder) chooses it; its [`attributes`](Device::attributes) say what it can
/// do.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyDevice<L: Level = Single> {
    /// The engine over node-local shared memory (feature `shm`).
    #[cfg(feature = "shm")]
    Shm(Engine<portolan_shm::Shm, L>),
    /// The engine over libfabric (feature `ofi`).
    #[cfg(feature = "ofi")]
    Ofi(Engine<portolan_ofi::Ofi, L>),
    /// libfabric with a provider that matches messages with receives itself (feature `ofi`,
    /// `PORTOLAN_MATCH=native`).
    #[cfg(feature = "ofi")]
    OfiNative(portolan_ofi::Native<L>),
    /// The engine over the reference transport, which connects threads of one process (feature
    /// `memory`, for tests).
    #[cfg(feature = "memory")]
    InMemory(Engine<portolan_core::transport::memory::InMemory, L>),
    /// MP_Lite on an emulated Cray T3E, in virtual time (feature `t3e-sim`). At level `Single`
    /// only.
    #[cfg(feature = "t3e-sim")]
    T3e(crate::one_thread::OneThread<portolan_t3e_sim::T3e, L>),
    /// Keeps this an enum when no device is compiled in. It cannot be constructed.
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
            Self::InMemory($device) => $call,
            #[cfg(feature = "t3e-sim")]
            Self::T3e($device) => $call,
            Self::Never(never, _) => match *never {},
        }
    };
}

impl<L: Level> AnyDevice<L> {
    /// This device, if several threads may use it at once.
    pub(crate) fn for_threads(&self) -> Option<&AnyDevice<Multiple>> {
        (self as &dyn Any).downcast_ref()
    }

    /// Sets the hook that is called when a wait lasts too long.
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
// SAFETY: every call is passed on to a device that keeps the contract.
unsafe impl<L: Level> Device for AnyDevice<L> {
    delegate_device! { each_variant: everything }
}
