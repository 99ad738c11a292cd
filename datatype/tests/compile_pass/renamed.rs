//! The crate may be found elsewhere: a facade re-exports it.

mod facade {
    pub use portolan_datatype as datatype;
}

use facade::datatype::Datatype;

#[derive(Clone, Copy, Datatype)]
#[datatype(crate = crate::facade::datatype)]
struct Plain {
    a: u32,
}

fn main() {
    assert!(Plain { a: 1 }.a == 1 && Plain::CONTIGUOUS);
}
