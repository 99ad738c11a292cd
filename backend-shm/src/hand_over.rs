//! Handing the memory file over where Portolan's launcher has not done so: through an abstract
//! socket with a random name, between processes that check each other's credentials.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use portolan_core::{Error, ErrorKind, Result};

use crate::addr::{self, Process};

/// How long ranks wait for each other here. All of them are past a fence, so a long wait means that
/// one of them has died.
const PATIENCE: Duration = Duration::from_secs(30);

/// A socket on which the rank that made the file waits for the others.
#[derive(Debug)]
pub(crate) struct Giver {
    socket: OwnedFd,
    name: String,
}

impl Giver {
    pub(crate) fn new() -> io::Result<Self> {
        let name = format!("portolan-{}", addr::random_name()?);
        let socket = socket()?;
        let (address, len) = address(&name);
        // SAFETY: a valid address of that length.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
        // SAFETY: a descriptor.
        check(unsafe { libc::listen(socket.as_raw_fd(), 4096) })?;
        Ok(Self { socket, name })
    }

    /// The name under which the other ranks find the socket.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Gives `file` to each of `others` once, and turns strangers away.
    ///
    /// # Errors
    /// If some of `others` do not come in time (the error names them), or if the system lets this
    /// process accept no connection.
    pub(crate) fn give(&self, file: RawFd, others: &[(u32, Process)], user: u32) -> Result<()> {
        self.give_within(file, others, user, PATIENCE)
    }

    fn give_within(
        &self,
        file: RawFd,
        others: &[(u32, Process)],
        user: u32,
        patience: Duration,
    ) -> Result<()> {
        let mut waiting: Vec<(u32, Process)> = others.to_vec();
        let deadline = Instant::now() + patience;
        while !waiting.is_empty() {
            let came = readable(self.socket.as_raw_fd(), deadline);
            let served = came && self.serve_one(file, &mut waiting, user)?;
            // The time is looked at here as well, because a stranger that connects again and again
            // keeps the socket readable. A rank that was served shows that others may be in the
            // queue behind it.
            if !served && Instant::now() >= deadline {
                let ranks: Vec<u32> = waiting.iter().map(|(rank, _)| *rank).collect();
                return Err(Error::new(
                    ErrorKind::Job,
                    format!("ranks {ranks:?} did not fetch the shared memory within {patience:?}"),
                )
                .remedy("look for an earlier message of those ranks"));
            }
        }
        Ok(())
    }

    /// Serves one connection: gives the file if the other end is a rank in `waiting`. Returns
    /// whether it was one.
    fn serve_one(&self, file: RawFd, waiting: &mut Vec<(u32, Process)>, user: u32) -> Result<bool> {
        let (nowhere, no_len) = (std::ptr::null_mut(), std::ptr::null_mut());
        let listener = self.socket.as_raw_fd();
        // SAFETY: a listening socket; the address is not wanted.
        let fd = unsafe { libc::accept4(listener, nowhere, no_len, libc::SOCK_CLOEXEC) };
        let Some(peer) = accepted(owned(fd))? else {
            return Ok(false);
        };
        let Ok(who) = credentials(&peer) else {
            return Ok(false);
        };
        let known = waiting
            .iter()
            .position(|(_, it)| it.pid as libc::pid_t == who.pid);
        let Some(at) = known.filter(|_| who.uid == user) else {
            portolan_core::log!(
                WARN,
                pid = who.pid,
                uid = who.uid,
                "a stranger asked for the shared memory"
            );
            return Ok(false);
        };
        let (rank, process) = waiting.swap_remove(at);
        send_file(&peer, file).map_err(|error| {
            let pid = process.pid;
            Error::new(
                ErrorKind::Job,
                format!("handing the shared memory to rank {rank} (pid {pid}) failed: {error}"),
            )
            .about_peer(rank)
            .remedy("look for an earlier message of that rank")
        })?;
        Ok(true)
    }
}

/// The connection that `accept` has returned; `None` if the other end has given up or a signal
/// came.
///
/// # Errors
/// If the process or the system has no descriptor or no memory for it. The connection then stays in
/// the queue and the socket readable, so another attempt would fail at once.
fn accepted(connection: io::Result<OwnedFd>) -> Result<Option<OwnedFd>> {
    let error = match connection {
        Ok(peer) => return Ok(Some(peer)),
        Err(error) => error,
    };
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS) => Err(Error::new(
            ErrorKind::Exhausted,
            format!("rank 0 cannot accept a connection to hand over the shared memory: {error}"),
        )
        .remedy("raise the limit of open files (ulimit -n), or free memory")),
        _ => Ok(None),
    }
}

/// Fetches the file from the rank that listens under `name`; it must be the process `giver` of
/// `user`.
pub(crate) fn take(name: &str, giver: Process, user: u32) -> io::Result<OwnedFd> {
    let socket = socket()?;
    let (address, len) = address(name);
    // SAFETY: a valid address of that length.
    check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
    let who = credentials(&socket)?;
    if who.uid != user || who.pid != giver.pid as libc::pid_t {
        return Err(io::Error::other(format!(
            "process {} of user {} answered instead of process {} of user {user}",
            who.pid, who.uid, giver.pid
        )));
    }
    if !readable(socket.as_raw_fd(), Instant::now() + PATIENCE) {
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no answer within {PATIENCE:?}"),
        ));
    }
    receive_file(&socket)
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: constants.
    owned(unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    check(fd)?;
    // SAFETY: a descriptor that a call has just returned.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The abstract address of a name, which is short ASCII: a zero byte, then the name.
fn address(name: &str) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: plain old data.
    let mut address = unsafe { std::mem::zeroed::<libc::sockaddr_un>() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = name.as_bytes();
    let len = bytes.len().min(address.sun_path.len() - 1);
    for (to, &byte) in address.sun_path[1..].iter_mut().zip(bytes) {
        *to = byte as libc::c_char;
    }
    let head = std::mem::offset_of!(libc::sockaddr_un, sun_path);
    (address, (head + 1 + len) as libc::socklen_t)
}

/// The credentials of the process at the other end, from the kernel.
fn credentials(socket: &OwnedFd) -> io::Result<libc::ucred> {
    let mut who = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: room for a `ucred` and its length.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut len,
        )
    })?;
    Ok(who)
}

fn readable(fd: RawFd, deadline: Instant) -> bool {
    loop {
        let left = deadline
            .saturating_duration_since(Instant::now())
            .as_millis();
        let mut asked = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `asked` is one valid entry.
        let ready = unsafe { libc::poll(&raw mut asked, 1, left.min(60_000) as i32) };
        if ready > 0 {
            return true;
        }
        if left == 0 {
            return false;
        }
    }
}

/// Room for a control message that carries one descriptor, aligned as the message's header
/// requires.
#[repr(C, align(8))]
struct Control([u8; 64]);

fn send_file(socket: &OwnedFd, file: RawFd) -> io::Result<()> {
    let mut control = Control([0; 64]);
    let mut byte = [b'P'];
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    let message = message(&mut part, &mut control);
    // SAFETY: `control` is large enough and aligned for one header with one descriptor, which the
    // macros of the system lay out; all pointers are valid during the call.
    check(unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(header)
            .cast::<RawFd>()
            .write_unaligned(file);
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    } as i32)
}

/// Receives one file; anything else that a peer may send is an error. The kernel closes further
/// files, for which the control message has no room.
fn receive_file(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut control = Control([0; 64]);
    let mut byte = [0];
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    let mut message = message(&mut part, &mut control);
    let (socket, flags) = (socket.as_raw_fd(), libc::MSG_CMSG_CLOEXEC);
    // SAFETY: all pointers are valid during the call.
    let got = unsafe { libc::recvmsg(socket, &raw mut message, flags) };
    check(got as i32)?;
    // SAFETY: the kernel has filled `control` and set its length. The header, if there is one, lies
    // in it, and a header of type `SCM_RIGHTS` carries at least one descriptor.
    let file = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let carries = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS;
        carries.then(|| libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned())
    };
    let file = file.map(owned).transpose()?;
    match file {
        Some(_) if message.msg_flags & libc::MSG_CTRUNC != 0 => {
            Err(io::Error::other("the answer carried more than one file"))
        }
        Some(file) => Ok(file),
        // The kernel had a file to deliver, and this process has no descriptor left for it.
        None if message.msg_flags & libc::MSG_CTRUNC != 0 => Err(io::Error::other(
            "there is no descriptor for the file: raise the limit of open files (ulimit -n)",
        )),
        None => Err(io::Error::other("the answer carried no file")),
    }
}

fn message(part: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: plain old data; null pointers and zero lengths are valid.
    let mut message = unsafe { std::mem::zeroed::<libc::msghdr>() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // Exactly one descriptor: `CMSG_SPACE` of one is rounded up and would hold two.
    // SAFETY: arithmetic on a constant.
    message.msg_controllen = unsafe { libc::CMSG_LEN(size_of::<RawFd>() as u32) } as _;
    message
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::segment::memory_file;

    fn me() -> (Process, u32) {
        // SAFETY: no arguments.
        (Process::own(), unsafe { libc::geteuid() })
    }

    fn inode(fd: RawFd) -> u64 {
        // SAFETY: plain old data and room for it.
        unsafe {
            let mut stat = std::mem::zeroed::<libc::stat>();
            assert_eq!(libc::fstat(fd, &raw mut stat), 0);
            stat.st_ino
        }
    }

    #[test]
    fn the_file_arrives() {
        let (process, user) = me();
        let giver = Giver::new().unwrap();
        let file = memory_file().unwrap();
        let name = giver.name().to_owned();
        let taker = std::thread::spawn(move || take(&name, process, user).unwrap());
        giver.give(file.as_raw_fd(), &[(1, process)], user).unwrap();
        let got = taker.join().unwrap();
        assert_eq!(inode(got.as_raw_fd()), inode(file.as_raw_fd()));
    }

    #[test]
    fn another_process_than_expected_is_refused_on_both_sides() {
        let (process, user) = me();
        let giver = Giver::new().unwrap();
        let stranger = Process {
            pid: process.pid + 1,
            ..process
        };
        let error = take(giver.name(), stranger, user).unwrap_err();
        assert!(error.to_string().contains("answered instead"), "{error}");
        let error = take(giver.name(), process, user + 1).unwrap_err();
        assert!(error.to_string().contains("answered instead"), "{error}");

        let giver = Giver::new().unwrap();
        let file = memory_file().unwrap();
        let name = giver.name().to_owned();
        let taker = std::thread::spawn(move || take(&name, process, user));
        let mut waiting = vec![(7, stranger)];
        let served = giver.serve_one(file.as_raw_fd(), &mut waiting, user);
        assert!(!served.unwrap());
        assert!(taker.join().unwrap().is_err());
        assert_eq!(
            waiting,
            [(7, stranger)],
            "the stranger got nothing, and rank 7 is waited for"
        );
    }

    #[test]
    fn strangers_that_come_again_and_again_do_not_keep_a_rank_from_being_missed() {
        let (process, user) = me();
        let giver = Giver::new().unwrap();
        let file = memory_file().unwrap();
        let missing = Process {
            pid: process.pid + 1,
            ..process
        };
        let connection = |giver: &Giver| {
            let socket = socket().unwrap();
            let (address, len) = address(giver.name());
            // SAFETY: a valid address of that length.
            let done =
                unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len) };
            check(done).unwrap();
            socket
        };
        let strangers: Vec<_> = (0..3).map(|_| connection(&giver)).collect();
        let error = giver
            .give_within(file.as_raw_fd(), &[(7, missing)], user, Duration::ZERO)
            .unwrap_err();
        assert!(error.to_string().contains("ranks [7]"), "{error}");
        // The time was over after the first of them.
        assert!(readable(giver.socket.as_raw_fd(), Instant::now()));
        drop(strangers);
        // Ranks that have come in time get the file, however late the giver is. Their process is
        // this one, which waits for them twice.
        let giver = Giver::new().unwrap();
        let early = [(); 2].map(|()| connection(&giver));
        let ranks = [(1, process), (2, process)];
        giver
            .give_within(file.as_raw_fd(), &ranks, user, Duration::ZERO)
            .unwrap();
        for socket in &early {
            let got = receive_file(socket).unwrap();
            assert_eq!(inode(got.as_raw_fd()), inode(file.as_raw_fd()));
        }
    }

    #[test]
    fn a_connection_for_which_there_is_no_descriptor_is_an_error() {
        let failed = |code| accepted(Err(io::Error::from_raw_os_error(code)));
        for code in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS] {
            let error = failed(code).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Exhausted);
            assert!(error.to_string().contains("ulimit -n"), "{error}");
        }
        for code in [libc::ECONNABORTED, libc::EINTR, libc::EPROTO] {
            assert!(failed(code).unwrap().is_none());
        }
    }

    fn pair() -> [OwnedFd; 2] {
        let mut fds = [0; 2];
        // SAFETY: room for two descriptors.
        check(unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, fds.as_mut_ptr()) })
            .unwrap();
        fds.map(|fd| owned(fd).unwrap())
    }

    /// Sends any bytes and any number of files, as a misbehaving peer may.
    fn send_anything(socket: &OwnedFd, bytes: &mut [u8], files: &[OwnedFd]) {
        let mut control = Control([0; 64]);
        let mut part = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let mut message = message(&mut part, &mut control);
        let len = size_of_val(files) as u32;
        assert!(
            len <= 16,
            "{len} bytes of files are more than there is room for"
        );
        // SAFETY: `control` has room for a header and sixteen bytes; the pointers are valid during
        // the call. Without files there is no header.
        let sent = unsafe {
            message.msg_controllen = if len == 0 {
                0
            } else {
                libc::CMSG_SPACE(len) as _
            };
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            if !header.is_null() {
                (*header).cmsg_level = libc::SOL_SOCKET;
                (*header).cmsg_type = libc::SCM_RIGHTS;
                (*header).cmsg_len = libc::CMSG_LEN(len) as _;
                let room = libc::CMSG_DATA(header).cast::<RawFd>();
                for (n, file) in files.iter().enumerate() {
                    room.add(n).write_unaligned(file.as_raw_fd());
                }
            }
            libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
        };
        check(sent as i32).unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever the peer sends, the result is the one file or an error.
        #[test]
        fn anything_but_one_file_is_an_error(
            mut bytes in prop::collection::vec(any::<u8>(), 0..40),
            count in 0_usize..=4,
        ) {
            let [ours, theirs] = pair();
            let files: Vec<_> = (0..count).map(|_| memory_file().unwrap()).collect();
            send_anything(&theirs, &mut bytes, &files);
            // If nothing was sent, the receiver sees the end of the stream.
            drop(theirs);
            let received = receive_file(&ours);
            // Files travel only together with bytes.
            let good = count == 1 && !bytes.is_empty();
            prop_assert_eq!(received.is_ok(), good, "{:?}", received);
            if let Ok(file) = received {
                prop_assert_eq!(inode(file.as_raw_fd()), inode(files[0].as_raw_fd()));
            }
        }
    }
}
