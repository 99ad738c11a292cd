use portolan_datatype::Datatype;

#[derive(Clone, Copy, Datatype)]
#[datatype(nopadding)]
struct Plain {
    a: u32,
}

fn main() {}
