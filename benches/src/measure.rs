//! One sample, on all ranks.

use std::ops::DerefMut;

use portolan::{Comm, Device, Error, ErrorKind, Op, Result};
use portolan::{Level, Multiple};

use crate::gpu::GpuBuffers;
use crate::pattern::Pool;
use crate::waiting::Waiting;
use crate::{Buffers, Pattern, Plan, Role, Steps, collective, direct, many};

/// The parameters of a sample, except for the size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// What is measured.
    pub pattern: Pattern,
    /// Messages in a window.
    pub window: u32,
    /// Buffers from which the messages of a window come in turn, and as many into which they go.
    /// Patterns without windows use the first.
    pub buffers: u32,
    /// The buffers are memory of [`Comm::alloc`] ([`Pattern::allocates`]).
    pub allocated: bool,
    /// The buffers are memory of CUDA GPUs, which the ranks of a node take in turn
    /// ([`Pattern::has_gpu_buffers`]). `allocated` has no effect then.
    pub cuda: bool,
    /// The messages of a window are started in a scope ([`Comm::scope`]), with a buffer for each of
    /// them ([`Pattern::has_windows`]). Otherwise windows call the device.
    pub scoped: bool,
    /// Time that a sample may take, in seconds: if the planned rounds would take longer, there are
    /// fewer. [`Pattern::Idle`] waits that long.
    pub limit: f64,
    /// Threads of a rank ([`Pattern::Multithread`]).
    pub threads: u32,
    /// When the job was started, in nanoseconds of the
    /// [clock](crate::process::monotonic_nanoseconds) that all processes share
    /// ([`Pattern::Startup`]).
    pub begun: u64,
}

impl Setup {
    /// The default: windows of 64 from one buffer, one second, two threads, and a job that starts
    /// now.
    #[must_use]
    pub fn usual(pattern: Pattern) -> Self {
        Self {
            pattern,
            window: 64,
            buffers: 1,
            allocated: false,
            cuda: false,
            scoped: false,
            limit: 1.0,
            threads: 2,
            begun: crate::process::monotonic_nanoseconds(),
        }
    }
}

/// The result of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// As in the plan.
    pub bytes: usize,
    /// In the pattern's unit. Over pairs of ranks it is the mean, or the sum for bandwidths and
    /// rates; over ranks it is the mean, or the greatest for times to start.
    pub value: f64,
    /// Rounds that were timed.
    pub rounds: u64,
}

/// Takes one sample. Collective; the arguments are the same on every rank.
///
/// The device measures the time, so a device with virtual time gives virtual time. The C programs
/// under `peers/` do the same step by step.
///
/// # Errors
/// [`Exhausted`](ErrorKind::Exhausted) if there is no memory for the messages;
/// [`InvalidArgument`](ErrorKind::InvalidArgument) for [`Pattern::Multithread`], which
/// [`measure_threads`] measures, for buffers on GPUs or scopes in a pattern that cannot have them,
/// and for scopes with fewer buffers than a window has messages;
/// [`UnsupportedMemory`](ErrorKind::UnsupportedMemory) for buffers on GPUs where there is no driver
/// or no GPU; those of the pattern.
pub fn measure<L: Level, D: Device + 'static>(
    comm: &Comm<L, D>,
    setup: &Setup,
    plan: &Plan,
) -> Result<Sample> {
    check(setup)?;
    let role = Role::of(comm.rank(), comm.size());
    match setup.pattern {
        Pattern::Multithread => {
            let what = "several threads cannot share a communicator of level Single";
            let error = Error::new(ErrorKind::InvalidArgument, what);
            Err(error.remedy("open the job for multiple threads, and call measure_threads"))
        }
        Pattern::Overlap => {
            let (value, rounds) = direct::overlap(comm, role, setup, plan)?;
            pool(comm, setup.pattern, plan, value, rounds)
        }
        Pattern::Collective(which, form) => {
            let (value, rounds) = collective::figure(comm, which, form, setup, plan)?;
            pool(comm, setup.pattern, plan, value, rounds)
        }
        Pattern::Idle => {
            let value = direct::idle(comm, role, setup.limit)?;
            pool(comm, setup.pattern, plan, value, 1)
        }
        Pattern::Startup => {
            let value = direct::startup(comm, setup.begun)?;
            pool(comm, setup.pattern, plan, value, 1)
        }
        Pattern::MemoryRing | Pattern::MemoryAll => {
            let value = direct::memory(comm, setup.pattern)?;
            pool(comm, setup.pattern, plan, value, 1)
        }
        pattern => {
            let bytes = pattern.message_bytes(plan.bytes);
            let (out, mut aside) = ([0_u8; 8], [0_u8; 8]);
            let waiting = Waiting::put(comm, pattern, plan.bytes, &out, &mut aside)?;
            let steps = Steps::new(pattern, plan.bytes, setup.window);
            let (count, fill) = (setup.buffers, comm.rank() as u8);
            let (seconds, rounds) = if setup.cuda {
                let mut buffers = GpuBuffers::new(comm, count, bytes, fill)?;
                timed(comm, setup, plan, |rounds| {
                    steps.run_on_gpus(comm, rounds, &mut buffers)
                })?
            } else if setup.allocated {
                let mut buffers = Buffers::allocated(comm, count, bytes, fill)?;
                timed(comm, setup, plan, |rounds| {
                    run(comm, setup, &steps, rounds, &mut buffers)
                })?
            } else {
                let mut buffers = Buffers::several(count, bytes, fill)?;
                timed(comm, setup, plan, |rounds| {
                    run(comm, setup, &steps, rounds, &mut buffers)
                })?
            };
            waiting.take()?;
            let value = pattern.value(seconds, rounds, plan.bytes, setup.window);
            pool(comm, pattern, plan, value, rounds)
        }
    }
}

/// Refuses buffers and scopes that a pattern cannot have.
fn check(setup: &Setup) -> Result<()> {
    let (pattern, window, buffers) = (setup.pattern, setup.window, setup.buffers);
    let name = pattern.name();
    let (what, remedy) = if setup.cuda && !pattern.has_gpu_buffers() {
        (
            format!("{name} has no buffers that could be on a GPU"),
            "measure latency, bandwidth or bibandwidth",
        )
    } else if setup.scoped && !pattern.has_windows() {
        (
            format!("{name} has no windows that could be scopes"),
            "measure bandwidth, bibandwidth or rate",
        )
    } else if setup.scoped && setup.cuda {
        (
            "windows between GPUs are not measured in scopes".to_owned(),
            "measure them with buffers of the host",
        )
    } else if setup.scoped && buffers < window {
        (
            format!("the {window} messages of a scope cannot have {buffers} buffers"),
            "use one for each message",
        )
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::InvalidArgument, what).remedy(remedy))
}

/// Runs rounds as the setup says, with buffers of the host.
fn run<L: Level, D: Device>(
    comm: &Comm<L, D>,
    setup: &Setup,
    steps: &Steps,
    rounds: u64,
    buffers: &mut Buffers<impl DerefMut<Target = [u8]>>,
) -> Result<()> {
    if setup.scoped {
        steps.run_in_scopes(comm, rounds, buffers)
    } else {
        steps.run(comm, rounds, buffers)
    }
}

/// Takes one sample of [`Pattern::Multithread`]: each of `setup.threads` threads of a rank has a
/// thread of another rank as its partner, and all pairs talk at the same time.
///
/// # Errors
/// As [`measure`].
pub fn measure_threads<D: Device + Sync>(
    comm: &Comm<Multiple, D>,
    setup: &Setup,
    plan: &Plan,
) -> Result<Sample>
where
    Comm<Multiple, D>: Sync,
{
    let role = Role::of(comm.rank(), comm.size());
    let threads = setup.threads.max(1);
    let mut buffers = (0..threads)
        .map(|_| Buffers::new(plan.bytes, comm.rank() as u8))
        .collect::<Result<Vec<_>>>()?;
    let run = |rounds| many::run(comm, role, rounds, &mut buffers);
    let (seconds, rounds) = timed(comm, setup, plan, run)?;
    let value = setup
        .pattern
        .value(seconds, rounds, plan.bytes, setup.window);
    pool(comm, setup.pattern, plan, value, rounds)
}

/// Warms up, runs as many rounds as are planned and affordable, and returns the time and the number
/// of rounds.
pub(crate) fn timed<L: Level, D: Device>(
    comm: &Comm<L, D>,
    setup: &Setup,
    plan: &Plan,
    mut run: impl FnMut(u64) -> Result<()>,
) -> Result<(f64, u64)> {
    let mut timed = |rounds| -> Result<f64> {
        comm.barrier()?;
        let begun = comm.wtime();
        run(rounds)?;
        Ok(comm.wtime() - begun)
    };
    // Rank 0's clock decides for all ranks.
    let agree = |rounds| -> Result<u64> {
        let mut rounds = [rounds];
        comm.bcast(&mut rounds, 0)?;
        Ok(rounds[0])
    };
    // Even the warm-up may take too long: with a queue of 100,000 entries some peers need 20 ms a
    // message, and ranks that begin in step may fall out of it. So the warm-up grows only while it
    // is short.
    let mut last = (timed(1)?, 1);
    let (mut warm, mut spent) = (1, last.0);
    loop {
        let each = last.0 / last.1 as f64;
        let enough = warm >= plan.warm_up || spent > setup.limit / 2.0;
        let more = (2 * warm).min(plan.warm_up);
        let more = if enough {
            0
        } else {
            affordable(more, each, setup.limit / 4.0)
        };
        let more = agree(more)?;
        if more == 0 {
            break;
        }
        last = (timed(more)?, more);
        warm += more;
        spent += last.0;
    }
    let each = last.0 / last.1 as f64;
    let rounds = agree(affordable(plan.rounds, each, setup.limit))?;
    if rounds == 0 {
        // The last round of the warm-up is the sample: 100,000 matches take some peers minutes.
        return Ok(last);
    }
    Ok((timed(rounds)?, rounds))
}

/// Combines the figures of the ranks.
fn pool<L: Level, D: Device>(
    comm: &Comm<L, D>,
    pattern: Pattern,
    plan: &Plan,
    mine: f64,
    rounds: u64,
) -> Result<Sample> {
    let counts = pattern.counts(Role::of(comm.rank(), comm.size()));
    let mut sum = if counts { [mine, 1.0] } else { [0.0; 2] };
    let mut most = [if counts { mine } else { 0.0 }];
    comm.allreduce_in_place(&mut sum, &Op::SUM)?;
    comm.allreduce_in_place(&mut most, &Op::MAX)?;
    let value = match pattern.pool() {
        Pool::Mean => sum[0] / sum[1],
        Pool::Sum => sum[0],
        Pool::Most => most[0],
    };
    Ok(Sample {
        bytes: plan.bytes,
        value,
        rounds,
    })
}

/// The number of rounds of `each` seconds that fit into `limit`: at most `planned`, and none if one
/// round takes more than four times the limit.
pub(crate) fn affordable(planned: u64, each: f64, limit: f64) -> u64 {
    let room = limit / each;
    if room < 0.25 {
        return 0;
    }
    planned.min(room as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Form;

    #[test]
    fn rounds_fit_into_the_time() {
        assert_eq!(affordable(100, 1e-6, 1.0), 100);
        assert_eq!(affordable(100, 0.1, 1.0), 10);
        assert_eq!(affordable(100, 3.0, 1.0), 1);
        assert_eq!(affordable(100, 10.0, 1.0), 0);
        assert_eq!(affordable(100, 0.0, 1.0), 100);
    }

    fn setup(pattern: Pattern) -> Setup {
        Setup {
            window: 8,
            limit: 0.02,
            ..Setup::usual(pattern)
        }
    }

    fn expect_sample(pattern: Pattern, samples: &[Sample]) {
        let value = samples[0].value;
        assert!(value.is_finite() && value >= 0.0, "{pattern:?} {value}");
        // The hidden share and the processor time may be 0; every other figure is above 0.
        let may_be_nothing = matches!(
            pattern,
            Pattern::Overlap | Pattern::Idle | Pattern::Collective(_, Form::Hidden)
        );
        if !may_be_nothing {
            assert!(value > 0.0, "{pattern:?} {value}");
        }
        assert!(samples[0].rounds <= 20);
        assert!(samples.iter().all(|sample| *sample == samples[0]));
    }

    #[test]
    fn a_sample_is_the_same_on_every_rank() {
        let plan = Plan::with_rounds(16, 20);
        for pattern in Pattern::ALL {
            if pattern == Pattern::Multithread {
                continue;
            }
            let take = |world: portolan::World| measure(&world.comm(), &setup(pattern), &plan);
            expect_sample(pattern, &portolan::try_threads(4, take).unwrap());
        }
    }

    #[test]
    fn windows_in_scopes_have_a_buffer_for_each_message() {
        let plan = Plan::with_rounds(16, 20);
        let kind = |setup: Setup| {
            let refused = portolan::try_threads(2, |world| {
                let refused = measure(&world.comm(), &setup, &plan);
                Ok(refused.map(drop).map_err(|error| error.kind()))
            });
            refused.unwrap()[0]
        };
        for pattern in Pattern::ALL.into_iter().filter(|it| it.has_windows()) {
            let scoped = Setup {
                scoped: true,
                buffers: 8,
                ..setup(pattern)
            };
            for allocated in [false, true] {
                let setup = Setup {
                    allocated,
                    ..scoped
                };
                let take = |world: portolan::World| measure(&world.comm(), &setup, &plan);
                expect_sample(pattern, &portolan::try_threads(4, take).unwrap());
            }
            let few = Setup {
                buffers: 7,
                ..scoped
            };
            assert_eq!(kind(few), Err(ErrorKind::InvalidArgument));
            let cuda = Setup {
                cuda: true,
                ..scoped
            };
            assert_eq!(kind(cuda), Err(ErrorKind::InvalidArgument));
        }
        let none = Setup {
            scoped: true,
            ..setup(Pattern::Latency)
        };
        assert_eq!(kind(none), Err(ErrorKind::InvalidArgument));
    }

    #[test]
    fn threads_are_measured_where_they_may_call() {
        let plan = Plan::with_rounds(16, 20);
        let setup = setup(Pattern::Multithread);
        let samples = portolan::Builder::new()
            .multiple()
            .try_threads(2, |world| measure_threads(&world.comm(), &setup, &plan))
            .unwrap();
        expect_sample(Pattern::Multithread, &samples);
        let refused = portolan::try_threads(2, |world| {
            let refused = measure(&world.comm(), &setup, &plan);
            Ok(refused.map_err(|error| error.kind()))
        });
        assert_eq!(refused.unwrap()[0], Err(ErrorKind::InvalidArgument));
    }
}
