//! The path of the `portolan_datatype` crate at the place where the macro is used.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::Ident;

use crate::attributes::Attributes;

/// The path that the user gave, else the crate itself if the program depends on it, else the
/// facade's `portolan::datatype`.
pub(crate) fn datatype_crate(attributes: &Attributes) -> TokenStream {
    if let Some(path) = &attributes.krate {
        return quote!(#path);
    }
    match crate_name("portolan-datatype") {
        Ok(FoundCrate::Name(name)) => return absolute(&name),
        Ok(FoundCrate::Itself) => return absolute("portolan_datatype"),
        Err(_) => {}
    }
    match crate_name("portolan") {
        Ok(FoundCrate::Name(name)) => facade(&name),
        Ok(FoundCrate::Itself) => facade("portolan"),
        Err(_) => absolute("portolan_datatype"),
    }
}

fn absolute(name: &str) -> TokenStream {
    let name = Ident::new(name, Span::call_site());
    quote!(::#name)
}

fn facade(name: &str) -> TokenStream {
    let path = absolute(name);
    quote!(#path::datatype)
}
