//! Which rank waits for which: combines the reports of ranks that have waited for long into one
//! picture.
//!
//! A rank reports when it has waited for longer than the setting `STUCK_AFTER`, and again, with an
//! empty list, when that wait is over. Reports arrive one by one. [`Board::due`] is the time by
//! which the other ranks of the same deadlock should have reported too. Ranks that wait in the
//! launcher's own fence while the job starts cannot report, and need not: the launcher sees that
//! itself ([`Board::watch_fence`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::{Duration, Instant};

use portolan_core::Waiting;

/// Time between the first new report and the picture: the ranks of one deadlock report almost
/// together.
const TOGETHER: Duration = Duration::from_millis(200);
/// How many waiting ranks are shown one by one.
const SHOWN: usize = 32;
/// How many operations are shown for one rank.
const PER_RANK: usize = 3;

/// The operations for which one rank waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    /// The rank continues as soon as one of these ends. Never empty.
    pub(super) waits: Vec<Waiting>,
    /// How many more operations there are.
    pub(super) more: usize,
}

/// The state of a rank, apart from its report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Its process runs.
    Running,
    /// It waits for the others in the launcher's own fence while the job starts.
    InFence,
    /// Its process has ended.
    Ended,
}

/// The reports that hold at present.
#[derive(Debug, Default)]
pub(super) struct Board {
    reports: BTreeMap<u32, Report>,
    /// When the next picture is to be shown.
    due: Option<Instant>,
    /// How long ranks may wait in a fence before that is shown; `None` if it never is.
    patience: Option<Duration>,
    /// The ranks in the fence, and when that is to be shown if nothing changes.
    fence: (u32, Option<Instant>),
}

impl Board {
    /// An empty board. Ranks that wait in a fence are shown after `patience`, unless that is zero.
    pub(super) fn new(patience: Duration) -> Self {
        Self {
            patience: Some(patience).filter(|time| !time.is_zero()),
            ..Self::default()
        }
    }

    /// Notes how many ranks wait in a fence now.
    pub(super) fn watch_fence(&mut self, waiting: u32, now: Instant) {
        if self.fence.0 != waiting {
            let due = self.patience.and_then(|time| now.checked_add(time));
            self.fence = (waiting, due.filter(|_| waiting > 0));
        }
    }

    /// Takes a rank's report. An empty report removes the rank's earlier one, and is no news to
    /// show.
    pub(super) fn take(&mut self, rank: u32, report: Report, now: Instant) {
        if report.waits.is_empty() {
            self.reports.remove(&rank);
        } else if self.reports.get(&rank) != Some(&report) {
            self.reports.insert(rank, report);
            self.due.get_or_insert(now + TOGETHER);
        }
    }

    /// A rank's process has ended, and so has its wait.
    pub(super) fn forget(&mut self, rank: u32) {
        self.reports.remove(&rank);
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due.into_iter().chain(self.fence.1).min()
    }

    /// The picture at the time `now`, if it contains something that has not been shown. `ranks` has
    /// the state of each rank, by number.
    pub(super) fn show(&mut self, ranks: &[Standing], now: Instant) -> Option<String> {
        let reported = self.due.take_if(|due| *due <= now).is_some() && !self.reports.is_empty();
        let fenced = self.fence.1.take_if(|due| *due <= now).is_some();
        (reported || fenced).then(|| picture(&self.reports, ranks))
    }

    /// The picture of a job that has taken too long, if it contains something that has not been
    /// shown.
    pub(super) fn show_last(&mut self, ranks: &[Standing]) -> Option<String> {
        let reported = self.due.take().is_some() && !self.reports.is_empty();
        let shown_before = self.patience.is_some() && self.fence.1.is_none();
        self.fence.1 = None;
        let fenced = ranks.contains(&Standing::InFence) && !shown_before;
        (reported || fenced).then(|| picture(&self.reports, ranks))
    }
}

/// Formats the reports as a text of several lines.
fn picture(reports: &BTreeMap<u32, Report>, ranks: &[Standing]) -> String {
    let (count, size) = (reports.len(), ranks.len());
    let in_fence = |(rank, standing): (u32, &Standing)| {
        *standing == Standing::InFence && !reports.contains_key(&rank)
    };
    let fenced = (0..).zip(ranks).filter(|&one| in_fence(one)).count();
    // Of those in a fence it is not known for how long, if ranks have reported as well.
    let waiting = if count > 0 { count } else { fenced };
    let mut text = format!("who waits for whom: {waiting} of {size} ranks have waited for long");
    for (rank, report) in reports.iter().take(SHOWN) {
        let shown = report.waits.iter().take(PER_RANK).map(ToString::to_string);
        let shown = shown.collect::<Vec<_>>().join(", or ");
        let left = report.waits.len().saturating_sub(PER_RANK) + report.more;
        let more = match left {
            0 => String::new(),
            left => format!(", or {left} more"),
        };
        let _ = write!(text, "\n  rank {rank} waits for: {shown}{more}");
    }
    if count > SHOWN {
        let rest: Vec<_> = reports.keys().copied().skip(SHOWN).collect();
        let _ = write!(text, "\n  {} wait, too", name(&rest));
    }
    let silent = |standing| {
        let known = (0..).zip(ranks);
        let of = known.filter(|(rank, s)| **s == standing && !reports.contains_key(rank));
        of.map(|(rank, _)| rank).collect::<Vec<u32>>()
    };
    for (standing, what) in [
        (
            Standing::Running,
            if count > 0 {
                "not reported: computing, or not waiting for long"
            } else {
                "not there yet: computing, or in the middle of its start"
            },
        ),
        (
            Standing::InFence,
            "at the start of the job, waiting for the others",
        ),
        (Standing::Ended, "ended"),
    ] {
        let ranks = silent(standing);
        if !ranks.is_empty() {
            let _ = write!(text, "\n  {}: {what}", name(&ranks));
        }
    }
    for cycle in cycles(reports) {
        let mut ranks: Vec<_> = cycle.iter().map(ToString::to_string).collect();
        ranks.push(cycle[0].to_string());
        let _ = write!(text, "\n  cycle: rank {}", ranks.join(" → "));
    }
    text
}

/// The one rank for which all waits of this rank are, if there is one: without it this rank cannot
/// continue.
fn needed(report: &Report) -> Option<u32> {
    let first = report.waits.first()?.peer?;
    let same = report.waits.iter().all(|wait| wait.peer == Some(first));
    (same && report.more == 0).then_some(first)
}

/// The cycles of ranks that need each other, each beginning with its lowest rank.
///
/// A rank needs at most one other, so a walk from any rank either ends or enters exactly one cycle.
fn cycles(reports: &BTreeMap<u32, Report>) -> Vec<Vec<u32>> {
    let mut done = BTreeSet::new();
    let mut cycles = Vec::new();
    for &start in reports.keys() {
        let mut walk = Vec::new();
        let mut next = Some(start);
        while let Some(rank) = next.filter(|rank| done.insert(*rank)) {
            walk.push(rank);
            next = reports.get(&rank).and_then(needed);
        }
        // The walk ended at a rank that was seen before. If that rank is in this walk, it begins a
        // cycle.
        let begin = walk.iter().position(|rank| Some(*rank) == next);
        if let Some(begin) = begin {
            let mut cycle = walk.split_off(begin);
            let lowest = (0..cycle.len()).min_by_key(|&at| cycle[at]);
            cycle.rotate_left(lowest.unwrap_or(0));
            cycles.push(cycle);
        }
    }
    cycles
}

/// `rank 3`, `ranks 0, 2-5, 9`.
fn name(ranks: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => parts.push((rank, rank)),
        }
    }
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    let parts: Vec<_> = parts
        .iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            _ => format!("{first}-{last}"),
        })
        .collect();
    format!("{word} {}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use portolan_core::WaitKind;

    use super::*;

    fn wait(kind: WaitKind, peer: Option<u32>) -> Waiting {
        Waiting {
            kind,
            peer,
            context: 0,
            tag: Some(7),
            bytes: 8,
        }
    }

    /// Receives from any of these ranks.
    fn receives(peers: &[Option<u32>]) -> Report {
        let waits = peers.iter().map(|peer| wait(WaitKind::Receive, *peer));
        Report {
            waits: waits.collect(),
            more: 0,
        }
    }

    fn reports(list: &[(u32, Report)]) -> BTreeMap<u32, Report> {
        list.iter().cloned().collect()
    }

    const RUNNING: [Standing; 6] = [Standing::Running; 6];

    #[test]
    fn two_that_wait_for_each_other_are_a_cycle() {
        let two = reports(&[(0, receives(&[Some(1)])), (1, receives(&[Some(0)]))]);
        assert_eq!(
            picture(&two, &RUNNING[..2]),
            "who waits for whom: 2 of 2 ranks have waited for long\n  \
             rank 0 waits for: receive from rank 1 (context 0, tag 7, up to 8 bytes)\n  \
             rank 1 waits for: receive from rank 0 (context 0, tag 7, up to 8 bytes)\n  \
             cycle: rank 0 → 1 → 0"
        );
    }

    #[test]
    fn cycles_are_found_from_outside_and_told_once() {
        // 0 → 4 → 2 → 5 → 4; 3 waits for itself; 1 waits for a rank that has not reported.
        let waits = [(0, 4), (4, 2), (2, 5), (5, 4), (3, 3), (1, 9)];
        let all = waits.map(|(rank, peer)| (rank, receives(&[Some(peer)])));
        assert_eq!(cycles(&reports(&all)), [vec![2, 5, 4], vec![3]]);
    }

    #[test]
    fn who_could_go_on_otherwise_is_in_no_cycle() {
        let any = reports(&[(0, receives(&[None])), (1, receives(&[Some(0)]))]);
        assert!(cycles(&any).is_empty());
        let text = picture(&any, &RUNNING[..2]);
        assert!(
            text.contains("rank 0 waits for: receive from any rank ("),
            "{text}"
        );

        let either = receives(&[Some(1), Some(2)]);
        let either = reports(&[(0, either), (1, receives(&[Some(0)]))]);
        assert!(cycles(&either).is_empty());
        let twice = reports(&[(0, receives(&[Some(1); 2])), (1, receives(&[Some(0)]))]);
        assert_eq!(cycles(&twice), [[0, 1]]);
        let mut cut = twice;
        cut.get_mut(&0).unwrap().more = 1;
        assert!(cycles(&cut).is_empty());
        let text = picture(&cut, &RUNNING[..2]);
        assert!(text.contains(", or 1 more\n"), "{text}");
    }

    #[test]
    fn ranks_that_have_not_reported_are_told_apart() {
        use Standing::{Ended, InFence, Running};
        let one = reports(&[(1, receives(&[Some(0)]))]);
        let text = picture(&one, &[Ended, Running, Running, Running, InFence, Running]);
        let lines: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "  ranks 2-3, 5: not reported: computing, or not waiting for long",
                "  rank 4: at the start of the job, waiting for the others",
                "  rank 0: ended",
            ]
        );
    }

    #[test]
    fn large_jobs_make_short_pictures() {
        let ring = (0..1000).map(|rank| (rank, receives(&[Some((rank + 1) % 1000)])));
        let text = picture(&ring.collect(), &[Standing::Running; 1000]);
        assert!(text.contains("\n  ranks 32-999 wait, too\n"), "{text}");
    }

    #[test]
    fn a_picture_is_shown_once_for_what_is_new() {
        let now = Instant::now();
        let mut board = Board::default();
        assert_eq!(board.due(), None);
        board.take(0, receives(&[Some(1)]), now);
        board.take(1, receives(&[Some(0)]), now + Duration::from_millis(50));
        assert_eq!(board.due(), Some(now + TOGETHER));
        assert_eq!(board.show(&RUNNING[..2], now), None, "too early");
        let then = now + TOGETHER;
        let picture = board.show(&RUNNING[..2], then).unwrap();
        assert!(picture.contains("cycle"), "{picture}");
        assert_eq!((board.due(), board.show(&RUNNING[..2], then)), (None, None));
        // The same report again is not news, and neither is the end of a wait.
        board.take(0, receives(&[Some(1)]), now);
        board.take(1, receives(&[]), now);
        assert_eq!(board.due(), None);
        // A wait that ends before it was shown is not shown.
        board.take(1, receives(&[Some(0)]), now);
        board.take(1, receives(&[]), now);
        board.forget(0);
        assert!(board.due().is_some());
        assert_eq!(board.show(&RUNNING[..2], now + 2 * TOGETHER), None);
    }

    #[test]
    fn ranks_that_wait_for_others_to_start_are_shown_once() {
        let standings = [Standing::InFence, Standing::Running, Standing::InFence];
        let (now, patience) = (Instant::now(), Duration::from_secs(2));
        let mut board = Board::new(patience);
        board.watch_fence(1, now);
        board.watch_fence(2, now + patience / 2);
        board.watch_fence(2, now + patience);
        let due = now + patience / 2 + patience;
        assert_eq!(board.due(), Some(due), "since the last one has come");
        assert_eq!(
            board.show(&standings, due).unwrap(),
            "who waits for whom: 2 of 3 ranks have waited for long\n  \
             rank 1: not there yet: computing, or in the middle of its start\n  \
             ranks 0, 2: at the start of the job, waiting for the others"
        );
        assert_eq!((board.due(), board.show_last(&standings)), (None, None));
        board.watch_fence(0, due);
        assert_eq!(board.due(), None);
        // The end of the job's time shows it, too.
        let mut board = Board::new(Duration::ZERO);
        board.watch_fence(2, now);
        assert_eq!(board.due(), None);
        assert!(board.show_last(&standings).is_some());
        assert_eq!(board.show_last(&RUNNING), None);
    }
}
