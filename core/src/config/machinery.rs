//! The types and the macro behind the table.

use std::fmt;

use super::value::{Bytes, SettingValue};
use super::{PREFIX, SettingError};

/// One row of the table: everything about a setting except its value.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Setting {
    /// The name, without the prefix: `EAGER_MAX`.
    pub name: &'static str,
    /// The type's name for people, with what it accepts.
    pub type_name: &'static str,
    /// The default in the form in which it would be given; empty if the setting is unset by
    /// default.
    pub default: &'static str,
    /// The unit of its value; empty if it has none.
    pub unit: &'static str,
    /// What it does, in one or more sentences.
    pub meaning: &'static str,
    /// The possible values, if they can be listed.
    pub choices: &'static [&'static str],
    /// The least and greatest value, if it is a number with a range.
    pub range: Option<(u64, u64)>,
}

impl Setting {
    /// The name of the environment variable: `PORTOLAN_EAGER_MAX`.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("{PREFIX}{}", self.name)
    }

    /// What it accepts, as the object of "give …".
    #[must_use]
    pub fn expected(&self) -> String {
        if !self.choices.is_empty() {
            return format!("one of {}", self.choices.join(", "));
        }
        let number = |n: u64| match usize::try_from(n) {
            Ok(bytes) if self.unit.starts_with("bytes") => Bytes(bytes).show(),
            _ => n.to_string(),
        };
        let range = match self.range {
            Some((low, high)) => format!(" from {} to {}", number(low), number(high)),
            None => String::new(),
        };
        format!("a {}{range}", self.type_name)
    }

    /// The default, for people.
    #[must_use]
    pub fn default_shown(&self) -> &'static str {
        if self.default.is_empty() {
            "unset"
        } else {
            self.default
        }
    }

    pub(super) fn read<T: SettingValue>(
        &self,
        text: &str,
        origin: Origin,
    ) -> Result<T, SettingError> {
        let outside = |value: &T| {
            let (low, high) = self.range?;
            let number = value.magnitude()?;
            (!(low..=high).contains(&number)).then(|| format!("{number} is out of range"))
        };
        let value = T::parse(text.trim());
        let checked = value.and_then(|value| outside(&value).map_or(Ok(value), Err));
        checked.map_err(|why| SettingError::BadValue {
            name: self.name,
            value: text.to_owned(),
            origin,
            why,
            expected: self.expected(),
            default: self.default_shown(),
        })
    }
}

/// Where a setting's value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// No value was given.
    Default,
    /// The environment variable.
    Environment,
    /// The program itself.
    Builder,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Default => "default",
            Self::Environment => "environment",
            Self::Builder => "program",
        })
    }
}

/// A setting with its value, as shown to people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Shown {
    /// The row.
    pub setting: &'static Setting,
    /// The value as text; empty if it is unset.
    pub value: String,
    /// Where it came from.
    pub origin: Origin,
}

/// A value and where it came from.
#[derive(Clone, Debug)]
pub(super) struct Entry<T> {
    pub(super) value: T,
    pub(super) origin: Origin,
}

/// Makes the table and the typed [`Settings`](super::Settings) from one list of entries.
macro_rules! settings {
    ($(
        $(#[doc = $meaning:literal])+
        $name:literal => $field:ident: $type:ty, default $default:literal, unit $unit:literal
        $(, range $low:expr, $high:expr)? ;
    )+) => {
        /// Every setting, in the order in which they are shown.
        pub static SETTINGS: &[Setting] = &[$(
            Setting {
                name: $name,
                type_name: <$type as SettingValue>::TYPE,
                default: $default,
                unit: $unit,
                meaning: concat!($($meaning),+),
                choices: <$type as SettingValue>::CHOICES,
                range: settings!(@range $($low, $high)?),
            },
        )+];

        /// The values of all settings, each with its origin.
        ///
        /// ```
        /// use portolan_core::config::{Origin, Settings};
        ///
        /// let mut settings = Settings::from_variables([("PORTOLAN_EAGER_MAX", "32k")]).unwrap();
        /// assert_eq!(settings.eager_max(), 32 * 1024);
        /// assert_eq!(settings.origin("EAGER_MAX"), Some(Origin::Environment));
        /// settings.set("EAGER_MAX", "64k").unwrap();
        /// assert_eq!(settings.eager_max(), 64 * 1024);
        /// ```
        #[derive(Clone, Debug)]
        pub struct Settings {
            $($field: Entry<$type>,)+
            unknown: Vec<UnknownName>,
        }

        impl Default for Settings {
            /// All defaults; the environment is not read.
            fn default() -> Self {
                // Each row's own default is valid: the test `defaults_are_valid` reads them all.
                Self {
                    $($field: Entry {
                        value: row($name).read($default, Origin::Default).expect($name),
                        origin: Origin::Default,
                    },)+
                    unknown: Vec::new(),
                }
            }
        }

        impl Settings {
            $(
                $(#[doc = $meaning])+
                #[doc = concat!("\nVariable `PORTOLAN_", $name, "`, default `", $default, "`.")]
                #[must_use]
                pub fn $field(&self) -> <$type as SettingValue>::Out<'_> {
                    self.$field.value.out()
                }
            )+

            fn assign(
                &mut self,
                name: &str,
                text: &str,
                origin: Origin,
            ) -> Result<(), SettingError> {
                match name {
                    $($name => {
                        self.$field = Entry { value: row($name).read(text, origin)?, origin };
                        Ok(())
                    })+
                    _ => Err(SettingError::NoSuchSetting {
                        name: name.to_owned(),
                        nearest: nearest(name),
                    }),
                }
            }

            /// Where a setting's value came from; `None` if there is no such setting.
            #[must_use]
            pub fn origin(&self, name: &str) -> Option<Origin> {
                match name {
                    $($name => Some(self.$field.origin),)+
                    _ => None,
                }
            }

            /// Every setting with its value, as shown to people.
            pub fn shown(&self) -> impl Iterator<Item = Shown> + '_ {
                [$((row($name), self.$field.value.show(), self.$field.origin),)+]
                    .into_iter()
                    .map(|(setting, value, origin)| Shown { setting, value, origin })
            }
        }
    };
    (@range) => { None };
    (@range $low:expr, $high:expr) => { Some(($low, $high)) };
}
