//! Barrier and broadcast.

use portolan_coll::Operation;
use portolan_coll::inter::InterOperation;
use portolan_core::{Device, Error, ErrorKind, Result};

use super::blocks::wrong;
use super::call::{Collective, Sealed, has_sides};
use super::data::IntoData;
use super::root::Root;
use super::sides::{NoBuffer, RecvOnly, SendOnly, Sides};
use crate::Level;
use crate::comm::{Buffer, BufferMut, Comm, InterComm};

const NAME: &str = "bcast";

/// Completes when every rank has started it (MPI-4 section 6.3, `MPI_Barrier`). Short form:
/// [`Comm::barrier`].
///
/// ```
/// use portolan::coll::Barrier;
///
/// portolan::try_threads(3, |world| {
///     let comm = world.comm();
///     let all_here = comm.start_owned(Barrier::new())?;
///     // … whatever needs nobody …
///     all_here.wait()?;
///     Ok(())
/// })?;
/// # Ok::<(), portolan::Error>(())
/// ```
#[doc(alias = "MPI_Barrier")]
#[derive(Debug)]
pub struct Barrier {
    sides: NoBuffer,
}

impl Barrier {
    /// A barrier.
    #[must_use]
    pub fn new() -> Self {
        Self { sides: NoBuffer }
    }
}

impl Default for Barrier {
    fn default() -> Self {
        Self::new()
    }
}

impl Sealed for Barrier {}

impl Collective for Barrier {
    has_sides!(NoBuffer);

    fn operation<L: Level, D: Device>(&self, _: &Comm<L, D>) -> Result<Operation<'_>> {
        Ok(Operation::Barrier)
    }

    fn between<L: Level, D: Device>(&self, _: &InterComm<L, D>) -> Result<InterOperation<'_>> {
        Ok(InterOperation::Barrier)
    }
}

/// Copies the values of one rank to every rank (MPI-4 section 6.4, `MPI_Bcast`). Short forms:
/// [`Comm::bcast`], [`Comm::bcast_one`].
///
/// Every rank gives a buffer of the same length.
///
/// ```
/// use portolan::coll::Bcast;
///
/// let got = portolan::try_threads(3, |world| {
///     let comm = world.comm();
///     let mut data = [0u8; 4];
///     if comm.rank() == 1 {
///         data = *b"ahoy";
///     }
///     comm.run(Bcast::new(&mut data, 1))?;
///     Ok(data)
/// })?;
/// assert_eq!(got, [*b"ahoy"; 3]);
/// # Ok::<(), portolan::Error>(())
/// ```
#[doc(alias = "MPI_Bcast")]
#[derive(Debug)]
#[must_use = "arguments do nothing by themselves: give them to Comm::run"]
pub struct Bcast<B: Sides> {
    sides: B,
    root: Root,
}

impl<B: BufferMut> Bcast<RecvOnly<B>> {
    /// Copies the `data` of rank `root` to the `data` of all other ranks.
    pub fn new(data: impl IntoData<Buffer = B>, root: impl Into<Root>) -> Self {
        let recv = data.into_data();
        Self {
            sides: RecvOnly { recv },
            root: root.into(),
        }
    }
}

impl<B: Buffer> Bcast<SendOnly<B>> {
    /// The root's call, for data that it cannot or need not change. The other ranks call
    /// [`new`](Bcast::new).
    pub fn from_root(data: impl IntoData<Buffer = B>, root: impl Into<Root>) -> Self {
        let send = data.into_data();
        Self {
            sides: SendOnly { send },
            root: root.into(),
        }
    }
}

impl<B: Sides> Sealed for Bcast<B> {}

impl<B: Sides> Collective for Bcast<B> {
    has_sides!(B);

    #[inline(always)]
    fn operation<L: Level, D: Device>(&self, comm: &Comm<L, D>) -> Result<Operation<'_>> {
        let root = self.root.rank(comm, NAME)?;
        self.sides.check(comm)?;
        let read_only = self.sides.send();
        if read_only.is_some() && comm.rank() != root {
            let what = format!("only the root, rank {root} here, can give data that is only read");
            return Err(only_read(comm, &what));
        }
        match read_only.or_else(|| self.sides.recv()) {
            Some(data) => Ok(Operation::Bcast { data, root }),
            None => Ok(Operation::Barrier),
        }
    }
    fn between<L: Level, D: Device>(&self, inter: &InterComm<L, D>) -> Result<InterOperation<'_>> {
        let comm = inter.remote();
        self.sides.check(comm)?;
        let read_only = self.sides.send();
        if read_only.is_some() && self.root.is_remote() {
            return Err(only_read(
                comm,
                "only the root can give data that is only read",
            ));
        }
        Ok(InterOperation::Bcast {
            data: read_only.or_else(|| self.sides.recv()),
            root: self.root.between(),
        })
    }
}

#[cold]
fn only_read<L: Level, D: Device>(comm: &Comm<L, D>, what: &str) -> Error {
    let remedy = "use Bcast::new on the other ranks";
    wrong(comm, NAME, ErrorKind::InvalidBuffer, what, remedy)
}
