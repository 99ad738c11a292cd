//! What a rank knows about the life of one other rank.

use std::net::SocketAddr;
use std::sync::Arc;

use super::FRESH;
use crate::shared::{Contacts, Shared};

/// Another rank. There is one of these for every rank of the job, so it is kept small.
#[derive(Clone, Debug)]
pub(crate) struct Other {
    /// The address its heartbeats come from.
    pub(crate) address: SocketAddr,
    /// The name of its host, for messages.
    pub(crate) host: Arc<str>,
    /// The number of its node.
    pub(super) node: u32,
    /// It is on another node: only heartbeats show its death.
    pub(crate) far: bool,
    /// The address of its endpoint, where the provider is one over IP.
    pub(super) endpoint: Option<SocketAddr>,
    /// The two ranks ask each other in every period.
    pub(super) contact: bool,
    /// Others of its node are lost, and it has given no sign since: it is asked in every period.
    pub(super) suspect: bool,
    pub(super) heard: bool,
    /// Periods without a sign, since it has been asked, or since silence means something.
    pub(super) missed: u32,
    /// Periods in which it was asked and had never given a sign.
    pub(super) unheard: u32,
    /// There was a connection to its endpoint when its silence was judged.
    pub(super) reached: bool,
    /// It has acknowledged that this rank leaves.
    pub(super) informed: bool,
    /// Another rank has reported its death.
    pub(super) reported: bool,
    /// Why the last datagram to it could not be sent.
    pub(super) error: Option<Box<str>>,
}

const _: () = assert!(size_of::<Option<Other>>() <= 120);

impl Other {
    pub(crate) fn new(address: SocketAddr, host: Arc<str>, node: u32, far: bool) -> Self {
        Self {
            address,
            host,
            node,
            far,
            endpoint: None,
            contact: false,
            suspect: false,
            heard: false,
            missed: 0,
            unheard: 0,
            reached: false,
            informed: false,
            reported: false,
            error: None,
        }
    }

    /// The same rank, whose endpoint has this address.
    pub(crate) fn at(mut self, endpoint: Option<SocketAddr>) -> Self {
        self.endpoint = endpoint;
        self
    }

    /// Whether it is asked in every period.
    pub(super) fn is_asked(&self) -> bool {
        self.contact || self.suspect
    }

    /// From now on it is asked. If it is asked already, its silence goes on.
    pub(super) fn begin_contact(&mut self) {
        if !self.is_asked() {
            self.missed = 0;
        }
        self.contact = true;
    }

    /// The same, until it gives a sign.
    pub(super) fn begin_suspicion(&mut self) {
        if !self.is_asked() {
            self.missed = 0;
        }
        self.suspect = true;
    }

    /// It has given a sign, or its silence means nothing.
    pub(super) fn end_silence(&mut self) {
        self.missed = 0;
        self.suspect = false;
    }

    /// It has given a sign a short while ago.
    pub(super) fn is_fresh(&self) -> bool {
        self.heard && self.missed <= FRESH
    }

    /// Packets come from it, but heartbeats never did: its silence means nothing.
    pub(super) fn is_mute(&self, rank: u32, shared: &Shared) -> bool {
        !self.heard && shared.contacts.with(rank) & Contacts::ARRIVED != 0
    }
}
