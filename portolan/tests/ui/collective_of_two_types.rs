//! Contribution and result must be of one type.

use portolan::coll::Allgather;

fn run(comm: &portolan::Comm) -> portolan::Result<()> {
    let (mine, mut all) = ([1u32; 4], [0u64; 4]);
    comm.run(Allgather::new(&mine, &mut all))?;
    Ok(())
}

fn main() {
    let _ = run;
}
