//! One buffer cannot be both sent from and received into, except in place.

use portolan::Op;
use portolan::coll::Allreduce;

fn run(comm: &portolan::Comm) -> portolan::Result<()> {
    let mut sum = [1u64; 4];
    comm.run(Allreduce::new(&sum, &mut sum, Op::SUM))?;
    Ok(())
}

fn main() {
    let _ = run;
}
