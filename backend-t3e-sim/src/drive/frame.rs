//! Messages between a PE's process and the process that emulates the machine. Each is a length and
//! a value.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest message, in bytes. A put of even half of that would not fit into memory twice.
const LONGEST: usize = 1 << 31;

/// Bytes that are read at once; those beyond a value are kept for the next one. The buffer grows
/// for longer values.
const USUAL: usize = 4096;

/// A stream of values. Each value is written in one piece; a short one is read by one system call.
#[derive(Debug)]
pub(crate) struct Framed<S> {
    stream: S,
    /// Bytes that have been read, up to `filled`.
    bytes: Vec<u8>,
    filled: usize,
}

impl<S> Framed<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            bytes: Vec::new(),
            filled: 0,
        }
    }

    pub(crate) fn stream(&mut self) -> &mut S {
        &mut self.stream
    }
}

impl<S: Write> Framed<S> {
    /// Writes a value.
    pub(crate) fn send(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut frame = postcard::to_extend(value, vec![0; 4]).map_err(io::Error::other)?;
        let len = frame.len() - 4;
        if len > LONGEST {
            let text = format!("a call of {len} bytes is longer than {LONGEST}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        frame[..4].copy_from_slice(&(len as u32).to_le_bytes());
        self.stream.write_all(&frame)
    }
}

impl<S: Read> Framed<S> {
    /// Reads a value. It is an error if the stream ends before or inside the value. A timeout loses
    /// nothing: the part of the value that has come is kept for the next call.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        loop {
            let whole = 4 + self.len()?;
            if let (true, Some(value)) = (self.filled >= 4, self.bytes[..self.filled].get(4..whole))
            {
                let value = postcard::from_bytes(value)
                    .map_err(|error| bad(format!("a message makes no sense: {error}")));
                self.forget(whole);
                return value;
            }
            // The buffer grows as bytes come, so a claimed length alone allocates nothing.
            let room = whole.clamp(USUAL, 2 * self.filled.max(USUAL));
            if self.bytes.len() < room {
                self.bytes.resize(room, 0);
            }
            match self.stream.read(&mut self.bytes[self.filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Length of the next value; 0 if its length has not come yet.
    fn len(&self) -> io::Result<usize> {
        let Some(len) = self.bytes[..self.filled].first_chunk() else {
            return Ok(0);
        };
        let len = u32::from_le_bytes(*len) as usize;
        match len <= LONGEST {
            true => Ok(len),
            false => Err(bad(format!("a message says that it has {len} bytes"))),
        }
    }

    /// Drops the first `count` bytes, and shrinks a buffer that has grown for a long value.
    fn forget(&mut self, count: usize) {
        self.bytes.copy_within(count..self.filled, 0);
        self.filled -= count;
        if self.bytes.len() > 16 * USUAL {
            self.bytes.truncate(self.filled.max(USUAL));
            self.bytes.shrink_to_fit();
        }
    }
}

fn bad(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Addr, Call};

    fn put(len: usize) -> Call {
        Call::Put {
            pe: 3,
            addr: Addr(8),
            data: vec![7; len],
            stride: None,
        }
    }

    fn written(calls: &[Call]) -> Vec<u8> {
        let mut wire = Framed::new(Vec::new());
        for call in calls {
            wire.send(call).unwrap();
        }
        wire.stream
    }

    #[test]
    fn values_survive_and_nonsense_is_refused() {
        let call = put(100_000);
        let wire = written(std::slice::from_ref(&call));
        assert_eq!(Framed::new(&wire[..]).receive::<Call>().unwrap(), call);
        let short = &wire[..wire.len() - 1];
        assert_eq!(
            Framed::new(short).receive::<Call>().unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
        for nonsense in [vec![0xff; 64], vec![2, 0, 0, 0, 0xff, 0xff]] {
            let error = Framed::new(&nonsense[..]).receive::<Call>().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }

    /// A stream that gives a few bytes at a time, and nothing at every other read.
    struct Dripping<'a>(&'a [u8], usize, bool);

    impl Read for Dripping<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.2 = !self.2;
            if self.2 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let len = self.1.min(into.len());
            self.0.read(&mut into[..len])
        }
    }

    #[test]
    fn nothing_is_lost_of_what_comes_in_parts() {
        let calls = [put(0), put(9), put(20_000), put(200_000), Call::Now, put(3)];
        let wire = written(&calls);
        for part in [1, 3, 5, 4096, 1 << 20] {
            let mut framed = Framed::new(Dripping(&wire, part, false));
            for call in &calls {
                let got = loop {
                    match framed.receive::<Call>() {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        other => break other.unwrap(),
                    }
                };
                assert_eq!(got, *call);
            }
            assert!(
                framed.bytes.len() <= 16 * USUAL,
                "the room of a long one stays"
            );
            assert_eq!(framed.filled, 0);
        }
    }
}
