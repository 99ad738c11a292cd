//! The examples do what they claim.

use std::fs;
use std::path::Path;

use libtest_mimic::{Failed, Trial};

use crate::command::{Job, no_hosts};
use crate::networks::{Network, networks};
use crate::spectrum;

/// Next to the repository, if it is there.
const MATRIX: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../shared/data/well1850.mtx"
);
const RHS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../shared/data/well1850_rhs1.mtx"
);

/// Checks a program in a job of some ranks.
type Check = fn(u32) -> Result<(), Failed>;

/// Runs a job of some ranks and checks it.
type JobCheck = fn(Job, u32) -> Result<(), Failed>;

pub(crate) fn trials() -> Vec<Trial> {
    let here = Path::new(MATRIX).exists() && Path::new(RHS).exists();
    if !here {
        eprintln!("ignored: ../shared/data/well1850.mtx is not next to the repository");
    }
    let programs: [(&str, &[u32], Check, bool); 13] = [
        ("hello", &[1, 2, 3, 4, 5, 8], hello, true),
        ("ring", &[1, 2, 3, 4, 5, 8], ring, true),
        ("rod", &[1, 2, 3, 4, 5, 8], rod, true),
        ("adi_blocking", &[2, 3, 4], adi_blocking, true),
        ("adi_nonblocking", &[2, 3, 4], adi_nonblocking, true),
        ("heat", &[1, 2, 3, 4, 5, 8], heat, true),
        ("least_squares", &[1, 2, 3, 4, 5, 8], least_squares, true),
        ("least_squares_well1850", &[1, 2, 3, 4], well1850, here),
        ("master_worker", &[1, 2, 3, 4, 5, 8], master_worker, true),
        ("poisson", &[1, 2, 3, 4], poisson, true),
        ("sample_sort", &[1, 2, 3, 4], sample_sort, true),
        ("fft2", &[1, 2, 3, 4], fft2, true),
        ("tasks", &[1, 2, 3, 4, 5, 8], tasks, true),
    ];
    let mut trials = Vec::new();
    for (name, sizes, check, possible) in programs {
        for &ranks in sizes {
            let trial = Trial::test(format!("{name}_{ranks}"), move || check(ranks));
            trials.push(trial.with_ignored_flag(!possible));
        }
    }
    trials.extend(on_the_t3e());
    trials.extend(networks().into_iter().enumerate().flat_map(over));
    trials.extend(across_hosts());
    trials.push(Trial::test(
        "heat_is_the_same_on_any_number_of_ranks",
        same_picture,
    ));
    trials
}

/// The programs that run on every transport; their output must not depend on it.
const ANYWHERE: [(&str, JobCheck); 11] = [
    ("ring", says_sum),
    ("adi_blocking", |job, _| says_round_trips(job, "blocking")),
    ("adi_nonblocking", |job, _| {
        says_round_trips(job, "nonblocking")
    }),
    ("heat", |job, _| says_heat(job, 50)),
    ("least_squares", |job, _| says_solution(job, 100)),
    ("master_worker", |job, _| says_paths(job)),
    ("poisson", |job, _| says_error(job)),
    ("sample_sort", |job, _| says_sorted(job)),
    ("fft2", |job, _| says_spectrum(job)),
    ("rod", says_cool),
    ("tasks", says_payments),
];

/// All of them in jobs whose number of ranks depends on the program's number; `place` sends the job
/// to the transport of this name.
fn elsewhere(
    what: &str,
    ranks: impl Fn(usize) -> u32,
    place: impl Fn(Job) -> Job + Clone + Send + 'static,
    hello: JobCheck,
    possible: bool,
) -> Vec<Trial> {
    let programs = ANYWHERE.into_iter().chain([("hello", hello)]);
    let trials = programs.enumerate().map(|(number, (name, check))| {
        // Those programs need two ranks.
        let ranks = ranks(number).max(if name.starts_with("adi") { 2 } else { 1 });
        let place = place.clone();
        let test = move || check(place(Job::new(name, ranks)), ranks);
        Trial::test(format!("{name}_{ranks}_{what}"), test).with_ignored_flag(!possible)
    });
    trials.collect()
}

/// On the emulated T3E, in virtual time.
fn on_the_t3e() -> Vec<Trial> {
    let hello: JobCheck = |job, ranks| says_hello(job, ranks, "t3e-sim");
    let place = |job: Job| job.over("t3e-sim");
    let mut trials = elsewhere("on_the_t3e", |_| 4, place, hello, true);
    // A processor of that machine has no threads, and `tasks` is at level `Multiple`.
    trials.retain(|trial| !trial.name().starts_with("tasks_"));
    trials
}

/// Over a libfabric network on this host: each program in a job of another size, and over each
/// network in another size than over the previous one.
fn over((nth, network): (usize, Network)) -> Vec<Trial> {
    let Network {
        name,
        settings,
        most,
        missing,
    } = network;
    if let Some(why) = &missing {
        eprintln!("ignored: the examples over {name}: {why}");
    }
    let hello: JobCheck = |job, ranks| says_hello(job, ranks, "ofi");
    let least = if most < 8 { 2 } else { 1 };
    let ranks = |number| least + (number + 3 * nth) as u32 % (most + 1 - least);
    let place = move |job: Job| job.with(&settings);
    elsewhere(
        &format!("over_{name}"),
        ranks,
        place,
        hello,
        missing.is_none(),
    )
}

/// Over libfabric, on three hosts: with one rank on each, and with five ranks, of which two hosts
/// have two.
fn across_hosts() -> Vec<Trial> {
    let library = portolan_ofi::offers(&portolan_ofi::Config::default()).err();
    let missing = library.or_else(no_hosts);
    if let Some(why) = &missing {
        eprintln!("ignored: the examples on several hosts: {why}");
    }
    let hello: JobCheck = |job, ranks| says_hello(job, ranks, "ofi");
    let here = missing.is_none();
    let on = |ranks, each| {
        let place = move |job: Job| job.across_hosts(each);
        elsewhere("across_hosts", move |_| ranks, place, hello, here)
    };
    [on(3, 1), on(5, 2)].into_iter().flatten().collect()
}

fn hello(ranks: u32) -> Result<(), Failed> {
    says_hello(Job::new("hello", ranks), ranks, "shm")
}

fn says_hello(job: Job, ranks: u32, transport: &str) -> Result<(), Failed> {
    let line = |rank| format!("hello from rank {rank} of {ranks} over {transport}");
    let outcome = job.run().succeeded()?;
    outcome.lines((0..ranks).map(line).collect())
}

fn ring(ranks: u32) -> Result<(), Failed> {
    says_sum(Job::new("ring", ranks), ranks)
}

fn says_sum(job: Job, ranks: u32) -> Result<(), Failed> {
    let (sum, last) = (ranks * (ranks - 1) / 2, ranks - 1);
    let line = format!("the sum of {ranks} ranks is {sum}, says rank {last}");
    job.run().succeeded()?.lines(vec![line])
}

fn rod(ranks: u32) -> Result<(), Failed> {
    says_cool(Job::new("rod", ranks), ranks)
}

fn says_cool(job: Job, ranks: u32) -> Result<(), Failed> {
    let points = 16 * ranks;
    let line = format!("a rod of {points} points on {ranks} ranks cools as it should");
    job.run().succeeded()?.lines(vec![line])
}

fn adi_blocking(ranks: u32) -> Result<(), Failed> {
    says_round_trips(Job::new("adi_blocking", ranks), "blocking")
}

fn adi_nonblocking(ranks: u32) -> Result<(), Failed> {
    says_round_trips(Job::new("adi_nonblocking", ranks), "nonblocking")
}

fn says_round_trips(job: Job, form: &str) -> Result<(), Failed> {
    let line = format!("10000 round trips of 256 bytes, {form}: all data as sent");
    job.run().succeeded()?.lines(vec![line])
}

fn master_worker(ranks: u32) -> Result<(), Failed> {
    says_paths(Job::new("master_worker", ranks))
}

fn says_paths(job: Job) -> Result<(), Failed> {
    let line = "2000 paths, the longest of 182 numbers, sum of all 237424897";
    job.run().succeeded()?.lines(vec![line.to_owned()])
}

fn tasks(ranks: u32) -> Result<(), Failed> {
    says_payments(Job::new("tasks", ranks), ranks)
}

fn says_payments(job: Job, ranks: u32) -> Result<(), Failed> {
    let payments = 500 * (u64::from(ranks) - 1);
    let line = format!("{payments} payments, {} in all", payments * 501 / 2);
    job.run().succeeded()?.lines(vec![line])
}

fn heat(ranks: u32) -> Result<(), Failed> {
    says_heat(Job::new("heat", ranks), 200)
}

fn says_heat(job: Job, steps: u32) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let picture = folder.path().join("heat.png");
    // Not divisible by any number of blocks but 1.
    let job = job
        .option("--size", "127")
        .option("--steps", steps.to_string());
    let outcome = job.option("--output", &picture).run().succeeded()?;
    // The program itself compares the two, and fails if they do not agree.
    let (error, scheme) = (
        outcome.number("largest error ")?,
        outcome.number("own is ")?,
    );
    assert!(
        error > 0.0 && error <= scheme * 1.001 && scheme < 1e-2,
        "{error} {scheme}"
    );
    let decoder = png::Decoder::new(std::io::BufReader::new(fs::File::open(picture)?));
    let info = decoder.read_info()?.info().size();
    // Four pixels for each point, and margins of a 32nd.
    let (panel, margin) = (127 * 4, 127 * 4 / 32);
    assert_eq!(info, (2 * panel + 3 * margin, panel + 2 * margin));
    Ok(())
}

fn same_picture() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let mut pictures = Vec::new();
    for ranks in [1, 3, 4] {
        let picture = folder.path().join(format!("{ranks}.png"));
        let job = Job::new("heat", ranks)
            .option("--size", "50")
            .option("--steps", "100");
        job.option("--output", &picture).run().succeeded()?;
        pictures.push(fs::read(picture)?);
    }
    assert!(pictures[0].len() > 1000 && pictures.iter().all(|other| *other == pictures[0]));
    Ok(())
}

fn least_squares(ranks: u32) -> Result<(), Failed> {
    says_solution(Job::new("least_squares", ranks), 333)
}

fn says_solution(job: Job, size: u32) -> Result<(), Failed> {
    // The program compares with the known solution.
    let outcome = job.option("--size", size.to_string()).run().succeeded()?;
    assert!(outcome.number("optimality ")? <= 1e-12);
    assert!(outcome.number("largest error ")? <= 1e-9);
    Ok(())
}

fn well1850(ranks: u32) -> Result<(), Failed> {
    let job = Job::new("least_squares", ranks)
        .option("--matrix", MATRIX)
        .option("--rhs", RHS);
    let outcome = job.run().succeeded()?;
    assert!(outcome.number("optimality ")? <= 1e-12, "{outcome:?}");
    // Computed with other programs, for the whole problem.
    for (name, expected) in [
        ("residual norm ", 1.278_139_346_42),
        ("solution norm ", 16_184.102_512_5),
    ] {
        let found = outcome.number(name)?;
        assert!(
            (found / expected - 1.0).abs() <= 1e-9,
            "{name}{found}, not {expected}"
        );
    }
    Ok(())
}

fn poisson(ranks: u32) -> Result<(), Failed> {
    says_error(Job::new("poisson", ranks))
}

fn says_error(job: Job) -> Result<(), Failed> {
    let outcome = job.option("--size", "61").run().succeeded()?;
    let (error, residual) = (
        outcome.number("largest error ")?,
        outcome.number("residual ")?,
    );
    // Only the scheme's error remains, and it is not zero.
    assert!(error > 1e-6 && error < 1.0 / 62.0f64.powi(2), "{outcome:?}");
    assert!(residual < 1e-9, "{outcome:?}");
    Ok(())
}

fn sample_sort(ranks: u32) -> Result<(), Failed> {
    says_sorted(Job::new("sample_sort", ranks))?;
    let folder = tempfile::tempdir()?;
    let (input, output) = (folder.path().join("in"), folder.path().join("out"));
    let numbers: Vec<i64> = (0..1001)
        .map(|n: i64| (n * 7919 % 1009 - 500) / 3)
        .collect();
    let lines = |numbers: &[i64]| -> String { numbers.iter().map(|n| format!("{n}\n")).collect() };
    fs::write(&input, lines(&numbers))?;
    let job = Job::new("sample_sort", ranks).option("--input", &input);
    job.option("--output", &output).run().succeeded()?;
    let mut sorted = numbers;
    sorted.sort_unstable();
    assert_eq!(fs::read_to_string(&output)?, lines(&sorted));
    Ok(())
}

fn says_sorted(job: Job) -> Result<(), Failed> {
    let outcome = job.option("--count", "20011").run().succeeded()?;
    let balance = outcome.number("most on one rank ")?;
    let share = outcome.number("of ")?;
    assert!(balance < 1.5 * share, "{outcome:?}");
    outcome.says("in order true, complete true")
}

fn fft2(ranks: u32) -> Result<(), Failed> {
    says_spectrum(Job::new("fft2", ranks))
}

fn says_spectrum(job: Job) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let picture = folder.path().join("spectrum.png");
    // Neither a power of two nor divisible by any number of ranks but 1.
    let job = job
        .option("--size", spectrum::SIZE.to_string())
        .option("--output", &picture);
    let outcome = job.run().succeeded()?;
    assert!(outcome.number("holds to ")? < 1e-12, "{outcome:?}");
    assert!(outcome.number("back again to ")? < 1e-12, "{outcome:?}");
    spectrum::check(&picture)
}
