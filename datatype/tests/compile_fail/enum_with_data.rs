use portolan_datatype::Datatype;

#[derive(Clone, Copy, Datatype)]
#[repr(u8)]
enum Shape {
    Circle(f64),
    Square { side: f64 },
}

fn main() {}
