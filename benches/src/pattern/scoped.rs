//! Windows in scopes of the typed interface, as programs without `unsafe` have them: each window is
//! a scope, and each of its receives has a buffer of its own.

use std::ops::DerefMut;

use portolan::{Comm, Device, Level, Result};

use super::steps::{ANSWER, MESSAGE};
use crate::{Buffers, Role};

/// One way: a round is a window of messages that may overlap, and a short answer.
pub(super) fn one_way<L: Level, D: Device>(
    comm: &Comm<L, D>,
    role: Role,
    rounds: u64,
    messages: u32,
    buffers: &mut Buffers<impl DerefMut<Target = [u8]>>,
) -> Result<()> {
    let mut answer = [0_u8; 4];
    match role {
        Role::Starts { peer } => {
            for _ in 0..rounds {
                window(comm, None, Some(peer), messages, buffers)?;
                comm.recv_into(&mut answer, peer, ANSWER)?;
            }
        }
        Role::Answers { peer } => {
            for _ in 0..rounds {
                window(comm, Some(peer), None, messages, buffers)?;
                comm.send(&answer, peer, ANSWER)?;
            }
        }
        Role::Rests => {}
    }
    Ok(())
}

/// Both ways: a round is a window in each direction.
pub(super) fn both_ways<L: Level, D: Device>(
    comm: &Comm<L, D>,
    role: Role,
    rounds: u64,
    messages: u32,
    buffers: &mut Buffers<impl DerefMut<Target = [u8]>>,
) -> Result<()> {
    let peer = role.peer();
    if peer.is_none() {
        return Ok(());
    }
    (0..rounds).try_for_each(|_| window(comm, peer, peer, messages, buffers))
}

/// A window: a receive into each of the first receive buffers, a send from each of the first send
/// buffers, or both. The scope waits for all of them at its end. There are as many buffers as
/// messages, or more.
#[inline]
fn window<L: Level, D: Device>(
    comm: &Comm<L, D>,
    source: Option<u32>,
    dest: Option<u32>,
    messages: u32,
    buffers: &mut Buffers<impl DerefMut<Target = [u8]>>,
) -> Result<()> {
    let (send, receive) = buffers.each();
    comm.scope(|scope| {
        if let Some(source) = source {
            for buffer in receive.take(messages as usize) {
                scope.recv(buffer, source, MESSAGE)?;
            }
        }
        if let Some(dest) = dest {
            for buffer in send.take(messages as usize) {
                scope.send(buffer, dest, MESSAGE)?;
            }
        }
        Ok(())
    })
}
