//! The reference for tests of reductions: operands combined one after the other.

use std::ops::Range;

use portolan_datatype::{Layout, MsgRep, Op, Pair};

use crate::schedule::Base;
use crate::simulate::Simulation;

/// Where the contribution lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forms {
    Apart,
    InPlace,
}

impl Forms {
    pub(crate) const ALL: [Self; 2] = [Self::Apart, Self::InPlace];

    pub(crate) fn base(self) -> Base {
        match self {
            Self::Apart => Base::Send,
            Self::InPlace => Base::Recv,
        }
    }
}

/// An operator, and the data to which it is applied.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) op: Op,
    pub(crate) layout: Layout,
    pub(crate) count: usize,
    /// Whether a larger number of items would overlap.
    pub(crate) woven: bool,
    /// Mask for each byte of data.
    mask: u8,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} items", self.name, self.count)
    }
}

impl Case {
    pub(crate) fn new(name: &'static str, op: Op, layout: Layout, count: usize) -> Self {
        Self {
            name,
            op,
            layout,
            count,
            woven: false,
            mask: 0xff,
        }
    }

    /// Fills the buffers of all ranks; returns where contribution and result begin.
    pub(crate) fn fill(&self, run: &mut Simulation, form: Forms) -> (isize, isize) {
        let mask = self.mask;
        let mut fill = |base| {
            run.fill_with(base, &self.layout, self.count, |random, _, _| {
                random.next() as u8 & mask
            })
        };
        let output = fill(Base::Recv);
        let input = fill(Base::Send);
        let input = if form == Forms::InPlace {
            output
        } else {
            input
        };
        (input, output)
    }

    /// The packed result of reducing the contributions of some ranks.
    pub(crate) fn reduced(&self, run: &Simulation, form: Forms, ranks: Range<u32>) -> Vec<u8> {
        self.reduced_from(run, |_| form.base(), ranks)
    }

    /// The same if each rank has its contribution in a place of its own.
    pub(crate) fn reduced_from(
        &self,
        run: &Simulation,
        base: impl Fn(u32) -> Base,
        ranks: Range<u32>,
    ) -> Vec<u8> {
        let reach = self.layout.span(self.count).expect("a small reach");
        let mut memories: Vec<Vec<u8>> = ranks
            .map(|rank| run.memory(rank, base(rank)).to_vec())
            .collect();
        let mut packed = vec![0; self.layout.size() * self.count];
        let Some(mut result) = memories.pop() else {
            return packed;
        };
        let inout = result.as_mut_ptr().wrapping_offset(-reach.start);
        for memory in memories.iter().rev() {
            let input = memory.as_ptr().wrapping_offset(-reach.start);
            // SAFETY: both memories have the reach of all items.
            let done = unsafe { self.op.apply(&self.layout, self.count, input, inout) };
            done.expect("the operator knows the layout");
        }
        let (to, len) = (packed.as_mut_ptr(), packed.len());
        // SAFETY: as above; there is room for the packed data.
        unsafe {
            self.layout
                .pack_range(inout, self.count, 0, to, len, MsgRep::Native)
        };
        packed
    }
}

const PRIME: u64 = 65_521;

/// Composition of `x -> a x + b` modulo a prime: associative, and not commutative.
pub(crate) fn affine(count: usize) -> Case {
    let op = Op::new(false, |[a, b]: [u32; 2], [c, d]: [u32; 2]| {
        let product = |x: u32, y: u32| u64::from(x) * u64::from(y) % PRIME;
        [
            product(a, c) as u32,
            ((product(a, d) + u64::from(b)) % PRIME) as u32,
        ]
    });
    Case::new("affine", op, Layout::of::<[u32; 2]>(), count)
}

/// Operators and layouts of all kinds.
pub(crate) fn cases() -> Vec<Case> {
    let int = Layout::of::<u32>();
    let column = Layout::vector(3, 1, 4, &int).expect("a legal vector");
    let woven = Layout::resized(&column, 0, 4).expect("a legal extent");
    let below = Layout::hindexed(&[1, 1], &[-8, 4], &int).expect("legal displacements");
    let below = Layout::resized(&below, -8, 16).expect("a legal extent");
    let backwards = Layout::resized(&int, 0, -8).expect("a legal extent");
    let above = Layout::hindexed_block(1, &[8], &int).expect("legal displacements");
    let above = Layout::resized(&above, 8, 12).expect("a legal extent");
    let sum = |layout: &Layout, count| Case::new("sum", Op::SUM, layout.clone(), count);
    let mut all: Vec<_> = [0, 1, 2, 5, 16, 37].map(|count| sum(&int, count)).into();
    all.extend([0, 1, 3, 16, 50].map(affine));
    all.extend([sum(&column, 1), sum(&column, 19), sum(&below, 23)]);
    all.extend([sum(&backwards, 21), sum(&above, 17)]);
    all.push(Case {
        woven: true,
        ..sum(&woven, 4)
    });
    all.push(Case::new("xor", Op::BXOR, Layout::byte(), 70_001));
    // Only a few different values, so that ties occur and the place decides.
    let pair = Layout::of::<Pair<i32>>();
    all.extend([1, 40].map(|count| Case {
        mask: 1,
        ..Case::new("maxloc", Op::MAXLOC, pair.clone(), count)
    }));
    all
}

mod random {
    use proptest::prelude::*;

    use super::*;
    use crate::algorithms::{ALLREDUCE, REDUCE, SCAN};
    use crate::problem::{Allreduce, Reduce, Scan};
    use crate::schedule::Builder;

    /// Any number of ranks and items, any root, an operator that commutes or not.
    #[derive(Debug)]
    struct Setting {
        size: u32,
        root: u32,
        case: Case,
        form: Forms,
        seed: u64,
    }

    fn settings() -> impl Strategy<Value = Setting> {
        let numbers = (1u32..=17, 0u32..17, 0usize..200, any::<u64>());
        (numbers, any::<bool>(), any::<bool>()).prop_map(|(numbers, sums, in_place)| {
            let (size, root, count, seed) = numbers;
            let sum = || Case::new("sum", Op::SUM, Layout::of::<u64>(), count);
            Setting {
                size,
                root: root % size,
                case: if sums { sum() } else { affine(count) },
                form: Forms::ALL[usize::from(in_place)],
                seed,
            }
        })
    }

    impl Setting {
        fn input(&self, b: &mut Builder) -> crate::schedule::Span {
            b.set_op(&self.case.op);
            b.span(self.form.base(), 0, self.case.count, &self.case.layout)
        }

        fn output(&self, b: &mut Builder) -> crate::schedule::Span {
            let input = self.input(b);
            match self.form {
                Forms::InPlace => input,
                Forms::Apart => b.span(Base::Recv, 0, self.case.count, &self.case.layout),
            }
        }

        fn new_run(&self) -> Simulation {
            let mut run = Simulation::new(self.size, self.seed);
            self.case.fill(&mut run, self.form);
            run
        }

        fn got(&self, run: &Simulation, rank: u32) -> Vec<u8> {
            run.packed(rank, Base::Recv, &self.case.layout, self.case.count)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn reductions_of_anything_are_those_of_one_after_the_other(setting in settings()) {
            let Setting { size, root, case, form, .. } = &setting;
            let commutative = case.op.is_commutative();
            for algorithm in ALLREDUCE {
                let mut run = setting.new_run();
                let expected = case.reduced(&run, *form, 0..*size);
                let fits = run.schedule_fitting(algorithm, case.count, &case.layout, |b| {
                    let output = setting.output(b);
                    let input = if *form == Forms::InPlace { output } else { setting.input(b) };
                    Allreduce { input, output, commutative }
                });
                if fits {
                    run.run(algorithm.name);
                    for rank in 0..*size {
                        prop_assert_eq!(&setting.got(&run, rank), &expected, "{}", algorithm.name);
                    }
                }
            }
            for algorithm in REDUCE {
                let mut run = setting.new_run();
                let base = |rank| if rank == *root { form.base() } else { Base::Send };
                let expected = case.reduced_from(&run, base, 0..*size);
                let fits = run.schedule_fitting(algorithm, case.count, &case.layout, |b| {
                    b.set_op(&case.op);
                    let span = |b: &mut Builder, base| b.span(base, 0, case.count, &case.layout);
                    let (input, at_root) = (span(b, base(b.rank())), b.rank() == *root);
                    let output = match form {
                        Forms::InPlace => input,
                        Forms::Apart => span(b, Base::Recv),
                    };
                    let output = at_root.then_some(output);
                    Reduce { input, output, root: *root, commutative }
                });
                if fits {
                    run.run(algorithm.name);
                    prop_assert_eq!(setting.got(&run, *root), expected, "{}", algorithm.name);
                }
            }
            for (algorithm, exclusive) in SCAN.iter().flat_map(|a| [(a, false), (a, true)]) {
                let mut run = setting.new_run();
                let expected = |rank: u32| case.reduced(&run, *form, 0..rank + u32::from(!exclusive));
                let expected: Vec<_> = (0..*size).map(expected).collect();
                run.schedule_fitting(algorithm, case.count, &case.layout, |b| {
                    let output = setting.output(b);
                    let input = if *form == Forms::InPlace { output } else { setting.input(b) };
                    Scan { input, output, exclusive, commutative }
                });
                run.run(algorithm.name);
                for rank in u32::from(exclusive)..*size {
                    prop_assert_eq!(&setting.got(&run, rank), &expected[rank as usize], "{}", algorithm.name);
                }
            }
        }
    }
}
