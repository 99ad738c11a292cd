use portolan_core::job::{self, JobError};

use super::*;
use crate::testing::opened_or_skipped;

/// A rank's place in a job; rank 1 is told that the others' roster has another descriptor than
/// it has.
struct Misled(Box<dyn Bootstrap>);

impl Bootstrap for Misled {
    fn rank(&self) -> u32 {
        self.0.rank()
    }

    fn size(&self) -> u32 {
        self.0.size()
    }

    fn job_id(&self) -> &str {
        self.0.job_id()
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), JobError> {
        self.0.put(key, value)
    }

    fn get(&mut self, key: &str) -> Result<String, JobError> {
        let text = self.0.get(key)?;
        let card = text.strip_prefix("card ").filter(|_| self.rank() == 1);
        let Some(Ok(mut card)) = card.map(Card::from_text) else {
            return Ok(text);
        };
        card.roster = card.roster.map(|_| i32::MAX);
        Ok(format!("card {}", card.to_text()))
    }

    fn fence(&mut self) -> Result<(), JobError> {
        self.0.fence()
    }

    fn abort(&mut self, code: i32, message: &str) {
        self.0.abort(code, message);
    }

    fn finalize(&mut self) -> Result<(), JobError> {
        self.0.finalize()
    }

    fn inherited(&self, what: &str) -> Option<std::os::fd::RawFd> {
        self.0.inherited(what)
    }

    fn kind(&self) -> &'static str {
        self.0.kind()
    }
}

/// Like a rank that has no descriptors left, and so does not get as far as the others.
#[test]
fn one_that_cannot_join_the_others_is_told_to_all() {
    let config = Config {
        provider: Some("tcp".to_owned()),
        interface: Some("lo".to_owned()),
        ..Config::default()
    };
    if opened_or_skipped("ranks that cannot join", 1, &config).is_none() {
        return; // The skip has been printed.
    }
    let errors = std::thread::scope(|scope| {
        let ranks = job::in_process(3).into_iter().map(|rank| {
            let config = &config;
            scope.spawn(move || open_with(&mut Misled(rank), config).map(drop))
        });
        let ranks: Vec<_> = ranks.collect();
        let ends = ranks.into_iter().map(|rank| rank.join().expect("a rank"));
        ends.map(|end| end.expect_err("rank 1 cannot").to_string())
            .collect::<Vec<_>>()
    });
    assert!(errors[0].contains("rank 1: "), "{}", errors[0]);
    assert_eq!(errors[0], errors[1]);
    assert_eq!(errors[0], errors[2]);
}

fn card(node: &str, protocol: &str) -> Card {
    Card {
        process: Process::own(),
        node: node.to_owned(),
        host: format!("host-of-{node}"),
        protocol: protocol.to_owned(),
        address: vec![1],
        roster: None,
        pulse: None,
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
