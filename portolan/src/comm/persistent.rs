//! Persistent requests: made once, started many times. They own their buffer.

use portolan_core::comm::{Source, Tag, Tags};
use portolan_core::level::{Level, Single};
use portolan_core::{Device, ErrorKind, Request, Result, SendMode, Status};

use super::owned::abandon;
use super::parts::Held;
use super::raw::any_bits;
use super::{Comm, Failed, Host, Sealed, StableBuf, StableBufMut, any_request};
use crate::any::AnyDevice;
use crate::coll::IntoData;

impl<L: Level, D: Device> Comm<L, D> {
    /// Makes a persistent send of a buffer, or of a [`strided`](crate::coll::strided) part of one
    /// (MPI-4 section 3.9, `MPI_Send_init`).
    ///
    /// ```
    /// portolan::try_threads(2, |world| {
    ///     let comm = world.comm();
    ///     let other = 1 - comm.rank();
    ///     let mut incoming = comm.recv_init(vec![0u64; 1], other, 0)?;
    ///     let mut outgoing = comm.send_init(vec![0u64; 1], other, 0)?;
    ///     for step in 0..10 {
    ///         outgoing.buf_mut()?[0] = step;
    ///         incoming.start()?;
    ///         outgoing.start()?;
    ///         incoming.wait()?;
    ///         outgoing.wait()?;
    ///         assert_eq!(incoming.buf()?, [step]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`isend_owned`](Self::isend_owned).
    #[doc(alias = "MPI_Send_init")]
    pub fn send_init<B: StableBufMut>(
        &self,
        buf: impl IntoData<Buffer = B>,
        dest: u32,
        tag: impl Into<Tag>,
    ) -> Result<PersistentSend<B, L, D>, Failed<B>> {
        let args = self.inner.send_args(SendMode::Standard, dest, tag.into());
        buf.with_part(|part| {
            let made = args.and_then(|args| {
                // SAFETY: the arguments are this communicator's; while an operation is active no
                // other code reaches the buffer, and it is kept until the operation is complete.
                unsafe { self.init_send_part(&args, &part) }
            });
            Persistent::new(self, made, part.held, false).map(PersistentSend)
        })
    }

    /// Makes a persistent receive into a buffer, or into a [`strided`](crate::coll::strided) part
    /// of one (MPI-4 section 3.9, `MPI_Recv_init`). Wildcards stay wildcards at every start. The
    /// type must be one for which every bit pattern is valid; that is checked when the program is
    /// compiled.
    ///
    /// # Errors
    /// As [`irecv_owned`](Self::irecv_owned).
    #[doc(alias = "MPI_Recv_init")]
    pub fn recv_init<B: StableBufMut>(
        &self,
        buf: impl IntoData<Buffer = B>,
        source: impl Into<Source>,
        tag: impl Into<Tags>,
    ) -> Result<PersistentRecv<B, L, D>, Failed<B>> {
        const {
            any_bits::<B::Item>();
        };
        let pattern = self.inner.pattern(source.into(), tag.into());
        buf.with_part(|part| {
            let made = pattern.and_then(|pattern| {
                // SAFETY: as for sends, and all bits are valid.
                unsafe { self.init_recv_part(&pattern, &part) }
            });
            Persistent::new(self, made, part.held, true).map(PersistentRecv)
        })
    }
}

#[derive(Debug)]
struct Persistent<B: StableBuf, L: Level, D: Device> {
    comm: Comm<L, D>,
    request: Request,
    /// Taken when the program gives up the request.
    held: Option<Held<B>>,
    /// Started and not yet known to be complete: the device owns the buffer.
    active: bool,
    revocable: bool,
}

impl<B: StableBufMut, L: Level, D: Device> Persistent<B, L, D> {
    fn new(
        comm: &Comm<L, D>,
        made: Result<Request>,
        held: Held<B>,
        revocable: bool,
    ) -> Result<Self, Failed<B>> {
        match made {
            Ok(request) => {
                let comm = comm.clone();
                Ok(Self {
                    comm,
                    request,
                    held: Some(held),
                    active: false,
                    revocable,
                })
            }
            Err(error) => Err(Failed {
                buf: held.into_buf(),
                error: comm.fail(error),
            }),
        }
    }

    fn start(&mut self) -> Result<()> {
        self.check_idle("start")?;
        // Set first: if the device panics inside, it is unknown whether the operation has started.
        self.active = true;
        let started = self.comm.hosted().start(self.request);
        self.active = started.is_ok();
        self.comm.raise(started)
    }

    fn wait(&mut self) -> Result<Status> {
        if !self.active {
            return Ok(Status::EMPTY);
        }
        let outcome = self.comm.hosted().wait(self.request);
        self.active = false;
        self.comm.raise(outcome)
    }

    fn test(&mut self) -> Result<Option<Status>> {
        if !self.active {
            return Ok(Some(Status::EMPTY));
        }
        let outcome = self.comm.hosted().test(self.request);
        self.active = matches!(outcome, Ok(None));
        self.comm.raise(outcome)
    }

    fn check_idle(&self, what: &str) -> Result<()> {
        if !self.active {
            return Ok(());
        }
        self.comm.raise(Err(self.comm.inner.error(
            ErrorKind::InvalidRequest,
            format!("cannot {what} a persistent request that is active"),
            "wait for it first",
        )))
    }

    fn buf(&self) -> Result<&[B::Item]> {
        self.check_idle("look into the buffer of")?;
        let held = self.held();
        // SAFETY: no operation is active, so the values are the owner's: valid, and borrowed with
        // the request.
        Ok(unsafe { std::slice::from_raw_parts(held.ptr(), held.len()) })
    }

    fn buf_mut(&mut self) -> Result<&mut [B::Item]> {
        self.check_idle("change the buffer of")?;
        let held = self.held();
        // SAFETY: as in `buf`; the request is borrowed mutably, and the buffer has no other user.
        Ok(unsafe { std::slice::from_raw_parts_mut(held.ptr(), held.len()) })
    }

    fn held(&self) -> &Held<B> {
        self.held
            .as_ref()
            .expect("the buffer is held until the request is given up")
    }

    fn into_buf(mut self) -> Result<B, Failed<B>> {
        let outcome = self.wait();
        let _ = self.comm.hosted().free(self.request);
        let held = self
            .held
            .take()
            .expect("the buffer is held until the request is given up");
        let buf = held.into_buf();
        match outcome {
            Ok(_) => Ok(buf),
            Err(error) => Err(Failed { buf, error }),
        }
    }
}

impl<B: StableBuf, L: Level, D: Device> Sealed for Persistent<B, L, D> {
    fn host(&self) -> Option<&dyn Host> {
        self.active.then(|| self.comm.hosted() as &dyn Host)
    }

    fn is_over(&self) -> bool {
        // As for requests that are started once, the next call returns an error.
        self.active && !matches!(self.comm.hosted().peek(self.request), Ok(None))
    }
}

impl<B: StableBuf, L: Level, D: Device> Drop for Persistent<B, L, D> {
    fn drop(&mut self) {
        let Some(mut held) = self.held.take() else {
            return;
        };
        let device = self.comm.hosted();
        if self.active {
            held.abandon();
            abandon(device, self.request, held, self.revocable);
        }
        // The request is inactive now. If it was already given up, the device rightly refuses.
        let _ = device.free(self.request);
    }
}

macro_rules! persistent {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[must_use = "a persistent operation does nothing unless it is started"]
        #[derive(Debug)]
        pub struct $name<B: StableBufMut, L: Level = Single, D: Device = AnyDevice<L>>(
            Persistent<B, L, D>,
        );

        any_request!([B: StableBufMut, L: Level, D: Device] $name<B, L, D>, 0);

        impl<B: StableBufMut, L: Level, D: Device> $name<B, L, D> {
            /// Starts the operation (MPI-4 section 3.9, `MPI_Start`).
            ///
            /// # Errors
            /// [`InvalidRequest`](ErrorKind::InvalidRequest) if it is active,
            /// [`PeerFailed`](ErrorKind::PeerFailed).
            #[doc(alias = "MPI_Start")]
            pub fn start(&mut self) -> Result<()> {
                self.0.start()
            }

            /// Waits until the operation is complete (MPI-4 section 3.7.3, `MPI_Wait`). Returns at
            /// once, with an empty status, if it was not started.
            ///
            /// # Errors
            /// That of the operation, which is complete then.
            #[doc(alias = "MPI_Wait")]
            pub fn wait(&mut self) -> Result<Status> {
                self.0.wait()
            }

            /// The status, if the operation is complete (MPI-4 section 3.7.3, `MPI_Test`). Makes
            /// progress.
            ///
            /// # Errors
            /// That of the operation, which is complete then.
            #[doc(alias = "MPI_Test")]
            pub fn test(&mut self) -> Result<Option<Status>> {
                self.0.test()
            }

            /// Asks for the active operation to be cancelled (MPI-4 section 3.8.4, `MPI_Cancel`).
            /// The status of [`wait`](Self::wait) says whether it was.
            ///
            /// # Errors
            /// [`Finalized`](ErrorKind::Finalized).
            #[doc(alias = "MPI_Cancel")]
            pub fn cancel(&self) -> Result<()> {
                if !self.0.active {
                    return Ok(());
                }
                self.0.comm.raise(self.0.comm.hosted().cancel(self.0.request))
            }

            /// The values. They can be read only while no operation is active.
            ///
            /// # Errors
            /// [`InvalidRequest`](ErrorKind::InvalidRequest) if an operation is active.
            pub fn buf(&self) -> Result<&[B::Item]> {
                self.0.buf()
            }

            /// The values, for writing. They can be changed only while no operation is active.
            ///
            /// # Errors
            /// [`InvalidRequest`](ErrorKind::InvalidRequest) if an operation is active.
            pub fn buf_mut(&mut self) -> Result<&mut [B::Item]> {
                self.0.buf_mut()
            }

            /// Gives the buffer back, after waiting for the operation if one is active.
            ///
            /// # Errors
            /// That of the operation, with the buffer.
            pub fn into_buf(self) -> Result<B, Failed<B>> {
                self.0.into_buf()
            }
        }
    };
}

persistent! {
    /// A send that can be started again and again ([`Comm::send_init`]).
    ///
    /// Dropping an active send does not stop the message.
    PersistentSend
}

persistent! {
    /// A receive that can be started again and again ([`Comm::recv_init`]).
    ///
    /// Dropping an active receive cancels it.
    PersistentRecv
}
