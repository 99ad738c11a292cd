//! Messages of parts of buffers in the forms that own their buffer, synchronous messages of parts,
//! and exchanges at the edges of grids.

mod common;

use std::sync::Arc;

use common::{SIZES, jobs};
use portolan::coll::strided;
use portolan::topology::{Dimension, Shift};
use portolan::{Comm, ErrorKind, Layout, Result};

const ROWS: usize = 300;
const COLUMNS: usize = 20;

fn column() -> Result<Layout> {
    Ok(Layout::vector(
        ROWS,
        1,
        COLUMNS as isize,
        &Layout::of::<f64>(),
    )?)
}

/// A matrix whose values say where they are.
fn matrix() -> Vec<f64> {
    (0..ROWS * COLUMNS).map(|at| at as f64).collect()
}

/// The values of column `at` of [`matrix`].
fn of_column(at: usize) -> Vec<f64> {
    (0..ROWS).map(|row| (row * COLUMNS + at) as f64).collect()
}

/// Whether column 0 has these values and every other value is −1.
fn has_only(matrix: &[f64], values: &[f64]) -> bool {
    let rows = matrix.chunks(COLUMNS).zip(values);
    rows.clone().count() == ROWS
        && rows.clone().all(|(row, value)| row[0] == *value)
        && rows.flat_map(|(row, _)| &row[1..]).all(|&x| x == -1.0)
}

#[test]
fn columns_go_and_come_in_requests_that_own_the_matrix() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let other = 1 - comm.rank();
        let column = column()?;
        let shared: Arc<[f64]> = matrix().into();
        // Several at once, of one matrix.
        let sends = [
            comm.isend_owned(strided(Arc::clone(&shared), 1, &column), other, 0)?,
            comm.issend_owned(strided(shared, 1, &column), other, 0)?,
        ];
        for _ in 0..2 {
            let buf = vec![-1.0; ROWS * COLUMNS];
            let done = comm
                .irecv_owned(strided(buf, 1, &column), other, 0)?
                .wait()?;
            assert_eq!(done.status.count::<f64>(), Some(ROWS));
            assert!(has_only(&done.buf, &of_column(0)));
        }
        for send in sends {
            assert_eq!(send.wait()?.buf.len(), ROWS * COLUMNS);
        }
        Ok(())
    });
}

#[test]
fn a_synchronous_send_of_a_column_waits_for_its_receive() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let short = Layout::vector(3, 1, 2, &Layout::of::<u32>())?;
        let data = [1u32, 9, 2, 9, 3, 9];
        if comm.rank() == 0 {
            comm.scope(|s| {
                let send = s.ssend_layout(&data, 1, &short, 1, 0)?;
                let owned = comm.issend_owned(strided(data.to_vec(), 1, &short), 1, 0)?;
                assert!(!send.is_complete() && !owned.is_complete());
                comm.send(&[0u8], 1, 1)?;
                send.wait()?;
                owned.wait()?;
                Ok(())
            })?;
            comm.ssend_layout(&data, 1, &short, 1, 0)
        } else {
            comm.recv::<u8>(0, 1)?;
            for _ in 0..3 {
                assert_eq!(comm.recv::<u32>(0, 0)?.0, [1, 2, 3]);
            }
            Ok(())
        }
    });
}

#[test]
fn persistent_requests_send_and_receive_columns() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let other = 1 - comm.rank();
        let column = column()?;
        let mut outgoing = comm.send_init(strided(matrix(), 1, &column), other, 0)?;
        let blank = vec![-1.0; ROWS * COLUMNS];
        let mut incoming = comm.recv_init(strided(blank, 1, &column), other, 0)?;
        drop(column);
        for step in 0..3 {
            outgoing.buf_mut()?[0] = f64::from(step);
            incoming.start()?;
            outgoing.start()?;
            incoming.wait()?;
            outgoing.wait()?;
            let mut expected = of_column(0);
            expected[0] = f64::from(step);
            assert!(has_only(incoming.buf()?, &expected));
        }
        assert_eq!(outgoing.into_buf()?.len(), ROWS * COLUMNS);
        Ok(())
    });
}

#[test]
fn sendrecv_takes_a_column_for_another() {
    jobs(&SIZES, |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        let column = column()?;
        let (mine, mut theirs) = (matrix(), vec![-1.0; ROWS * COLUMNS]);
        let status = comm.sendrecv_layout(
            strided(&mine[3..], 1, &column),
            (me + 1) % n,
            7,
            strided(&mut theirs, 1, &column),
            (me + n - 1) % n,
            7,
        )?;
        assert_eq!((status.source, status.tag), ((me + n - 1) % n, 7));
        assert!(has_only(&theirs, &of_column(3)));
        // Plain buffers are parts, too.
        let mut got = [9];
        comm.sendrecv_layout(&[me], (me + 1) % n, 8, &mut got, (me + n - 1) % n, 8)?;
        assert_eq!(got, [(me + n - 1) % n]);
        Ok(())
    });
}

#[test]
fn buffered_ready_and_replaced_messages_may_be_columns() {
    jobs(&SIZES, |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        let (left, right) = ((me + n - 1) % n, (me + 1) % n);
        let column = column()?;
        // More than can leave while nobody receives: some are copied, and the matrix is changed
        // before they have left.
        let mut mine = matrix();
        for step in 0..400 {
            mine[2] = f64::from(step);
            comm.bsend_layout(&mine[2..], 1, &column, right, 0)?;
        }
        comm.barrier()?;
        let mut expected = of_column(2);
        let mut got = vec![-1.0; ROWS * COLUMNS];
        for step in 0..400 {
            expected[0] = f64::from(step);
            comm.recv_layout(&mut got, 1, &column, left, 0)?;
            assert!(has_only(&got, &expected), "{step}");
        }
        comm.flush_buffer()?;
        let mut got = vec![-1.0; ROWS * COLUMNS];
        comm.scope(|s| {
            let incoming = s.recv_layout(&mut got, 1, &column, left, 1)?;
            comm.barrier()?;
            comm.rsend_layout(&matrix()[4..], 1, &column, right, 1)?;
            incoming.wait().map(drop)
        })?;
        assert!(has_only(&got, &of_column(4)));
        let mut both = vec![-1.0; ROWS * COLUMNS];
        for (row, value) in both.chunks_mut(COLUMNS).zip(of_column(me as usize)) {
            row[0] = value;
        }
        let part = strided(&mut both, 1, &column);
        let status = comm.sendrecv_replace_layout(part, right, 2, left, 2)?;
        assert_eq!(status.count::<f64>(), Some(ROWS));
        assert!(has_only(&both, &of_column(left as usize)));
        // A whole buffer is a part, too.
        let mut all = vec![me; 3];
        comm.sendrecv_replace_layout(&mut all, right, 3, left, 3)?;
        assert_eq!(all, [left; 3]);
        Ok(())
    });
}

#[test]
fn a_matched_message_is_received_into_a_column() {
    jobs(&[2], |world| {
        let comm = world.comm();
        let other = 1 - comm.rank();
        let column = column()?;
        for _ in 0..4 {
            comm.bsend(&of_column(1), other, 0)?;
        }
        let mut got = vec![-1.0; ROWS * COLUMNS];
        let message = comm.match_recv(other, 0)?;
        let status = message.recv_layout(&mut got, 1, &column)?;
        assert_eq!(status.count::<f64>(), Some(ROWS));
        assert!(has_only(&got, &of_column(1)));
        let mut got = vec![-1.0; ROWS * COLUMNS];
        let message = comm.match_recv(other, 0)?.into_owned();
        message.recv_layout(&mut got, 1, &column)?;
        assert!(has_only(&got, &of_column(1)));
        // Two columns' room for one, and a buffer that is too short.
        let message = comm.match_recv(other, 0)?;
        let error = message.recv_layout(&mut got[1..], 2, &column).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidBuffer, "{error}");
        let short = Layout::vector(2, 1, COLUMNS as isize, &Layout::of::<f64>())?;
        let message = comm.match_recv(other, 0)?;
        let error = message.recv_layout(&mut got, 1, &short).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated, "{error}");
        assert!(comm.iprobe(other, 0)?.is_none());
        Ok(())
    });
}

#[test]
fn parts_that_leave_their_buffer_are_refused_and_come_back() {
    jobs(&[1], |world| {
        let comm = world.comm();
        let wide = Layout::vector(4, 1, 3, &Layout::of::<u32>())?;
        let short = || strided(vec![5u32; 9], 1, &wide);
        let refused = |error: portolan::Error| {
            assert_eq!(error.kind(), ErrorKind::InvalidBuffer, "{error}");
            let text = error.to_string();
            assert!(text.contains("a buffer of 36 bytes"), "{text}");
        };
        macro_rules! owned {
            ($($call:expr),*) => {$(
                let failed = $call.unwrap_err();
                assert_eq!(failed.buf, [5; 9]);
                refused(failed.error);
            )*};
        }
        owned!(
            comm.isend_owned(short(), 0, 0),
            comm.issend_owned(short(), 0, 0),
            comm.irecv_owned(short(), 0, 0),
            comm.send_init(short(), 0, 0),
            comm.recv_init(short(), 0, 0)
        );
        let mut room = [0u32; 10];
        let itself = Shift {
            source: Some(0),
            destination: Some(0),
        };
        refused(comm.exchange(itself, short(), &mut room, 0).unwrap_err());
        comm.send(&[1u32], 0, 0)?;
        let only = Shift {
            destination: None,
            ..itself
        };
        refused(comm.exchange(only, &[0u32], short(), 0).unwrap_err());
        refused(
            comm.exchange(only.reversed(), short(), &mut room, 0)
                .unwrap_err(),
        );
        let mut one = [0u32];
        comm.recv_into(&mut one, 0, 0)?;
        assert_eq!(one, [1]);
        Ok(())
    });
}

/// What rank `me` of a line gets from the rank before it, or keeps.
fn shifted(line: &Comm, shift: Shift) -> Result<()> {
    let me = line.rank();
    let mut got = [99, 98];
    let status = line.exchange(shift, &[me, 7], &mut got, 3)?;
    match shift.source {
        Some(source) => {
            assert_eq!(got, [source, 7]);
            assert_eq!((status.source, status.tag), (source, 3));
        }
        None => {
            assert_eq!(got, [99, 98]);
            assert!(!status.has_message());
        }
    }
    Ok(())
}

#[test]
fn an_exchange_ends_at_the_edges_of_a_grid() {
    jobs(&SIZES, |world| {
        let comm = world.comm();
        let n = comm.size();
        for dimension in [Dimension::open(n), Dimension::periodic(n)] {
            let line = comm.cart_create(&[dimension], false)?.expect("all ranks");
            for displacement in [1, -1, 2, i64::from(n) + 1] {
                let shift = line.shift(0, displacement)?;
                assert_eq!(shift.reversed(), line.shift(0, -displacement)?);
                shifted(&line, shift)?;
                shifted(&line, shift.reversed())?;
            }
        }
        let line = comm.cart_create(&[Dimension::open(n)], false)?;
        let line = line.expect("all ranks");
        // A column of this rank's matrix becomes a column of the next one's.
        let (column, mine) = (column()?, matrix());
        let mut theirs = vec![-1.0; ROWS * COLUMNS];
        let (send, recv) = (
            strided(&mine[5..], 1, &column),
            strided(&mut theirs, 1, &column),
        );
        line.exchange(line.shift(0, 1)?, send, recv, 0)?;
        let expected = match line.rank() {
            0 => vec![-1.0; ROWS],
            _ => of_column(5),
        };
        assert!(has_only(&theirs, &expected));
        Ok(())
    });
}
