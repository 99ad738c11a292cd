//! Requests that own their buffer: they may outlive the function that made them.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use portolan_core::comm::{Source, Tag, Tags};
use portolan_core::level::{Level, Single};
use portolan_core::{Device, Error, Request, Result, SendMode, Status, device};

use super::part::Part;
use super::parts::Held;
use super::raw::any_bits;
use super::{Comm, Host, OwnedRequest, Sealed, StableBuf, StableBufMut, any_request};
use crate::any::AnyDevice;
use crate::coll::IntoData;
use crate::wakers::Suspended;

/// The result of a completed operation, with its buffer.
#[derive(Debug)]
#[non_exhaustive]
pub struct Completion<B> {
    /// The buffer, given back by the runtime.
    pub buf: B,
    /// The status. Source and tag are those of a received message; they mean nothing for a send
    /// ([`Status::has_message`]).
    pub status: Status,
}

/// The error of an operation that failed, with its buffer. `?` turns it into its [`Error`].
#[non_exhaustive]
pub struct Failed<B> {
    /// The buffer, given back by the runtime.
    pub buf: B,
    /// Why it failed.
    pub error: Error,
}

impl<B> fmt::Debug for Failed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<B> fmt::Display for Failed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<B> std::error::Error for Failed<B> {
    /// The error without the buffer. Its text is this error's text.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl<B> From<Failed<B>> for Error {
    fn from(failed: Failed<B>) -> Self {
        failed.error
    }
}

impl<L: Level, D: Device> Comm<L, D> {
    /// Starts a send of a buffer that the request owns until the operation is complete (MPI-4
    /// section 3.7.2, `MPI_Isend`): a `Vec`, `Box<[T]>`, `Arc<[T]>` or `&'static [T]`, the memory
    /// of [`alloc`](Self::alloc), or a [`strided`](crate::coll::strided) part of one.
    ///
    /// ```
    /// portolan::try_threads(2, |world| {
    ///     let comm = world.comm();
    ///     let other = 1 - comm.rank();
    ///     let incoming = comm.irecv_owned(vec![0.0; 3], other, 7)?;
    ///     let outgoing = comm.isend_owned(vec![1.0, 2.0, 3.0], other, 7)?;
    ///     assert_eq!(incoming.wait()?.buf, [1.0, 2.0, 3.0]);
    ///     let reusable: Vec<f64> = outgoing.wait()?.buf;
    ///     assert_eq!(reusable.len(), 3);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`send`](Self::send), and [`Exhausted`](crate::ErrorKind::Exhausted) when too many
    /// requests are active, [`InvalidBuffer`](crate::ErrorKind::InvalidBuffer) if the items of a
    /// layout reach beyond the buffer. The error gives the buffer back.
    #[doc(alias = "MPI_Isend")]
    pub fn isend_owned<B: StableBuf>(
        &self,
        buf: impl IntoData<Buffer = B>,
        dest: u32,
        tag: impl Into<Tag>,
    ) -> Result<SendRequest<B, L, D>, Failed<B>> {
        let tag = tag.into();
        buf.with_part(|part| self.isend_in_mode(SendMode::Standard, part, dest, tag))
    }

    /// As [`isend_owned`](Self::isend_owned), but the send is complete only after a receive has
    /// matched it (MPI-4 section 3.7.2, `MPI_Issend`).
    ///
    /// # Errors
    /// As [`isend_owned`](Self::isend_owned).
    #[doc(alias = "MPI_Issend")]
    pub fn issend_owned<B: StableBuf>(
        &self,
        buf: impl IntoData<Buffer = B>,
        dest: u32,
        tag: impl Into<Tag>,
    ) -> Result<SendRequest<B, L, D>, Failed<B>> {
        let tag = tag.into();
        buf.with_part(|part| self.isend_in_mode(SendMode::Synchronous, part, dest, tag))
    }

    // Inlined, so that whether the message is a part of the buffer is known at compile time.
    #[inline(always)]
    fn isend_in_mode<B: StableBuf>(
        &self,
        mode: SendMode,
        part: Part<'_, B>,
        dest: u32,
        tag: Tag,
    ) -> Result<SendRequest<B, L, D>, Failed<B>> {
        let started = self.inner.send_args(mode, dest, tag).and_then(|args| {
            // SAFETY: the arguments are this communicator's; the request holds the buffer until it
            // is complete, or leaves it to the device.
            unsafe { self.start_send_part(&args, &part) }
        });
        Pending::new(self, started, part.held, false).map(SendRequest)
    }

    /// Starts a receive into a buffer that the request owns until the operation is complete (MPI-4
    /// section 3.7.2, `MPI_Irecv`): a `Vec` (its values, not its spare capacity) or `Box<[T]>`, or
    /// the memory of [`alloc`](Self::alloc), or a [`strided`](crate::coll::strided) part of one.
    ///
    /// The type must be one for which every bit pattern is valid; that is checked when the program
    /// is compiled. Receive `bool`s and enums with [`recv`](Self::recv) or
    /// [`match_recv`](Self::match_recv).
    ///
    /// # Errors
    /// [`InvalidRank`](crate::ErrorKind::InvalidRank),
    /// [`InvalidTag`](crate::ErrorKind::InvalidTag), [`Exhausted`](crate::ErrorKind::Exhausted)
    /// when too many requests are active, [`InvalidBuffer`](crate::ErrorKind::InvalidBuffer) if the
    /// items of a layout reach beyond the buffer. The error gives the buffer back.
    #[doc(alias = "MPI_Irecv")]
    pub fn irecv_owned<B: StableBufMut>(
        &self,
        buf: impl IntoData<Buffer = B>,
        source: impl Into<Source>,
        tag: impl Into<Tags>,
    ) -> Result<RecvRequest<B, L, D>, Failed<B>> {
        const {
            any_bits::<B::Item>();
        };
        let pattern = self.inner.pattern(source.into(), tag.into());
        buf.with_part(|part| {
            let started = pattern.and_then(|pattern| {
                // SAFETY: the pattern is this communicator's; the request holds the buffer, which
                // is writable, until it is complete, or leaves it to the device. All bits are
                // valid.
                unsafe { self.start_recv_part(&pattern, &part) }
            });
            Pending::new(self, started, part.held, true).map(RecvRequest)
        })
    }
}

/// An operation and its buffer, until it is complete.
#[derive(Debug)]
struct Pending<B: StableBuf, L: Level, D: Device> {
    comm: Comm<L, D>,
    request: Request,
    /// Taken when the operation is complete.
    held: Option<Held<B>>,
    /// Whether dropping the request cancels the operation. An abandoned receive that stayed posted
    /// would take a message meant for another receive.
    revocable: bool,
}

impl<B: StableBuf, L: Level, D: Device> Pending<B, L, D> {
    fn new(
        comm: &Comm<L, D>,
        started: Result<Request>,
        held: Held<B>,
        revocable: bool,
    ) -> Result<Self, Failed<B>> {
        match started {
            Ok(request) => Ok(Self {
                comm: comm.clone(),
                request,
                held: Some(held),
                revocable,
            }),
            Err(error) => Err(Failed {
                buf: held.into_buf(),
                error: comm.fail(error),
            }),
        }
    }

    fn wait(mut self) -> Result<Completion<B>, Failed<B>> {
        // If the device panics, `held` is still set, and `drop` deals with it.
        let outcome = self.comm.hosted().wait(self.request);
        let held = self
            .held
            .take()
            .expect("the buffer is held until the operation is over");
        let buf = held.into_buf();
        match outcome {
            Ok(status) => Ok(Completion { buf, status }),
            Err(error) => Err(Failed {
                buf,
                error: self.comm.fail(error),
            }),
        }
    }

    fn is_complete(&self) -> bool {
        // An error means that the next call returns it, so that counts as complete too.
        !matches!(self.comm.hosted().peek(self.request), Ok(None))
    }
}

impl<B: StableBuf, L: Level, D: Device> Sealed for Pending<B, L, D> {
    fn host(&self) -> Option<&dyn Host> {
        Some(self.comm.hosted())
    }

    fn is_over(&self) -> bool {
        self.is_complete()
    }

    fn suspend(&self, waker: &Waker) -> Option<Suspended> {
        self.comm.hosted().suspend(self.request, waker)
    }
}

impl<B: StableBuf, L: Level, D: Device> Drop for Pending<B, L, D> {
    fn drop(&mut self) {
        let Some(mut held) = self.held.take() else {
            return;
        };
        held.abandon();
        abandon(self.comm.hosted(), self.request, held, self.revocable);
    }
}

/// Gives up an active request. Buffers in `held` have been [told](super::Buffer::abandon). If the
/// request is complete or can be cancelled, it ends at once; otherwise the device keeps the buffer
/// until the request is complete.
pub(crate) fn abandon<K: Send + 'static, D: Device>(
    device: &D,
    request: Request,
    held: K,
    revocable: bool,
) {
    if revocable {
        // The completion shows whether the cancel failed.
        let _ = device.cancel(request);
    }
    if let Ok(None) = device.test(request) {
        // An error would mean that the request has ended in the meantime, in which case it is right
        // to drop the buffer.
        let _ = device.attach(
            request,
            device::Completion {
                keep: Box::new(held),
                then: None,
            },
        );
        let _ = device.free(request);
    }
}

macro_rules! request {
    ($(#[$doc:meta])* $name:ident, $buf:ident) => {
        $(#[$doc])*
        #[must_use = "dropping a request gives its operation up"]
        #[derive(Debug)]
        pub struct $name<B: $buf, L: Level = Single, D: Device = AnyDevice<L>>(Pending<B, L, D>);

        impl<B: $buf, L: Level, D: Device> $name<B, L, D> {
            /// Waits until the operation is complete (MPI-4 section 3.7.3, `MPI_Wait`) and gives
            /// the buffer back.
            ///
            /// # Errors
            /// That of the operation, with the buffer.
            #[doc(alias = "MPI_Wait")]
            pub fn wait(self) -> Result<Completion<B>, Failed<B>> {
                self.0.wait()
            }

            /// Whether [`wait`](Self::wait) would return at once (MPI-4 section 3.7.3,
            /// `MPI_Request_get_status`). Makes progress.
            #[doc(alias = "MPI_Request_get_status")]
            #[must_use]
            pub fn is_complete(&self) -> bool {
                self.0.is_complete()
            }

            /// Asks for the operation to be cancelled (MPI-4 section 3.8.4, `MPI_Cancel`). The
            /// status of [`wait`](Self::wait) says whether it was.
            ///
            /// # Errors
            /// [`Finalized`](crate::ErrorKind::Finalized).
            #[doc(alias = "MPI_Cancel")]
            pub fn cancel(&self) -> Result<()> {
                self.0.comm.raise(self.0.comm.hosted().cancel(self.0.request))
            }
        }

        any_request!([B: $buf, L: Level, D: Device] $name<B, L, D>, 0);

        impl<B: $buf, L: Level, D: Device> OwnedRequest for $name<B, L, D> {
            type Buf = B;

            fn wait(self) -> Result<Completion<B>, Failed<B>> {
                self.0.wait()
            }

            fn is_complete(&self) -> bool {
                self.0.is_complete()
            }
        }

        impl<B: $buf, L: Level, D: Device> IntoFuture for $name<B, L, D> {
            type Output = Result<Completion<B>, Failed<B>>;
            type IntoFuture = RequestFuture<Self>;

            fn into_future(self) -> RequestFuture<Self> {
                RequestFuture::new(self)
            }
        }
    };
}

request! {
    /// A send that owns its buffer ([`Comm::isend_owned`]).
    ///
    /// Dropping an incomplete send does not stop the message: the runtime keeps the buffer until
    /// the send is complete. Forgetting a send leaks the buffer.
    SendRequest, StableBuf
}

request! {
    /// A receive that owns its buffer ([`Comm::irecv_owned`]).
    ///
    /// Dropping an incomplete receive cancels it. Forgetting one leaks the buffer, which a message
    /// may still fill.
    RecvRequest, StableBufMut
}

/// Polls for which a future asks to be polled again at once, before its task is suspended. Short
/// operations are over by then, and need neither the thread that wakes tasks nor a switch of tasks.
const CLOSELY: u32 = 64;

/// A request as a future; made by `.await`.
///
/// At level [`Multiple`](crate::Multiple) a task is suspended until its operation is complete. A
/// thread of the runtime waits for the operations of all tasks, as a blocking call does: it spins
/// briefly, then sleeps. It starts when a task is first suspended, and ends with the rank. Before
/// that, for the first 64 polls, the future asks to be polled again at once.
///
/// At level [`Single`](crate::Single) no other thread may use the device, so awaiting polls without
/// pause: it keeps one thread of its executor busy, and the other tasks of that thread take turns
/// with it. The same holds for devices of one's own
/// ([`World::from_device`](crate::World::from_device)), for the ranks of
/// [`in_process`](crate::in_process), and if no thread can be started (which is logged).
#[derive(Debug)]
#[must_use = "futures do nothing unless they are polled"]
pub struct RequestFuture<R> {
    request: Option<R>,
    polls: u32,
    /// Dropped before the request would be, if the future is.
    suspended: Option<Suspended>,
}

// The request is never pinned: its buffer is elsewhere.
impl<R> Unpin for RequestFuture<R> {}

impl<R> RequestFuture<R> {
    pub(crate) fn new(request: R) -> Self {
        Self {
            request: Some(request),
            polls: 0,
            suspended: None,
        }
    }
}

impl<R: OwnedRequest> RequestFuture<R> {
    /// Takes the request, if it is complete.
    fn take_complete(&mut self) -> Option<R> {
        let request = self.request.as_ref();
        let request = request.expect("a future is not polled after it was ready");
        if !request.is_complete() {
            return None;
        }
        self.suspended = None;
        self.request.take()
    }
}

impl<R: OwnedRequest> Future for RequestFuture<R> {
    type Output = Result<Completion<R::Buf>, Failed<R::Buf>>;

    /// # Panics
    /// If it is polled again after it has returned `Ready`.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(request) = self.take_complete() {
            return Poll::Ready(request.wait());
        }
        if self.polls >= CLOSELY {
            // What it replaces belongs to the same request, so it must not end after the new one
            // begins.
            self.suspended = None;
            self.suspended = self
                .request
                .as_ref()
                .and_then(|request| request.suspend(cx.waker()));
            if self.suspended.is_some() {
                // It may have become complete just before.
                return match self.take_complete() {
                    Some(request) => Poll::Ready(request.wait()),
                    None => Poll::Pending,
                };
            }
        }
        self.polls = self.polls.saturating_add(1);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
