//! What a rank records about others that do something else, for the error at the end.

use portolan_core::Device;

use super::Steps;
use crate::direct::agree::odd::Odd;
use crate::direct::agree::sort::Sort;
use crate::direct::boards::board::{Header, Kind};

impl<D: Device> Steps<'_, D> {
    /// Records if a rank whose data this rank takes has shown items of another sort.
    #[inline]
    pub(in crate::direct) fn see_sort(&mut self, rank: u32, header: Header) {
        self.see_sort_as(self.sorts.taken, rank, header);
    }

    /// The same, if the items to take may be of another sort than those that this rank shows.
    #[inline]
    pub(in crate::direct) fn see_sort_as(&mut self, sort: Sort, rank: u32, header: Header) {
        if !sort.matches(header.sort()) {
            self.note_sort(sort, rank, header);
        }
    }

    #[cold]
    fn note_sort(&mut self, sort: Sort, rank: u32, header: Header) {
        let len = self.len_of(rank, header);
        let odd = Odd {
            sort,
            ..self.odd(rank, header, len)
        };
        self.odd.get_or_insert(odd);
    }

    fn odd(&self, rank: u32, header: Header, len: u64) -> Odd {
        Odd {
            rank,
            header,
            len,
            sort: self.sorts.taken,
            awaits: false,
            other_root: false,
        }
    }

    /// Records what a rank is doing if this rank did not expect it.
    #[cold]
    pub(in crate::direct) fn note(&mut self, rank: u32, header: Header) {
        let len = match header.kind() {
            Some(Kind::ReduceInRounds) => header.data_len() as u64,
            _ => self.len_of(rank, header),
        };
        self.note_len(rank, header, len);
    }

    /// Records that a rank names another root, in an operation in which all ranks nevertheless go
    /// on.
    #[cold]
    pub(in crate::direct) fn see_root(&mut self, rank: u32) {
        let header = Header::new(self.step, Kind::Bcast, self.sorts.shown, 0);
        let odd = Odd {
            other_root: true,
            ..self.odd(rank, header, 0)
        };
        self.odd.get_or_insert(odd);
    }

    /// Records that a rank names another root.
    #[cold]
    pub(in crate::direct) fn note_root(&mut self, rank: u32) {
        if !self.disagree {
            self.odd = None;
            self.see_root(rank);
            self.set_disagree();
        }
    }

    /// Records that a rank has another length for a block than this rank.
    #[cold]
    pub(in crate::direct) fn note_len(&mut self, rank: u32, header: Header, len: u64) {
        if !self.disagree {
            self.odd = Some(self.odd(rank, header, len));
            self.set_disagree();
        }
    }

    fn set_disagree(&mut self) {
        self.disagree = true;
        // A rank may be asleep for a cell that this rank has posted without knowing that it was
        // awaited.
        self.wake_all();
    }

    /// Whether the disagreement seen first is about roots, seen by this rank or reported by
    /// another.
    pub(in crate::direct) fn about_roots(&self) -> bool {
        let about = |odd: Odd| odd.other_root || odd.hears_of_roots();
        self.odd.is_some_and(about)
    }

    /// Whether this rank has seen a rank that does not agree with it.
    #[inline]
    pub(in crate::direct) fn disagree(&self) -> bool {
        self.disagree
    }
}
