//! Notices that a rank has died: one thread sleeps on pidfds of this node's processes, and on a
//! socket for heartbeats with ranks of other nodes.
//!
//! A pidfd becomes readable when its process ends, however it ends. A rank that left in good order
//! has recorded that in the roster before; any other end is a death.
//! [`pulse`](crate::deaths::pulse) draws the conclusions from heartbeats; this file has the clock
//! and the socket.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use portolan_core::transport::Bell;

use crate::addr::Process;
use crate::deaths::datagram::ROOM;
use crate::deaths::pulse::{Out, Pulse};
use crate::deaths::sever;
use crate::endpoint::bell::EventBell;
use crate::quirks::hung_calls::{Calls, LOOK, Patience};
use crate::shared::Shared;

/// How long, and how many times in all, a rank that leaves tells the others, which answer at once
/// if they are there.
const FAREWELL: Duration = Duration::from_secs(1);
const FAREWELLS: u32 = 40;
/// How long to wait before retrying a call for which the system has no memory.
const SCARCE: Duration = Duration::from_millis(100);

/// A handle of the watching thread.
#[derive(Debug)]
pub(crate) struct Watcher {
    alarm: Arc<EventBell>,
    end: Arc<AtomicU8>,
    thread: Option<JoinHandle<()>>,
    calls: Option<Arc<Calls>>,
}

/// Values of `end`: go on; end; end after telling the others that this rank leaves.
const GO_ON: u8 = 0;
const END: u8 = 1;
const LEAVE: u8 = 2;

/// A process that is watched.
struct Watched {
    rank: u32,
    process: Process,
    /// `None` once the process has ended.
    fd: Option<OwnedFd>,
}

/// Heartbeats, with their socket and clock.
#[derive(Debug)]
pub(crate) struct Heart {
    socket: UdpSocket,
    pulse: Pulse,
    period: Duration,
    next: Instant,
}

struct Watch {
    shared: Arc<Shared>,
    watched: Vec<Watched>,
    heart: Option<Heart>,
    patience: Option<Patience>,
    /// Whether one of the processes has died.
    died: bool,
    alarm: Arc<EventBell>,
    end: Arc<AtomicU8>,
}

impl Watcher {
    /// Watches these ranks' processes, and other ranks by their heartbeats. With `counted` (this
    /// rank and its provider), it also watches whether the rank's provider calls return.
    pub(crate) fn start(
        shared: Arc<Shared>,
        processes: impl Iterator<Item = (u32, Process)>,
        heart: Option<Heart>,
        counted: Option<(u32, String)>,
    ) -> Result<Self, String> {
        let (mut watched, mut died) = (Vec::new(), false);
        for (rank, process) in processes {
            let fd = descriptor(process)?;
            if fd.is_none() {
                died |= ended(&shared, rank, process);
            }
            watched.push(Watched { rank, process, fd });
        }
        let alarm = Arc::new(EventBell::new(None)?);
        if let Some(heart) = &heart {
            shared.contacts.tell(&alarm);
            shared.deaths.tell(&alarm);
            shared.counts.set_period(heart.period);
        }
        let end = Arc::new(AtomicU8::new(GO_ON));
        let calls = counted.as_ref().map(|_| Arc::<Calls>::default());
        let patience = counted.zip(calls.clone());
        let patience =
            patience.map(|((rank, provider), calls)| Patience::new(calls, rank, provider));
        let mut watch = Watch {
            shared,
            watched,
            heart,
            patience,
            died,
            alarm: Arc::clone(&alarm),
            end: Arc::clone(&end),
        };
        let thread = Some(spawn(move || watch.run())?);
        Ok(Self {
            alarm,
            end,
            thread,
            calls,
        })
    }

    /// Where the rank counts its provider calls, if these are watched.
    pub(crate) fn calls(&self) -> Option<Arc<Calls>> {
        self.calls.clone()
    }

    /// Has the thread tell the ranks that watch this one that it leaves in good order, and stops
    /// watching.
    pub(crate) fn leave(self) {
        // Relaxed, here and in `drop`: the bell orders it.
        self.end.store(LEAVE, Ordering::Relaxed);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self
            .end
            .compare_exchange(GO_ON, END, Ordering::Relaxed, Ordering::Relaxed);
        self.alarm.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Opens a pidfd of the process; `None` if that is already gone.
fn descriptor(process: Process) -> Result<Option<OwnedFd>, String> {
    // SAFETY: two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process.pid as libc::pid_t, 0) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ESRCH) => Ok(None),
            _ => Err(failed("pidfd_open")),
        };
    }
    // SAFETY: a new descriptor, owned by nothing else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    // The pidfd refers to whichever process has the number now.
    Ok((!process.is_another()).then_some(fd))
}

/// Starts the thread with every signal blocked, so that the program's signal handlers run in other
/// threads.
fn spawn(body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, String> {
    // SAFETY: plain old data, filled by the calls below.
    let (mut all, mut before) = unsafe { std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>() };
    // SAFETY: valid sets. This thread's mask is restored right after the new thread has inherited
    // the full one.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let builder = std::thread::Builder::new().name("portolan-watch".into());
    let thread = builder.stack_size(64 << 10).spawn(body);
    // SAFETY: the mask that was there before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    thread.map_err(|error| {
        format!("the thread that watches the other ranks did not start: {error} (ulimit -u)")
    })
}

impl Watch {
    fn run(&mut self) {
        loop {
            let beat = self.heart.as_ref().map(Heart::until_next);
            let looks = self.patience.is_some() && self.died;
            let limits = beat.into_iter().chain(looks.then_some(LOOK));
            self.wait(limits.min());
            self.alarm.quiet();
            let end = self.end.load(Ordering::Relaxed);
            if let Some(patience) = self.patience.as_mut().filter(|_| self.died) {
                let living = self.watched.iter().filter(|one| one.fd.is_some());
                patience.look(&self.shared, living.map(|one| one.process.pid));
            }
            if let Some(heart) = &mut self.heart {
                heart.turn(&self.shared);
                if end == LEAVE {
                    heart.farewell(&self.shared);
                }
            }
            if end != GO_ON {
                return;
            }
        }
    }

    /// Waits until there is something to do, and checks which processes have ended.
    fn wait(&mut self, limit: Option<Duration>) {
        // poll(2) skips entries whose descriptor is negative.
        let fd_of = |one: &Watched| one.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let socket = self.heart.as_ref().map(|heart| heart.socket.as_raw_fd());
        let fds = self.watched.iter().map(fd_of);
        let fds = fds.chain([self.alarm.event(), socket.unwrap_or(-1)]);
        let Some(ready) = poll(fds, limit) else {
            return;
        };
        // Only a readable descriptor shows an end; one with an error does not.
        for (one, _) in self
            .watched
            .iter_mut()
            .zip(ready)
            .filter(|(_, ready)| *ready)
        {
            self.died |= ended(&self.shared, one.rank, one.process);
            one.fd = None;
        }
    }
}

/// Which descriptors are readable; `None` if the system could not tell.
fn poll(fds: impl Iterator<Item = RawFd>, limit: Option<Duration>) -> Option<Vec<bool>> {
    let entry = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut entries: Vec<libc::pollfd> = fds.map(entry).collect();
    let time = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let count = entries.len() as libc::nfds_t;
    // SAFETY: `count` entries, a time or null, no signal mask.
    if unsafe { libc::ppoll(entries.as_mut_ptr(), count, time, std::ptr::null()) } < 0 {
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            // There is no memory for the table: try again when there is some.
            std::thread::sleep(SCARCE);
        }
        return None;
    }
    let readable = |entry: &libc::pollfd| entry.revents & libc::POLLIN != 0;
    Some(entries.iter().map(readable).collect())
}

impl Heart {
    /// Makes heartbeats over an open socket.
    pub(crate) fn new(socket: UdpSocket, pulse: Pulse, period: Duration) -> Self {
        Self {
            socket,
            pulse,
            period,
            // At once: the neighbours on the ring are asked before the first message.
            next: Instant::now(),
        }
    }

    fn until_next(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Receives before it counts: a process that was stopped for a while hears from the others
    /// before it counts their silence. The whole pause counts as one period.
    fn turn(&mut self, shared: &Shared) {
        let mut out = Out::new();
        self.receive(shared, &mut out);
        let now = Instant::now();
        if now >= self.next {
            self.next = now + self.period;
            if self.pulse.doubts(shared) {
                self.pulse
                    .reach(sever::sockets().filter_map(|socket| socket.there));
            }
            self.pulse.tick(shared, &mut out);
        } else {
            self.pulse.notice(shared, &mut out);
        }
        self.send(out);
    }

    fn receive(&mut self, shared: &Shared, out: &mut Out) {
        let mut room = [0; ROOM];
        while let Ok((len, from)) = self.socket.recv_from(&mut room) {
            self.pulse.heard(from, &room[..len], shared, out);
        }
    }

    fn send(&mut self, out: Out) {
        for (rank, to, bytes) in out {
            let result = self.socket.send_to(&bytes, to);
            self.pulse.sent(rank, result.err().as_ref());
        }
    }

    /// Tells the others that this rank leaves, until all know or the attempts are used up.
    fn farewell(&mut self, shared: &Shared) {
        for _ in 0..FAREWELLS {
            let mut out = Out::new();
            let all_know = self.pulse.leave(shared, &mut out);
            self.send(out);
            if all_know {
                return;
            }
            let until = Instant::now() + FAREWELL / FAREWELLS;
            let mut left = FAREWELL / FAREWELLS;
            let mut know = false;
            while !know && !left.is_zero() {
                poll([self.socket.as_raw_fd()].into_iter(), Some(left));
                let mut out = Out::new();
                self.receive(shared, &mut out);
                self.send(out);
                know = self.pulse.leave(shared, &mut Out::new());
                left = until.saturating_duration_since(Instant::now());
            }
        }
    }
}

/// Notes that the process of `rank` has ended: a death, unless the rank had left. Returns whether
/// it is a death. In either case, operations that are open with that rank have nobody left to end
/// them.
fn ended(shared: &Shared, rank: u32, process: Process) -> bool {
    let died = !shared.roster.has_left(rank);
    if died {
        shared.deaths.died(rank, process.pid);
    } else {
        shared.deaths.note_end(rank);
    }
    died
}

fn failed(call: &str) -> String {
    let error = io::Error::last_os_error();
    format!(
        "{call}, with which the death of a rank is noticed, failed: {error} (this needs Linux 5.3, and one \
         descriptor for each rank of the node: ulimit -n)"
    )
}

#[cfg(test)]
mod tests {
    use portolan_core::transport::{Header, Transport};

    use super::*;
    use crate::config::Config;
    use crate::deaths::pulse::{Other, UNREACHED};
    use crate::deaths::roster::Roster;
    use crate::shared::Contacts;
    use crate::testing::{Count, opened_or_skipped};

    /// The receiver never polls, so nothing comes back from it, and no datagram passes.
    #[test]
    fn a_connection_to_a_rank_that_computes_shows_that_the_network_joins_them() {
        let config = Config {
            provider: Some("tcp".to_owned()),
            interface: Some("lo".to_owned()),
            ..Config::default()
        };
        let what = "connections to a rank that computes";
        let Some(mut ranks) = opened_or_skipped(what, 2, &config) else {
            return; // The skip has been printed.
        };
        let zero = &mut ranks[0];
        let endpoint = sever::parse(zero.addresses.of(1));
        let nobody = std::net::SocketAddr::from(([127, 0, 0, 1], 9));
        let other = Other::new(nobody, "another".into(), 1, true).at(endpoint);
        let provider = "tcp".to_owned();
        let mut pulse = Pulse::new(0, 7, FAREWELL, provider, vec![None, Some(other)]);
        let shared = Shared::new(Roster::within(2), 2);
        shared.contacts.note(1, Contacts::SPOKEN);
        let mut out = Out::new();
        pulse.notice(&shared, &mut out);
        (0..UNREACHED).for_each(|_| pulse.tick(&shared, &mut out));
        let mut polls = 0;
        while pulse.doubts(&shared) {
            // SAFETY: rank 1 exists and is not rank 0; no bytes are read.
            let _ = unsafe { zero.send_short(1, &Header::default(), std::ptr::null(), 0) };
            zero.poll(&mut Count(0));
            pulse.reach(sever::sockets().filter_map(|socket| socket.there));
            polls += 1;
            assert!(polls < 100_000, "the connection is not seen");
        }
        assert!(polls > 0, "there was a doubt before there was a connection");
        pulse.tick(&shared, &mut out);
        assert_eq!(shared.deaths.count(), 0);
    }

    #[test]
    fn the_end_of_a_process_is_noted_whether_its_rank_has_left_or_not() {
        let shared = Shared::new(Roster::within(3), 3);
        shared.roster.leave(1);
        assert!(!ended(&shared, 1, Process::own()));
        assert!(ended(&shared, 2, Process::own()));
        assert_eq!(shared.deaths.ended(), [1, 2]);
        assert!(!shared.deaths.is_dead(1) && shared.deaths.is_dead(2));
    }
}
