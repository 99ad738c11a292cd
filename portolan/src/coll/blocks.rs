//! Data of which every rank has its own block: lengths and places, checked against the buffer.

use portolan_coll::{BlocksArg, Many};
use portolan_core::{Device, Error, ErrorKind, Result, TypedBuf};

use crate::Level;
use crate::comm::Comm;

/// How a buffer is cut into blocks, one per rank or neighbour.
#[derive(Clone, Debug, Default)]
pub(super) enum Blocks {
    /// Equally long ones, side by side.
    #[default]
    Equal,
    /// The v forms.
    Listed {
        counts: Vec<usize>,
        /// In items. What does not fit an `isize` is cut: no buffer reaches there.
        displacements: Vec<isize>,
    },
}

/// A buffer of an operation, as messages to people name it.
pub(super) struct Which<'a, L: Level, D: Device> {
    pub(super) comm: &'a Comm<L, D>,
    pub(super) operation: &'static str,
    pub(super) buffer: &'static str,
    /// Number of blocks, and of what there is one for each.
    pub(super) blocks: (usize, &'static str),
}

impl Blocks {
    /// Side by side.
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

    /// Anywhere.
    pub(super) fn at(counts: &[usize], displacements: &[usize]) -> Self {
        Self::Listed {
            counts: counts.to_vec(),
            displacements: displacements.iter().copied().map(signed).collect(),
        }
    }

    /// The blocks of `all`, each of which lies within it.
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

    /// Items of each of the equal blocks.
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

/// The buffer that is sent from, which an operation between two groups has apart.
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
