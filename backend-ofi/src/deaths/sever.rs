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
mod tests {
    use std::cell::OnceCell;

    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::sync::Arc;

    use crate::progress::SILENCE;
    use portolan_core::config::MatchMode;
    use portolan_core::transport::{Header, Pulled, Sent};

    use super::*;
    use crate::config::Config;
    use crate::deaths::roster::Roster;
    use crate::shared::Shared;
    use crate::testing::{Count, opened_or_skipped};

    /// More polls than anything here takes.
    const POLLS: u32 = 5_000_000;

    /// Sends a packet, which arrives.
    fn tell(from: &mut Ofi, to: &mut Ofi) {
        let mut count = Count(0);
        let mut sent = Sent::Full;
        let mut polls = 0;
        while count.0 == 0 {
            if sent == Sent::Full {
                // SAFETY: the other rank exists and is not this one; no bytes are read.
                sent = unsafe { from.send_short(to.rank, &Header::default(), std::ptr::null(), 0) };
            }
            from.poll(&mut Count(0));
            to.poll(&mut count);
            polls += 1;
            assert!(polls < POLLS, "the packet never arrives");
        }
        assert_eq!(sent, Sent::Done);
    }

    /// Bytes of a read: more than arrives at once.
    const LEN: usize = 8 << 20;

    /// Rank 1 of `n` panics while rank 0 reads from it. Rank 0 does `before` before that, `during`
    /// while it reads, and `after` when the read has ended.
    fn a_read_is_severed(
        n: u32,
        before: impl FnOnce(&mut Ofi, &mut [Ofi]),
        during: impl FnOnce(&mut Ofi, &mut [Ofi]),
        after: impl FnOnce(&mut Ofi, &mut [Ofi]),
    ) {
        let config = Config {
            provider: Some("tcp".to_owned()),
            interface: Some("lo".to_owned()),
            ..Config::default()
        };
        let Some(mut others) = opened_or_skipped("reads that are severed", n, &config) else {
            return; // The skip has been printed.
        };
        let (mut one, mut zero) = (others.remove(1), others.remove(0));
        let (source, mut target) = (vec![7_u8; LEN], vec![0_u8; LEN]);
        // The rank that will be read from opens the connection.
        tell(&mut one, &mut zero);
        before(&mut zero, &mut others);
        let mut count = Count(0);
        // SAFETY: the source is there until the end of the test.
        let exposure = unsafe { one.expose(source.as_ptr(), LEN) }.expect("the provider has RMA");
        while !zero.link.memory.is_reading() {
            // SAFETY: the target is there until the end of the test.
            let pulled = unsafe { zero.pull(1, &exposure, 0, target.as_mut_ptr(), LEN) };
            assert_eq!(pulled, Pulled::Later);
            zero.poll(&mut count);
            if !zero.link.memory.is_reading() {
                one.poll(&mut count);
            }
        }
        during(&mut zero, &mut others);
        let end = std::thread::spawn(move || {
            let _ends = one;
            std::panic::resume_unwind(Box::new("the rank panics"));
        });
        assert!(end.join().is_err());
        let mut polls = 0;
        // SAFETY: the target is there until the end of the test.
        while unsafe { zero.pull(1, &exposure, 0, target.as_mut_ptr(), LEN) } == Pulled::Later {
            zero.poll(&mut count);
            polls += 1;
            assert!(polls < POLLS, "the read never ends");
        }
        // Long enough that connections with the dead are shut, although another read is under way.
        for _ in 0..2 * SILENCE {
            zero.poll(&mut count);
        }
        // Reads from other ranks end before the death is reported.
        while zero.failures() == 0 {
            zero.poll(&mut count);
            for other in &mut others {
                other.poll(&mut Count(0));
            }
            polls += 1;
            assert!(polls < POLLS, "the death is never told");
        }
        assert_eq!(zero.failure_of(1).as_deref(), Some("it panicked"));
        after(&mut zero, &mut others);
    }

    /// Ranks of one process, each of which has opened a connection to another; one of them leaves,
    /// or is held to be dead (`outcast`).
    fn one_hangs_up(matching: MatchMode, outcast: bool) {
        let config = Config {
            provider: Some("tcp".to_owned()),
            interface: Some("lo".to_owned()),
            matching,
            ..Config::default()
        };
        let Some(mut ranks) = opened_or_skipped("a rank that hangs up", 3, &config) else {
            return; // The skip has been printed.
        };
        for (from, to) in [(0, 1), (1, 2), (2, 0)] {
            let [from, to] = ranks.get_disjoint_mut([from, to]).expect("two ranks");
            tell(from, to);
        }
        let address = |rank: u32| parse(ranks[0].addresses.of(rank));
        let all: Vec<_> = (0..3).filter_map(address).collect();
        assert_eq!(all.len(), 3);
        let joins = |Socket { here, there, .. }: &Socket| {
            all.contains(here) || there.is_some_and(|there| all.contains(&there))
        };
        let before: Vec<Socket> = sockets()
            .filter(|s| s.there.is_some() && joins(s))
            .collect();
        if outcast {
            ranks[0].shared.deaths.declare(0, "a test says so");
            connections(&ranks[0]);
        } else {
            super::all(&ranks[0]);
        }
        let hung_up = |socket: &Socket| {
            let fd = socket.fd.as_raw_fd();
            let mut entry = libc::pollfd {
                fd,
                events: 0,
                revents: 0,
            };
            // SAFETY: one entry, as the count says.
            unsafe { libc::poll(&raw mut entry, 1, 0) };
            entry.revents & libc::POLLHUP != 0
        };
        // Rank 0 opened a connection to rank 1, and accepted one from rank 2.
        let others = before.iter().filter(|s| {
            let ends = [Some(s.here), s.there];
            ends.contains(&Some(all[2])) && !ends.contains(&Some(all[0]))
        });
        assert!(
            others.clone().count() >= 2,
            "ranks 1 and 2 have a connection"
        );
        for socket in others {
            assert!(!hung_up(socket), "{} {:?}", socket.here, socket.there);
        }
        for (own, there) in [(false, all[1]), (true, all[0])] {
            let cut = |s: &&Socket| {
                hung_up(s)
                    && if own {
                        s.here == there
                    } else {
                        s.there == Some(there)
                    }
            };
            assert!(before.iter().any(|s| cut(&s)), "{there} is not cut");
        }
        let [_, one, two] = &mut ranks[..] else {
            unreachable!("there are three");
        };
        tell(one, two);
        tell(two, one);
        for living in 1..3 {
            let dead = one.shared.deaths.is_dead(living);
            assert!(!dead, "rank {living} is held to be dead");
        }
    }

    #[test]
    fn who_hangs_up_cuts_nobody_elses_connections() {
        one_hangs_up(MatchMode::Software, false);
        one_hangs_up(MatchMode::Native, false);
    }

    #[test]
    fn who_is_held_to_be_dead_cuts_its_own_connections() {
        one_hangs_up(MatchMode::Software, true);
        one_hangs_up(MatchMode::Native, true);
    }

    /// The program of rank 0 gets its buffers back when the rank learns that it is held to be dead.
    /// Rank 1, which lives, is reading from one of them.
    #[test]
    fn nobody_reads_on_from_a_rank_that_is_told_of_its_own_death() {
        let config = Config {
            provider: Some("tcp".to_owned()),
            interface: Some("lo".to_owned()),
            ..Config::default()
        };
        let Some(mut ranks) = opened_or_skipped("a rank that is told it is dead", 2, &config)
        else {
            return; // The skip has been printed.
        };
        let [zero, one] = &mut ranks[..] else {
            panic!("two ranks");
        };
        // What one knows, as a process, the other does not.
        zero.shared = Arc::new(Shared::new(Roster::within(2), 2));
        tell(one, zero);
        let (source, mut target) = (vec![7_u8; LEN], vec![0_u8; LEN]);
        // SAFETY: the source is there until the end of the test.
        let exposure = unsafe { zero.expose(source.as_ptr(), LEN) }.expect("the provider has RMA");
        let place = target.as_mut_ptr();
        // SAFETY: the target is there until the end of the test.
        let read = |one: &mut Ofi| unsafe { one.pull(0, &exposure, 0, place, LEN) };
        while !one.link.memory.is_reading() {
            assert_eq!(read(one), Pulled::Later);
            one.poll(&mut Count(0));
            zero.poll(&mut Count(0));
        }
        zero.shared.deaths.declare(0, "rank 1 says so");
        while zero.failures() == 0 {
            zero.poll(&mut Count(0));
        }
        assert_eq!(zero.shared.deaths.count(), 1, "it accuses nobody");
        let mut polls = 0;
        let end = loop {
            match read(one) {
                Pulled::Later => {}
                end => break end,
            }
            one.poll(&mut Count(0));
            zero.poll(&mut Count(0));
            polls += 1;
            assert!(polls < POLLS, "the read never ends");
        };
        assert_ne!(
            end,
            Pulled::Done,
            "it has read from memory that was given back"
        );
        assert_eq!(zero.shared.deaths.count(), 1, "it accuses nobody");
    }

    #[test]
    fn a_read_from_a_thread_that_panics_ends() {
        a_read_is_severed(2, |_, _| {}, |_, _| {}, |_, _| {});
    }

    /// All ranks are at one address, so connections that this rank has accepted do not show whose
    /// they are. A read from a living rank still completes.
    #[test]
    fn the_living_keep_their_connections() {
        let talk = |zero: &mut Ofi, others: &mut [Ofi]| {
            for other in others {
                tell(other, zero);
                tell(zero, other);
            }
        };
        let (source, mut target) = (vec![9_u8; LEN], vec![0_u8; LEN]);
        let place = target.as_mut_ptr();
        let exposed = OnceCell::new();
        // SAFETY: source and target are there until the end of the test.
        let read = |zero: &mut Ofi, exposure| unsafe { zero.pull(2, exposure, 0, place, LEN) };
        a_read_is_severed(
            4,
            // Rank 0 opens the connections to some ranks first, and one opens its own to rank 0.
            |zero, others| {
                tell(zero, &mut others[0]);
                talk(zero, others);
            },
            |zero, others| {
                // SAFETY: as above.
                let exposure = unsafe { others[0].expose(source.as_ptr(), LEN) };
                let exposure = exposed.get_or_init(|| exposure.expect("the provider has RMA"));
                for _ in 0..1000 {
                    assert_eq!(read(zero, exposure), Pulled::Later);
                    zero.poll(&mut Count(0));
                }
            },
            |zero, others| {
                let exposure = exposed.get().expect("the read has begun");
                let mut polls = 0;
                loop {
                    match read(zero, exposure) {
                        Pulled::Done => break,
                        other => assert_eq!(other, Pulled::Later, "it was cut off"),
                    }
                    zero.poll(&mut Count(0));
                    others[0].poll(&mut Count(0));
                    polls += 1;
                    assert!(polls < POLLS, "the read from one that lives never ends");
                }
                talk(zero, others);
                assert_eq!(zero.failures(), 1, "a living one is held to be dead");
                assert!(
                    others
                        .iter()
                        .all(|other| zero.failure_of(other.rank).is_none())
                );
            },
        );
        assert!(target == source);
    }

    /// A process loses its lock on a file when it closes any descriptor of that file. A lock of an
    /// open file description conflicts with it, so the system is asked for one of those.
    #[test]
    #[cfg(target_os = "linux")]
    fn locks_on_files_stay() {
        let path = std::env::temp_dir().join(format!("portolan-lock-{}", std::process::id()));
        let open = || {
            let mut options = std::fs::OpenOptions::new();
            let file = options.read(true).write(true).create(true).truncate(false);
            file.open(&path).expect("a file")
        };
        let (file, other) = (open(), open());
        // SAFETY: numbers, for which zero is a value.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as libc::c_short;
        // SAFETY: open descriptors, a lock as the system has it.
        let mut call = |file: &std::fs::File, what| unsafe {
            libc::fcntl(file.as_raw_fd(), what, &raw mut lock)
        };
        assert_eq!(call(&file, libc::F_SETLK), 0);
        let _ = sockets().count();
        assert_eq!(call(&other, libc::F_OFD_GETLK), 0);
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(
            libc::c_int::from(lock.l_type),
            libc::F_WRLCK,
            "the lock is gone"
        );
    }

    #[test]
    fn the_ends_of_sockets_are_told() {
        let both = |fd: RawFd| (end(fd, libc::getsockname), end(fd, libc::getpeername));
        for ip in ["127.0.0.1", "::1"] {
            let Ok(listener) = TcpListener::bind((ip, 0)) else {
                continue; // There is no such network here.
            };
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let here = stream.local_addr().ok();
            let wanted = (here, stream.peer_addr().ok());
            assert_eq!(both(stream.as_raw_fd()), wanted);
            let copied = copy(stream.as_raw_fd()).expect("it is open");
            assert_ne!(copied.as_raw_fd(), stream.as_raw_fd());
            assert_eq!(both(copied.as_raw_fd()), wanted);
            let listens = (listener.local_addr().ok(), None);
            assert_eq!(both(listener.as_raw_fd()), listens, "it is not connected");
            let found = |(own, peer)| sockets().any(|s| (Some(s.here), s.there) == (own, peer));
            assert!(found(wanted) && found(listens));
        }
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(end(socket.as_raw_fd(), libc::getpeername), None);
        assert_eq!(both(-1), (None, None));
        assert!(copy(-1).is_none(), "nothing is open");
    }

    #[test]
    fn other_addresses_are_none() {
        for bytes in [&[][..], &[2], &[2, 0, 1, 2, 127], b"fi_shm://1234"] {
            assert_eq!(parse(bytes), None, "{bytes:?}");
        }
    }
}
