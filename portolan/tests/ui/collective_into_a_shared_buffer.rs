//! Nobody receives into a buffer that others may read.

use portolan::coll::Bcast;

fn run(comm: &portolan::Comm, data: &[u8]) -> portolan::Result<()> {
    comm.run(Bcast::new(data, 0))?;
    Ok(())
}

fn main() {
    let _ = run;
}
