//! Schedules of operations between two groups, built from those of teams.

use portolan_core::Device;
use portolan_core::buffer::TypedBuf;
use portolan_core::comm::InterCommunicator;
use portolan_datatype::Op;

use super::{InterOperation, Root};
use crate::algorithms::{Ask, after, before};
use crate::args::{Many, Name};
use crate::exact;
use crate::lower::{Problem, blocks};
use crate::options::Options;
use crate::plan;
use crate::problem::{Barrier, Bcast, Gather, Reduce, Scatter};
use crate::schedule::{Base, Blocks, Builder, LayoutId, Span};
use crate::team::Team;

/// Both groups, as ranks of the communicator that contains both, seen by one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    /// The caller's group.
    pub(crate) local: Team,
    /// Rank of the other group's first member.
    pub(crate) first: u32,
    /// Number of ranks in the other group.
    pub(crate) remote: u32,
}

impl Groups {
    pub(crate) fn of<D: Device>(comm: &InterCommunicator<D>) -> Self {
        Self {
            local: Team::range(comm.rank(), comm.local_offset(), comm.size()),
            first: comm.remote_offset(),
            remote: comm.remote_size(),
        }
    }

    fn other(&self, rank: u32) -> u32 {
        self.first + rank
    }

    /// The root, in place 0, followed by the group that it talks to; `None` beside the root.
    fn rooted(&self, root: Root) -> Option<Team> {
        let (rank, local) = (self.local.rank(), 0..self.local.size());
        let own = |rank| self.local.member(rank);
        match root {
            Root::Beside => None,
            Root::Here => {
                let others = self.first..self.first + self.remote;
                let members = std::iter::once(own(rank)).chain(others);
                Some(Team::of(0, members.collect::<Vec<_>>()))
            }
            Root::Remote(root) => {
                let members = std::iter::once(self.other(root)).chain(local.map(own));
                Some(Team::of(1 + rank, members.collect::<Vec<_>>()))
            }
        }
    }
}

const NULL: *mut u8 = std::ptr::null_mut();
const NOTHING: Span = Span {
    base: Base::Scratch,
    offset: 0,
    count: 0,
    layout: LayoutId::BYTES,
    size: 1,
    extent: 1,
};

/// The state that all steps of one operation need. The builder's team is that of both groups.
struct Writer<'a> {
    b: &'a mut Builder,
    options: &'a Options,
    groups: &'a Groups,
}

/// Writes the schedule of an operation that has been validated; returns the addresses of
/// [`Base::Send`] and [`Base::Recv`].
pub(crate) fn write(
    b: &mut Builder,
    options: &Options,
    groups: &Groups,
    operation: &InterOperation<'_>,
) -> [*mut u8; 2] {
    let mut to = Writer { b, options, groups };
    match *operation {
        InterOperation::Barrier => {
            to.choose(Name::Barrier, Problem::Barrier(Barrier), NOTHING);
            [NULL; 2]
        }
        InterOperation::Bcast { data, root } => to.bcast(data, root),
        InterOperation::Gather { send, recv, root } => to.gather(send, recv, root),
        InterOperation::Scatter { send, recv, root } => to.scatter(send, recv, root),
        InterOperation::Allgather { send, recv } => {
            let mine = to.b.span(Base::Send, 0, send.count, send.layout);
            let (target, ptr) = blocks(to.b, Base::Recv, &recv, groups.remote);
            to.exchange(|_| mine, &target);
            [send.ptr, ptr]
        }
        InterOperation::Alltoall { send, recv } => {
            let (source, from) = blocks(to.b, Base::Send, &send, groups.remote);
            let (target, ptr) = blocks(to.b, Base::Recv, &recv, groups.remote);
            to.exchange(|rank| source.of(rank), &target);
            [from, ptr]
        }
        InterOperation::Reduce {
            send,
            recv,
            op,
            root,
        } => to.reduce(send, recv, op, root),
        InterOperation::Allreduce { send, recv, op } => to.allreduce(&send, &recv, op),
        InterOperation::ReduceScatter {
            send,
            recv,
            counts,
            op,
        } => to.reduce_scatter(&send, &recv, Some(counts), op),
        InterOperation::ReduceScatterBlock { send, recv, op } => {
            to.reduce_scatter(&send, &recv, None, op)
        }
    }
}

impl Writer<'_> {
    /// Lets an algorithm write for the builder's team.
    fn choose(&mut self, operation: Name, problem: Problem, data: Span) {
        let ask = self.ask(data);
        plan::write(self.b, &self.options.table, operation, &problem, &ask);
    }

    fn ask(&self, data: Span) -> Ask {
        Ask {
            ranks: self.b.size(),
            bytes: data.len(),
            items: data.count,
        }
    }

    /// The same for another team.
    fn choose_in(&mut self, team: Team, operation: Name, problem: Problem, data: Span) {
        self.within(team, |to| to.choose(operation, problem, data));
    }

    fn within(&mut self, team: Team, write: impl FnOnce(&mut Writer<'_>)) {
        let (options, groups) = (self.options, self.groups);
        self.b
            .within(team, |b| write(&mut Writer { b, options, groups }));
    }

    fn bcast(&mut self, data: Option<TypedBuf<'_>>, root: Root) -> [*mut u8; 2] {
        let (Some(team), Some(data)) = (self.groups.rooted(root), data) else {
            return [NULL; 2];
        };
        let span = self.b.span(Base::Recv, 0, data.count, data.layout);
        let problem = Bcast {
            data: span,
            root: 0,
        };
        self.choose_in(team, Name::Bcast, Problem::Bcast(problem), span);
        [NULL, data.ptr]
    }

    /// An uneven gather, because the root, in place 0 of its team, contributes nothing.
    fn gather(
        &mut self,
        send: Option<TypedBuf<'_>>,
        recv: Option<Many<'_>>,
        root: Root,
    ) -> [*mut u8; 2] {
        let Some(team) = self.groups.rooted(root) else {
            return [NULL; 2];
        };
        let (mut mine, mut target, mut bases) = (NOTHING, None, [NULL; 2]);
        match (root, send, recv) {
            (Root::Here, _, Some(recv)) => {
                let (others, ptr) = blocks(self.b, Base::Recv, &recv, self.groups.remote);
                (target, bases[1]) = (Some(after_nothing(&others)), ptr);
            }
            (_, Some(send), _) => {
                mine = self.b.span(Base::Send, 0, send.count, send.layout);
                bases[0] = send.ptr;
            }
            _ => {}
        }
        let problem = Gather {
            mine,
            blocks: target,
            root: 0,
            each: None,
        };
        self.choose_in(team, Name::Gather, Problem::Gather(problem), NOTHING);
        bases
    }

    fn scatter(
        &mut self,
        send: Option<Many<'_>>,
        recv: Option<TypedBuf<'_>>,
        root: Root,
    ) -> [*mut u8; 2] {
        let Some(team) = self.groups.rooted(root) else {
            return [NULL; 2];
        };
        let (mut mine, mut source, mut bases) = (NOTHING, None, [NULL; 2]);
        match (root, send, recv) {
            (Root::Here, Some(send), _) => {
                let (others, ptr) = blocks(self.b, Base::Send, &send, self.groups.remote);
                (source, bases[0]) = (Some(after_nothing(&others)), ptr);
            }
            (_, _, Some(recv)) => {
                mine = self.b.span(Base::Recv, 0, recv.count, recv.layout);
                bases[1] = recv.ptr;
            }
            _ => {}
        }
        let problem = Scatter {
            mine,
            blocks: source,
            root: 0,
            each: None,
        };
        self.choose_in(team, Name::Scatter, Problem::Scatter(problem), NOTHING);
        bases
    }

    /// One message to every rank of the other group, and one from each, with some peers at a time:
    /// rank `r` begins with the other group's rank `r`.
    fn exchange(&mut self, sent: impl Fn(u32) -> Span, target: &Blocks) {
        let (rank, local) = (self.groups.local.rank(), self.groups.local.size());
        let remote = self.groups.remote;
        // With as many rounds as the larger group has ranks, each rank meets at most one other per
        // round.
        let rounds = local.max(remote);
        for round in 0..rounds {
            let from = before(rank, round, rounds);
            if from < remote {
                self.b.recv(self.groups.other(from), target.of(from));
            }
            let to = after(rank, round, rounds);
            if to < remote {
                self.b.send(self.groups.other(to), sent(to));
            }
            if (round + 1).is_multiple_of(PEERS) {
                self.b.wait();
            }
        }
        self.b.wait();
    }

    /// Reduces the contributions of the caller's group to its first rank, where it returns the
    /// result.
    fn reduce_here(&mut self, send: &TypedBuf<'_>, input: Span, op: &Op) -> Option<Span> {
        self.b.set_op(op);
        let first = self.groups.local.rank() == 0;
        let output = first.then(|| self.b.scratch_like(input, input.count));
        let problem = Problem::Reduce(Reduce {
            input,
            output,
            root: 0,
            commutative: op.is_commutative(),
        });
        self.within(self.groups.local.clone(), |to| {
            if !to.options.reproducible {
                return to.choose(Name::Reduce, problem, input);
            }
            let (ask, table) = (to.ask(input), &to.options.table);
            exact::write(to.b, table, Name::Reduce, &problem, &ask, (op, send.layout));
        });
        self.b.wait();
        output
    }

    fn reduce(
        &mut self,
        send: Option<TypedBuf<'_>>,
        recv: Option<TypedBuf<'_>>,
        op: &Op,
        root: Root,
    ) -> [*mut u8; 2] {
        match (root, send, recv) {
            (Root::Here, _, Some(recv)) => {
                let output = self.b.span(Base::Recv, 0, recv.count, recv.layout);
                self.b.recv(self.groups.other(0), output);
                self.b.wait();
                [NULL, recv.ptr]
            }
            (Root::Remote(root), Some(send), _) => {
                let input = self.b.span(Base::Send, 0, send.count, send.layout);
                if let Some(result) = self.reduce_here(&send, input, op) {
                    self.b.send(self.groups.other(root), result);
                    self.b.wait();
                }
                [send.ptr, NULL]
            }
            _ => [NULL; 2],
        }
    }

    /// The first ranks of both groups swap their groups' results.
    fn swap(&mut self, mine: Span, theirs: Span) {
        self.b.recv(self.groups.other(0), theirs);
        self.b.send(self.groups.other(0), mine);
        self.b.wait();
    }

    fn allreduce(&mut self, send: &TypedBuf<'_>, recv: &TypedBuf<'_>, op: &Op) -> [*mut u8; 2] {
        let input = self.b.span(Base::Send, 0, send.count, send.layout);
        let output = self.b.span(Base::Recv, 0, recv.count, recv.layout);
        if let Some(result) = self.reduce_here(send, input, op) {
            self.swap(result, output);
        }
        let problem = Bcast {
            data: output,
            root: 0,
        };
        let team = self.groups.local.clone();
        self.choose_in(team, Name::Bcast, Problem::Bcast(problem), output);
        [send.ptr, recv.ptr]
    }

    fn reduce_scatter(
        &mut self,
        send: &TypedBuf<'_>,
        recv: &TypedBuf<'_>,
        counts: Option<&[usize]>,
        op: &Op,
    ) -> [*mut u8; 2] {
        let (rank, ranks) = (self.groups.local.rank(), self.groups.local.size());
        let count = |rank: u32| counts.map_or(recv.count, |counts| counts[rank as usize]);
        let total = (0..ranks).map(count).sum();
        let input = self.b.span(Base::Send, 0, total, send.layout);
        let output = self.b.span(Base::Recv, 0, count(rank), recv.layout);
        let result = self.reduce_here(send, input, op).map(|result| {
            let theirs = self.b.scratch_like(input, total);
            self.swap(result, theirs);
            theirs
        });
        let parts = result.map(|whole| match counts {
            None => Blocks::Equal { whole, ranks },
            Some(counts) => side_by_side(whole, counts),
        });
        let each = counts.is_none().then(|| output.len());
        let problem = Scatter {
            mine: output,
            blocks: parts,
            root: 0,
            each,
        };
        let team = self.groups.local.clone();
        let data = each.map_or(NOTHING, |_| output);
        self.choose_in(team, Name::Scatter, Problem::Scatter(problem), data);
        [send.ptr, recv.ptr]
    }
}

/// Number of peers with which a rank exchanges messages at a time.
const PEERS: u32 = 32;

/// The blocks of the others, after an empty one for the root in place 0.
fn after_nothing(others: &Blocks) -> Blocks {
    let blocks = (0..others.ranks()).map(|rank| others.of(rank));
    Blocks::Listed(std::iter::once(NOTHING).chain(blocks).collect())
}

fn side_by_side(whole: Span, counts: &[usize]) -> Blocks {
    let mut next = 0;
    let block = |&count: &usize| {
        let block = whole.items(next, count);
        next += count;
        block
    };
    Blocks::Listed(counts.iter().map(block).collect())
}
