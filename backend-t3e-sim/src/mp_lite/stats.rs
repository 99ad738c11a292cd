//! The counts that a node logs at the end of a run (the seed's `.nodeX` files).

/// Counts of one PE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Stats {
    /// Messages that went through a send buffer.
    pub buffered: u64,
    /// Bytes of them.
    pub buffered_bytes: u64,
    /// Preposted receives that had to be ignored, because a buffered send that matched them had not
    /// been cleared.
    pub ignored_preposts: u64,
    /// Messages that were put straight into a preposted receive.
    pub direct: u64,
    /// Bytes of them.
    pub direct_bytes: u64,
    /// Messages that travelled in their header.
    pub in_header: u64,
    /// Receives that were preposted.
    pub preposted: u64,
    /// Messages received that were pulled from a send buffer.
    pub pulled: u64,
    /// Preposted receives whose message came through a buffer after all: the gap.
    pub gaps: u64,
    /// Preposts that a `recv_done` with a negative number of bytes has taken out.
    pub unposted: u64,
    /// Headers moved out of a queue that was filling up (extension).
    pub spilled: u64,
    /// Messages that were announced, because there was no memory to buffer them (extension).
    pub announced: u64,
    /// Times that a send found the queue at its receiver full, or no memory for a buffer.
    pub held: u64,
    /// Ready sends whose receive was not preposted (extension).
    pub ready_unposted: u64,
}

impl Stats {
    /// The counts by name.
    #[must_use]
    pub fn by_name(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("lite_buffered", self.buffered),
            ("lite_buffered_bytes", self.buffered_bytes),
            ("lite_ignored_preposts", self.ignored_preposts),
            ("lite_direct", self.direct),
            ("lite_direct_bytes", self.direct_bytes),
            ("lite_in_header", self.in_header),
            ("lite_preposted", self.preposted),
            ("lite_pulled", self.pulled),
            ("lite_gaps", self.gaps),
            ("lite_unposted", self.unposted),
            ("lite_spilled", self.spilled),
            ("lite_announced", self.announced),
            ("lite_held", self.held),
            ("lite_ready_unposted", self.ready_unposted),
        ]
    }

    /// Adds the counts of another PE.
    pub fn add(&mut self, other: &Self) {
        let Self {
            buffered,
            buffered_bytes,
            ignored_preposts,
            direct,
            direct_bytes,
            in_header,
            preposted,
            pulled,
            gaps,
            unposted,
            spilled,
            announced,
            held,
            ready_unposted,
        } = self;
        *buffered += other.buffered;
        *buffered_bytes += other.buffered_bytes;
        *ignored_preposts += other.ignored_preposts;
        *direct += other.direct;
        *direct_bytes += other.direct_bytes;
        *in_header += other.in_header;
        *preposted += other.preposted;
        *pulled += other.pulled;
        *gaps += other.gaps;
        *unposted += other.unposted;
        *spilled += other.spilled;
        *announced += other.announced;
        *held += other.held;
        *ready_unposted += other.ready_unposted;
    }

    /// The lines of the node's log.
    #[must_use]
    pub fn log(&self, node: u32) -> String {
        let Self {
            buffered,
            buffered_bytes,
            ignored_preposts,
            direct,
            in_header,
            gaps,
            ..
        } = self;
        format!(
            "node {node}: {buffered} messages ({buffered_bytes} bytes) were buffered, {direct} went \
             straight into a preposted receive, {in_header} in their header\n\
             node {node}: {ignored_preposts} preposted receives were ignored, {gaps} were posted in \
             the gap\n"
        )
    }
}
