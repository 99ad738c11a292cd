//! SND-01 and SND-13: the buffer of a send cannot go or change before the send is over.

fn exchange(comm: &portolan::Comm) -> portolan::Result<()> {
    let mut buf = vec![0u8; 4];
    comm.scope(|s| {
        let outgoing = s.send(&buf, 0, 0)?;
        buf.push(1);
        outgoing.wait().map(drop)
    })
}

fn main() {
    let _ = exchange;
}
