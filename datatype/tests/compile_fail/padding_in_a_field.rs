use portolan_datatype::Datatype;

#[derive(Clone, Copy, Datatype)]
#[repr(C)]
struct Inner {
    a: u8,
    b: u32,
}

#[derive(Clone, Copy, Datatype)]
#[datatype(no_padding)]
#[repr(C)]
struct Outer {
    inner: Inner,
}

fn main() {}
