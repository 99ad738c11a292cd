//! Counters of one rank, so that tests and users can see what the protocol did.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        /// What a rank's engine has done so far.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)*
        }

        impl Counters {
            /// The name of each counter, and what it counts.
            pub(crate) const DESCRIBED: &[(&str, &str)] =
                &[$((stringify!($name), concat!($($doc),+)),)*];

            /// The counters by name, in a fixed order.
            #[must_use]
            pub fn by_name(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Messages sent with their envelope.
    eager_sent,
    /// Packets that held several such messages.
    bundles_sent,
    /// Messages received that came with their envelope.
    eager_received,
    /// Messages announced by an offer.
    offers_sent,
    /// Announced messages received.
    rendezvous_received,
    /// Messages of a rank to itself.
    looped,
    /// Messages that arrived before their receive was posted.
    unexpected,
    /// Ready-mode messages whose receive was not posted.
    ready_unposted,
    /// Times that a peer was told to announce all its messages.
    holds,
    /// Bytes of messages sent.
    bytes_sent,
    /// Bytes of messages received.
    bytes_received,
    /// Bytes read from a sender's memory by this rank.
    bytes_pulled,
    /// Bytes written into a receiver's buffer by this rank.
    bytes_pushed,
    /// Pieces of messages from and to accelerators that went through chunks of host memory.
    chunks_staged,
    /// Packets of such messages sent, and chunks filled, while a copy from or to the accelerator
    /// was under way.
    pieces_overlapped,
    /// Chunks that are never used again, because the driver could not say whether a copy was over.
    chunks_lost,
    /// One-sided operations, and parts of them, that the network carried out by itself.
    remote_operations,
    /// Operations cancelled.
    cancelled,
    /// Active messages sent.
    active_sent,
    /// Active messages handled.
    active_received,
    /// One-sided accesses of peers that were refused.
    refused_accesses,
}
