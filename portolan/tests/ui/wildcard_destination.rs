//! COR-09: wildcards are a type of their own, and a send has no wildcard.

fn exchange(comm: &portolan::Comm) -> portolan::Result<()> {
    comm.send(&[1u8], portolan::Source::Any, portolan::Tags::Any)
}

fn main() {
    let _ = exchange;
}
