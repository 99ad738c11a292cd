//! What the ranks of one process know together.

use std::sync::{Mutex, PoisonError};

use crate::deaths::Deaths;
use crate::ofi::Link;
use crate::roster::Roster;

/// Who has left, and who has died.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) roster: Roster,
    pub(crate) deaths: Deaths,
    /// What ranks of this process have left behind. It is closed when the last of them has gone: an
    /// endpoint of the shm provider uses the memory of the others in its process until then.
    retired: Mutex<Vec<Link>>,
}

impl Shared {
    pub(crate) fn new(roster: Roster) -> Self {
        Self {
            roster,
            deaths: Deaths::default(),
            retired: Mutex::default(),
        }
    }

    /// A rank has gone.
    pub(crate) fn retire(&self, link: Link) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.push(link);
    }
}
