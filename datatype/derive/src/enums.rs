//! Enums without data: an integer of which only some values are valid.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DataEnum, DeriveInput, Error, Fields};

use crate::attributes::Attributes;
use crate::paths::datatype_crate;

pub(crate) fn expand(
    input: &DeriveInput,
    data: &DataEnum,
    attributes: &Attributes,
) -> syn::Result<TokenStream> {
    let name = &input.ident;
    for variant in &data.variants {
        if !matches!(variant.fields, Fields::Unit) {
            return Err(Error::new_spanned(
                variant,
                format!(
                    "`Datatype` cannot be derived for an enum with data: what is in the bytes of \
                     `{name}` depends on the variant; send a struct with a tag and the data of \
                     all variants"
                ),
            ));
        }
    }
    let Some(repr) = &attributes.repr else {
        return Err(Error::new_spanned(
            name,
            format!(
                "`{name}` needs an integer representation to be a `Datatype`, so that every \
                 program gives its variants the same numbers: add `#[repr(u8)]`"
            ),
        ));
    };
    if let Some(align) = &attributes.align {
        return Err(Error::new_spanned(
            align,
            format!(
                "`{name}` cannot be a `Datatype` with `align`, which puts padding behind its \
                 number, and padding is not sent: leave `align` out, or derive `Datatype` without \
                 it and hold the enum in a struct with `#[repr(align(…))]`"
            ),
        ));
    }
    let krate = datatype_crate(attributes);
    // By its full name: the program may have reused the short one for another type.
    let repr = quote!(::core::primitive::#repr);
    let size = format!(
        "`{name}` is not of the size of its integer representation; nothing may be added to it \
         behind `#[derive(Datatype)]`"
    );
    let variants = data.variants.iter().map(|variant| &variant.ident);
    Ok(quote! {
        const _: () = {
            use #krate as __portolan;

            // SAFETY: the enum is an integer of its representation, valid if it is one of the
            // variants' numbers.
            #[automatically_derived]
            unsafe impl __portolan::Datatype for #name {
                const CONTIGUOUS: bool = true;
                const PACKED_SIZE: usize = ::core::mem::size_of::<#repr>();
                const ANY_BITS: bool = false;
                const HOMOGENEOUS: ::core::option::Option<__portolan::Primitive> =
                    <#repr as __portolan::Datatype>::HOMOGENEOUS;

                fn layout() -> __portolan::Layout {
                    <#repr as __portolan::Datatype>::layout()
                }

                unsafe fn is_valid(value: *const Self) -> bool {
                    // SAFETY: the caller says that the bytes are there.
                    let number = unsafe { value.cast::<#repr>().read_unaligned() };
                    #(number == #name::#variants as #repr)||*
                }
            }

            // Another attribute's macro may have changed the enum after this one.
            assert!(::core::mem::size_of::<#name>() == ::core::mem::size_of::<#repr>(), #size);
        };
    })
}
