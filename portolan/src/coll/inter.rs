//! Operations between two groups: the forms of a call on intercommunicators.

use portolan_core::{Device, Result};

use super::call::{Buffers, Collective};
use super::forms::any_bits;
use super::ground::Ground;
use super::{Barrier, CollectiveRequest, PersistentCollective};
use crate::Level;
use crate::comm::{Failed, InterComm};

/// # Collective operations
/// The operations of [`coll`](crate::coll), with their meaning for two groups (MPI-4 section
/// 6.2.2): a rank receives what the *other* group contributes. Where an operation has a root, ranks
/// of the other group name it by its rank, the root itself gives
/// [`Root::Here`](crate::coll::Root::Here), and the other ranks of its group give
/// [`Root::Beside`](crate::coll::Root::Beside). Blocks belong to the ranks of the other group.
/// There are no scans, no neighbour operations and no in-place forms.
impl<L: Level, D: Device> InterComm<L, D> {
    /// Runs a collective operation, as [`Comm::run`](crate::Comm::run) does.
    ///
    /// ```
    /// use portolan::coll::{Allreduce, Bcast, Root};
    /// use portolan::{Op, RemoteLeader};
    ///
    /// // Three ranks on one side, two on the other.
    /// portolan::try_threads(5, |world| {
    ///     let all = world.comm();
    ///     let left = all.rank() < 3;
    ///     let own = all.split(u32::from(left), 0)?.expect("everybody has a side");
    ///     let remote = RemoteLeader { peer: &all, rank: if left { 3 } else { 0 }, tag: 1.into() };
    ///     let inter = own.intercomm_create(0, Some(remote))?;
    ///
    ///     let mut theirs = [0];
    ///     inter.run(Allreduce::new(&[1], &mut theirs, Op::SUM))?;
    ///     assert_eq!(theirs, [if left { 2 } else { 3 }]);
    ///
    ///     // From rank 1 on the left to everybody on the right.
    ///     let root = match (left, inter.rank()) {
    ///         (false, _) => Root::Rank(1),
    ///         (true, 1) => Root::Here,
    ///         (true, _) => Root::Beside,
    ///     };
    ///     let mut data = [if root == Root::Here { 7 } else { 0 }];
    ///     inter.run(Bcast::new(&mut data, root))?;
    ///     assert_eq!(data, [if root == Root::Beside { 0 } else { 7 }]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Comm::run`](crate::Comm::run), and
    /// [`InvalidCommunicator`](crate::ErrorKind::InvalidCommunicator) for operations and forms that
    /// do not exist between two groups.
    pub fn run<C: Collective>(&self, call: C) -> Result<Buffers<C>> {
        self.remote().raise(self.run_checked(call))
    }

    /// Returns when every rank of both groups has called it (MPI-4 section 6.3, `MPI_Barrier`).
    ///
    /// # Errors
    /// [`PeerFailed`](crate::ErrorKind::PeerFailed).
    #[doc(alias = "MPI_Barrier")]
    pub fn barrier(&self) -> Result<()> {
        self.run(Barrier::new())
    }

    /// Starts a collective operation that owns its buffers, as
    /// [`Comm::start_owned`](crate::Comm::start_owned) does.
    ///
    /// # Errors
    /// As [`Comm::start_owned`](crate::Comm::start_owned) and [`run`](Self::run). The error gives
    /// the buffers back.
    pub fn start_owned<C: Collective + Send + 'static>(
        &self,
        call: C,
    ) -> Result<CollectiveRequest<C, L, D>, Failed<Buffers<C>>> {
        const {
            any_bits::<C>();
        };
        CollectiveRequest::start(self, call)
    }

    /// Plans a collective operation that can be started again and again, as
    /// [`Comm::persistent`](crate::Comm::persistent) does.
    ///
    /// # Errors
    /// As [`run`](Self::run) before any message is sent. The error gives the buffers back.
    pub fn persistent<C: Collective + Send + 'static>(
        &self,
        call: C,
    ) -> Result<PersistentCollective<C, L, D>, Failed<Buffers<C>>> {
        const {
            any_bits::<C>();
        };
        PersistentCollective::plan(self, call)
    }
}
