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
use crate::caps::over;
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

/// Why `sockets` and `net` are not used to match.
const DISORDER: &str = "gives receives later messages before earlier ones that match";

/// Layers that cannot match although the trial does not show it, or that the trial would not end
/// with, and why they cannot.
///
/// - `sm2` (2.5) copies a message that is longer than its receive by `process_vm_readv`. When the
///   receive is full it goes on to ask for the rest, without room, inside of `fi_cq_read`.
/// - Over `sockets` (1.17 and 2.5) and `net;ofi_rxm` (1.17) the suite finds messages in the wrong
///   order, where messages of up to 250,000 bytes, posted receives and matched probes mix.
const UNABLE: &[(&str, &str)] = &[
    (
        "sm2",
        "never returns from a call in which a long message meets a receive that is too short",
    ),
    ("sockets", DISORDER),
    ("net", DISORDER),
];

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
    let opened = in_process_with(1, &asked);
    // With matching by the provider another one may be the best, so its name belongs here.
    let provider = opened
        .as_ref()
        .map(|ranks| ranks[0].link.domain.info.provider());
    match (provider, config.matching) {
        (Ok(provider), MatchMode::Native) => {
            format!("messages are matched by provider {provider} (PORTOLAN_MATCH={mode})")
        }
        (Ok(provider), _) => {
            format!("{software}; PORTOLAN_MATCH=native would have provider {provider} match them")
        }
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
    match UNABLE.iter().find(|(layer, _)| over(info, layer)) {
        Some((_, why)) => Err((*why).into()),
        None => Ok(()),
    }
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
    /// Well, with this message.
    Message(Came),
    /// There is no such message.
    Nothing,
    /// As many bytes of this message as its `len` says were lost.
    Cut(Came),
}

/// What a completion says of a message. Source, tag and signature of every message are read from
/// there, also where an error says that it was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Came {
    len: usize,
    tag: u64,
    data: u64,
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
            if found != self.message(number, LEN) {
                return Err(format!("shows a message that was not sent so: {found:?}"));
            }
            self.receive(tag)?;
        }
        if self.look(last, false)?.is_some() {
            return Err("shows a message that was received".into());
        }
        let lens = too_long(self.sink.len());
        for (number, len) in lens.into_iter().enumerate() {
            self.cut(number, len, 0)?;
        }
        // A receive with wildcards learns only from the completion what it has received.
        self.cut(lens.len(), lens[4], u64::MAX)
    }

    /// What a completion has to say of a message of this trial.
    fn message(&self, number: usize, len: usize) -> Came {
        let (tag, data) = (self.tag(number), self.data(number));
        Came { len, tag, data }
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

    /// Looks for a message.
    fn look(&self, tag: u64, claim: bool) -> Result<Option<Came>, String> {
        let flags = if claim { FI_PEEK | FI_CLAIM } else { FI_PEEK };
        self.post((tag, 0), ptr::null(), 0, flags)?;
        self.outcome(LOOK)
    }

    /// Receives the message that was taken.
    fn receive(&mut self, tag: u64) -> Result<(), String> {
        self.room.fill(0);
        let iov = libc::iovec {
            iov_base: self.room.as_mut_ptr().cast(),
            iov_len: LEN,
        };
        self.post((tag, 0), &raw const iov, 1, FI_CLAIM)?;
        match self.outcome(LOOK)? {
            Some(Came { len: LEN, .. }) if self.room[..] == self.bytes[..LEN] => Ok(()),
            Some(Came { len, .. }) => Err(format!("gives {len} bytes of a message of {LEN}")),
            None => Err("does not give a message that it has shown".into()),
        }
    }

    /// Receives a message into a buffer that is too short for it. The bits of the tag in `ignore`
    /// are not asked for.
    fn cut(&mut self, number: usize, len: usize, ignore: u64) -> Result<(), String> {
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
        self.post((tag & !ignore, ignore), iov.as_ptr(), 2, 0)?;
        self.start_send(number, len)?;
        let (room, start) = (LEN / 2 + self.sink.len(), Instant::now());
        let (mut sent, mut received) = (false, None);
        while !sent || received.is_none() {
            match self.poll()? {
                Some((SEND, Outcome::Message(_))) => sent = true,
                Some((LOOK, Outcome::Message(all))) => received = Some(all),
                Some((LOOK, Outcome::Cut(lost))) => {
                    let len = room + lost.len;
                    received = Some(Came { len, ..lost });
                }
                _ if start.elapsed() < PATIENCE => {}
                _ => return Err(format!("does not end a receive of {LEN} of {len} bytes")),
            }
        }
        let (half, rest) = self.room.split_at(LEN / 2);
        let whole = half.iter().all(|&byte| byte == 7) && rest.iter().all(|&byte| byte == 0);
        let wanted = self.message(number, len);
        match received {
            Some(received) if whole && received == wanted => Ok(()),
            Some(received) if whole && received.len == len => Err(format!(
                "does not tell which message of {len} bytes it has cut: {received:?}"
            )),
            _ => Err(format!("cuts a message of {len} bytes wrongly")),
        }
    }

    fn post(
        &self,
        (tag, ignore): (u64, u64),
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
            ignore,
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

    /// Waits for the end of an operation. Returns its message, or `None` if there is none.
    fn outcome(&self, which: usize) -> Result<Option<Came>, String> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            match self.poll()? {
                Some((index, Outcome::Message(came))) if index == which => return Ok(Some(came)),
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
            let fi_cq_tagged_entry { len, tag, data, .. } = entry;
            let outcome = Outcome::Message(Came { len, tag, data });
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
            FI_ETRUNC_ERROR => Outcome::Cut(Came {
                len: error.olen,
                tag: error.tag,
                data: error.data,
            }),
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
    use std::sync::OnceLock;

    use libfabric_sys::{fi_ops_cq, fid_cq};

    use super::*;
    use crate::start::{library, provider};
    use crate::testing::skipped;

    type ReadError = unsafe extern "C" fn(*mut fid_cq, *mut fi_cq_err_entry, u64) -> isize;

    /// The provider's own function.
    static READ_ERROR: OnceLock<ReadError> = OnceLock::new();

    /// Reads an error from a queue.
    ///
    /// # Safety
    /// As for `fi_cq_readerr`.
    unsafe fn read_error(cq: *mut fid_cq, entry: *mut fi_cq_err_entry, flags: u64) -> isize {
        let read = READ_ERROR.get().expect("set by the test");
        // SAFETY: the caller's promise.
        unsafe { read(cq, entry, flags) }
    }

    unsafe extern "C" fn without_tag(
        cq: *mut fid_cq,
        entry: *mut fi_cq_err_entry,
        flags: u64,
    ) -> isize {
        // SAFETY: the caller's promise; the entry was initialised before.
        unsafe {
            let count = read_error(cq, entry, flags);
            (*entry).tag = 0;
            count
        }
    }

    unsafe extern "C" fn without_data(
        cq: *mut fid_cq,
        entry: *mut fi_cq_err_entry,
        flags: u64,
    ) -> isize {
        // SAFETY: as above.
        unsafe {
            let count = read_error(cq, entry, flags);
            (*entry).data = 0;
            count
        }
    }

    #[test]
    fn a_provider_has_to_tell_which_message_it_has_cut() {
        let config = Config {
            provider: Some("tcp".to_owned()),
            interface: Some("lo".to_owned()),
            matching: MatchMode::Native,
            ..Config::default()
        };
        let what = "errors that name no message";
        let chosen = || provider::choose(&config);
        let link = |(library, info)| Link::new(library, info, &config, 1, true);
        let able = match chosen().map_err(|why| why.to_string()).and_then(link) {
            Ok(link) => examine(&link.domain.info, 1).and_then(|()| attempt(&link)),
            Err(why) => Err(why),
        };
        if let Err(why) = able {
            return skipped(what, &why);
        }
        for replaced in [without_tag as ReadError, without_data] {
            let link = link(chosen().expect("as before")).expect("as before");
            let cq = link.domain.cq.get();
            // SAFETY: an open queue, which only this thread uses. The table is never freed.
            unsafe {
                assert!((*(*cq).ops).size >= size_of::<fi_ops_cq>());
                let mut table = Box::new((*cq).ops.read());
                let own = table.readerr.replace(replaced).expect("it has one");
                READ_ERROR.get_or_init(|| own);
                (*cq).ops = Box::leak(table);
            }
            let why = attempt(&link).expect_err("it does not tell");
            assert!(why.contains("does not tell which message"), "{why}");
        }
    }

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
