//! A buffer that others can read cannot be received into.

fn exchange(comm: &portolan::Comm, shared: std::sync::Arc<[u8]>) {
    let _ = comm.irecv_owned(shared, 0, 0);
}

fn main() {
    let _ = exchange;
}
