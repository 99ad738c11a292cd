//! Settings: one table, from which everything about them follows.
//!
//! [`SETTINGS`] has one row per setting: name, type, default, unit, meaning. From it come parsing
//! and range checks, the typed accessors of [`Settings`], where each value came from
//! ([`Origin`]), the pages of `portolan info` and `docs/settings.md` ([`manual`]), and the warning
//! for a misspelt `PORTOLAN_` variable with the nearest name that exists ([`UnknownName`]).
//!
//! To add a setting, add one entry in `table.rs`; nothing else has to change, except the generated
//! `docs/settings.md` (`portolan info --manual`), and a test says so.
//!
//! A value that cannot be used is an error and never silently the default.

mod error;
mod manual;
#[macro_use]
mod machinery;
mod table;
mod unknown;
mod value;

pub use error::SettingError;
pub use machinery::{Origin, Setting, Shown};
pub use manual::manual;
pub use table::{SETTINGS, Settings, is_reserved};
pub use unknown::{UnknownName, nearest};
pub use value::{Bytes, Count, LogLevel, MatchMode, OnFailure, SettingValue, Switch, WaitMode};

/// What every environment variable of ours begins with.
pub const PREFIX: &str = "PORTOLAN_";
