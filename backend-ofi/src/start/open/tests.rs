use portolan_core::config::MatchMode;
use portolan_core::job::{self, JobError};

use super::*;
use crate::start::verdict::tests::card;
use crate::testing::opened_or_skipped;

/// A rank's place in a job, which changes the cards that the rank reads.
struct Misled {
    job: Box<dyn Bootstrap>,
    /// Changes a card, given the reader and the key.
    change: fn(u32, &str, &mut Card),
    /// How often this rank has waited for the others.
    fences: u32,
}

impl Bootstrap for Misled {
    fn rank(&self) -> u32 {
        self.job.rank()
    }

    fn size(&self) -> u32 {
        self.job.size()
    }

    fn job_id(&self) -> &str {
        self.job.job_id()
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), JobError> {
        self.job.put(key, value)
    }

    fn get(&mut self, key: &str) -> Result<String, JobError> {
        let text = self.job.get(key)?;
        let card = text.strip_prefix("card ").map(Card::from_text);
        let Some(Ok(mut card)) = card else {
            return Ok(text);
        };
        (self.change)(self.rank(), key, &mut card);
        Ok(format!("card {}", card.to_text()))
    }

    fn fence(&mut self) -> Result<(), JobError> {
        self.fences += 1;
        self.job.fence()
    }

    fn abort(&mut self, code: i32, message: &str) {
        self.job.abort(code, message);
    }

    fn finalize(&mut self) -> Result<(), JobError> {
        self.job.finalize()
    }

    fn inherited(&self, what: &str) -> Option<std::os::fd::RawFd> {
        self.job.inherited(what)
    }

    fn kind(&self) -> &'static str {
        self.job.kind()
    }
}

/// The error of each of three ranks that cannot come together, and how often each rank has waited
/// for the others. `None` if there is no provider here.
fn errors(what: &str, change: fn(u32, &str, &mut Card)) -> Option<[(String, u32); 3]> {
    let config = Config {
        provider: Some("tcp".to_owned()),
        interface: Some("lo".to_owned()),
        ..Config::default()
    };
    opened_or_skipped(what, 1, &config)?;
    let ends = std::thread::scope(|scope| {
        let ranks = job::in_process(3).into_iter().map(|job| {
            let config = &config;
            scope.spawn(move || {
                let mut rank = Misled {
                    job,
                    change,
                    fences: 0,
                };
                let end = open_with(&mut rank, config).map(drop);
                let error = end.expect_err("they cannot come together");
                (error.to_string(), rank.fences)
            })
        });
        let ranks: Vec<_> = ranks.collect();
        let ends = ranks.into_iter().map(|rank| rank.join().expect("a rank"));
        ends.collect::<Vec<_>>()
    });
    ends.try_into().ok()
}

/// Like a rank that has no descriptors left, and so does not get as far as the others.
#[test]
fn one_that_cannot_join_the_others_is_told_to_all() {
    let change = |reader: u32, _: &str, card: &mut Card| {
        if reader == 1 {
            card.roster = card.roster.map(|_| i32::MAX);
        }
    };
    let Some(ends) = errors("ranks that cannot join", change) else {
        return; // The skip has been printed.
    };
    assert!(ends[0].0.contains("rank 1: "), "{}", ends[0].0);
    for (error, fences) in &ends {
        assert_eq!((error, *fences), (&ends[0].0, 3));
    }
}

/// No rank returns the error, upon which it may end the job, before all have read it.
#[test]
fn nobody_ends_before_all_know_why() {
    let change = |_: u32, key: &str, card: &mut Card| {
        if key == "ofi.rank.2" {
            card.protocol = "carrier-pigeon 1.1".to_owned();
        }
    };
    let Some(ends) = errors("ranks with other providers", change) else {
        return; // The skip has been printed.
    };
    assert!(ends[0].0.contains("carrier-pigeon"), "{}", ends[0].0);
    for (error, fences) in &ends {
        assert_eq!((error, *fences), (&ends[0].0, 2));
    }
}

/// What a rank sends whose provider matches is not received by one that matches itself.
#[test]
fn ranks_that_differ_in_who_matches_do_not_start() {
    let config = |matching| Config {
        provider: Some("tcp".to_owned()),
        interface: Some("lo".to_owned()),
        matching,
        ..Config::default()
    };
    let ways = [MatchMode::Software, MatchMode::Native].map(config);
    for way in &ways {
        if opened_or_skipped("ranks that differ in who matches", 1, way).is_none() {
            return; // The skip has been printed.
        }
    }
    let errors = std::thread::scope(|scope| {
        let ranks = job::in_process(3).into_iter().zip([0, 1, 0]);
        let ranks = ranks.map(|(mut job, way)| {
            let config = &ways[way];
            scope.spawn(move || open_with(&mut *job, config).map(drop))
        });
        let ranks: Vec<_> = ranks.collect();
        let ends = ranks.into_iter().map(|rank| rank.join().expect("a rank"));
        ends.map(|end| end.expect_err("they cannot come together").to_string())
            .collect::<Vec<_>>()
    });
    assert_eq!(errors, vec![errors[0].clone(); 3]);
    for part in [", matching", "rank 1 ", "PORTOLAN_MATCH"] {
        assert!(errors[0].contains(part), "{}", errors[0]);
    }
}

/// All ranks are on one node.
#[test]
fn ranks_with_addresses_of_other_families_do_not_start() {
    let change = |_: u32, key: &str, card: &mut Card| {
        if key == "ofi.rank.1" {
            let family = (libc::AF_INET6 as u16).to_ne_bytes();
            card.address = [&family[..], &[0; 25], &[1]].concat();
        }
    };
    let Some(ends) = errors("ranks with addresses of two families", change) else {
        return; // The skip has been printed.
    };
    for part in [
        "rank 0",
        "is at 127.0.0.1; rank 1",
        "PORTOLAN_OFI_INTERFACE",
    ] {
        assert!(ends[0].0.contains(part), "{}", ends[0].0);
    }
    for (error, fences) in &ends {
        assert_eq!((error, *fences), (&ends[0].0, 2));
    }
}

#[test]
fn nodes_are_numbered_as_they_come() {
    let cards = [card("b", ""), card("a", ""), card("b", ""), card("c", "")];
    assert_eq!(nodes(&cards), (vec![0, 1, 0, 2], vec![0, 1, 3]));
}

#[test]
fn processes_are_known_on_their_own_node() {
    let cards = [card("b", ""), card("a", ""), card("b", "")];
    let own = Some(std::process::id());
    assert_eq!(*processes(&cards, "b"), [own, None, own]);
}

#[test]
fn jobs_are_told_apart() {
    assert_ne!(job_number("1.a"), job_number("1.b"));
}
