//! Errors of settings.

use super::{Origin, PREFIX};

/// Why a setting's value was refused, and what would be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// The setting does not accept this value.
    #[error(
        "{PREFIX}{name}={value} ({origin}) cannot be used: {why}\n  \
         fix: give {expected}, or unset it for the default ({default})"
    )]
    BadValue {
        /// The setting, without the prefix.
        name: &'static str,
        /// The text that was given.
        value: String,
        /// Where the value came from.
        origin: Origin,
        /// What is wrong with it.
        why: String,
        /// What would be accepted.
        expected: String,
        /// The default, as shown to people.
        default: &'static str,
    },
    /// No setting has this name.
    #[error("there is no setting {PREFIX}{name}{}", did_you_mean(nearest))]
    NoSuchSetting {
        /// The name that was given, without the prefix.
        name: String,
        /// The nearest that exists.
        nearest: Option<&'static str>,
    },
}

fn did_you_mean(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |name| {
        format!(" (did you mean {PREFIX}{name}?)")
    })
}
