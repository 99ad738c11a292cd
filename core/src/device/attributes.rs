//! What a device reports about itself and its surroundings.

use bitflags::bitflags;

bitflags! {
    /// What a device can do beyond what is required.
    ///
    /// A bit is set exactly where the operation is wired; the conformance suite proves both
    /// directions.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Caps: u32 {
        /// Only this rank writes into a posted receive, so cancelling one takes effect inside the
        /// call.
        const CANCEL_LOCAL = 1;
        /// A send that has not been matched can be cancelled.
        const CANCEL_SEND = 2;
        /// [`Device::alloc_region`](super::Device::alloc_region) gives memory that peers can load
        /// and store directly.
        const DIRECT = 4;
        /// Messages are matched by the hardware or by the library below. If not, the device's
        /// counter `unexpected` counts the messages that arrived before their receive.
        const NATIVE_MATCHING = 8;
        /// Ranks are separate processes, which can die on their own.
        const PROCESSES = 16;
        /// Several threads may call at the same time.
        const THREAD_MULTIPLE = 32;
        /// A blocking wait eventually sleeps, and then uses no processor time.
        const SLEEP = 64;
        /// Large messages can be read from the sender's memory while it computes.
        const PULL = 128;
        /// Long messages may be sent from, and received into, memory that only its driver reaches:
        /// [`Device::isend_driven_unchecked`](super::Device::isend_driven_unchecked) and its kin.
        const DRIVEN = 256;
    }
}

/// The ranks that have some facility.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Every rank.
    All,
    /// One rank.
    One(u32),
    /// No rank.
    None,
}

/// The values of section 5.4 of the paper, and other facts that callers ask a device for.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// Short name of the device, as in `PORTOLAN_TRANSPORT`.
    pub name: &'static str,
    /// `MPID_Version_name`: name and version for people.
    pub version: String,
    /// `MPID_Node_name`.
    pub node_name: String,
    /// `MPID_MyWorldRank`.
    pub world_rank: u32,
    /// `MPID_MyWorldSize`.
    pub world_size: u32,
    /// `MPID_TAG_UB`: largest legal tag.
    pub tag_ub: u32,
    /// `MPID_MAX_CONTEXT_ID`: largest context id, at least 32767; the ids above 0xffff_ff00 are the
    /// device's own.
    pub max_context_id: u32,
    /// `MPID_STDOUT` (`MPI_IO`): which ranks can write to standard output.
    pub io: Which,
    /// `MPID_STDIN`: which rank can read standard input.
    pub stdin: Which,
    /// `MPID_HOST`: rank of the host, if there is one.
    pub host: Which,
    /// `MPID_WTIME_IS_GLOBAL`.
    pub wtime_is_global: bool,
    /// `MPID_HAS_HETEROGENEOUS`: whether ranks may differ in byte order.
    pub heterogeneous: bool,
    /// What the device can do beyond what is required.
    pub caps: Caps,
    /// Largest payload of an active message, in bytes.
    pub active_max: usize,
    /// Largest message, in bytes, that is sent eagerly.
    pub eager_max: usize,
}
