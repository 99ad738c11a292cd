//! The end: of a device's use, and of the whole job.

use crate::buffer::ContigBuf;
use crate::device::{Device, ProcId, SendArgs};
use crate::engine::Engine;
use crate::engine::short::outgoing::Peer;
use crate::engine::state::{Proto, State};
use crate::engine::waiting::wait::Target;
use crate::error::{Error, ErrorKind, Result};
use crate::level::{Level, StateLock};
use crate::matching::{Envelope, Pattern};
use crate::transport::Transport;

/// Context of the device's own messages, above every context id that it gives out.
pub(in crate::engine) const OWN_CONTEXT: u32 = 0xffff_ff00;

/// Ends the job, given the exit code and the message.
pub type AbortHook = Box<dyn FnMut(i32, &str) + Send>;

/// Seconds on the clock of this node, the same for all of its processes.
pub(in crate::engine) fn clock() -> f64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid timespec for the call to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// Resolution of [`clock`] in seconds.
pub(in crate::engine) fn clock_resolution() -> f64 {
    let mut tick = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1,
    };
    // SAFETY: `tick` is a valid timespec for the call to fill.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC, &raw mut tick) };
    tick.tv_sec as f64 + tick.tv_nsec as f64 * 1e-9
}

impl<T: Transport, L: Level> Engine<T, L> {
    /// Ends the use of this engine as [`Device::end`] does, but waits for the other ranks by
    /// messages of `device`. For a device that contains an engine and has a better way of sending
    /// messages.
    ///
    /// # Errors
    /// As [`Device::end`].
    pub fn end_through<D: Device>(&self, device: &D) -> Result<()> {
        self.state.lock().proto.check_live()?;
        self.block_until(Target::Any, |state| {
            let proto = &state.proto;
            (!proto.has_outgoing() && proto.table.abandoned == 0).then_some(())
        });
        let outcome = farewell(device);
        // The last round's messages have to leave this rank before its transport goes away.
        self.block_until(Target::Any, |state| {
            (!state.proto.has_outgoing()).then_some(())
        });
        let mut state = self.state.lock();
        state.proto.finalized = true;
        state.proto.trouble = true;
        for peer in &mut state.proto.peers {
            peer.flags |= Peer::ENDED;
        }
        state.proto.tracer = None;
        outcome
    }

    /// Ends the whole job.
    pub(in crate::engine) fn abort_job(
        &self,
        code: i32,
        facility: Option<&str>,
        message: Option<&str>,
    ) -> ! {
        let who = facility
            .map(|facility| format!("{facility}: "))
            .unwrap_or_default();
        let text = format!(
            "portolan: rank {} aborts the job with code {code}: {who}{}",
            self.shared.rank,
            message.unwrap_or("the program asked for it")
        );
        say(&format!("{text}\n"));
        let hook = self
            .hooks
            .abort
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        if let Some(mut hook) = hook {
            hook(code, &text);
        }
        std::process::exit(if code == 0 { 1 } else { code })
    }

    /// Sets the hook that ends the job when this rank aborts. Usually the hook tells the launcher,
    /// through the bootstrap.
    pub fn on_abort(&self, hook: AbortHook) {
        *self
            .hooks
            .abort
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(hook);
    }
}

/// How long, in milliseconds, the last words of an aborting rank wait for standard error to be
/// read.
const READ_WITHIN: libc::c_int = 1000;

/// Writes to standard error, unless it is closed or is a full pipe that nobody reads: the job has
/// to end all the same.
fn say(text: &str) {
    for part in text.as_bytes().chunks(libc::PIPE_BUF) {
        let mut stderr = libc::pollfd {
            fd: libc::STDERR_FILENO,
            events: libc::POLLOUT,
            revents: 0,
        };
        // SAFETY: the call gets one entry, as stated, which lives until it returns. (A pipe that
        // reports room has room for at least `PIPE_BUF` bytes.)
        let ready = unsafe { libc::poll(&raw mut stderr, 1, READ_WITHIN) };
        if ready == 0 || std::io::Write::write_all(&mut std::io::stderr(), part).is_err() {
            return;
        }
    }
}

/// A dissemination barrier on the device's own context.
///
/// A rank that finds another one dead still takes part in all rounds, because living ranks wait for
/// its messages. Those messages carry the news. So every rank that would have learnt of the dead
/// rank's arrival in a healthy barrier learns of its death in this one.
fn farewell<D: Device>(device: &D) -> Result<()> {
    let attributes = device.attributes();
    let (me, size) = (attributes.world_rank, attributes.world_size);
    let mut trouble = None;
    let mut distance = 1;
    while distance < size {
        let from = (me + size - distance) % size;
        match farewell_round(device, distance, trouble.is_some()) {
            Ok(false) => {}
            Ok(true) => {
                trouble.get_or_insert_with(|| {
                    let what = format!("rank {from} reports at the end that a rank has failed");
                    Error::new(ErrorKind::PeerFailed, what)
                        .remedy("look at the output of the ranks that failed")
                        .on_rank(me)
                });
            }
            Err(error) => {
                trouble.get_or_insert(error);
            }
        }
        distance *= 2;
    }
    trouble.map_or(Ok(()), Err)
}

/// One round of the barrier: tells the rank at `distance` whether there was trouble, and returns
/// what the rank at that distance in the other direction reports.
fn farewell_round<D: Device>(device: &D, distance: u32, trouble: bool) -> Result<bool> {
    let attributes = device.attributes();
    let (me, size) = (attributes.world_rank, attributes.world_size);
    let to = ProcId::new((me + distance) % size);
    let pattern = Pattern::exact(&Envelope {
        context: OWN_CONTEXT,
        source: (me + size - distance) % size,
        tag: distance,
    });
    let (mine, mut theirs) = ([u8::from(trouble)], [0_u8]);
    let args = SendArgs::new(to, OWN_CONTEXT, me, distance);
    // SAFETY: the peers are ranks of the job; `mine` outlives the call, and `theirs` the receive,
    // because nothing returns before it was waited for.
    let (sent, received) = unsafe {
        let receive =
            device.irecv_contig_unchecked(&pattern, ContigBuf::from_bytes_mut(&mut theirs))?;
        let sent = device.send_contig_unchecked(&args, ContigBuf::from_bytes(&mine));
        (sent, device.wait(receive))
    };
    sent.and(received.map(|_| theirs[0] != 0))
}

impl Proto {
    /// An error if the device has been ended.
    #[inline]
    pub(in crate::engine) fn check_live(&self) -> Result<()> {
        if self.finalized {
            Err(self.ended())
        } else {
            Ok(())
        }
    }

    #[cold]
    fn ended(&self) -> Error {
        let what = "the device has been ended".to_owned();
        self.error(ErrorKind::Finalized, what, "make no calls after the end")
    }
}

impl<T: Transport> State<T> {
    /// Tells the other ranks that this one has failed.
    pub(in crate::engine) fn declare_self_failed(&mut self, why: &str) {
        let me = self.proto.me;
        self.transport.declare_failed(me, why);
    }
}
