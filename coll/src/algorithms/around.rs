//! The blocks of consecutive ranks (modulo the number of ranks) as one message.

use crate::schedule::{Blocks, Builder, Span};

/// Sends the blocks of `count` consecutive ranks from rank `first` on, wrapping around, as one
/// message. Blocks that do not lie side by side are packed first.
pub(super) fn send_around(b: &mut Builder, to: u32, blocks: &Blocks, first: u32, count: u32) {
    match whole(blocks, first, count) {
        Ok(span) => b.send(to, span),
        Err(len) => {
            let parcel = b.scratch(len);
            pack(b, blocks, first, count, parcel);
            b.send(to, parcel);
        }
    }
}

/// Receives what [`send_around`] sends. The blocks are in their places after [`Incoming::unpack`],
/// which must come after the wait.
#[must_use]
pub(super) fn recv_around(
    b: &mut Builder,
    from: u32,
    blocks: &Blocks,
    first: u32,
    count: u32,
) -> Incoming {
    let parcel = match whole(blocks, first, count) {
        Ok(span) => {
            b.recv(from, span);
            None
        }
        Err(len) => {
            let parcel = b.scratch(len);
            b.recv(from, parcel);
            Some(parcel)
        }
    };
    Incoming {
        parcel,
        first,
        count,
    }
}

/// Blocks that are being received.
pub(super) struct Incoming {
    parcel: Option<Span>,
    first: u32,
    count: u32,
}

impl Incoming {
    /// Moves the blocks to their places, unless they were received there.
    pub(super) fn unpack(self, b: &mut Builder, blocks: &Blocks) {
        let Some(parcel) = self.parcel else { return };
        unpack(b, blocks, self.first, self.count, parcel);
    }
}

/// Copies the blocks to `parcel`, one after another.
pub(super) fn pack(b: &mut Builder, blocks: &Blocks, first: u32, count: u32, parcel: Span) {
    let mut at = 0;
    for piece in pieces(blocks, first, count) {
        b.copy(piece, parcel.items(at, piece.len()));
        at += piece.len();
    }
}

/// Copies the blocks from `parcel` to their places.
pub(super) fn unpack(b: &mut Builder, blocks: &Blocks, first: u32, count: u32, parcel: Span) {
    let mut at = 0;
    for piece in pieces(blocks, first, count) {
        b.copy(parcel.items(at, piece.len()), piece);
        at += piece.len();
    }
}

/// The blocks as one span if they lie side by side; otherwise the number of their bytes.
pub(super) fn whole(blocks: &Blocks, first: u32, count: u32) -> Result<Span, usize> {
    let mut pieces = pieces(blocks, first, count);
    let one = pieces
        .next()
        .unwrap_or_else(|| blocks.of(first).items(0, 0));
    match pieces.next() {
        None => Ok(one),
        Some(two) => Err(one.len() + two.len() + pieces.map(|piece| piece.len()).sum::<usize>()),
    }
}

/// The blocks in as few spans as possible, without empty ones. The number of spans may differ
/// between ranks, which may have their blocks in different places.
fn pieces(blocks: &Blocks, first: u32, count: u32) -> impl Iterator<Item = Span> {
    let before_end = count.min(blocks.ranks() - first);
    let runs = [(first, before_end), (0, count - before_end)];
    let of_run = |(first, count)| {
        let whole = blocks.range(first, count);
        let listed = if whole.is_some() { 0 } else { count };
        let one_by_one = (first..first + listed).map(|rank| blocks.of(rank));
        whole.into_iter().chain(one_by_one)
    };
    let spans = runs.into_iter().flat_map(of_run);
    let mut spans = spans.filter(|span| !span.is_empty());
    let mut next = None;
    std::iter::from_fn(move || {
        let mut one: Span = next.take().or_else(|| spans.next())?;
        for other in spans.by_ref() {
            match one.joined(&other) {
                Some(both) => one = both,
                None => {
                    next = Some(other);
                    break;
                }
            }
        }
        Some(one)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Base;

    #[test]
    fn consecutive_blocks_are_one_span_unless_they_go_around() {
        let whole = Span::bytes(Base::Recv, 0, 50);
        let blocks = Blocks::Equal { whole, ranks: 5 };
        let got: Vec<_> = pieces(&blocks, 1, 3).collect();
        assert_eq!(got, [Span::bytes(Base::Recv, 10, 30)]);
        let got: Vec<_> = pieces(&blocks, 3, 4).collect();
        let expected = [
            Span::bytes(Base::Recv, 30, 20),
            Span::bytes(Base::Recv, 0, 20),
        ];
        assert_eq!(got, expected);
        let empty = Span::bytes(Base::Recv, 0, 0);
        let listed = Blocks::Listed(vec![expected[0], empty, expected[1]]);
        let got: Vec<_> = pieces(&listed, 2, 3).collect();
        assert_eq!(got, [expected[1], expected[0]]);
        // Side by side, although each block is listed separately.
        let listed = Blocks::Listed((0..5).map(|rank| blocks.of(rank)).collect());
        let got: Vec<_> = pieces(&listed, 1, 3).collect();
        assert_eq!(got, [Span::bytes(Base::Recv, 10, 30)]);
        let got: Vec<_> = pieces(&listed, 3, 4).collect();
        assert_eq!(got, expected);
    }
}
