//! Children that this process had before it became the launcher. A shell that replaces itself by
//! the launcher leaves it the processes to which it writes (`> >(filter | tee log)`). The launcher
//! must not touch these children, nor their descendants.
//!
//! A process that has lost its parent becomes the launcher's child, whoever started it, and its
//! origin cannot be determined any more. But everything that ranks start has the job's id in its
//! environment, unless something has cleared the environment or the process runs as another user.
//! So if there were such children, the launcher ends only adopted processes that have the id. A
//! descendant of a rank that has left the ranks' process group *and* hides its origin survives
//! then, which is the smaller harm: a process that is killed by mistake is lost. If there were no
//! such children, which is nearly always the case, every process that the launcher adopts descends
//! from a rank.

use crate::os;

/// These children, and how to distinguish their descendants from those of ranks.
pub(super) struct Strangers {
    /// The pids of those that have not been reaped.
    known: Vec<i32>,
    /// Whether there were any.
    any: bool,
    /// The variable that is in the environment of everything that ranks start.
    mark: String,
}

impl Strangers {
    /// Lists the present children. Must be called before the launcher starts ranks or adopts
    /// processes. `mark` (`NAME=VALUE`) will be in the environment of everything that ranks start.
    pub(super) fn find(mark: &str) -> Self {
        let known = os::adopted_children();
        Self {
            // A child that has ended already leaves no further processes.
            any: !known.iter().all(|&pid| os::has_gone(pid)),
            known,
            mark: mark.to_owned(),
        }
    }

    /// A child has been reaped: its pid may be reused from now on.
    pub(super) fn forget(&mut self, pid: i32) {
        self.known.retain(|&stranger| stranger != pid);
    }

    /// Whether a child that is neither a rank nor the guard is one of these or descends from one.
    pub(super) fn have(&self, child: i32) -> bool {
        self.any && (self.known.contains(&child) || !os::was_given(child, &self.mark))
    }
}
