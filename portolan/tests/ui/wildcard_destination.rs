//! COR-09: wildcards are a type of their own, which a send does not accept.

fn exchange(comm: &portolan::Comm) -> portolan::Result<()> {
    comm.send(&[1u8], portolan::Source::Any, portolan::Tags::Any)
}

fn main() {
    let _ = exchange;
}
