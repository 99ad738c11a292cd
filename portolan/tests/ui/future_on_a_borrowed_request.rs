//! A future may be forgotten at any await, so a request on a borrowed buffer cannot be one.

async fn exchange(comm: &portolan::Comm, buf: &mut [u8]) {
    let _ = comm.scope(|s| {
        let incoming = s.recv(buf, 0, 0)?;
        let _ = async move { incoming.await };
        Ok(())
    });
}

fn main() {
    let _ = exchange;
}
