//! One line of the protocol: a command and its fields.

use std::fmt;

/// A line of PMI-1: `cmd=NAME field=value …`.
///
/// Names are not empty, and unique within a line. Values may be empty. Neither contains blanks or
/// control characters, so parsing is just splitting.
///
/// ```
/// use portolan_core::job::pmi1::Message;
///
/// let line = Message::new("put").with("key", "card-0").with("value", "a=b");
/// assert_eq!(line.to_string(), "cmd=put key=card-0 value=a=b");
/// let back = Message::parse(b"cmd=put key=card-0 value=a=b").unwrap();
/// assert_eq!(back.command(), "put");
/// assert_eq!(back.field("value"), Some("a=b"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The first field is the command: `("cmd", NAME)`, or `("mcmd", NAME)` for several lines.
    fields: Vec<(String, String)>,
}

/// Why some bytes are not a line of PMI-1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A byte that no line may contain. (Blanks separate fields, so no field contains one.)
    #[error("byte {byte:#04x} at {at} cannot be part of a line")]
    BadByte {
        /// The byte.
        byte: u8,
        /// Its position in the line.
        at: usize,
    },
    /// Not UTF-8.
    #[error("the line is not text (UTF-8)")]
    NotText,
    /// A word without `=`, or with nothing before it.
    #[error("`{word}` is not of the form name=value")]
    NotAField {
        /// The word, cut to 40 characters.
        word: String,
    },
    /// The line does not begin with `cmd=` or `mcmd=` and a name.
    #[error("the line does not begin with cmd=NAME")]
    NoCommand,
    /// The same name twice. Choosing one of the two would be a guess.
    #[error("field `{name}` appears twice")]
    Twice {
        /// The name, cut to 40 characters.
        name: String,
    },
    /// No end of line within [`MAX_LINE`](super::MAX_LINE) bytes.
    #[error("a line is longer than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
}

impl Message {
    /// A line with this command and no fields yet.
    ///
    /// # Panics
    /// As [`with`](Self::with).
    #[must_use]
    pub fn new(command: &str) -> Self {
        Self { fields: Vec::new() }.with("cmd", command)
    }

    /// The line with one more field.
    ///
    /// # Panics
    /// If the name is empty, contains `=` or is already there, or if name or value contain blanks
    /// or control characters. Callers must escape text that they do not control ([`Self::escape`]).
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        let value = value.to_string();
        assert!(is_name(name), "`{name}` cannot name a field");
        assert!(
            bad_byte(value.as_bytes()).is_none(),
            "`{value}` has to be escaped to travel"
        );
        assert!(
            self.field(name).is_none(),
            "field `{name}` is there already"
        );
        self.fields.push((name.to_owned(), value));
        self
    }

    /// Reads one line, without its end.
    ///
    /// Blanks before, after and between fields may be repeated. Otherwise parsing is strict:
    /// anything doubtful is an error.
    ///
    /// # Errors
    /// Any [`WireError`] but [`WireError::TooLong`].
    pub fn parse(line: &[u8]) -> Result<Self, WireError> {
        if let Some((at, byte)) = bad_byte_in_line(line) {
            return Err(WireError::BadByte { byte, at });
        }
        let line = std::str::from_utf8(line).map_err(|_| WireError::NotText)?;
        let mut message = Self { fields: Vec::new() };
        for word in line.split(' ').filter(|word| !word.is_empty()) {
            message.add_word(word)?;
        }
        match message.fields.first() {
            Some((name, value)) if matches!(&**name, "cmd" | "mcmd") && !value.is_empty() => {
                Ok(message)
            }
            _ => Err(WireError::NoCommand),
        }
    }

    fn add_word(&mut self, word: &str) -> Result<(), WireError> {
        let not_a_field = || WireError::NotAField { word: cut(word) };
        let (name, value) = word.split_once('=').ok_or_else(not_a_field)?;
        if name.is_empty() {
            return Err(not_a_field());
        }
        if self.field(name).is_some() {
            return Err(WireError::Twice { name: cut(name) });
        }
        self.fields.push((name.to_owned(), value.to_owned()));
        Ok(())
    }

    /// The command: the value of the first field.
    #[must_use]
    pub fn command(&self) -> &str {
        self.fields.first().map_or("", |(_, value)| value)
    }

    /// Whether the command spans several lines (`mcmd=`), up to one with `endcmd`.
    #[must_use]
    pub fn opens_block(&self) -> bool {
        self.fields.first().is_some_and(|(name, _)| name == "mcmd")
    }

    /// The value of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| &**value)
    }

    /// Escapes any text for use as a value: everything but letters, digits and ``-_.,:/()@+``
    /// becomes `%XX`.
    ///
    /// That includes `=` and `;`, which are legal in values but which other launchers' parsers
    /// cannot handle.
    #[must_use]
    pub fn escape(text: &str) -> String {
        let mut escaped = String::with_capacity(text.len());
        for &byte in text.as_bytes() {
            if byte.is_ascii_alphanumeric() || b"-_.,:/()@+".contains(&byte) {
                escaped.push(byte.into());
            } else {
                escaped.push('%');
                for digit in [byte >> 4, byte & 15] {
                    escaped.push(b"0123456789ABCDEF"[usize::from(digit)].into());
                }
            }
        }
        escaped
    }

    /// Undoes [`escape`](Self::escape); `None` if the text cannot be its result.
    #[must_use]
    pub fn unescape(escaped: &str) -> Option<String> {
        let mut bytes = Vec::with_capacity(escaped.len());
        let mut rest = escaped.bytes();
        while let Some(byte) = rest.next() {
            bytes.push(if byte == b'%' {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            } else {
                byte
            });
        }
        String::from_utf8(bytes).ok()
    }
}

impl fmt::Display for Message {
    /// The line, without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.fields.iter().enumerate() {
            write!(f, "{}{name}={value}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('=') && bad_byte(name.as_bytes()).is_none()
}

/// The first byte that no name or value may contain.
fn bad_byte(bytes: &[u8]) -> Option<u8> {
    bytes
        .iter()
        .copied()
        .find(|&byte| byte <= b' ' || byte == 0x7f)
}

fn bad_byte_in_line(line: &[u8]) -> Option<(usize, u8)> {
    let bad = |byte: u8| byte < b' ' || byte == 0x7f;
    line.iter()
        .copied()
        .enumerate()
        .find(|&(_, byte)| bad(byte))
}

fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_mpich_and_hydra_say_is_understood() {
        let line = b"cmd=get_result rc=0 msg=success value=(vector,(0,1,4))";
        let message = Message::parse(line).unwrap();
        assert_eq!(message.command(), "get_result");
        assert_eq!(message.field("value"), Some("(vector,(0,1,4))"));
        assert_eq!(message.field("absent"), None);
        // MPICH's clients leave a blank before the end of some lines.
        assert_eq!(
            Message::parse(b"cmd=barrier_in ").unwrap().command(),
            "barrier_in"
        );
        assert!(Message::parse(b"mcmd=spawn").unwrap().opens_block());
    }

    #[test]
    fn what_is_not_a_line_is_refused_with_the_reason() {
        for (line, reason) in [
            (&b""[..], "does not begin with cmd=NAME"),
            (b"   ", "does not begin with cmd=NAME"),
            (b"cmd=", "does not begin with cmd=NAME"),
            (b"key=a cmd=put", "does not begin with cmd=NAME"),
            (b"cmd=put key", "`key` is not of the form"),
            (b"cmd=put =a", "`=a` is not of the form"),
            (b"cmd=put key=a key=b", "`key` appears twice"),
            (b"cmd=put\tkey=a", "byte 0x09 at 7"),
            (b"cmd=put\0", "byte 0x00 at 7"),
            (b"cmd=\xff\xfe", "not text"),
        ] {
            let text = Message::parse(line).unwrap_err().to_string();
            assert!(
                text.contains(reason),
                "{:?}: {text}",
                line.escape_ascii().to_string()
            );
        }
    }

    #[test]
    #[should_panic(expected = "has to be escaped")]
    fn a_blank_cannot_be_smuggled_into_a_line() {
        let _ = Message::new("put").with("value", "a b");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_line_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(message) = Message::parse(&bytes) {
                // An accepted line is in the form that `to_string` writes.
                let again = Message::parse(message.to_string().as_bytes()).unwrap();
                prop_assert_eq!(again, message);
            }
        }

        #[test]
        fn bytes_near_a_line_are_a_line_or_an_error(line in "[cmd=put vale \u{7f}é\n]{0,40}") {
            let _ = Message::parse(line.as_bytes());
        }

        #[test]
        fn every_text_survives_escaping(text in any::<String>()) {
            let escaped = Message::escape(&text);
            let line = Message::new("put").with("value", &escaped).to_string();
            let message = Message::parse(line.as_bytes()).unwrap();
            prop_assert_eq!(Message::unescape(message.field("value").unwrap()), Some(text));
        }

        #[test]
        fn unescaping_any_text_does_not_panic(text in any::<String>()) {
            let _ = Message::unescape(&text);
        }
    }
}
