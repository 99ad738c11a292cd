//! A buffer that other code may read cannot be received into.

use portolan::coll::Bcast;

fn run(comm: &portolan::Comm, data: &[u8]) -> portolan::Result<()> {
    comm.run(Bcast::new(data, 0))?;
    Ok(())
}

fn main() {
    let _ = run;
}
