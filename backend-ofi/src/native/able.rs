//! Finds out whether a provider can match as the device interface requires: from what it says of
//! itself, and by trying it on this rank's own endpoint.

use std::ptr;
use std::time::{Duration, Instant};

use libfabric_sys::{
    FI_ADDR_NOTAVAIL, FI_ADDR_UNSPEC, FI_CLAIM, FI_EAGAIN, FI_EAVAIL, FI_ENOMSG, FI_MR_LOCAL,
    FI_ORDER_SAS, FI_PEEK, FI_TAGGED, fi_addr_t, fi_av_insert, fi_cq_err_entry, fi_cq_read,
    fi_cq_readerr, fi_cq_tagged_entry, fi_msg_tagged, fi_trecvmsg, fi_tsenddata,
};

use portolan_core::config::{MatchMode, SettingValue};

use super::bits::Bits;
use super::buffers::{NoMemory, zeros};
use super::receives::FI_ETRUNC_ERROR;
use crate::config::Config;
use crate::endpoint::link::Link;
use crate::endpoint::op::{Kind, Ops};
use crate::start::info::Info;
use crate::start::open::in_process_with;

/// How long the provider may take for each step of the trial.
const PATIENCE: Duration = Duration::from_secs(5);
/// Messages that the provider has to keep without a receive.
const KEPT: usize = 200;
/// Bytes of each.
const LEN: usize = 100;
/// The longest message that is longer than its receive, unless the sink takes all of that.
const LONG: usize = 400_000;
/// The length of a message that the provider has to carry in one piece, because this device splits
/// none.
const LONGEST: usize = 1 << 40;

/// Lengths of messages that are longer than their receives, the longest last: one for each protocol
/// that a provider may use, and the longest that it sends at once, which fills all of the sink but
/// for what the receive takes.
fn too_long(sink: usize) -> [usize; 5] {
    [LEN, 10_000, 40_000, sink, LONG.max(sink.saturating_mul(2))]
}

/// Says in words, for users, whether the engine or the provider would match messages under these
/// settings, and why. Opens an endpoint.
#[must_use]
pub fn matching(config: &Config) -> String {
    let mode = config.matching.show();
    let software = format!("messages are matched by Portolan (PORTOLAN_MATCH={mode})");
    if config.matching == MatchMode::Software {
        return software;
    }
    let asked = Config {
        matching: MatchMode::Native,
        ..config.clone()
    };
    match (in_process_with(1, &asked), config.matching) {
        (Ok(_), MatchMode::Native) => {
            format!("messages are matched by the provider (PORTOLAN_MATCH={mode})")
        }
        (Ok(_), _) => format!("{software}; the provider can, too"),
        (Err(why), _) => format!("{software}; {}", why.to_string().replace('\n', " ")),
    }
}

/// Checks, from what a provider says of itself, whether it can match for a job of `size` ranks.
///
/// # Errors
/// The first reason why not, worded to follow the provider's name in a sentence.
pub(crate) fn examine(info: &Info, size: u32) -> Result<(), String> {
    let (ep, domain) = (info.ep_attr(), info.domain_attr());
    let orders = info.tx_attr().msg_order & info.rx_attr().msg_order;
    if info.get().caps & FI_TAGGED == 0 {
        return Err("has no tagged messages".into());
    }
    if Bits::new(ep.mem_tag_format, size).is_none() {
        let format = ep.mem_tag_format;
        return Err(format!(
            "has tags (format {format:#x}) without room for context, source and tag of {size} ranks"
        ));
    }
    if domain.cq_data_size < 8 {
        let bytes = domain.cq_data_size;
        return Err(format!(
            "has completions with {bytes} bytes of the sender's; 8 are needed"
        ));
    }
    if orders & FI_ORDER_SAS == 0 {
        return Err("does not keep messages in order".into());
    }
    if info.mr_mode(FI_MR_LOCAL) {
        return Err("wants every buffer to be registered".into());
    }
    if info.rx_attr().iov_limit < 2 {
        return Err("takes buffers in one piece only".into());
    }
    if ep.max_msg_size < LONGEST {
        let most = ep.max_msg_size;
        return Err(format!("has messages of at most {most} bytes"));
    }
    Ok(())
}

/// Makes the provider do everything that matching needs, with messages of this endpoint to itself.
///
/// # Errors
/// What the provider failed to do, worded as for [`examine`].
pub(crate) fn attempt(link: &Link) -> Result<(), String> {
    let mut trial = Trial::new(link)?;
    let outcome = trial.run();
    if outcome.is_err() {
        // The provider may still use the memory that it was given.
        std::mem::forget(trial);
    }
    outcome
}

/// An endpoint that sends messages to itself.
struct Trial<'a> {
    link: &'a Link,
    own: fi_addr_t,
    ops: Ops,
    bytes: Box<[u8]>,
    room: Box<[u8; LEN]>,
    sink: Box<[u8]>,
}

/// How an operation ended.
enum Outcome {
    /// A message of this length, with this data word.
    Message(usize, u64),
    /// There is no such message.
    Nothing,
    /// This many bytes of the message were lost.
    Cut(usize),
}

/// The indices of the operations.
const SEND: usize = 0;
const LOOK: usize = 1;

impl<'a> Trial<'a> {
    fn new(link: &'a Link) -> Result<Self, String> {
        let name = link.name()?;
        let mut own = FI_ADDR_NOTAVAIL;
        let (av, context) = (link.domain.av.get(), ptr::null_mut());
        let no_memory =
            |NoMemory(len)| format!("needs {len} bytes to be tried, which are not there");
        // SAFETY: an open vector, one address of its format, room for one number.
        let count = unsafe { fi_av_insert(av, name.as_ptr().cast(), 1, &raw mut own, 0, context) };
        if count != 1 {
            return Err("does not take its own address".into());
        }
        let mut bytes = zeros(too_long(link.sink)[4]).map_err(no_memory)?;
        bytes.fill(7);
        Ok(Self {
            link,
            own,
            ops: Ops::new(Kind::Tagged, 2),
            bytes,
            room: Box::new([0; LEN]),
            sink: zeros(link.sink).map_err(no_memory)?,
        })
    }

    /// Runs the trial.
    fn run(&mut self) -> Result<(), String> {
        // Nothing has been sent yet.
        if self.look(1, false)?.is_some() {
            return Err("shows a message that nobody has sent".into());
        }
        for number in 0..KEPT {
            self.send(number)?;
        }
        // When the last one has arrived, all of them have.
        let last = self.tag(KEPT - 1);
        let start = Instant::now();
        while self.look(last, false)?.is_none() {
            if start.elapsed() > PATIENCE {
                return Err(format!("has lost one of {KEPT} messages without receives"));
            }
        }
        // Take and receive them out of order.
        for number in (0..KEPT).rev() {
            let tag = self.tag(number);
            let Some(found) = self.look(tag, true)? else {
                return Err(format!(
                    "has lost message {number} of {KEPT} without receives"
                ));
            };
            if found != (LEN, self.data(number)) {
                return Err(format!("shows a message that was not sent so: {found:?}"));
            }
            self.receive(tag)?;
        }
        if self.look(last, false)?.is_some() {
            return Err("shows a message that was received".into());
        }
        for (number, len) in too_long(self.sink.len()).into_iter().enumerate() {
            self.cut(number, len)?;
        }
        Ok(())
    }

    fn tag(&self, number: usize) -> u64 {
        2 + number as u64
    }

    fn data(&self, number: usize) -> u64 {
        u64::MAX - number as u64
    }

    /// Sends a message and waits until it has left.
    fn send(&self, number: usize) -> Result<(), String> {
        self.start_send(number, LEN)?;
        match self.outcome(SEND)? {
            Some(_) => Ok(()),
            None => Err("cannot send to itself".into()),
        }
    }

    fn start_send(&self, number: usize, len: usize) -> Result<(), String> {
        let (ep, context) = (self.link.ep.get(), self.ops.context(SEND));
        let (start, data, tag) = (self.bytes.as_ptr(), self.data(number), self.tag(number));
        self.begin("send to itself", || {
            // SAFETY: an open endpoint, its own address, bytes and a context that outlive the
            // operation.
            unsafe {
                let null = ptr::null_mut();
                fi_tsenddata(ep, start.cast(), len, null, data, self.own, tag, context)
            }
        })
    }

    /// Looks for a message. Returns its length and data word.
    fn look(&self, tag: u64, claim: bool) -> Result<Option<(usize, u64)>, String> {
        let flags = if claim { FI_PEEK | FI_CLAIM } else { FI_PEEK };
        self.post(tag, ptr::null(), 0, flags)?;
        self.outcome(LOOK)
    }

    /// Receives the message that was taken.
    fn receive(&mut self, tag: u64) -> Result<(), String> {
        self.room.fill(0);
        let iov = libc::iovec {
            iov_base: self.room.as_mut_ptr().cast(),
            iov_len: LEN,
        };
        self.post(tag, &raw const iov, 1, FI_CLAIM)?;
        match self.outcome(LOOK)? {
            Some((LEN, _)) if self.room[..] == self.bytes[..LEN] => Ok(()),
            Some((len, _)) => Err(format!("gives {len} bytes of a message of {LEN}")),
            None => Err("does not give a message that it has shown".into()),
        }
    }

    /// Receives a message into a buffer that is too short for it.
    fn cut(&mut self, number: usize, len: usize) -> Result<(), String> {
        let tag = self.tag(number);
        self.room.fill(0);
        let iov = [
            libc::iovec {
                iov_base: self.room.as_mut_ptr().cast(),
                iov_len: LEN / 2,
            },
            libc::iovec {
                iov_base: self.sink.as_mut_ptr().cast(),
                iov_len: self.sink.len(),
            },
        ];
        self.post(tag, iov.as_ptr(), 2, 0)?;
        self.start_send(number, len)?;
        let (room, start) = (LEN / 2 + self.sink.len(), Instant::now());
        let (mut sent, mut total) = (false, None);
        while !sent || total.is_none() {
            match self.poll()? {
                Some((SEND, Outcome::Message(..))) => sent = true,
                Some((LOOK, Outcome::Message(all, _))) => total = Some(all),
                Some((LOOK, Outcome::Cut(more))) => total = Some(room + more),
                _ if start.elapsed() < PATIENCE => {}
                _ => return Err(format!("does not end a receive of {LEN} of {len} bytes")),
            }
        }
        let (half, rest) = self.room.split_at(LEN / 2);
        let whole = half.iter().all(|&byte| byte == 7) && rest.iter().all(|&byte| byte == 0);
        if whole && total == Some(len) {
            return Ok(());
        }
        Err(format!("cuts a message of {len} bytes wrongly"))
    }

    fn post(
        &self,
        tag: u64,
        iov: *const libc::iovec,
        count: usize,
        flags: u64,
    ) -> Result<(), String> {
        // One for each part: providers read as many descriptors as there are parts.
        let mut desc = [ptr::null_mut(); 2];
        debug_assert!(count <= desc.len());
        let msg = fi_msg_tagged {
            msg_iov: iov,
            desc: desc.as_mut_ptr(),
            iov_count: count,
            addr: FI_ADDR_UNSPEC,
            tag,
            ignore: 0,
            context: self.ops.context(LOOK),
            data: 0,
        };
        self.begin("look for messages (FI_PEEK, FI_CLAIM)", || {
            // SAFETY: an open endpoint; everything that the message names outlives the operation,
            // which is waited for.
            unsafe { fi_trecvmsg(self.link.ep.get(), &raw const msg, flags) }
        })
    }

    /// Starts an operation, as soon as there is room.
    fn begin(&self, what: &str, call: impl Fn() -> isize) -> Result<(), String> {
        let start = Instant::now();
        loop {
            match call() {
                0 => return Ok(()),
                error if error == -(FI_EAGAIN as isize) => {
                    if start.elapsed() > PATIENCE {
                        return Err(format!("never has room to {what}"));
                    }
                    self.poll()?;
                }
                error => {
                    let why = self.link.domain.library.fi_strerror(error as i64);
                    return Err(format!("cannot {what}: {why}"));
                }
            }
        }
    }

    /// Waits for the end of an operation. Returns its length and data word, or `None` if there is
    /// no message.
    fn outcome(&self, which: usize) -> Result<Option<(usize, u64)>, String> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            match self.poll()? {
                Some((index, Outcome::Message(len, data))) if index == which => {
                    return Ok(Some((len, data)));
                }
                Some((index, Outcome::Nothing)) if index == which => return Ok(None),
                _ => {}
            }
        }
        let what = if which == SEND { "send" } else { "look" };
        Err(format!("does not end a {what}"))
    }

    /// Reads one completion, if there is one: which operation ended, and how.
    fn poll(&self) -> Result<Option<(usize, Outcome)>, String> {
        let cq = self.link.domain.cq.get();
        // SAFETY: numbers and null pointers, for which zero is a value.
        let (mut entry, mut error) = unsafe {
            (
                std::mem::zeroed::<fi_cq_tagged_entry>(),
                std::mem::zeroed::<fi_cq_err_entry>(),
            )
        };
        let which = |context| usize::from(context == self.ops.context(LOOK));
        // SAFETY: an open queue of this format, room for one entry.
        let count = unsafe { fi_cq_read(cq, (&raw mut entry).cast(), 1) };
        if count == 1 {
            let outcome = Outcome::Message(entry.len, entry.data);
            return Ok(Some((which(entry.op_context), outcome)));
        }
        if count != -(FI_EAVAIL as isize) {
            return Ok(None);
        }
        // SAFETY: an open queue, room for one entry.
        if unsafe { fi_cq_readerr(cq, &raw mut error, 0) } <= 0 {
            return Ok(None);
        }
        let outcome = match error.err {
            FI_ENOMSG => Outcome::Nothing,
            FI_ETRUNC_ERROR => Outcome::Cut(error.olen),
            other => {
                let why = self.link.domain.library.fi_strerror(i64::from(other));
                return Err(format!("fails to match messages to itself: {why}"));
            }
        };
        Ok(Some((which(error.op_context), outcome)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::start::library;

    #[test]
    fn what_a_provider_says_of_itself_is_read() {
        let Ok(library) = library::open(&Config::default()) else {
            return; // There is no libfabric here.
        };
        let hints = Info::hints(library, 0).unwrap();
        let Ok(list) = Info::list(library, Some(&hints)) else {
            return; // Nor a provider.
        };
        for info in list {
            // The hints asked for plain messages only.
            if info.get().caps & FI_TAGGED == 0 {
                let why = examine(&info, 2).unwrap_err();
                assert!(why.contains("tagged"), "{why}");
            }
        }
    }
}
