//! Enlarges TCP's receive buffers below the provider `sockets`.
//!
//! That provider peeks at the header of a message, and takes nothing out of the socket before all
//! of the header is there. TCP keeps a segment in the receive buffer, at its full size, until its
//! last byte is taken. Where segments are long, as over a loopback interface, a single segment of
//! which only the beginning of a header is left may fill the usual buffer of 128 KiB. TCP then lets
//! the peer send nothing more, the rest of the header never comes, and the connection is stuck for
//! good. (libfabric 1.17, Linux 6.18: `recvfrom(.., 24, MSG_PEEK)` returns 20 bytes for ever, while
//! the peer has 500 KB to send.) In a buffer that holds several such segments, one of them blocks
//! nothing, and a connection that is already stuck resumes when its buffer grows. libfabric has no
//! setting for this.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use crate::deaths::sever;
use crate::ofi::Ofi;

/// Providers that peek in this way.
const PEEKING: &[&str] = &["sockets"];

/// Bytes to ask for. The system reserves twice as many: twice this, or twice the most that it
/// allows.
const BYTES: libc::c_int = 1 << 20;

/// Most polls between two looks for new connections, and the factor by which each pause is longer
/// than the one before.
const SELDOM: u32 = 1 << 15;
const LONGER: u32 = 8;

/// When this rank looks for new connections of the provider.
#[derive(Debug)]
pub(crate) struct Rooms {
    /// Polls until the next look.
    left: u32,
    /// Polls between this look and the next one.
    pause: u32,
}

impl Rooms {
    /// For an endpoint of `provider`; `None` if that provider does not need this.
    pub(crate) fn of(provider: &str) -> Option<Self> {
        let rooms = Self { left: 1, pause: 1 };
        PEEKING.contains(&provider).then_some(rooms)
    }

    /// Expects a connection to another peer, at an unknown time.
    pub(crate) fn expect(&mut self) {
        *self = Self { left: 1, pause: 1 };
    }

    /// Counts a poll. Returns whether it is time to look.
    fn is_due(&mut self) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.left = self.pause;
        self.pause = (LONGER * self.pause).min(SELDOM);
        true
    }
}

/// Enlarges the buffers of new connections, if it is time to look for these.
#[cold]
#[inline(never)]
pub(crate) fn make(ofi: &mut Ofi) {
    if !ofi.rooms.as_mut().is_some_and(Rooms::is_due) {
        return;
    }
    let address = |rank: u32| sever::parse(ofi.addresses.of(rank));
    let Some(own) = address(ofi.rank) else {
        return;
    };
    let others: HashSet<SocketAddr> = (0..ofi.size).filter_map(address).collect();
    let most = allowed().min(BYTES);
    for socket in sever::sockets() {
        // A listening socket passes its buffer size on to the connections it accepts.
        let accepts = socket.here.port() == own.port();
        let calls = socket.there.is_some_and(|there| others.contains(&there));
        if accepts || calls {
            widen(socket.fd.as_raw_fd(), most);
        }
    }
}

/// The most that a process may ask for.
fn allowed() -> libc::c_int {
    let text = std::fs::read_to_string("/proc/sys/net/core/rmem_max");
    text.map_or(None, |text| text.trim().parse().ok())
        .unwrap_or(libc::c_int::MAX)
}

/// Asks for a receive buffer of that size, if that gives a larger one.
pub(crate) fn widen(fd: RawFd, bytes: libc::c_int) {
    if bytes_of(fd).is_some_and(|has| has < bytes.saturating_mul(2)) {
        // SAFETY: a number of the given size. It does no harm if the system refuses.
        unsafe {
            libc::setsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_RCVBUF,
                (&raw const bytes).cast(),
                size_of_val(&bytes) as libc::socklen_t,
            );
        }
    }
}

/// Bytes of a socket's receive buffer.
fn bytes_of(fd: RawFd) -> Option<libc::c_int> {
    let mut bytes: libc::c_int = 0;
    let mut len = size_of_val(&bytes) as libc::socklen_t;
    // SAFETY: a number of the given size.
    let told = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            (&raw mut bytes).cast(),
            &raw mut len,
        )
    };
    (told == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use portolan_core::transport::{Header, Payload, Sent, Sink, Transport};

    use super::*;
    use crate::config::Config;
    use crate::testing::opened_or_skipped;

    /// Counts the packets that arrive.
    struct Take(u32);

    impl Sink for Take {
        fn accepts(&mut self, _peer: u32) -> bool {
            true
        }

        fn packet(&mut self, _peer: u32, _header: &Header, _payload: Payload<'_>) {
            self.0 += 1;
        }
    }

    /// More polls than anything here takes.
    const POLLS: u32 = 5_000_000;

    #[test]
    fn it_is_looked_often_at_first() {
        assert!(Rooms::of("tcp").is_none());
        let mut rooms = Rooms::of("sockets").expect("it peeks");
        let looks = |rooms: &mut Rooms| (0..3 * SELDOM).filter(|_| rooms.is_due()).count();
        // After 1, 1, 8, 64, 512, 4096 and as many polls more.
        assert_eq!(looks(&mut rooms), 8, "{rooms:?}");
        assert_eq!(looks(&mut rooms), 3);
        rooms.expect();
        assert!(rooms.is_due() && rooms.is_due());
    }

    #[test]
    fn connections_of_a_provider_that_peeks_have_room() {
        let config = Config {
            provider: Some("sockets".to_owned()),
            interface: Some("lo".to_owned()),
            ..Config::default()
        };
        let Some(mut ranks) = opened_or_skipped("room for what is peeked at", 2, &config) else {
            return;
        };
        let mut sink = Take(0);
        let mut waiting = vec![(0, 1), (1, 0)];
        for _ in 0..POLLS {
            waiting.retain(|&(from, to): &(usize, u32)| {
                // SAFETY: the other rank exists and is not this one; no bytes are read.
                let sent =
                    unsafe { ranks[from].send_short(to, &Header::default(), std::ptr::null(), 0) };
                sent != Sent::Done
            });
            for rank in &mut ranks {
                rank.poll(&mut sink);
            }
            if sink.0 == 2 {
                break;
            }
        }
        assert_eq!(sink.0, 2, "the packets have not arrived");
        for _ in 0..2 * SELDOM {
            ranks[0].poll(&mut sink);
            ranks[1].poll(&mut sink);
        }
        let own = [0, 1].map(|rank| sever::parse(ranks[0].addresses.of(rank)).expect("of IP"));
        let theirs: Vec<_> = sever::sockets()
            .filter(|s| own.contains(&s.here) || s.there.is_some_and(|there| own.contains(&there)))
            .map(|socket| (socket.there, bytes_of(socket.fd.as_raw_fd())))
            .collect();
        assert!(theirs.iter().any(|(there, _)| there.is_some()), "connected");
        // The system's default size.
        let usual = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
        let usual = bytes_of(usual.as_raw_fd());
        if usual.is_some_and(|usual| usual >= allowed().min(BYTES).saturating_mul(2)) {
            return crate::testing::skipped(
                "room for what is peeked at",
                "the system gives as much by itself",
            );
        }
        for (there, bytes) in theirs {
            assert!(bytes > usual, "{bytes:?} to {there:?}, usually {usual:?}");
        }
    }
}
