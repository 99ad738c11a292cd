use portolan_datatype::Datatype;

#[derive(Clone, Copy, Datatype)]
#[datatype(no_padding)]
#[repr(C)]
struct Gap {
    a: u8,
    b: u32,
}

fn main() {}
