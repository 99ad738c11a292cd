//! Messages to a rank that has left the job in good order.

use libfabric_sys::FI_ECONNRESET;
use portolan_core::SendMode;

use super::*;

fn synchronous(args: SendArgs) -> SendArgs {
    SendArgs {
        mode: SendMode::Synchronous,
        ..args
    }
}

/// Nobody will match it, and nobody reports that.
#[test]
fn a_synchronous_send_to_a_rank_that_has_left_fails() {
    let Some([zero, one]) = opened() else {
        return; // The skip has been printed.
    };
    let zero = Native::<Single>::new(zero, &Settings::default()).unwrap();
    drop(one);
    let to = synchronous(args(1, 0));
    let blocking = zero.send_contig(&to, b"x");
    // SAFETY: the byte lives as long as the program.
    let request = unsafe { zero.isend_contig(&to, b"x".as_ptr(), 1) }.unwrap();
    for outcome in [blocking, zero.wait(request).map(drop)] {
        let error = outcome.unwrap_err();
        let whose = (error.kind(), error.peer());
        assert_eq!(whose, (ErrorKind::PeerFailed, Some(1)), "{error}");
        let text = error.to_string();
        assert!(text.contains("world rank 1 has left the job"), "{text}");
    }
    // Another message is lost, which is its receiver's affair.
    zero.send_contig(&args(1, 0), b"x").unwrap();
}

/// The provider has taken the message, and reports an error for it, because the receiver has left
/// meanwhile.
#[test]
fn so_does_one_that_the_provider_could_not_deliver() {
    for (mode, fails) in [(SendMode::Synchronous, true), (SendMode::Standard, false)] {
        let Some([mut zero, mut one]) = pair() else {
            return; // The skip has been printed.
        };
        let data = Data::Contig(ContigBuf::from_bytes(b"x"));
        let to = SendArgs { mode, ..args(1, 0) };
        let Core { ofi, tags } = &mut zero;
        // SAFETY: the byte lives as long as the program.
        unsafe { tags.start_send(ofi, request(1), &to, data).unwrap() };
        until("the provider does not end it", || {
            one.serve();
            let Core { ofi, tags } = &mut zero;
            tags.send_waiting(ofi);
            ofi.poll(&mut Nobody);
            !ofi.tagged.is_empty()
        });
        // Pretend that the connection has broken.
        zero.ofi.shared.roster.leave(1);
        zero.ofi.tagged[0].error = FI_ECONNRESET;
        zero.collect();
        match zero.end() {
            Some(End::Left(1)) => assert!(fails),
            Some(End::Over(status)) => assert!(!fails && status.error.is_none(), "{status:?}"),
            end => panic!("{mode:?}: {end:?}"),
        }
        assert_eq!(zero.ofi.shared.deaths.count(), 0, "it has not died");
    }
}
