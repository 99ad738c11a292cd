//! The status of a completed operation.

use portolan_datatype::{Datatype, MsgRep};

use crate::error::ErrorKind;

/// Source, tag, error, byte count and cancellation of a completed operation (`MPI_Status`).
///
/// Source and tag are those of the message that was received or probed. For anything else (a send,
/// a collective operation, a cancelled operation) they are meaningless: check with
/// [`has_message`](Self::has_message).
#[doc(alias = "MPI_Status")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Rank of the sender in the communicator of the receive; `u32::MAX` if no message was
    /// received.
    pub source: u32,
    /// Tag of the message; `u32::MAX` if no message was received.
    pub tag: u32,
    /// Why the operation failed, if it did.
    pub error: Option<ErrorKind>,
    /// Bytes of the message that were delivered, in the packed stream. A truncated receive counts
    /// only the bytes that fitted into the buffer; [`sent`](Self::sent) is the length of the whole
    /// message.
    pub bytes: u64,
    /// Bytes of the message as it was sent.
    pub sent: u64,
    /// Whether the operation was cancelled (`MPI_Test_cancelled`). Nothing was transferred then.
    #[doc(alias = "MPI_Test_cancelled")]
    pub cancelled: bool,
    /// Representation of the bytes that were delivered. Native, unless a contiguous receive of
    /// bytes took them unconverted.
    pub rep: MsgRep,
}

impl Status {
    /// The status of an operation that moved nothing (a null or inactive request, a send).
    pub const EMPTY: Self = Self {
        source: u32::MAX,
        tag: u32::MAX,
        error: None,
        bytes: 0,
        sent: 0,
        cancelled: false,
        rep: MsgRep::Native,
    };

    /// Whether the operation succeeded with native data, so that sender, tag and lengths say
    /// everything.
    #[inline]
    pub(crate) fn is_good(&self) -> bool {
        self.error.is_none() && !self.cancelled && self.rep == MsgRep::Native
    }

    /// Whether source and tag are those of a message. They are not after a send, nor after an
    /// operation that moved nothing.
    ///
    /// ```
    /// use portolan_core::Status;
    ///
    /// assert!(Status::received(0, 7, 24).has_message());
    /// assert!(!Status::EMPTY.has_message());
    /// ```
    #[inline]
    #[must_use]
    pub fn has_message(&self) -> bool {
        self.source != Self::EMPTY.source
    }

    /// The same status with an error.
    #[must_use]
    pub fn with_error(self, error: ErrorKind) -> Self {
        Self {
            error: Some(error),
            ..self
        }
    }

    /// The status of an operation that was cancelled before it matched.
    #[must_use]
    pub fn cancelled() -> Self {
        Self {
            cancelled: true,
            ..Self::EMPTY
        }
    }

    /// How many values of `T` were delivered (`MPI_Get_count`); `None` if they end inside one.
    ///
    /// ```
    /// use portolan_core::Status;
    ///
    /// let status = Status::received(0, 7, 24);
    /// assert_eq!(status.count::<f64>(), Some(3));
    /// assert_eq!(status.count::<[f64; 2]>(), None);
    /// ```
    #[doc(alias = "MPI_Get_count")]
    #[must_use]
    pub fn count<T: Datatype>(&self) -> Option<usize> {
        let bytes = usize::try_from(self.bytes).ok()?;
        if T::PACKED_SIZE == 0 {
            return (bytes == 0).then_some(0);
        }
        bytes
            .is_multiple_of(T::PACKED_SIZE)
            .then(|| bytes / T::PACKED_SIZE)
    }

    /// A successful receive of `bytes` bytes.
    #[inline]
    #[must_use]
    pub fn received(source: u32, tag: u32, bytes: u64) -> Self {
        Self {
            source,
            tag,
            error: None,
            bytes,
            sent: bytes,
            cancelled: false,
            rep: MsgRep::Native,
        }
    }
}
