//! Messages between the leaders of two groups, and from each leader to its group.
//!
//! The leaders talk in a context of the peer communicator that the device knows nothing about, so
//! ranks there are process numbers (`../context.rs` lists the contexts).

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::super::context::LEADERS;
use super::super::{Communicator, NoUnwind, Tag, lock};
use crate::buffer::ContigBuf;
use crate::device::{Completion, Device, ProcId, SendArgs};
use crate::error::{Error, ErrorKind, Result};
use crate::matching::Pattern;

/// Attempt, round, outcome, length of the body.
type Head = [u8; 32];
/// Longest error text that is passed on, in bytes.
const TEXT: usize = 1000;

/// The outcome of a step: data, or an error.
type Said = std::result::Result<Vec<u8>, Error>;

/// How often this rank, as a leader, has talked to another leader, by context, the other's process,
/// and tag. Both leaders count alike, because their calls are paired in order, whether they succeed
/// or fail.
///
/// The counts of a communicator are forgotten together with the messages that were never received
/// there, before another communicator gets its context.
#[derive(Debug, Default)]
pub(in super::super) struct Attempts(Mutex<BTreeMap<(u32, u32, u32), u64>>);

impl Attempts {
    /// The number of the next attempt.
    fn next(&self, context: u32, process: ProcId, tag: Tag) -> u64 {
        let mut all = lock(&self.0);
        let count = all.entry((context, process.index(), tag.0)).or_default();
        *count += 1;
        *count
    }

    /// Forgets the counts of the communicator with this context.
    pub(in super::super) fn forget(&self, context: u32) {
        lock(&self.0).retain(|&(other, ..), _| other != context);
    }
}

/// One leader's connection to the other.
pub(super) struct Link<'a, D: Device> {
    peer: &'a Communicator<D>,
    process: ProcId,
    tag: Tag,
    /// 0 before [`begin`](Self::begin).
    attempt: u64,
    round: u64,
}

impl<'a, D: Device> Link<'a, D> {
    pub(super) fn new(peer: &'a Communicator<D>, process: ProcId, tag: Tag) -> Self {
        Self {
            peer,
            process,
            tag,
            attempt: 0,
            round: 0,
        }
    }

    /// Begins an attempt. Called on the leader only, before any message.
    pub(super) fn begin(&mut self) {
        let attempts = &self.peer.0.job.attempts;
        self.attempt = attempts.next(self.peer.context(), self.process, self.tag);
    }

    /// Sends this side's outcome and receives the other side's.
    ///
    /// Attempts are numbered. The last message of a failed attempt may still be waiting when the
    /// next attempt begins; it is skipped then. So a leader may have to receive twice before the
    /// other leader receives once, which is why sending here waits for no receiver.
    pub(super) fn swap(&mut self, mine: &Said) -> Said {
        self.say(mine)?;
        let (_, pattern) = self.way();
        let (outcome, body) = loop {
            let mut head = Head::default();
            self.peer.receive_on(&pattern, &mut head)?;
            let [attempt, round, outcome, len] = numbers(&head);
            let mut body = self.room(len)?;
            self.peer.receive_on(&pattern, &mut body)?;
            if (attempt, round) == (self.attempt, self.round) {
                break (outcome, body);
            }
            if attempt >= self.attempt {
                return Err(self.nonsense(format!(
                    "round {round} of attempt {attempt} instead of round {} of attempt {}",
                    self.round, self.attempt
                )));
            }
        };
        self.round += 1;
        heard(self.peer, outcome, body)
    }

    /// Tells the other leader that no more messages come. Does not wait until it is received,
    /// because the other leader may have given up or finished, too.
    pub(super) fn give_up(&mut self, why: &Error) {
        // If this fails as well, there is no other way to tell the other leader.
        let _ = self.say(&Err(why.clone()));
    }

    fn say(&self, said: &Said) -> Result<()> {
        let (head, body) = self.words(said);
        let (args, _) = self.way();
        self.peer.leave(&args, head.to_vec())?;
        self.peer.leave(&args, body)
    }

    fn words(&self, said: &Said) -> (Head, Vec<u8>) {
        let (outcome, body) = spoken(said);
        let mut head = Head::default();
        let words = [self.attempt, self.round, outcome, body.len() as u64];
        for (place, word) in head.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        (head, body)
    }

    fn way(&self) -> (SendArgs, Pattern) {
        let context = self.peer.context() + LEADERS;
        let me = self.peer.device().attributes().world_rank;
        let args = SendArgs::new(self.process, context, me, self.tag.0);
        let pattern = Pattern {
            context,
            source: Some(self.process.index()),
            tag: Some(self.tag.0),
        };
        (args, pattern)
    }

    /// A buffer for the number of bytes that the other leader announces, if it is plausible. The
    /// longest message is a list of all processes.
    fn room(&self, len: u64) -> Result<Vec<u8>> {
        let most = 8 * u64::from(self.peer.device().attributes().world_size) + 8192;
        if len <= most {
            return Ok(vec![0; len as usize]);
        }
        Err(self.nonsense(format!("{len} bytes, at most {most} make sense")))
    }

    #[cold]
    fn nonsense(&self, what: String) -> Error {
        let who = self.process.index();
        self.peer
            .error(
                ErrorKind::PeerMisbehaved,
                format!("the other leader, world rank {who}, said {what}"),
                "create intercommunicators in the same order on both sides, or with other tags",
            )
            .about_peer(who)
    }
}

impl<D: Device> Communicator<D> {
    /// Sends a message without waiting for its receiver. The bytes stay with the request until the
    /// message is received or the job ends. The arguments must be legal.
    fn leave(&self, args: &SendArgs, bytes: Vec<u8>) -> Result<()> {
        let device = self.device();
        let guard = NoUnwind::new("the creation of an intercommunicator");
        // SAFETY: the arguments are legal. The bytes do not move: they are dropped when the request
        // is over, either below or by the device. Until the device owns them, the guard lets no
        // panic escape.
        let request = unsafe { device.isend_contig_unchecked(args, ContigBuf::from_bytes(&bytes)) };
        let left = request.and_then(|request| {
            if device.test(request)?.is_none() {
                let keep = Box::new(bytes);
                device.attach(request, Completion { keep, then: None })?;
                device.free(request)?;
            }
            Ok(())
        });
        guard.done();
        left
    }

    /// Sends rank `root`'s `said` to all ranks here. The other ranks' `said` is ignored.
    pub(super) fn share(&self, said: Said, root: u32) -> Said {
        let root_is_me = self.rank() == root;
        let (outcome, mut body) = match root_is_me {
            true => spoken(&said),
            false => (0, Vec::new()),
        };
        let mut head = [0; 16];
        head[..8].copy_from_slice(&outcome.to_le_bytes());
        head[8..].copy_from_slice(&(body.len() as u64).to_le_bytes());
        self.bcast(&mut head, root)?;
        let (words, _) = head.as_chunks::<8>();
        let [outcome, len] = [words[0], words[1]].map(u64::from_le_bytes);
        body.resize(len as usize, 0);
        self.bcast(&mut body, root)?;
        match root_is_me {
            true => said,
            false => heard(self, outcome, body),
        }
    }
}

/// Kinds of errors that keep their kind when they are passed on. Others become the first.
const KINDS: [ErrorKind; 8] = [
    ErrorKind::Internal,
    ErrorKind::Aborted,
    ErrorKind::Exhausted,
    ErrorKind::InvalidArgument,
    ErrorKind::InvalidCommunicator,
    ErrorKind::InvalidRank,
    ErrorKind::InvalidTag,
    ErrorKind::PeerFailed,
];

/// Encodes an outcome: 0 and the data, or 1 plus the index of the error's kind, and its text.
fn spoken(said: &Said) -> (u64, Vec<u8>) {
    match said {
        Ok(bytes) => (0, bytes.clone()),
        Err(error) => {
            let kind = KINDS.iter().position(|&kind| kind == error.kind());
            // The peer that the error is about precedes its text, plus one; 0 means none.
            let peer = error.peer().map_or(0, |peer| u64::from(peer) + 1);
            let mut body = peer.to_le_bytes().to_vec();
            body.extend(error.to_string().bytes().take(TEXT));
            (1 + kind.unwrap_or(0) as u64, body)
        }
    }
}

fn heard<D: Device>(comm: &Communicator<D>, outcome: u64, body: Vec<u8>) -> Said {
    let Some(kind) = outcome.checked_sub(1) else {
        return Ok(body);
    };
    let kind = KINDS
        .get(kind as usize)
        .copied()
        .unwrap_or(ErrorKind::Internal);
    let (peer, text) = body.split_first_chunk().unwrap_or((&[0; 8], &[]));
    let what = format!("a leader says: {}", String::from_utf8_lossy(text));
    let error = comm.error(
        kind,
        what,
        "look at what the leader of that group was given",
    );
    Err(match u64::from_le_bytes(*peer).checked_sub(1) {
        Some(peer) => error.about_peer(peer as u32),
        None => error,
    })
}

fn numbers(head: &Head) -> [u64; 4] {
    let (words, _) = head.as_chunks::<8>();
    [words[0], words[1], words[2], words[3]].map(u64::from_le_bytes)
}
