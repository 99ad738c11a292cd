//! Connections that are shut, and those that must not be, over TCP within a process.

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
    let Some(mut ranks) = opened_or_skipped("a rank that is told it is dead", 2, &config) else {
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

/// Rank 1 has opened the connection, and others at its address live, so nothing tells its socket
/// from theirs: the read from it goes on as long as it computes.
#[test]
fn a_read_that_goes_on_keeps_only_its_own_death_back() {
    let config = Config {
        provider: Some("tcp".to_owned()),
        interface: Some("lo".to_owned()),
        ..Config::default()
    };
    let Some(mut ranks) = opened_or_skipped("a read that goes on", 4, &config) else {
        return; // The skip has been printed.
    };
    let [zero, one, two, _three] = &mut ranks[..] else {
        panic!("four ranks");
    };
    // What one knows, as a process, the others do not.
    zero.shared = Arc::new(Shared::new(Roster::within(4), 4));
    tell(one, zero);
    tell(two, zero);
    let (source, mut targets) = (vec![7_u8; LEN], [vec![0_u8; LEN], vec![0_u8; LEN]]);
    let places = targets.each_mut().map(|target| target.as_mut_ptr());
    let exposed = [&mut *one, &mut *two].map(|owner| {
        // SAFETY: the source is there until the end of the test.
        unsafe { owner.expose(source.as_ptr(), LEN) }.expect("the provider has RMA")
    });
    // SAFETY: the targets are there until the end of the test.
    let read = |zero: &mut Ofi, which: usize| unsafe {
        zero.pull(which as u32 + 1, &exposed[which], 0, places[which], LEN)
    };
    while !zero.link.memory.is_reading() {
        assert_eq!(read(zero, 0), Pulled::Later);
        zero.poll(&mut Count(0));
        if !zero.link.memory.is_reading() {
            one.poll(&mut Count(0));
        }
    }
    zero.shared.deaths.declare(1, "a test says so");
    for _ in 0..4 * SILENCE {
        zero.poll(&mut Count(0));
    }
    assert_eq!(zero.failures(), 0, "the program would have the target back");
    zero.shared.deaths.declare(3, "a test says so");
    let mut polls = 0;
    while zero.failures() == 0 {
        zero.poll(&mut Count(0));
        polls += 1;
        assert!(polls < POLLS, "the death of another waits for the read");
    }
    let known = |zero: &Ofi| [1, 3].map(|rank| zero.failure_of(rank).is_some());
    assert_eq!(known(zero), [false, true]);
    assert!(zero.link.memory.is_reading_from(|peer| peer == 1), "still");
    // Reads from those who live begin as always.
    while read(zero, 1) == Pulled::Later {
        zero.poll(&mut Count(0));
        two.poll(&mut Count(0));
        polls += 1;
        assert!(polls < POLLS, "the read from one that lives never ends");
    }
    assert!(targets[1] == source, "it was to be streamed");
    while zero.failures() == 1 {
        zero.poll(&mut Count(0));
        one.poll(&mut Count(0));
        polls += 1;
        assert!(polls < POLLS, "the death is never told");
    }
    assert_eq!((zero.failures(), known(zero)), (2, [true, true]));
    assert!(!zero.link.memory.is_reading());
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
    let mut call =
        |file: &std::fs::File, what| unsafe { libc::fcntl(file.as_raw_fd(), what, &raw mut lock) };
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
