//! Communicators, as far as deaths and acknowledgements need them: the members of each context, and
//! which of them have died.

use std::collections::BTreeMap;

use portolan_core::device::CommView;
use portolan_core::matching::Pattern;
use portolan_core::{Group, ProcId};

/// A communicator.
#[derive(Debug)]
struct Context {
    group: Group,
    /// How many context ids it has. All but the first are for collective operations.
    count: u32,
    /// How many deaths its wildcard receives have been told of.
    told: usize,
    /// The communicator has been freed, but operations under way may still name its ranks.
    freed: bool,
}

/// The communicators that the device was told of, and the dead.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    known: BTreeMap<u32, Context>,
    /// The dead processes, in the order in which their deaths were noticed, and those that have
    /// left while something waited for them.
    dead: Vec<u32>,
    /// Those of them that have left in good order. Receives from any source wait for the others.
    left: Vec<u32>,
}

impl Contexts {
    /// Remembers a communicator.
    pub(crate) fn add(&mut self, comm: &CommView) {
        let count = comm.contexts.max(1);
        let end = comm.context.saturating_add(count);
        let apart = |first: u32, known: &Context| {
            end <= first || first.saturating_add(known.count) <= comm.context
        };
        self.known
            .retain(|&first, known| !known.freed || apart(first, known));
        let context = Context {
            group: comm.group.clone(),
            count,
            told: 0,
            freed: false,
        };
        self.known.insert(comm.context, context);
    }

    /// Notes that a communicator is freed. It is forgotten when its context ids are used again.
    pub(crate) fn free(&mut self, first: u32) {
        if let Some(known) = self.known.get_mut(&first) {
            known.freed = true;
        }
    }

    fn of(&self, context: u32) -> Option<(u32, &Context)> {
        let (&first, known) = self.known.range(..=context).next_back()?;
        (context - first < known.count).then_some((first, known))
    }

    /// The process of a local rank. Without a communicator from the crate above, local ranks are
    /// world ranks.
    pub(crate) fn process(&self, context: u32, local: u32) -> Option<u32> {
        match self.of(context) {
            Some((_, known)) => known.group.process(local).map(ProcId::index),
            None => Some(local),
        }
    }

    /// Whether a process belongs to the communicator of a context; without one, all do.
    pub(crate) fn is_member(&self, context: u32, process: u32) -> bool {
        let known = self.of(context);
        known.is_none_or(|(_, known)| known.group.contains(ProcId::new(process)))
    }

    /// Whether a context is for collective operations of a communicator with this member.
    pub(crate) fn is_collective_of(&self, context: u32, process: u32) -> bool {
        let known = self.of(context);
        known.is_some_and(|(first, known)| {
            context != first && known.group.contains(ProcId::new(process))
        })
    }

    /// Remembers a death.
    pub(crate) fn died(&mut self, process: u32) {
        self.dead.push(process);
    }

    /// Remembers that a process has left.
    pub(crate) fn left(&mut self, process: u32) {
        self.dead.push(process);
        self.left.push(process);
    }

    /// Whether a process has left.
    pub(crate) fn has_left(&self, process: u32) -> bool {
        self.left.contains(&process)
    }

    /// Whether a process has died or left.
    pub(crate) fn is_dead(&self, process: u32) -> bool {
        self.dead.contains(&process)
    }

    /// The local rank of a process in a context.
    pub(crate) fn local(&self, context: u32, process: u32) -> Option<u32> {
        match self.of(context) {
            Some((_, known)) => known.group.rank_of(ProcId::new(process)),
            None => Some(process),
        }
    }

    /// The processes of a context that have not died. Without a communicator from the crate above,
    /// these are all living ones of the job's `size`.
    pub(crate) fn living(&self, context: u32, size: u32) -> impl Iterator<Item = u32> {
        let member = move |process: &u32| self.is_member(context, *process);
        (0..size).filter(move |process| member(process) && !self.is_dead(*process))
    }

    /// A dead member of the communicator whose collective operations use this context.
    pub(crate) fn dead_in(&self, context: u32) -> Option<u32> {
        let dead = |&process: &u32| self.is_collective_of(context, process);
        self.dead.iter().copied().find(dead)
    }

    /// The dead process that makes a receive fail, if there is one. Wildcard receives of a
    /// communicator are told of each death once.
    pub(crate) fn doom(&mut self, from: &Pattern) -> Option<u32> {
        if self.dead.is_empty() {
            return None;
        }
        if let Some(dead) = self.dead_in(from.context) {
            return Some(dead);
        }
        if let Some(source) = from.source {
            let process = self.process(from.context, source)?;
            return self.is_dead(process).then_some(process);
        }
        let told = self.of(from.context).map_or(0, |(_, known)| known.told);
        let untold = self.dead.iter().skip(told).copied();
        let dead = untold
            .into_iter()
            .find(|&dead| !self.has_left(dead) && self.is_member(from.context, dead))?;
        self.tell(from.context);
        Some(dead)
    }

    /// Notes that wildcard receives in a context have been told of all deaths so far.
    pub(crate) fn tell(&mut self, context: u32) {
        let told = self.dead.len();
        if let Some((first, known)) = self.known.range_mut(..=context).next_back()
            && context - first < known.count
        {
            known.told = told;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comm(context: u32, members: &[u32]) -> CommView {
        CommView {
            context,
            contexts: 2,
            group: Group::new(members.iter().map(|&m| ProcId::new(m)).collect::<Vec<_>>()),
            rank: 0,
        }
    }

    fn from(context: u32, source: Option<u32>) -> Pattern {
        Pattern {
            context,
            source,
            tag: None,
        }
    }

    #[test]
    fn ranks_are_those_of_the_communicator() {
        let mut contexts = Contexts::default();
        assert_eq!(
            contexts.process(7, 3),
            Some(3),
            "no communicator: world ranks"
        );
        contexts.add(&comm(6, &[4, 2]));
        assert_eq!(contexts.process(7, 1), Some(2));
        assert_eq!(contexts.process(7, 2), None);
        contexts.free(6);
        assert_eq!(
            contexts.process(6, 0),
            Some(4),
            "what is under way names its ranks"
        );
        contexts.add(&comm(7, &[9]));
        assert_eq!(contexts.process(7, 0), Some(9), "the ids are used again");
        assert_eq!(contexts.process(6, 0), Some(0));
    }

    #[test]
    fn the_living_of_a_context_are_known() {
        let mut contexts = Contexts::default();
        contexts.add(&comm(0, &[0, 1, 2]));
        contexts.add(&comm(2, &[0, 1]));
        contexts.died(1);
        let living = |context| contexts.living(context, 3).collect::<Vec<_>>();
        assert_eq!(
            (living(0), living(2), living(7)),
            (vec![0, 2], vec![0], vec![0, 2])
        );
        contexts.add(&comm(4, &[2, 0]));
        assert_eq!(
            [0, 1, 2].map(|process| contexts.local(4, process)),
            [Some(1), None, Some(0)]
        );
        assert_eq!(
            contexts.local(9, 2),
            Some(2),
            "no communicator: world ranks"
        );
    }

    #[test]
    fn wildcards_are_told_of_a_death_once_and_collectives_always() {
        let mut contexts = Contexts::default();
        contexts.add(&comm(0, &[0, 1, 2]));
        contexts.add(&comm(2, &[0, 1]));
        contexts.died(2);
        assert_eq!(contexts.doom(&from(0, None)), Some(2));
        assert_eq!(contexts.doom(&from(0, None)), None);
        assert_eq!(contexts.doom(&from(0, Some(2))), Some(2));
        assert_eq!(contexts.doom(&from(0, Some(1))), None);
        for _ in 0..2 {
            assert_eq!(contexts.doom(&from(1, Some(1))), Some(2), "collective");
        }
        assert_eq!(contexts.doom(&from(2, None)), None, "not a member");
    }

    #[test]
    fn who_has_left_ends_receives_that_wait_for_nobody_else() {
        let mut contexts = Contexts::default();
        contexts.add(&comm(0, &[0, 1, 2]));
        contexts.left(2);
        assert!(contexts.is_dead(2) && contexts.has_left(2));
        assert_eq!(contexts.doom(&from(0, None)), None);
        assert_eq!(contexts.doom(&from(0, Some(2))), Some(2));
        contexts.died(1);
        assert_eq!(contexts.doom(&from(0, None)), Some(1));
        assert!(!contexts.has_left(1));
    }
}
