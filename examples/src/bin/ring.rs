//! A sum goes around a ring of ranks: each adds its number and passes it on.
//!
//! Shows blocking sends and receives of one value, and the status of a receive.
//!
//! ```text
//! portolan run -n 4 -- target/release/ring
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::process::ExitCode;

use portolan::{Result, World};

const TAG: u32 = 7;

fn main() -> ExitCode {
    portolan::run(ring)
}

pub(crate) fn ring(world: World) -> Result<()> {
    let comm = world.comm();
    let (me, n) = (comm.rank(), comm.size());
    let (left, right) = ((me + n - 1) % n, (me + 1) % n);
    if me == 0 {
        comm.send_one(&0u64, right, TAG)?;
        let (sum, status) = comm.recv_one::<u64>(left, TAG)?;
        let expected = u64::from(n) * u64::from(n - 1) / 2;
        assert_eq!(sum, expected, "some rank has not added its number");
        println!("the sum of {n} ranks is {sum}, says rank {}", status.source);
    } else {
        let (sum, _) = comm.recv_one::<u64>(left, TAG)?;
        comm.send_one(&(sum + u64::from(me)), right, TAG)?;
    }
    Ok(())
}
