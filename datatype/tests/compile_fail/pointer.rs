use portolan_datatype::Datatype;

#[derive(Clone, Copy, Datatype)]
struct Points {
    nodes: [*const f64; 2],
}

fn main() {}
