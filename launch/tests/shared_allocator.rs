//! A program whose allocator is the shared one, as processes: receivers read its vectors where they
//! are.

mod common;
#[path = "common/rank.rs"]
mod rank;

use libtest_mimic::Trial;
use portolan::topology::Dimension;
use portolan::{Comm, Result, SharedAllocator, World};

#[global_allocator]
static ALLOCATOR: SharedAllocator = SharedAllocator::new();

fn main() -> std::process::ExitCode {
    let play = |role: &str| match role {
        "sends" => portolan::run(sends),
        "streams" => portolan::run(streams),
        _ => portolan::run(leaves_with_vectors),
    };
    rank::main(play, || {
        vec![
            Trial::test("vectors_are_read_where_they_are", || {
                job(&[], 2, "sends");
                Ok(())
            }),
            Trial::test("a_setting_turns_it_off", || {
                job(&["--env", "PORTOLAN_SHM_ALLOC_MIN=1T"], 2, "streams");
                Ok(())
            }),
            Trial::test("vectors_outlive_the_job", || {
                job(&[], 3, "leaves_with_vectors");
                Ok(())
            }),
        ]
    })
}

fn job(options: &[&str], ranks: u32, role: &str) {
    // Without calls of the system into another process other memory is streamed.
    let usual = ["--env", "PORTOLAN_SHM_CMA=off", "--timeout", "60"];
    rank::play(&[&usual, options].concat(), ranks, role).expect_code(0);
    assert!(rank::shared_files().is_empty());
}

/// The bytes that rank 0 reads from the memory of rank 1 when all forms of sends have sent vectors.
fn pulled(world: &World) -> Result<u64> {
    rank::pulled(world, || messages(&world.comm()))
}

/// Long enough that a vector is shared, and that a blocking send from there is read.
const BLOCKING: usize = 8 << 10;
/// Long enough for the other forms.
const LONG: usize = 64 << 10;
/// Too short to be shared.
const SHORT: usize = BLOCKING - 1;

fn messages(comm: &Comm) -> Result<()> {
    if comm.rank() == 0 {
        let lengths = [BLOCKING, LONG, LONG, LONG, SHORT];
        for (number, len) in (0_u8..).zip(lengths) {
            // Into a vector that is made for it, and into one that is there.
            let (bytes, _) = comm.recv::<u8>(1, 0)?;
            assert_eq!(bytes, vec![number; len]);
            let mut bytes = vec![0; len];
            comm.recv_into(&mut bytes, 1, 0)?;
            assert_eq!(bytes, vec![number; len]);
        }
        return Ok(());
    }
    let bytes = vec![0_u8; BLOCKING];
    comm.send(&bytes, 0, 0)?;
    comm.send(&bytes, 0, 0)?;
    let bytes = vec![1_u8; LONG];
    comm.scope(|scope| {
        scope.send(&bytes, 0, 0)?;
        scope.send(&bytes, 0, 0)?;
        Ok(())
    })?;
    for _ in 0..2 {
        comm.isend_owned(vec![2_u8; LONG], 0, 0)?.wait()?;
    }
    let mut send = comm.send_init(vec![3_u8; LONG], 0, 0)?;
    for _ in 0..2 {
        send.start()?;
        send.wait()?;
    }
    let bytes = vec![4_u8; SHORT];
    comm.send(&bytes, 0, 0)?;
    comm.send(&bytes, 0, 0)
}

fn sends(world: World) -> Result<()> {
    let all = 2 * (BLOCKING + 3 * LONG) as u64;
    let expected = if world.comm().rank() == 0 { all } else { 0 };
    assert_eq!(pulled(&world)?, expected);
    assert!(collective(&world)? > 0, "messages are tried soon");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let along = around(&world)?;
    if cores > 1 {
        // From each of two neighbours twice; the same rank is both.
        assert_eq!(along, 4 * LONG as u64, "long blocks are messages");
    }
    halves(&world.comm())
}

/// Long messages both ways, of which both ranks copy a half.
fn halves(comm: &Comm) -> Result<()> {
    let (me, other) = (comm.rank() as u8, 1 - comm.rank());
    for len in [(256 << 10) - 1, 256 << 10, (3 << 20) + 7] {
        let outgoing = vec![me; len];
        let mut incoming = vec![9; len];
        for _ in 0..3 {
            comm.sendrecv(&outgoing, other, 1, &mut incoming, other, 1)?;
            assert_eq!(incoming, vec![1 - me; len]);
        }
    }
    Ok(())
}

/// The bytes that this rank has read from the other's memory in some alltoalls, which begin over
/// boards.
fn collective(world: &World) -> Result<u64> {
    let comm = world.comm();
    rank::pulled(world, || {
        let outgoing = vec![comm.rank() as u8; 2 * LONG];
        let mut incoming = vec![9; 2 * LONG];
        for _ in 0..20 {
            comm.alltoall(&outgoing, &mut incoming)?;
            assert!(incoming[..LONG] == [0; LONG] && incoming[LONG..] == [1; LONG]);
        }
        Ok(())
    })
}

/// The bytes that this rank has read from the other's memory in an allgather and an alltoall around
/// a ring of the two.
fn around(world: &World) -> Result<u64> {
    let (comm, me) = (world.comm(), world.comm().rank() as u8);
    let ring = comm.cart_create(&[Dimension::periodic(2)], false)?;
    let ring = ring.expect("both ranks are in it");
    rank::pulled(world, || {
        let mut incoming = vec![9; 2 * LONG];
        ring.neighbour_allgather(&vec![me; LONG], &mut incoming)?;
        assert_eq!(incoming, vec![1 - me; 2 * LONG]);
        let outgoing = [vec![me; LONG], vec![me + 2; LONG]].concat();
        ring.neighbour_alltoall(&outgoing, &mut incoming)?;
        // What goes down arrives from above.
        assert!(incoming[..LONG] == vec![3 - me; LONG] && incoming[LONG..] == vec![1 - me; LONG]);
        Ok(())
    })
}

fn streams(world: World) -> Result<()> {
    assert_eq!(pulled(&world)?, 0);
    assert_eq!(collective(&world)?, 0, "boards are as good");
    assert_eq!(around(&world)?, 0, "boards are better");
    halves(&world.comm())
}

/// What has been received stays after the end of the job, and can be freed then.
fn leaves_with_vectors(world: World) -> Result<()> {
    let comm = world.comm();
    let me = comm.rank();
    let mut all = vec![vec![0_u64; 20_000]; comm.size() as usize];
    for (root, values) in (0..).zip(&mut all) {
        if root == me {
            values.fill(u64::from(root) + 1);
        }
        comm.bcast(values, root)?;
    }
    drop(comm);
    world.finalize()?;
    all[0].push(1);
    for (values, number) in all.iter().zip(1..) {
        assert!(values[..20_000].iter().all(|&value| value == number));
    }
    all.remove(1);
    assert_eq!(vec![7_u8; 1 << 20][999_999], 7);
    Ok(())
}
