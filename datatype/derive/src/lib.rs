//! `#[derive(Datatype)]` for `portolan-datatype`.
//!
//! Use it through that crate, or through `portolan`: the macro finds out which of them the
//! program depends on.

mod attributes;
mod enums;
mod paths;
mod structs;

use proc_macro::TokenStream;
use syn::{Data, DeriveInput, Error, parse_macro_input};

use attributes::Attributes;

/// Implements `Datatype` for a struct, or for an enum without data.
///
/// The type must be `Copy`. The layout has the fields in the order of declaration, each at the
/// place that the compiler gave it, so any `repr` works; with `#[repr(C)]` the place is the same in
/// every program. Type parameters get a `Datatype` bound. Enums need an integer representation,
/// such as `#[repr(u8)]`, and no `align`; their values are checked when they are received.
///
/// Attributes, on the type:
///
/// - `#[datatype(no_padding)]` makes compilation fail if the bytes of a value are not exactly its
///   packed stream, because there is padding or the compiler has reordered the fields. Without the
///   attribute, such types are packed field by field.
/// - `#[datatype(bound = "T: Bound")]` replaces the bounds on type parameters.
/// - `#[datatype(crate = path)]` gives the path of the `portolan_datatype` crate.
#[proc_macro_derive(Datatype, attributes(datatype))]
pub fn derive_datatype(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input)
        .unwrap_or_else(Error::into_compile_error)
        .into()
}

fn expand(input: &DeriveInput) -> syn::Result<proc_macro2::TokenStream> {
    let attributes = Attributes::parse(&input.attrs)?;
    if let Some(lifetime) = input.generics.lifetimes().next() {
        return Err(Error::new_spanned(
            lifetime,
            "a `Datatype` cannot have lifetime parameters: it may not borrow, because an address \
             means nothing to another rank",
        ));
    }
    match &input.data {
        Data::Struct(data) => structs::expand(input, data, &attributes),
        Data::Enum(data) => enums::expand(input, data, &attributes),
        Data::Union(data) => Err(Error::new_spanned(
            data.union_token,
            "`Datatype` cannot be derived for a union: nothing tells which field is there; send \
             the field itself, or the union's bytes as `[u8; N]`",
        )),
    }
}
