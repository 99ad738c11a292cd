//! Which rank is the root.

use portolan_coll::inter;
use portolan_core::{Device, ErrorKind, Result};

use super::blocks::wrong;
use crate::Level;
use crate::comm::Comm;

/// The root of an operation. On a communicator it is a rank, and a plain number will do. Between
/// two groups it also says which group the root is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Root {
    /// The root's rank; between two groups, its rank in the other group.
    Rank(u32),
    /// Between two groups: this rank is the root (`MPI_ROOT`).
    #[doc(alias = "MPI_ROOT")]
    Here,
    /// Between two groups: the root is another rank of the caller's group (`MPI_PROC_NULL`). This
    /// rank takes part by calling; its buffers are ignored.
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

    /// Whether the root of an operation between two groups is in the other group.
    pub(super) fn is_remote(self) -> bool {
        matches!(self, Self::Rank(_))
    }
}
