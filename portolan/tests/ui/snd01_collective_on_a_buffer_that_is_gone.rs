//! A collective operation in the background cannot outlive its buffer.

use portolan::Op;
use portolan::coll::Allreduce;

fn start(comm: &portolan::Comm) -> portolan::Result<()> {
    let mine = [1u64; 4];
    comm.scope(|s| {
        let mut sum = [0; 4];
        s.start(Allreduce::new(&mine, &mut sum, Op::SUM))?;
        Ok(())
    })
}

fn main() {
    let _ = start;
}
