//! Makes the transport: one rank of a job of processes, or all ranks of a job inside one process.
//!
//! # How processes come together
//! 1. Every rank opens an endpoint, posts its buffers, and publishes its [`Card`], or the reason
//!    why it could not.
//! 2. Fence. Every rank reads all cards and comes to the same verdict about them.
//! 3. The processes of a node share the roster of the first of them, and watch each other. For
//!    that, a rank needs the others' cards, and descriptors, of which it may have too few. So every
//!    rank publishes whether it succeeded.
//! 4. Fence. Every rank reads what all others have published.
//!
//! Nothing more is agreed on: the first rank to send finds the other's buffers posted.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;

use libfabric_sys::Library;
use portolan_core::config::Settings;
use portolan_core::job::{Bootstrap, JobError};
use portolan_core::transport::{Header, Payload, Sent, Sink, Transport};
use portolan_core::{Error, ErrorKind, Result};

use crate::addr::{self, Addresses, Card, Process};
use crate::caps;
use crate::config::Config;
use crate::deaths::pulse::{Other, Pulse};
use crate::deaths::roster::Roster;
use crate::deaths::watch::{Heart, Watcher};
use crate::endpoint::link::Link;
use crate::ofi::{Ofi, Place};
use crate::packets::wire::Wire;
use crate::quirks::acquaint;
use crate::shared::Shared;
use crate::start::info::Info;
use crate::start::networks;
use crate::start::provider;

/// Makes one rank of a job of processes. Collective: every rank of the job calls it.
///
/// # Errors
/// [`Job`](ErrorKind::Job) if the launcher fails,
/// [`TransportUnavailable`](ErrorKind::TransportUnavailable) if there is no library, no provider
/// that satisfies the settings, or if the ranks' providers cannot communicate. The text is the same
/// on every rank.
pub fn open(job: &mut dyn Bootstrap, settings: &Settings) -> Result<Ofi, Error> {
    let rank = job.rank();
    open_with(job, &Config::from_settings(settings)).map_err(|e| e.on_rank(rank).on_device("ofi"))
}

/// [`open`] with a configuration of the caller's.
///
/// # Errors
/// As for [`open`].
pub fn open_with(job: &mut dyn Bootstrap, config: &Config) -> Result<Ofi, Error> {
    let (rank, size) = (job.rank(), job.size());
    check_size(size)?;
    let made = make(config, size);
    let text = match &made {
        Ok(made) => format!("card {}", made.card.to_text()),
        Err(error) => format!("error {}", error.to_string().replace('\n', " ")),
    };
    let cards = told(job, "rank", &text, Card::from_text)?;
    // A rank without an endpoint has published why, and no rank gets as far as this.
    let ip = made.as_ref().is_ok_and(Made::has_ip);
    judge(&cards, ip)?;
    if made.as_ref().is_ok_and(Made::needs_acquaintance) {
        strangers(&cards)?;
    }
    let ofi = join(made?, (rank, job_number(job.job_id())), &cards, config);
    let text = match &ofi {
        Ok(_) => "card ".to_owned(),
        Err(error) => format!("error {}", error.to_string().replace('\n', " ")),
    };
    // Some ranks answer late, and could not answer at all if ranks that have their answers had
    // ended the job.
    let all = told(job, "joined", &text, |_| Ok(()));
    if all.is_err() && size > 1 {
        let _ = job.fence();
    }
    all.and(ofi)
}

/// Joins the ranks that have introduced themselves.
fn join(made: Made, (rank, number): (u32, u32), cards: &[Card], config: &Config) -> Result<Ofi> {
    let size = cards.len() as u32;
    let Made {
        link,
        roster,
        card: own,
        socket,
    } = made;
    let (nodes, firsts) = nodes(cards);
    let first = firsts[nodes[rank as usize] as usize] as usize;
    let roster = match cards[first].roster {
        Some(fd) if first != rank as usize => {
            Roster::open(cards[first].process, fd, size).map_err(unavailable)?
        }
        _ => roster,
    };
    let shared = Arc::new(Shared::new(roster, size));
    let heart = socket
        .filter(|_| firsts.len() > 1)
        .map(|socket| heart(socket, config, number, rank, &link, cards));
    let here = (0..size)
        .filter(|&peer| peer != rank && cards[peer as usize].node == own.node)
        .map(|peer| (peer, cards[peer as usize].process));
    let info = &link.domain.info;
    // Its queues, with their locks, are shared with other processes.
    let counted = caps::over(info, "shm").then(|| (rank, info.provider()));
    let watcher = Watcher::start(Arc::clone(&shared), here, heart, counted).map_err(unavailable)?;
    let place = Place {
        rank,
        job: number,
        addresses: Addresses::new(cards.iter().map(|card| &*card.address)),
        nodes: nodes.into(),
        processes: processes(cards, &own.node),
        shared,
    };
    Ofi::new(link, place, Some(watcher)).map_err(unavailable)
}

/// Makes all ranks of a job inside this process, each with an endpoint of its own: for ranks that
/// are threads, or that one thread steps.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) for no ranks or too many,
/// [`TransportUnavailable`](ErrorKind::TransportUnavailable) as for [`open`].
pub fn in_process(n: u32, settings: &Settings) -> Result<Vec<Ofi>, Error> {
    in_process_with(n, &Config::from_settings(settings)).map_err(|e| e.on_device("ofi"))
}

/// [`in_process`] with a configuration of the caller's.
///
/// # Errors
/// As for [`in_process`].
pub fn in_process_with(n: u32, config: &Config) -> Result<Vec<Ofi>, Error> {
    check_size(n)?;
    in_process_as(n, config, provider::choose(config)?)
}

/// [`in_process_with`] over the provider that is described.
pub(crate) fn in_process_as(
    n: u32,
    config: &Config,
    (library, info): (Library, Info),
) -> Result<Vec<Ofi>, Error> {
    let needed = acquaint::is_needed(library.version(), &info);
    // The first endpoint's trial of the provider is enough.
    let open = |rank| Link::new(library, info.duplicate()?, config, n, rank > 0);
    let opened: Vec<Link> = (0..n)
        .map(open)
        .collect::<Result<_, _>>()
        .map_err(unavailable)?;
    let names: Vec<Vec<u8>> = opened
        .iter()
        .map(Link::name)
        .collect::<Result<_, _>>()
        .map_err(unavailable)?;
    let addresses = Addresses::new(names.iter().map(|name| &**name));
    let shared = Arc::new(Shared::new(Roster::within(n), n));
    let nodes: Arc<[u32]> = vec![0; n as usize].into();
    // A name that distinguishes this job from others, of this process and elsewhere.
    let job = job_number(&format!(
        "{}.{:p}",
        std::process::id(),
        Arc::as_ptr(&shared)
    ));
    let rank = |(opened, rank)| {
        let place = Place {
            rank,
            job,
            addresses: addresses.clone(),
            nodes: Arc::clone(&nodes),
            processes: Box::default(),
            shared: Arc::clone(&shared),
        };
        Ofi::new(opened, place, None).map_err(unavailable)
    };
    let ranks: Result<Vec<Ofi>> = opened.into_iter().zip(0..).map(rank).collect();
    let mut ranks = ranks?;
    if needed {
        acquaint::all(&mut ranks);
        if let Some((_, why)) = shared.deaths.list(0).into_iter().next() {
            return Err(unavailable(format!(
                "ranks of this process cannot reach each other: {why}"
            )));
        }
    }
    Ok(ranks)
}

/// Tests whether libfabric is usable here under these settings: makes a small job inside this
/// process and sends a message through it. Returns the provider and the network.
///
/// # Errors
/// What went wrong, in the library's words.
pub fn probe(settings: &Settings) -> Result<String, String> {
    struct Heard(bool);
    impl Sink for Heard {
        fn accepts(&mut self, _peer: u32) -> bool {
            true
        }
        fn packet(&mut self, _peer: u32, _header: &Header, _payload: Payload<'_>) {
            self.0 = true;
        }
    }
    let config = Config {
        slots: 4,
        receive: 64 << 10,
        ..Config::from_settings(settings)
    };
    let mut ranks = in_process_with(2, &config).map_err(|error| error.to_string())?;
    let mut heard = Heard(false);
    let mut sent = Sent::Full;
    let start = std::time::Instant::now();
    while !heard.0 && start.elapsed() < PATIENCE {
        if sent == Sent::Full {
            // SAFETY: rank 1 exists and is not rank 0; no bytes are read.
            sent = unsafe { ranks[0].send_short(1, &Header::default(), std::ptr::null(), 0) };
        }
        ranks[0].poll(&mut heard);
        ranks[1].poll(&mut heard);
    }
    let info = &ranks[0].link.domain.info;
    let what = format!(
        "{} on {} ({})",
        info.provider(),
        info.domain(),
        info.fabric()
    );
    // The receiver goes first. The other way round the sender would wait for acknowledgements that
    // some providers give only while the receiver polls, which nobody does here any more.
    while let Some(last) = ranks.pop() {
        drop(last);
    }
    match heard.0 {
        true => Ok(what),
        false => Err(format!("a message over {what} did not arrive ({sent:?})")),
    }
}

/// How long the message may take that shows whether a provider works.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

fn check_size(n: u32) -> Result<()> {
    if n == 0 || n >= Wire::MORE {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("a job of {n} ranks cannot be made"),
        )
        .remedy(format!("use 1 to {} ranks", Wire::MORE - 1)));
    }
    Ok(())
}

/// This rank's endpoint, a roster for its node, its card, and a socket for heartbeats.
struct Made {
    link: Link,
    roster: Roster,
    card: Card,
    socket: Option<UdpSocket>,
}

impl Made {
    /// Whether the provider has IP addresses.
    fn has_ip(&self) -> bool {
        self.link.domain.info.ip().is_some()
    }

    /// Whether endpoints of one process have to be opened together.
    fn needs_acquaintance(&self) -> bool {
        let domain = &self.link.domain;
        acquaint::is_needed(domain.library.version(), &domain.info)
    }
}

fn make(config: &Config, size: u32) -> Result<Made> {
    // First, while there are descriptors: a rank that cannot find out its node looks as if it were
    // on another one.
    let (node, host) = (addr::node(), addr::host());
    let (library, info) = provider::choose(config)?;
    let link = Link::new(library, info, config, size, false).map_err(unavailable)?;
    let roster = Roster::create(size).map_err(unavailable)?;
    let socket = socket(config, link.domain.info.ip()).map_err(|error| {
        Error::new(
            ErrorKind::TransportUnavailable,
            format!("no socket for heartbeats could be opened: {error}"),
        )
        .remedy("let the process open UDP sockets, or do without (PORTOLAN_OFI_HEARTBEAT=0)")
    })?;
    let card = Card {
        process: Process::own(),
        node,
        host,
        protocol: link.protocol(),
        address: link.name().map_err(unavailable)?,
        roster: roster.descriptor(),
        pulse: socket.as_ref().and_then(|socket| socket.local_addr().ok()),
    };
    Ok(Made {
        link,
        roster,
        card,
        socket,
    })
}

/// A socket for heartbeats on the network that the provider uses, if that is an IP network.
fn socket(config: &Config, ip: Option<IpAddr>) -> std::io::Result<Option<UdpSocket>> {
    // A link-local address is meaningless without its interface.
    let usable = |ip: &IpAddr| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let Some(ip) = ip.filter(usable).filter(|_| !config.heartbeat.is_zero()) else {
        return Ok(None);
    };
    let socket = UdpSocket::bind((ip, 0))?;
    socket.set_nonblocking(true)?;
    Ok(Some(socket))
}

/// Sets up heartbeats with the ranks that have them.
fn heart(
    socket: UdpSocket,
    config: &Config,
    job: u32,
    rank: u32,
    link: &Link,
    cards: &[Card],
) -> Heart {
    let own = &cards[rank as usize];
    let others = (0..).zip(cards).map(|(peer, card)| {
        let address = card.pulse.filter(|_| peer != rank)?;
        Some(Other::new(
            address,
            card.host.clone(),
            card.node != own.node,
        ))
    });
    // With a shorter period, there would be nothing but heartbeats.
    let period = config.heartbeat.max(SHORTEST);
    let provider = link.domain.info.provider();
    let pulse = Pulse::new(rank, job, period, provider, others.collect());
    Heart::new(socket, pulse, period)
}

/// Shortest period of heartbeats.
const SHORTEST: std::time::Duration = std::time::Duration::from_millis(10);

/// Publishes this rank's text under a name, for example its card, and reads that of every rank,
/// this one included. One error for all, if any rank published an error. Collective.
fn told<T>(
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
fn judge(cards: &[Card], ip: bool) -> Result<()> {
    let first = &cards[0];
    let others: Vec<u32> = (0..cards.len() as u32)
        .filter(|&rank| cards[rank as usize].protocol != first.protocol)
        .collect();
    if others.is_empty() {
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
fn strangers(cards: &[Card]) -> Result<()> {
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

/// The number of each rank's node, and the first rank of each node.
fn nodes(cards: &[Card]) -> (Vec<u32>, Vec<u32>) {
    let mut known: Vec<(&str, u32)> = Vec::new();
    let numbers = (0_u32..).zip(cards).map(|(rank, card)| {
        let place = known.iter().position(|(node, _)| *node == card.node);
        place.unwrap_or_else(|| {
            known.push((&card.node, rank));
            known.len() - 1
        }) as u32
    });
    let numbers = numbers.collect();
    (numbers, known.into_iter().map(|(_, first)| first).collect())
}

/// Each rank's process id, where the process is on this node.
fn processes(cards: &[Card], node: &str) -> Box<[Option<u32>]> {
    let number = |card: &Card| (card.node == node).then_some(card.process.pid);
    cards.iter().map(number).collect()
}

/// The job's number, which its packets carry: FNV-1a of its name.
fn job_number(name: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    name.bytes().fold(0x811c_9dc5, step)
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

fn unavailable(why: String) -> Error {
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
    use portolan_core::job;
    use portolan_core::transport::WIRE_VERSION;

    use super::*;
    use crate::testing::opened_or_skipped;

    /// A rank's place in a job; rank 1 is told that the others' roster has another descriptor than
    /// it has.
    struct Misled(Box<dyn Bootstrap>);

    impl Bootstrap for Misled {
        fn rank(&self) -> u32 {
            self.0.rank()
        }

        fn size(&self) -> u32 {
            self.0.size()
        }

        fn job_id(&self) -> &str {
            self.0.job_id()
        }

        fn put(&mut self, key: &str, value: &str) -> Result<(), JobError> {
            self.0.put(key, value)
        }

        fn get(&mut self, key: &str) -> Result<String, JobError> {
            let text = self.0.get(key)?;
            let card = text.strip_prefix("card ").filter(|_| self.rank() == 1);
            let Some(Ok(mut card)) = card.map(Card::from_text) else {
                return Ok(text);
            };
            card.roster = card.roster.map(|_| i32::MAX);
            Ok(format!("card {}", card.to_text()))
        }

        fn fence(&mut self) -> Result<(), JobError> {
            self.0.fence()
        }

        fn abort(&mut self, code: i32, message: &str) {
            self.0.abort(code, message);
        }

        fn finalize(&mut self) -> Result<(), JobError> {
            self.0.finalize()
        }

        fn inherited(&self, what: &str) -> Option<std::os::fd::RawFd> {
            self.0.inherited(what)
        }

        fn kind(&self) -> &'static str {
            self.0.kind()
        }
    }

    /// Like a rank that has no descriptors left, and so does not get as far as the others.
    #[test]
    fn one_that_cannot_join_the_others_is_told_to_all() {
        let config = Config {
            provider: Some("tcp".to_owned()),
            interface: Some("lo".to_owned()),
            ..Config::default()
        };
        if opened_or_skipped("ranks that cannot join", 1, &config).is_none() {
            return; // The skip has been printed.
        }
        let errors = std::thread::scope(|scope| {
            let ranks = job::in_process(3).into_iter().map(|rank| {
                let config = &config;
                scope.spawn(move || open_with(&mut Misled(rank), config).map(drop))
            });
            let ranks: Vec<_> = ranks.collect();
            let ends = ranks.into_iter().map(|rank| rank.join().expect("a rank"));
            ends.map(|end| end.expect_err("rank 1 cannot").to_string())
                .collect::<Vec<_>>()
        });
        assert!(errors[0].contains("rank 1: "), "{}", errors[0]);
        assert_eq!(errors[0], errors[1]);
        assert_eq!(errors[0], errors[2]);
    }

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
    fn nodes_are_numbered_as_they_come() {
        let cards = [card("b", ""), card("a", ""), card("b", ""), card("c", "")];
        assert_eq!(nodes(&cards), (vec![0, 1, 0, 2], vec![0, 1, 3]));
    }

    #[test]
    fn processes_are_known_on_their_own_node() {
        let cards = [card("b", ""), card("a", ""), card("b", "")];
        let own = Some(std::process::id());
        assert_eq!(*processes(&cards, "b"), [own, None, own]);
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

    #[test]
    fn jobs_are_told_apart() {
        assert_ne!(job_number("1.a"), job_number("1.b"));
    }
}
