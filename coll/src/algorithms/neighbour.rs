//! Messages along the edges of a topology.

use super::Algorithm;
use crate::problem::Neighbour;
use crate::schedule::Builder;

/// All algorithms for this operation.
pub const ALL: &[Algorithm<Neighbour>] = &[Algorithm {
    name: "direct",
    summary: "straight from every source to every destination, all at once",
    fits: |_, _| true,
    build: |b, p| direct(b, p),
}];

fn direct(b: &mut Builder, p: &Neighbour) {
    for &(from, lane, data) in &p.recvs {
        b.in_lane(lane, |b| b.recv(from, data));
    }
    for &(to, lane, data) in &p.sends {
        b.in_lane(lane, |b| b.send(to, data));
    }
    b.wait();
}
