use portolan_datatype::Datatype;

#[derive(Clone, Copy, Datatype)]
enum State {
    On,
    Off,
}

fn main() {}
