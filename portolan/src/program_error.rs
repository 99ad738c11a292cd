//! The errors of a program: what `run` and `run_threads` accept, and how they print.

use std::error::Error as AnyError;
use std::fmt;

use portolan_core::Error;

/// An error that a program may return to [`run`](crate::run) and
/// [`run_threads`](crate::run_threads).
///
/// It is implemented for every type that converts to a `Box<dyn Error + Send + Sync>`:
/// [`Error`], every type of the program's own with an implementation of [`std::error::Error`]
/// that can be sent to another thread, `String`, `&str`, and the types of crates like `anyhow`. It
/// is implemented as well for `Box<dyn Error>`, which promises nothing about threads.
///
/// `Kind` tells these two implementations apart. The compiler infers it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no error that a rank can end with",
    label = "neither `Box<dyn Error>` nor convertible to `Box<dyn Error + Send + Sync>`",
    note = "implement `std::error::Error` for it"
)]
pub trait ProgramError<Kind> {
    /// Converts to an error that any thread may print. It keeps the type if that can be sent to
    /// other threads, and otherwise the text and the [`Error`] that is among the causes.
    fn into_boxed(self) -> Box<dyn AnyError + Send + Sync>;
}

/// The kind of errors that can be sent to other threads.
#[doc(hidden)]
#[derive(Debug)]
pub enum Sendable {}

/// The kind of errors that cannot.
#[doc(hidden)]
#[derive(Debug)]
pub enum Local {}

impl<E: Into<Box<dyn AnyError + Send + Sync>>> ProgramError<Sendable> for E {
    fn into_boxed(self) -> Box<dyn AnyError + Send + Sync> {
        self.into()
    }
}

impl ProgramError<Local> for Box<dyn AnyError> {
    fn into_boxed(self) -> Box<dyn AnyError + Send + Sync> {
        match self.downcast::<Error>() {
            Ok(ours) => ours,
            Err(theirs) => Box::new(Told {
                text: text_of(&*theirs),
                cause: ours_in(&*theirs).cloned(),
            }),
        }
    }
}

/// What is left of an error that had to stay in its thread.
#[derive(Debug)]
struct Told {
    text: String,
    cause: Option<Error>,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl AnyError for Told {
    fn source(&self) -> Option<&(dyn AnyError + 'static)> {
        let cause = self.cause.as_ref()?;
        Some(cause)
    }
}

/// The error and its causes as one text that names the rank, once.
pub(crate) fn describe(error: &(dyn AnyError + 'static), rank: u32) -> String {
    let text = text_of(error);
    // An error of this crate that was noticed elsewhere says so.
    let is_named = ours_in(error).is_some_and(|ours| ours.rank().is_some());
    if is_named || names(&text, rank) {
        return text;
    }
    format!("rank {rank}: {text}")
}

/// The texts of an error and of its causes, except those that the text before them includes: many
/// errors print their cause themselves.
fn text_of(error: &(dyn AnyError + 'static)) -> String {
    let mut text = error.to_string();
    for cause in chain(error).skip(1) {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
    }
    text
}

/// The error of this crate that an error is, or that caused it.
fn ours_in<'e>(error: &'e (dyn AnyError + 'static)) -> Option<&'e Error> {
    chain(error).find_map(|error| error.downcast_ref())
}

fn chain<'e>(
    error: &'e (dyn AnyError + 'static),
) -> impl Iterator<Item = &'e (dyn AnyError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Whether a text begins with the rank in the form in which errors of this crate do, or has it in
/// that form after the words of an error around it.
fn names(text: &str, rank: u32) -> bool {
    let name = format!("rank {rank}");
    text.match_indices(&name).any(|(at, name)| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        (before.is_empty() || before.ends_with(": "))
            && (after.starts_with(": ") || after.starts_with(" ("))
    })
}

#[cfg(test)]
mod tests {
    use portolan_core::ErrorKind;

    use super::*;
    use crate::Failed;

    fn wrong() -> Error {
        Error::new(ErrorKind::InvalidTag, "tag 7 is wrong")
    }

    /// As `run` prints it.
    fn printed<K>(error: impl ProgramError<K>) -> String {
        describe(&*error.into_boxed(), 3)
    }

    /// An error of a program: it prints its cause or leaves that to its reader.
    #[derive(Debug)]
    enum Own {
        Input(std::num::ParseIntError),
        Exchange(Error),
    }

    impl fmt::Display for Own {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Input(_) => f.write_str("the input is no number"),
                Self::Exchange(error) => write!(f, "the exchange failed: {error}"),
            }
        }
    }

    impl AnyError for Own {
        fn source(&self) -> Option<&(dyn AnyError + 'static)> {
            Some(match self {
                Self::Input(error) => error,
                Self::Exchange(error) => error,
            })
        }
    }

    #[test]
    fn every_error_names_its_rank_once() {
        assert_eq!(printed(wrong()), "rank 3: tag 7 is wrong");
        assert_eq!(printed(wrong().on_rank(3)), "rank 3: tag 7 is wrong");
        assert_eq!(printed(wrong().on_rank(2)), "rank 2: tag 7 is wrong");
        assert_eq!(printed("no input"), "rank 3: no input");
        assert_eq!(printed(String::from("no input")), "rank 3: no input");
        // The text speaks of rank 3, but not of the error's place.
        let text = "nothing came from rank 3 in time";
        assert_eq!(printed(text), format!("rank 3: {text}"));
        let exchange = Own::Exchange(wrong().on_rank(3).on_device("shm"));
        let text = "the exchange failed: rank 3 (shm): tag 7 is wrong";
        assert_eq!(printed(exchange), text);
    }

    #[test]
    fn an_error_with_its_buffer_prints_as_the_error() {
        let failed = || Failed {
            buf: vec![0_u8],
            error: wrong().on_rank(3).on_device("shm"),
        };
        let text = "rank 3 (shm): tag 7 is wrong";
        assert_eq!(printed(failed()), text);
        let boxed: Box<dyn AnyError> = failed().into();
        let sendable: Box<dyn AnyError + Send + Sync> = failed().into();
        assert_eq!(
            (printed(boxed), printed(sendable)),
            (text.into(), text.into())
        );
        // A program gets at the kind of the error.
        let boxed: Box<dyn AnyError> = failed().into();
        let ours = boxed.source().and_then(|cause| cause.downcast_ref());
        assert_eq!(ours.map(Error::kind), Some(ErrorKind::InvalidTag));
    }

    #[test]
    fn causes_are_printed_once() {
        let cause = "x".parse::<u32>().unwrap_err();
        let text = format!("rank 3: the input is no number: {cause}");
        assert_eq!(printed(Own::Input(cause.clone())), text);
        let boxed: Box<dyn AnyError> = Own::Input(cause).into();
        assert_eq!(printed(boxed), text);
        let ours = wrong().caused_by("x".parse::<u32>().unwrap_err());
        assert!(printed(ours).starts_with("rank 3: tag 7 is wrong: invalid digit"));
    }

    #[test]
    fn a_box_that_stays_in_its_thread_keeps_the_error_of_this_crate() {
        let boxed: Box<dyn AnyError> = wrong().into();
        assert!(boxed.into_boxed().is::<Error>());
        let boxed: Box<dyn AnyError> = Own::Exchange(wrong()).into();
        let told = boxed.into_boxed();
        let ours = told.source().and_then(|cause| cause.downcast_ref());
        assert_eq!(ours.map(Error::kind), Some(ErrorKind::InvalidTag));
        assert_eq!(told.to_string(), "the exchange failed: tag 7 is wrong");
    }

    /// As `anyhow::Error`: not an error itself, but convertible to a boxed one.
    struct Report(Own);

    impl From<Report> for Box<dyn AnyError + Send + Sync> {
        fn from(report: Report) -> Self {
            report.0.into()
        }
    }

    #[test]
    fn types_that_convert_to_errors_are_taken() {
        let report = Report(Own::Exchange(wrong()));
        assert_eq!(
            printed(report),
            "rank 3: the exchange failed: tag 7 is wrong"
        );
    }
}
