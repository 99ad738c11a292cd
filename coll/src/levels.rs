//! Levels: which ranks share a node, and collective operations that take account of it.
//!
//! Messages within a node are cheaper than those between nodes, and all ranks of a node share one
//! way out. The two-level forms send as little as possible between nodes: the ranks of a node work
//! with their *leader*, and the leaders work with each other. For long messages, rings and chains
//! achieve the same if they go through one node after the other.

mod moving;
#[cfg(test)]
mod placed;
mod reducing;

use std::sync::Arc;

pub(crate) use moving::{allgather, allgather_ring, alltoall, gather, scatter};
pub(crate) use reducing::{reduce_scatter, reduce_scatter_ring, scan};

use crate::algorithms::{allreduce, barrier, bcast, reduce};
use crate::problem::{Allreduce, Bcast, Reduce};
use crate::schedule::Builder;
use crate::team::Team;

/// Which ranks of a communicator share a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Indexed by rank: the number of its node. Nodes are numbered in the order of their first
    /// ranks.
    node_of: Box<[u32]>,
    /// The ranks of each node, in order.
    nodes: Box<[Arc<[u32]>]>,
    /// The first rank of each node.
    leaders: Arc<[u32]>,
    /// All ranks, one node after the other.
    by_node: Arc<[u32]>,
    /// Whether that is also the order of the ranks.
    consecutive: bool,
}

impl Levels {
    /// From a number of each rank's node: any numbers, equal ones for ranks that share a node.
    ///
    /// ```
    /// use portolan_coll::Levels;
    /// let levels = Levels::new([7, 7, 3, 7]);
    /// assert_eq!((levels.nodes(), levels.are_consecutive()), (2, false));
    /// assert!(levels.are_useful());
    /// assert!(!Levels::new([1, 2, 3]).are_useful());
    /// ```
    #[must_use]
    pub fn new(numbers: impl IntoIterator<Item = u32>) -> Self {
        let mut known: Vec<u32> = Vec::new();
        let mut members: Vec<Vec<u32>> = Vec::new();
        let mut node_of = Vec::new();
        for (rank, number) in (0..).zip(numbers) {
            // Ranks of a node are mostly consecutive, so the search begins with the last node.
            let node = known.iter().rposition(|&other| other == number);
            let node = node.unwrap_or_else(|| {
                known.push(number);
                members.push(Vec::new());
                known.len() - 1
            });
            members[node].push(rank);
            node_of.push(node as u32);
        }
        Self {
            consecutive: node_of.is_sorted(),
            node_of: node_of.into(),
            leaders: members.iter().map(|ranks| ranks[0]).collect(),
            by_node: members.concat().into(),
            nodes: members.into_iter().map(Arc::from).collect(),
        }
    }

    /// Number of nodes.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Whether there are several nodes, of which some have several ranks.
    #[must_use]
    pub fn are_useful(&self) -> bool {
        self.nodes.len() > 1 && self.nodes.len() < self.node_of.len()
    }

    /// Whether the ranks of each node are consecutive.
    #[must_use]
    pub fn are_consecutive(&self) -> bool {
        self.consecutive
    }

    /// The number of a rank's node.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn node_of(&self, rank: u32) -> u32 {
        self.node_of[rank as usize]
    }

    /// All ranks as a team, one node after the other.
    fn by_node(&self, rank: u32) -> Team {
        team(rank, &self.by_node)
    }

    /// A rank's teams, with `root` as the leader of its node.
    fn teams(&self, rank: u32, root: u32) -> Teams {
        let (node, home) = (self.node_of(rank), self.node_of(root));
        let leaders = if self.leaders[home as usize] == root {
            Arc::clone(&self.leaders)
        } else {
            let mut leaders = self.leaders.to_vec();
            leaders[home as usize] = root;
            leaders.into()
        };
        let local = team(rank, &self.nodes[node as usize]);
        let leader = leaders[node as usize];
        Teams {
            leader: local.place_of(leader).unwrap_or(0),
            local,
            across: (leader == rank).then(|| Team::of(node, leaders)),
            root: home,
        }
    }
}

fn team(rank: u32, members: &Arc<[u32]>) -> Team {
    // The members of a node are in order; all ranks together are only if the nodes are consecutive.
    let place = members.iter().position(|&member| member == rank);
    Team::of(place.unwrap_or(0) as u32, Arc::clone(members))
}

/// The teams in which a rank works.
struct Teams {
    /// The ranks of its node.
    local: Team,
    /// The leader's place among them.
    leader: u32,
    /// The leaders of all nodes, if this rank is one.
    across: Option<Team>,
    /// The root's place among them.
    root: u32,
}

/// The levels of the communicator for which a schedule is written; `None` if there is only one
/// level, or if operands have to keep an order that differs from that of the nodes.
fn levels(b: &Builder, any_order: bool) -> Option<Arc<Levels>> {
    b.levels()
        .filter(|levels| any_order || levels.are_consecutive())
        .cloned()
}

/// Ranks signal their leaders, the leaders signal each other, and then each signals its ranks.
pub(crate) fn barrier(b: &mut Builder) {
    let Some(levels) = levels(b, true) else {
        return barrier::dissemination(b);
    };
    let Teams { local, across, .. } = levels.teams(b.rank(), 0);
    b.within(local.clone(), barrier::arrive);
    if let Some(across) = across {
        b.within(across, barrier::dissemination);
    }
    b.within(local, barrier::release);
}

/// From the root to the leaders, and from them to their nodes.
pub(crate) fn bcast(b: &mut Builder, p: &Bcast) {
    let Some(levels) = levels(b, true) else {
        return bcast::binomial(b, p);
    };
    let teams = levels.teams(b.rank(), p.root);
    let with_root = |root| Bcast { root, ..*p };
    if let Some(across) = teams.across {
        b.within(across, |b| bcast::binomial(b, &with_root(teams.root)));
    }
    b.within(teams.local, |b| {
        bcast::binomial(b, &with_root(teams.leader));
    });
}

/// The chain goes through one node after the other.
pub(crate) fn bcast_chain(b: &mut Builder, p: &Bcast) {
    let Some(levels) = levels(b, true) else {
        return bcast::chain(b, p);
    };
    let team = levels.by_node(b.rank());
    let root = team.place_of(p.root).unwrap_or(0);
    b.within(team, |b| bcast::chain(b, &Bcast { root, ..*p }));
}

/// Each node reduces to its leader, and the leaders to the root.
pub(crate) fn reduce(b: &mut Builder, p: &Reduce) {
    let Some(levels) = levels(b, p.commutative) else {
        return reduce::binomial(b, p);
    };
    let teams = levels.teams(b.rank(), p.root);
    let mut input = p.input;
    let alone = teams.local.size() == 1;
    if !alone {
        let of_node = teams.across.as_ref().map(|_| {
            p.output
                .unwrap_or_else(|| b.scratch_like(p.input, p.input.count))
        });
        let up = Reduce {
            output: of_node,
            root: teams.leader,
            ..*p
        };
        b.within(teams.local, |b| reduce::by_length(b, &up));
        input = of_node.unwrap_or(input);
    }
    if let Some(across) = teams.across {
        let up = Reduce {
            input,
            root: teams.root,
            ..*p
        };
        b.within(across, |b| reduce::by_length(b, &up));
    }
}

/// Each node reduces to its leader, the leaders reduce among themselves, and each broadcasts to its
/// node.
pub(crate) fn allreduce(b: &mut Builder, p: &Allreduce) {
    let Some(levels) = levels(b, p.commutative) else {
        return allreduce::recursive_doubling(b, p);
    };
    let teams = levels.teams(b.rank(), 0);
    let mut input = p.input;
    if teams.local.size() > 1 {
        let up = Reduce {
            input,
            output: teams.across.as_ref().map(|_| p.output),
            root: teams.leader,
            commutative: p.commutative,
        };
        b.within(teams.local.clone(), |b| reduce::by_length(b, &up));
        input = p.output;
    }
    if let Some(across) = teams.across {
        b.within(across, |b| {
            allreduce::by_length(b, &Allreduce { input, ..*p });
        });
    }
    let down = Bcast {
        data: p.output,
        root: teams.leader,
    };
    b.within(teams.local, |b| bcast::binomial(b, &down));
}

/// The ring goes through one node after the other.
pub(crate) fn allreduce_ring(b: &mut Builder, p: &Allreduce) {
    let Some(levels) = levels(b, true) else {
        return allreduce::ring(b, p);
    };
    let team = levels.by_node(b.rank());
    b.within(team, |b| allreduce::ring(b, p));
}

#[cfg(test)]
mod tests;
