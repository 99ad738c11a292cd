//! PEs as processes. One of the processes emulates the machine in a thread of its own, and all PEs
//! talk to that thread through sockets. Exactly one PE runs, so the machine's thread always knows
//! which PE makes the next call.
//!
//! All memory belongs to the machine. No memory is shared, so nothing is left behind, whichever
//! process dies, and whenever.

use std::io::{self, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use portolan_core::{Error, ErrorKind, Result};

use super::frame::Framed;
use super::watchdog::{REMEDY, complaint};
use super::{Link, Welcome};
use crate::addr::{Address, GIVE_UP, Hello};
use crate::machine::{Call, Machine, Next, Refusal, Reply, Time};

/// How often the host checks whether a silent PE still exists.
const GLANCE: Duration = Duration::from_millis(250);

/// A machine that is emulated in a thread of this process.
#[derive(Debug)]
pub struct Host {
    address: Address,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// Starts the thread. With `patience`, a PE whose program makes no call for that long stops the
    /// machine.
    ///
    /// # Errors
    /// [`TransportUnavailable`](ErrorKind::TransportUnavailable) if no socket or thread can be
    /// made.
    pub fn start(machine: Machine, patience: Option<Duration>) -> Result<Self> {
        let address = Address::new();
        let listener = address
            .listen()
            .map_err(|error| unavailable(format!("no socket for the machine: {error}")))?;
        let secret = address.secret();
        let thread = thread::Builder::new()
            .name("t3e-machine".to_owned())
            .spawn(move || {
                if let Err(error) = serve(machine, &listener, secret, patience) {
                    // The PEs see that their sockets have closed, and report it.
                    portolan_core::log!(
                        ERROR,
                        "the emulated machine could not be started: {error}"
                    );
                }
            })
            .map_err(|error| unavailable(format!("no thread for the machine: {error}")))?;
        Ok(Self {
            address,
            thread: Some(thread),
        })
    }

    /// The address to pass to [`join`].
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for Host {
    /// Waits until every PE has left, because there is no machine without this process. PEs that
    /// have not joined yet can no longer do so.
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The connection is refused once all PEs have joined, because the listener is closed by
            // then.
            let _ = self.address.greet(GIVE_UP);
            // A panic of the thread has already been printed, and the PEs have seen their sockets
            // close.
            let _ = thread.join();
        }
    }
}

/// Joins the machine at an address from [`Host::address`], as one of its PEs.
///
/// # Errors
/// [`TransportUnavailable`](ErrorKind::TransportUnavailable) if it cannot be reached: it is on
/// another node, or its process has gone.
pub fn join(address: &str, pe: u32) -> Result<Box<dyn Link>> {
    let found = Address::parse(address)
        .ok_or_else(|| unavailable(format!("the machine's address makes no sense: {address:?}")))?;
    let connect = || -> io::Result<(Framed<UnixStream>, Welcome)> {
        let mut machine = found.greet(pe)?;
        let welcome = machine.receive()?;
        Ok((machine, welcome))
    };
    let (machine, welcome) = connect().map_err(|error| {
        unavailable(format!("PE {pe} cannot join the machine of PE 0: {error}"))
            .remedy("run all ranks of the job on one node, in one network namespace")
    })?;
    Ok(Box::new(SocketLink { machine, welcome }))
}

fn unavailable(what: String) -> Error {
    Error::new(ErrorKind::TransportUnavailable, what).on_device("t3e-sim")
}

#[cold]
fn gone(error: &io::Error) -> Error {
    let what = format!("the process of PE 0, which emulates the machine, has gone: {error}");
    Error::new(ErrorKind::PeerFailed, what)
        .remedy("look at the output of PE 0")
        .about_peer(0)
        .on_device("t3e-sim")
}

struct SocketLink {
    machine: Framed<UnixStream>,
    welcome: Welcome,
}

impl Link for SocketLink {
    fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    fn call(&mut self, charged: Time, call: Call) -> Result<Reply> {
        // Even if the call cannot be sent, there may be an answer that says why the machine has
        // stopped.
        let sent = self.machine.send(&(charged, call));
        let answer = self.machine.receive::<Result<Reply, Refusal>>();
        match (answer, sent) {
            (Ok(reply), _) => reply.map_err(Error::from),
            (Err(_), Err(error)) if error.kind() == io::ErrorKind::InvalidInput => {
                Err(Error::new(ErrorKind::InvalidCount, error.to_string()).on_device("t3e-sim"))
            }
            (Err(error), _) => Err(gone(&error)),
        }
    }
}

/// The PEs' sockets; `None` for those that have died or left.
struct Server {
    machine: Machine,
    streams: Vec<Option<Framed<UnixStream>>>,
    patience: Option<Duration>,
    looked: Instant,
}

fn serve(
    machine: Machine,
    listener: &UnixListener,
    secret: u64,
    patience: Option<Duration>,
) -> io::Result<()> {
    let streams = gather(&machine, listener, secret)?;
    let mut server = Server {
        machine,
        streams,
        patience,
        looked: Instant::now(),
    };
    server.run();
    Ok(())
}

/// Waits for every PE to join.
fn gather(
    machine: &Machine,
    listener: &UnixListener,
    secret: u64,
) -> io::Result<Vec<Option<Framed<UnixStream>>>> {
    let mut streams: Vec<Option<Framed<UnixStream>>> = (0..machine.pes()).map(|_| None).collect();
    while streams.iter().any(Option::is_none) {
        let (stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(GLANCE))?;
        let mut stream = Framed::new(stream);
        // A process that says anything else does not belong to this job.
        let Ok(hello) = stream.receive::<Hello>() else {
            continue;
        };
        if hello.secret != secret {
            continue;
        }
        if hello.pe == GIVE_UP {
            return Err(io::Error::other("not all PEs have joined"));
        }
        let Some(place @ None) = streams.get_mut(hello.pe as usize) else {
            continue;
        };
        stream.send(&Welcome::new(machine, hello.pe))?;
        *place = Some(stream);
    }
    Ok(streams)
}

impl Server {
    fn run(&mut self) {
        loop {
            let runners: Vec<u32> = self.machine.runners().collect();
            for pe in runners {
                self.take_call(pe);
            }
            if self.run_machine() {
                continue;
            }
            if let Some(refusal) = self.machine.stopped().cloned() {
                // This answers the calls that wait, and the next call of each PE whose program
                // runs.
                for pe in 0..self.machine.pes() {
                    self.answer(pe, &Err(refusal.clone()));
                }
            }
            return;
        }
    }

    /// Lets time pass until a PE runs. Returns `false` if no PE will run again.
    fn run_machine(&mut self) -> bool {
        while self.machine.stopped().is_none() && self.machine.running() == 0 {
            match self.machine.advance() {
                Next::Resume(pe, reply) => {
                    self.answer(pe, &Ok(reply));
                    if self.machine.running() == 0 {
                        // This PE has left.
                        self.streams[pe as usize] = None;
                    }
                }
                Next::Deadlock(text) => {
                    if !self.look_for_the_dead() {
                        let remedy = "see which PE should have acted first";
                        self.machine.stop(text, remedy);
                    }
                }
                Next::Finished | Next::Stopped(_) => return false,
            }
        }
        self.machine.stopped().is_none()
    }

    /// Takes the next call of a PE whose program runs.
    fn take_call(&mut self, pe: u32) {
        let why = match self.listen(pe) {
            Ok(Heard::Call(charged, call)) => {
                self.machine.submit(pe, charged, call);
                return;
            }
            Ok(Heard::Nothing) => return,
            Ok(Heard::End) => "its process has ended".to_owned(),
            Err(error) => error.to_string(),
        };
        self.bury(pe, &why);
        self.machine.submit(pe, Time::ZERO, Call::Leave);
    }

    /// Waits for a call of a PE.
    fn listen(&mut self, pe: u32) -> io::Result<Heard> {
        let began = Instant::now();
        loop {
            if let Some(heard) = self.hear(pe)? {
                return Ok(heard);
            }
            if self.looked.elapsed() >= GLANCE {
                self.looked = Instant::now();
                self.look_for_the_dead();
            }
            if let Some(patience) = self.patience
                && began.elapsed() >= patience
            {
                let text = complaint(&self.machine, patience);
                self.machine.stop(text, REMEDY);
                return Ok(Heard::Nothing);
            }
        }
    }

    /// Waits a moment for a call of a PE; `None` if nothing came.
    fn hear(&mut self, pe: u32) -> io::Result<Option<Heard>> {
        let Some(stream) = &mut self.streams[pe as usize] else {
            return Ok(Some(Heard::End));
        };
        match stream.receive() {
            Ok((charged, call)) => Ok(Some(Heard::Call(charged, call))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Some(Heard::End)),
            Err(error) if is_patient(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn answer(&mut self, pe: u32, reply: &Result<Reply, Refusal>) {
        // A PE that cannot be answered is found dead when the host waits for its next call.
        if let Some(stream) = &mut self.streams[pe as usize]
            && stream.send(reply).is_err()
        {
            self.streams[pe as usize] = None;
        }
    }

    /// Declares failed the PEs whose processes have ended while the PEs waited. Returns whether
    /// there were any.
    fn look_for_the_dead(&mut self) -> bool {
        let mut found = false;
        let runners: Vec<u32> = self.machine.runners().collect();
        for pe in (0..self.machine.pes()).filter(|pe| !runners.contains(pe)) {
            let Some(stream) = self.streams[pe as usize].as_mut().map(Framed::stream) else {
                continue;
            };
            // A PE that waits sends nothing, so the only thing to read is the end of the stream.
            let dead = stream.set_nonblocking(true).is_err()
                || !matches!(stream.read(&mut [0]), Err(error) if is_patient(&error))
                || stream.set_nonblocking(false).is_err();
            if dead {
                self.bury(pe, "its process has ended");
                found = true;
            }
        }
        found
    }

    fn bury(&mut self, pe: u32, why: &str) {
        self.streams[pe as usize] = None;
        self.machine.declare_failed(pe, why);
    }
}

/// The result of listening to a PE.
enum Heard {
    Call(Time, Call),
    /// The socket has closed.
    End,
    /// The PE said nothing for so long that the machine has been stopped.
    Nothing,
}

/// Whether an error only means that nothing came in time.
fn is_patient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
