//! Which rank is the root.

use portolan_coll::inter;
use portolan_core::{Device, ErrorKind, Result};

use super::blocks::wrong;
use crate::Level;
use crate::comm::Comm;

/// Which rank is the root of an operation. On a communicator a rank, and a plain number will do;
/// between two groups also whether it is on the caller's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Root {
    /// That rank; between two groups, of the other one.
    Rank(u32),
    /// Between two groups: this rank (`MPI_ROOT`).
    #[doc(alias = "MPI_ROOT")]
    Here,
    /// Between two groups: another rank of the caller's (`MPI_PROC_NULL`). This rank takes part by
    /// calling, and its buffers are not looked at.
    #[doc(alias = "MPI_PROC_NULL")]
    Beside,
}

impl From<u32> for Root {
    fn from(rank: u32) -> Self {
        Self::Rank(rank)
    }
}

impl Root {
    /// The root's rank in a communicator.
    pub(super) fn rank<L: Level, D: Device>(
        self,
        comm: &Comm<L, D>,
        operation: &'static str,
    ) -> Result<u32> {
        match self {
            Self::Rank(rank) => Ok(rank),
            Self::Here | Self::Beside => Err(wrong(
                comm,
                operation,
                ErrorKind::InvalidRank,
                &format!("the root is Root::{self:?}, which is for intercommunicators"),
                "give the root's rank",
            )),
        }
    }

    /// The root of an operation between two groups.
    pub(super) fn between(self) -> inter::Root {
        match self {
            Self::Rank(rank) => inter::Root::Remote(rank),
            Self::Here => inter::Root::Here,
            Self::Beside => inter::Root::Beside,
        }
    }

    /// Of an operation between two groups.
    pub(super) fn is_remote(self) -> bool {
        matches!(self, Self::Rank(_))
    }
}
