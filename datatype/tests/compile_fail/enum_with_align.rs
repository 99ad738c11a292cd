use portolan_datatype::Datatype;

#[derive(Clone, Copy, Datatype)]
#[repr(u8, align(4))]
enum State {
    On,
    Off,
}

#[derive(Clone, Copy, Datatype)]
#[repr(u8)]
#[repr(align(2))]
enum InTwo {
    On,
    Off,
}

fn main() {}
