//! What people may want to know of this transport.

use crate::ofi::Ofi;

/// One line per fact.
pub(crate) fn describe(ofi: &Ofi) -> Vec<(String, String)> {
    let info = &ofi.link.domain.info;
    let (major, minor) = ofi.link.domain.library.version();
    let fact = |name: &str, text: String| (name.to_owned(), text);
    vec![
        fact("libfabric", format!("{major}.{minor}")),
        fact("provider", info.provider()),
        fact("network", format!("{} ({})", info.domain(), info.fabric())),
        fact(
            "receive buffers",
            if ofi.link.domain.multi {
                "for many messages each".to_owned()
            } else {
                "for one message each".to_owned()
            },
        ),
        fact(
            "injected",
            format!(
                "up to {} bytes",
                ofi.inject.saturating_sub(crate::wire::Wire::LEN)
            ),
        ),
    ]
}
