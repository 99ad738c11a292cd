//! The types that a setting can have. Each can be parsed from text and shown as text.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A type that settings can have.
pub trait SettingValue: Sized {
    /// What the accessor of such a setting returns.
    type Out<'a>
    where
        Self: 'a;

    /// The type's name for people.
    const TYPE: &'static str;

    /// The possible values, if they can be listed.
    const CHOICES: &'static [&'static str] = &[];

    /// Parses a value. The error says what is wrong with the text.
    ///
    /// # Errors
    /// A clause such as "`12q` is not a number".
    fn parse(text: &str) -> Result<Self, String>;

    /// The value as text that [`parse`](Self::parse) reads.
    fn show(&self) -> String;

    /// What the accessor returns.
    fn out(&self) -> Self::Out<'_>;

    /// The value as a number, for settings with a range.
    fn magnitude(&self) -> Option<u64> {
        None
    }
}

/// A number of bytes: `4096`, `64k`, `1.5M`, `2G`, `1T`; k is 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub usize);

const SUFFIXES: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('k', 10)];

impl SettingValue for Bytes {
    type Out<'a> = usize;
    const TYPE: &'static str = "size";

    fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a size such as 4096, 64k, 1M or 2G");
        let number = text
            .strip_suffix("iB")
            .or(text.strip_suffix('B'))
            .unwrap_or(text);
        let suffix = number.chars().last().filter(char::is_ascii_alphabetic);
        let shift = match suffix {
            None => 0,
            Some(c) => {
                let same = |(suffix, _): &&(char, u32)| suffix.eq_ignore_ascii_case(&c);
                SUFFIXES.iter().find(same).ok_or_else(bad)?.1
            }
        };
        let number = number[..number.len() - usize::from(suffix.is_some())].trim_end();
        if let Ok(whole) = number.parse::<usize>() {
            let bytes = usize::try_from(1_u64 << shift)
                .ok()
                .and_then(|unit| whole.checked_mul(unit));
            return bytes
                .map(Self)
                .ok_or_else(|| format!("`{text}` is more than can be addressed"));
        }
        let fraction: f64 = number.parse().map_err(|_| bad())?;
        let bytes = fraction * (1_u64 << shift) as f64;
        if shift == 0 || !(0.0..1e18).contains(&bytes) {
            return Err(bad());
        }
        // In range and not negative, so the cast only drops the fraction of a byte.
        Ok(Self(bytes as usize))
    }

    fn show(&self) -> String {
        let fits = |(_, shift): &&(char, u32)| {
            let unit = 1_u64 << shift;
            self.0 as u64 >= unit && (self.0 as u64).is_multiple_of(unit)
        };
        match SUFFIXES.iter().find(fits) {
            Some((suffix, shift)) => format!("{}{suffix}", (self.0 as u64) >> shift),
            None => self.0.to_string(),
        }
    }

    fn out(&self) -> usize {
        self.0
    }

    fn magnitude(&self) -> Option<u64> {
        Some(self.0 as u64)
    }
}

/// A size that may be unset.
impl SettingValue for Option<Bytes> {
    type Out<'a> = Option<usize>;
    const TYPE: &'static str = "size";

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "" => Ok(None),
            text => Bytes::parse(text).map(Some),
        }
    }

    fn show(&self) -> String {
        self.as_ref().map(Bytes::show).unwrap_or_default()
    }

    fn out(&self) -> Option<usize> {
        self.map(|bytes| bytes.0)
    }

    fn magnitude(&self) -> Option<u64> {
        self.as_ref().and_then(Bytes::magnitude)
    }
}

/// A count of something other than bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u64);

impl SettingValue for Count {
    type Out<'a> = u64;
    const TYPE: &'static str = "whole number";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse()
            .map(Self)
            .map_err(|_| format!("`{text}` is not a whole number"))
    }

    fn show(&self) -> String {
        self.0.to_string()
    }

    fn out(&self) -> u64 {
        self.0
    }

    fn magnitude(&self) -> Option<u64> {
        Some(self.0)
    }
}

impl SettingValue for Duration {
    type Out<'a> = Duration;
    const TYPE: &'static str = "time in seconds";

    fn parse(text: &str) -> Result<Self, String> {
        let seconds = text.strip_suffix('s').unwrap_or(text).trim_end().parse();
        let duration = seconds.ok().and_then(|s| Self::try_from_secs_f64(s).ok());
        duration.ok_or_else(|| format!("`{text}` is not a time in seconds"))
    }

    fn show(&self) -> String {
        self.as_secs_f64().to_string()
    }

    fn out(&self) -> Duration {
        *self
    }

    fn magnitude(&self) -> Option<u64> {
        Some(self.as_secs())
    }
}

impl SettingValue for bool {
    type Out<'a> = bool;
    const TYPE: &'static str = "switch";
    const CHOICES: &'static [&'static str] = &["on", "off"];

    fn parse(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "on" | "1" | "true" | "yes" => Ok(true),
            "off" | "0" | "false" | "no" => Ok(false),
            _ => Err(format!("`{text}` is neither on nor off")),
        }
    }

    fn show(&self) -> String {
        if *self { "on" } else { "off" }.to_owned()
    }

    fn out(&self) -> bool {
        *self
    }
}

impl SettingValue for Option<String> {
    type Out<'a> = Option<&'a str>;
    const TYPE: &'static str = "text";

    fn parse(text: &str) -> Result<Self, String> {
        Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
    }

    fn show(&self) -> String {
        self.clone().unwrap_or_default()
    }

    fn out(&self) -> Option<&str> {
        self.as_deref()
    }
}

impl SettingValue for Option<PathBuf> {
    type Out<'a> = Option<&'a Path>;
    const TYPE: &'static str = "path";

    fn parse(text: &str) -> Result<Self, String> {
        Ok(Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty()))
    }

    fn show(&self) -> String {
        self.as_ref()
            .map_or_else(String::new, |path| path.display().to_string())
    }

    fn out(&self) -> Option<&Path> {
        self.as_deref()
    }
}

/// Defines a setting type whose values can be listed: an enum whose variants have names.
macro_rules! choices {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$variant => $text,)+ })
            }
        }

        impl SettingValue for $name {
            type Out<'a> = $name;
            const TYPE: &'static str = "choice";
            const CHOICES: &'static [&'static str] = &[$($text,)+];

            fn parse(text: &str) -> Result<Self, String> {
                match text.to_ascii_lowercase().as_str() {
                    $($text => Ok(Self::$variant),)+
                    _ => Err(format!("there is no choice `{text}`")),
                }
            }

            fn show(&self) -> String {
                self.to_string()
            }

            fn out(&self) -> Self {
                *self
            }
        }
    };
}

choices! {
    /// Whether to use a feature where it works, always, or never.
    Switch {
        /// Where it works and is faster.
        Auto = "auto",
        /// Always. An error where it does not work.
        On = "on",
        /// Never.
        Off = "off",
    }
}

choices! {
    /// What matches messages with receives, if the network's library could.
    MatchMode {
        /// At present, Portolan; `docs/ofi.md` says why.
        Auto = "auto",
        /// The network's library, or its card.
        Native = "native",
        /// Portolan.
        Software = "software",
    }
}

choices! {
    /// How a rank waits.
    WaitMode {
        /// Chooses by the number of ranks and the cores that they may use.
        Auto = "auto",
        /// Polls without end: lowest latency, one core per rank.
        Spin = "spin",
        /// Polls, and yields its core in between.
        Yield = "yield",
        /// Polls briefly, then sleeps until woken.
        Park = "park",
    }
}

choices! {
    /// What happens to the job when a rank dies.
    #[non_exhaustive]
    OnFailure {
        /// The whole job ends, and the dead rank is named.
        Abort = "abort",
        /// The other ranks continue. Calls that need the dead rank return an error.
        Return = "return",
    }
}

choices! {
    /// How much is logged.
    LogLevel {
        /// Nothing.
        Off = "off",
        /// Errors that end the job.
        Error = "error",
        /// Conditions that are probably not intended.
        Warn = "warn",
        /// Choices that were made, and why.
        Info = "info",
        /// Every step of starting and ending.
        Debug = "debug",
        /// Every message.
        Trace = "trace",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64k", 64 << 10),
            ("64K", 64 << 10),
            ("64 KiB", 64 << 10),
            ("1.5M", 3 << 19),
            ("2G", 2 << 30),
            ("2GB", 2 << 30),
            ("1T", 1 << 40),
        ] {
            assert_eq!(Bytes::parse(text), Ok(Bytes(bytes)), "{text}");
        }
        for bad in [
            "",
            "k",
            "12q",
            "-1",
            "1.5",
            "1e400M",
            "99999999999G",
            "NaNk",
            "é",
            "0x10",
        ] {
            assert!(Bytes::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_size_may_be_unset() {
        assert_eq!(Option::<Bytes>::parse(""), Ok(None));
        assert_eq!(Option::<Bytes>::parse("2G"), Ok(Some(Bytes(2 << 30))));
        assert!(Option::<Bytes>::parse("12q").is_err());
        assert_eq!(None::<Bytes>.show(), "");
        assert_eq!(
            (None::<Bytes>.out(), None::<Bytes>.magnitude()),
            (None, None)
        );
        assert_eq!(Some(Bytes(4096)).magnitude(), Some(4096));
    }

    #[test]
    fn seconds_may_have_fractions_and_must_make_sense() {
        assert_eq!(Duration::parse("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(Duration::parse("2s"), Ok(Duration::from_secs(2)));
        for bad in ["", "-1", "inf", "NaN", "1m"] {
            assert!(Duration::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn choices_read_what_they_show() {
        for text in WaitMode::CHOICES {
            assert_eq!(WaitMode::parse(text).unwrap().show(), *text);
        }
        assert_eq!(WaitMode::parse("YIELD"), Ok(WaitMode::Yield));
        assert!(bool::parse("maybe").is_err());
    }

    proptest! {
        #[test]
        fn sizes_read_what_they_show(bytes in any::<u32>(), shift in 0u32..30) {
            let bytes = Bytes((bytes as usize) << shift);
            prop_assert_eq!(Bytes::parse(&bytes.show()), Ok(bytes));
        }

        #[test]
        fn any_text_is_a_value_or_an_error(text in any::<String>()) {
            let _ = (Bytes::parse(&text), Duration::parse(&text), Count::parse(&text));
            let _ = (bool::parse(&text), Switch::parse(&text));
        }
    }
}
