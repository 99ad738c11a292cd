//! SND-01 and SND-13: the buffer of a send cannot be freed or changed before the send is complete.

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
