//! Two receives cannot write one buffer at the same time.

fn exchange(comm: &portolan::Comm) -> portolan::Result<()> {
    let mut buf = [0u8; 4];
    comm.scope(|s| {
        s.recv(&mut buf, 0, 0)?;
        s.recv(&mut buf, 1, 0)?;
        Ok(())
    })
}

fn main() {
    let _ = exchange;
}
