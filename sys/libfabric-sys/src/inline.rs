//! The functions that libfabric's headers define as `static inline`.
//!
//! Each is a call through a table that the provider has filled. The C functions trust the table.
//! These check first that it exists, is long enough and has the entry, and return `-FI_ENOSYS` (or
//! null) otherwise, because the table of an older library is shorter than the bindings say.

#![allow(clippy::too_many_arguments, reason = "the arguments are libfabric's")]

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

use crate::bindings::*;

/// Any address, or none in particular (fabric.h; bindgen does not evaluate casts).
pub const FI_ADDR_UNSPEC: fi_addr_t = fi_addr_t::MAX;

/// No address: the result of a failed insertion (fabric.h).
pub const FI_ADDR_NOTAVAIL: fi_addr_t = fi_addr_t::MAX;

/// The result of a function that the table does not have.
trait Absent {
    const ABSENT: Self;
}

impl Absent for c_int {
    const ABSENT: Self = -FI_ENOSYS;
}

impl Absent for isize {
    const ABSENT: Self = -(FI_ENOSYS as isize);
}

impl Absent for *const c_char {
    const ABSENT: Self = std::ptr::null();
}

/// `name(object, arguments) = object.table: type of the table, entry`.
macro_rules! inline {
    ($man:literal: $(
        $(#[$doc:meta])*
        fn $name:ident($object:ident: $class:ident $(, $arg:ident: $type:ty)*) -> $result:ty
            = $table:ident: $ops:ident . $op:ident;
    )*) => {$(
        $(#[$doc])*
        #[doc = concat!("See ", $man, ".")]
        ///
        /// # Safety
        #[doc = concat!(
            "`", stringify!($object), "` must be an open `", stringify!($class), "`; what the other ",
            "arguments point to must be what the manual page wants, for as long as it says."
        )]
        #[inline]
        pub unsafe fn $name($object: *mut $class $(, $arg: $type)*) -> $result {
            // SAFETY: an open object has a table that lives as long as the object; `size` is the
            // first field of every table and says how much of the rest exists. The rest is the
            // caller's promise.
            unsafe {
                let table = (*$object).$table;
                if table.is_null() || (*table).size <= offset_of!($ops, $op) {
                    return Absent::ABSENT;
                }
                match (*table).$op {
                    Some(op) => op($object $(, $arg)*),
                    None => Absent::ABSENT,
                }
            }
        }
    )*};
}

// Messages.
inline! { "fi_msg(3)":
    /// Posts a buffer for one message.
    fn fi_recv(ep: fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: fi_addr_t, context: *mut c_void) -> isize
        = msg: fi_ops_msg.recv;
    /// Posts a buffer, with flags such as `FI_MULTI_RECV`.
    fn fi_recvmsg(ep: fid_ep, msg: *const fi_msg, flags: u64) -> isize
        = msg: fi_ops_msg.recvmsg;
    /// Starts to send a message.
    fn fi_send(ep: fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, dest_addr: fi_addr_t, context: *mut c_void) -> isize
        = msg: fi_ops_msg.send;
    /// Starts to send a message, with flags.
    fn fi_sendmsg(ep: fid_ep, msg: *const fi_msg, flags: u64) -> isize
        = msg: fi_ops_msg.sendmsg;
    /// Starts to send a message with remote completion data.
    fn fi_senddata(ep: fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64, dest_addr: fi_addr_t, context: *mut c_void) -> isize
        = msg: fi_ops_msg.senddata;
    /// Sends a small message; the buffer is the caller's again at once.
    fn fi_inject(ep: fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t) -> isize
        = msg: fi_ops_msg.inject;
    /// Sends a small message with remote completion data.
    fn fi_injectdata(ep: fid_ep, buf: *const c_void, len: usize, data: u64, dest_addr: fi_addr_t) -> isize
        = msg: fi_ops_msg.injectdata;
}

// Tagged messages.
inline! { "fi_tagged(3)":
    /// Posts a tagged receive.
    fn fi_trecv(ep: fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: fi_addr_t, tag: u64, ignore: u64, context: *mut c_void) -> isize
        = tagged: fi_ops_tagged.recv;
    /// Posts a tagged receive, or with flags peeks, claims or discards.
    fn fi_trecvmsg(ep: fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize
        = tagged: fi_ops_tagged.recvmsg;
    /// Starts to send a tagged message.
    fn fi_tsend(ep: fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, dest_addr: fi_addr_t, tag: u64, context: *mut c_void) -> isize
        = tagged: fi_ops_tagged.send;
    /// Starts to send a tagged message, with flags.
    fn fi_tsendmsg(ep: fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize
        = tagged: fi_ops_tagged.sendmsg;
    /// Starts to send a tagged message with remote completion data.
    fn fi_tsenddata(ep: fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64, dest_addr: fi_addr_t, tag: u64, context: *mut c_void) -> isize
        = tagged: fi_ops_tagged.senddata;
    /// Sends a small tagged message.
    fn fi_tinject(ep: fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t, tag: u64) -> isize
        = tagged: fi_ops_tagged.inject;
    /// Sends a small tagged message with remote completion data.
    fn fi_tinjectdata(ep: fid_ep, buf: *const c_void, len: usize, data: u64, dest_addr: fi_addr_t, tag: u64) -> isize
        = tagged: fi_ops_tagged.injectdata;
}

// Remote memory.
inline! { "fi_rma(3)":
    /// Starts to read a peer's memory.
    fn fi_read(ep: fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: fi_addr_t, addr: u64, key: u64, context: *mut c_void) -> isize
        = rma: fi_ops_rma.read;
    /// Starts to read a peer's memory, with flags.
    fn fi_readmsg(ep: fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize
        = rma: fi_ops_rma.readmsg;
    /// Starts to write a peer's memory.
    fn fi_write(ep: fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, dest_addr: fi_addr_t, addr: u64, key: u64, context: *mut c_void) -> isize
        = rma: fi_ops_rma.write;
    /// Starts to write a peer's memory, with flags.
    fn fi_writemsg(ep: fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize
        = rma: fi_ops_rma.writemsg;
    /// Writes a little into a peer's memory.
    fn fi_inject_write(ep: fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t, addr: u64, key: u64) -> isize
        = rma: fi_ops_rma.inject;
}

// Atomics.
inline! { "fi_atomic(3)":
    /// Starts an atomic operation without a result.
    fn fi_atomic(ep: fid_ep, buf: *const c_void, count: usize, desc: *mut c_void, dest_addr: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, operation: fi_op, context: *mut c_void) -> isize
        = atomic: fi_ops_atomic.write;
    /// Starts an atomic operation that returns the former value.
    fn fi_fetch_atomic(ep: fid_ep, buf: *const c_void, count: usize, desc: *mut c_void, result: *mut c_void, result_desc: *mut c_void, dest_addr: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, operation: fi_op, context: *mut c_void) -> isize
        = atomic: fi_ops_atomic.readwrite;
    /// Starts a compare-and-swap.
    fn fi_compare_atomic(ep: fid_ep, buf: *const c_void, count: usize, desc: *mut c_void, compare: *const c_void, compare_desc: *mut c_void, result: *mut c_void, result_desc: *mut c_void, dest_addr: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, operation: fi_op, context: *mut c_void) -> isize
        = atomic: fi_ops_atomic.compwrite;
    /// Checks whether an operation is supported.
    fn fi_atomicvalid(ep: fid_ep, datatype: fi_datatype, operation: fi_op, count: *mut usize) -> c_int
        = atomic: fi_ops_atomic.writevalid;
    /// Checks whether a fetching operation is supported.
    fn fi_fetch_atomicvalid(ep: fid_ep, datatype: fi_datatype, operation: fi_op, count: *mut usize) -> c_int
        = atomic: fi_ops_atomic.readwritevalid;
    /// Checks whether a comparing operation is supported.
    fn fi_compare_atomicvalid(ep: fid_ep, datatype: fi_datatype, operation: fi_op, count: *mut usize) -> c_int
        = atomic: fi_ops_atomic.compwritevalid;
}

// Completion queues.
inline! { "fi_cq(3)":
    /// Reads completions.
    fn fi_cq_read(cq: fid_cq, buf: *mut c_void, count: usize) -> isize
        = ops: fi_ops_cq.read;
    /// Reads completions, with the senders of what they are about.
    fn fi_cq_readfrom(cq: fid_cq, buf: *mut c_void, count: usize, src_addr: *mut fi_addr_t) -> isize
        = ops: fi_ops_cq.readfrom;
    /// Reads the completion of a failed operation.
    fn fi_cq_readerr(cq: fid_cq, buf: *mut fi_cq_err_entry, flags: u64) -> isize
        = ops: fi_ops_cq.readerr;
    /// Waits for completions and reads them.
    fn fi_cq_sread(cq: fid_cq, buf: *mut c_void, count: usize, cond: *const c_void, timeout: c_int) -> isize
        = ops: fi_ops_cq.sread;
    /// Wakes a thread that waits in `fi_cq_sread`.
    fn fi_cq_signal(cq: fid_cq) -> c_int
        = ops: fi_ops_cq.signal;
    /// A provider's error in words; null if it has none.
    fn fi_cq_strerror(cq: fid_cq, prov_errno: c_int, err_data: *const c_void, buf: *mut c_char, len: usize) -> *const c_char
        = ops: fi_ops_cq.strerror;
}

// Address vectors.
inline! { "fi_av(3)":
    /// Inserts addresses; returns how many.
    fn fi_av_insert(av: fid_av, addr: *const c_void, count: usize, fi_addr: *mut fi_addr_t, flags: u64, context: *mut c_void) -> c_int
        = ops: fi_ops_av.insert;
    /// Removes addresses.
    fn fi_av_remove(av: fid_av, fi_addr: *mut fi_addr_t, count: usize, flags: u64) -> c_int
        = ops: fi_ops_av.remove;
    /// The address behind a number.
    fn fi_av_lookup(av: fid_av, fi_addr: fi_addr_t, addr: *mut c_void, addrlen: *mut usize) -> c_int
        = ops: fi_ops_av.lookup;
    /// An address in words; null if that is not possible.
    fn fi_av_straddr(av: fid_av, addr: *const c_void, buf: *mut c_char, len: *mut usize) -> *const c_char
        = ops: fi_ops_av.straddr;
}

// Opening.
inline! { "fi_fabric(3), fi_domain(3), fi_endpoint(3), fi_cq(3), fi_av(3)":
    /// Opens a domain.
    fn fi_domain(fabric: fid_fabric, info: *mut fi_info, domain: *mut *mut fid_domain, context: *mut c_void) -> c_int
        = ops: fi_ops_fabric.domain;
    /// Whether it is safe to sleep on the descriptors of these queues.
    fn fi_trywait(fabric: fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int
        = ops: fi_ops_fabric.trywait;
    /// Opens an endpoint.
    fn fi_endpoint(domain: fid_domain, info: *mut fi_info, ep: *mut *mut fid_ep, context: *mut c_void) -> c_int
        = ops: fi_ops_domain.endpoint;
    /// Opens a completion queue.
    fn fi_cq_open(domain: fid_domain, attr: *mut fi_cq_attr, cq: *mut *mut fid_cq, context: *mut c_void) -> c_int
        = ops: fi_ops_domain.cq_open;
    /// Opens a counter.
    fn fi_cntr_open(domain: fid_domain, attr: *mut fi_cntr_attr, cntr: *mut *mut fid_cntr, context: *mut c_void) -> c_int
        = ops: fi_ops_domain.cntr_open;
    /// Opens an address vector.
    fn fi_av_open(domain: fid_domain, attr: *mut fi_av_attr, av: *mut *mut fid_av, context: *mut c_void) -> c_int
        = ops: fi_ops_domain.av_open;
}

/// Calls an entry of the table that every object has, by its field there.
macro_rules! common {
    ($fid:expr, $op:ident $(, $arg:expr)*) => {{
        let fid: *mut fid = $fid;
        let table = (*fid).ops;
        if table.is_null() || (*table).size <= offset_of!(fi_ops, $op) {
            return -FI_ENOSYS;
        }
        match (*table).$op {
            Some(op) => op(fid $(, $arg)*),
            None => -FI_ENOSYS,
        }
    }};
}

/// Closes an object of any class. See fi_domain(3).
///
/// # Safety
/// `fid` must be open; if the result is 0, it is closed afterwards.
pub unsafe fn fi_close(fid: *mut fid) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { common!(fid, close) }
}

/// Binds an object to another: `fi_ep_bind`, `fi_mr_bind`, `fi_av_bind` and `fi_domain_bind` do
/// this.
///
/// # Safety
/// Both must be open.
pub unsafe fn fi_bind(fid: *mut fid, to: *mut fid, flags: u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { common!(fid, bind, to, flags) }
}

/// Performs a command that has no function of its own. See fi_control(3).
///
/// # Safety
/// `fid` must be open, and `arg` must point to what the command needs.
pub unsafe fn fi_control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { common!(fid, control, command, arg) }
}

/// Makes an endpoint or a bound memory region ready: `fi_enable` and `fi_mr_enable` do this.
///
/// # Safety
/// `fid` must be open.
pub unsafe fn fi_enable(fid: *mut fid) -> c_int {
    // SAFETY: the caller's promise; the command takes nothing.
    unsafe { fi_control(fid, FI_ENABLE as c_int, std::ptr::null_mut()) }
}

/// Calls an operation of an endpoint that takes the endpoint as a `fid`.
macro_rules! of_endpoint {
    ($ep:expr, $table:ident: $ops:ident . $op:ident, $absent:expr $(, $arg:expr)*) => {{
        let ep: *mut fid_ep = $ep;
        let table = (*ep).$table;
        if table.is_null() || (*table).size <= offset_of!($ops, $op) {
            return $absent;
        }
        match (*table).$op {
            Some(op) => op((&raw mut (*ep).fid) $(, $arg)*),
            None => $absent,
        }
    }};
}

/// The address of an endpoint. See fi_cm(3).
///
/// # Safety
/// `ep` must be open, `addrlen` must say how many bytes at `addr` are writable.
pub unsafe fn fi_getname(ep: *mut fid_ep, addr: *mut c_void, addrlen: *mut usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { of_endpoint!(ep, cm: fi_ops_cm.getname, -FI_ENOSYS, addr, addrlen) }
}

/// Tries to cancel an operation that has not completed. See fi_endpoint(3).
///
/// # Safety
/// `ep` must be open.
pub unsafe fn fi_cancel(ep: *mut fid_ep, context: *mut c_void) -> isize {
    // SAFETY: the caller's promise.
    unsafe { of_endpoint!(ep, ops: fi_ops_ep.cancel, -(FI_ENOSYS as isize), context) }
}

/// Sets an option of an endpoint. See fi_endpoint(3).
///
/// # Safety
/// `ep` must be open, and `value` must point to `len` bytes of what the option needs.
pub unsafe fn fi_setopt(
    ep: *mut fid_ep,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { of_endpoint!(ep, ops: fi_ops_ep.setopt, -FI_ENOSYS, level, name, value, len) }
}

/// Reads an option of an endpoint. See fi_endpoint(3).
///
/// # Safety
/// `ep` must be open, `len` must say how many bytes at `value` are writable.
pub unsafe fn fi_getopt(
    ep: *mut fid_ep,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { of_endpoint!(ep, ops: fi_ops_ep.getopt, -FI_ENOSYS, level, name, value, len) }
}

/// Registers memory. See fi_mr(3).
///
/// # Safety
/// `domain` must be open, `attr` must describe memory that stays there until the region is closed,
/// `mr` must be writable.
pub unsafe fn fi_mr_regattr(
    domain: *mut fid_domain,
    attr: *const fi_mr_attr,
    flags: u64,
    mr: *mut *mut fid_mr,
) -> c_int {
    // SAFETY: the caller's promise; the table is checked as everywhere.
    unsafe {
        let table = (*domain).mr;
        if table.is_null() || (*table).size <= offset_of!(fi_ops_mr, regattr) {
            return -FI_ENOSYS;
        }
        match (*table).regattr {
            Some(op) => op(&raw mut (*domain).fid, attr, flags, mr),
            None => -FI_ENOSYS,
        }
    }
}

/// Registers host memory. See fi_mr(3).
///
/// # Safety
/// As for [`fi_mr_regattr`], with `len` bytes at `buf`.
pub unsafe fn fi_mr_reg(
    domain: *mut fid_domain,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise; the table is checked as everywhere.
    unsafe {
        let table = (*domain).mr;
        if table.is_null() || (*table).size <= offset_of!(fi_ops_mr, reg) {
            return -FI_ENOSYS;
        }
        match (*table).reg {
            Some(op) => op(
                &raw mut (*domain).fid,
                buf,
                len,
                access,
                offset,
                requested_key,
                flags,
                mr,
                context,
            ),
            None => -FI_ENOSYS,
        }
    }
}

/// The descriptor that local operations on the region's memory take. See fi_mr(3).
///
/// # Safety
/// `mr` must be open.
#[inline]
pub unsafe fn fi_mr_desc(mr: *mut fid_mr) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { (*mr).mem_desc }
}

/// The key by which peers name the region. See fi_mr(3).
///
/// # Safety
/// `mr` must be open.
#[inline]
pub unsafe fn fi_mr_key(mr: *mut fid_mr) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { (*mr).key }
}

/// The key of a region whose keys are longer than 64 bits (`FI_MR_RAW`). See fi_mr(3).
///
/// # Safety
/// `mr` must be open, `key_size` must say how many bytes at `raw_key` are writable.
pub unsafe fn fi_mr_raw_attr(
    mr: *mut fid_mr,
    base_addr: *mut u64,
    raw_key: *mut u8,
    key_size: *mut usize,
    flags: u64,
) -> c_int {
    let mut attr = fi_mr_raw_attr {
        flags,
        base_addr,
        raw_key,
        key_size,
    };
    // SAFETY: the caller's promise; the command takes this structure.
    unsafe {
        fi_control(
            &raw mut (*mr).fid,
            FI_GET_RAW_MR as c_int,
            (&raw mut attr).cast(),
        )
    }
}
