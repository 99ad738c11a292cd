use portolan_datatype::Datatype;

#[derive(Datatype)]
struct Plain {
    a: u32,
}

fn main() {}
