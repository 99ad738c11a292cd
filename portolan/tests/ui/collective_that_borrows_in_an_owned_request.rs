//! A request that may outlive the function owns its buffers.

use portolan::coll::Bcast;

fn start(comm: &portolan::Comm) -> portolan::Result<()> {
    let mut data = [0u8; 4];
    comm.start_owned(Bcast::new(&mut data, 0))?.wait()?;
    Ok(())
}

fn main() {
    let _ = start;
}
