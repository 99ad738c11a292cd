//! The crate may be found under another path: a facade re-exports it. A program that forbids unsafe
//! code can derive.

#![forbid(unsafe_code)]

mod facade {
    pub use portolan_datatype as datatype;
}

use facade::datatype::Datatype;

#[derive(Clone, Copy, Datatype)]
#[datatype(crate = crate::facade::datatype)]
struct Plain {
    a: u32,
}

#[derive(Clone, Copy, Datatype)]
#[datatype(crate = facade::datatype)]
struct Generic<T> {
    a: T,
}

#[derive(Clone, Copy, Datatype)]
#[datatype(crate = crate::facade::datatype)]
#[repr(u8)]
enum Side {
    Left,
    Right,
}

fn main() {
    assert!(Generic { a: [Side::Left, Side::Right] }.a.len() == <Generic<[Side; 2]>>::PACKED_SIZE);
    assert!(Plain { a: 1 }.a == 1 && Plain::CONTIGUOUS);
}
