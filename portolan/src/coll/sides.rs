//! The buffers of an operation: one to send from, one to receive into, or both.

use portolan_core::{Device, Result, TypedBuf};
use portolan_datatype::Datatype;

use super::alltoallw::Spot;
use super::data::Data;
use crate::Level;
use crate::comm::{Buffer, BufferMut, Comm};

/// The buffers of an operation. Sealed: [`SendRecv`], [`SendOnly`], [`RecvOnly`] and [`NoBuffer`].
pub trait Sides: Sized + Private {
    /// The buffers as the operation gives them back.
    type Buffers;

    /// A view of the values for the program while no operation uses them.
    type View<'a>
    where
        Self: 'a;

    /// The values, for reading while no operation uses them.
    type Look<'a>
    where
        Self: 'a;

    #[doc(hidden)]
    fn into_buffers(self) -> Self::Buffers;

    /// # Safety
    /// No operation uses the buffers for the lifetime of the look.
    #[doc(hidden)]
    unsafe fn look(&self) -> Self::Look<'_>;

    /// # Safety
    /// No operation uses the buffers for the lifetime of the view.
    #[doc(hidden)]
    unsafe fn view(&mut self) -> Self::View<'_>;
}

/// Buffers that include one to receive into: [`SendRecv`] and [`RecvOnly`]. Sealed.
pub trait Receives: Sides + Target {}

impl<B: Sides + Target> Receives for B {}

/// The part of [`Receives`] that operations need.
pub trait Target {
    /// All items of the receive buffer.
    fn target(&self) -> TypedBuf<'_>;

    /// The memory of the send buffer, if there is a separate one, and of the receive buffer.
    fn spots(&self) -> (Option<Spot>, Spot);
}

impl<S: Buffer, R: BufferMut> Target for SendRecv<S, R> {
    fn target(&self) -> TypedBuf<'_> {
        self.recv.all()
    }

    fn spots(&self) -> (Option<Spot>, Spot) {
        (Some(Spot::of(&self.send)), Spot::of(&self.recv))
    }
}

impl<R: BufferMut> Target for RecvOnly<R> {
    fn target(&self) -> TypedBuf<'_> {
        self.recv.all()
    }

    fn spots(&self) -> (Option<Spot>, Spot) {
        (None, Spot::of(&self.recv))
    }
}

/// The part of [`Sides`] that operations need.
pub trait Private: Sized {
    /// Whether any bit pattern that arrives is a valid value.
    const ANY_BITS: bool;
    /// Whether no buffer owns its memory.
    const BORROWED: bool;

    /// All items of the send buffer.
    fn send(&self) -> Option<TypedBuf<'_>>;

    /// All items of the receive buffer.
    fn recv(&self) -> Option<TypedBuf<'_>>;

    /// Checks that layouts stay within their memory.
    fn check<L: Level, D: Device>(&self, comm: &Comm<L, D>) -> Result<()>;

    /// See [`Data::shelter`].
    fn shelter<L: Level, D: Device>(&mut self, comm: &Comm<L, D>) -> Result<()>;

    /// See [`Data::adopt`].
    fn adopt<L: Level, D: Device>(&mut self, comm: &Comm<L, D>) -> Result<()>;

    /// See [`Buffer::abandon`].
    fn abandon(&mut self);
}

/// A buffer to send from and one to receive into; given back as a pair.
#[derive(Debug)]
pub struct SendRecv<S: Buffer, R: BufferMut> {
    pub(super) send: Data<S>,
    pub(super) recv: Data<R>,
}

impl<S: Buffer, R: BufferMut> Sides for SendRecv<S, R> {
    type Buffers = (S, R);
    type View<'a>
        = (S::View<'a>, R::View<'a>)
    where
        Self: 'a;
    type Look<'a>
        = (&'a [S::Item], &'a [R::Item])
    where
        Self: 'a;

    fn into_buffers(self) -> (S, R) {
        (self.send.into_buffer(), self.recv.into_buffer())
    }

    unsafe fn look(&self) -> Self::Look<'_> {
        // SAFETY: from the caller.
        unsafe { (self.send.look(), self.recv.look()) }
    }

    unsafe fn view(&mut self) -> (S::View<'_>, R::View<'_>) {
        // SAFETY: from the caller.
        unsafe { (self.send.view(), self.recv.view()) }
    }
}

impl<S: Buffer, R: BufferMut> Private for SendRecv<S, R> {
    const ANY_BITS: bool = <R::Item as Datatype>::ANY_BITS;
    const BORROWED: bool = S::BORROWED && R::BORROWED;

    fn send(&self) -> Option<TypedBuf<'_>> {
        Some(self.send.all())
    }

    fn recv(&self) -> Option<TypedBuf<'_>> {
        Some(self.recv.all())
    }

    fn check<L: Level, D: Device>(&self, comm: &Comm<L, D>) -> Result<()> {
        self.send.check(comm)?;
        self.recv.check(comm)
    }

    fn shelter<L: Level, D: Device>(&mut self, comm: &Comm<L, D>) -> Result<()> {
        self.recv.shelter(comm)
    }

    fn adopt<L: Level, D: Device>(&mut self, comm: &Comm<L, D>) -> Result<()> {
        self.recv.adopt(comm)
    }

    fn abandon(&mut self) {
        self.send.abandon();
        self.recv.abandon();
    }
}

/// A buffer that is only sent from: that of a rank that contributes and receives nothing.
#[derive(Debug)]
pub struct SendOnly<S: Buffer> {
    pub(super) send: Data<S>,
}

impl<S: Buffer> Sides for SendOnly<S> {
    type Buffers = S;
    type View<'a>
        = S::View<'a>
    where
        Self: 'a;
    type Look<'a>
        = &'a [S::Item]
    where
        Self: 'a;

    fn into_buffers(self) -> S {
        self.send.into_buffer()
    }

    unsafe fn look(&self) -> Self::Look<'_> {
        // SAFETY: from the caller.
        unsafe { self.send.look() }
    }

    unsafe fn view(&mut self) -> S::View<'_> {
        // SAFETY: from the caller.
        unsafe { self.send.view() }
    }
}

impl<S: Buffer> Private for SendOnly<S> {
    const ANY_BITS: bool = true;
    const BORROWED: bool = S::BORROWED;

    fn send(&self) -> Option<TypedBuf<'_>> {
        Some(self.send.all())
    }

    fn recv(&self) -> Option<TypedBuf<'_>> {
        None
    }

    fn check<L: Level, D: Device>(&self, comm: &Comm<L, D>) -> Result<()> {
        self.send.check(comm)
    }

    fn shelter<L: Level, D: Device>(&mut self, _: &Comm<L, D>) -> Result<()> {
        Ok(())
    }

    fn adopt<L: Level, D: Device>(&mut self, _: &Comm<L, D>) -> Result<()> {
        Ok(())
    }

    fn abandon(&mut self) {
        self.send.abandon();
    }
}

/// One buffer that is received into, and in place also sent from.
#[derive(Debug)]
pub struct RecvOnly<R: BufferMut> {
    pub(super) recv: Data<R>,
}

impl<R: BufferMut> Sides for RecvOnly<R> {
    type Buffers = R;
    type View<'a>
        = R::View<'a>
    where
        Self: 'a;
    type Look<'a>
        = &'a [R::Item]
    where
        Self: 'a;

    fn into_buffers(self) -> R {
        self.recv.into_buffer()
    }

    unsafe fn look(&self) -> Self::Look<'_> {
        // SAFETY: from the caller.
        unsafe { self.recv.look() }
    }

    unsafe fn view(&mut self) -> R::View<'_> {
        // SAFETY: from the caller.
        unsafe { self.recv.view() }
    }
}

impl<R: BufferMut> Private for RecvOnly<R> {
    const ANY_BITS: bool = <R::Item as Datatype>::ANY_BITS;
    const BORROWED: bool = R::BORROWED;

    fn send(&self) -> Option<TypedBuf<'_>> {
        None
    }

    fn recv(&self) -> Option<TypedBuf<'_>> {
        Some(self.recv.all())
    }

    fn check<L: Level, D: Device>(&self, comm: &Comm<L, D>) -> Result<()> {
        self.recv.check(comm)
    }

    fn shelter<L: Level, D: Device>(&mut self, comm: &Comm<L, D>) -> Result<()> {
        self.recv.shelter(comm)
    }

    fn adopt<L: Level, D: Device>(&mut self, comm: &Comm<L, D>) -> Result<()> {
        self.recv.adopt(comm)
    }

    fn abandon(&mut self) {
        self.recv.abandon();
    }
}

/// No buffer at all.
#[derive(Debug)]
pub struct NoBuffer;

impl Sides for NoBuffer {
    type Buffers = ();
    type View<'a> = ();
    type Look<'a> = ();

    fn into_buffers(self) {}

    unsafe fn look(&self) {}

    unsafe fn view(&mut self) {}
}

impl Private for NoBuffer {
    const ANY_BITS: bool = true;
    const BORROWED: bool = true;

    fn send(&self) -> Option<TypedBuf<'_>> {
        None
    }

    fn recv(&self) -> Option<TypedBuf<'_>> {
        None
    }

    fn check<L: Level, D: Device>(&self, _: &Comm<L, D>) -> Result<()> {
        Ok(())
    }

    fn shelter<L: Level, D: Device>(&mut self, _: &Comm<L, D>) -> Result<()> {
        Ok(())
    }

    fn adopt<L: Level, D: Device>(&mut self, _: &Comm<L, D>) -> Result<()> {
        Ok(())
    }

    fn abandon(&mut self) {}
}
