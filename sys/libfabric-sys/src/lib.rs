//! libfabric as it is: its types, its inline functions, and the library itself, which is opened at
//! run time.
//!
//! **What it is.** bindgen makes [`bindings`] from the headers of libfabric 1.17; they are checked
//! in (`cargo xtask bindgen` makes them again). [`inline`] has the functions that libfabric's
//! headers define as `static inline`: calls through the tables of operations that providers fill.
//! [`Library`] opens `libfabric.so.1` and looks up the few real symbols, at the symbol versions to
//! which the structures in [`bindings`] belong, so that one program runs with libfabric 1.17 and
//! with any 2.x.
//!
//! **What it is not.** A safe interface: that is `portolan-ofi`. Nothing here owns anything but
//! [`Library`].
//!
//! **Who calls it.** `backend-ofi` only.
//!
//! **Invariants.**
//! - Building this crate needs neither libfabric nor its headers nor libclang.
//! - No function is called that its table is too short to have: the table's `size` is checked
//!   first, because a library may be older than the bindings.
//! - A [`fi_info`] comes from [`Library::fi_getinfo`] or [`Library::fi_dupinfo`] and nowhere else:
//!   newer libraries know a longer structure than the bindings do, and convert between the two.
//!
//! ```no_run
//! use libfabric_sys::Library;
//!
//! let library = Library::open(None)?;
//! println!("libfabric {}.{}", library.version().0, library.version().1);
//! # Ok::<(), libfabric_sys::OpenError>(())
//! ```

#[rustfmt::skip]
#[allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    unreachable_pub,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "generated: the names and the documentation are libfabric's"
)]
pub mod bindings;
pub mod inline;
mod library;

pub use bindings::*;
pub use inline::*;
pub use library::{Library, OLDEST, OpenError, fi_version};
