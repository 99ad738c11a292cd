//! The first round of an agreement on a context: makes sure that every rank has arrived, and that
//! all make the same call.
//!
//! This round carries no masks yet (see `context.rs`). Its words carry a mark of the call and the
//! mark's complement instead. If all marks are equal, the intersection leaves both words as they
//! were; if any two differ, every rank sees a changed word. Only then do more rounds, by the same
//! intersection, find out which rank differs and what it calls. So every rank reports the same
//! text, and the comparison costs no extra message when the calls agree.

use super::Communicator;
use super::context::{Offer, WORDS, lowest};
use super::create::SplitBy;
use super::topology::{Cartesian, Graph};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::group::Group;

/// How a communicator is made, with the arguments that must be the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call<'a> {
    Dup,
    Create,
    CreateGroup(&'a Group),
    Split,
    SplitBy(SplitBy),
    CartCreate(&'a Cartesian),
    CartSub(&'a [bool]),
    GraphCreate(&'a Graph),
    DistGraphCreateAdjacent,
    DistGraphCreate,
    /// The rank of the local leader.
    IntercommCreate(u32),
    Merge,
    /// A second context for a communicator that is already made.
    Across,
}

impl Call<'_> {
    /// A number that differs from call to call.
    fn mark(self) -> u64 {
        match self {
            Self::Dup => mix([0]),
            Self::Create => mix([1]),
            Self::CreateGroup(group) => {
                let members = group.iter().map(|process| u64::from(process.index()));
                mix(std::iter::once(2).chain(members))
            }
            Self::Split => mix([3]),
            Self::SplitBy(by) => mix([4, by as u64]),
            Self::CartCreate(grid) => {
                let dims = grid.dims().iter();
                let dims = dims.flat_map(|dim| [u64::from(dim.size), u64::from(dim.periodic)]);
                mix(std::iter::once(5).chain(dims))
            }
            Self::CartSub(keep) => {
                mix(std::iter::once(6).chain(keep.iter().map(|&keep| u64::from(keep))))
            }
            Self::GraphCreate(graph) => {
                let lists = (0..graph.size()).map(|rank| graph.neighbours(rank));
                let words = lists.flat_map(|list| {
                    let ranks = list.iter().map(|&rank| u64::from(rank));
                    std::iter::once(list.len() as u64).chain(ranks)
                });
                mix(std::iter::once(7).chain(words))
            }
            Self::DistGraphCreateAdjacent => mix([8]),
            Self::DistGraphCreate => mix([9]),
            Self::Merge => mix([10]),
            Self::Across => mix([11]),
            Self::IntercommCreate(leader) => mix([12, u64::from(leader)]),
        }
    }

    /// The call in words, with the arguments that its mark covers.
    fn text(self) -> String {
        match self {
            Self::Dup | Self::Across => "dup".to_owned(),
            Self::Create => "create".to_owned(),
            Self::CreateGroup(group) => {
                let members: Vec<_> = group.iter().map(|process| process.index()).collect();
                format!("create_group with world ranks {members:?}")
            }
            Self::Split => "split".to_owned(),
            Self::SplitBy(by) => format!("split_by with {by:?}"),
            Self::CartCreate(grid) => {
                let dims = grid.dims().iter().map(|dim| match dim.periodic {
                    true => format!("{} periodic", dim.size),
                    false => dim.size.to_string(),
                });
                let dims: Vec<_> = dims.collect();
                format!("cart_create with dimensions [{}]", dims.join(", "))
            }
            Self::CartSub(keep) => format!("sub of a grid with dimensions to keep {keep:?}"),
            Self::GraphCreate(graph) => {
                let lists = (0..graph.size()).map(|rank| graph.neighbours(rank));
                // More lists would not fit into a message.
                let lists: Vec<_> = lists.take(TEXT).collect();
                format!("graph_create with neighbours {lists:?}")
            }
            Self::DistGraphCreateAdjacent => "dist_graph_create_adjacent".to_owned(),
            Self::DistGraphCreate => "dist_graph_create".to_owned(),
            Self::IntercommCreate(leader) => format!("intercomm_create with leader {leader}"),
            Self::Merge => "merge".to_owned(),
        }
    }
}

/// Longest text of a call, in bytes. Longer ones are cut.
const TEXT: usize = WORDS * 8;

/// Hashes numbers into one: FNV-1a, a word at a time.
pub(super) fn mix(words: impl IntoIterator<Item = u64>) -> u64 {
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x0100_0000_01b3);
    words.into_iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

impl<D: Device> Communicator<D> {
    /// Returns when all ranks whose offers `and` intersects have arrived.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument), with the same text on all ranks, if they
    /// make different calls.
    pub(super) fn meet_by(
        &self,
        call: Call<'_>,
        mut and: impl FnMut(&mut Offer) -> Result<()>,
    ) -> Result<()> {
        let mark = call.mark();
        let mut offer = [0; WORDS + 1];
        [offer[0], offer[1]] = [mark, !mark];
        and(&mut offer)?;
        if offer[..2] == [mark, !mark] {
            return Ok(());
        }
        Err(self.apart(call, &mut and)?)
    }

    /// Like [`meet_by`](Self::meet_by), with all ranks of the communicator.
    pub(super) fn meet(&self, call: Call<'_>) -> Result<()> {
        self.meet_by(call, |offer| self.and_words(offer))
    }

    /// Finds out what the first rank calls, and the first rank that calls something else.
    #[cold]
    fn apart(
        &self,
        call: Call<'_>,
        and: &mut impl FnMut(&mut Offer) -> Result<()>,
    ) -> Result<Error> {
        let me = self.process().index();
        let first = lowest_of(Some(me), and)?;
        let [mark] = said_by((me == first).then(|| [call.mark()]), and)?;
        let other = lowest_of((call.mark() != mark).then_some(me), and)?;
        let mut text = |rank: u32| said_by((me == rank).then(|| bytes_of(&call.text())), and);
        let [theirs, others] = [text(first)?, text(other)?].map(|words| text_of(&words));
        let otherwise = if theirs == others { ", further on" } else { "" };
        let what = format!(
            "world rank {other} calls {others}, world rank {first} calls {theirs}{otherwise}"
        );
        let remedy = "make communicators in the same order on every rank, with the same arguments";
        Ok(self.error(ErrorKind::InvalidArgument, what, remedy))
    }
}

/// The lowest of the numbers that ranks contribute; at least one must contribute. Finds twelve bits
/// per round.
fn lowest_of(mine: Option<u32>, and: &mut impl FnMut(&mut Offer) -> Result<()>) -> Result<u32> {
    let (mut mine, mut found) = (mine, 0);
    for shift in [24, 12, 0] {
        let digit = |number: u32| number >> shift & 0xfff;
        // A cleared bit is a digit that some rank has.
        let mut offer = [u64::MAX; WORDS + 1];
        if let Some(digit) = mine.map(digit) {
            offer[digit as usize / 64] &= !(1 << (digit % 64));
        }
        and(&mut offer)?;
        let lowest = lowest(&offer.map(|word| !word)[..WORDS]).unwrap_or(0);
        mine = mine.filter(|&number| digit(number) == lowest);
        found |= lowest << shift;
    }
    Ok(found)
}

/// The words of the one rank that contributes any.
fn said_by<const N: usize>(
    mine: Option<[u64; N]>,
    and: &mut impl FnMut(&mut Offer) -> Result<()>,
) -> Result<[u64; N]> {
    let mut offer = [u64::MAX; WORDS + 1];
    if let Some(mine) = mine {
        offer[..N].copy_from_slice(&mine);
    }
    and(&mut offer)?;
    let mut said = [0; N];
    said.copy_from_slice(&offer[..N]);
    Ok(said)
}

/// The bytes of a text, cut to [`TEXT`].
fn bytes_of(text: &str) -> [u64; WORDS] {
    let mut bytes = [0; TEXT];
    let len = text.len().min(TEXT);
    bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
    let (words, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|at| u64::from_le_bytes(words[at]))
}

fn text_of(words: &[u64; WORDS]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_end_matches('\0');
    match text.len() < TEXT {
        true => text.to_owned(),
        false => format!("{text} …"),
    }
}
