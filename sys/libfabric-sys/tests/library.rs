//! The library of this machine: opens it, asks what its providers offer, and checks the table of
//! one queue.
//!
//! `LIBFABRIC_SYS_LIBRARY` names another library than the linker finds. Without a library the tests
//! are skipped.

#![allow(clippy::print_stdout)]

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

/// A table that ends before an entry, like that of an older library, gives an error instead of a
/// call.
#[test]
fn short_tables_are_not_overrun() {
    extern "C" fn called(_: *mut fid_cq) -> i32 {
        7
    }
    // SAFETY: tables and objects of libfabric are pointers and numbers, for which zero is a value.
    let (mut table, mut cq) = unsafe { std::mem::zeroed::<(fi_ops_cq, fid_cq)>() };
    table.signal = Some(called);
    cq.ops = &raw mut table;
    table.size = size_of::<fi_ops_cq>();
    // SAFETY: an object with a table, which outlives the calls.
    unsafe {
        cq.ops = &raw mut table;
        assert_eq!(fi_cq_signal(&raw mut cq), 7);
        table.size = std::mem::offset_of!(fi_ops_cq, signal);
        cq.ops = &raw mut table;
        assert_eq!(fi_cq_signal(&raw mut cq), -FI_ENOSYS);
        assert_eq!(
            fi_cq_read(&raw mut cq, ptr::null_mut(), 0),
            -(FI_ENOSYS as isize),
            "no entry"
        );
        cq.ops = ptr::null_mut();
        assert_eq!(fi_cq_signal(&raw mut cq), -FI_ENOSYS, "no table");
    }
}
