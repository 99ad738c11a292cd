//! Reads a peer's buffer by the network's own means: a long message is pulled by its receiver.
//!
//! The sender registers its buffer and tells the receiver where it is. The receiver starts a read
//! for each piece; a read ends with a completion, as every other operation does. While a read is
//! under way, the memory that it writes belongs to the provider. Therefore no rank's death is
//! adopted before the reads from that rank have ended, and an endpoint with reads under way is
//! closed before its memory is freed.
//!
//! Where the owner of a buffer has to poll for a read to get on, an owner that computes keeps a
//! read waiting. So if all places are taken, and no read has ended for a while, further messages
//! are streamed by their senders.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libfabric_sys::{FI_ADDR_NOTAVAIL, FI_EAGAIN, FI_READ, FI_REMOTE_READ, fi_read, fid_mr};
use portolan_core::transport::{Exposure, Pulled, Pulls, Sent, Token};

use crate::deaths::abandon::{self, Open, What};
use crate::endpoint::objects::Fid;
use crate::endpoint::op::{Kind, Ops};
use crate::endpoint::{Domain, desc};
use crate::memory::registrations::{Registrations, Whose, published};
use crate::memory::remote::Remotes;
use crate::ofi::Ofi;
use crate::packets::wire::Wire;
use crate::send;

/// Reads that may be under way from one rank.
const READS: usize = 16;

/// How long there may be no place for a read, without any read ending, before messages are streamed
/// instead. A slow network needs a tenth of a second for a piece.
const PATIENCE: Duration = Duration::from_millis(250);

/// What peers may read, and the reads from them.
#[derive(Debug)]
pub(crate) struct Memory {
    ops: Ops,
    reads: Box<[Option<Read>]>,
    /// Reads that have not completed.
    pending: usize,
    /// When there was first no place for a read since the last one ended.
    full_since: Option<Instant>,
    /// Reads and remote operations begun so far.
    pub(crate) begun: u64,
    /// The provider no longer reports how they end.
    pub(crate) stuck: bool,
    /// The number of ended ranks when their open operations were last looked at, and when all of
    /// these had been dealt with.
    pub(crate) seen: u32,
    pub(crate) settled: u32,
    /// The exposed regions, by number.
    pub(crate) exposed: BTreeMap<u64, Arc<Fid<fid_mr>>>,
    pub(crate) registrations: Registrations,
    pub(crate) remotes: Remotes,
}

/// One read. It stays here until the engine has asked for its result.
#[derive(Debug)]
struct Read {
    what: Piece,
    state: State,
    /// How many operations this rank had begun before this one.
    begun: u64,
    /// The target's registration, where the provider requires one.
    region: Option<Arc<Fid<fid_mr>>>,
}

/// What is read, and where to. Several messages may be read into the same target at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    peer: u32,
    key: u64,
    from: u64,
    target: *mut u8,
    len: usize,
}

// SAFETY: the target is only compared; the region belongs to no thread.
unsafe impl Send for Read {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending,
    Done,
    Failed,
    /// Nothing waits for it any more.
    Abandoned,
}

impl Memory {
    pub(crate) fn new(domain: &Domain) -> Result<Self, String> {
        Ok(Self {
            ops: Ops::new(Kind::Read, READS),
            reads: (0..READS).map(|_| None).collect(),
            pending: 0,
            full_since: None,
            begun: 0,
            stuck: false,
            seen: 0,
            settled: 0,
            exposed: BTreeMap::new(),
            registrations: Registrations::new(),
            remotes: Remotes::new(domain)?,
        })
    }

    /// Whether the provider may access the program's memory.
    pub(crate) fn is_reading(&self) -> bool {
        self.pending > 0 || self.remotes.uses_memory()
    }

    /// Whether the provider may access memory of the program's in an operation on such peers.
    pub(crate) fn is_reading_from(&self, peers: impl Fn(u32) -> bool) -> bool {
        let mut reads = self.reads.iter().flatten();
        let is_one = |read: &Read| read.state == State::Pending && peers(read.what.peer);
        reads.any(is_one) || self.remotes.uses_memory_of(&peers)
    }

    /// Whether peers may reach memory of this rank.
    pub(crate) fn is_offered(&self) -> bool {
        !self.exposed.is_empty() || !self.registrations.is_empty()
    }

    /// Whether no operation is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending == 0 && self.remotes.is_idle()
    }

    /// The operations that have neither ended nor been abandoned.
    pub(crate) fn open(&self) -> impl Iterator<Item = Open> {
        let reads = self.reads.iter().enumerate();
        let reads = reads.filter_map(|(index, read)| {
            let read = read.as_ref().filter(|read| read.state == State::Pending)?;
            Some(Open {
                begun: read.begun,
                peer: read.what.peer,
                what: What::Read(index),
            })
        });
        reads.chain(self.remotes.open())
    }

    /// Pretends that a read has begun.
    #[cfg(test)]
    pub(crate) fn pretend_to_read(&mut self) {
        self.pending += 1;
    }

    /// Ends everything that lets peers reach this rank's memory.
    pub(crate) fn close(&mut self) {
        self.exposed.clear();
        self.registrations.clear();
    }

    /// Ends all registrations, including those for operations under way.
    pub(crate) fn unregister(&mut self) {
        self.close();
        for read in self.reads.iter_mut().flatten() {
            read.region = None;
        }
        self.remotes.unregister();
    }

    /// Notes the end of a read.
    pub(crate) fn completed(&mut self, index: usize, well: bool) {
        let Some(read) = &mut self.reads[index] else {
            return;
        };
        if read.state == State::Abandoned {
            self.reads[index] = None;
            return;
        }
        read.state = if well { State::Done } else { State::Failed };
        self.pending -= 1;
        self.full_since = None;
        if let Some(region) = read.region.take() {
            self.registrations.end_one(region);
        }
    }

    /// Abandons a read: nothing waits for it any more. Its place remains the provider's.
    pub(crate) fn abandon(&mut self, index: usize) {
        if let Some(read) = &mut self.reads[index] {
            read.state = State::Abandoned;
            self.pending -= 1;
        }
    }

    /// Frees the places of ended reads from dead peers, whose results nobody asks for any more. No
    /// such read is under way.
    pub(crate) fn forget(&mut self, dead: impl Fn(u32) -> bool) {
        let over = |state| matches!(state, State::Done | State::Failed);
        for read in &mut self.reads {
            read.take_if(|read| over(read.state) && dead(read.what.peer));
        }
    }

    /// The result of the read of a piece; `None` if it has not been started.
    fn ask(&mut self, piece: &Piece) -> Option<Pulled> {
        let same = |read: &&mut Option<Read>| read.as_ref().is_some_and(|r| r.what == *piece);
        let place = self.reads.iter_mut().find(same)?;
        let answer = match place.as_ref()?.state {
            State::Pending => return Some(Pulled::Later),
            State::Done => Pulled::Done,
            State::Failed => Pulled::Stream,
            State::Abandoned => return Some(Pulled::Stream),
        };
        *place = None;
        Some(answer)
    }
}

/// The location of a buffer for a peer: the contents of an [`Exposure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) key: u64,
    /// Address of the first byte, as the provider counts addresses.
    pub(crate) base: u64,
    pub(crate) len: u64,
    /// The owner's number for it.
    pub(crate) number: u64,
}

impl Place {
    fn to_exposure(self) -> Exposure {
        Exposure(self.to_token())
    }

    fn to_token(self) -> Token {
        let mut bytes = [0; 32];
        let words = [self.key, self.base, self.len, self.number];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn of(exposure: &Exposure) -> Self {
        Self::of_token(&exposure.0)
    }

    pub(crate) fn of_token(token: &Token) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| token[8 * at + n]));
        Self {
            key: word(0),
            base: word(1),
            len: word(2),
            number: word(3),
        }
    }
}

/// Lets peers read `len` bytes at `data`. `None` if the provider refuses (perhaps it is short of
/// memory that it can lock): the data is then sent in packets.
pub(crate) fn expose(ofi: &mut Ofi, data: *const u8, len: usize) -> Option<Exposure> {
    if !ofi.link.domain.rma || len == 0 {
        return None;
    }
    let link = &mut *ofi.link;
    let memory = &mut *link.memory;
    let number = memory.registrations.number();
    if let Some((region, place)) = memory.registrations.own(&link.domain, data, len) {
        // Holds the region, which may be freed before the message has been read.
        memory.exposed.insert(number, region);
        return Some(Place { number, ..place }.to_exposure());
    }
    let region = link
        .domain
        .register(data.cast_mut(), len, FI_REMOTE_READ, number)
        .ok()?;
    let place = published(&link.domain, &region, data, len, number);
    memory.exposed.insert(number, Arc::new(region));
    Some(place.to_exposure())
}

/// Lets peers reach memory by remote operations. `None` if the provider has none, or refuses.
pub(crate) fn register(ofi: &mut Ofi, data: *mut u8, len: usize) -> Option<Token> {
    if !ofi.link.domain.remote || len == 0 {
        return None;
    }
    let link = &mut *ofi.link;
    let place = link.memory.registrations.add(&link.domain, data, len)?;
    Some(place.to_token())
}

/// Ends a registration.
pub(crate) fn deregister(ofi: &mut Ofi, token: &Token) {
    let number = Place::of_token(token).number;
    ofi.link.memory.registrations.remove(number);
}

/// Ends an exposure.
pub(crate) fn withdraw(ofi: &mut Ofi, exposure: &Exposure) {
    let memory = &mut *ofi.link.memory;
    if let Some(region) = memory.exposed.remove(&Place::of(exposure).number) {
        memory.registrations.end_one(region);
    }
}

/// How long messages may be pulled.
pub(crate) fn pulls(ofi: &Ofi) -> Pulls {
    match ofi.link.domain.rma && !ofi.link.memory.stuck {
        true => Pulls::Contiguous,
        false => Pulls::Never,
    }
}

/// Starts to read a piece of a peer's buffer, or returns how far the read is.
///
/// # Safety
/// As for `Transport::pull`.
pub(crate) unsafe fn pull(
    ofi: &mut Ofi,
    peer: u32,
    exposure: &Exposure,
    offset: u64,
    target: *mut u8,
    len: usize,
) -> Pulled {
    if let Some(stream) = &mut ofi.stream {
        // The engine now waits for more than packets.
        stream.turned();
    }
    let place = Place::of(exposure);
    let piece = Piece {
        peer,
        key: place.key,
        from: place.base.wrapping_add(offset),
        target,
        len,
    };
    if let Some(answer) = ofi.link.memory.ask(&piece) {
        return answer;
    }
    let inside = offset
        .checked_add(len as u64)
        .is_some_and(|end| end <= place.len);
    let trouble = !ofi.may_begin_with(peer) || abandon::is_open(ofi);
    let possible = ofi.link.domain.rma && inside && !trouble && !ofi.link.memory.stuck;
    if !possible || len > ofi.link.domain.info.ep_attr().max_msg_size {
        return Pulled::Stream;
    }
    match send::absent(ofi, peer) {
        Some(Sent::Gone) => return Pulled::Gone,
        Some(_) => return Pulled::Stream, // It has left, and its exposed memory is gone.
        None => {}
    }
    if ofi.peers[peer as usize].addr == FI_ADDR_NOTAVAIL && !send::insert(ofi, peer) {
        return Pulled::Gone;
    }
    // SAFETY: the caller's promise.
    unsafe { start(ofi, piece, Whose::Message(peer, place.number)) }
}

/// # Safety
/// As for `Transport::pull`.
unsafe fn start(ofi: &mut Ofi, piece: Piece, whose: Whose) -> Pulled {
    let Piece {
        peer,
        key,
        from,
        target,
        len,
    } = piece;
    let addr = ofi.peers[peer as usize].addr;
    let link = &mut *ofi.link;
    let Some(index) = link.memory.reads.iter().position(Option::is_none) else {
        // Without such a read, no place will ever be free again.
        let waits = |read: &Read| read.state != State::Abandoned;
        let waits = link.memory.reads.iter().flatten().any(waits);
        let since = link.memory.full_since.get_or_insert_with(Instant::now);
        return match waits && since.elapsed() < PATIENCE {
            true => Pulled::Later,
            false => Pulled::Stream,
        };
    };
    let registrations = &mut link.memory.registrations;
    let region = registrations.local(&link.domain, target, len, FI_READ, whose);
    let Ok(region) = region else {
        return Pulled::Stream;
    };
    let context = link.memory.ops.context(index);
    let desc = desc(region.as_deref());
    // SAFETY: an open endpoint, an address of its vector. The target is writable until the read is
    // over, as the caller promised; the context stays where it is.
    let result = unsafe {
        let ep = link.ep.get();
        fi_read(ep, target.cast(), len, desc, addr, from, key, context)
    };
    if result == -(FI_EAGAIN as isize) {
        let registrations = &mut link.memory.registrations;
        registrations.keep(whose, (target, len), region);
        return Pulled::Later;
    }
    if result != 0 {
        return Pulled::Stream;
    }
    link.memory.pending += 1;
    link.memory.begun += 1;
    link.memory.reads[index] = Some(Read {
        what: piece,
        state: State::Pending,
        begun: link.memory.begun,
        region,
    });
    Pulled::Later
}

/// Facts about this transport for its users, one per line.
pub(crate) fn describe(ofi: &Ofi) -> Vec<(String, String)> {
    let domain = &ofi.link.domain;
    let (major, minor) = domain.library.version();
    let fact = |name: &str, text: String| (name.to_owned(), text);
    let choice = |is: bool, yes: &str, no: &str| if is { yes } else { no }.to_owned();
    let injected = ofi.inject.saturating_sub(Wire::LEN);
    vec![
        fact("libfabric", format!("{major}.{minor}")),
        fact("provider", domain.info.provider()),
        fact(
            "network",
            format!("{} ({})", domain.info.domain(), domain.info.fabric()),
        ),
        fact(
            "large messages",
            choice(domain.rma, "read by their receiver", "streamed"),
        ),
        fact(
            "one-sided operations",
            match (domain.remote, domain.atomics) {
                (false, _) => "by packets",
                (true, false) => "by the provider, atomic ones by packets",
                (true, true) => "by the provider",
            }
            .to_owned(),
        ),
        fact(
            "receive buffers",
            choice(
                domain.multi,
                "for many messages each",
                "for one message each",
            ),
        ),
        fact("registration", domain.info.registration()),
        fact("injected", format!("up to {injected} bytes")),
        fact(
            "memory",
            match &domain.hmem {
                Some(hmem) => format!("FI_HMEM: {}", hmem.shown()),
                None => "the host's".to_owned(),
            },
        ),
    ]
}

#[cfg(test)]
mod tests {
    use portolan_core::config::Settings;
    use portolan_core::transport::{Header, Transport};

    use super::*;
    use crate::config::Config;
    use crate::in_process;
    use crate::ofi::Nobody;
    use crate::progress;
    use crate::testing::{opened_or_skipped, skipped};

    #[test]
    fn places_survive_the_journey() {
        let place = Place {
            key: u64::MAX,
            base: 2,
            len: 3,
            number: 1 << 40,
        };
        assert_eq!(Place::of(&place.to_exposure()), place);
    }

    #[test]
    #[expect(clippy::print_stderr, reason = "skips are counted by the runner")]
    fn a_read_is_not_answered_by_that_of_another_buffer_into_the_same_place() {
        const LEN: usize = 1 << 16;
        let mut settings = Settings::default();
        settings.set("OFI_PROVIDER", "tcp").unwrap();
        settings.set("OFI_INTERFACE", "lo").unwrap();
        let opened = in_process(2, &settings).map(|ranks| <[Ofi; 2]>::try_from(ranks).unwrap());
        let [mut owner, mut reader] = match opened {
            Ok(ranks) if ranks[0].link.domain.rma => ranks,
            Ok(_) => return eprintln!("skipped: reading a peer's memory: the provider cannot"),
            Err(why) => return eprintln!("skipped: reading a peer's memory: {why}"),
        };
        let buffers = [vec![1_u8; LEN], vec![2_u8; LEN]];
        let places = buffers
            .each_ref()
            .map(|buffer| expose(&mut owner, buffer.as_ptr(), LEN).unwrap());
        let mut target = vec![0_u8; LEN];
        let at = target.as_mut_ptr();
        // SAFETY: as many bytes are there until the reads are over.
        let read =
            |reader: &mut Ofi, which: usize| unsafe { pull(reader, 0, &places[which], 0, at, LEN) };
        // The provider accepts the read once it has a connection.
        while !reader.link.memory.is_reading() {
            assert_eq!(read(&mut reader, 0), Pulled::Later);
            progress::poll(&mut owner, &mut Nobody);
            if !reader.link.memory.is_reading() {
                progress::poll(&mut reader, &mut Nobody);
            }
        }
        while reader.link.memory.is_reading() {
            progress::poll(&mut owner, &mut Nobody);
            progress::poll(&mut reader, &mut Nobody);
        }
        // The first read is over, and nobody has asked for its result.
        while read(&mut reader, 1) == Pulled::Later {
            progress::poll(&mut owner, &mut Nobody);
            progress::poll(&mut reader, &mut Nobody);
        }
        assert!(target == buffers[1], "it is of the first buffer");
        for place in places {
            withdraw(&mut owner, &place);
        }
    }

    /// An engine that has been told of a death no longer asks for the results of reads from the
    /// dead rank.
    #[test]
    #[expect(clippy::print_stderr, reason = "skips are counted by the runner")]
    fn reads_from_the_dead_leave_their_places_to_the_living() {
        const LEN: usize = 1 << 12;
        let mut settings = Settings::default();
        settings.set("OFI_PROVIDER", "tcp").unwrap();
        settings.set("OFI_INTERFACE", "lo").unwrap();
        let opened = in_process(3, &settings).map(|ranks| <[Ofi; 3]>::try_from(ranks).unwrap());
        let [mut reader, mut one, mut two] = match opened {
            Ok(ranks) if ranks[0].link.domain.rma => ranks,
            Ok(_) => return eprintln!("skipped: reading a peer's memory: the provider cannot"),
            Err(why) => return eprintln!("skipped: reading a peer's memory: {why}"),
        };
        let source = vec![7_u8; LEN];
        let mut targets = vec![vec![0_u8; LEN]; READS + 1];
        let exposed =
            [&mut one, &mut two].map(|owner| expose(owner, source.as_ptr(), LEN).unwrap());
        let places: Vec<*mut u8> = targets
            .iter_mut()
            .map(|target| target.as_mut_ptr())
            .collect();
        // SAFETY: as many bytes are there until the reads are over.
        let read = |reader: &mut Ofi, peer: u32, at: *mut u8| unsafe {
            pull(reader, peer, &exposed[peer as usize - 1], 0, at, LEN)
        };
        for (number, &at) in places[..READS].iter().enumerate() {
            while reader.link.memory.reads.iter().flatten().count() == number {
                assert_eq!(read(&mut reader, 1, at), Pulled::Later);
                progress::poll(&mut reader, &mut Nobody);
                progress::poll(&mut one, &mut Nobody);
            }
        }
        while reader.link.memory.is_reading() {
            progress::poll(&mut reader, &mut Nobody);
            progress::poll(&mut one, &mut Nobody);
        }
        reader.declare_failed(1, "a test says so");
        assert_eq!(reader.failures(), 1);
        let mut polls = 0;
        while read(&mut reader, 2, places[READS]) == Pulled::Later {
            progress::poll(&mut reader, &mut Nobody);
            progress::poll(&mut two, &mut Nobody);
            polls += 1;
            assert!(polls < 5_000_000, "the dead keep their places");
        }
        withdraw(&mut two, &exposed[1]);
        assert!(targets[READS] == source);
    }

    /// Ranks that compute keep reads from them waiting, but neither messages from others nor the
    /// news of a death.
    #[test]
    #[expect(clippy::print_stderr, reason = "skips are counted by the runner")]
    fn who_computes_keeps_nobody_from_others() {
        const LEN: usize = 1 << 20;
        let mut settings = Settings::default();
        settings.set("OFI_PROVIDER", "tcp").unwrap();
        settings.set("OFI_INTERFACE", "lo").unwrap();
        let opened = in_process(4, &settings).map(|ranks| <[Ofi; 4]>::try_from(ranks).unwrap());
        let [mut reader, mut computing, mut waiting, third] = match opened {
            Ok(ranks) if ranks[0].link.domain.rma => ranks,
            Ok(_) => return eprintln!("skipped: reading a peer's memory: the provider cannot"),
            Err(why) => return eprintln!("skipped: reading a peer's memory: {why}"),
        };
        let source = vec![7_u8; LEN];
        let mut targets = vec![vec![0_u8; LEN]; READS + 1];
        let exposed = [&mut computing, &mut waiting]
            .map(|owner| expose(owner, source.as_ptr(), LEN).unwrap());
        let places: Vec<*mut u8> = targets.iter_mut().map(|one| one.as_mut_ptr()).collect();
        // SAFETY: as many bytes are there until the reads are over.
        let read = |reader: &mut Ofi, peer: u32, at: *mut u8| unsafe {
            pull(reader, peer, &exposed[peer as usize - 1], 0, at, LEN)
        };
        // All places are taken by reads from a rank that polls no more once it is connected.
        for (number, &at) in places[..READS].iter().enumerate() {
            while reader.link.memory.reads.iter().flatten().count() == number {
                assert_eq!(read(&mut reader, 1, at), Pulled::Later);
                progress::poll(&mut reader, &mut Nobody);
                if number == 0 && !reader.link.memory.is_reading() {
                    progress::poll(&mut computing, &mut Nobody);
                }
            }
        }
        assert!(reader.link.memory.is_reading_from(|peer| peer == 1));
        let mut polls = 0;
        let way = loop {
            match read(&mut reader, 2, places[READS]) {
                Pulled::Later => {}
                way => break way,
            }
            progress::poll(&mut reader, &mut Nobody);
            polls += 1;
            assert!(polls < 5_000_000, "it waits for who computes");
        };
        assert_eq!(way, Pulled::Stream);
        reader.declare_failed(3, "a test says so");
        while reader.failures() == 0 {
            progress::poll(&mut reader, &mut Nobody);
            polls += 1;
            assert!(polls < 5_000_000, "the death waits for who computes");
        }
        assert!(
            reader.link.memory.is_reading_from(|peer| peer == 1),
            "still"
        );
        while reader.link.memory.is_reading() {
            progress::poll(&mut reader, &mut Nobody);
            progress::poll(&mut computing, &mut Nobody);
        }
        assert!(targets[..READS].iter().all(|target| *target == source));
        drop((third, computing, waiting));
    }

    /// The engine ends a message to a dead rank, and the program frees its buffer.
    #[test]
    fn who_is_held_to_be_dead_reads_no_more() {
        const LEN: usize = 64 << 20;
        let config = Config {
            provider: Some("tcp".to_owned()),
            interface: Some("lo".to_owned()),
            ..Config::default()
        };
        let what = "reads by the dead";
        let Some(mut ranks) = opened_or_skipped(what, 2, &config) else {
            return; // The skip has been printed.
        };
        let [reader, owner] = &mut ranks[..] else {
            panic!("two ranks");
        };
        if !owner.link.domain.rma {
            return skipped(what, "the provider has no reads");
        }
        let (source, mut target) = (vec![7_u8; LEN], vec![0_u8; LEN]);
        let at = target.as_mut_ptr();
        // The owner opens the connection, so it knows whose connection it is.
        while reader.peers[1].expected == 0 {
            // SAFETY: rank 0 exists and is not rank 1; no bytes are read.
            let _ = unsafe { owner.send_short(0, &Header::default(), std::ptr::null(), 0) };
            owner.poll(&mut Nobody);
            reader.poll(&mut Nobody);
        }
        let exposure = expose(owner, source.as_ptr(), LEN).expect("exposed");
        // SAFETY: as many bytes are there until the read is over.
        let read = |reader: &mut Ofi| unsafe { pull(reader, 1, &exposure, 0, at, LEN) };
        // SAFETY: inside the target, which the other rank writes only between polls.
        let byte = |index: usize| unsafe { at.add(index).read_volatile() };
        let mut polls = 0;
        while byte(0) == 0 {
            assert_eq!(read(reader), Pulled::Later);
            reader.poll(&mut Nobody);
            owner.poll(&mut Nobody);
            polls += 1;
            assert!(polls < 5_000_000, "nothing is read");
        }
        owner.declare_failed(0, "a test says so");
        assert_eq!(owner.failures(), 1);
        // The program may free the source now.
        while reader.failures() == 0 && read(reader) == Pulled::Later {
            reader.poll(&mut Nobody);
            owner.poll(&mut Nobody);
            polls += 1;
            assert!(polls < 5_000_000, "the read does not end");
        }
        assert_eq!(byte(LEN - 1), 0, "all of it has been read");
        withdraw(owner, &exposure);
    }
}
