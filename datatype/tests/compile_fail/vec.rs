use portolan_datatype::Datatype;

#[derive(Clone, Datatype)]
struct Owns {
    values: Vec<f64>,
}

fn main() {}
