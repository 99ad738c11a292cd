//! The one error type of the device layer: what went wrong, on which rank and device, and what to
//! try. A program can match on its [`kind`](Error::kind).

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::status::Status;

/// Why an operation on a peer that has left the job in good order fails.
pub const LEFT: &str = "it has left the job";

/// How the reason begins by which a transport, or the engine, ends operations of a rank that has
/// itself failed.
pub const OWN_FAILURE: &str = "this rank was declared failed: ";

/// A result of the device layer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of thing went wrong.
///
/// The names follow MPI's error classes where there is one.
///
/// With the crate `portolan`, a rank that was given an error of any kind but
/// [`Aborted`](Self::Aborted), [`Finalized`](Self::Finalized), [`MayBlock`](Self::MayBlock) and
/// [`PeerFailed`](Self::PeerFailed), and that then ends without saying how, counts as failed.
/// `World` documents the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The job was aborted.
    Aborted,
    /// A resource (memory, slots, descriptors) ran out (`MPI_ERR_NO_MEM`, the paper's
    /// `MPI_ERR_EXHAUSTED`).
    #[doc(alias("MPI_ERR_NO_MEM", "MPI_ERR_EXHAUSTED"))]
    Exhausted,
    /// The device has been ended.
    Finalized,
    /// An argument is wrong in a way that has no kind of its own (`MPI_ERR_ARG`).
    #[doc(alias = "MPI_ERR_ARG")]
    InvalidArgument,
    /// A buffer is null, too short or not addressable (`MPI_ERR_BUFFER`).
    #[doc(alias = "MPI_ERR_BUFFER")]
    InvalidBuffer,
    /// A communicator or context id is not usable here (`MPI_ERR_COMM`).
    #[doc(alias = "MPI_ERR_COMM")]
    InvalidCommunicator,
    /// A count or length is out of range (`MPI_ERR_COUNT`).
    #[doc(alias = "MPI_ERR_COUNT")]
    InvalidCount,
    /// A layout is not usable for this (`MPI_ERR_TYPE`).
    #[doc(alias = "MPI_ERR_TYPE")]
    InvalidLayout,
    /// A rank is outside of its communicator or job (`MPI_ERR_RANK`).
    #[doc(alias = "MPI_ERR_RANK")]
    InvalidRank,
    /// A request or message handle is stale or was never given out (`MPI_ERR_REQUEST`).
    #[doc(alias = "MPI_ERR_REQUEST")]
    InvalidRequest,
    /// A setting has a value that cannot be used.
    InvalidSetting,
    /// A tag is out of range (`MPI_ERR_TAG`).
    #[doc(alias = "MPI_ERR_TAG")]
    InvalidTag,
    /// A received value is not a valid value of the Rust type (a `bool` of 2, say).
    InvalidValue,
    /// The launcher or the start of the job failed.
    Job,
    /// A buffered send cannot be buffered without blocking (`MPIR_ERR_MAY_BLOCK` of the paper).
    MayBlock,
    /// A peer process has died (`MPIX_ERR_PROC_FAILED`), or has left the job while an operation
    /// still needed it.
    #[doc(alias = "MPIX_ERR_PROC_FAILED")]
    PeerFailed,
    /// A peer sent something that no correct peer sends.
    PeerMisbehaved,
    /// A region, key or one-sided range is not valid (`MPI_ERR_RMA_RANGE`).
    #[doc(alias = "MPI_ERR_RMA_RANGE")]
    RemoteAccess,
    /// The device or transport wanted is not usable here.
    TransportUnavailable,
    /// A message was longer than the buffer that received it (`MPI_ERR_TRUNCATE`).
    #[doc(alias = "MPI_ERR_TRUNCATE")]
    Truncated,
    /// The sender's datatype and the receiver's differ.
    TypeMismatch,
    /// The device does not support the operation; its capabilities say so too.
    Unsupported,
    /// The buffer is in memory that the device cannot reach (a GPU's, say).
    UnsupportedMemory,
    /// A mistake in Portolan itself; please report it (`MPI_ERR_INTERN`).
    #[doc(alias = "MPI_ERR_INTERN")]
    Internal,
}

/// Who has to act on an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Blame {
    /// The calling program passed something wrong.
    Caller,
    /// Another rank failed or sent something wrong.
    Peer,
    /// The machine, its limits or its settings.
    Environment,
    /// Portolan itself.
    Ours,
}

impl ErrorKind {
    /// Who has to act on an error of this kind.
    #[must_use]
    pub fn blame(self) -> Blame {
        match self {
            Self::Aborted | Self::PeerFailed | Self::PeerMisbehaved => Blame::Peer,
            Self::Exhausted
            | Self::InvalidSetting
            | Self::Job
            | Self::TransportUnavailable
            | Self::UnsupportedMemory => Blame::Environment,
            Self::Internal => Blame::Ours,
            _ => Blame::Caller,
        }
    }
}

/// What went wrong, on which rank and device, and what to try.
///
/// One pointer wide, so that results stay in registers on the paths that succeed.
///
/// ```
/// use portolan_core::{Error, ErrorKind};
///
/// let e = Error::new(ErrorKind::InvalidRank, "rank 9 is outside of a communicator of 4 ranks")
///     .remedy("use ranks 0 to 3")
///     .on_rank(2);
/// assert_eq!(e.kind(), ErrorKind::InvalidRank);
/// assert_eq!(
///     e.to_string(),
///     "rank 2: rank 9 is outside of a communicator of 4 ranks; use ranks 0 to 3"
/// );
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    what: String,
    remedy: Option<String>,
    rank: Option<u32>,
    device: Option<&'static str>,
    peer: Option<u32>,
    status: Option<Status>,
    cause: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind`; `what` says what happened and names the offending value.
    #[cold]
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            what: what.into(),
            remedy: None,
            rank: None,
            device: None,
            peer: None,
            status: None,
            cause: None,
        }))
    }

    /// The error of an operation that needs a rank that has died or left. `why` is the reason that
    /// the device gives. If that begins with [`OWN_FAILURE`], the error is about the rank that
    /// returns it, and names no [`peer`](Self::peer).
    #[cold]
    pub fn peer_failed(peer: u32, why: &str) -> Self {
        if why.starts_with(OWN_FAILURE) {
            return Self::new(ErrorKind::PeerFailed, why.to_owned())
                .remedy("remove that cause: the other ranks hold this one to be dead, and it can talk to none of them");
        }
        if why == LEFT {
            return Self::new(
                ErrorKind::PeerFailed,
                format!("world rank {peer} has left the job"),
            )
            .remedy("receive, or send, all messages before a rank finalizes")
            .about_peer(peer);
        }
        Self::new(
            ErrorKind::PeerFailed,
            format!("world rank {peer} has failed: {why}"),
        )
        .remedy(
            "look at the output of the rank that failed; the others can go on without it, on a communicator of \
             those that live (PORTOLAN_ON_FAILURE=return)",
        )
        .about_peer(peer)
    }

    /// Adds what to try; [`advice`](Self::advice) gives it back.
    #[must_use]
    pub fn remedy(mut self, text: impl Into<String>) -> Self {
        self.0.remedy = Some(text.into());
        self
    }

    /// Prefixes the description with the operation or object that it concerns.
    #[must_use]
    pub fn during(mut self, what: impl fmt::Display) -> Self {
        self.0.what = format!("{what}: {}", self.0.what);
        self
    }

    /// Adds the world rank on which the error was noticed.
    #[must_use]
    pub fn on_rank(mut self, rank: u32) -> Self {
        self.0.rank.get_or_insert(rank);
        self
    }

    /// Adds the name of the device that noticed the error.
    #[must_use]
    pub fn on_device(mut self, device: &'static str) -> Self {
        self.0.device.get_or_insert(device);
        self
    }

    /// Adds the world rank of the peer that the error is about.
    #[must_use]
    pub fn about_peer(mut self, peer: u32) -> Self {
        self.0.peer = Some(peer);
        self
    }

    /// Adds the status of the operation that failed.
    #[must_use]
    pub fn with_status(mut self, status: Status) -> Self {
        self.0.status = Some(status);
        self
    }

    /// Keeps the underlying error, so that programs can get it from
    /// [`source`](std::error::Error::source). The text of this error is expected to include the
    /// text of `cause`.
    #[must_use]
    pub fn caused_by(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.0.cause = Some(Arc::new(cause));
        self
    }

    /// What kind of thing went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The world rank that noticed the error, where it is known.
    #[must_use]
    pub fn rank(&self) -> Option<u32> {
        self.0.rank
    }

    /// The world rank of the peer that the error is about, if it is about one.
    #[must_use]
    pub fn peer(&self) -> Option<u32> {
        self.0.peer
    }

    /// The name of the device that noticed the error, where it is known.
    #[must_use]
    pub fn device(&self) -> Option<&'static str> {
        self.0.device
    }

    /// What to try, as [`remedy`](Self::remedy) has set it. The text of the error ends with it.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.0.remedy.as_deref()
    }

    /// The status of the operation that failed: after a truncation, for example, source, tag and
    /// the bytes that did arrive.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        self.0.status.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.rank, self.0.device) {
            (Some(rank), Some(device)) => write!(f, "rank {rank} ({device}): ")?,
            (Some(rank), None) => write!(f, "rank {rank}: ")?,
            (None, Some(device)) => write!(f, "{device}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.0.what)?;
        if let Some(remedy) = &self.0.remedy {
            write!(f, "; {remedy}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    /// The underlying error, from a part of Portolan: a setting, a layout, an operator or the
    /// launcher. Its text is part of this error's text.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause = self.0.cause.as_deref()?;
        Some(cause)
    }
}

// A shared error, and a shared cause, give no way to change anything.
impl UnwindSafe for Error {}
impl RefUnwindSafe for Error {}

impl From<crate::config::SettingError> for Error {
    #[cold]
    fn from(e: crate::config::SettingError) -> Self {
        Self::new(ErrorKind::InvalidSetting, e.to_string()).caused_by(e)
    }
}

impl From<portolan_datatype::LayoutError> for Error {
    #[cold]
    fn from(e: portolan_datatype::LayoutError) -> Self {
        Self::new(ErrorKind::InvalidLayout, e.to_string()).caused_by(e)
    }
}

impl From<portolan_datatype::OpError> for Error {
    #[cold]
    fn from(e: portolan_datatype::OpError) -> Self {
        use portolan_datatype::OpError;

        let kind = match e {
            OpError::LengthMismatch { .. } => ErrorKind::InvalidCount,
            OpError::InvalidResult { .. } => ErrorKind::InvalidValue,
            _ => ErrorKind::InvalidLayout,
        };
        // No remedy is added: the text already says what to do.
        Self::new(kind, e.to_string()).caused_by(e)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use portolan_datatype::{Op, OpError};

    use super::*;

    #[test]
    fn the_cause_is_kept() {
        let error = Error::from(Op::SUM.apply_slices(&[1], &mut [1, 2]).unwrap_err());
        assert_eq!(error.kind(), ErrorKind::InvalidCount);
        let cause = error.clone().on_rank(3);
        let cause = cause.source().unwrap().downcast_ref::<OpError>();
        assert_eq!(cause.unwrap().to_string(), error.to_string());
        assert!(Error::new(ErrorKind::Internal, "").source().is_none());
    }

    #[test]
    fn every_part_can_be_asked_for() {
        let bare = Error::new(ErrorKind::InvalidRank, "no such rank");
        assert_eq!(
            (bare.rank(), bare.device(), bare.advice()),
            (None, None, None)
        );
        let error = bare.remedy("use rank 0").on_rank(2).on_device("shm");
        assert_eq!((error.rank(), error.device()), (Some(2), Some("shm")));
        assert_eq!(error.advice(), Some("use rank 0"));
        assert_eq!(error.to_string(), "rank 2 (shm): no such rank; use rank 0");
    }

    #[test]
    fn errors_of_settings_convert() {
        let settings = crate::config::Settings::from_variables([("PORTOLAN_SPIN", "never")]);
        let error = Error::from(settings.unwrap_err());
        assert_eq!(error.kind(), ErrorKind::InvalidSetting);
        assert!(error.to_string().contains("PORTOLAN_SPIN=never"), "{error}");
        let cause = error.source().unwrap();
        assert!(cause.is::<crate::config::SettingError>());
    }
}
