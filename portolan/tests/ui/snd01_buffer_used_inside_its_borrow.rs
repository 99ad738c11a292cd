//! SND-01: the buffer of a receive cannot be read before the receive is complete.

fn exchange(comm: &portolan::Comm) -> portolan::Result<()> {
    let mut buf = [0u8; 4];
    comm.scope(|s| {
        let incoming = s.recv(&mut buf, 0, 0)?;
        println!("{buf:?}");
        incoming.wait().map(drop)
    })
}

fn main() {
    let _ = exchange;
}
