use portolan_datatype::Datatype;

#[derive(Clone, Copy, Datatype)]
union Either {
    a: u32,
    b: f32,
}

fn main() {}
