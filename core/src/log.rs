//! Messages for people: through `tracing`, or to standard error if the program has no subscriber.
//!
//! Every message of Portolan is a `tracing` event, made by [`log!`](crate::log!). If the program
//! has installed a subscriber of its own, messages go to that subscriber and nowhere else.
//! Otherwise they go to standard error, filtered by the setting `PORTOLAN_LOG`, once [`to_stderr`]
//! has been called. Portolan does this without installing a global subscriber, so the program can
//! still install one at any time.
//!
//! Like `tracing`, this state belongs to the process: it is the one thing here that several worlds
//! in a process share. The most verbose of their settings applies to all of them.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

#[doc(hidden)]
pub use tracing;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{NoSubscriber, Subscriber};
use tracing::{Dispatch, Event, Level, Metadata, dispatcher};

use crate::config::LogLevel;

/// Logs a message for people, with the fields of [`tracing::event!`]:
/// `log!(WARN, rank, peer, "what has happened")`.
///
/// If no subscriber is interested in this level, it costs a load and a comparison.
#[macro_export]
macro_rules! log {
    ($level:ident, $($event:tt)+) => {
        if $crate::log::is_on($crate::log::tracing::Level::$level) {
            $crate::log::say(&|| {
                $crate::log::tracing::event!($crate::log::tracing::Level::$level, $($event)+)
            });
        }
    };
}

/// Prefix of the targets of Portolan's own events: `portolan` itself, `portolan_core` and the like.
const OURS: &str = "portolan";

/// The subscriber that writes to standard error; set by the first [`to_stderr`].
static LINES: OnceLock<Dispatch> = OnceLock::new();

/// How verbose [`LINES`] is: an index into [`LEVELS`].
static TALKATIVE: AtomicUsize = AtomicUsize::new(0);

/// From silent to the most verbose.
const LEVELS: [LevelFilter; 6] = [
    LevelFilter::OFF,
    LevelFilter::ERROR,
    LevelFilter::WARN,
    LevelFilter::INFO,
    LevelFilter::DEBUG,
    LevelFilter::TRACE,
];

/// Sends messages up to this level to standard error from now on, unless the program has a
/// subscriber of its own. The level only ever rises: a call with a less verbose level than an
/// earlier call's changes nothing.
pub fn to_stderr(level: LogLevel) {
    let place = match level {
        LogLevel::Off => return,
        LogLevel::Error => 1,
        LogLevel::Warn => 2,
        LogLevel::Info => 3,
        LogLevel::Debug => 4,
        LogLevel::Trace => 5,
    };
    // Relaxed, here and in the loads: a message logged during the change may go either way.
    if TALKATIVE.fetch_max(place, Ordering::Relaxed) < place {
        LINES.get_or_init(|| Dispatch::new(Lines));
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Whether any subscriber in this process is interested in this level. For [`log!`](crate::log!).
#[doc(hidden)]
#[inline(always)]
#[must_use]
pub fn is_on(level: Level) -> bool {
    level <= LevelFilter::current()
}

/// Hands an event to the program's subscriber, or to Portolan's own if there is none. For
/// [`log!`](crate::log!).
#[doc(hidden)]
#[cold]
#[inline(never)]
pub fn say(event: &dyn Fn()) {
    let nobody = dispatcher::get_default(Dispatch::is::<NoSubscriber>);
    match LINES.get() {
        Some(ours) if nobody => dispatcher::with_default(ours, event),
        _ => event(),
    }
}

/// Writes each message as one line, in a single write, so that the lines of several ranks do not
/// mix.
struct Lines;

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let level = LEVELS[TALKATIVE.load(Ordering::Relaxed)];
        metadata.is_event() && metadata.target().starts_with(OURS) && *metadata.level() <= level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LEVELS[TALKATIVE.load(Ordering::Relaxed)])
    }

    fn event(&self, event: &Event<'_>) {
        // If standard error is gone, there is nowhere left to report to.
        let _ = std::io::stderr().write_all(line(event).as_bytes());
    }

    // Portolan has no spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Formats an event for people: `portolan: rank 3: warning: what has happened (peer=2)`.
fn line(event: &Event<'_>) -> String {
    let mut words = Words::default();
    event.record(&mut words);
    let mut line = "portolan: ".to_owned();
    if let Some(rank) = words.rank {
        // Writing to a string does not fail, here and below.
        let _ = write!(line, "rank {rank}: ");
    }
    let level = match *event.metadata().level() {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    };
    let _ = write!(line, "{level}: {}", words.message);
    if !words.others.is_empty() {
        let _ = write!(line, " ({})", words.others);
    }
    line.push('\n');
    line
}

/// The parts of an event.
#[derive(Default)]
struct Words {
    rank: Option<u64>,
    message: String,
    others: String,
}

impl Words {
    fn other(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        let comma = if self.others.is_empty() { "" } else { ", " };
        let _ = write!(self.others, "{comma}{}={value}", field.name());
    }
}

impl Visit for Words {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "rank" => self.rank = Some(value),
            _ => self.other(field, format_args!("{value}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message.push_str(value),
            _ => self.other(field, format_args!("{value}")),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => {
                let _ = write!(self.message, "{value:?}");
            }
            _ => self.other(field, format_args!("{value:?}")),
        }
    }
}
