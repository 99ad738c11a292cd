//! What the ranks tell each other before they communicate, and the verdict about it: whether they
//! can work together. Every rank comes to the same one.

use std::collections::BTreeMap;

use portolan_core::job::{Bootstrap, JobError};
use portolan_core::{Error, ErrorKind, Result};

use crate::addr::Card;
use crate::config::Config;
use crate::quirks::acquaint;
use crate::start::networks;

/// Publishes this rank's text under a name, for example its card, and returns that of every rank,
/// this one included. A text is `card` and more, or `error` and why. Collective.
pub(crate) fn published(job: &mut dyn Bootstrap, name: &str, own: &str) -> Result<Vec<String>> {
    job.put(&format!("ofi.{name}.{}", job.rank()), own)
        .map_err(job_failed)?;
    job.fence().map_err(job_failed)?;
    (0..job.size())
        .map(|rank| job.get(&format!("ofi.{name}.{rank}")).map_err(job_failed))
        .collect()
}

/// Checks that all cards have the same format. The format is the first number of a card in every
/// version, so ranks of all versions come to the same error.
pub(crate) fn same_format(texts: &[String]) -> Result<()> {
    let mut formats: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (rank, text) in (0..).zip(texts) {
        if let Some(format) = text.strip_prefix("card ").and_then(Card::format) {
            formats.entry(format).or_default().push(rank);
        }
    }
    if formats.len() < 2 {
        return Ok(());
    }
    let each = formats
        .into_iter()
        .map(|(format, ranks)| format!("{format} ({})", shown(&ranks)));
    let each = each.collect::<Vec<_>>().join(", ");
    let why = format!("the ranks have different versions of Portolan, whose formats are {each}");
    Err(unavailable(why).remedy("use the same Portolan on all nodes"))
}

/// Reads the ranks' texts by `read`. One error for all, if any rank published an error or something
/// that cannot be read.
pub(crate) fn read<T>(
    texts: &[String],
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>> {
    let (mut all, mut errors, mut nonsense) = (Vec::new(), Vec::new(), Vec::new());
    for (rank, text) in (0..).zip(texts) {
        match text.split_once(' ') {
            Some(("card", card)) => match read(card) {
                Ok(card) => all.push(card),
                Err(why) => note(&mut nonsense, rank, why),
            },
            Some(("error", why)) => note(&mut errors, rank, why.to_owned()),
            _ => note(
                &mut nonsense,
                rank,
                format!("it introduces itself as {text:?}"),
            ),
        }
    }
    // Ranks of another version may be able to read what is nonsense here, but all read the errors.
    // These say themselves what to do.
    let error = match errors.is_empty() {
        true => unavailable,
        false => |said| Error::new(ErrorKind::TransportUnavailable, said),
    };
    let failures = if errors.is_empty() { nonsense } else { errors };
    if failures.is_empty() {
        return Ok(all);
    }
    let whole = failures.len() == 1 && failures[0].1.len() == texts.len();
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
    Err(error(said.join("; ")))
}

/// Adds a rank to those that fail for a reason.
fn note(failures: &mut Vec<(String, Vec<u32>)>, rank: u32, why: String) {
    match failures.iter_mut().find(|(known, _)| *known == why) {
        Some((_, ranks)) => ranks.push(rank),
        None => failures.push((why, vec![rank])),
    }
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
        if let Some(why) = networks::mixed(cards).filter(|_| ip) {
            return Err(unavailable(why).remedy(
                "name one network, by its interface or by an address of one family, with \
                 PORTOLAN_OFI_INTERFACE for every rank",
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
        "name the same PORTOLAN_OFI_PROVIDER everywhere, with the same libfabric and the same Portolan on all \
         nodes, and set PORTOLAN_MATCH and {} alike on all nodes, or nowhere",
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
pub(super) mod tests {
    use portolan_core::transport::WIRE_VERSION;

    use super::*;
    use crate::addr::Process;

    pub(in crate::start) fn card(node: &str, protocol: &str) -> Card {
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

    /// The texts of four ranks, the last of which may have an error.
    fn texts(formats: [u32; 3], last: &str) -> Vec<String> {
        let cards = formats.map(|format| format!("card {format} more"));
        cards.into_iter().chain([last.to_owned()]).collect()
    }

    /// Whichever version a rank has, it says the same.
    #[test]
    fn versions_are_named_in_order() {
        let error = same_format(&texts([7, 5, 7], "error none")).unwrap_err();
        let error = error.to_string();
        let wanted = "whose formats are 5 (rank 1), 7 (ranks 0, 2)";
        assert!(error.contains(wanted), "{error}");
        assert!(error.contains("the same Portolan on all nodes"), "{error}");
        assert!(!error.contains("PORTOLAN_OFI_PROVIDER"), "{error}");
        for last in ["card 6 more", "error none", "", "card ", "6"] {
            assert!(same_format(&texts([6, 6, 6], last)).is_ok(), "{last}");
        }
    }

    /// A rank that cannot read the others' cards says the same as they do, who can.
    #[test]
    fn errors_come_before_what_cannot_be_read() {
        let texts = texts([6, 6, 6], "error no library");
        let said = |read: fn(&str) -> Result<(), String>| super::read(&texts, read).unwrap_err();
        let strange = said(|_| Err("it is of another format".to_owned())).to_string();
        assert_eq!(strange, "rank 3: no library", "it has its own remedy");
        assert_eq!(strange, said(|_| Ok(())).to_string());
        let nonsense = super::read(&["?".to_owned()], |_| Ok(())).unwrap_err();
        let nonsense = nonsense.to_string();
        assert!(nonsense.contains("introduces itself as \"?\"; choose"));
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
        for part in ["the same libfabric", "the same Portolan", "PORTOLAN_MATCH"] {
            assert!(error.contains(part), "{error}");
        }
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
