//! The client with a scripted launcher, both a correct one and a faulty one.
//!
//! `launch/tests/pmi.rs` uses real launchers; this file has what they never do.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use proptest::prelude::*;

use super::super::{Bootstrap, JobError};
use super::client::{Client, Place};
use super::{MAX_LINE, Message};

const INIT: &str = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
const MAXES: &str = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n";
const NAME: &str = "cmd=my_kvsname kvsname=kvs_1\n";

/// Runs `body` as the client of a launcher that answers each line with the next of `answers` and
/// then hangs up. Returns the result, and the requests that the launcher received.
fn scripted<R>(answers: &[&str], body: impl FnOnce(UnixStream) -> R) -> (R, Vec<String>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        let launcher = scope.spawn(move || {
            let mut requests = BufReader::new(theirs.try_clone().unwrap()).lines();
            let mut asked = Vec::new();
            for answer in answers {
                let Some(Ok(request)) = requests.next() else {
                    break;
                };
                asked.push(request);
                // A client that has given up does not read its answer.
                let _ = (&theirs).write_all(answer.as_bytes());
            }
            asked
        });
        let result = body(ours);
        (result, launcher.join().unwrap())
    })
}

fn place() -> Place {
    Place {
        rank: 1,
        size: 2,
        claimed_job: None,
        inherited: Vec::new(),
        other_launcher: None,
    }
}

/// Runs `body` with a client that has joined, and a launcher that then gives these answers.
fn joined<R>(answers: &[&str], body: impl FnOnce(Client) -> R) -> (R, Vec<String>) {
    let all = [&[INIT, MAXES, NAME], answers].concat();
    scripted(&all, |stream| {
        body(Client::start(Box::new(stream), place()).unwrap())
    })
}

fn refusal(answers: &[&str]) -> String {
    let (result, _) = scripted(answers, |stream| {
        Client::start(Box::new(stream), place()).err()
    });
    result.expect("this launcher cannot be used").to_string()
}

#[test]
fn joining_asks_what_mpichs_clients_ask() {
    let ((rank, size, id, kind), asked) = joined(&[], |client| {
        (
            client.rank(),
            client.size(),
            client.job_id().to_owned(),
            client.kind(),
        )
    });
    assert_eq!((rank, size, &*id, kind), (1, 2, "kvs_1", "pmi-1 (hydra)"));
    assert_eq!(
        asked,
        [
            "cmd=init pmi_version=1 pmi_subversion=1",
            "cmd=get_maxes",
            "cmd=get_my_kvsname"
        ]
    );
}

#[test]
fn launchers_that_cannot_be_used_are_refused_with_the_reason() {
    let limits = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=16\n";
    let other = "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n";
    let no = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1 msg=joined_before\n";
    for (answers, reason) in [
        (
            &[][..],
            "rank 1: lost the launcher while agreeing on the protocol's version",
        ),
        (&["\n"], "does not begin with cmd=NAME"),
        (&["hello\n"], "`hello` is not of the form name=value"),
        (
            &["cmd=maxes\n"],
            "`cmd=maxes` where `response_to_init` was expected",
        ),
        (&[other], "it offers version 2, 1 is needed"),
        (
            &[no],
            "refused while agreeing on the protocol's version: joined_before",
        ),
        (
            &[INIT, limits, NAME],
            "it leaves 15 bytes for a value, 32 are needed",
        ),
        (&[INIT, "cmd=maxes vallen_max=much\n"], "no vallen_max in"),
        (&[INIT, MAXES, "cmd=my_kvsname\n"], "no kvsname in"),
        (
            &[INIT, MAXES, "cmd=my_kvsname kvsname=half"],
            "lost the launcher while asking for the job",
        ),
    ] {
        let text = refusal(answers);
        assert!(text.contains(reason), "{answers:?}: {text}");
    }
}

#[test]
fn an_answer_without_end_is_refused_before_it_fills_memory() {
    let text = refusal(&[&"a".repeat(MAX_LINE + 4096)]);
    assert!(text.contains("a line is longer than"), "{text}");
}

#[test]
fn texts_that_no_rank_has_put_are_not_believed() {
    let get = |value: &str| {
        let answer = format!("cmd=get_result rc=0 msg=success value={value}\n");
        joined(&[&answer], |mut client| client.get("key")).0
    };
    assert_eq!(get("1:a%20b").unwrap(), "a b");
    for garbled in [
        "",
        "a",
        ":a",
        "0:a",
        "9999999999:a",
        "1:%",
        "1:%4",
        "1:%zz",
        "1:%FF",
    ] {
        let text = get(garbled).unwrap_err().to_string();
        assert!(text.contains("which no rank has put"), "{garbled}: {text}");
    }
}

#[test]
fn a_part_that_is_missing_is_a_key_that_is_missing() {
    let first = "cmd=get_result rc=0 msg=success value=2:a\n";
    let none = "cmd=get_result rc=-1 msg=key_not_found value=unknown\n";
    let (result, asked) = joined(&[first, none], |mut client| client.get("key"));
    assert!(
        matches!(result, Err(JobError::KeyMissing { rank: 1, .. })),
        "{result:?}"
    );
    assert_eq!(asked.last().unwrap(), "cmd=get kvsname=kvs_1 key=key:1");
}

#[test]
fn lines_stay_within_what_mpich_handles() {
    let done = "cmd=put_result rc=0 msg=success\n";
    let (result, asked) = joined(&[done; 20], |mut client| {
        client.put(&"k".repeat(48), &"ä".repeat(2000))?;
        client.put("short", "")
    });
    result.unwrap();
    assert!(asked.len() > 10, "{}", asked.len());
    assert!(asked.iter().all(|line| line.len() < 1024));
}

#[test]
fn a_launcher_that_dies_is_an_error_in_every_call() {
    joined(&[], |mut client| {
        let lost = |result: Result<(), JobError>| {
            assert!(
                matches!(result, Err(JobError::Connection { rank: 1, .. })),
                "{result:?}"
            );
        };
        lost(client.fence());
        lost(client.put("a", "b"));
        lost(client.get("a").map(drop));
        client.abort(3, "nobody hears this");
        lost(client.finalize());
        assert!(matches!(
            client.fence(),
            Err(JobError::Finalized { rank: 1 })
        ));
        client.finalize().unwrap();
    });
}

#[test]
fn the_reason_of_an_abort_is_whole_or_shows_that_it_is_not() {
    let remedy = "; try: something that is said only here";
    let whole = format!("{}{remedy}", "it went wrong ".repeat(30));
    for (reason, arrives) in [
        (whole.clone(), Some(whole)),
        (format!("{}{remedy}", "ä".repeat(2000)), None),
        (format!("a{}{remedy}", "ä".repeat(2000)), None),
    ] {
        let (_, asked) = scripted(&[INIT, MAXES, NAME, ""], |stream| {
            let place = Place {
                claimed_job: Some("kvs_1".to_owned()),
                ..place()
            };
            let mut client = Client::start(Box::new(stream), place).unwrap();
            client.abort(i32::MIN, &reason);
        });
        let line = &asked[3];
        assert!(line.len() + 2 <= 1024, "{} bytes", line.len());
        let (_, told) = line.split_once(" reason=").unwrap();
        let told = Message::unescape(told).unwrap();
        match arrives {
            Some(whole) => assert_eq!(told, whole),
            None => {
                let beginning = told.strip_suffix('…').expect("a sign that it is cut");
                assert!(reason.starts_with(beginning), "{told}");
                assert!(line.len() + 2 > 1024 - 8 - " failed=4294967295".len());
            }
        }
    }
}

#[test]
fn reports_go_only_to_a_launcher_that_takes_them() {
    let say = |init: &str, answers: &[&str]| {
        let all = [&[init, MAXES, NAME], answers].concat();
        let ((), asked) = scripted(&all, |stream| {
            let mut client = Client::start(Box::new(stream), place()).unwrap();
            client.report("waiting", "recv,0,0,any,8");
            client.report("waiting", &" ".repeat(2000));
            client.fence().unwrap();
        });
        asked[3..].join("; ")
    };
    let (takes, fence) = (
        INIT.replace("rc=0", "rc=0 reports=1"),
        "cmd=barrier_out rc=0\n",
    );
    let both = "cmd=report what=waiting text=recv,0,0,any,8; cmd=barrier_in";
    // A report has no answer, and one that does not fit into a line is not sent.
    assert_eq!(say(&takes, &["", fence]), both);
    assert_eq!(say(INIT, &[fence]), "cmd=barrier_in");
}

#[test]
fn a_fence_without_a_rank_says_which() {
    let answer = "cmd=barrier_out rc=-1 gone=0 msg=rank_0_has_ended\n";
    let (result, _) = joined(&[answer], |mut client| client.fence());
    assert!(
        matches!(result, Err(JobError::RankGone { rank: 1, gone: 0 })),
        "{result:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_answer_is_used_or_refused(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let line = [&noise[..], b"\n"].concat();
        // It need not be text, so it cannot be one of the script's answers.
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&theirs).write_all(&line).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        prop_assert!(Client::start(Box::new(ours), place()).is_err());
    }
}
