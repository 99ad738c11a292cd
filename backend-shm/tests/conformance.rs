//! The conformance suite on shared memory, with threads as ranks; over processes, see
//! `examples/conformance_rank.rs`.

use portolan_conformance::{Job, Over, Transports, suite};
use portolan_core::transport::decorate::{Decorated, Unreach};
use portolan_shm::Shm;

/// Ranks of one process, over the same structures that processes use.
struct InProcess;

impl Transports for InProcess {
    type Transport = Shm;

    const NAME: &'static str = "shm";

    fn open(job: &Job) -> Vec<Shm> {
        portolan_shm::in_process(job.ranks, &job.settings).expect("shared memory for a job")
    }
}

#[test]
fn a_rank_that_leaves() {
    portolan_conformance::leaving::<InProcess>();
}

mod full {
    use super::*;
    suite!(Over<InProcess>);
}

/// The smallest rings and areas that settings allow, which are full most of the time.
struct Cramped;

impl Transports for Cramped {
    type Transport = Shm;

    const NAME: &'static str = "shm, cramped";

    fn open(job: &Job) -> Vec<Shm> {
        let job = job.clone().set("SHM_RING", "4k").set("SHM_BULK", "16k");
        let job = job.set("TAKE_LINES", "off");
        portolan_shm::in_process(job.ranks, &job.settings).expect("shared memory for a job")
    }
}

mod cramped {
    use super::*;
    suite!(Over<Cramped>, few);
}

/// Receivers take the lines that they have read, and rings and areas start over, whatever the
/// processor is.
struct Taken;

impl Transports for Taken {
    type Transport = Shm;

    const NAME: &'static str = "shm, lines taken";

    fn open(job: &Job) -> Vec<Shm> {
        let job = job.clone().set("TAKE_LINES", "on");
        portolan_shm::in_process(job.ranks, &job.settings).expect("shared memory for a job")
    }
}

mod taken {
    use super::*;
    suite!(Over<Taken>, few);
}

/// Messages of every length by the pipelined copy, none read from the sender's memory.
struct Streamed;

impl Transports for Streamed {
    type Transport = Shm;

    const NAME: &'static str = "shm, streamed";

    fn open(job: &Job) -> Vec<Shm> {
        let job = job.clone().set("SHM_CMA", "off").set("TAKE_LINES", "on");
        portolan_shm::in_process(job.ranks, &job.settings).expect("shared memory for a job")
    }
}

mod streamed {
    use super::*;
    suite!(Over<Streamed>, few);
}

/// Bytes of the first read of a long message whose sender is absent and could not stream it; that
/// read is not refused.
const FIRST_TURN: usize = 64 << 10;

/// The receiver reads long messages from the sender's memory, and the sender writes them to the
/// receiver's. Both are refused now and then, even in the middle of a message.
struct Reached;

impl Transports for Reached {
    type Transport = Decorated<Shm, Unreach>;

    const NAME: &'static str = "shm, reached";

    fn open(job: &Job) -> Vec<Self::Transport> {
        let job = job.clone().set("SHM_CMA", "on");
        let ranks = portolan_shm::in_process(job.ranks, &job.settings);
        let ranks = ranks.expect("shared memory for a job").into_iter();
        ranks
            .zip(0..)
            .map(|(rank, n)| Decorated::new(rank, Unreach::new(n, 4, FIRST_TURN)))
            .collect()
    }
}

mod reached {
    use super::*;
    suite!(Over<Reached>, few);
}
