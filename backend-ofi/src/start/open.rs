//! Makes the transport: one rank of a job of processes, or all ranks of a job inside one process.
//!
//! # How processes come together
//! 1. Every rank opens an endpoint, posts its buffers, and publishes its [`Card`], or the reason
//!    why it could not.
//! 2. Fence. Every rank reads all cards and comes to the same verdict about them.
//! 3. The processes of a node share the roster of the first of them, and watch each other. For
//!    that, a rank needs the others' cards, and descriptors, of which it may have too few, as well as
//!    for its connections. So every rank publishes whether it succeeded.
//! 4. Fence. Every rank reads what all others have published.
//!
//! If they come to an error at 2 or 4, there is another fence before any of them returns it.
//!
//! Nothing more is agreed on: the first rank to send finds the other's buffers posted.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;

use libfabric_sys::Library;
use portolan_core::config::Settings;
use portolan_core::job::Bootstrap;
use portolan_core::transport::{Header, Payload, Sent, Sink, Transport};
use portolan_core::{Error, ErrorKind, Result};

use crate::addr::{self, Addresses, Card, Process};
use crate::caps;
use crate::config::Config;
use crate::deaths::pulse::{Other, Pulse};
use crate::deaths::roster::Roster;
use crate::deaths::sever;
use crate::deaths::watch::{Heart, Watcher};
use crate::endpoint::link::Link;
use crate::ofi::{Ofi, Seat};
use crate::packets::wire::Wire;
use crate::quirks::acquaint;
use crate::shared::Shared;
use crate::start::info::Info;
use crate::start::verdict::{judge, published, read, same_format, strangers, unavailable};
use crate::start::{descriptors, provider};

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
    check_size(job.size())?;
    let opened = meet(job, config);
    // All ranks come to the same error, but some read slowly what the others have published. They
    // could not report the error at all if ranks that have it already ended the job. A launcher
    // that fails does not lead all ranks to this point.
    let agreed = |error: &Error| error.kind() != ErrorKind::Job;
    if opened.as_ref().is_err_and(agreed) && job.size() > 1 {
        let _ = job.fence();
    }
    opened
}

/// Makes this rank's end and joins it to those of the others. All ranks succeed, or none does.
fn meet(job: &mut dyn Bootstrap, config: &Config) -> Result<Ofi> {
    let (rank, size) = (job.rank(), job.size());
    let made = make(config, size);
    let text = match &made {
        Ok(made) => format!("card {}", made.card.to_text()),
        Err(error) => format!("error {}", error.to_string().replace('\n', " ")),
    };
    let texts = published(job, "rank", &text)?;
    same_format(&texts)?;
    let cards = read(&texts, Card::from_text)?;
    // A rank without an endpoint has published why, and no rank gets as far as this.
    let ip = made.as_ref().is_ok_and(Made::has_ip);
    judge(&cards, ip)?;
    if made.as_ref().is_ok_and(Made::needs_acquaintance) {
        strangers(&cards)?;
    }
    let ofi = join(made?, (rank, job_number(job.job_id())), &cards, config);
    // Last, since everything that is open counts. A rank that could not connect to all others keeps
    // what it has opened until they have joined it.
    let able = match &ofi {
        Ok(ofi) => descriptors::suffice(&ofi.link.domain.info, size),
        Err(error) => Err(error.clone()),
    };
    let text = match able {
        Ok(()) => "card ".to_owned(),
        Err(error) => format!("error {}", error.to_string().replace('\n', " ")),
    };
    read(&published(job, "joined", &text)?, |_| Ok(())).and(ofi)
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
        .map(|socket| heart(socket, config, number, rank, &link, cards, &nodes));
    let here = (0..size)
        .filter(|&peer| peer != rank && cards[peer as usize].node == own.node)
        .map(|peer| (peer, cards[peer as usize].process));
    let info = &link.domain.info;
    // Its queues, with their locks, are shared with other processes.
    let counted = caps::over(info, "shm").then(|| (rank, info.provider()));
    let watcher = Watcher::start(Arc::clone(&shared), here, heart, counted).map_err(unavailable)?;
    let seat = Seat {
        rank,
        job: number,
        addresses: Addresses::new(cards.iter().map(|card| &*card.address)),
        nodes: nodes.into(),
        processes: processes(cards, &own.node),
        shared,
    };
    Ofi::new(link, seat, Some(watcher)).map_err(unavailable)
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
    descriptors::prepare(&info, n, n);
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
        let seat = Seat {
            rank,
            job,
            addresses: addresses.clone(),
            nodes: Arc::clone(&nodes),
            processes: Box::default(),
            shared: Arc::clone(&shared),
        };
        Ofi::new(opened, seat, None).map_err(unavailable)
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
    let (library, mut info) = provider::choose(config)?;
    if let Some(accelerators) = &mut info.memory {
        accelerators.apart = true;
    }
    descriptors::prepare(&info, 1, size);
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
    nodes: &[u32],
) -> Heart {
    let own = &cards[rank as usize];
    // Neighbours in the list are mostly on one host, whose name is kept once.
    let mut host: Arc<str> = Arc::from("");
    let others = (0..).zip(cards).map(|(peer, card)| {
        let address = card.pulse.filter(|_| peer != rank)?;
        if *host != *card.host {
            host = card.host.as_str().into();
        }
        let (node, far) = (nodes[peer as usize], card.node != own.node);
        let other = Other::new(address, Arc::clone(&host), node, far);
        Some(other.at(sever::parse(&card.address)))
    });
    // With a shorter period, there would be nothing but heartbeats.
    let period = config.heartbeat.max(SHORTEST);
    let provider = link.domain.info.provider();
    let pulse = Pulse::new(rank, job, period, provider, others.collect());
    Heart::new(socket, pulse, period)
}

/// Shortest period of heartbeats.
const SHORTEST: std::time::Duration = std::time::Duration::from_millis(10);

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

#[cfg(test)]
mod tests;
