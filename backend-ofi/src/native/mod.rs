//! Matching by the provider: a device whose tagged messages libfabric's provider matches with
//! receives.
//!
//! The context, source and tag of a message are packed into the provider's tag; its type signature
//! and representation travel as the data word of its completion. Small messages are injected; the
//! others are sent by whatever protocol the provider has. Probes look into the provider's queue of
//! messages that have matched nothing. Everything else that the device interface offers (active
//! messages, one-sided operations, hooks, requests of other crates) is the core engine's, over the
//! same endpoint. Tagged operations and the engine's own complete requests in the engine's one
//! table, so that a program can wait for them together; there, a tagged operation is a request "of
//! another kind". `docs/ofi.md` says when this device is used, and
//! `docs/adr/0015-providers-match-in-a-device-of-their-own.md` why it is not an offload under the
//! engine.
//!
//! The provider is lent none of the program's memory:
//! `docs/adr/0017-providers-that-match-are-lent-nothing.md`.
//!
//! The tags are in `bits.rs`, the operations under way in `slots.rs` and `tags.rs`, their memory in
//! `buffers.rs`, sending in `sends.rs`, receiving in `receives.rs`, probing in `looks.rs` and
//! `probes.rs`, deaths in `deaths.rs` with `inquiries.rs` and `contexts.rs`, departures in
//! `leavers.rs`, the engine's transport and the completions in `packets.rs`, the port for handlers
//! and hooks in `port.rs`, the checks of what a provider can do in `able.rs`, and the interface
//! itself in `adi.rs`.

mod able;
mod adi;
mod bits;
mod buffers;
mod contexts;
mod deaths;
mod inquiries;
mod leavers;
mod looks;
mod matched;
mod packets;
mod port;
mod probes;
mod receives;
mod sends;
mod slots;
mod tags;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use portolan_core::config::Settings;
use portolan_core::device::{ActiveMessage, Attributes, Caps, Persistents, Port, Upper};
use portolan_core::engine::{AbortHook, Engine, StuckHook};
use portolan_core::level::Level;
use portolan_core::{Device, Error, ErrorKind, Result};

use crate::ofi::Ofi;
pub use able::matching;
pub(crate) use able::{attempt, examine};
use buffers::zeros;
use inquiries::{ANSWERED, ASKED, Note};
use leavers::{LAST, Matching};
pub(crate) use matched::Matched;
use packets::{MATCHED, Packets, Shared, Wish, completions};
use tags::Tags;

/// A rank whose tagged messages libfabric's provider matches.
///
/// ```
/// use portolan_core::config::Settings;
/// use portolan_core::level::Single;
/// use portolan_core::matching::Pattern;
/// use portolan_core::{Adi, Device, ProcId, SendArgs};
/// use portolan_ofi::Native;
///
/// let mut settings = Settings::default();
/// settings.set("MATCH", "native")?;
/// let Ok(ranks) = portolan_ofi::in_process(2, &settings) else {
///     return Ok(()); // There is no libfabric here, or no provider that can match.
/// };
/// let mut ranks = ranks.into_iter();
/// let (zero, one) = (ranks.next().unwrap(), ranks.next().unwrap());
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         let device = Native::<Single>::new(zero, &settings).unwrap();
///         device.send_contig(&SendArgs::new(ProcId::new(1), 0, 0, 7), b"ahoy").unwrap();
///         device.end().unwrap();
///     });
///     let device = Native::<Single>::new(one, &settings).unwrap();
///     let mut text = [0; 4];
///     let pattern = Pattern { context: 0, source: Some(0), tag: None };
///     let status = device.recv_contig(&pattern, &mut text).unwrap();
///     assert_eq!((&text, status.tag), (b"ahoy", 7));
///     device.end().unwrap();
/// });
/// # Ok::<(), portolan_core::config::SettingError>(())
/// ```
pub struct Native<L: Level> {
    /// Boxed, because a device is moved around.
    engine: Box<Engine<Packets, L>>,
    shared: Arc<Shared>,
    attributes: Attributes,
    persistents: Persistents,
    /// Small messages sent since the last poll.
    unpolled: std::sync::atomic::AtomicU32,
    ended: AtomicBool,
}

/// A tagged operation in the engine's table of requests.
struct Tagged;

impl Upper for Tagged {}

/// Receives kept in reserve for messages that probes have taken.
const SPARE: usize = 16;

impl<L: Level> Native<L> {
    /// The device of a rank whose endpoint was opened with `PORTOLAN_MATCH=native`.
    ///
    /// # Errors
    /// [`TransportUnavailable`](ErrorKind::TransportUnavailable) if the endpoint was opened
    /// otherwise, and those of [`Engine::new`].
    pub fn new(ofi: Ofi, settings: &Settings) -> Result<Self> {
        let rank = ofi.rank;
        let info = &ofi.link.domain.info;
        let bits = bits::Bits::new(info.ep_attr().mem_tag_format, ofi.size);
        let Some(bits) = bits.filter(|_| ofi.matches()) else {
            let what = "this endpoint was opened for matching by software";
            return Err(Error::new(ErrorKind::TransportUnavailable, what)
                .remedy("set PORTOLAN_MATCH=native before the job is opened")
                .on_rank(rank));
        };
        let most_posted = info.rx_attr().size.saturating_sub(SPARE).max(1);
        let inject = ofi.inject;
        let provider = info.provider();
        let sink = zeros(ofi.link.sink).map_err(|none| Error::from(none).on_rank(rank))?;
        let tags = Tags::new(bits, settings.check_signature(), most_posted, sink);
        let shared = Shared::new(ofi, tags);
        let engine = Engine::new(Packets(Arc::clone(&shared)), settings)?;
        engine.register_hook(completions(Arc::clone(&shared)));
        for handler in [MATCHED, ASKED, ANSWERED] {
            let told = Arc::clone(&shared);
            let hear = move |_: &mut dyn Port, message: ActiveMessage<'_>| {
                told.ask(Wish::Hear(Note::heard(handler, &message)));
            };
            engine.register_handler(handler, Box::new(hear))?;
        }
        engine.register_handler(LAST, Box::new(|_, _| {}))?;
        engine.set_beside(Box::new(Matching(Arc::clone(&shared))));
        let mut caps = engine.attributes().caps;
        caps.remove(Caps::CANCEL_LOCAL | Caps::CANCEL_SEND | Caps::PULL | Caps::DRIVEN);
        caps.insert(Caps::NATIVE_MATCHING);
        let version = env!("CARGO_PKG_VERSION");
        let attributes = Attributes {
            version: format!("Portolan {version}, transport ofi, matching by {provider}"),
            tag_ub: bits.tag_ub(),
            max_context_id: bits.max_context_id(),
            eager_max: inject.min(settings.eager_max()),
            caps,
            ..engine.attributes().clone()
        };
        Ok(Self {
            engine: Box::new(engine),
            shared,
            attributes,
            persistents: Persistents::default(),
            unpolled: std::sync::atomic::AtomicU32::new(0),
            ended: AtomicBool::new(false),
        })
    }

    /// Facts about the provider and the way of waiting, for users.
    pub fn facts(&self) -> Vec<(String, String)> {
        self.engine.facts()
    }

    /// Sets the hook that ends the job when this rank aborts.
    pub fn on_abort(&self, hook: AbortHook) {
        self.engine.on_abort(hook);
    }

    /// Sets the hook that is told of waits that last too long.
    pub fn on_stuck(&self, hook: StuckHook) {
        self.engine.on_stuck(hook);
    }
}

impl<L: Level> std::fmt::Debug for Native<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Native")
            .field("rank", &self.attributes.world_rank)
            .field("size", &self.attributes.world_size)
            .finish_non_exhaustive()
    }
}
