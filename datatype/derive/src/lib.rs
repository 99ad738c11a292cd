//! `#[derive(Datatype)]` for `portolan-datatype`.

/// Derives `Datatype`.
#[proc_macro_derive(Datatype, attributes(datatype))]
pub fn derive_datatype(_: proc_macro::TokenStream) -> proc_macro::TokenStream {
    proc_macro::TokenStream::new()
}
