//! SND-08: a type with pointers into one rank's memory is not plain data.

fn exchange(comm: &portolan::Comm, words: &[String]) -> portolan::Result<()> {
    comm.send(words, 0, 0)
}

fn main() {
    let _ = exchange;
}
