//! Groups compared with the simplest model: a vector.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::error::ErrorKind;

fn ids(members: &[u32]) -> Vec<ProcId> {
    members.iter().copied().map(ProcId::new).collect()
}

fn model(group: &Group) -> Vec<u32> {
    group.iter().map(ProcId::index).collect()
}

fn deduplicated(members: &[u32]) -> Vec<u32> {
    let mut model: Vec<u32> = Vec::new();
    for &member in members {
        if !model.contains(&member) {
            model.push(member);
        }
    }
    model
}

/// Members drawn from few processes, so that groups overlap; often in a regular order.
fn members() -> impl Strategy<Value = Vec<u32>> {
    let regular = (0..20_u32, -3..=3_i64, 0..40_usize).prop_map(|(first, stride, n)| {
        let member = |i: usize| u32::try_from(i64::from(first) + i as i64 * stride).ok();
        (0..n).map_while(member).collect()
    });
    prop_oneof![vec(0..60_u32, 0..50), regular]
}

proptest! {
    #[test]
    fn a_group_is_its_members(members in members()) {
        let (group, model) = (Group::new(ids(&members)), deduplicated(&members));
        prop_assert_eq!(group.iter().map(ProcId::index).collect::<Vec<_>>(), model.clone());
        prop_assert_eq!(group.size() as usize, model.len());
        prop_assert_eq!(group.is_empty(), model.is_empty());
        for process in (0..70).chain([u32::MAX - 1, u32::MAX]) {
            let rank = model.iter().position(|&member| member == process);
            prop_assert_eq!(group.rank_of(ProcId::new(process)), rank.map(|rank| rank as u32));
        }
        for rank in 0..70 {
            let process = model.get(rank as usize).copied();
            prop_assert_eq!(group.process(rank).map(ProcId::index), process);
        }
    }

    #[test]
    fn the_algebra_is_that_of_sets(a in members(), b in members()) {
        let (a, b) = (deduplicated(&a), deduplicated(&b));
        let (left, right) = (Group::new(ids(&a)), Group::new(ids(&b)));
        let mut union = a.clone();
        union.extend(b.iter().filter(|member| !a.contains(member)));
        prop_assert_eq!(model(&left.union(&right)), union);
        let (both, one): (Vec<u32>, Vec<u32>) = a.iter().partition(|member| b.contains(member));
        prop_assert_eq!(model(&left.intersection(&right)), both.clone());
        prop_assert_eq!(model(&left.difference(&right)), one);
        let common = both.first().copied();
        prop_assert_eq!(left.common(&right).map(ProcId::index), common);

        let (mut sorted_a, mut sorted_b) = (a.clone(), b.clone());
        sorted_a.sort_unstable();
        sorted_b.sort_unstable();
        let expected = if a == b {
            Comparison::Identical
        } else if sorted_a == sorted_b {
            Comparison::Similar
        } else {
            Comparison::Unequal
        };
        prop_assert_eq!(left.compare(&right), expected);
        prop_assert_eq!(left == right, a == b);
        prop_assert_eq!(left.compare(&Group::new(ids(&sorted_a))) == Comparison::Unequal, false);
    }

    #[test]
    fn ranks_are_taken_and_left_out(members in members(), ranks in vec(0..45_u32, 0..30)) {
        let (group, model) = (Group::new(ids(&members)), deduplicated(&members));
        let twice = deduplicated(&ranks).len() < ranks.len();
        let outside = ranks.iter().any(|&rank| rank as usize >= model.len());
        let (taken, left) = (group.include(&ranks), group.exclude(&ranks));
        if outside || twice {
            let kind = if outside { ErrorKind::InvalidRank } else { ErrorKind::InvalidArgument };
            prop_assert_eq!(taken.unwrap_err().kind(), kind);
            prop_assert_eq!(left.unwrap_err().kind(), kind);
        } else {
            let expected: Vec<u32> = ranks.iter().map(|&rank| model[rank as usize]).collect();
            prop_assert_eq!(super::tests::model(&taken.unwrap()), expected);
            let stay = |rank: &usize| !ranks.contains(&(*rank as u32));
            let expected: Vec<u32> = (0..model.len()).filter(stay).map(|r| model[r]).collect();
            prop_assert_eq!(super::tests::model(&left.unwrap()), expected);
        }
    }

    #[test]
    fn ranges_are_the_ranks_they_name(first in 0..30_u32, last in 0..30_u32, stride in -5..=5_i64) {
        let (mut expected, mut at) = (Vec::new(), i64::from(first));
        let up = last >= first;
        while stride != 0 && if up { at <= i64::from(last) } else { at >= i64::from(last) } {
            expected.push(at as u32);
            at += stride;
            if (stride > 0) != up {
                break;
            }
        }
        let legal = stride != 0 && (first == last || (stride > 0) == up);
        let ranges = [RankRange { first, last, stride }];
        let group = Group::world(30);
        match group.include_ranges(&ranges) {
            Ok(taken) => {
                prop_assert!(legal);
                prop_assert_eq!(model(&taken), expected);
                let left = group.exclude_ranges(&ranges).unwrap();
                prop_assert_eq!(left, group.difference(&taken));
            }
            Err(error) => {
                prop_assert!(!legal);
                prop_assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            }
        }
    }

    #[test]
    fn translation_goes_through_processes(a in members(), b in members()) {
        let (a, b) = (Group::new(ids(&a)), Group::new(ids(&b)));
        let ranks: Vec<u32> = (0..a.size()).rev().collect();
        for (&rank, there) in ranks.iter().zip(a.translate(&ranks, &b).unwrap()) {
            prop_assert_eq!(there, b.rank_of(a.process(rank).unwrap()));
        }
        let error = a.translate(&[a.size()], &b).unwrap_err();
        prop_assert_eq!(error.kind(), ErrorKind::InvalidRank);
    }
}

#[test]
fn regular_groups_take_no_table() {
    let is_table = |group: &Group| matches!(group.0, Repr::Table(_));
    for regular in [
        &[][..],
        &[7],
        &[0, 1, 2],
        &[3, 5, 7],
        &[9, 6, 3, 0],
        &[0, u32::MAX >> 1],
    ] {
        let group = Group::new(ids(regular));
        assert!(!is_table(&group), "{regular:?}");
        assert_eq!(model(&group), regular);
    }
    for irregular in [&[0, 1, 3][..], &[2, 1, 2, 5], &[0, u32::MAX]] {
        assert!(is_table(&Group::new(ids(irregular))), "{irregular:?}");
    }
    assert!(matches!(Group::new(ids(&[0, 1, 2])).0, Repr::Identity(3)));
}

#[test]
fn errors_say_what_to_use() {
    let text = |outcome: crate::Result<Group>| outcome.unwrap_err().to_string();
    let group = Group::world(4);
    assert!(text(group.include(&[1, 4])).contains("rank 4 is outside of a group of 4"));
    assert!(text(group.exclude(&[9])).contains("use ranks 0 to 3"));
    assert!(text(group.include(&[2, 0, 2])).contains("rank 2 of the group is named twice"));
    assert!(text(Group::empty().include(&[0])).contains("the group is empty"));
    // Huge, and outside of the group: it is rejected before it is expanded.
    let range = RankRange {
        first: 0,
        last: u32::MAX,
        stride: 1,
    };
    assert!(text(group.include_ranges(&[range])).contains("outside of a group of 4"));
}

/// Only the ranks of a range must be in the group, not the bound that the range does not pass.
#[test]
fn the_bound_of_a_range_may_be_outside_of_the_group() {
    let group = Group::world(8);
    let range = |first, last, stride| {
        [RankRange {
            first,
            last,
            stride,
        }]
    };
    let legal = range(1, 8, 3);
    assert_eq!(model(&group.include_ranges(&legal).unwrap()), [1, 4, 7]);
    let left = group.exclude_ranges(&legal).unwrap();
    assert_eq!(model(&left), [0, 2, 3, 5, 6]);
    let one = group.include_ranges(&range(7, u32::MAX, i64::MAX));
    assert_eq!(model(&one.unwrap()), [7]);
    for (range, outside) in [
        (range(2, 8, 3), 8),
        (range(9, 0, -2), 9),
        (range(8, 8, 1), 8),
    ] {
        let error = group.include_ranges(&range).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRank);
        let what = format!("rank {outside} is outside");
        assert!(error.to_string().contains(&what), "{error}");
    }
}
