//! Atomic operations by the provider.

use std::ffi::c_void;

use libfabric_sys::{
    FI_ATOMIC_READ, FI_ATOMIC_WRITE, FI_BAND, FI_BOR, FI_BXOR, FI_CSWAP, FI_MSWAP, FI_SUM,
    FI_UINT32, FI_UINT64, fi_addr_t, fi_compare_atomic, fi_compare_atomicvalid, fi_datatype,
    fi_fetch_atomic, fi_fetch_atomicvalid, fi_op, fid_ep,
};
use portolan_core::transport::remote::{AtomicOp, AtomicWidth};

use crate::endpoint::objects::Fid;

/// Operations that return the former value, and those that also compare.
const FETCHING: [fi_op; 6] = [
    FI_ATOMIC_READ,
    FI_ATOMIC_WRITE,
    FI_SUM,
    FI_BAND,
    FI_BOR,
    FI_BXOR,
];
const COMPARING: [fi_op; 2] = [FI_CSWAP, FI_MSWAP];

/// Whether the provider has every operation in both widths. If it had only some, these would meet
/// on the same integer with others that go by packets.
pub(crate) fn complete(ep: &Fid<fid_ep>) -> bool {
    let mut count = 0_usize;
    let widths = [FI_UINT32, FI_UINT64];
    widths.into_iter().all(|width| {
        let mut fetching = |op| {
            // SAFETY: an open endpoint, room for the count.
            unsafe { fi_fetch_atomicvalid(ep.get(), width, op, &raw mut count) == 0 }
        };
        let all = FETCHING.into_iter().all(&mut fetching);
        let mut comparing = |op| {
            // SAFETY: as above.
            unsafe { fi_compare_atomicvalid(ep.get(), width, op, &raw mut count) == 0 }
        };
        all && COMPARING.into_iter().all(&mut comparing)
    })
}

/// The three words of an operation: operand, comparand, former value. They lie in memory of the
/// transport until the operation is over, however it ends.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Words {
    operand: u64,
    compare: u64,
    former: u64,
}

impl Words {
    /// The words of an operation. A 32-bit integer lies in the first half of its word.
    pub(crate) fn of(width: AtomicWidth, op: AtomicOp) -> Option<(fi_op, Self)> {
        let (code, operand, compare) = match op {
            AtomicOp::Load => (FI_ATOMIC_READ, 0, 0),
            AtomicOp::Swap(value) => (FI_ATOMIC_WRITE, value, 0),
            AtomicOp::CompareSwap { expected, new } => (FI_CSWAP, new, expected),
            AtomicOp::MaskedSwap { mask, value } => (FI_MSWAP, value, mask),
            AtomicOp::Add(value) => (FI_SUM, value, 0),
            AtomicOp::And(value) => (FI_BAND, value, 0),
            AtomicOp::Or(value) => (FI_BOR, value, 0),
            AtomicOp::Xor(value) => (FI_BXOR, value, 0),
            _ => return None,
        };
        let place = |value: u64| match width {
            AtomicWidth::W64 => value,
            AtomicWidth::W32 => {
                let mut bytes = [0; 8];
                bytes[..4].copy_from_slice(&(value as u32).to_ne_bytes());
                u64::from_ne_bytes(bytes)
            }
        };
        let words = Self {
            operand: place(operand),
            compare: place(compare),
            former: 0,
        };
        Some((code, words))
    }

    /// The former value, when the operation is over.
    pub(crate) fn former(&self, width: AtomicWidth) -> u64 {
        let bytes = self.former.to_ne_bytes();
        match width {
            AtomicWidth::W64 => self.former,
            AtomicWidth::W32 => {
                u64::from(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            }
        }
    }
}

/// The target of an operation.
pub(crate) struct Goal {
    pub(crate) peer: fi_addr_t,
    pub(crate) addr: u64,
    pub(crate) key: u64,
}

/// Starts an operation whose words lie at `words`. Returns libfabric's result.
///
/// # Safety
/// The words and the context must stay where they are until the completion; `ep` must be open, and
/// the peer must be in its vector.
pub(crate) unsafe fn start(
    ep: &Fid<fid_ep>,
    goal: &Goal,
    (width, code): (AtomicWidth, fi_op),
    words: *mut Words,
    desc: *mut c_void,
    context: *mut c_void,
) -> isize {
    let (peer, addr, key) = (goal.peer, goal.addr, goal.key);
    let datatype: fi_datatype = match width {
        AtomicWidth::W32 => FI_UINT32,
        AtomicWidth::W64 => FI_UINT64,
    };
    // SAFETY: the caller's promise.
    unsafe {
        let operand = (&raw mut (*words).operand).cast::<c_void>();
        let compare = (&raw mut (*words).compare).cast::<c_void>();
        let former = (&raw mut (*words).former).cast::<c_void>();
        if COMPARING.contains(&code) {
            return fi_compare_atomic(
                ep.get(),
                operand,
                1,
                desc,
                compare,
                desc,
                former,
                desc,
                peer,
                addr,
                key,
                datatype,
                code,
                context,
            );
        }
        fi_fetch_atomic(
            ep.get(),
            operand,
            1,
            desc,
            former,
            desc,
            peer,
            addr,
            key,
            datatype,
            code,
            context,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_integers_lie_where_the_provider_looks() {
        let op = AtomicOp::CompareSwap {
            expected: 0x1_0000_0002,
            new: 0x5_0000_0006,
        };
        let (code, mut words) = Words::of(AtomicWidth::W32, op).unwrap();
        assert_eq!(code, FI_CSWAP);
        let narrow = |word: u64| u32::from_ne_bytes(word.to_ne_bytes()[..4].try_into().unwrap());
        assert_eq!((narrow(words.operand), narrow(words.compare)), (6, 2));
        let mut bytes = [0xff; 8];
        bytes[..4].copy_from_slice(&9_u32.to_ne_bytes());
        words.former = u64::from_ne_bytes(bytes);
        assert_eq!(words.former(AtomicWidth::W32), 9);
    }
}
