//! A transport whose peer is a script, and a bell on which no thread really sleeps.

use super::*;

/// A transport whose peer is a script: the test hands in packets, and sees what the engine sends.
pub(super) struct Scripted {
    pub(super) arriving: VecDeque<(u32, Header, Vec<u8>)>,
    pub(super) sent: Vec<Header>,
    /// The payloads behind these headers.
    pub(super) payloads: Vec<Vec<u8>>,
    pub(super) failed: Option<String>,
    /// Whether the peer accepts no more packets, and why, once the transport gives a reason. This
    /// does not count as a failure.
    pub(super) gone: bool,
    pub(super) why_gone: Option<String>,
    /// Whether the peer has left in good order.
    pub(super) left: bool,
    /// A packet that arrives with every poll, without end.
    pub(super) busy: Option<(u32, Header)>,
    pub(super) ranks: u32,
    pub(super) full: bool,
    /// This many further packets find no room.
    pub(super) refuses: u32,
    /// Whether a poll that delivers something makes room.
    pub(super) drains: bool,
    /// Packets that found no room.
    pub(super) refused: usize,
    /// Lengths that were pulled; `None` if nothing can be pulled.
    pub(super) pulled: Option<Vec<usize>>,
    pub(super) pulls: Pulls,
    /// Whether pulls are refused.
    pub(super) refuses_pulls: bool,
    /// Peers that are absent, whatever `pulls` says.
    pub(super) absent: Vec<u32>,
    /// Whether a peer that waits for a message in a call sleeps there.
    pub(super) sleeps: bool,
    /// Whether long messages are exposed.
    pub(super) exposes: bool,
    /// How often any peer has looked in passing, and how often this rank has.
    pub(super) looks: u32,
    pub(super) looked: u32,
    pub(super) bell: Arc<NoBell>,
    /// Longest bundle.
    pub(super) bundle: usize,
    /// Whether a rank may sleep.
    pub(super) has_bell: bool,
    /// Whether the transport claims that its bell rings when there is room again.
    pub(super) rings_for_room: bool,
}

/// A bell on which no thread really sleeps.
#[derive(Default)]
pub(super) struct NoBell {
    pub(super) word: AtomicU32,
    /// Sleeps of less than a millisecond, and longer ones. (A wait that needs peers looks four
    /// times a second whether they have left.)
    pub(super) naps: AtomicU32,
    pub(super) long: AtomicU32,
}

impl Bell for NoBell {
    fn seen(&self) -> u32 {
        self.word.load(Ordering::Relaxed)
    }
    fn sleep(&self, _seen: u32, limit: Option<Duration>) {
        let is_nap = limit.is_some_and(|limit| limit < Duration::from_millis(1));
        let sleeps = if is_nap { &self.naps } else { &self.long };
        sleeps.fetch_add(1, Ordering::Relaxed);
    }
    fn ring(&self) {
        self.word.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: packets are vectors of this process, and nothing that is lent is used.
unsafe impl Transport for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }
    fn caps(&self) -> TransportCaps {
        let pulls = match self.pulled {
            Some(_) => TransportCaps::PULL,
            None => TransportCaps::empty(),
        };
        match self.has_bell {
            true => pulls | TransportCaps::SLEEP,
            false => pulls,
        }
    }
    fn pulls(&self, peer: u32, _: &Exposure, _: usize, waited: bool) -> Pulls {
        match waited && self.sleeps || self.absent.contains(&peer) {
            true => Pulls::Absent,
            false => self.pulls,
        }
    }
    fn note_look(&mut self) {
        self.looked += 1;
    }
    fn looks(&self, _: u32) -> u32 {
        self.looks
    }
    unsafe fn expose(&mut self, _: *const u8, _: usize) -> Option<Exposure> {
        self.exposes.then_some(Exposure([0; 32]))
    }
    unsafe fn pull(&mut self, _: u32, _: &Exposure, _: u64, target: *mut u8, len: usize) -> Pulled {
        if self.refuses_pulls {
            return Pulled::Stream;
        }
        // SAFETY: the caller's promise.
        unsafe { target.write_bytes(1, len) };
        self.pulled.get_or_insert_default().push(len);
        Pulled::Done
    }
    fn limits(&self) -> Limits {
        Limits {
            short: 192,
            bulk: 1024,
            eager: 512,
            piece: 256,
            bundle: self.bundle,
            grows: 0,
        }
    }
    fn rank(&self) -> u32 {
        0
    }
    fn size(&self) -> u32 {
        self.ranks
    }
    fn node_of(&self, _peer: u32) -> u32 {
        0
    }
    fn node_name(&self) -> String {
        "here".to_owned()
    }
    unsafe fn send_short(&mut self, _: u32, header: &Header, data: *const u8, len: usize) -> Sent {
        if self.gone {
            return Sent::Gone;
        }
        if self.full || self.refuses() {
            return Sent::Full;
        }
        self.sent.push(*header);
        // SAFETY: the caller's promise.
        let bytes = unsafe { Payload::new(data, len) };
        self.payloads.push(bytes.to_vec());
        Sent::Done
    }
    unsafe fn send_bulk<F: FnOnce(*mut u8)>(
        &mut self,
        _: u32,
        header: &Header,
        len: usize,
        fill: F,
    ) -> Sent {
        if self.gone {
            return Sent::Gone;
        }
        if self.full || self.refuses() {
            self.refused += 1;
            return Sent::Full;
        }
        let mut bytes = vec![0_u8; len];
        fill(bytes.as_mut_ptr());
        self.sent.push(*header);
        self.payloads.push(bytes);
        Sent::Done
    }
    fn has_room(&mut self, _: u32, _: usize, _: usize) -> bool {
        !self.full
    }
    fn poll<S: Sink>(&mut self, sink: &mut S) -> usize {
        let mut packets = 0;
        while sink.accepts(1)
            && let Some((peer, header, bytes)) = self.arriving.pop_front()
        {
            sink.packet(peer, &header, Payload::from_slice(&bytes));
            packets += 1;
        }
        if let Some((peer, header)) = self.busy
            && sink.accepts(peer)
        {
            sink.packet(peer, &header, Payload::from_slice(&[]));
            packets += 1;
        }
        self.full &= !(self.drains && packets > 0);
        packets
    }
    fn bell(&self) -> Arc<dyn Bell> {
        Arc::clone(&self.bell) as Arc<dyn Bell>
    }
    fn arm(&mut self) {}
    fn rings_for_room(&self) -> bool {
        self.rings_for_room
    }
    fn disarm(&mut self) {}
    fn failures(&self) -> u32 {
        u32::from(self.failed.is_some())
    }
    fn failure_of(&self, peer: u32) -> Option<String> {
        let why = self.failed.clone().or_else(|| self.why_gone.clone());
        why.filter(|_| peer == 1)
    }
    fn has_left(&mut self, peer: u32) -> bool {
        self.left && peer == 1
    }
    fn declare_failed(&mut self, _peer: u32, why: &str) {
        self.failed = Some(why.to_owned());
    }
}

impl Scripted {
    fn refuses(&mut self) -> bool {
        let refuses = self.refuses > 0;
        self.refuses = self.refuses.saturating_sub(1);
        refuses
    }
}

/// A script without any peculiarity.
pub(super) fn scripted() -> Scripted {
    Scripted {
        arriving: VecDeque::new(),
        sent: Vec::new(),
        payloads: Vec::new(),
        failed: None,
        gone: false,
        why_gone: None,
        left: false,
        busy: None,
        ranks: 2,
        full: false,
        refuses: 0,
        drains: false,
        refused: 0,
        pulled: None,
        pulls: Pulls::Whole,
        refuses_pulls: false,
        absent: Vec::new(),
        sleeps: false,
        exposes: false,
        looks: 0,
        looked: 0,
        bell: Arc::default(),
        bundle: 0,
        has_bell: false,
        rings_for_room: false,
    }
}
