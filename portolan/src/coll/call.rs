//! A collective operation with its arguments, whatever form the call has.

use portolan_coll::Operation;
use portolan_coll::inter::InterOperation;
use portolan_core::{Device, ErrorKind, Result};

use super::blocks::wrong;
use super::sides::Sides;
use crate::Level;
use crate::comm::{Comm, InterComm};

/// A collective operation with its arguments: what [`Comm::run`],
/// [`Scope::start`](crate::Scope::start), [`Comm::start_owned`] and [`Comm::persistent`] take, and
/// their twins of [`InterComm`]. Sealed: it is implemented by the operations of [this
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

    /// The operation as the crate of collectives takes it.
    ///
    /// Sound for `portolan_coll::run` as long as `self` lives: the lengths have been checked
    /// against the buffers, and what is received into is not what is sent from, unless in place.
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

/// What a call gives back: the buffers that were given to it.
pub type Buffers<C> = <<C as Collective>::Sides as Sides>::Buffers;

/// The values of a persistent operation between two starts, to be read.
pub type Look<'a, C> = <<C as Collective>::Sides as Sides>::Look<'a>;

/// The values of a persistent operation between two starts: to be changed, but in buffers that are
/// shared.
pub type View<'a, C> = <<C as Collective>::Sides as Sides>::View<'a>;

/// Nobody else may say that their operations are sound.
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
