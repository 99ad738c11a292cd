//! The list of cases as `#[test]` functions.

use std::io::Write;

use crate::case::{CaseFn, Skip, Verdict, cases};
use crate::erased::Erased;
use crate::rank::Rank;
use crate::sut::{Job, Sut};
use crate::watchdog::Watchdog;

/// Makes the tests of a backend: `suite!(Sut)` at 1, 2, 3, 4, 5 and 8 ranks; `suite!(Sut, few)` at
/// 2 and 3 ranks, for variants of a backend that is already tested in full.
///
/// The tests are in one module per subject, next to the invocation.
#[macro_export]
macro_rules! suite {
    ($sut:ty) => {
        $crate::with_cases!(tests { full, $sut });
    };
    ($sut:ty, few) => {
        $crate::with_cases!(tests { few, $sut });
    };
}

/// The list of cases, each with the least number of ranks that it needs.
#[doc(hidden)]
#[macro_export]
macro_rules! with_cases {
    ($mode:ident $arguments:tt) => {
        $crate::expand_cases! {
            $mode $arguments
            cases {
                lifecycle {
                    attributes 1, clocks 1, agreement 1, state_for_people 1, debug_switches 1,
                    packet_size 1,
                }
                contiguous {
                    blocking_in_every_mode 1, nonblocking_in_every_mode 1, every_size 1,
                    empty_messages 1, sixty_four_mebibytes 1, more_than_four_gibibytes 1,
                    everybody_to_everybody 1,
                }
                allocated {
                    blocking 2, nonblocking_both_ways 1, unexpected 1,
                }
                order {
                    across_sizes 1, nonblocking_across_sizes 1, bursts 1, posted_receives 1,
                    tags_choose 1, wildcards_and_exact 1,
                }
                matching {
                    wildcards 1, contexts 1, to_oneself 1, extreme_tags 1, shorter_messages 1,
                }
                probing {
                    nothing_there 1, probe_keeps_the_message 1, probe_sees_the_earliest 1,
                    matched 1, taken_messages_are_gone 1, discarded 1, stale_messages 1,
                    wildcards 1,
                }
                modes {
                    synchronous 1, ready 1, buffered 1, standard_completes_when_small 1,
                }
                truncation {
                    blocking 1, nonblocking 1, layouts 1,
                }
                signatures {
                    mismatch 1, bytes_match_everything 1, mixed_types 1,
                }
                layouts {
                    vector 1, indexed 1, structure 1, negative_displacements 1,
                    one_side_only 1, defaults 1, freed_early 1, blocking 1,
                }
                representation {
                    actions 1, foreign_sender 1, external32 1, packed_data 1,
                }
                requests {
                    stale 1, forged 1, null 1, test_and_peek 1, free_while_active 1,
                    attached 1, many_in_turn 1, any_order 1,
                }
                completion {
                    wait_any 1, wait_all 1, wait_some 1, test_any_and_all 1, errors_in_wait_all 1,
                }
                cancel {
                    receive 1, matched_receive 1, receive_among_many 1, send 1,
                }
                persistent {
                    receive_with_wildcards 1, send 1, misuse 1, cancelled 1,
                }
                uppers {
                    completed 1, cancelled 1, completed_by_a_hook 1, done_at_once 1,
                }
                exposing {
                    calls 2, hooks 2, handlers 2,
                }
                hooks {
                    ring 1, several 1, asleep 1, truncated 1, any_error 1, cancelled 1,
                    by_handlers 1, clock 1,
                }
                memory {
                    tokens 1, everybody 1, at_once 1, progress 1,
                }
                progress {
                    epoch 1, blocking_check 1, no_lost_wakeups 1, blocked_while_others_talk 1,
                }
                active {
                    order 1, kept_until_registered 1, errors 1, to_oneself 1, flood_with_replies 1,
                    everybody_floods 1, while_blocked 1, hooks 1,
                }
                one_sided {
                    put_and_get 1, registered 1, sizes 1, fetch_and_add 1, atomics 1,
                    bounds 1, forged_keys 1, freed 1, direct 1,
                }
                comms {
                    init_and_free 1, reversed 1, context_in_use 1, created 1, created_by_some 1,
                    freed_early 1, alone 1, neighbours 1, between_groups 2,
                }
                collectives {
                    barrier 1, bcast 1, gather 1, scatter 1, allgather 1, alltoall 1, reduce 1,
                    allreduce 1, reduce_scatter 1, scan 1, every_way 1, in_flight 1, neighbours_on_grids 1,
                    neighbours_in_graphs 1, neighbours_of_other_lengths 2, two_groups_move 2, two_groups_reduce 2,
                    two_groups_bad_arguments 2, two_groups_disagree 2,
                    empty_for_one_side 2,
                    reproducible 1, bad_arguments 1,
                }
                capabilities {
                    processes 2, direct 1, cancel 1, pull 2, native_matching 1,
                }
                accelerators {
                    around_a_ring 1, with_the_host 1, errors 1, one_sided 1, regions 1, capability 1,
                }
                checked {
                    arguments 1,
                }
                stress {
                    unexpected_messages 1, soak 1, requests_run_out 1,
                    taken_when_requests_run_out 2,
                }
            }
            jobs {
                failure {
                    waiting_receives 2, wildcards 2, sends 2, probes_and_active 2,
                    what_was_sent_arrives 2, the_rest_talk 3, the_end 2, collective_contexts 3,
                    while_spinning 2, hooks 2,
                }
                waits_on_memory {
                    asleep 1, awake 1, threads 1, death 2,
                }
                bounded {
                    flood 2, tiny_packets 1,
                }
                threads {
                    blocked_testing_and_traffic 1, one_queue_each 1, probed_oneself 1, communicators 2, capability 1, rings 1,
                }
            }
        }
    };
}

/// Expands the list, for [`with_cases`].
#[doc(hidden)]
#[macro_export]
macro_rules! expand_cases {
    (registry {}
        cases { $($subject:ident { $($case:ident $min:tt),* $(,)? })* } jobs $jobs:tt) => {
        vec![$($(
            $crate::Case {
                name: concat!(stringify!($subject), "::", stringify!($case)),
                min_ranks: $min,
                run: |rank| $crate::subjects::$subject::$case(rank),
            },
        )*)*]
    };
    (jobs {} cases $cases:tt jobs { $($subject:ident { $($case:ident $min:tt),* $(,)? })* }) => {
        &[$($( concat!(stringify!($subject), "::", stringify!($case)), )*)*]
    };
    (tests {$which:ident, $sut:ty}
        cases { $($subject:ident { $($case:ident $min:tt),* $(,)? })* }
        jobs { $($job_subject:ident { $($job:ident $job_min:tt),* $(,)? })* }) => {
        $(mod $subject {
            $(mod $case {
                #[allow(unused_imports)]
                use super::super::*;
                $crate::at_ranks!($which $min run_case($sut, $subject, $case,
                    $crate::case(concat!(stringify!($subject), "::", stringify!($case)))));
            })*
        })*
        $(mod $job_subject {
            $(mod $job {
                #[allow(unused_imports)]
                use super::super::*;
                $crate::at_ranks!($which $job_min run_job($sut, $job_subject, $job,
                    $crate::jobs::$job_subject::$job::<$sut>));
            })*
        })*
        mod one_job {
            #[allow(unused_imports)]
            use super::*;

            /// Every case, one after the other, in one job: no case may leave anything behind.
            #[test]
            fn every_case() {
                $crate::run_cases_in_one_job::<$sut>(3);
            }
        }
    };
}

/// The tests of one case, for [`expand_cases`].
#[doc(hidden)]
#[macro_export]
macro_rules! at_ranks {
    (full 1 $($run:tt)*) => {
        $crate::at_ranks!(@ $($run)*; ranks_1 1, ranks_2 2, ranks_3 3, ranks_4 4, ranks_5 5, ranks_8 8);
    };
    (full 2 $($run:tt)*) => {
        $crate::at_ranks!(@ $($run)*; ranks_2 2, ranks_3 3, ranks_4 4, ranks_5 5, ranks_8 8);
    };
    (full 3 $($run:tt)*) => {
        $crate::at_ranks!(@ $($run)*; ranks_3 3, ranks_4 4, ranks_5 5, ranks_8 8);
    };
    (few 3 $($run:tt)*) => { $crate::at_ranks!(@ $($run)*; ranks_3 3); };
    (few $min:tt $($run:tt)*) => { $crate::at_ranks!(@ $($run)*; ranks_2 2, ranks_3 3); };
    (@ $run:ident($sut:ty, $subject:ident, $case:ident, $body:expr); $($name:ident $ranks:literal),*) => {
        $(
            #[test]
            fn $name() {
                let name = concat!(stringify!($subject), "::", stringify!($case));
                $crate::$run::<$sut>(name, $ranks, $body);
            }
        )*
    };
}

/// Runs a case in a job of its own.
///
/// # Panics
/// If the case fails.
pub fn run_case<S: Sut>(name: &str, ranks: u32, case: CaseFn) {
    if let Some(why) = S::missing() {
        return tell::<S>(name, ranks, &Err(Skip(why)));
    }
    let _watchdog = Watchdog::new(&title::<S>(name, ranks));
    let verdicts = S::run(&Job::new(ranks), |device| {
        case(&Rank::new(&Erased::new(device), 0))
    });
    assert_eq!(
        verdicts.len(),
        ranks as usize,
        "{} ran other ranks than asked for",
        S::NAME
    );
    assert!(
        verdicts.iter().all(|v| *v == verdicts[0]),
        "skipped by some ranks: {verdicts:?}"
    );
    tell::<S>(name, ranks, &verdicts[0]);
}

/// Runs a test that makes its own jobs.
///
/// # Panics
/// If the test fails.
pub fn run_job<S: Sut>(name: &str, ranks: u32, test: fn(u32) -> Verdict) {
    if let Some(why) = S::missing() {
        return tell::<S>(name, ranks, &Err(Skip(why)));
    }
    let _watchdog = Watchdog::new(&title::<S>(name, ranks));
    tell::<S>(name, ranks, &test(ranks));
}

/// Runs every case in one job, one after the other, and prints the counts.
///
/// # Panics
/// If a case fails, or none ran.
pub fn run_cases_in_one_job<S: Sut>(ranks: u32) {
    if let Some(why) = S::missing() {
        return tell::<S>("every case", ranks, &Err(Skip(why)));
    }
    let counts = S::run(&Job::new(ranks), |device| {
        let (mut passed, mut skipped) = (0_u32, Vec::new());
        let device = Erased::new(device);
        for (case, number) in cases().iter().zip(0..) {
            let _watchdog = Watchdog::new(&title::<S>(case.name, ranks));
            if ranks < case.min_ranks {
                skipped.push(case.name);
                continue;
            }
            match (case.run)(&Rank::new(&device, number)) {
                Ok(()) => passed += 1,
                Err(_) => skipped.push(case.name),
            }
        }
        (passed, skipped)
    });
    let (passed, skipped) = &counts[0];
    assert!(*passed > 0, "no case ran");
    say(&format!(
        "summary: {} at {ranks} ranks in one job: {passed} cases passed, {} skipped {skipped:?}",
        S::NAME,
        skipped.len(),
    ));
}

fn title<S: Sut>(name: &str, ranks: u32) -> String {
    format!("{} {name} at {ranks} ranks", S::NAME)
}

fn tell<S: Sut>(name: &str, ranks: u32, verdict: &Verdict) {
    if let Err(skip) = verdict {
        say(&format!("skipped: {}: {}", title::<S>(name, ranks), skip.0));
    }
}

/// Writes a line directly to standard error: the test harness would hide the output of tests that
/// pass.
fn say(line: &str) {
    // If standard error is closed, the line is lost.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
