//! The library of this machine: opens it, and asks what its providers offer. And calls through
//! tables that are too short.
//!
//! `LIBFABRIC_SYS_LIBRARY` names another library than the linker finds. Without a library the tests
//! are skipped.

#![allow(clippy::print_stdout)]
#![allow(clippy::too_many_arguments, reason = "the arguments are libfabric's")]

use std::ffi::{c_char, c_void};
use std::ptr;

use libfabric_sys::*;

/// The library; prints a skip and returns `None` if there is none.
fn library(test: &str) -> Option<Library> {
    let path = std::env::var_os("LIBFABRIC_SYS_LIBRARY");
    match Library::open(path.as_deref().map(std::path::Path::new)) {
        Ok(library) => Some(library),
        Err(OpenError::NotFound { name, .. }) => {
            println!("skipped: {test}: {name} is not installed");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn providers_are_listed() {
    let Some(library) = library("listing providers") else {
        return;
    };
    assert!(library.version() >= OLDEST);
    let mut list = ptr::null_mut();
    // SAFETY: no strings, no hints, room for the list, which is freed once.
    let names = unsafe {
        assert_eq!(
            library.fi_getinfo(ptr::null(), ptr::null(), 0, ptr::null(), &raw mut list),
            0
        );
        let mut names = Vec::new();
        let mut at = list;
        while let Some(info) = at.as_ref() {
            let name = std::ffi::CStr::from_ptr((*info.fabric_attr).prov_name);
            names.push(name.to_string_lossy().into_owned());
            let said = library.fi_tostr((&raw const info.caps).cast(), FI_TYPE_CAPS);
            assert!(said.contains("FI_MSG") || said.contains("FI_RMA"), "{said}");
            at = info.next;
        }
        library.fi_freeinfo(list);
        names
    };
    assert!(names.iter().any(|name| name.contains("tcp")), "{names:?}");
}

#[test]
fn errors_have_words() {
    let Some(library) = library("errors in words") else {
        return;
    };
    let text = library.fi_strerror(-i64::from(FI_EAGAIN));
    assert_eq!(text, library.fi_strerror(i64::from(FI_EAGAIN)));
    assert!(
        text.contains("unavailable") || text.contains("again"),
        "{text}"
    );
}

#[test]
fn descriptions_are_allocated_by_the_library() {
    let Some(library) = library("descriptions") else {
        return;
    };
    let info = library.fi_allocinfo();
    // SAFETY: a fresh description, with all of its parts, freed once.
    unsafe {
        let parts = info.as_ref().expect("memory");
        assert!(!parts.tx_attr.is_null() && !parts.domain_attr.is_null() && parts.next.is_null());
        library.fi_freeinfo(info);
    }
}

/// Calls an entry through a table that ends with it, through one that ends just before it, like
/// that of an older library, through one without the entry, and through none. Only the first call
/// gets there; the others give an error, or null.
macro_rules! is_not_overrun {
    (
        $class:ident.$table:ident: $ops:ident.$op:ident($($arg:ty),*) -> $result:ty,
        $absent:expr, $call:expr
    ) => {{
        const CALLED: $result = 7 as $result;
        extern "C" fn called($(_: $arg),*) -> $result {
            CALLED
        }
        // SAFETY: tables and objects of libfabric are pointers and numbers, for which zero is a
        // value.
        let (mut table, mut object) = unsafe { std::mem::zeroed::<($ops, $class)>() };
        let start = std::mem::offset_of!($ops, $op);
        let with = start + size_of::<usize>();
        for (size, is_there, expected) in [
            (with, true, CALLED),
            (start, true, $absent),
            (with, false, $absent),
        ] {
            table.size = size;
            table.$op = if is_there { Some(called) } else { None };
            object.$table = &raw mut table;
            // SAFETY: an object with a table, which outlives the call.
            let result = unsafe { $call(&raw mut object) };
            assert_eq!(result, expected, "{} of {size} bytes", stringify!($ops));
        }
        object.$table = ptr::null_mut();
        // SAFETY: an object without a table.
        let result = unsafe { $call(&raw mut object) };
        assert_eq!(result, $absent, "no {}", stringify!($ops));
    }};
}

/// What functions return that the table does not have.
const ABSENT: i32 = -FI_ENOSYS;
const ABSENT_SIZE: isize = -(FI_ENOSYS as isize);

type Bytes = *mut c_void;
type Const = *const c_void;

#[test]
fn short_tables_are_not_overrun() {
    let null: Bytes = ptr::null_mut();
    is_not_overrun!(fid_cq.ops: fi_ops_cq.signal(*mut fid_cq) -> i32, ABSENT, fi_cq_signal);
    is_not_overrun!(
        fid_cq.ops: fi_ops_cq.read(*mut fid_cq, Bytes, usize) -> isize,
        ABSENT_SIZE, |cq| fi_cq_read(cq, null, 0)
    );
    is_not_overrun!(
        fid_av.ops: fi_ops_av.straddr(*mut fid_av, Const, *mut c_char, *mut usize) -> *const c_char,
        ptr::null(), |av| fi_av_straddr(av, null, ptr::null_mut(), ptr::null_mut())
    );
}

#[test]
fn short_tables_of_all_objects_are_not_overrun() {
    let null: Bytes = ptr::null_mut();
    is_not_overrun!(fid.ops: fi_ops.close(*mut fid) -> i32, ABSENT, fi_close);
    is_not_overrun!(
        fid.ops: fi_ops.bind(*mut fid, *mut fid, u64) -> i32,
        ABSENT, |object| fi_bind(object, ptr::null_mut(), 0)
    );
    is_not_overrun!(
        fid.ops: fi_ops.control(*mut fid, i32, Bytes) -> i32,
        ABSENT, |object| fi_control(object, 0, null)
    );
}

#[test]
fn short_tables_of_endpoints_are_not_overrun() {
    let null: Bytes = ptr::null_mut();
    is_not_overrun!(
        fid_ep.cm: fi_ops_cm.getname(*mut fid, Bytes, *mut usize) -> i32,
        ABSENT, |ep| fi_getname(ep, null, ptr::null_mut())
    );
    is_not_overrun!(
        fid_ep.ops: fi_ops_ep.cancel(*mut fid, Bytes) -> isize,
        ABSENT_SIZE, |ep| fi_cancel(ep, null)
    );
    is_not_overrun!(
        fid_ep.ops: fi_ops_ep.setopt(*mut fid, i32, i32, Const, usize) -> i32,
        ABSENT, |ep| fi_setopt(ep, 0, 0, null, 0)
    );
    is_not_overrun!(
        fid_ep.ops: fi_ops_ep.getopt(*mut fid, i32, i32, Bytes, *mut usize) -> i32,
        ABSENT, |ep| fi_getopt(ep, 0, 0, null, ptr::null_mut())
    );
}

#[test]
fn short_tables_of_registrations_are_not_overrun() {
    type Made = *mut *mut fid_mr;
    let null: Bytes = ptr::null_mut();
    is_not_overrun!(
        fid_domain.mr: fi_ops_mr.regattr(*mut fid, *const fi_mr_attr, u64, Made) -> i32,
        ABSENT, |domain| fi_mr_regattr(domain, ptr::null(), 0, ptr::null_mut())
    );
    is_not_overrun!(
        fid_domain.mr: fi_ops_mr.reg(*mut fid, Const, usize, u64, u64, u64, u64, Made, Bytes) -> i32,
        ABSENT, |domain| fi_mr_reg(domain, null, 0, 0, 0, 0, 0, ptr::null_mut(), null)
    );
}
