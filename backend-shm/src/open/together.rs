//! Which ranks can share memory: those on one node, of one user and from one build.

use portolan_core::job::Bootstrap;
use portolan_core::{Error, ErrorKind, Result};

use super::{address_key, job_failed};
use crate::addr::Address;
use crate::segment::layout::layout_hash;

/// The address of every rank, as that rank has published it.
pub(super) fn addresses(job: &mut dyn Bootstrap, size: u32) -> Result<Vec<Address>> {
    let mut all: Vec<Address> = Vec::with_capacity(size as usize);
    for rank in 0..size {
        let text = job.get(&address_key(rank)).map_err(job_failed)?;
        let address = Address::from_text(&text).ok_or_else(|| {
            Error::new(
                ErrorKind::Job,
                format!("rank {rank} gave an address that makes no sense: {text:?}"),
            )
            .about_peer(rank)
            .remedy("start all ranks from builds of one version")
        })?;
        all.push(match all.last() {
            Some(before) => address.sharing(before),
            None => address,
        });
    }
    Ok(all)
}

/// Whether all ranks can share memory. Every rank reads the same addresses and comes to the same
/// verdict.
pub(super) fn judge(own: &Address, everyone: &[Address]) -> Result<()> {
    let first = &everyone[0];
    let ranks = |differs: &dyn Fn(&Address) -> bool| -> Vec<String> {
        let others = everyone
            .iter()
            .enumerate()
            .filter(|(_, address)| differs(address));
        others
            .map(|(rank, address)| format!("{rank} (on {})", address.host))
            .collect()
    };
    let elsewhere = ranks(&|address| address.node != first.node);
    if !elsewhere.is_empty() {
        return Err(Error::new(
            ErrorKind::TransportUnavailable,
            format!(
                "not on the node of rank 0 ({}), or in another container there: {}",
                first.host,
                shown(&elsewhere)
            ),
        )
        .remedy("start all ranks on one node, or choose a transport that crosses nodes"));
    }
    let other_builds = ranks(&|address| address.layout != first.layout);
    if !other_builds.is_empty() {
        return Err(Error::new(
            ErrorKind::TransportUnavailable,
            format!(
                "built from another version than rank 0: {}",
                shown(&other_builds)
            ),
        )
        .remedy("start all ranks from builds of one version"));
    }
    let other_users = ranks(&|address| address.user != first.user);
    if !other_users.is_empty() {
        return Err(Error::new(
            ErrorKind::TransportUnavailable,
            format!(
                "another user than rank 0's ({}): {}",
                first.user,
                shown(&other_users)
            ),
        )
        .remedy("start all ranks as one user"));
    }
    debug_assert_eq!(own.layout, layout_hash());
    Ok(())
}

/// The first few of a list, and how many more there are.
fn shown(ranks: &[String]) -> String {
    let more = ranks.len().saturating_sub(8);
    let list = ranks.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
    if more == 0 {
        format!("ranks {list}")
    } else {
        format!("ranks {list} and {more} more")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Process;

    fn address(node: &str, layout: u64, user: u32) -> Address {
        Address {
            node: node.into(),
            process: Process { pid: 1, start: 1 },
            user,
            layout,
            host: "here".into(),
        }
    }

    #[test]
    fn ranks_that_cannot_share_memory_are_named() {
        let hash = layout_hash();
        let own = address("a", hash, 0);
        let ask = |other: Address| judge(&own, &[own.clone(), other]).map_err(|e| e.to_string());
        assert_eq!(ask(own.clone()), Ok(()));
        assert!(ask(address("b", hash, 0)).unwrap_err().contains(
            "not on the node of rank 0 (here), or in another container there: ranks 1 (on here)"
        ));
        assert!(
            ask(address("a", hash + 1, 0))
                .unwrap_err()
                .contains("built from another version")
        );
        assert!(
            ask(address("a", hash, 5))
                .unwrap_err()
                .contains("another user")
        );
    }
}
