//! `#[datatype(…)]` and `#[repr(…)]`.

use syn::punctuated::Punctuated;
use syn::{Attribute, Ident, LitStr, Path, Token, WherePredicate, parenthesized};

/// The attributes of a type, parsed.
#[derive(Default)]
pub(crate) struct Attributes {
    pub(crate) no_padding: bool,
    /// The path of the crate, if the user gives it.
    pub(crate) krate: Option<Path>,
    /// Bounds in place of `T: Datatype` for each type parameter.
    pub(crate) bound: Option<Punctuated<WherePredicate, Token![,]>>,
    /// The integer type among the arguments of `#[repr]`.
    pub(crate) repr: Option<Ident>,
    /// The `align` among the arguments of `#[repr]`.
    pub(crate) align: Option<Path>,
}

const INTEGERS: [&str; 12] = [
    "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "i128", "u128", "isize", "usize",
];

impl Attributes {
    pub(crate) fn parse(attributes: &[Attribute]) -> syn::Result<Attributes> {
        let mut found = Attributes::default();
        for attribute in attributes {
            if attribute.path().is_ident("datatype") {
                found.parse_own(attribute)?;
            } else if attribute.path().is_ident("repr") {
                found.parse_repr(attribute)?;
            }
        }
        Ok(found)
    }

    fn parse_own(&mut self, attribute: &Attribute) -> syn::Result<()> {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("no_padding") {
                self.no_padding = true;
            } else if meta.path.is_ident("crate") {
                self.krate = Some(meta.value()?.call(Path::parse_mod_style)?);
            } else if meta.path.is_ident("bound") {
                let text: LitStr = meta.value()?.parse()?;
                self.bound = Some(text.parse_with(Punctuated::parse_terminated)?);
            } else {
                let known = "known are `no_padding`, `bound = \"…\"` and `crate = path`";
                return Err(meta.error(format!("unknown attribute of `Datatype`; {known}")));
            }
            Ok(())
        })
    }

    fn parse_repr(&mut self, attribute: &Attribute) -> syn::Result<()> {
        attribute.parse_nested_meta(|meta| {
            if let Some(ident) = meta.path.get_ident()
                && INTEGERS.iter().any(|integer| ident == integer)
            {
                self.repr = Some(ident.clone());
            }
            if meta.path.is_ident("align") {
                self.align = Some(meta.path.clone());
            }
            // `align(8)` and `packed(2)` have an argument, whose value does not matter here.
            if meta.input.peek(syn::token::Paren) {
                let argument;
                parenthesized!(argument in meta.input);
                argument.parse::<proc_macro2::TokenStream>()?;
            }
            Ok(())
        })
    }
}
