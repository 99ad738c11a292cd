//! A matched message can be received only once.

fn exchange(comm: &portolan::Comm) -> portolan::Result<()> {
    let message = comm.match_recv(0, 0)?;
    message.recv::<u8>()?;
    message.recv::<u8>()?;
    Ok(())
}

fn main() {
    let _ = exchange;
}
