//! Settings: one table that defines everything about them.
//!
//! [`SETTINGS`] has one row per setting: name, type, default, unit, meaning. Everything else is
//! derived from it: parsing and range checks, the typed accessors of [`Settings`], the record of
//! where each value came from ([`Origin`]), the pages of `portolan info` and `docs/settings.md`
//! ([`manual`]), and the warning for a misspelt `PORTOLAN_` variable, with the nearest existing
//! name ([`UnknownName`]).
//!
//! To add a setting, add one entry to `table.rs`. The only other thing to change is the generated
//! `docs/settings.md` (`portolan info --manual`); a test checks that it is current.
//!
//! A value that cannot be used is an error. It is never silently replaced by the default.

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
pub use unknown::{UnknownName, nearest, nearest_of};
pub use value::{Bytes, Count, LogLevel, MatchMode, OnFailure, SettingValue, Switch, WaitMode};

/// Prefix of Portolan's environment variables.
pub const PREFIX: &str = "PORTOLAN_";
