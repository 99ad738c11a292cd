//! A persistent operation cannot be started while the program holds a view of its values.

use portolan::Op;
use portolan::coll::Allreduce;

fn run(comm: &portolan::Comm) -> portolan::Result<()> {
    let mut sum = comm.persistent(Allreduce::in_place(vec![1u64; 4], Op::SUM))?;
    let values = sum.buffers_mut()?;
    sum.start()?;
    values[0] = 7;
    sum.wait()
}

fn main() {
    let _ = run;
}
