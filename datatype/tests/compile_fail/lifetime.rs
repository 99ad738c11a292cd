use portolan_datatype::Datatype;

#[derive(Clone, Copy, Datatype)]
struct Borrows<'a> {
    values: &'a [f64],
}

fn main() {}
