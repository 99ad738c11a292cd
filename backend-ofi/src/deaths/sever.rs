//! Ends connections with ranks that are lost.
//!
//! A read from a rank whose node has gone would only end when TCP gives up, after a quarter of an
//! hour. Until then, the read's target belongs to the provider. libfabric has no call that ends it.
//! Therefore the sockets below it are shut down, whereupon the provider itself ends what was under
//! way, as if the peer had hung up.
//!
//! A connection that a lost rank has opened stays open as long as another rank at its IP address
//! lives. If the lost rank's process has ended, the system there closes it. If that lives (it was
//! stopped, say), what the provider is answering to it goes on.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use portolan_core::transport::Transport;

use crate::ofi::Ofi;

/// Shuts down the connections of this rank with dead ranks, where the provider is one over IP. If
/// this rank itself is held to be dead, these are all others: its engine ends everything that it
/// has under way with them.
#[cold]
pub(crate) fn connections(ofi: &Ofi) {
    shut(ofi, false);
}

/// Shuts down the connections of a rank that has left with all other ranks, so that the provider
/// ends what is under way there: an `ofi_rxm` endpoint that is closed while a message is being read
/// crashes (1.17). Connections between other ranks of this process stay.
#[cold]
pub(crate) fn all(ofi: &Ofi) {
    shut(ofi, true);
}

fn shut(ofi: &Ofi, leaving: bool) {
    let address = |rank: u32| parse(ofi.addresses.of(rank));
    let outcast = ofi.shared.deaths.is_dead(ofi.rank);
    let dead = ofi.shared.deaths.list(0).into_iter();
    let dead = dead.filter(|&(rank, _)| rank != ofi.rank);
    let dead: Vec<SocketAddr> = dead.filter_map(|(rank, _)| address(rank)).collect();
    let all = leaving || outcast;
    let others = (0..if all { ofi.size } else { 0 }).filter(|&rank| rank != ofi.rank);
    let others: Vec<SocketAddr> = others.filter_map(address).collect();
    let Some(own) = address(ofi.rank).filter(|_| all || !dead.is_empty()) else {
        return;
    };
    // If all ranks of a host are dead, a connection from there is one of theirs. Otherwise nothing
    // tells whose it is: its port there is not the one by which its rank is known.
    let whole = |ip: IpAddr| {
        let mut all = (0..ofi.size).filter_map(|rank| Some((rank, address(rank)?)));
        let gone = |rank| rank != ofi.rank && ofi.shared.deaths.is_dead(rank);
        all.all(|(rank, address)| address.ip() != ip || gone(rank))
    };
    let mine = match all && has_company(ofi) {
        true => Some(watched(ofi, own)),
        false => None,
    };
    let is_mine = |number: &RawFd| mine.as_ref().is_none_or(|mine| mine.contains(number));
    let is_own = |address: SocketAddr| {
        address.port() == own.port() && (address.ip() == own.ip() || own.ip().is_unspecified())
    };
    // A rank keeps its connection with itself, even if others declare it dead. (If it cannot tell
    // its sockets from those of others in this process, it keeps the connections with these.)
    let mut itself: Vec<SocketAddr> = Vec::new();
    if outcast && !leaving {
        let unseen = mine.as_ref().is_some_and(BTreeSet::is_empty);
        let ends = sockets().filter(|end| unseen || is_mine(&end.number));
        let ends = ends.filter(|end| end.there.is_some_and(is_own));
        itself.extend(ends.map(|end| end.here));
    }
    for Socket {
        number,
        fd,
        here,
        there,
    } in sockets()
    {
        let Some(there) = there else {
            continue;
        };
        // This rank opened the connection to such a rank (`called`), or accepted it from one
        // (`calls`).
        let called = dead.contains(&there) || others.contains(&there);
        let called = called && is_mine(&number);
        let calls = is_own(here);
        let by_the_dead = || dead.iter().any(|dead| dead.ip() == there.ip()) && whole(there.ip());
        let by_others = || leaving || (outcast && !itself.contains(&there));
        if called || (calls && (by_others() || by_the_dead())) {
            // SAFETY: no memory is touched. This rank expects nothing more of this socket's peer.
            unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RDWR) };
        }
    }
}

/// Whether this process has sockets of other ranks.
fn has_company(ofi: &Ofi) -> bool {
    let own = std::process::id();
    let here = |peer| peer != ofi.rank && ofi.process_of(peer) == Some(own);
    // For ranks that were made together, nothing records that they are in one process.
    ofi.process_of(ofi.rank).is_none() || (0..ofi.size).any(here)
}

/// The descriptors of this rank's endpoint: the descriptor on which it sleeps watches its sockets,
/// usually through other descriptors. Empty where they cannot be seen, because there is no such
/// descriptor or it is of another kind; that shows in that the socket on which the endpoint listens
/// is not among them.
fn watched(ofi: &Ofi, own: SocketAddr) -> BTreeSet<RawFd> {
    let mut found = BTreeSet::new();
    let mut new: Vec<RawFd> = ofi.link.domain.wait.into_iter().collect();
    while let Some(number) = new.pop() {
        if found.insert(number) {
            let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}"));
            let text = text.unwrap_or_default();
            let lines = text.lines().filter_map(|line| line.strip_prefix("tfd:"));
            new.extend(lines.filter_map(|line| {
                let number = line.split_whitespace().next()?;
                number.parse::<RawFd>().ok()
            }));
        }
    }
    let listens = |&number: &RawFd| {
        let here = end(number, libc::getsockname);
        here.is_some_and(|here| here.port() == own.port())
            && end(number, libc::getpeername).is_none()
    };
    match found.iter().any(listens) {
        true => found,
        false => BTreeSet::new(),
    }
}

/// A socket over IP that this process has open.
pub(crate) struct Socket {
    /// The descriptor under which it was found.
    number: RawFd,
    /// A duplicate of that descriptor: another thread may close the original, and the system may
    /// reuse its number.
    pub(crate) fd: OwnedFd,
    pub(crate) here: SocketAddr,
    /// The address that it is connected to.
    pub(crate) there: Option<SocketAddr>,
}

/// All sockets over IP that this process has open.
pub(crate) fn sockets() -> impl Iterator<Item = Socket> {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter_map(|number| {
        // Only sockets are duplicated: closing a duplicate of a file's descriptor would cost the
        // process its locks on that file.
        end(number, libc::getsockname)?;
        let fd = copy(number)?;
        let here = end(fd.as_raw_fd(), libc::getsockname)?;
        let there = end(fd.as_raw_fd(), libc::getpeername);
        Some(Socket {
            number,
            fd,
            here,
            there,
        })
    })
}

/// A duplicate of the descriptor `fd`; `None` if that is not open.
fn copy(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: no memory is touched.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    // SAFETY: open, new, and owned by nothing else.
    (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy) })
}

/// `getsockname` or `getpeername`.
type Ask = unsafe extern "C" fn(RawFd, *mut libc::sockaddr, *mut libc::socklen_t) -> i32;

/// One end of a socket over IP.
fn end(fd: RawFd, ask: Ask) -> Option<SocketAddr> {
    let mut bytes = [0_u8; size_of::<libc::sockaddr_storage>()];
    let mut len = bytes.len() as libc::socklen_t;
    // SAFETY: `len` says how much room there is.
    let result = unsafe { ask(fd, bytes.as_mut_ptr().cast(), &raw mut len) };
    (result == 0).then(|| parse(&bytes[..(len as usize).min(bytes.len())]))?
}

/// An IP address, as the system has it in memory; `None` if it is another kind of address.
pub(crate) fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let ip: IpAddr = match i32::from(family) {
        libc::AF_INET => Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(4..8)?).ok()?).into(),
        libc::AF_INET6 => Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(8..24)?).ok()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

#[cfg(test)]
mod tests;
