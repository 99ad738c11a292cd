//! Agreement among some ranks of a communicator, without the others.
//!
//! The messages travel in a context of the parent's that the device knows nothing about, so that
//! ranks are processes there, and several agreements of one parent can go on in several threads,
//! each with its tag. The device cannot say there whom a death concerns either; whoever waits looks
//! for dead members of the group himself.

use super::meet::mix;
use super::{Communicator, NoUnwind, Tag, lock};
use crate::buffer::ContigBuf;
use crate::device::{Device, ProcId, SendArgs};
use crate::error::Result;
use crate::group::Group;
use crate::matching::Pattern;
use crate::request::Request;
use crate::status::Status;

/// Which context of a communicator parts of it agree in.
const CONTEXT: u32 = 2;

/// Some ranks of a communicator, the caller one of them.
pub(super) struct Among<'a, D: Device> {
    comm: &'a Communicator<D>,
    /// In the order of their numbers, whatever theirs in the group is: who gives another order is
    /// heard all the same.
    members: Group,
    /// The caller's place among them.
    place: u32,
    tag: Tag,
    /// Leads every message, because ranks may have got to agreements of other groups with this tag:
    /// where a member died, some are done with one of which the others do not know yet.
    mark: u64,
}

/// A message of another group's agreement, which came before anybody here was there.
pub(super) struct Stray {
    from: Pattern,
    bytes: Vec<u8>,
}

/// Tells groups apart, with their order.
pub(super) fn mark(group: &Group) -> u64 {
    mix(group.iter().map(|member| u64::from(member.index())))
}

impl<'a, D: Device> Among<'a, D> {
    /// The members of a group that the caller is one of.
    pub(super) fn new(comm: &'a Communicator<D>, group: &Group, tag: Tag) -> Self {
        let mut members: Vec<ProcId> = group.iter().collect();
        members.sort_unstable_by_key(|member| member.index());
        let members = Group::new(members);
        Self {
            comm,
            place: members.rank_of(comm.process()).unwrap_or(0),
            mark: mark(&members),
            members,
            tag,
        }
    }

    /// Bitwise and of `words` over the group, by dissemination. Between two ranks goes one message
    /// at most, so that the tag need not tell rounds apart.
    pub(super) fn and_words(&self, words: &mut [u64]) -> Result<()> {
        let (rank, size) = (u64::from(self.place), u64::from(self.members.size()));
        let mut received = vec![0; (words.len() + 1) * 8];
        let mut distance = 1;
        while distance < size {
            let to = self.member((rank + distance) % size)?;
            let from = self.member((rank + size - distance) % size)?;
            let marked = std::iter::once(&self.mark).chain(&*words);
            let sent: Vec<u8> = marked.flat_map(|word| word.to_le_bytes()).collect();
            self.exchange(to, &sent, from, &mut received)?;
            let (theirs, _) = received.as_chunks::<8>();
            for (word, theirs) in words.iter_mut().zip(&theirs[1..]) {
                *word &= u64::from_le_bytes(*theirs);
            }
            distance *= 2;
        }
        Ok(())
    }

    fn member(&self, rank: u64) -> Result<ProcId> {
        let process = self.members.process(rank as u32);
        process.ok_or_else(|| self.comm.no_such_rank("member", rank as u32))
    }

    /// Sends to one process and receives from another, at the same time.
    fn exchange(&self, to: ProcId, sent: &[u8], from: ProcId, received: &mut [u8]) -> Result<()> {
        let (device, context) = (self.comm.device(), self.comm.context() + CONTEXT);
        let me = device.attributes().world_rank;
        let args = SendArgs::new(to, context, me, self.tag.0);
        let pattern = Pattern {
            context,
            source: Some(from.index()),
            tag: Some(self.tag.0),
        };
        let guard = NoUnwind::new("the creation of a communicator");
        // SAFETY: the process is a member of the group, the tag was checked. `sent` is borrowed
        // until this function returns, which it does only after the request is over (`wait`
        // completes it whatever it returns), and the guard lets no panic past.
        let started = unsafe { device.isend_contig_unchecked(&args, ContigBuf::from_bytes(sent)) };
        let request = match started {
            Ok(request) => request,
            Err(error) => {
                guard.done();
                return Err(error);
            }
        };
        let outcome = self.receive(&pattern, received);
        if outcome.is_err() {
            // Whoever should have taken the message may never do so.
            let _ = device.cancel(request);
        }
        let sent = device.wait(request);
        guard.done();
        outcome?;
        sent.map(drop)
    }

    /// Receives a message of this agreement; keeps those of others.
    fn receive(&self, from: &Pattern, received: &mut [u8]) -> Result<()> {
        let strays = &self.comm.0.job.strays;
        let mark = self.mark.to_le_bytes();
        let mine = |stray: &Stray| stray.from == *from && stray.bytes.starts_with(&mark);
        {
            let mut strays = lock(strays);
            if let Some(place) = strays.iter().position(mine) {
                received.copy_from_slice(&strays.remove(place).bytes);
                return Ok(());
            }
        }
        loop {
            let buf = ContigBuf::from_bytes_mut(received);
            // SAFETY: the source is a member of the group, the tag was checked. `received` is
            // borrowed until this function returns; `finish` does only when the request is over,
            // and no panic gets past the caller.
            let request = unsafe { self.comm.device().irecv_contig_unchecked(from, buf)? };
            let status = self.finish(request)?;
            self.comm.expect_bytes(&status, received.len())?;
            if received.starts_with(&mark) {
                return Ok(());
            }
            let bytes = received.to_vec();
            lock(strays).push(Stray { from: *from, bytes });
        }
    }

    /// Waits for a receive, as long as every member is alive.
    fn finish(&self, request: Request) -> Result<Status> {
        let device = self.comm.device();
        match device.wait_for(&self.members, || device.is_complete(request)) {
            Ok(()) => device.wait(request),
            Err(error) => {
                let _ = device.cancel(request);
                let status = device.wait(request)?;
                if status.cancelled {
                    Err(error)
                } else {
                    Ok(status)
                }
            }
        }
    }
}
