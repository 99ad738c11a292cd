//! A request that may outlive the function cannot borrow from it.

fn exchange(comm: &portolan::Comm) -> portolan::Result<()> {
    let data = [1u8, 2, 3];
    let outgoing = comm.isend_owned(&data[..], 0, 0)?;
    outgoing.wait()?;
    Ok(())
}

fn main() {
    let _ = exchange;
}
