//! Messages between a PE's process and the one that emulates the machine: a length and a value.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest message: a put of half of that is nothing that fits into memory twice.
const LONGEST: usize = 1 << 31;

/// Writes a value, in one piece.
pub(crate) fn send(stream: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut frame = postcard::to_extend(value, vec![0; 4]).map_err(io::Error::other)?;
    let len = frame.len() - 4;
    if len > LONGEST {
        let text = format!("a call of {len} bytes is longer than {LONGEST}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    frame[..4].copy_from_slice(&(len as u32).to_le_bytes());
    stream.write_all(&frame)
}

/// Reads a value; the end of the stream before or inside of it is an error.
pub(crate) fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<T> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    receive_rest(stream, len)
}

/// Reads a value whose length has been read.
pub(crate) fn receive_rest<T: DeserializeOwned>(
    stream: &mut impl Read,
    len: [u8; 4],
) -> io::Result<T> {
    let bad = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    let len = u32::from_le_bytes(len) as usize;
    if len > LONGEST {
        return Err(bad(format!("a message says that it has {len} bytes")));
    }
    // Grows as bytes come: a length alone allocates nothing.
    let mut frame = Vec::new();
    stream.take(len as u64).read_to_end(&mut frame)?;
    if frame.len() < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    postcard::from_bytes(&frame).map_err(|error| bad(format!("a message makes no sense: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Addr, Call};

    #[test]
    fn values_survive_and_nonsense_is_refused() {
        let call = Call::Put {
            pe: 3,
            addr: Addr(8),
            data: vec![7; 100_000],
            stride: None,
        };
        let mut wire = Vec::new();
        send(&mut wire, &call).unwrap();
        assert_eq!(receive::<Call>(&mut &wire[..]).unwrap(), call);
        let short = &wire[..wire.len() - 1];
        assert_eq!(
            receive::<Call>(&mut &short[..]).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
        for nonsense in [vec![0xff; 64], vec![2, 0, 0, 0, 0xff, 0xff]] {
            let error = receive::<Call>(&mut &nonsense[..]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
