//! What a rank notes of others that do not do what it does, for the error at the end.

use portolan_core::Device;

use super::Steps;
use crate::direct::agree::odd::Odd;
use crate::direct::agree::sort::Sort;
use crate::direct::boards::board::{Header, Kind};

impl<D: Device> Steps<'_, D> {
    /// Notes if a rank whose data this one takes has shown items of another sort.
    #[inline]
    pub(in crate::direct) fn see_sort(&mut self, rank: u32, header: Header) {
        self.see_sort_as(self.sorts.taken, rank, header);
    }

    /// The same, where what it takes is to be of another sort than what it shows.
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

    /// Notes what a rank is doing that this one does not expect.
    #[cold]
    pub(in crate::direct) fn note(&mut self, rank: u32, header: Header) {
        let len = match header.kind() {
            Some(Kind::ReduceInRounds) => header.data_len() as u64,
            _ => self.len_of(rank, header),
        };
        self.note_len(rank, header, len);
    }

    /// Notes that a rank names another root, where all go on as if nothing were wrong.
    #[cold]
    pub(in crate::direct) fn see_root(&mut self, rank: u32) {
        let header = Header::new(self.step, Kind::Bcast, self.sorts.shown, 0);
        let odd = Odd {
            other_root: true,
            ..self.odd(rank, header, 0)
        };
        self.odd.get_or_insert(odd);
    }

    /// Notes that a rank names another root.
    #[cold]
    pub(in crate::direct) fn note_root(&mut self, rank: u32) {
        if !self.disagree {
            self.odd = None;
            self.see_root(rank);
            self.set_disagree();
        }
    }

    /// Notes that a rank has another length for a block than this one.
    #[cold]
    pub(in crate::direct) fn note_len(&mut self, rank: u32, header: Header, len: u64) {
        if !self.disagree {
            self.odd = Some(self.odd(rank, header, len));
            self.set_disagree();
        }
    }

    fn set_disagree(&mut self) {
        self.disagree = true;
        // What this rank has shown may be what another sleeps for, that it did not know of.
        self.wake_all();
    }

    /// Whether what was seen first is about roots: here, or where another has seen it.
    pub(in crate::direct) fn about_roots(&self) -> bool {
        let about = |odd: Odd| odd.other_root || odd.hears_of_roots();
        self.odd.is_some_and(about)
    }

    /// Whether a rank was seen that does not agree with this one.
    #[inline]
    pub(in crate::direct) fn disagree(&self) -> bool {
        self.disagree
    }
}
