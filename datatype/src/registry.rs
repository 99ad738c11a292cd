//! The layouts of generic types.

use std::any::{TypeId, type_name};
use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

use crate::{Datatype, Layout, LayoutError};

/// Layouts by type. A generic type cannot have a `static` of its own, so its layout is kept here.
/// The table is a cache of immutable values, bounded by the number of types in the program, and no
/// program can tell whether it is shared.
static LAYOUTS: LazyLock<RwLock<HashMap<TypeId, Layout>>> = LazyLock::new(RwLock::default);

/// The layout of `T`, built by `build` at the first call. For implementations of [`Datatype`] for
/// generic types; other types keep theirs in a `OnceLock`.
///
/// # Safety
/// `build` returns what [`Datatype::layout`] of `T` must return: every later call returns it.
///
/// # Panics
/// If `build` fails: the layout of a Rust type always fits the address space.
pub unsafe fn cached_layout<T: Datatype>(
    build: impl FnOnce() -> Result<Layout, LayoutError>,
) -> Layout {
    let id = TypeId::of::<T>();
    if let Some(layout) = LAYOUTS
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&id)
    {
        return layout.clone();
    }
    // No lock is held here: `build` asks for the layouts of the fields.
    let layout = build().unwrap_or_else(|error| panic!("layout of {}: {error}", type_name::<T>()));
    let mut layouts = LAYOUTS.write().unwrap_or_else(PoisonError::into_inner);
    layouts.entry(id).or_insert(layout).clone()
}
