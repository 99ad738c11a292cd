//! `cargo xtask instructions`: counts, with callgrind, how many instructions a message or a
//! collective operation of 8 bytes costs, and compares the counts with the recorded ones.
//!
//! The ranks are stepped in a fixed order, so the counts are the same in every run. They differ
//! between compilers, so each compiler has a record of its own. A compiler without a record is
//! compared with that of the nearest version, and may need somewhat more instructions; then the
//! test lane counts the exact comparison as skipped, with the reason.

use std::fs;
use std::process::{Command, ExitCode, Stdio};

use crate::{Failure, Repo};

/// The file with the recorded counts.
const RECORD: &str = "benches/instructions.txt";
/// The functions `measured_…` of programs in `benches/examples` that are counted. Each kind has a
/// program of its own, because the compiler's choice of what to inline into a function depends on
/// where else that code is used.
pub(crate) const STEPS: [(&str, &[&str]); 2] = [
    ("step", &["send", "recv", "post", "start", "finish"]),
    (
        "step_collectives",
        &[
            "bcast",
            "gather",
            "ibcast",
            "igather",
            "ibarrier",
            "iallreduce",
        ],
    ),
];
/// The number of messages, or of operations, that are counted.
const ROUNDS: u64 = 2000;
/// How much a count may grow, in percent.
const GROWTH: f64 = 5.0;
/// The same in comparison with the record of another compiler.
const GROWTH_ELSEWHERE: f64 = 15.0;

/// `cargo xtask instructions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Record what is counted for this compiler, instead of comparing
    #[arg(long)]
    record: bool,
}

/// Counts, and compares the counts or records them.
pub(crate) fn main(repo: &Repo, args: &Args) -> Result<ExitCode, Failure> {
    if let Some(why) = missing() {
        return Err(why.into());
    }
    let build = build(repo).status()?;
    if !build.success() {
        return Err("the program that is counted does not build".into());
    }
    let counted = count(repo)?;
    if args.record {
        let record = Record::read(repo).with(&compiler(repo)?, &counted);
        fs::write(repo.path(RECORD), record.text())?;
        println!("recorded in {RECORD}: {}", line(&counted));
        return Ok(ExitCode::SUCCESS);
    }
    let compared = compare(repo, &counted)?;
    println!("{}", line(&counted));
    let Compared { problems, weaker } = compared;
    problems
        .iter()
        .chain(&weaker)
        .for_each(|said| println!("{said}"));
    Ok(if problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The reason why nothing can be counted here, if there is one.
pub(crate) fn missing() -> Option<&'static str> {
    let found = Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let here = found.is_ok_and(|status| status.success());
    (!here).then_some("valgrind is not here (Debian: apt-get install valgrind)")
}

/// Builds the programs whose instructions are counted, in the way users build theirs.
pub(crate) fn build(repo: &Repo) -> Command {
    let mut words = vec!["build", "--release", "--locked", "-p", "portolan-benches"];
    for (program, _) in STEPS {
        words.extend(["--example", program]);
    }
    repo.cargo(&words)
}

/// The instructions of each step, for one message or operation.
pub(crate) fn count(repo: &Repo) -> Result<Vec<(&'static str, f64)>, Failure> {
    let each = |(program, step): (&str, &'static str)| {
        let output = repo
            .command("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(format!("--toggle-collect=*measured_{step}*"))
            .arg(repo.target().join("release/examples").join(program))
            .args([step, &ROUNDS.to_string()])
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            return Err(format!(
                "step {step} failed under valgrind ({}):\n{said}",
                output.status
            )
            .into());
        }
        let collected = collected(&said).filter(|&count| count > 0);
        let collected = collected.ok_or_else(|| format!("nothing was counted:\n{said}"))?;
        Ok((step, collected as f64 / ROUNDS as f64))
    };
    let all = STEPS
        .iter()
        .flat_map(|(program, steps)| steps.iter().map(move |step| (*program, *step)));
    all.map(each).collect()
}

/// The result of a comparison.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Compared {
    /// The counts that have grown too much.
    pub(crate) problems: Vec<String>,
    /// The reason, if the comparison is weaker than intended: this compiler has no record of its
    /// own.
    pub(crate) weaker: Option<String>,
}

/// Compares the counts with the record of this compiler, or else of the nearest version.
pub(crate) fn compare(repo: &Repo, counted: &[(&'static str, f64)]) -> Result<Compared, Failure> {
    Ok(compared(&Record::read(repo), &compiler(repo)?, counted))
}

/// The same with a given record. An empty record is a problem.
fn compared(record: &Record, compiler: &str, counted: &[(&'static str, f64)]) -> Compared {
    let Some((whose, recorded)) = record.nearest(compiler) else {
        let nothing =
            format!("{RECORD} has no counts to compare with: cargo xtask instructions --record");
        return Compared {
            problems: vec![nothing],
            weaker: None,
        };
    };
    if whose == compiler {
        return Compared {
            problems: worse(recorded, counted, GROWTH),
            weaker: None,
        };
    }
    let weaker = format!(
        "no record for {compiler}: compared with {whose} within {GROWTH_ELSEWHERE} %, so that growth of more than \
         {GROWTH} % was not looked for; record with: cargo xtask instructions --record"
    );
    Compared {
        problems: worse(recorded, counted, GROWTH_ELSEWHERE),
        weaker: Some(weaker),
    }
}

/// The steps whose counts exceed the recorded ones by more than `growth` percent.
fn worse(recorded: &[(String, f64)], counted: &[(&'static str, f64)], allowed: f64) -> Vec<String> {
    let mut problems = Vec::new();
    for &(step, now) in counted {
        let Some(before) = recorded
            .iter()
            .find(|(name, _)| name == step)
            .map(|(_, count)| *count)
        else {
            problems.push(format!(
                "{step} is not recorded: cargo xtask instructions --record"
            ));
            continue;
        };
        let growth = (now / before - 1.0) * 100.0;
        if growth > allowed {
            problems.push(format!(
                "{step} of 8 bytes takes {now:.1} instructions, {growth:.0} % more than {before:.1}; if it \
                 has to: cargo xtask instructions --record"
            ));
        } else if growth < -allowed {
            println!(
                "{step}: {now:.1} instructions, and {before:.1} are recorded: cargo xtask instructions \
                 --record keeps the progress"
            );
        }
    }
    problems
}

/// The compiler: `rustc 1.95.0`, with the commit.
fn compiler(repo: &Repo) -> Result<String, Failure> {
    let output = repo.command("rustc").arg("--version").output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// The total that callgrind prints at its end.
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().rfind(|line| line.contains("Collected :"))?;
    line.rsplit(':')
        .next()?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

fn line(counted: &[(&'static str, f64)]) -> String {
    let words: Vec<_> = counted
        .iter()
        .map(|(step, count)| format!("{step} {count:.1}"))
        .collect();
    words.join(", ")
}

/// The version numbers in `rustc 1.95.0 (…)`; a number that cannot be read is 0.
fn version(compiler: &str) -> [u32; 3] {
    let numbers = compiler.split_whitespace().nth(1).unwrap_or_default();
    let numbers = numbers.split('-').next().unwrap_or_default();
    let mut parts = numbers.split('.').map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

/// The records: a line for each compiler.
#[derive(Debug, Default, PartialEq)]
struct Record(Vec<(String, Vec<(String, f64)>)>);

impl Record {
    fn read(repo: &Repo) -> Self {
        Self::parse(&fs::read_to_string(repo.path(RECORD)).unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let count = |words: &str| {
            let (step, count) = words.trim().split_once(' ')?;
            Some((step.to_owned(), count.parse::<f64>().ok()?))
        };
        let line = |line: &str| {
            let (compiler, counts) = line.split_once(": ")?;
            let counts = counts.split(',').filter_map(count).collect();
            Some((compiler.to_owned(), counts))
        };
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self(lines.filter_map(line).collect())
    }

    /// The compiler itself or the nearest version with a record, and its counts.
    fn nearest(&self, compiler: &str) -> Option<(&str, &[(String, f64)])> {
        let [major, minor, patch] = version(compiler);
        let distance = |other: &str| {
            let [a, b, c] = version(other);
            let apart = (major.abs_diff(a), minor.abs_diff(b), patch.abs_diff(c));
            (other != compiler, apart)
        };
        let nearest = self.0.iter().min_by_key(|(name, _)| distance(name))?;
        Some((&nearest.0, &nearest.1))
    }

    fn with(mut self, compiler: &str, counted: &[(&'static str, f64)]) -> Self {
        self.0.retain(|(name, _)| name != compiler);
        let counts = counted
            .iter()
            .map(|&(step, count)| (step.to_owned(), count))
            .collect();
        self.0.push((compiler.to_owned(), counts));
        self.0.sort_by(|a, b| a.0.cmp(&b.0));
        self
    }

    fn text(&self) -> String {
        let mut text =
            "# Instructions of the steps of an 8-byte message, and of one rank's part in collective operations of \
             8 bytes, over shared memory, for each compiler.\n# Written by: cargo xtask instructions --record\n"
                .to_owned();
        for (compiler, counts) in &self.0 {
            let counts: Vec<_> = counts
                .iter()
                .map(|(step, count)| format!("{step} {count:.1}"))
                .collect();
            text.push_str(&format!("{compiler}: {}\n", counts.join(", ")));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_are_written() {
        let record = Record::default().with("rustc 2", &[("send", 10.5), ("recv", 20.0)]);
        let record = record
            .with("rustc 1", &[("send", 11.0)])
            .with("rustc 2", &[("send", 9.0)]);
        assert_eq!(Record::parse(&record.text()), record);
        let (whose, counts) = record.nearest("rustc 2").unwrap();
        assert_eq!(
            (whose, counts),
            ("rustc 2", &[("send".to_owned(), 9.0)][..])
        );
    }

    #[test]
    fn a_compiler_without_a_record_is_compared_with_the_nearest() {
        let mut record = Record::default();
        assert_eq!(record.nearest("rustc 1.95.0 (a)"), None);
        for version in ["rustc 1.89.1 (b)", "rustc 1.95.0 (c)", "rustc 1.97.0 (d)"] {
            record = record.with(version, &[("send", 1.0)]);
        }
        let nearest = |compiler| record.nearest(compiler).unwrap().0;
        assert_eq!(nearest("rustc 1.95.0 (c)"), "rustc 1.95.0 (c)");
        assert_eq!(nearest("rustc 1.95.1 (x)"), "rustc 1.95.0 (c)");
        assert_eq!(nearest("rustc 1.98.0-nightly (x)"), "rustc 1.97.0 (d)");
        assert_eq!(nearest("rustc 1.88.0 (x)"), "rustc 1.89.1 (b)");
    }

    #[test]
    fn what_has_grown_or_is_not_recorded_is_a_problem() {
        let recorded = [("send".to_owned(), 100.0), ("recv".to_owned(), 100.0)];
        let counted = [("send", 106.0), ("recv", 104.0), ("post", 1.0)];
        let problems = worse(&recorded, &counted, GROWTH);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].starts_with("send") && problems[1].starts_with("post"));
        assert_eq!(worse(&recorded, &counted[..2], GROWTH_ELSEWHERE).len(), 0);
    }

    #[test]
    fn a_weaker_comparison_says_so() {
        let record = Record::default().with("rustc 1.95.0 (c)", &[("send", 100.0)]);
        let same = compared(&record, "rustc 1.95.0 (c)", &[("send", 110.0)]);
        assert_eq!((same.problems.len(), same.weaker), (1, None));
        let newer = compared(&record, "rustc 1.96.0 (d)", &[("send", 110.0)]);
        assert_eq!(newer.problems.len(), 0);
        let why = newer.weaker.unwrap();
        let said = "no record for rustc 1.96.0 (d): compared with rustc 1.95.0 (c) within 15 %";
        assert!(why.starts_with(said) && why.ends_with("--record"), "{why}");
        let newer = compared(&record, "rustc 1.96.0 (d)", &[("send", 116.0)]);
        assert_eq!(newer.problems.len(), 1);
        let none = compared(&Record::default(), "rustc 1.96.0 (d)", &[("send", 1.0)]);
        assert_eq!((none.problems.len(), none.weaker), (1, None));
    }

    #[test]
    fn callgrinds_total_is_found() {
        let said = "==1== Events    : Ir\n==1== Collected : 123456\n==1==\n";
        assert_eq!(collected(said), Some(123_456));
        assert_eq!(collected("==1== nothing\n"), None);
    }
}
