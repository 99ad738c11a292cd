//! A collective operation with its arguments, independent of the form of the call.

use portolan_coll::Operation;
use portolan_coll::inter::InterOperation;
use portolan_core::{Device, ErrorKind, Result};

use super::blocks::wrong;
use super::sides::Sides;
use crate::Level;
use crate::comm::{Comm, InterComm};

/// A collective operation with its arguments: accepted by [`Comm::run`],
/// [`Scope::start`](crate::Scope::start), [`Comm::start_owned`] and [`Comm::persistent`], and by
/// the same calls of [`InterComm`]. Sealed: it is implemented by the operations of [this
/// module](crate::coll).
pub trait Collective: Sized + Sealed {
    /// Its buffers.
    type Sides: Sides;

    #[doc(hidden)]
    fn sides(&self) -> &Self::Sides;

    #[doc(hidden)]
    fn sides_mut(&mut self) -> &mut Self::Sides;

    #[doc(hidden)]
    fn into_sides(self) -> Self::Sides;

    /// The operation in the form that the crate of collectives takes.
    ///
    /// It is sound for `portolan_coll::run` as long as `self` lives: the lengths have been checked
    /// against the buffers, and the receive buffer does not overlap the send buffer, except in
    /// place.
    #[doc(hidden)]
    fn operation<L: Level, D: Device>(&self, comm: &Comm<L, D>) -> Result<Operation<'_>>;

    /// The operation between two groups; as sound as [`operation`](Self::operation).
    #[doc(hidden)]
    fn between<L: Level, D: Device>(&self, inter: &InterComm<L, D>) -> Result<InterOperation<'_>> {
        Err(wrong(
            inter.remote(),
            "collective operation",
            ErrorKind::InvalidCommunicator,
            "there is no such operation between two groups",
            "scans, neighbours and forms in place are for ordinary communicators",
        ))
    }
}

/// The buffers that were given to a call, as it gives them back.
pub type Buffers<C> = <<C as Collective>::Sides as Sides>::Buffers;

/// The values of a persistent operation between two starts, for reading.
pub type Look<'a, C> = <<C as Collective>::Sides as Sides>::Look<'a>;

/// The values of a persistent operation between two starts, for writing, except in buffers that are
/// shared.
pub type View<'a, C> = <<C as Collective>::Sides as Sides>::View<'a>;

/// Keeps other crates from implementing `Collective`, and so from claiming that their operations
/// are sound.
pub trait Sealed {}

/// The items of [`Collective`] that are the same for every operation with a field `sides`.
macro_rules! has_sides {
    ($sides:ty) => {
        type Sides = $sides;

        fn sides(&self) -> &$sides {
            &self.sides
        }

        fn sides_mut(&mut self) -> &mut $sides {
            &mut self.sides
        }

        fn into_sides(self) -> $sides {
            self.sides
        }
    };
}

pub(super) use has_sides;
