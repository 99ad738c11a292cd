//! Structs: each field at its offset.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{DataStruct, DeriveInput, Error, Generics, Member, Type, parse_quote};

use crate::attributes::Attributes;
use crate::paths::datatype_crate;

pub(crate) fn expand(
    input: &DeriveInput,
    data: &DataStruct,
    attributes: &Attributes,
) -> syn::Result<TokenStream> {
    let types: Vec<&Type> = data.fields.iter().map(|field| &field.ty).collect();
    for ty in &types {
        refuse_addresses(ty)?;
    }
    let members: Vec<Member> = data.fields.members().collect();
    let name = &input.ident;
    let krate = datatype_crate(attributes);
    let generics = with_bounds(&input.generics, &types, attributes);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();

    let contiguous = contiguous(input, &members, &types, attributes);
    let layout = layout(&members, &types, input.generics.params.is_empty());
    // A macro that runs later may add a field that is not known here. The compiler then reports an
    // error at this pattern.
    let all_fields = quote! {
        #[allow(dead_code, non_snake_case, clippy::all)]
        fn fields_of #impl_generics (value: &#name #type_generics) #where_clause {
            let #name { #(#members: _),* } = value;
        }
    };
    // Evaluated here for a type without parameters, otherwise when the type is used.
    let check = (attributes.no_padding && input.generics.params.is_empty())
        .then(|| quote!(const _: bool = <#name as __portolan::Datatype>::CONTIGUOUS;));

    Ok(quote! {
        const _: () = {
            use #krate as __portolan;

            // SAFETY: the layout has each field at the offset that the compiler says; the type is
            // contiguous only if the fields follow each other from the first byte to the last.
            #[automatically_derived]
            #[allow(trivial_bounds, clippy::all)]
            unsafe impl #impl_generics __portolan::Datatype for #name #type_generics #where_clause {
                const CONTIGUOUS: bool = #contiguous;
                const PACKED_SIZE: usize =
                    0 #(+ <#types as __portolan::Datatype>::PACKED_SIZE)*;
                const ANY_BITS: bool = true #(&& <#types as __portolan::Datatype>::ANY_BITS)*;
                const HOMOGENEOUS: ::core::option::Option<__portolan::Primitive> = {
                    let mut primitive = ::core::option::Option::None;
                    let mut bytes = 0usize;
                    #(
                        let size = ::core::mem::size_of::<#types>();
                        let field = <#types as __portolan::Datatype>::HOMOGENEOUS;
                        primitive = __portolan::same_primitive(primitive, bytes, field, size);
                        bytes += size;
                    )*
                    let _ = bytes;
                    primitive
                };

                fn layout() -> __portolan::Layout {
                    #layout
                }

                unsafe fn is_valid(value: *const Self) -> bool {
                    let bytes = value.cast::<u8>();
                    let _ = bytes;
                    // SAFETY: the caller says that the bytes are there; fields lie within them.
                    true #(&& unsafe {
                        <#types as __portolan::Datatype>::is_valid(
                            bytes.wrapping_add(::core::mem::offset_of!(Self, #members)).cast(),
                        )
                    })*
                }
            }
            #all_fields
            #check
        };
    })
}

/// Refuses references and pointers with a better message than a missing trait.
fn refuse_addresses(ty: &Type) -> syn::Result<()> {
    let what = match ty {
        Type::Reference(_) => "a reference",
        Type::Ptr(_) => "a pointer",
        Type::BareFn(_) => "a function pointer",
        Type::Array(array) => return refuse_addresses(&array.elem),
        Type::Paren(paren) => return refuse_addresses(&paren.elem),
        _ => return Ok(()),
    };
    Err(Error::new_spanned(
        ty,
        format!(
            "a field of a `Datatype` cannot be {what}: an address means nothing to another rank; \
             hold the data itself, or an index"
        ),
    ))
}

/// The type's generics with a bound on each type parameter and on each field. The latter make the
/// compiler point at a field that cannot be sent, once.
fn with_bounds(generics: &Generics, types: &[&Type], attributes: &Attributes) -> Generics {
    let mut generics = generics.clone();
    let parameters: Vec<_> = generics.type_params().map(|p| p.ident.clone()).collect();
    let clause = generics.make_where_clause();
    match &attributes.bound {
        Some(bound) => clause.predicates.extend(bound.iter().cloned()),
        None => {
            for parameter in parameters {
                clause
                    .predicates
                    .push(parse_quote!(#parameter: __portolan::Datatype));
            }
        }
    }
    for ty in types {
        let predicate = quote_spanned!(ty.span()=> #ty: __portolan::Datatype);
        clause.predicates.push(parse_quote!(#predicate));
    }
    generics
}

/// An expression that says whether there is neither padding nor reordering. If the type must have
/// neither, it fails to evaluate instead.
fn contiguous(
    input: &DeriveInput,
    members: &[Member],
    types: &[&Type],
    attributes: &Attributes,
) -> TokenStream {
    let name = &input.ident;
    let checks = attributes.no_padding.then(|| {
        let fields = members.iter().zip(types).map(|(member, ty)| {
            let field = match member {
                Member::Named(ident) => ident.to_string(),
                Member::Unnamed(index) => index.index.to_string(),
            };
            let text = format!(
                "`{name}` is marked no_padding, but its field `{field}` is of a type with padding \
                 or reordered fields"
            );
            quote!(assert!(<#ty as __portolan::Datatype>::CONTIGUOUS, #text);)
        });
        let padding = format!(
            "`{name}` is marked no_padding, but has padding bytes between or after its fields: \
             order the fields by falling alignment, or fill the gaps with fields of type [u8; N]"
        );
        let order = format!(
            "`{name}` is marked no_padding, but the compiler has reordered its fields: \
             add #[repr(C)]"
        );
        quote! {
            #(#fields)*
            assert!(end == ::core::mem::size_of::<Self>(), #padding);
            assert!(dense, #order);
        }
    });
    let at: Vec<_> = (0..members.len())
        .map(|i| format_ident!("at_{i}"))
        .collect();
    quote! {{
        let mut end = 0usize;
        let mut dense = true;
        #(
            let #at = ::core::mem::offset_of!(Self, #members);
            dense &= <#types as __portolan::Datatype>::CONTIGUOUS
                && (::core::mem::size_of::<#types>() == 0 || #at == end);
            end += ::core::mem::size_of::<#types>();
        )*
        #checks
        dense && end == ::core::mem::size_of::<Self>()
    }}
}

/// The body of `layout()`. Only a type without parameters can have a `static` of its own.
fn layout(members: &[Member], types: &[&Type], has_static: bool) -> TokenStream {
    let blocks = members.iter().map(|_| quote!(1));
    let build = quote! {
        || {
            let data = __portolan::Layout::structure(
                &[#(#blocks),*],
                &[#(::core::mem::offset_of!(Self, #members) as isize),*],
                &[#(<#types as __portolan::Datatype>::layout()),*],
            )?;
            __portolan::Layout::resized(&data, 0, ::core::mem::size_of::<Self>() as isize)
        }
    };
    if !has_static {
        return quote! {
            // SAFETY: each field is at its offset, and the extent is the size.
            unsafe { __portolan::cached_layout::<Self>(#build) }
        };
    }
    quote! {
        static LAYOUT: ::std::sync::OnceLock<__portolan::Layout> = ::std::sync::OnceLock::new();
        let build: fn() -> ::core::result::Result<__portolan::Layout, __portolan::LayoutError> =
            #build;
        LAYOUT
            .get_or_init(|| build().expect("the layout of a Rust type fits the address space"))
            .clone()
    }
}
