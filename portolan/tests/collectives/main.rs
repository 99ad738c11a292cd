//! Collective operations through the typed interface: every operation in every form of the call,
//! compared with results written down by hand, and wrong arguments.
#![allow(
    clippy::useless_vec,
    reason = "the macro's buffers are given away in some forms"
)]

#[path = "../common/mod.rs"]
mod common;

use common::value;

const SIZES: [u32; 7] = [1, 2, 3, 4, 5, 7, 8];

fn values(rank: u32, len: usize) -> Vec<u64> {
    (0..len).map(|index| value(rank, index)).collect()
}

/// Runs one operation in all forms. `$send` and `$recv` are expressions for fresh buffers, `$call`
/// makes the arguments from two buffers, and `$expected` is the expected content of the receive
/// buffer.
macro_rules! in_all_forms {
    ($comm:expr, $send:expr, $recv:expr, |$s:ident, $r:ident| $call:expr, $expected:expr) => {{
        let (comm, expected) = (&$comm, $expected);
        {
            let (send, mut recv) = ($send, $recv);
            let ($s, $r) = (&send[..], &mut recv[..]);
            comm.run($call)?;
            assert_eq!(recv, expected, "blocking");
        }
        {
            let (send, mut recv) = ($send, $recv);
            comm.scope(|scope| {
                let ($s, $r) = (&send[..], &mut recv[..]);
                scope.start($call)?.wait()?;
                Ok(())
            })?;
            assert_eq!(recv, expected, "in a scope");
            // Left to the scope to complete.
            let (send, mut recv) = ($send, $recv);
            comm.scope(|scope| {
                let ($s, $r) = (&send[..], &mut recv[..]);
                scope.start($call)?;
                Ok(())
            })?;
            assert_eq!(recv, expected, "at the end of a scope");
        }
        {
            let ($s, $r) = ($send, $recv);
            let (send, recv) = comm.start_owned($call)?.wait()?.buf;
            assert_eq!((send, recv), ($send, expected.clone()), "owning");
        }
        {
            let ($s, $r) = ($send, $recv);
            let mut persistent = comm.persistent($call)?;
            for round in 0..3 {
                let (_, recv) = persistent.buffers_mut()?;
                recv.copy_from_slice(&$recv);
                persistent.start()?;
                persistent.wait()?;
                let (_, recv) = persistent.buffers_mut()?;
                assert_eq!(recv, expected, "persistent, round {round}");
            }
            let (send, recv) = persistent.into_buffers()?;
            assert_eq!((send, recv), ($send, expected), "persistent");
        }
    }};
}

/// Asserts that every form of a call reports the wrong arguments.
macro_rules! refused {
    ($comm:expr, $kind:ident, $words:expr, $call:expr) => {{
        let blocking = $comm.run($call).map(drop).unwrap_err();
        let scoped = $comm.scope(|s| s.start($call).map(drop)).unwrap_err();
        let owned = $comm.start_owned($call).map(drop).unwrap_err();
        let persistent = $comm.persistent($call).map(drop).unwrap_err();
        assert_eq!(blocking.kind(), ErrorKind::$kind, "{blocking}");
        let text = blocking.to_string();
        for word in $words {
            assert!(text.contains(word), "`{word}` is not in: {text}");
        }
        for other in [scoped, owned.error, persistent.error] {
            assert_eq!(other.to_string(), text);
        }
    }};
}

mod arguments;
mod exact;
mod groups;
mod moving;
mod neighbours;
mod reducing;
mod requests;
mod room;
mod table;
