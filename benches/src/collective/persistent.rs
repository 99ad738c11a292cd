//! Persistent operations, which own their buffers.

use portolan::Level;
use portolan::coll::{Collective as Call, PersistentCollective};
use portolan::{Comm, Device, Result};

use super::ROOT;
use super::data::Floats;
use super::described::described;
use crate::pattern::Collective;

/// An operation that can be repeated.
pub(super) trait Again {
    /// Starts it and waits until this rank's part in it is complete.
    fn start_and_wait(&mut self) -> Result<()>;
}

impl<C: Call + Send + 'static, L: Level, D: Device> Again for PersistentCollective<C, L, D> {
    fn start_and_wait(&mut self) -> Result<()> {
        self.start()?;
        self.wait()
    }
}

/// Plans an operation on copies of the data. Collective.
pub(super) fn again<L: Level, D: Device + 'static>(
    comm: &Comm<L, D>,
    collective: Collective,
    data: &mut Floats,
) -> Result<Box<dyn Again>> {
    let root = comm.rank() == ROOT;
    let lists = data.lists();
    let (send, recv) = data.both();
    let (send, recv) = (send.to_vec(), recv.to_vec());
    let both = collective
        .has_shapes()
        .then(|| (lists.2.clone(), lists.2.clone()));
    macro_rules! plan {
        ($call:expr) => {
            Box::new(comm.persistent($call).map_err(|failed| failed.error)?)
        };
    }
    let planned: Box<dyn Again> = described!(collective, root, (send, recv), (&lists, both), plan);
    Ok(planned)
}
