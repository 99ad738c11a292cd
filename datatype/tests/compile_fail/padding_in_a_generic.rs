use portolan_datatype::Datatype;

#[derive(Clone, Copy, Datatype)]
#[datatype(no_padding)]
#[repr(C)]
struct Tagged<T> {
    tag: u8,
    value: T,
}

fn main() {
    const { assert!(Tagged::<u8>::CONTIGUOUS) };
    const { assert!(Tagged::<u64>::CONTIGUOUS) };
}
