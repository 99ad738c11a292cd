//! The device is told of communicators, and carries those that are made out of others.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use portolan_core::comm::{
    Communicator, Dimension, Edges, InterCommunicator, Neighbour, RemoteLeader, Source, Tag, Tags,
};
use portolan_core::device::CommView;
use portolan_core::matching::Pattern;
use portolan_core::{Device, ErrorKind, Group, ProcId, SendArgs, SendMode};

use crate::case::Verdict;
use crate::pending::Pending;
use crate::plain::Lent;
use crate::rank::{Rank, fails};

fn view<D: Device>(rank: &Rank<'_, D>, n: u32, group: Group) -> CommView {
    let me = group
        .rank_of(ProcId::new(rank.me()))
        .expect("everybody is a member");
    CommView {
        context: rank.context(n),
        contexts: 2,
        group,
        rank: me,
    }
}

/// Messages travel in the contexts of a new communicator; its contexts are free again when it is
/// gone.
pub fn init_and_free<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let world = view(rank, 4, Group::world(rank.size()));
    for round in 0..5_u8 {
        rank.device.comm_init(None, &world).expect("a communicator");
        let child = view(rank, 6, Group::world(rank.size()));
        rank.device
            .comm_init(Some(&world), &child)
            .expect("a second one");
        for context in [world.context, world.context + 1, child.context] {
            let to = ProcId::new(rank.next());
            let args = SendArgs::new(to, context, rank.me(), 1);
            rank.send(&args, &[round]).expect("a small send");
            let pattern = Pattern {
                context,
                source: Some(rank.previous()),
                tag: Some(1),
            };
            assert_eq!(rank.take(&pattern, 1).1, [round]);
        }
        rank.device.comm_free(&child);
        rank.device.comm_free(&world);
        rank.barrier();
    }
    Ok(())
}

/// Local ranks are those of the communicator: in a reversed one, messages name reversed ranks.
pub fn reversed<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let members: Vec<_> = (0..rank.size()).rev().map(ProcId::new).collect();
    let comm = view(rank, 4, Group::new(members));
    assert_eq!(comm.rank, rank.last() - rank.me());
    rank.device.comm_init(None, &comm).expect("a communicator");
    let local_next = (comm.rank + 1) % rank.size();
    let local_previous = (comm.rank + rank.size() - 1) % rank.size();
    let to = comm.group.process(local_next).expect("a member");
    rank.send(&SendArgs::new(to, comm.context, comm.rank, 1), b"reversed")
        .expect("a small send");
    let pattern = Pattern::any(comm.context);
    let (status, bytes) = rank.take(&pattern, 8);
    assert_eq!(
        (status.source, bytes.as_slice()),
        (local_previous, b"reversed".as_slice())
    );
    rank.device.comm_free(&comm);
    Ok(())
}

/// A context that is in use cannot be assigned again.
pub fn context_in_use<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let comm = view(rank, 4, Group::world(rank.size()));
    rank.device.comm_init(None, &comm).expect("a communicator");
    let again = rank.device.comm_init(None, &comm);
    fails(
        again,
        ErrorKind::InvalidCommunicator,
        "the same context twice",
    );
    let overlapping = view(rank, 5, Group::world(rank.size()));
    let overlap = rank.device.comm_init(None, &overlapping);
    fails(
        overlap,
        ErrorKind::InvalidCommunicator,
        "contexts that overlap",
    );
    rank.device.comm_free(&comm);
    rank.device
        .comm_init(None, &overlapping)
        .expect("its contexts are free now");
    rank.device.comm_free(&overlapping);
    Ok(())
}

type Comm<'d, D> = Communicator<Lent<'d, D>>;

/// Runs `body` with a communicator of all ranks, which no rank leaves before all are done with it.
fn world<D: Device>(rank: &Rank<'_, D>, body: impl FnOnce(&Comm<'_, D>)) {
    let comm = Communicator::world(Arc::new(Lent(rank.device))).expect("the world");
    body(&comm);
    drop(comm);
    rank.barrier();
}

/// Every rank hears from every rank by collective messages, and from the previous rank by
/// point-to-point ones.
fn meet<D: Device>(comm: &Comm<'_, D>) {
    let me = [u64::from(comm.device().attributes().world_rank)];
    let met = comm.allgather_words(&me).expect("everybody's number");
    let members: Vec<_> = comm.group().iter().map(|p| u64::from(p.index())).collect();
    assert_eq!(met, members);
    let (rank, size) = (comm.rank(), comm.size());
    let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
    assert_eq!(swap(comm, to, from, 0, rank), from);
}

/// Sends a number to one rank and receives one from another.
fn swap<D: Device>(comm: &Comm<'_, D>, to: u32, from: u32, lane: u32, number: u32) -> u32 {
    let sent = tell(comm, to, lane, number);
    let heard = hear(comm, from, lane);
    finish(comm, [sent]);
    heard
}

/// Starts to send a number.
fn tell<D: Device>(comm: &Comm<'_, D>, to: u32, lane: u32, number: u32) -> Pending {
    let args = comm.send_args(SendMode::Standard, to, Tag(lane));
    let bytes = number.to_le_bytes().to_vec();
    Rank::new(comm.device(), 0).isend(&args.expect("a rank"), bytes)
}

/// Receives a number.
fn hear<D: Device>(comm: &Comm<'_, D>, from: u32, lane: u32) -> u32 {
    let pattern = comm.pattern(Source::Rank(from), Tags::Is(Tag(lane)));
    let (status, bytes) = Rank::new(comm.device(), 0).take(&pattern.expect("a rank"), 4);
    assert_eq!(status.source, from);
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

fn finish<D: Device>(comm: &Comm<'_, D>, sent: impl IntoIterator<Item = Pending>) {
    for pending in sent {
        Rank::new(comm.device(), 0).done(pending);
    }
}

/// Duplicates, parts by color and by node, and parts of those: each has its own messages.
pub fn created<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    world(rank, |world| {
        let copy = world.dup().expect("a copy");
        let color = (world.rank() % 3 != 2).then_some(world.rank() % 3);
        let part = copy.split(color, -i64::from(copy.rank())).expect("a split");
        assert_eq!(part.is_some(), color.is_some());
        let all = Group::world(world.size());
        let backwards: Vec<_> = (0..world.size()).rev().collect();
        let backwards = all.include(&backwards).expect("all ranks");
        let backwards = world.create(&backwards).expect("a communicator");
        let backwards = backwards.expect("everybody is a member");
        let node = world
            .split_by(portolan_core::comm::SplitBy::Node, 0)
            .expect("parts by node");
        assert_eq!(*node.group(), on_this_host(world), "the ranks of a node");
        // A message waits on each communicator while the others are used.
        let held = world.dup().expect("a copy");
        let me = held.rank();
        let waiting = tell(&held, me, 5, me);
        meet(&copy);
        if let Some(part) = &part {
            assert_eq!(part.rank(), (part.size() - 1) - world.rank() / 3);
            meet(part);
            meet(&part.dup().expect("a copy of a part"));
        }
        meet(&backwards);
        meet(&node);
        assert_eq!(hear(&held, me, 5), me);
        finish(&held, [waiting]);
    });
    Ok(())
}

/// The ranks of this one's network namespace, by their own account: hosts are told apart by these
/// in all jobs of the project's tests. (Every processor of the emulated machine is a node.)
fn on_this_host<D: Device>(world: &Communicator<D>) -> Group {
    let device = world.device();
    if device.attributes().name == "t3e-sim" {
        return Group::new(vec![ProcId::new(device.attributes().world_rank)]);
    }
    let name = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let mine = hasher.finish();
    let all = world.allgather_words(&[mine]).expect("everybody's host");
    let here = |rank: &u32| all[*rank as usize] == mine;
    let ranks: Vec<_> = (0..world.size()).filter(here).collect();
    let group = Group::world(world.size()).include(&ranks);
    group.expect("ranks of the job")
}

/// Operations that are pending when a communicator is freed complete as if it still existed; their
/// statuses name its ranks.
pub fn freed_early<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    world(rank, |world| {
        let (n, key) = (world.size(), -i64::from(world.rank()));
        let backwards = world.split(Some(0), key).expect("a split");
        let backwards = backwards.expect("everybody has a color");
        let own = Rank::new(world.device(), 0);
        let (me, long) = (backwards.rank(), own.long());
        let (to, from) = ((me + 1) % n, (me + n - 1) % n);
        let mut sent = Vec::new();
        let mut received = Vec::new();
        for (tag, len) in [(0, 4), (1, long)] {
            let pattern = backwards.pattern(Source::Rank(from), Tags::Is(Tag(tag)));
            received.push(own.irecv(&pattern.expect("a rank"), len));
        }
        let any = backwards.pattern(Source::Any, Tags::Is(Tag(2)));
        received.push(own.irecv(&any.expect("any rank"), 4));
        for (tag, len) in [(0, 4), (1, long), (2, 4)] {
            let args = backwards.send_args(SendMode::Synchronous, to, Tag(tag));
            sent.push(own.isend(&args.expect("a rank"), vec![me as u8; len]));
        }
        drop(backwards);
        for (pending, tag) in received.into_iter().zip(0..) {
            let (status, bytes) = own.done(pending);
            assert_eq!((status.source, status.tag), (from, tag));
            assert_eq!(bytes, vec![from as u8; bytes.len()]);
        }
        finish(world, sent);
    });
    Ok(())
}

/// Some ranks make a communicator without the others, which do something else.
pub fn created_by_some<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    world(rank, |world| {
        let n = world.size();
        let ranks: Vec<_> = (n / 2..n).rev().collect();
        let group = world.group().include(&ranks).expect("half of the ranks");
        if world.rank() < n / 2 {
            return;
        }
        for tag in [0, 9] {
            let half = world.create_group(&group, Tag(tag)).expect("a half");
            meet(&half.expect("everybody here is a member"));
        }
    });
    Ok(())
}

/// Data sent along a lane arrives on it, on grids of every width and on a graph.
pub fn neighbours<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    fn along<D: Device>(comm: &Comm<'_, D>) {
        let neighbours = comm.neighbours().expect("a topology");
        let there = |n: &Neighbour| n.rank.map(|rank| (rank, n.lane));
        let destinations = neighbours.destinations.iter().filter_map(there);
        let sent: Vec<_> = destinations
            .map(|(to, lane)| tell(comm, to, lane, comm.rank() << 8 | lane))
            .collect();
        for (from, lane) in neighbours.sources.iter().filter_map(there) {
            assert_eq!(hear(comm, from, lane), from << 8 | lane);
        }
        finish(comm, sent);
        comm.barrier().expect("a barrier");
    }
    world(rank, |world| {
        let n = world.size();
        for dims in [
            [Dimension::periodic(n), Dimension::periodic(1)],
            [
                Dimension::open(n.div_ceil(2)),
                Dimension::periodic(n.min(2)),
            ],
        ] {
            // An odd number of ranks does not make two rows: one rank is left over.
            let dims = match dims[0].size * dims[1].size <= n {
                true => dims,
                false => [Dimension::open(n / 2), Dimension::periodic(2)],
            };
            if let Some(grid) = world.cart_create(&dims, true).expect("a grid") {
                along(&grid);
                along(&grid.cart_sub(&[false, true]).expect("its rows"));
            }
        }
        // The last rank gives edges by which every rank sends to rank 0, twice.
        let edges: Vec<_> = (0..n).map(|from| (from, Edges::from([0, 0]))).collect();
        let mine = if world.rank() == n - 1 {
            &edges[..]
        } else {
            &[]
        };
        let graph = world.dist_graph_create(mine, false).expect("a graph");
        let sources = graph.neighbours().expect("a topology").sources.len();
        assert_eq!(sources, if world.rank() == 0 { 2 * n as usize } else { 0 });
        along(&graph);
    });
    Ok(())
}

/// A rank alone has a communicator without asking any other.
pub fn alone<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    world(rank, |world| {
        let own = world.alone().expect("the first one");
        assert_eq!((own.rank(), own.size()), (0, 1));
        let sent = tell(&own, 0, 0, world.rank());
        assert_eq!(hear(&own, 0, 0), world.rank());
        finish(&own, [sent]);
        meet(&own.dup().expect("a copy"));
        meet(world);
    });
    Ok(())
}

/// The lower half of the ranks as one group, and the rest as the other.
fn halves<'a, D: Device>(world: &Comm<'a, D>) -> InterCommunicator<Lent<'a, D>> {
    let cut = world.size() / 2;
    let low = world.rank() < cut;
    let own = world.split(Some(u32::from(low)), 0).expect("two halves");
    let own = own.expect("everybody has a side");
    let remote = RemoteLeader {
        peer: world,
        rank: if low { cut } else { 0 },
        tag: Tag(3),
    };
    InterCommunicator::create(&own, 0, Some(remote)).expect("two groups")
}

/// Every rank hears from all of the other group.
fn meet_across<D: Device>(inter: &InterCommunicator<Lent<'_, D>>) {
    meet(inter.merged());
    let messages = inter.messages();
    let others = 0..inter.remote_size();
    let told = others.clone();
    let sent: Vec<_> = told.map(|to| tell(messages, to, 0, inter.rank())).collect();
    for from in others {
        assert_eq!(hear(messages, from, 0), from);
    }
    finish(messages, sent);
}

/// Two groups address each other's ranks; merged, they are one; parts of them are two groups again.
pub fn between_groups<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    world(rank, |world| {
        let inter = halves(world);
        let cut = world.size() / 2;
        let low = world.rank() < cut;
        let copy = inter.dup().expect("a copy");
        meet_across(&inter);
        meet_across(&copy);
        // The ranks that are even on their side, which include the first of either side.
        let even = inter.split((inter.rank() % 2 == 0).then_some(1), 0);
        let even = even.expect("parts of both");
        assert_eq!(even.is_some(), inter.rank() % 2 == 0);
        even.iter().for_each(meet_across);
        let first = inter.local_group().include(&[0]).expect("there is one");
        let pair = inter.create_part(&first).expect("two ranks");
        pair.iter().for_each(meet_across);
        assert_eq!(pair.is_some(), inter.rank() == 0);
        let merged = inter.merge(low).expect("one communicator");
        let first = world.group().process(cut);
        assert_eq!(
            merged.group().process(0),
            first,
            "the high group comes last"
        );
        meet(&merged);
    });
    Ok(())
}
