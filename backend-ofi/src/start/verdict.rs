//! What the ranks tell each other before they communicate, and the verdict about it: whether they
//! can work together. Every rank comes to the same one.

use portolan_core::job::{Bootstrap, JobError};
use portolan_core::{Error, ErrorKind, Result};

use crate::addr::Card;
use crate::config::Config;
use crate::quirks::acquaint;
use crate::start::networks;

/// Publishes this rank's text under a name, for example its card, and reads that of every rank,
/// this one included. One error for all, if any rank published an error. Collective.
pub(crate) fn told<T>(
    job: &mut dyn Bootstrap,
    name: &str,
    own: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>> {
    let size = job.size();
    job.put(&format!("ofi.{name}.{}", job.rank()), own)
        .map_err(job_failed)?;
    job.fence().map_err(job_failed)?;
    let mut all = Vec::with_capacity(size as usize);
    let mut failures: Vec<(String, Vec<u32>)> = Vec::new();
    for rank in 0..size {
        let text = job.get(&format!("ofi.{name}.{rank}"));
        let text = text.map_err(job_failed)?;
        let why = match text.split_once(' ') {
            Some(("card", card)) => match read(card) {
                Ok(card) => {
                    all.push(card);
                    continue;
                }
                Err(why) => why,
            },
            Some(("error", why)) => why.to_owned(),
            _ => format!("it introduces itself as {text:?}"),
        };
        match failures.iter_mut().find(|(known, _)| *known == why) {
            Some((_, ranks)) => ranks.push(rank),
            None => failures.push((why, vec![rank])),
        }
    }
    if failures.is_empty() {
        return Ok(all);
    }
    let whole = failures.len() == 1 && failures[0].1.len() == size as usize;
    let said: Vec<String> = failures
        .into_iter()
        .map(|(why, ranks)| {
            if whole {
                why
            } else {
                format!("{}: {why}", shown(&ranks))
            }
        })
        .collect();
    Err(unavailable(said.join("; ")))
}

/// Decides whether all ranks can communicate. Every rank reads the same cards and reaches the same
/// verdict. Addresses are judged only if the provider uses IP (`ip`), because others may look like
/// IP addresses.
pub(crate) fn judge(cards: &[Card], ip: bool) -> Result<()> {
    let first = &cards[0];
    let others: Vec<u32> = (0..cards.len() as u32)
        .filter(|&rank| cards[rank as usize].protocol != first.protocol)
        .collect();
    if others.is_empty() {
        if let Some(why) = networks::confined(cards) {
            return Err(unavailable(why).remedy(
                "choose a provider that joins nodes, such as PORTOLAN_OFI_PROVIDER=tcp, on each of them",
            ));
        }
        return match networks::apart(cards).filter(|_| ip) {
            None => Ok(()),
            Some(why) => Err(unavailable(why).remedy(
                "name a network that joins the nodes, by its interface or address, with \
                 PORTOLAN_OFI_INTERFACE on each of them",
            )),
        };
    }
    let other = &cards[others[0] as usize];
    Err(unavailable(format!(
        "the ranks have different providers, or one of different versions or that was told different things: rank 0 (on {}) has {}, \
         {} (on {}) {}",
        first.host,
        first.protocol,
        shown(&others),
        other.host,
        other.protocol
    ))
    .remedy(format!(
        "name the same PORTOLAN_OFI_PROVIDER everywhere, with the same libfabric, and set {} alike on all nodes, or \
         nowhere",
        Config::RXM_AT_ONCE
    )))
}

/// Checks that every rank is a process of its own, where the provider needs that. Every rank comes
/// to the same verdict.
pub(crate) fn strangers(cards: &[Card]) -> Result<()> {
    let Some(process) = acquaint::shared(cards) else {
        return Ok(());
    };
    Err(unavailable(format!(
        "several ranks are in process {}, and libfabric's shm provider crashes between endpoints of one process that are \
         opened one by one (2.5): give each rank a process, or open them all by `in_process`; else another provider \
         (PORTOLAN_OFI_PROVIDER=tcp) or the transport shm (PORTOLAN_TRANSPORT=shm)",
        process.pid
    )))
}

/// The first few of a list, and how many more there are.
fn shown(ranks: &[u32]) -> String {
    let list: Vec<String> = ranks.iter().take(8).map(ToString::to_string).collect();
    let plural = if ranks.len() == 1 { "rank" } else { "ranks" };
    match ranks.len().saturating_sub(8) {
        0 => format!("{plural} {}", list.join(", ")),
        more => format!("{plural} {} and {more} more", list.join(", ")),
    }
}

pub(crate) fn unavailable(why: String) -> Error {
    Error::new(ErrorKind::TransportUnavailable, why).remedy(
        "choose another provider (PORTOLAN_OFI_PROVIDER) or another transport; `portolan info` lists \
         them",
    )
}

fn job_failed(error: JobError) -> Error {
    Error::new(ErrorKind::Job, error.to_string())
}

#[cfg(test)]
mod tests {
    use portolan_core::transport::WIRE_VERSION;

    use super::*;
    use crate::addr::Process;

    fn card(node: &str, protocol: &str) -> Card {
        Card {
            process: Process::own(),
            node: node.to_owned(),
            host: format!("host-of-{node}"),
            protocol: protocol.to_owned(),
            address: vec![1],
            roster: None,
            pulse: None,
        }
    }

    #[test]
    fn ranks_with_other_providers_are_named() {
        let mut cards = vec![card("a", "tcp 1.1"); 3];
        assert!(judge(&cards, true).is_ok());
        cards[2] = card("b", "verbs 2.1");
        let error = judge(&cards, true).unwrap_err().to_string();
        let wanted = "rank 0 (on host-of-a) has tcp 1.1, rank 2 (on host-of-b) verbs 2.1";
        assert!(error.contains(wanted), "{error}");
        assert!(error.contains(Config::RXM_AT_ONCE), "{error}");
        assert!(error.contains("the same libfabric"), "{error}");
    }

    #[test]
    fn ranks_of_two_nodes_need_a_provider_that_joins_them() {
        let cards = [card("a", "shm 1.2"), card("b", "shm 1.2")];
        let error = judge(&cards, false).unwrap_err().to_string();
        for part in ["host-of-a", "host-of-b", "PORTOLAN_OFI_PROVIDER=tcp"] {
            assert!(error.contains(part), "{error}");
        }
        assert!(judge(&cards[..1], false).is_ok());
    }

    #[test]
    fn ranks_whose_packets_look_different_are_named() {
        let said = |wire| format!("tcp 1.1 of libfabric 2.5, packets {wire} of 65536 bytes");
        let (own, next) = (said(WIRE_VERSION), said(WIRE_VERSION + 1));
        let cards = [card("a", &own), card("a", &own), card("b", &next)];
        let error = judge(&cards, true).unwrap_err().to_string();
        let wanted = format!("has {own}, rank 2 (on host-of-b) {next}");
        assert!(error.contains(&wanted), "{error}");
    }

    #[test]
    fn ranks_of_one_process_are_found() {
        let (mut cards, own) = (vec![card("a", ""); 3], Process::own());
        for (card, pid) in cards.iter_mut().zip([own.pid, own.pid + 1, own.pid]) {
            card.process.pid = pid;
        }
        let error = strangers(&cards).unwrap_err().to_string();
        assert!(
            error.contains(&format!("are in process {},", own.pid)),
            "{error}"
        );
        // The same process id on another node, or at another time.
        cards[2].node = "b".to_owned();
        assert!(strangers(&cards).is_ok());
        cards[2].node = "a".to_owned();
        cards[2].process.start += 1;
        assert!(strangers(&cards).is_ok());
    }
}
