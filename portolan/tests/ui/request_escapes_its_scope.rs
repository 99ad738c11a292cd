//! A request on a borrowed buffer cannot outlive its scope.

fn exchange(comm: &portolan::Comm) -> portolan::Result<()> {
    let mut buf = [0u8; 4];
    let incoming = comm.scope(|s| s.recv(&mut buf, 0, 0))?;
    incoming.wait().map(drop)
}

fn main() {
    let _ = exchange;
}
