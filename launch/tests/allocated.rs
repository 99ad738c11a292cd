//! Owned and persistent sends from memory of `Comm::alloc`, between processes: the receiver reads
//! them where they are.

mod common;
#[path = "common/rank.rs"]
mod rank;

use libtest_mimic::Trial;
use portolan::{Comm, Result, StableBufMut, World};

/// Long enough that a nonblocking send is announced (docs/shm.md).
const LEN: usize = 64 << 10;

fn main() -> std::process::ExitCode {
    rank::main(
        |_| portolan::run(sends),
        || {
            let name = "requests_that_own_shared_memory_are_read_where_they_are";
            vec![Trial::test(name, || {
                // Without calls of the system into another process other memory is streamed.
                let options = ["--env", "PORTOLAN_SHM_CMA=off", "--timeout", "60"];
                rank::play(&options, 2, "sends").expect_code(0);
                assert!(rank::shared_files().is_empty());
                Ok(())
            })]
        },
    )
}

fn sends(world: World) -> Result<()> {
    let comm = world.comm();
    let plain = rank::pulled(&world, || round(&comm, vec![0_u8; LEN]))?;
    assert_eq!(plain, 0, "a vector is streamed");
    let shared = rank::pulled(&world, || round(&comm, comm.alloc::<u8>(LEN)?))?;
    let expected = if comm.rank() == 0 { 4 * LEN as u64 } else { 0 };
    assert_eq!(shared, expected, "memory of `alloc` is read where it is");
    Ok(())
}

/// Sends one message that a request owns, and three times a persistent one, to rank 0.
fn round<B: StableBufMut<Item = u8> + std::ops::DerefMut<Target = [u8]>>(
    comm: &Comm,
    mut buf: B,
) -> Result<()> {
    if comm.rank() == 0 {
        for number in 0..4 {
            let (bytes, _) = comm.recv::<u8>(1, 0)?;
            assert_eq!(bytes, [number; LEN]);
        }
        return Ok(());
    }
    buf.fill(0);
    let buf = comm.isend_owned(buf, 0, 0)?.wait()?.buf;
    let mut again = comm.send_init(buf, 0, 0)?;
    for number in 1..4 {
        again.buf_mut()?.fill(number);
        again.start()?;
        again.wait()?;
    }
    assert_eq!(again.into_buf()?[LEN - 1], 3);
    Ok(())
}
