//! One thread steps both ranks of a job, so that instructions can be counted.
//!
//! `step WHAT ROUNDS` sends ROUNDS messages of 8 bytes over shared memory, after as many to warm
//! up. WHAT is the step to count: a tool that counts the instructions below `measured_WHAT` must
//! run this program. `cargo xtask instructions` does so with callgrind. The steps and their order
//! are the same whichever is counted.

use std::hint::black_box;
use std::process::ExitCode;

use portolan::{Builder, Comm, RecvRequest, Result, SendRequest};

/// The steps that can be counted, each called once in a round.
const STEPS: [&str; 5] = ["send", "recv", "post", "start", "finish"];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let parsed = match &words[..] {
        [what, rounds] if STEPS.contains(&what.as_str()) => rounds.parse().ok(),
        _ => None,
    };
    let Some(rounds) = parsed.filter(|&rounds: &u32| rounds > 0) else {
        complain(&format!("usage: step {} ROUNDS", STEPS.join("|")));
        return ExitCode::from(2);
    };
    match run(&words[0], rounds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "this is where it talks to its user")]
fn complain(text: &str) {
    eprintln!("step: {text}");
}

fn run(what: &str, rounds: u32) -> Result<()> {
    let worlds = Builder::new().transport("shm").in_process(2)?;
    let (zero, one) = (worlds[0].comm(), worlds[1].comm());
    let counted = |name| what == name;
    let (mut to, mut from) = (vec![0_u64], vec![1_u64]);
    let mut buffer = [0_u64];
    for round in 0..2 * rounds {
        // The first half of the rounds is the warm-up.
        let measured = |name| counted(name) && round >= rounds;
        if measured("send") {
            measured_send(&zero, &[u64::from(round)])?;
        } else {
            zero.send(&[u64::from(round)], 1, 0)?;
        }
        if measured("recv") {
            measured_recv(&one, &mut buffer)?;
        } else {
            one.recv_into(&mut buffer, 0, 0)?;
        }
        assert_eq!(buffer, [u64::from(round)]);

        let incoming = if measured("post") {
            measured_post(&one, to)?
        } else {
            one.irecv_owned(to, 0, 0)?
        };
        let outgoing = if measured("start") {
            measured_start(&zero, from)?
        } else {
            zero.isend_owned(from, 1, 0)?
        };
        from = outgoing.wait()?.buf;
        to = if measured("finish") {
            measured_finish(incoming)?
        } else {
            incoming.wait()?.buf
        };
        assert_eq!(to, from);
        from[0] = u64::from(round);
    }
    Ok(())
}

/// A blocking send.
#[inline(never)]
fn measured_send(comm: &Comm, data: &[u64]) -> Result<()> {
    black_box(comm.send(black_box(data), 1, 0))
}

/// A blocking receive of a message that has arrived.
#[inline(never)]
fn measured_recv(comm: &Comm, buffer: &mut [u64]) -> Result<()> {
    black_box(comm.recv_into(black_box(buffer), 0, 0)).map(drop)
}

/// The start of a nonblocking receive.
#[inline(never)]
fn measured_post(comm: &Comm, buffer: Vec<u64>) -> Result<RecvRequest<Vec<u64>>> {
    black_box(comm.irecv_owned(black_box(buffer), 0, 0)).map_err(Into::into)
}

/// The start of a nonblocking send.
#[inline(never)]
fn measured_start(comm: &Comm, buffer: Vec<u64>) -> Result<SendRequest<Vec<u64>>> {
    black_box(comm.isend_owned(black_box(buffer), 1, 0)).map_err(Into::into)
}

/// The end of a nonblocking receive whose message has arrived.
#[inline(never)]
fn measured_finish(request: RecvRequest<Vec<u64>>) -> Result<Vec<u64>> {
    Ok(black_box(black_box(request).wait())?.buf)
}
