use portolan_datatype::Datatype;

#[derive(Clone, Copy, Datatype)]
struct Borrows {
    name: &'static str,
}

fn main() {}
