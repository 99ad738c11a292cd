//! Typed blocking messages: modes, types, lengths, wildcards, layouts.

mod common;

use common::{SIZES, jobs, jobs_with, value};
use portolan::topology::{Dimension, Graph};
use portolan::{
    Builder, Comparison, Datatype, ErrorKind, Group, Layout, ProcId, RankRange, Source, Tag, Tags,
};

#[derive(Clone, Copy, Debug, PartialEq, Datatype)]
struct Particle {
    position: [f64; 3],
    charge: i8,
    alive: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Datatype)]
#[repr(u8)]
enum Colour {
    Red = 3,
    Blue = 9,
}

fn particle(n: u32) -> Particle {
    Particle {
        position: [f64::from(n), 0.5, -1.0],
        charge: n as i8,
        alive: n.is_multiple_of(2),
    }
}

#[test]
fn every_rank_sends_to_every_rank_in_every_mode() {
    jobs(&SIZES, |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        for (mode, tag) in ["send", "rsend", "bsend", "ssend"].into_iter().zip(0u32..) {
            for distance in 1..n {
                let (to, from) = ((me + distance) % n, (me + n - distance) % n);
                let data: Vec<u64> = (0..50).map(|i| value(me, i)).collect();
                let mut got = [0; 60];
                // The lower of two neighbours in the ring sends first, so that ssend meets its
                // receive.
                let status = comm.scope(|s| {
                    let incoming = s.recv(&mut got, from, tag)?;
                    match mode {
                        "send" => comm.send(&data, to, tag)?,
                        "rsend" => comm.rsend(&data, to, tag)?,
                        "bsend" => comm.bsend(&data, to, tag)?,
                        _ => comm.ssend(&data, to, tag)?,
                    }
                    Ok(incoming.wait()?.1)
                })?;
                assert_eq!(
                    (status.source, status.tag, status.count::<u64>()),
                    (from, tag, Some(50))
                );
                assert!((0..50).all(|i| got[i] == value(from, i)), "{mode}");
                assert_eq!(got[50..], [0; 10]);
            }
        }
        Ok(())
    });
}

#[test]
fn messages_of_all_lengths_arrive_whole() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let lengths = [0, 1, 7, 8, 31, 200, 4096, 65_537, 1 << 20, 3_000_001];
        for length in lengths {
            if comm.rank() == 0 {
                let data: Vec<u8> = (0..length).map(|i| (i * 7 + length) as u8).collect();
                comm.send(&data, 1, 1)?;
            } else {
                let (data, status) = comm.recv::<u8>(0, 1)?;
                assert_eq!((data.len(), status.bytes), (length, length as u64));
                assert!(
                    data.iter()
                        .enumerate()
                        .all(|(i, &byte)| byte == (i * 7 + length) as u8)
                );
            }
        }
        Ok(())
    });
}

#[test]
fn structs_enums_bools_chars_and_arrays_go_and_come() {
    jobs(&[2], |world| {
        let comm = world.comm();
        if comm.rank() == 0 {
            let particles: Vec<_> = (0..100).map(particle).collect();
            comm.send(&particles, 1, 0)?;
            comm.send(&particles, 1, 0)?;
            comm.send(&[Colour::Red, Colour::Blue], 1, 1)?;
            comm.send(&[true, false, true], 1, 2)?;
            comm.send(&['é', '∞'], 1, 3)?;
            comm.send(&[[1u16, 2], [3, 4]], 1, 4)?;
            comm.send_one(&(1u8, 2.5f64), 1, 5)?;
            comm.send_one(&(), 1, 6)
        } else {
            let (particles, _) = comm.recv::<Particle>(0, 0)?;
            assert!(particles.into_iter().eq((0..100).map(particle)));
            let mut some = [particle(0); 120];
            let status = comm.recv_into(&mut some, 0, 0)?;
            assert_eq!(status.count::<Particle>(), Some(100));
            assert!(some[..100].iter().copied().eq((0..100).map(particle)));
            assert_eq!(comm.recv::<Colour>(0, 1)?.0, [Colour::Red, Colour::Blue]);
            let mut flags = [false; 4];
            comm.recv_into(&mut flags, 0, 2)?;
            assert_eq!(flags, [true, false, true, false]);
            assert_eq!(comm.recv::<char>(0, 3)?.0, ['é', '∞']);
            assert_eq!(comm.recv::<u16>(0, 4)?.0, [1, 2, 3, 4]);
            assert_eq!(comm.recv_one::<(u8, f64)>(0, 5)?.0, (1, 2.5));
            // The unit value is a value, too.
            comm.recv_one::<()>(0, 6)?;
            Ok(())
        }
    });
}

/// SND-08 and rsmpi e: received data is checked before it counts as a value.
#[test]
fn values_that_are_none_are_errors_and_leave_the_buffer_alone() {
    jobs(&[2], |world| {
        let comm = world.comm();
        if comm.rank() == 0 {
            for _ in 0..4 {
                // Bytes match every type, so the receiver cannot detect the mismatch.
                comm.send_layout(&[1u8, 0, 7, 1], 4, &Layout::byte(), 1, 0)?;
            }
            return Ok(());
        }
        let mut flags = [true; 4];
        let error = comm.recv_into(&mut flags, 0, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidValue);
        assert!(
            error
                .to_string()
                .contains("value 2 of the message from rank 0, tag 0"),
            "{error}"
        );
        assert_eq!(flags, [true; 4]);
        assert_eq!(
            comm.recv::<bool>(0, 0).unwrap_err().kind(),
            ErrorKind::InvalidValue
        );
        let mut colours = [Colour::Red; 4];
        let message = comm.match_recv(0, 0)?;
        let error = message.recv_into(&mut colours).unwrap_err();
        assert!(error.to_string().contains("value 0"), "{error}");
        assert_eq!(comm.recv::<u8>(0, 0)?.0, [1, 0, 7, 1]);
        Ok(())
    });
}

#[test]
fn a_mismatch_of_types_is_an_error() {
    jobs(&[2], |world| {
        let comm = world.comm();
        if comm.rank() == 0 {
            comm.send(&[1.0f64, 2.0], 1, 0)?;
            comm.send(&[1.0f64, 2.0], 1, 0)?;
            comm.send(&[1.0f64, 2.0], 1, 0)
        } else {
            let mut wrong = [0i64; 2];
            let error = comm.recv_into(&mut wrong, 0, 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TypeMismatch, "{error}");
            assert_eq!(
                comm.recv::<u64>(0, 0).unwrap_err().kind(),
                ErrorKind::TypeMismatch
            );
            assert_eq!(comm.recv::<f64>(0, 0)?.0, [1.0, 2.0]);
            Ok(())
        }
    });
}

#[test]
fn truncation_says_what_was_lost_and_the_next_message_is_fine() {
    jobs(&[2], |world| {
        let comm = world.comm();
        if comm.rank() == 0 {
            comm.send(&[1u32, 2, 3, 4], 1, 0)?;
            comm.send(&vec![9u32; 100_000], 1, 0)?;
            comm.send(&[5u32], 1, 0)
        } else {
            let mut buf = [0u32; 2];
            let error = comm.recv_into(&mut buf, 0, 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Truncated);
            let status = error.status().expect("the status comes with the error");
            assert_eq!((status.source, status.bytes, status.sent), (0, 8, 16));
            assert_eq!(buf, [1, 2]);
            let error = comm.recv_into(&mut buf, 0, 0).unwrap_err();
            assert_eq!(
                error.status().map(|s| (s.bytes, s.sent)),
                Some((8, 400_000))
            );
            assert_eq!(comm.recv_one::<u32>(0, 0)?.0, 5);
            Ok(())
        }
    });
}

/// SND-06 and rsmpi d: a message that is not a whole number of values does not become values.
#[test]
fn a_message_that_ends_inside_a_value_is_an_error() {
    jobs(&[2], |world| {
        let comm = world.comm();
        if comm.rank() == 0 {
            comm.send(&[1u8; 7], 1, 0)?;
            comm.send(&[0u16; 0], 1, 0)?;
            comm.send(&[1u32, 2], 1, 0)
        } else {
            let error = comm.recv::<[u8; 4]>(0, 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidCount);
            assert!(error.to_string().contains("has 7 bytes"), "{error}");
            let error = comm.recv_one::<u16>(0, 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidCount);
            assert_eq!(
                comm.recv_one::<u32>(0, 0).unwrap_err().kind(),
                ErrorKind::Truncated
            );
            Ok(())
        }
    });
}

#[test]
fn rings_exchange_without_waiting_for_each_other() {
    jobs(&SIZES, |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        let (left, right) = ((me + n - 1) % n, (me + 1) % n);
        for length in [1, 100, 300_000] {
            let data: Vec<u64> = (0..length).map(|i| value(me, i)).collect();
            let mut got = vec![0u64; length];
            let status = comm.sendrecv(&data, right, 5, &mut got, left, 5)?;
            assert_eq!((status.source, status.count::<u64>()), (left, Some(length)));
            assert_eq!(got[length - 1], value(left, length - 1));
            let mut same = data.clone();
            comm.sendrecv_replace(&mut same, right, Tag(6), Source::Any, Tags::Any)?;
            assert_eq!(same, got);
        }
        Ok(())
    });
}

#[test]
fn wildcards_take_everything_and_say_from_whom() {
    jobs(&SIZES, |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        if me != 0 {
            return comm.send_one(&me, 0, 100 + me);
        }
        let mut seen = vec![false; n as usize];
        for _ in 1..n {
            let (from, status) = comm.recv_one::<u32>(Source::Any, Tags::Any)?;
            assert_eq!((status.source, status.tag), (from, 100 + from));
            assert!(!std::mem::replace(&mut seen[from as usize], true));
        }
        Ok(())
    });
}

#[test]
fn probes_see_and_matched_messages_wait_for_their_buffer() {
    jobs(&[2], |world| {
        let comm = world.comm();
        if comm.rank() == 0 {
            assert!(comm.iprobe(1, 0)?.is_none());
            assert!(comm.try_match_recv(Source::Any, Tags::Any)?.is_none());
            comm.send(&[1u32, 2, 3], 1, 1)?;
            // Waits for its receive, which is posted last.
            let long = comm.isend_owned(vec![7u32; 50_000], 1, 1)?;
            comm.send(&[4u32], 1, 1)?;
            comm.send(&[5u32], 1, 1)?;
            comm.ssend(&[6u32], 1, 1)?;
            long.wait()?;
            Ok(())
        } else {
            let status = comm.probe(Source::Any, 1)?;
            assert_eq!((status.source, status.count::<u32>()), (0, Some(3)));
            let first = comm.match_recv(0, 1)?;
            let second = comm.match_recv(0, 1)?;
            let dropped = comm.match_recv(0, 1)?;
            assert_eq!(second.count::<u32>(), Some(50_000));
            drop(dropped);
            comm.match_recv(0, 1)?.discard()?;
            // Later messages do not overtake a matched one, and the order of receiving is free.
            assert_eq!(comm.recv_one::<u32>(0, 1)?.0, 6);
            assert_eq!(second.recv::<u32>()?.0, vec![7; 50_000]);
            let mut buf = [0u32; 3];
            assert_eq!(first.recv_into(&mut buf)?.bytes, 12);
            assert_eq!(buf, [1, 2, 3]);
            Ok(())
        }
    });
}

/// They wait beside their communicator, in any order, and are discarded when they are dropped.
#[test]
fn matched_messages_can_be_kept() {
    struct Inbox {
        comm: portolan::Comm,
        waiting: Vec<portolan::OwnedMessage>,
    }

    jobs(&[2], |world| {
        let comm = world.comm();
        if comm.rank() == 0 {
            let mut sends = Vec::new();
            for number in 0..4u32 {
                let values = vec![number; 1 + 10_000 * number as usize];
                sends.push(comm.isend_owned(values, 1, number)?);
            }
            return portolan::wait_all(sends)
                .into_iter()
                .try_for_each(|send| send.map(drop).map_err(portolan::Error::from));
        }
        let waiting = Vec::new();
        let mut inbox = Inbox { comm, waiting };
        for tag in 0..4u32 {
            let message = inbox.comm.match_recv(0, tag)?.into_owned();
            inbox.waiting.push(message);
        }
        assert_eq!(inbox.waiting[1].status().tag, 1);
        assert_eq!(inbox.waiting[1].count::<u32>(), Some(10_001));
        let mut buf = vec![0; 10_001];
        inbox.waiting.swap_remove(1).recv_into(&mut buf)?;
        assert_eq!(buf, vec![1u32; 10_001]);
        assert_eq!(inbox.waiting.swap_remove(0).recv::<u32>()?.0, [0]);
        assert_eq!(inbox.waiting.swap_remove(0).discard()?.tag, 2);
        drop(inbox);
        // The dropped one was discarded, and does not keep its sender in a wait.
        assert!(world.comm().iprobe(0, 3)?.is_none());
        Ok(())
    });
    jobs_with(Builder::new().multiple(), &[1], |world| {
        let comm = world.comm();
        comm.send(b"ahoy", 0, 0)?;
        let message = comm.match_recv(0, 0)?.into_owned();
        let text = std::thread::spawn(|| message.recv::<u8>()).join();
        assert_eq!(text.expect("no panic")?.0, b"ahoy");
        Ok(())
    });
}

#[test]
fn the_largest_tag_is_a_tag() {
    jobs(&[1, 2], |world| {
        let comm = world.comm();
        let (other, most) = ((comm.rank() + 1) % comm.size(), comm.tag_ub());
        assert!(most >= 32_767);
        comm.send(&[comm.rank()], other, most)?;
        assert_eq!(comm.recv_one::<u32>(other, most)?.0, other);
        let error = comm.send(&[0u8], other, most + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidTag);
        let advice = format!("use tags 0 to {most}");
        assert_eq!(error.advice(), Some(&advice[..]));
        assert_eq!(error.device(), Some(comm.transport()));
        Ok(())
    });
}

#[test]
fn a_column_goes_and_a_row_comes() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let (rows, columns) = (300, 200);
        let column = Layout::vector(rows, 1, columns as isize, &Layout::of::<f64>())?;
        if comm.rank() == 0 {
            let matrix: Vec<f64> = (0..rows * columns).map(|i| i as f64).collect();
            comm.send_layout(&matrix[3..], 1, &column, 1, 0)?;
            comm.scope(|s| {
                s.send_layout(&matrix[4..], 1, &column, 1, 0)?
                    .wait()
                    .map(drop)
            })
        } else {
            let row = comm.recv::<f64>(0, 0)?.0;
            assert!(
                row.iter()
                    .enumerate()
                    .all(|(i, &x)| x == (i * columns + 3) as f64)
            );
            let mut matrix = vec![-1.0f64; rows * columns];
            comm.scope(|s| {
                let (matrix, _) = s.recv_layout(&mut matrix, 1, &column, 0, 0)?.wait()?;
                assert_eq!((matrix[0], matrix[1], matrix[columns]), (4.0, -1.0, 204.0));
                Ok(())
            })
        }
    });
}

#[test]
fn a_layout_that_leaves_its_buffer_is_refused() {
    jobs(&[1], |world| {
        let comm = world.comm();
        let mut buf = [0u32; 10];
        let wide = Layout::vector(4, 1, 3, &Layout::of::<u32>())?;
        comm.send_layout(&buf, 1, &wide, 0, 0)?;
        comm.recv_layout(&mut buf, 1, &wide, 0, 0)?;
        let error = comm.send_layout(&buf[1..], 1, &wide, 0, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidBuffer);
        let text = error.to_string();
        assert!(
            text.contains("1 item(s) of the layout cover bytes 0 to 40"),
            "{text}"
        );
        assert!(text.contains("a buffer of 36 bytes"), "{text}");
        let before = Layout::hindexed(&[1], &[-4], &Layout::of::<u32>())?;
        for layout in [&wide, &before] {
            let kind = comm
                .recv_layout(&mut buf[1..], 1, layout, 0, 0)
                .unwrap_err()
                .kind();
            assert_eq!(kind, ErrorKind::InvalidBuffer);
        }
        let huge = comm.send_layout(&buf, usize::MAX, &wide, 0, 0).unwrap_err();
        assert_eq!(huge.kind(), ErrorKind::InvalidLayout);
        let outcome = comm.scope(|s| s.recv_layout(&mut buf[1..], 1, &wide, 0, 0).map(drop));
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidBuffer);
        Ok(())
    });
}

#[test]
fn ranks_and_tags_that_are_none_are_refused_with_a_remedy() {
    jobs(&[3], |world| {
        let comm = world.comm();
        let me = comm.rank();
        let error = comm.send(&[1u8], 9, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRank);
        assert_eq!(error.rank(), Some(me));
        let text = error.to_string();
        assert!(text.starts_with(&format!("rank {me} (")), "{text}");
        assert!(
            text.ends_with(
                "destination 9 is outside of a communicator of 3 rank(s); use ranks 0 to 2"
            ),
            "{text}"
        );
        let error = comm.recv::<u8>(3, 0).unwrap_err();
        assert!(error.to_string().contains("source 3 is outside"), "{error}");
        let error = comm.send(&[1u8], 0, u32::MAX).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidTag);
        assert!(error.to_string().contains("tag 4294967295"), "{error}");
        assert_eq!(
            comm.iprobe(0, u32::MAX).unwrap_err().kind(),
            ErrorKind::InvalidTag
        );
        assert_eq!(
            comm.bcast(&mut [0u8], 3).unwrap_err().kind(),
            ErrorKind::InvalidRank
        );
        Ok(())
    });
}

#[test]
fn a_rank_talks_to_itself() {
    jobs(&[1, 2], |world| {
        let comm = world.comm();
        let me = comm.rank();
        comm.send(&[1u64, 2], me, 0)?;
        assert_eq!(comm.recv::<u64>(me, 0)?.0, [1, 2]);
        let big = vec![3u64; 100_000];
        let mut got = vec![0u64; 100_000];
        comm.sendrecv(&big, me, 1, &mut got, me, 1)?;
        assert_eq!(got, big);
        Ok(())
    });
}

/// Aspects of derived communicators that the documentation's examples do not show.
#[test]
fn communicators_come_from_communicators() {
    jobs(&SIZES, |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        let shared = comm.split_shared()?;
        assert!(shared.size() <= n);
        shared.barrier()?;
        assert_eq!(comm.compare(&comm.dup()?), Comparison::Congruent);
        assert_eq!(comm.compare(&comm), Comparison::Identical);

        // The even ranks, without the odd ones.
        let even = RankRange {
            first: 0,
            last: n - 1,
            stride: 2,
        };
        let even = comm.group().include_ranges(&[even])?;
        let own = ProcId::new(world.rank());
        assert_eq!(even.rank_of(own), (me % 2 == 0).then_some(me / 2));
        if me % 2 == 0 {
            let even = comm.create_group(&even, 4)?.expect("an even rank");
            assert_eq!(even.rank(), me / 2);
            even.barrier()?;
        }
        let alien = Group::world(n + 1);
        let error = comm.create(&alien).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);

        let line = [Dimension::open(n), Dimension::periodic(1)];
        let grid = comm
            .cart_create(&line, true)?
            .expect("a place for everybody");
        let copy = grid.dup()?.as_cart().expect("a copy of a grid is one");
        assert_eq!(
            (copy.grid().dims(), copy.coords()),
            (&line[..], vec![me, 0])
        );
        assert!(comm.as_cart().is_none());
        let column = grid.sub(&[true, false])?;
        assert_eq!(
            (column.size(), column.rank(), column.grid().dims().len()),
            (n, me, 1)
        );
        assert_eq!(
            grid.sub(&[true]).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
        assert_eq!(
            grid.shift(2, 1).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );

        let ring: Vec<[u32; 2]> = (0..n).map(|r| [(r + n - 1) % n, (r + 1) % n]).collect();
        let ring = comm.graph_create(Graph::new(&ring)?, false)?;
        let ring = ring.expect("a place for everybody").neighbours();
        assert_eq!(ring.expect("a graph").sources[1].rank, Some((me + 1) % n));
        Ok(())
    });
}
