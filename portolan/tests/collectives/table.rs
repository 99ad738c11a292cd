//! Tables of rules, as settings and as files.

use portolan::coll::Counters;
use portolan::{Builder, Result, World};

use crate::common::jobs_with;

/// The messages that this rank sends in one broadcast of `len` bytes.
fn sent(world: &World, len: usize) -> Result<u64> {
    let comm = world.comm();
    let before = comm.counted(Counters::Messages);
    let mut data = vec![comm.rank() as u8; len];
    comm.bcast(&mut data, 0)?;
    assert!(data.iter().all(|&byte| byte == 0));
    Ok(comm.counted(Counters::Messages) - before)
}

/// Of eight ranks the root sends to all others, or to the roots of three subtrees, or to the next.
#[test]
fn the_rules_of_a_setting_or_file_choose_the_algorithm() {
    let rules = "bcast bytes<=100 linear; bcast bytes<=2000 binomial; bcast ranks<=8 chain";
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("rules.table");
    let text = format!("# by hand\n{}\n", rules.replace("; ", "\n"));
    std::fs::write(&file, text).expect("the folder of the tests is there");
    for table in [rules.to_owned(), format!("@{}", file.display())] {
        let job = Builder::new().setting("COLL_DIRECT", "off");
        jobs_with(job.setting("COLL_TABLE", &table), &[8], |world| {
            let sent = [100, 101, 2000].map(|len| sent(&world, len));
            let [short, middle, most] = sent;
            if world.rank() == 0 {
                assert_eq!([short?, middle?, most?], [7, 3, 3]);
            }
            // The rules change nothing for other operations.
            let (n, me) = (world.size(), world.rank());
            assert_eq!(
                world.comm().allreduce_one(me, &portolan::Op::SUM)?,
                n * (n - 1) / 2
            );
            let long = self::sent(&world, 2001)?;
            // A chain may pass the data on in several parts.
            assert!(
                if me + 1 == n { long == 0 } else { long > 0 },
                "rank {me}: {long}"
            );
            world.finalize().map(drop)
        });
    }
}

/// Over each transport its own rule decides: the root sends to all others, or to the next.
#[test]
fn a_rule_may_hold_for_one_transport() {
    let rules = "bcast on=memory linear; bcast on=shm chain";
    let job = Builder::new().setting("COLL_DIRECT", "off");
    jobs_with(job.setting("COLL_TABLE", rules), &[8], |world| {
        let sent = sent(&world, 8)?;
        let of_root = match world.comm().transport() {
            "memory" => 7,
            _ => 1,
        };
        assert!(world.rank() > 0 || sent == of_root, "{sent}");
        world.finalize().map(drop)
    });
}
