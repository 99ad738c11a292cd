//! Receives and messages that wait while other messages pass.

use portolan::Level;
use portolan::{Comm, Device, Result, Source};

use crate::window::Window;
use crate::{Pattern, Role};

/// First tag of the waiting entries, above those of the patterns.
const WAITING: u32 = 1000;

/// The entries that a pattern wants to have waiting on both sides.
#[derive(Debug)]
pub(crate) struct Waiting<'a, L: Level, D: Device> {
    window: Window<'a, L, D>,
    /// The rank whose messages wait here unexpected, and how many there are.
    unexpected: Option<(u32, u32)>,
}

impl<'a, L: Level, D: Device> Waiting<'a, L, D> {
    /// Adds the entries. Collective.
    pub(crate) fn put(
        comm: &'a Comm<L, D>,
        pattern: Pattern,
        size: usize,
        send: &'a [u8],
        receive: &'a mut [u8],
    ) -> Result<Self> {
        let count = u32::try_from(size).unwrap_or(u32::MAX - WAITING);
        let tags = || (0..count).map(|at| WAITING + at);
        let mut waiting = Self {
            window: Window::new(comm, 0, [send], [receive]),
            unexpected: None,
        };
        let Some(peer) = Role::of(comm.rank(), comm.size()).peer() else {
            return Ok(waiting);
        };
        match pattern {
            Pattern::Depth => waiting.window.receive_each(peer, tags())?,
            Pattern::DepthWildcard => waiting.window.receive_each(Source::Any, tags())?,
            Pattern::DepthUnexpected => {
                waiting.window.send_each(peer, tags())?;
                waiting.unexpected = Some((peer, count));
            }
            _ => {}
        }
        Ok(waiting)
    }

    /// Removes the entries. Collective. Without this call, receives are cancelled when the value is
    /// dropped.
    pub(crate) fn take(mut self) -> Result<()> {
        if let Some((peer, count)) = self.unexpected {
            let tags = (0..count).map(|at| WAITING + at);
            self.window.receive_each(peer, tags)?;
            self.window.wait()?;
        }
        Ok(())
    }
}
