//! The server alone: lines in, reactions out.

use proptest::prelude::*;

use super::server::{Reaction, Server, StuckFence};

fn server(size: u32) -> Server {
    Server::new("job", size)
}

fn say(server: &mut Server, rank: u32, line: &str) -> Vec<Reaction> {
    server.line(rank, Ok(line.as_bytes().to_vec()))
}

fn answer(server: &mut Server, rank: u32, line: &str) -> String {
    match say(server, rank, line).as_slice() {
        [Reaction::Reply(to, message)] if *to == rank => message.to_string(),
        [Reaction::Joins(who), Reaction::Reply(to, message)]
            if [*who, *to] == [rank; 2] && line.starts_with("cmd=init") =>
        {
            message.to_string()
        }
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn keys_are_exchanged_and_written_once() {
    let mut server = server(2);
    let put = "cmd=put kvsname=job key=a value=b";
    assert_eq!(
        answer(&mut server, 0, put),
        "cmd=put_result rc=0 msg=success"
    );
    assert_eq!(
        answer(&mut server, 1, put),
        "cmd=put_result rc=-1 msg=duplicate_key"
    );
    let get = answer(&mut server, 1, "cmd=get kvsname=job key=a");
    assert_eq!(get, "cmd=get_result rc=0 msg=success value=b");
    let get = answer(&mut server, 1, "cmd=get kvsname=other key=a");
    assert!(get.contains("rc=-1"), "{get}");
    let mapping = answer(
        &mut server,
        1,
        "cmd=get kvsname=job key=PMI_process_mapping",
    );
    assert!(mapping.ends_with("value=(vector,(0,1,2))"), "{mapping}");
}

#[test]
fn reports_are_announced_taken_and_not_answered() {
    let mut server = server(2);
    let init = answer(&mut server, 1, "cmd=init pmi_version=1 pmi_subversion=1");
    assert!(init.ends_with(" rc=0 reports=1"), "{init}");
    let line = "cmd=report what=waiting text=recv,0,0,7,8/send,0,0,1,9/+3";
    match &say(&mut server, 1, line)[..] {
        [Reaction::Waits { rank: 1, report }] => {
            assert_eq!((report.waits.len(), report.more), (2, 3));
            assert_eq!(report.waits[0].peer, Some(0));
        }
        other => panic!("{other:?}"),
    }
    let over = say(&mut server, 1, "cmd=report what=waiting text=");
    assert!(matches!(&over[..], [Reaction::Waits { report, .. }] if report.waits.is_empty()));
    assert!(say(&mut server, 1, "cmd=report what=weather text=fine").is_empty());
    for bad in ["", " text=naps", " text=%"] {
        let line = format!("cmd=report what=waiting{bad}");
        let said = say(&mut server, 1, &line);
        assert!(
            matches!(&said[..], [Reaction::Violation { rank: 1, .. }]),
            "{line}: {said:?}"
        );
    }
}

#[test]
fn a_fence_lets_all_go_together() {
    let mut server = server(3);
    for round in 0..3 {
        assert!(
            say(&mut server, 1, "cmd=barrier_in").is_empty(),
            "round {round}"
        );
        assert!(say(&mut server, 0, "cmd=barrier_in").is_empty());
        let out = say(&mut server, 2, "cmd=barrier_in");
        let to: Vec<_> = out
            .iter()
            .map(|reaction| match reaction {
                Reaction::Reply(to, message) if message.command() == "barrier_out" => *to,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(to, [0, 1, 2]);
    }
}

#[test]
fn a_fence_that_cannot_complete_is_noticed_and_told() {
    let mut server = server(3);
    say(&mut server, 2, "cmd=barrier_in");
    assert_eq!(server.stuck_fence(), None);
    server.gone(1);
    let stuck = StuckFence {
        missing: 1,
        has_left: false,
        waiting: 2,
    };
    assert_eq!(server.stuck_fence(), Some(stuck));
    let told = server.fail_fence(1);
    assert_eq!(told.len(), 1);
    assert!(matches!(&told[0], Reaction::Reply(2, m) if m.field("gone") == Some("1")));
    assert_eq!(server.stuck_fence(), None);
    // A rank that enters later is stuck too.
    say(&mut server, 0, "cmd=barrier_in");
    assert_eq!(
        server.stuck_fence(),
        Some(StuckFence {
            waiting: 0,
            ..stuck
        })
    );
}

#[test]
fn the_rank_that_died_is_named_before_those_that_left_because_of_it() {
    let mut server = server(3);
    server.gone(2);
    say(&mut server, 0, "cmd=finalize");
    say(&mut server, 1, "cmd=barrier_in");
    let stuck = StuckFence {
        missing: 2,
        has_left: false,
        waiting: 1,
    };
    assert_eq!(server.stuck_fence(), Some(stuck));
}

#[test]
fn a_rank_joins_once() {
    let mut server = server(1);
    let init = "cmd=init pmi_version=1 pmi_subversion=1";
    assert!(answer(&mut server, 0, init).ends_with(" rc=0 reports=1"));
    assert_eq!(
        answer(&mut server, 0, "cmd=finalize"),
        "cmd=finalize_ack rc=0"
    );
    assert!(answer(&mut server, 0, init).contains("rc=-1"));
    let newer = answer(&mut server, 0, "cmd=init pmi_version=2 pmi_subversion=0");
    assert!(newer.contains("only_version_1"), "{newer}");
}

#[test]
fn an_abort_carries_code_and_reason() {
    for (cause, failed) in [("", None), (" failed=3", Some(3)), (" failed=x", None)] {
        let mut server = server(1);
        let line = format!("cmd=abort exitcode=7{cause} reason=no%20luck");
        let reaction = say(&mut server, 0, &line);
        let reason = Some("no luck".to_owned());
        assert_eq!(
            reaction,
            [Reaction::Abort {
                rank: 0,
                code: 7,
                failed,
                reason
            }]
        );
    }
}

#[test]
fn spawn_is_refused_after_its_last_line() {
    let mut server = server(1);
    for line in ["mcmd=spawn", "execname=a b", "totspawns=1", "spawnssofar=1"] {
        assert!(say(&mut server, 0, line).is_empty());
    }
    assert!(answer(&mut server, 0, "endcmd").starts_with("cmd=spawn_result rc=-1"));
    assert!(answer(&mut server, 0, "cmd=get_appnum").ends_with("appnum=0"));
}

#[test]
fn services_are_found_until_they_are_withdrawn() {
    let mut server = server(1);
    let found = |answer: String| answer.contains("rc=0") && answer.contains("port=p");
    assert!(!found(answer(&mut server, 0, "cmd=lookup_name service=s")));
    assert!(found(answer(
        &mut server,
        0,
        "cmd=publish_name service=s port=p"
    )));
    assert!(!found(answer(
        &mut server,
        0,
        "cmd=publish_name service=s port=q"
    )));
    assert!(found(answer(&mut server, 0, "cmd=lookup_name service=s")));
    assert!(found(answer(
        &mut server,
        0,
        "cmd=unpublish_name service=s"
    )));
    assert!(!found(answer(&mut server, 0, "cmd=lookup_name service=s")));
}

#[test]
fn what_is_not_pmi_is_a_violation_that_says_what() {
    let mut server = server(4);
    for (line, why) in [
        ("cmd=dance", "`dance`"),
        ("hello", "`hello`"),
        ("", "cmd=NAME"),
    ] {
        match say(&mut server, 3, line).as_slice() {
            [Reaction::Violation { rank: 3, why: said }] => {
                assert!(said.contains(why), "{said}");
            }
            other => panic!("{other:?}"),
        }
    }
}

proptest! {
    #[test]
    fn any_lines_of_any_ranks_are_survived(
        lines in prop::collection::vec((0u32..3, "(cmd|mcmd)=(put|get|init|spawn|barrier_in|finalize|abort|publish_name)( (kvsname|key|value|service|port|exitcode|reason)=[a-c%-]{0,3}){0,4}|endcmd|.{0,20}"), 0..60),
    ) {
        let mut server = server(3);
        for (rank, line) in lines {
            say(&mut server, rank, &line);
            server.stuck_fence();
        }
    }
}
