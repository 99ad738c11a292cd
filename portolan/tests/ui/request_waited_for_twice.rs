//! COR-02: a request is used up by waiting, so a stale one cannot be waited for.

fn exchange(comm: &portolan::Comm) -> portolan::Result<()> {
    let incoming = comm.irecv_owned(vec![0u8; 4], 0, 0)?;
    incoming.wait()?;
    incoming.wait()?;
    Ok(())
}

fn main() {
    let _ = exchange;
}
