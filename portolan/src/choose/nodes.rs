//! How many nodes the ranks are on. This matters because not every transport crosses from one node
//! to another.
//!
//! A host's name says little, since two containers may share one. Ranks are on one node if they see
//! the same boot of the same kernel, the same process namespace and the same network namespace.

use std::fs;

use std::sync::Arc;

use super::Vote;

/// Transports that connect only ranks of one node.
const ONE_NODE: &[&str] = &["shm", "memory", "t3e-sim"];

/// The node that a rank is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// A text that is the same on all ranks of a node, and on no other rank.
    pub(super) identity: String,
    /// Name of the host, for messages.
    pub(super) host: String,
}

impl Node {
    /// The node of the calling process.
    pub(super) fn own() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let space = |kind: &str| {
            let link = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap_or_default();
            link.to_string_lossy().into_owned()
        };
        let boot = read("/proc/sys/kernel/random/boot_id");
        Self {
            identity: format!("{} {} {}", boot.trim(), space("pid"), space("net")),
            host: read("/proc/sys/kernel/hostname").trim().to_owned(),
        }
    }
}

/// If the ranks are on several nodes, marks the transports that cannot connect them as unusable,
/// with the reason. Returns whether the ranks are on several nodes.
pub(super) fn rule_out(votes: &mut [Arc<Vote>]) -> bool {
    let mut nodes: Vec<&Node> = Vec::new();
    for vote in votes.iter() {
        if !nodes.iter().any(|node| node.identity == vote.node.identity) {
            nodes.push(&vote.node);
        }
    }
    if nodes.len() < 2 {
        return false;
    }
    let hosts: Vec<&str> = nodes.iter().take(4).map(|node| &*node.host).collect();
    let more = if nodes.len() > hosts.len() {
        ", …"
    } else {
        ""
    };
    let why = format!(
        "the ranks are on {} nodes ({}{more}), and it joins those of one",
        nodes.len(),
        hosts.join(", ")
    );
    let candidates = votes
        .iter_mut()
        .flat_map(|vote| &mut Arc::make_mut(vote).candidates);
    for (_, unusable) in candidates.filter(|(name, _)| ONE_NODE.contains(&name.as_str())) {
        unusable.get_or_insert_with(|| why.clone());
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choose::{Wanted, decide};

    fn vote(node: &str, candidates: &[(&str, Option<&str>)]) -> Arc<Vote> {
        let candidate =
            |(name, why): &(&str, Option<&str>)| ((*name).to_owned(), why.map(str::to_owned));
        Arc::new(Vote {
            node: Node {
                identity: format!("id of {node}"),
                host: node.to_owned(),
            },
            wanted: None,
            candidates: candidates.iter().map(candidate).collect(),
        })
    }

    #[test]
    fn a_process_is_on_one_node() {
        let own = Node::own();
        assert_eq!(own, Node::own());
        assert!(own.identity.contains("net:[") && own.identity.contains("pid:["));
    }

    #[test]
    fn on_one_node_nothing_is_ruled_out() {
        let mut votes = vec![vote("a", &[("shm", None), ("ofi", None)]); 3];
        assert!(!rule_out(&mut votes));
        assert_eq!(decide(&votes).unwrap().name, "shm");
    }

    #[test]
    fn shared_memory_is_not_chosen_across_nodes() {
        let all = [("shm", None), ("ofi", None)];
        let mut votes = [vote("a", &all), vote("b", &all), vote("a", &all)];
        assert!(rule_out(&mut votes));
        assert_eq!(decide(&votes).unwrap().name, "ofi");
    }

    #[test]
    fn who_asks_for_it_is_told_why_not() {
        let mut votes = [
            vote("a", &[("shm", None)]),
            vote("b", &[("shm", Some("no memfd"))]),
        ];
        for vote in &mut votes {
            Arc::make_mut(vote).wanted = Some(Wanted {
                name: "shm".into(),
                by: "PORTOLAN_TRANSPORT=shm".into(),
            });
        }
        rule_out(&mut votes);
        let error = decide(&votes).unwrap_err().to_string();
        let why = "shm: the ranks are on 2 nodes (a, b), and it joins those of one (rank 0)";
        assert!(
            error.contains(why) && error.contains("shm: no memfd (rank 1)"),
            "{error}"
        );
    }
}
