//! Makes duplicates in the background wait for a request before their first message.

use std::sync::{Arc, Mutex};

use super::lock;
use crate::device::Port;
use crate::error::{Error, Result};
use crate::request::Request;

/// A request that must complete first. If it fails, every duplicate that waits for it fails with
/// its error.
#[derive(Debug)]
pub(super) struct Gate(Mutex<State>);

#[derive(Debug)]
enum State {
    Waits(Request),
    Open,
    Closed(Error),
}

impl Gate {
    /// A gate that opens when `request` completes. The gate owns the request from now on.
    pub(super) fn new(request: Request) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Waits(request))))
    }

    /// Whether the gate is open.
    ///
    /// # Errors
    /// The request's error, on every call.
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
