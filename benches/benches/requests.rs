//! A round trip of 8 bytes in each form of the interface, to show the cost of requests.

mod common;

use common::between_two;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use portolan::{Comm, Result};

/// One form: repeats its rounds, on either side.
type Form = fn(&Comm, u64) -> Result<()>;

const FORMS: [(&str, Form); 4] = [
    ("blocking", blocking),
    ("scope", scoped),
    ("owned", owned),
    ("persistent", persistent),
];

fn blocking(comm: &Comm, rounds: u64) -> Result<()> {
    let (mut buffer, peer) = ([0_u64], 1 - comm.rank());
    for _ in 0..rounds {
        if comm.rank() == 0 {
            comm.send(&buffer, peer, 0)?;
            comm.recv_into(&mut buffer, peer, 0)?;
        } else {
            comm.recv_into(&mut buffer, peer, 0)?;
            comm.send(&buffer, peer, 0)?;
        }
    }
    Ok(())
}

fn scoped(comm: &Comm, rounds: u64) -> Result<()> {
    let (out, mut back, peer) = ([0_u64], [0_u64], 1 - comm.rank());
    for _ in 0..rounds {
        comm.scope(|scope| {
            let incoming = scope.recv(&mut back, peer, 0)?;
            if comm.rank() == 0 {
                scope.send(&out, peer, 0)?;
                incoming.wait()?;
            } else {
                incoming.wait()?;
                scope.send(&out, peer, 0)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn owned(comm: &Comm, rounds: u64) -> Result<()> {
    let (mut out, mut back, peer) = (vec![0_u64], vec![0_u64], 1 - comm.rank());
    for _ in 0..rounds {
        let incoming = comm.irecv_owned(back, peer, 0)?;
        if comm.rank() == 0 {
            out = comm.isend_owned(out, peer, 0)?.wait()?.buf;
            back = incoming.wait()?.buf;
        } else {
            back = incoming.wait()?.buf;
            out = comm.isend_owned(out, peer, 0)?.wait()?.buf;
        }
    }
    Ok(())
}

fn persistent(comm: &Comm, rounds: u64) -> Result<()> {
    let peer = 1 - comm.rank();
    let mut outgoing = comm.send_init(vec![0_u64], peer, 0)?;
    let mut incoming = comm.recv_init(vec![0_u64], peer, 0)?;
    for _ in 0..rounds {
        incoming.start()?;
        if comm.rank() == 0 {
            outgoing.start()?;
            outgoing.wait()?;
            incoming.wait()?;
        } else {
            incoming.wait()?;
            outgoing.start()?;
            outgoing.wait()?;
        }
    }
    Ok(())
}

fn requests(c: &mut Criterion) {
    let mut group = c.benchmark_group("requests");
    for transport in common::transports() {
        for (name, form) in FORMS {
            group.bench_function(BenchmarkId::new(transport, name), |bencher| {
                bencher.iter_custom(|rounds| between_two(transport, rounds, form));
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = common::quick();
    targets = requests
}
criterion_main!(benches);
