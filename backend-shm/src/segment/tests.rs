use super::*;
use crate::config::Config;

fn geometry() -> Geometry {
    Config {
        max: 64 << 20,
        ..Config::default()
    }
    .geometry()
}

fn fresh(ranks: u32) -> Segment {
    Segment::prepare(memory_file().unwrap(), ranks, geometry()).unwrap()
}

fn again(segment: &Segment) -> OwnedFd {
    // SAFETY: the segment keeps its descriptor open.
    unsafe { std::os::fd::BorrowedFd::borrow_raw(segment.fd()) }
        .try_clone_to_owned()
        .unwrap()
}

#[test]
fn two_mappings_see_each_other() {
    let one = fresh(2);
    let two = Segment::attach(again(&one), 2).unwrap();
    assert_eq!(two.geometry().unwrap(), geometry());
    let (offset, len) = one.extend(5000, "a test").unwrap();
    assert_eq!(len, 8192);
    // SAFETY: both addresses are of the extent that was just allocated.
    unsafe {
        *one.at(offset, 5000).unwrap() = 77;
        assert_eq!(*two.at(offset, 5000).unwrap(), 77);
    }
}

#[test]
fn nothing_outside_of_the_extents_can_be_addressed() {
    let segment = fresh(1);
    let (offset, len) = segment.extend(4096, "a test").unwrap();
    assert!(segment.at(offset, len as usize).is_some());
    assert!(
        segment.at(offset, len as usize + 1).is_none(),
        "beyond what is used"
    );
    assert!(segment.at(0, 8).is_none(), "the head");
    assert!(segment.at(u64::MAX, 8).is_none());
    assert!(segment.at(u64::MAX - 3, usize::MAX).is_none());
}

#[test]
fn a_segment_that_is_not_one_is_refused() {
    let open = memory_file().unwrap();
    assert!(
        Segment::attach(open, 1)
            .unwrap_err()
            .to_string()
            .contains("not a sealed memory file")
    );
    let segment = fresh(2);
    let refused = |ranks| {
        Segment::attach(again(&segment), ranks)
            .unwrap_err()
            .to_string()
    };
    assert!(refused(3).contains("is for 2 ranks, this job has 3"));
    segment.head().layout.fetch_add(1, Relaxed);
    assert!(refused(2).contains("builds of one version"));
    segment.head().layout.fetch_sub(1, Relaxed);
    segment.head().ring_cells.store(3, Relaxed);
    assert!(refused(2).contains("make no sense"));
    segment.head().magic.store(1, Relaxed);
    assert!(refused(2).contains("begins with 0x1"));
}

#[test]
fn a_sealed_file_can_neither_shrink_nor_grow() {
    let segment = fresh(1);
    for size in [0, segment.total() as libc::off_t * 2] {
        // SAFETY: a descriptor and a length.
        assert_ne!(unsafe { libc::ftruncate(segment.fd(), size) }, 0);
    }
}

#[test]
fn extents_end_with_the_file_and_say_so() {
    let segment = fresh(1);
    let mut extents = 0;
    let error = loop {
        match segment.extend(8 << 20, "a test") {
            Ok(_) => extents += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(extents, 7);
    assert!(
        error.to_string().contains("raise PORTOLAN_SHM_MAX"),
        "{error}"
    );
    assert!(
        segment.extend(1 << 20, "a test").is_ok(),
        "a smaller one fits"
    );
    assert!(segment.extend(u64::MAX, "a test").is_err());
}

/// A dump would allocate every page of the file. `dd` is "do not dump".
#[test]
fn core_dumps_leave_the_segment_out() {
    let segment = fresh(1);
    for segment in [&segment, &Segment::attach(again(&segment), 1).unwrap()] {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let begin = format!("{:x}-", segment.base as usize);
        let of_it = maps.lines().skip_while(|line| !line.starts_with(&begin));
        let flags = of_it.clone().find_map(|line| line.strip_prefix("VmFlags:"));
        let flags = flags.expect("the mapping has flags");
        assert!(flags.split_whitespace().any(|flag| flag == "dd"), "{flags}");
    }
}

#[test]
fn a_released_extent_is_zero_again() {
    let segment = fresh(1);
    let (offset, len) = segment.extend(4096, "a test").unwrap();
    let at = segment.at(offset, len as usize).unwrap();
    // SAFETY: the extent is this test's.
    unsafe { *at = 1 };
    segment.release(offset, len);
    segment.restore(offset, len, "a test").unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { *at }, 0);
}

#[test]
fn too_small_a_file_is_refused() {
    let tiny = Geometry {
        total: 8192,
        ..geometry()
    };
    let error = Segment::prepare(memory_file().unwrap(), 4, tiny).unwrap_err();
    assert!(
        error.to_string().contains("raise PORTOLAN_SHM_MAX"),
        "{error}"
    );
}

#[test]
fn long_reasons_are_cut_between_characters() {
    let segment = fresh(2);
    assert!(segment.fail(1, &"é".repeat(200)));
    assert_eq!(segment.reason(1), Some("é".repeat(layout::REASON / 2)));
    assert!(!segment.fail(1, "again"));
    assert_eq!(segment.reason(0), None);
}

#[test]
fn a_reason_whose_writer_was_killed_is_a_death_all_the_same() {
    let segment = fresh(1);
    segment
        .rank(0)
        .identity
        .life
        .store(Life::Failing as u32, Relaxed);
    assert!(
        segment
            .reason(0)
            .unwrap()
            .contains("died before it could say why")
    );
}

/// Whoever records a failure may be killed before it has told the others. Each process's watcher
/// tells its own rank once more when the process has ended.
#[test]
fn a_death_is_told_even_if_it_was_recorded_before() {
    let segment = fresh(3);
    let epoch = || segment.head().epoch.0.load(Relaxed);
    let life = |rank: u32| &segment.rank(rank).identity.life;
    // As far as `fail` comes if it is killed early, and if it is killed late.
    for (rank, recorded) in [(1, Life::Failing), (2, Life::Failed)] {
        life(rank).store(recorded as u32, Relaxed);
        let before = epoch();
        segment.died(0, rank, "a test");
        assert_eq!(epoch(), before + 1);
    }
    life(1).store(Life::Finished as u32, Relaxed);
    let before = epoch();
    segment.died(0, 1, "a test");
    assert_eq!(epoch(), before, "a rank that has left has not died");
}

#[test]
fn nobody_pushes_for_or_to_the_dead() {
    let segment = fresh(3);
    for rank in 0..3 {
        let life = &segment.rank(rank).identity.life;
        life.store(Life::Running as u32, Relaxed);
    }
    assert!(segment.begin_push(0, 1));
    segment.end_push(0);
    assert!(segment.fail(1, "a test"));
    assert!(!segment.begin_push(0, 1), "the owner of the buffer is dead");
    assert!(!segment.begin_push(1, 2), "the pusher is dead");
    segment.await_pushes(2, |_| false);
}

/// A rank that takes a buffer back because of a failure, or because it leaves, first waits until
/// the write under way has ended, or the process that writes.
#[test]
fn a_buffer_is_taken_back_after_the_last_write() {
    for round in 0..200 {
        let segment = fresh(2);
        for rank in 0..2 {
            let life = &segment.rank(rank).identity.life;
            life.store(Life::Running as u32, Relaxed);
        }
        let written = std::sync::atomic::AtomicBool::new(false);
        assert!(segment.begin_push(1, 0));
        if round % 2 == 0 {
            assert!(segment.fail(1, "a test"));
        } else {
            let life = &segment.rank(0).identity.life;
            life.store(Life::Finished as u32, Release);
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..round {
                    std::thread::yield_now();
                }
                written.store(true, Relaxed);
                segment.end_push(1);
            });
            segment.await_pushes(0, |_| false);
            assert!(written.load(Relaxed), "round {round}: taken back too early");
        });
        assert!(!segment.begin_push(1, 0));
    }
    let segment = fresh(2);
    segment
        .rank(1)
        .identity
        .life
        .store(Life::Running as u32, Relaxed);
    segment
        .rank(0)
        .identity
        .life
        .store(Life::Running as u32, Relaxed);
    assert!(segment.begin_push(1, 0));
    segment.fail(1, "a test");
    segment.await_pushes(0, |rank| rank == 1);
}

#[test]
fn an_extent_without_memory_is_given_back() {
    let segment = fresh(1);
    let refuse = |_, _, _| {
        Err(portolan_core::Error::new(
            portolan_core::ErrorKind::Exhausted,
            "no memory",
        ))
    };
    let (most, end) = (60 << 20, segment.total() as u64);
    for _ in 0..3 {
        segment.extend_by(most, end, "a test", refuse).unwrap_err();
    }
    let (offset, _) = segment.extend(4096, "a test").unwrap();
    assert_eq!(segment.extend(4096, "a test").unwrap().0, offset + 4096);
    assert!(
        segment
            .extend_by(most, end, "a test", |_, _, _| Ok(()))
            .is_ok()
    );
}
