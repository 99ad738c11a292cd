//! A local of the closure dies before the scope ends, so the scope cannot use it.

fn exchange(comm: &portolan::Comm) -> portolan::Result<()> {
    comm.scope(|s| {
        let mut buf = [0u8; 4];
        s.recv(&mut buf, 0, 0)?;
        Ok(())
    })
}

fn main() {
    let _ = exchange;
}
