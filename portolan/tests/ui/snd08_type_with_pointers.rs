//! SND-08: what points to memory of one rank is no plain data.

fn exchange(comm: &portolan::Comm, words: &[String]) -> portolan::Result<()> {
    comm.send(words, 0, 0)
}

fn main() {
    let _ = exchange;
}
