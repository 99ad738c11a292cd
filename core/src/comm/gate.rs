//! What duplicates in the background wait for before their first message.

use std::sync::{Arc, Mutex};

use super::lock;
use crate::device::Port;
use crate::error::{Error, Result};
use crate::request::Request;

/// A request that has to be complete first. Its error is the error of all who wait for it.
#[derive(Debug)]
pub(super) struct Gate(Mutex<State>);

#[derive(Debug)]
enum State {
    Waits(Request),
    Open,
    Closed(Error),
}

impl Gate {
    /// One that opens when `request` is complete, which belongs to the gate from now on.
    pub(super) fn new(request: Request) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Waits(request))))
    }

    /// Whether it is open.
    ///
    /// # Errors
    /// That of the request, to everybody who asks.
    pub(super) fn is_open(&self, port: &mut dyn Port) -> Result<bool> {
        let mut state = lock(&self.0);
        if let State::Waits(request) = *state {
            match port.test(request) {
                Ok(None) => {}
                Ok(Some(_)) => *state = State::Open,
                Err(error) => *state = State::Closed(error),
            }
        }
        match &*state {
            State::Waits(_) => Ok(false),
            State::Open => Ok(true),
            State::Closed(error) => Err(error.clone()),
        }
    }
}
