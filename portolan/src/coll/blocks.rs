//! Buffers with a block per rank: lengths and places of the blocks, checked against the buffer.

use portolan_coll::{BlocksArg, Many};
use portolan_core::{Device, Error, ErrorKind, Result, TypedBuf};

use crate::Level;
use crate::comm::Comm;

/// How a buffer is cut into blocks, one per rank or neighbour.
#[derive(Clone, Debug, Default)]
pub(super) enum Blocks {
    /// Equally long blocks, side by side.
    #[default]
    Equal,
    /// Blocks with counts and displacements of their own (the v forms).
    Listed {
        counts: Vec<usize>,
        /// In items. Displacements that do not fit an `isize` are clamped: no buffer reaches that
        /// far.
        displacements: Vec<isize>,
    },
}

/// A buffer of an operation, as error messages name it.
pub(super) struct Which<'a, L: Level, D: Device> {
    pub(super) comm: &'a Comm<L, D>,
    pub(super) operation: &'static str,
    pub(super) buffer: &'static str,
    /// Number of blocks, and what each block belongs to.
    pub(super) blocks: (usize, &'static str),
}

impl Blocks {
    /// Blocks side by side.
    pub(super) fn packed(counts: &[usize]) -> Self {
        let mut next = 0usize;
        let displacements = counts.iter().map(|&count| {
            let at = next;
            next = next.saturating_add(count);
            signed(at)
        });
        Self::Listed {
            displacements: displacements.collect(),
            counts: counts.to_vec(),
        }
    }

    /// Blocks at any places.
    pub(super) fn at(counts: &[usize], displacements: &[usize]) -> Self {
        Self::Listed {
            counts: counts.to_vec(),
            displacements: displacements.iter().copied().map(signed).collect(),
        }
    }

    /// The blocks of `all`, after checking that each lies within it.
    #[inline(always)]
    pub(super) fn of<'a, L: Level, D: Device>(
        &'a self,
        which: Which<'_, L, D>,
        all: TypedBuf<'a>,
    ) -> Result<Many<'a>> {
        match self {
            Self::Equal => {
                let count = which.each(&all)?;
                Ok(Many::Equal(TypedBuf { count, ..all }))
            }
            Self::Listed {
                counts,
                displacements,
            } => {
                which.fit(counts, displacements, all.count)?;
                Ok(Many::Blocks(BlocksArg {
                    ptr: all.ptr,
                    counts,
                    displacements,
                    layout: all.layout,
                }))
            }
        }
    }
}

fn signed(displacement: usize) -> isize {
    isize::try_from(displacement).unwrap_or(isize::MAX)
}

impl<'a, L: Level, D: Device> Which<'a, L, D> {
    /// One block per rank.
    pub(super) fn by_rank(
        comm: &'a Comm<L, D>,
        operation: &'static str,
        buffer: &'static str,
    ) -> Self {
        Self {
            comm,
            operation,
            buffer,
            blocks: (comm.size() as usize, "rank"),
        }
    }

    /// Number of items in each of the equal blocks.
    #[inline]
    pub(super) fn each(&self, all: &TypedBuf<'_>) -> Result<usize> {
        let (blocks, of) = self.blocks;
        if blocks == 0 {
            return Ok(0);
        }
        if all.count.is_multiple_of(blocks) {
            return Ok(all.count / blocks);
        }
        let what = format!(
            "{} of {} items cannot be cut into {blocks} equal blocks, one per {of}",
            self.buffer, all.count
        );
        Err(self.error(
            ErrorKind::InvalidCount,
            &what,
            "make it longer, or give counts",
        ))
    }

    fn fit(&self, counts: &[usize], displacements: &[isize], len: usize) -> Result<()> {
        let (blocks, of) = self.blocks;
        if (counts.len(), displacements.len()) != (blocks, blocks) {
            let what = format!(
                "{} count(s) and {} displacement(s) of {} for {blocks} {of}(s)",
                counts.len(),
                displacements.len(),
                self.buffer
            );
            let remedy = format!("give one of each for every {of}");
            return Err(self.error(ErrorKind::InvalidCount, &what, &remedy));
        }
        for (index, (&count, &at)) in counts.iter().zip(displacements).enumerate() {
            let end = usize::try_from(at)
                .ok()
                .and_then(|at| at.checked_add(count));
            if count != 0 && end.is_none_or(|end| end > len) {
                let what = format!(
                    "the block of {of} {index}, {count} item(s) from item {at} on, runs out of {}, \
                     which has {len}",
                    self.buffer
                );
                let remedy = "give counts and displacements within the buffer, in items";
                return Err(self.error(ErrorKind::InvalidCount, &what, remedy));
            }
        }
        Ok(())
    }

    #[cold]
    pub(super) fn error(&self, kind: ErrorKind, what: &str, remedy: &str) -> Error {
        wrong(self.comm, self.operation, kind, what, remedy)
    }
}

/// An error in an operation's arguments.
#[cold]
pub(super) fn wrong<L: Level, D: Device>(
    comm: &Comm<L, D>,
    operation: &str,
    kind: ErrorKind,
    what: &str,
    remedy: &str,
) -> Error {
    comm.inner.error(
        kind,
        format!("{operation} on rank {}: {what}", comm.rank()),
        remedy,
    )
}

/// The send buffer. An operation between two groups always has one apart, so its absence is an
/// error.
pub(super) fn not_in_place<'a, L: Level, D: Device>(
    comm: &Comm<L, D>,
    operation: &'static str,
    send: Option<TypedBuf<'a>>,
) -> Result<TypedBuf<'a>> {
    send.ok_or_else(|| {
        let what = "there is no form in place between two groups";
        let remedy = "give one buffer to send from and one to receive into";
        wrong(
            comm,
            operation,
            ErrorKind::InvalidCommunicator,
            what,
            remedy,
        )
    })
}
