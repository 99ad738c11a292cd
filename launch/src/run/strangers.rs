//! Children that this process had before it was the launcher: a shell that replaces itself by it
//! has what it writes to (`> >(filter | tee log)`). They are none of its business, and nor is what
//! they leave to it.
//!
//! What has lost its parent becomes the launcher's child, whoever started it. Of whom it has come
//! nobody tells afterwards; but all that ranks start has the job's id in its environment, unless
//! somebody has cleared that or it has become another user's. So where there have been strangers,
//! the launcher ends what has the id. Something of a rank that has left the ranks' process group
//! *and* hides where it is from goes on then, which is the smaller harm: what is killed by mistake
//! is lost. Where there were none, as nearly always, all that the launcher adopts has come of
//! ranks.

use crate::os;

/// Those children, and how to tell what they leave from what ranks do.
pub(super) struct Strangers {
    /// Those that have not been reaped.
    known: Vec<i32>,
    /// Whether there were any.
    any: bool,
    /// What is in the environment of all that ranks start.
    mark: String,
}

impl Strangers {
    /// Those of a launcher that has started no rank and adopts nobody yet. `mark` (`NAME=VALUE`)
    /// will be in the environment of what ranks start.
    pub(super) fn find(mark: &str) -> Self {
        let known = os::adopted_children();
        Self {
            // Who has ended leaves nothing any more.
            any: !known.iter().all(|&pid| os::has_gone(pid)),
            known,
            mark: mark.to_owned(),
        }
    }

    /// A child has been reaped: its number may be another's from now on.
    pub(super) fn forget(&mut self, pid: i32) {
        self.known.retain(|&stranger| stranger != pid);
    }

    /// Whether a child, neither a rank nor the guard, has come of one of them or is one.
    pub(super) fn have(&self, child: i32) -> bool {
        self.any && (self.known.contains(&child) || !os::was_given(child, &self.mark))
    }
}
