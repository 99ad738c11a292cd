//! The examples with threads as ranks; those on the bare device need processes.

// Tests print why they are skipped here.
#![allow(clippy::print_stderr)]

mod networks;

// The programs unchanged, with a `main` that is not called here.
#[allow(dead_code)]
#[path = "../src/bin/hello.rs"]
mod hello;
#[allow(dead_code)]
#[path = "../src/bin/master_worker.rs"]
mod master_worker;
#[allow(dead_code)]
#[path = "../src/bin/own_transport.rs"]
mod own_transport;
#[allow(dead_code)]
#[path = "../src/bin/ring.rs"]
mod ring;
#[allow(dead_code)]
#[path = "../src/bin/rod.rs"]
mod rod;
#[allow(dead_code)]
#[path = "../src/bin/tasks.rs"]
mod tasks;

use portolan::{Builder, ErrorKind};
use portolan_examples::heat::{self, HeatConfig, HeatReport};
use portolan_examples::least_squares::{Problem, solve};
use portolan_examples::{poisson, sample_sort, spectrum};

const SIZES: [u32; 6] = [1, 2, 3, 4, 5, 8];

fn heat_on(ranks: u32, size: usize, steps: u32) -> Vec<HeatReport> {
    let config = HeatConfig { size, steps };
    portolan::try_threads(ranks, |world| heat::run(&world.comm(), &config, |_| {})).unwrap()
}

#[test]
fn heat_is_the_same_bit_for_bit_on_any_number_of_ranks() {
    let alone = heat_on(1, 41, 60).swap_remove(0).field.unwrap();
    assert_ne!(alone.start, alone.end);
    for ranks in SIZES {
        let mut reports = heat_on(ranks, 41, 60);
        for report in &reports {
            assert!(report.is_right(), "{ranks} ranks: {report:?}");
            assert_eq!(report.blocks.0 * report.blocks.1, ranks);
            assert_eq!(report.error, reports[0].error);
        }
        assert!(reports[0].field.take().unwrap() == alone, "{ranks} ranks");
        assert!(reports.iter().all(|report| report.field.is_none()));
    }
}

#[test]
fn the_smallest_plates_work() {
    for (ranks, size) in [(1, 1), (1, 2), (2, 2), (4, 2), (3, 3), (8, 4)] {
        assert!(
            heat_on(ranks, size, 7)[0].is_right(),
            "{ranks} ranks, size {size}"
        );
    }
    let report = heat_on(2, 5, 0).swap_remove(0);
    let field = report.field.unwrap();
    assert_eq!((report.error, field.start == field.end), (0.0, true));
}

#[test]
fn a_wrong_result_is_noticed() {
    let mut report = heat_on(1, 20, 20).swap_remove(0);
    report.error = 1.01 * report.error_bound;
    assert!(!report.is_right());
    report.error = f64::NAN;
    assert!(!report.is_right());
}

#[test]
fn progress_ends_with_the_last_step() {
    let config = HeatConfig {
        size: 12,
        steps: 250,
    };
    let heard = portolan::try_threads(2, |world| {
        let mut heard = Vec::new();
        heat::run(&world.comm(), &config, |step| heard.push(step))?;
        Ok(heard)
    });
    for steps in heard.unwrap() {
        assert_eq!((steps[0], steps.len(), steps.last()), (2, 125, Some(&250)));
    }
}

#[test]
fn a_plate_without_a_point_for_each_rank_is_refused() {
    let config = HeatConfig { size: 4, steps: 1 };
    let run = |world: portolan::World| heat::run(&world.comm(), &config, |_| {});
    let error = portolan::try_threads(5, run).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(
        error.to_string().contains("choose a size of 5 or more"),
        "{error}"
    );
}

#[test]
fn least_squares_finds_the_known_solution_on_any_number_of_ranks() {
    // The last job has more ranks than rows.
    for (ranks, columns) in SIZES.map(|ranks| (ranks, 60)).into_iter().chain([(5, 2)]) {
        let (_, expected) = Problem::generate(columns);
        let found = portolan::try_threads(ranks, |world| {
            let comm = world.comm();
            let problem = (comm.rank() == 0).then(|| Problem::generate(columns).0);
            let block = Problem::distribute(&comm, problem)?;
            solve(&comm, &block, 1e-12, 1000)
        });
        for solution in found.unwrap() {
            assert!(solution.optimality <= 1e-12, "{ranks} ranks: {solution:?}");
            for (x, e) in solution.x.iter().zip(&expected) {
                assert!((x - e).abs() < 1e-9, "{ranks} ranks: {x} instead of {e}");
            }
        }
    }
}

#[test]
fn too_few_iterations_are_told() {
    let found = portolan::try_threads(2, |world| {
        let comm = world.comm();
        let problem = (comm.rank() == 0).then(|| Problem::generate(60).0);
        solve(&comm, &Problem::distribute(&comm, problem)?, 1e-12, 3)
    });
    let found = found.unwrap().swap_remove(0);
    assert_eq!(found.iterations, 3);
    assert!(
        found.optimality > 1e-12 && found.optimality < 1.0,
        "{found:?}"
    );
}

#[test]
fn a_transport_of_ones_own_carries_messages() {
    for ranks in SIZES {
        let sum = u64::from(ranks * (ranks - 1) / 2);
        assert_eq!(own_transport::job(ranks).unwrap(), sum, "{ranks} ranks");
    }
}

/// Over the first version of the library only, because this process does not load the second one
/// beside it. Over the second one, `cargo xtask test` runs the conformance suite with threads as
/// ranks, and the tests in `run/` run the examples with processes.
#[test]
fn every_example_is_right_over_libfabric() {
    let networks = networks::networks().into_iter();
    let first = |network: &networks::Network| {
        !network
            .settings
            .iter()
            .any(|(name, _)| *name == "OFI_LIBRARY")
    };
    for network in networks.filter(first) {
        if let Some(why) = &network.missing {
            eprintln!("skipped: {}: {why}", network.name);
            continue;
        }
        let job = || {
            let settings = network.settings.iter();
            settings.fold(Builder::new(), |job, (name, value)| {
                job.setting(name, value)
            })
        };
        for ranks in [2, network.most.min(5)] {
            // They panic if they receive wrong data; `hello` only prints.
            job().try_threads(ranks, hello::hello).unwrap();
            job().try_threads(ranks, ring::ring).unwrap();
            job().try_threads(ranks, rod::rod).unwrap();
            job().try_threads(ranks, master_worker::program).unwrap();
            job().multiple().try_threads(ranks, tasks::program).unwrap();
            let right = job().try_threads(ranks, |world| {
                let comm = world.comm();
                let config = HeatConfig {
                    size: 23,
                    steps: 20,
                };
                let problem = (comm.rank() == 0).then(|| Problem::generate(40).0);
                let block = Problem::distribute(&comm, problem)?;
                let numbers = sample_sort::generate(501, comm.rank(), ranks);
                let sorted = sample_sort::sort(&comm, numbers)?;
                Ok([
                    heat::run(&comm, &config, |_| {})?.is_right(),
                    solve(&comm, &block, 1e-12, 1000)?.optimality <= 1e-12,
                    poisson::solve(&comm, 21, 1e-10)?.is_right(),
                    sample_sort::is_sorted(&comm, &sorted)?,
                    spectrum::run(&comm, 24)?.is_right(),
                ])
            });
            let right = right.unwrap();
            assert!(
                right.iter().flatten().all(|right| *right),
                "{} ranks over {}: {right:?}",
                ranks,
                network.name
            );
        }
    }
}
