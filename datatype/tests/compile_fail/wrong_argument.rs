use portolan_datatype::Datatype;

fn main() {
    let _ = <String as Datatype>::layout();
}
