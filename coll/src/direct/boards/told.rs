//! What ranks tell each other when they make their boards.

use portolan_core::device::RegionKey;

/// Words of a region's key.
const KEY: usize = size_of::<RegionKey>() / 8;

/// What one rank tells the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::direct) struct Told {
    /// The key of its board, if it has one.
    pub(in crate::direct) board: Option<RegionKey>,
    /// Facts about its edges ([`Edges::told`](crate::direct::boards::edges::Edges::told)).
    pub(in crate::direct) edges: [u64; 3],
    /// Whether messages serve its long vectors better than boards do, along edges.
    pub(in crate::direct) gains: bool,
    /// Whether it takes the lines of boards that it has read.
    pub(in crate::direct) takes: bool,
    /// Bytes of a chunk. Ranks may know different things about their processors.
    pub(in crate::direct) chunk: usize,
}

impl Told {
    /// Words in which it is told.
    pub(in crate::direct) const WORDS: usize = 1 + KEY + 6;

    pub(in crate::direct) fn to_words(self) -> [u64; Self::WORDS] {
        let mut words = [0; Self::WORDS];
        let (board, rest) = words.split_at_mut(1 + KEY);
        if let Some(RegionKey(key)) = self.board {
            board[0] = 1;
            let (key, _) = key.as_chunks::<8>();
            for (word, bytes) in board[1..].iter_mut().zip(key) {
                *word = u64::from_le_bytes(*bytes);
            }
        }
        rest[..3].copy_from_slice(&self.edges);
        rest[3..].copy_from_slice(&[self.gains.into(), self.takes.into(), self.chunk as u64]);
        words
    }

    pub(in crate::direct) fn from_words(words: &[u64; Self::WORDS]) -> Self {
        let (board, rest) = words.split_at(1 + KEY);
        let mut key = RegionKey([0; 8 * KEY]);
        let (chunks, _) = key.0.as_chunks_mut::<8>();
        for (bytes, word) in chunks.iter_mut().zip(&board[1..]) {
            *bytes = word.to_le_bytes();
        }
        Self {
            board: (board[0] == 1).then_some(key),
            edges: [rest[0], rest[1], rest[2]],
            gains: rest[3] == 1,
            takes: rest[4] == 1,
            chunk: rest[5] as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_arrives() {
        let key = RegionKey(std::array::from_fn(|at| at as u8 + 1));
        for told in [
            Told {
                board: Some(key),
                edges: [1, u64::MAX, 3],
                gains: true,
                takes: false,
                chunk: 68 << 10,
            },
            Told {
                board: None,
                edges: [0; 3],
                gains: false,
                takes: true,
                chunk: 1,
            },
        ] {
            assert_eq!(Told::from_words(&told.to_words()), told);
        }
    }
}
