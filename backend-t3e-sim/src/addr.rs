//! The address of the machine of a job of processes: it is in the process of PE 0, behind a socket.
//!
//! The address is the name of an abstract socket, for which there is no file, and a secret, which
//! is needed because other users can see the name. Ranks in another network namespace cannot reach
//! it.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use serde::{Deserialize, Serialize};

use crate::drive::frame::Framed;

/// The address under which PEs reach their machine. Ranks exchange it as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    name: String,
    secret: u64,
}

/// The first message of a PE.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) pe: u32,
    pub(crate) secret: u64,
}

/// The PE number in a message that says that the job will not start.
pub(crate) const GIVE_UP: u32 = u32::MAX;

impl Address {
    /// Makes an address that no other machine has.
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

    /// The secret that a PE must send when it connects.
    pub(crate) fn secret(&self) -> u64 {
        self.secret
    }

    pub(crate) fn listen(&self) -> io::Result<UnixListener> {
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&self.name)?)
    }

    /// Connects, and sends the secret and the number of the PE.
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
