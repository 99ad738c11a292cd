//! Writes reductions whose results are reproducible.

use portolan_datatype::{Layout, Op, Predefined, Primitive};

use super::convert::{Convert, Kind};
use super::sum::Sum;
use crate::algorithms::{self, Algorithm, Ask};
use crate::args::{Name, Operation};
use crate::lower::Problem;
use crate::plan::write as write_any;
use crate::problem::{Allreduce, Reduce, ReduceScatter, Scan};
use crate::schedule::{Base, Blocks, Builder, Span};
use crate::select::Table;

/// What the reproducible mode does to a reduction. See the [module](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Nothing: the operator is exact.
    AsIs,
    /// Operands keep the order of the ranks, and the bracketing is always the same for the same
    /// number of ranks.
    Fixed,
    /// The sum is exact, and rounded once.
    Exact(Kind),
}

/// What the reproducible mode does to reductions of items of a layout by an operator.
///
/// ```
/// use portolan_coll::exact::{Kind, Treatment, treatment};
/// use portolan_datatype::{Layout, Op};
/// let exact = Treatment::Exact(Kind::Double);
/// assert_eq!(treatment(&Op::SUM, &Layout::of::<f64>()), exact);
/// assert_eq!(treatment(&Op::SUM, &Layout::of::<i64>()), Treatment::AsIs);
/// ```
#[must_use]
pub fn treatment(op: &Op, layout: &Layout) -> Treatment {
    use Primitive::{C32, C64, F32, F64};
    let Some(op) = op.predefined() else {
        return Treatment::Fixed;
    };
    match (op, layout.homogeneous()) {
        (Predefined::Sum, Some(F32 | C32)) => Treatment::Exact(Kind::Single),
        (Predefined::Sum, Some(F64 | C64)) => Treatment::Exact(Kind::Double),
        (Predefined::Prod, Some(F32 | F64 | C32 | C64)) => Treatment::Fixed,
        _ => Treatment::AsIs,
    }
}

/// Operator and layout of an operation that reduces.
pub(crate) fn reduction<'a>(operation: &Operation<'a>) -> Option<(&'a Op, &'a Layout)> {
    match *operation {
        Operation::Reduce { send, recv, op, .. } => Some((op, send.or(recv)?.layout)),
        Operation::Allreduce { recv, op, .. }
        | Operation::ReduceScatter { recv, op, .. }
        | Operation::ReduceScatterBlock { recv, op, .. }
        | Operation::Scan { recv, op, .. } => Some((op, recv.layout)),
        _ => None,
    }
}

/// Writes a reduction as [`treatment`] says; returns the algorithm's name.
pub(crate) fn write(
    b: &mut Builder,
    table: &Table,
    name: Name,
    problem: &Problem,
    ask: &Ask,
    (op, layout): (&Op, &Layout),
) -> &'static str {
    match treatment(op, layout) {
        Treatment::AsIs => write_any(b, table, name, problem, ask),
        Treatment::Fixed => fixed(b, &ordered(problem)),
        Treatment::Exact(kind) => {
            b.set_op(&match kind {
                Kind::Single => Sum::<f32>::op(),
                Kind::Double => Sum::<f64>::op(),
            });
            // If the widened layout does not fit in the address space, neither would a part of it.
            let Ok(sums) = kind.sums(layout.size()) else {
                return fixed(b, &ordered(problem));
            };
            let item = b.span(Base::Scratch, 0, 0, &sums);
            exact(
                &mut Exact {
                    b,
                    table,
                    name,
                    kind,
                    item,
                },
                problem,
            )
        }
    }
}

/// The same problem, with its operands kept in order.
fn ordered(problem: &Problem) -> Problem {
    let mut problem = problem.clone();
    match &mut problem {
        Problem::Reduce(p) => p.commutative = false,
        Problem::Allreduce(p) => p.commutative = false,
        Problem::ReduceScatter(p) => p.commutative = false,
        Problem::Scan(p) => p.commutative = false,
        _ => {}
    }
    problem
}

/// Writes one particular algorithm, whatever the table says. Its bracketing depends on the number
/// of ranks alone, and that of a scan not even on that.
fn fixed(b: &mut Builder, problem: &Problem) -> &'static str {
    fn by<P>(
        b: &mut Builder,
        list: &[Algorithm<P>],
        name: &'static str,
        problem: &P,
    ) -> &'static str {
        let known = list.iter().find(|known| known.name == name);
        (known.unwrap_or(&list[0]).build)(b, problem);
        name
    }
    match problem {
        Problem::Reduce(p) => by(b, algorithms::REDUCE, "binomial", p),
        Problem::Allreduce(p) => by(b, algorithms::ALLREDUCE, "reduce-bcast", p),
        Problem::ReduceScatter(p) => by(b, algorithms::REDUCE_SCATTER, "reduce-scatter", p),
        Problem::Scan(p) => by(b, algorithms::SCAN, "chain", p),
        _ => "none",
    }
}

/// Bytes of sums in a part of the items. One part is reduced before the next is widened.
const PART: usize = 1 << 20;

struct Exact<'a> {
    b: &'a mut Builder,
    table: &'a Table,
    name: Name,
    kind: Kind,
    /// An item of sums.
    item: Span,
}

impl Exact<'_> {
    /// Scratch memory for the sums of some items.
    fn sums(&mut self, count: usize) -> Span {
        self.b.scratch_like(self.item, count)
    }

    fn widen(&mut self, numbers: Span, sums: Span) {
        self.b.convert(Convert::Widen(self.kind), numbers, sums);
    }

    fn round(&mut self, sums: Span, numbers: Span) {
        self.b.convert(Convert::Round(self.kind), sums, numbers);
    }

    /// Writes the reduction of a part.
    fn reduce(&mut self, problem: &Problem, whole: usize) -> &'static str {
        let (ranks, size) = (self.b.size(), self.item.size);
        let items = match problem {
            Problem::ReduceScatter(_) => whole / ranks as usize,
            _ => whole,
        };
        let ask = Ask {
            ranks,
            bytes: items * size,
            items,
        };
        write_any(self.b, self.table, self.name, problem, &ask)
    }

    /// The number of parts into which `count` items are divided.
    fn parts(&self, count: usize) -> usize {
        let each = (PART / self.item.size.max(1)).max(1);
        count.div_ceil(each).max(1)
    }

    /// Calls `write` part by part, each time with the same scratch memory.
    fn each_part(
        &mut self,
        count: usize,
        mut write: impl FnMut(&mut Self, usize, usize) -> &'static str,
    ) -> &'static str {
        let (parts, mut name) = (self.parts(count), "none");
        for part in 0..parts {
            let mark = self.b.mark();
            name = write(self, part, parts);
            self.b.release(mark);
        }
        name
    }
}

fn exact(exact: &mut Exact<'_>, problem: &Problem) -> &'static str {
    match problem {
        Problem::Reduce(p) => exact_reduce(exact, p),
        Problem::Allreduce(p) => exact.each_part(p.input.count, |exact, part, parts| {
            let (input, output) = (p.input.part(part, parts), p.output.part(part, parts));
            let sums = exact.sums(input.count);
            exact.widen(input, sums);
            let inner = Allreduce {
                input: sums,
                output: sums,
                commutative: true,
            };
            let name = exact.reduce(&Problem::Allreduce(inner), sums.count);
            exact.round(sums, output);
            name
        }),
        Problem::ReduceScatter(p) => exact_reduce_scatter(exact, p),
        Problem::Scan(p) => exact_scan(exact, p),
        _ => "none",
    }
}

fn exact_reduce(exact: &mut Exact<'_>, p: &Reduce) -> &'static str {
    exact.each_part(p.input.count, |exact, part, parts| {
        let input = p.input.part(part, parts);
        let sums = exact.sums(input.count);
        exact.widen(input, sums);
        let inner = Reduce {
            input: sums,
            output: p.output.map(|_| sums),
            root: p.root,
            commutative: true,
        };
        let name = exact.reduce(&Problem::Reduce(inner), sums.count);
        if let Some(output) = p.output {
            exact.round(sums, output.part(part, parts));
        }
        name
    })
}

fn exact_scan(exact: &mut Exact<'_>, p: &Scan) -> &'static str {
    exact.each_part(p.input.count, |exact, part, parts| {
        let (input, output) = (p.input.part(part, parts), p.output.part(part, parts));
        let sums = exact.sums(input.count);
        exact.widen(input, sums);
        let inner = Scan {
            input: sums,
            output: sums,
            exclusive: p.exclusive,
            commutative: true,
        };
        let name = exact.reduce(&Problem::Scan(inner), sums.count);
        if !p.exclusive || exact.b.rank() > 0 {
            exact.round(sums, output);
        }
        name
    })
}

/// Each part consists of a part of every block.
fn exact_reduce_scatter(exact: &mut Exact<'_>, p: &ReduceScatter) -> &'static str {
    let ranks = exact.b.size();
    let longest = (0..ranks)
        .map(|rank| p.input.of(rank).count)
        .max()
        .unwrap_or(0);
    // In place, the result lies where contributions to later parts are, so it is kept aside until
    // the end.
    let result = if p.in_place() {
        exact.b.scratch_like(p.output, p.output.count)
    } else {
        p.output
    };
    let name = exact.each_part(longest * ranks as usize, |exact, part, parts| {
        let blocks: Vec<_> = (0..ranks)
            .map(|rank| p.input.of(rank).part(part, parts))
            .collect();
        let total = blocks.iter().map(|block| block.count).sum();
        let whole = exact.sums(total);
        let mut next = 0;
        let place = |block: &Span| {
            let sums = whole.items(next, block.count);
            next += block.count;
            exact.widen(*block, sums);
            sums
        };
        let input: Vec<_> = blocks.iter().map(place).collect();
        let sums = exact.sums(blocks[exact.b.rank() as usize].count);
        let inner = ReduceScatter {
            input: Blocks::Listed(input),
            whole,
            output: sums,
            commutative: true,
        };
        let name = exact.reduce(&Problem::ReduceScatter(inner), total);
        exact.round(sums, result.part(part, parts));
        name
    });
    exact.b.copy(result, p.output);
    name
}
