//! The memory on which a schedule runs.

use portolan_core::comm::NoUnwind;
use portolan_core::{Error, ErrorKind, Result};
use portolan_datatype::MsgRep;

use crate::compare::{self, STAMP};
use crate::exact::{Convert, convert};
use crate::schedule::{Base, Compare, Schedule, Span};

/// Where a schedule's memories begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    bases: [*mut u8; 3],
}

// SAFETY: this is only a description; every access through it is unsafe and justified where it
// happens.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// The caller's send and receive buffers, and scratch memory.
    pub(crate) fn new([send, recv]: [*mut u8; 2], scratch: *mut u8) -> Self {
        Self {
            bases: [send, recv, scratch],
        }
    }

    /// The address of displacement 0 of a span's first item.
    #[inline]
    pub(crate) fn at(&self, span: Span) -> *mut u8 {
        const _: () = assert!(Base::Send as usize == 0 && Base::Recv as usize == 1);
        self.bases[span.base as usize].wrapping_offset(span.offset)
    }

    /// Copies the packed stream of `from` to `to`.
    ///
    /// # Safety
    /// Both lie within the memories, hold as many bytes, and do not overlap.
    pub(crate) unsafe fn copy(&self, schedule: &Schedule, from: Span, to: Span) {
        let (source, target) = (self.at(from), self.at(to));
        let (from_layout, to_layout) = (schedule.layout(from.layout), schedule.layout(to.layout));
        let rep = MsgRep::Native;
        let len = to.len();
        // SAFETY: from the caller, for all of it. If the items of one layout are their own packed
        // stream, that span is read or written directly as the stream.
        unsafe {
            if from_layout.is_contiguous() {
                to_layout.unpack_range(target, to.count, 0, source, len, rep);
            } else if to_layout.is_contiguous() {
                from_layout.pack_range(source, from.count, 0, target, len, rep);
            } else {
                let mut part = [0u8; PART];
                for at in (0..len).step_by(PART) {
                    let now = PART.min(len - at);
                    from_layout.pack_range(source, from.count, at, part.as_mut_ptr(), now, rep);
                    to_layout.unpack_range(target, to.count, at, part.as_ptr(), now, rep);
                }
            }
        }
    }

    /// Converts numbers to exact sums, or back.
    ///
    /// # Safety
    /// Both lie within the memories and do not overlap; there is room for one sum of the right kind
    /// per number.
    pub(crate) unsafe fn convert(&self, schedule: &Schedule, how: Convert, from: Span, to: Span) {
        let numbers = match how {
            Convert::Widen(_) => schedule.layout(from.layout),
            Convert::Round(_) => schedule.layout(to.layout),
        };
        // SAFETY: from the caller.
        unsafe { convert(how, numbers, to.count, self.at(from), self.at(to)) };
    }

    /// `right = left op right`.
    ///
    /// # Errors
    /// If the operator does not know the layout.
    ///
    /// # Safety
    /// Both lie within the memories, do not overlap, and hold valid values for the operator.
    pub(crate) unsafe fn combine(
        &self,
        schedule: &Schedule,
        left: Span,
        right: Span,
    ) -> Result<()> {
        let layout = schedule.layout(right.layout);
        let Some(op) = &schedule.op else {
            return Err(Error::new(
                ErrorKind::Internal,
                "a reduction without an operator",
            ));
        };
        // Inside progress, a panic in a user-defined operator would come out of some other call,
        // and leave ranks and buffers waiting for this operation.
        let guard = NoUnwind::new("an operator of a collective operation");
        // SAFETY: from the caller.
        let done = unsafe { op.apply(layout, right.count, self.at(left), self.at(right)) };
        guard.done();
        done.map_err(|error| Error::new(ErrorKind::InvalidLayout, error.to_string()))
    }
}

impl Memory {
    /// Takes a step of the debug mode's comparison.
    ///
    /// # Errors
    /// If ranks do not agree.
    ///
    /// # Safety
    /// The step's spans lie within the memories, and nothing else uses them.
    #[cold]
    pub(crate) unsafe fn compare(&self, schedule: &Schedule, step: Compare) -> Result<()> {
        let stamp = schedule.stamp.as_deref().unwrap_or(&[0; STAMP]);
        // SAFETY: from the caller.
        unsafe { compare::step(step, stamp, |span| self.at(span)) }
    }
}

/// Bytes of the intermediate buffer for a copy between two layouts with gaps.
const PART: usize = 4096;
