//! Where the machine of a job of processes is: in the process of PE 0, behind a socket.
//!
//! A name in the kernel's table of abstract sockets, which no file stands for, and a secret: other
//! users can see the name. Ranks that do not share the network namespace cannot reach it.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use serde::{Deserialize, Serialize};

use crate::drive::frame::Framed;

/// How a PE reaches its machine; text that ranks give each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    name: String,
    secret: u64,
}

/// What a PE says first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) pe: u32,
    pub(crate) secret: u64,
}

/// The PE that calls in order to say that the job is not going to start.
pub(crate) const GIVE_UP: u32 = u32::MAX;

impl Address {
    /// One that nobody else has.
    pub(crate) fn new() -> Self {
        let random = || RandomState::new().hash_one(0);
        Self {
            name: format!("portolan-t3e-{}-{:016x}", std::process::id(), random()),
            secret: random(),
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (name, secret) = text.split_once(' ')?;
        Some(Self {
            name: name.to_owned(),
            secret: u64::from_str_radix(secret, 16).ok()?,
        })
    }

    /// What whoever connects has to know.
    pub(crate) fn secret(&self) -> u64 {
        self.secret
    }

    pub(crate) fn listen(&self) -> io::Result<UnixListener> {
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&self.name)?)
    }

    /// Connects, and says who calls.
    pub(crate) fn greet(&self, pe: u32) -> io::Result<Framed<UnixStream>> {
        let name = SocketAddr::from_abstract_name(&self.name)?;
        let mut stream = Framed::new(UnixStream::connect_addr(&name)?);
        let secret = self.secret;
        stream.send(&Hello { pe, secret })?;
        Ok(stream)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:016x}", self.name, self.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_journey_and_differ() {
        let address = Address::new();
        assert_eq!(Address::parse(&address.to_string()), Some(address.clone()));
        assert_ne!(Address::new(), address);
        for nonsense in ["", "name", "name xyz"] {
            assert_eq!(Address::parse(nonsense), None);
        }
    }
}
