//! The shadow list with the simulated card, in every order of events that a schedule can produce.

mod breaches;
mod directed;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::overlap::Overlaps;
use super::{
    Breach, Cancel, Message, OffloadCaps, Outcome, Posting, ReceiveId, ShadowList, SimNic,
};
use crate::matching::{Envelope, Pattern};

/// More rounds than any schedule here needs to come to rest.
const ENOUGH: usize = 100_000;

/// A message is represented by its number; it is eager if the number is even.
type Nic = SimNic<usize, usize>;
/// A receive is represented by its number.
type Shadow = ShadowList<usize, Nic>;

fn envelope(source: u32, tag: u32) -> Envelope {
    Envelope {
        context: 0,
        source,
        tag,
    }
}

fn envelopes() -> impl Strategy<Value = Envelope> {
    (0..3u32, 0..3u32).prop_map(|(source, tag)| envelope(source, tag))
}

fn patterns() -> impl Strategy<Value = Pattern> {
    let field = || prop::option::weighted(0.75, 0..3u32);
    (field(), field()).prop_map(|(source, tag)| Pattern {
        context: 0,
        source,
        tag,
    })
}

/// One step of a schedule: of the program, of the card, or of the network.
#[derive(Clone, Debug)]
enum Step {
    Receive(Pattern, usize),
    Cancel(Index),
    Probe(Pattern),
    Progress,
    Send(Envelope),
    Command,
    Transfer(usize),
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (patterns(), prop_oneof![1 => Just(10), 9 => Just(1000)])
            .prop_map(|(pattern, len)| Step::Receive(pattern, len)),
        1 => any::<Index>().prop_map(Step::Cancel),
        1 => patterns().prop_map(Step::Probe),
        8 => Just(Step::Progress),
        5 => envelopes().prop_map(Step::Send),
        8 => Just(Step::Command),
        4 => any::<usize>().prop_map(Step::Transfer),
    ]
}

fn caps() -> impl Strategy<Value = OffloadCaps> {
    (0..6usize, any::<bool>(), any::<bool>()).prop_map(|(list_size, any_source, any_tag)| {
        OffloadCaps {
            list_size,
            any_source,
            any_tag,
            ..OffloadCaps::ALL
        }
    })
}

/// A receive and its outcome.
struct Posted {
    pattern: Pattern,
    id: Option<ReceiveId>,
    got: Option<usize>,
    cancelled: bool,
    asked_to_cancel: bool,
}

/// A run: the shadow list, everything that was ever posted or sent, and the outcomes.
struct Run {
    shadow: Shadow,
    receives: Vec<Posted>,
    sent: Vec<Envelope>,
    /// Messages taken by probes, which therefore go to no receive.
    taken: Vec<usize>,
}

impl Run {
    fn new(nic: Nic) -> Self {
        Self {
            shadow: ShadowList::new(nic, 100),
            receives: Vec::new(),
            sent: Vec::new(),
            taken: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), Breach> {
        match step {
            Step::Receive(pattern, len) => self.receive(*pattern, *len),
            Step::Cancel(which) if !self.receives.is_empty() => {
                self.cancel(which.index(self.receives.len()));
            }
            Step::Cancel(_) => {}
            Step::Probe(pattern) => {
                if let Some(found) = self.shadow.unexpected().find(pattern) {
                    let (envelope, message) = self.shadow.take(found).expect("just found");
                    assert!(pattern.matches(&envelope));
                    self.taken.push(number(&message));
                }
            }
            Step::Progress => {
                self.progress()?;
            }
            Step::Send(envelope) => self.send(*envelope),
            Step::Command => {
                self.shadow.device_mut().execute_command();
            }
            Step::Transfer(which) => {
                self.shadow.device_mut().finish_transfer(*which);
            }
        }
        Ok(())
    }

    fn receive(&mut self, pattern: Pattern, len: usize) {
        let receive = self.receives.len();
        self.receives.push(Posted {
            pattern,
            id: None,
            got: None,
            cancelled: false,
            asked_to_cancel: false,
        });
        match self.shadow.receive(pattern, len, (), receive) {
            Posting::Posted(id) => self.receives[receive].id = Some(id),
            Posting::Matched {
                value,
                envelope,
                message,
            } => {
                assert_eq!(value, receive);
                self.deliver(value, envelope, number(&message));
            }
        }
    }

    fn cancel(&mut self, receive: usize) {
        let Some(id) = self.receives[receive].id else {
            return;
        };
        match self.shadow.cancel(id) {
            Cancel::Done(value) => {
                assert_eq!(value, receive);
                self.receives[receive].asked_to_cancel = true;
                self.note_cancelled(receive);
            }
            Cancel::Started => self.receives[receive].asked_to_cancel = true,
            Cancel::TooLate => {}
        }
    }

    fn send(&mut self, envelope: Envelope) {
        let message = self.sent.len();
        self.sent.push(envelope);
        let nic = self.shadow.device_mut();
        if message.is_multiple_of(2) {
            nic.arrive_eager(envelope, message, message);
        } else {
            nic.arrive_rendezvous(envelope, message);
        }
    }

    /// Takes one event. Returns `false` if there was none.
    fn progress(&mut self) -> Result<bool, Breach> {
        let Some(ended) = self.shadow.progress()? else {
            return Ok(false);
        };
        match ended {
            None => {}
            Some(Outcome::Delivered {
                value,
                envelope,
                len,
                inline,
            }) => {
                assert_eq!(inline, Some(len), "an eager message is its number");
                self.deliver(value, envelope, len);
            }
            Some(Outcome::Matched {
                value,
                envelope,
                message,
            }) => self.deliver(value, envelope, number(&message)),
            Some(Outcome::Cancelled(value)) => self.note_cancelled(value),
        }
        Ok(true)
    }

    fn deliver(&mut self, receive: usize, envelope: Envelope, message: usize) {
        let posted = &mut self.receives[receive];
        assert_eq!(envelope, self.sent[message]);
        assert!(posted.pattern.matches(&envelope));
        assert_eq!(posted.got.replace(message), None, "receive {receive} twice");
        assert!(!posted.cancelled, "receive {receive} after its cancel");
    }

    fn note_cancelled(&mut self, receive: usize) {
        let posted = &mut self.receives[receive];
        assert!(
            posted.asked_to_cancel,
            "receive {receive} was not cancelled"
        );
        assert_eq!(
            posted.got, None,
            "receive {receive} cancelled after delivery"
        );
        posted.cancelled = true;
    }

    /// Lets everything happen that can happen.
    fn settle(&mut self) -> Result<(), Breach> {
        for _ in 0..ENOUGH {
            let nic = self.shadow.device_mut();
            let busy = nic.execute_command() | nic.finish_transfer(0);
            if !(self.progress()? || busy) {
                return Ok(());
            }
        }
        panic!("card and software go on for ever");
    }

    /// What the pair rule gives each receive, computed from everything that was ever posted and
    /// sent.
    fn demanded(&self) -> Vec<Option<usize>> {
        let mut left: Vec<usize> = (0..self.sent.len())
            .filter(|message| !self.taken.contains(message))
            .collect();
        self.receives
            .iter()
            .map(|posted| {
                let matches = |&m: &usize| posted.pattern.matches(&self.sent[m]);
                let at = left.iter().position(matches).filter(|_| !posted.cancelled);
                at.map(|at| left.remove(at))
            })
            .collect()
    }

    /// Checks a run that has settled, then cancels what is left and checks that nothing remains.
    fn finish(mut self) -> Result<(), Breach> {
        self.settle()?;
        let got: Vec<_> = self.receives.iter().map(|posted| posted.got).collect();
        assert_eq!(got, self.demanded());

        let open = |posted: &&Posted| posted.got.is_none() && !posted.cancelled;
        assert_eq!(self.shadow.len(), self.receives.iter().filter(open).count());
        let elsewhere = self.shadow.in_software() + self.shadow.device().listed();
        assert_eq!(
            elsewhere,
            self.shadow.len(),
            "every receive is in one place"
        );
        let matched = got.iter().flatten().count();
        let kept = self.sent.len() - matched - self.taken.len();
        assert_eq!(
            self.shadow.unexpected().len(),
            kept,
            "every message is somewhere"
        );

        for receive in 0..self.receives.len() {
            self.cancel(receive);
        }
        self.settle()?;
        assert!(self.shadow.is_empty());
        assert_eq!(self.shadow.in_software(), 0);
        assert!(self.shadow.device().is_idle(), "{:?}", self.shadow.device());
        assert!(self.receives.iter().all(|p| p.got.is_some() != p.cancelled));
        Ok(())
    }
}

fn number(message: &Message<usize, usize>) -> usize {
    match message {
        Message::Eager(number) | Message::Rendezvous(number) => *number,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn every_schedule_obeys_the_pair_rule(caps in caps(), steps in vec(steps(), 0..200)) {
        let mut run = Run::new(SimNic::new(caps));
        for step in &steps {
            run.step(step).expect("the simulated card keeps its promises");
        }
        run.finish().expect("the simulated card keeps its promises");
    }

    #[test]
    fn overlaps_are_counted_as_they_are(
        present in vec(patterns(), 0..12),
        gone in vec(patterns(), 0..12),
        asked in patterns(),
    ) {
        let mut overlaps = Overlaps::new();
        for pattern in present.iter().chain(&gone) {
            overlaps.add(pattern);
        }
        for pattern in &gone {
            overlaps.remove(pattern);
        }
        prop_assert_eq!(overlaps.len(), present.len());
        let expected = present.iter().any(|pattern| pattern.overlaps(&asked));
        prop_assert_eq!(overlaps.any(&asked), expected);
    }
}
