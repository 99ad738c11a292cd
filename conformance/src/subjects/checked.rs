//! The safe routines refuse wrong arguments, and say which one is wrong and what to do.

use portolan_core::{Adi, Device, Error, ErrorKind, SendMode};
use portolan_datatype::{Layout, MsgRep};

use crate::case::Verdict;
use crate::rank::Rank;

/// Asserts that the error has this kind, names this value and this rank, and says what to do.
#[track_caller]
fn refused<D: Device, T>(
    rank: &Rank<'_, D>,
    outcome: Result<T, Error>,
    kind: ErrorKind,
    value: impl ToString,
) {
    let Err(error) = outcome else {
        panic!("a wrong argument was accepted")
    };
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert!(
        text.contains(&value.to_string()),
        "does not name {}: {text}",
        value.to_string()
    );
    assert_eq!(error.rank(), Some(rank.me()), "{text}");
    assert!(text.contains(';'), "has no remedy: {text}");
}

/// Ranks, tags, contexts, buffers and modes out of range.
pub fn arguments<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let device = rank.device;
    let nobody = rank.size();
    let bad_tag = device.attributes().tag_ub.checked_add(1);
    let bad_context = device.attributes().max_context_id.checked_add(1);

    let to_nobody = rank.to(nobody, 0);
    refused(
        rank,
        device.send_contig(&to_nobody, &[1]),
        ErrorKind::InvalidRank,
        nobody,
    );
    if let Some(tag) = bad_tag {
        let sent = device.send_contig(&rank.to(rank.next(), tag), &[1]);
        refused(rank, sent, ErrorKind::InvalidTag, tag);
        let received = device.recv_contig(&rank.from(None, tag), &mut [0]);
        refused(rank, received, ErrorKind::InvalidTag, tag);
        refused(
            rank,
            device.iprobe(&rank.from(None, tag)),
            ErrorKind::InvalidTag,
            tag,
        );
    }
    if let Some(context) = bad_context {
        let mut args = rank.to(rank.next(), 0);
        args.envelope.context = context;
        let sent = device.send_contig(&args, &[1]);
        refused(rank, sent, ErrorKind::InvalidCommunicator, context);
    }
    let buffered = rank.to(rank.next(), 0).mode(SendMode::Buffered);
    // SAFETY: one byte that lives for ever.
    let outcome = unsafe { device.isend_contig(&buffered, b"x".as_ptr(), 1) };
    refused(rank, outcome, ErrorKind::InvalidArgument, "nonblocking");
    // SAFETY: a null pointer is refused, which is what is tested.
    let outcome = unsafe { device.isend_contig(&rank.to(rank.next(), 0), std::ptr::null(), 77) };
    refused(rank, outcome, ErrorKind::InvalidBuffer, 77);
    let doubles = Layout::of::<f64>();
    let outcome = device.send_datatype(&rank.to(rank.next(), 0), &[0; 79], 0, 10, &doubles);
    refused(rank, outcome, ErrorKind::InvalidBuffer, 79);
    let mut position = 1;
    let outcome = device.pack(
        &[0; 80],
        0,
        10,
        &doubles,
        MsgRep::Native,
        &mut [0; 80],
        &mut position,
    );
    refused(rank, outcome, ErrorKind::Truncated, 80);
    assert_eq!(position, 1, "a refused pack moved the position");
    // None of these calls has sent anything.
    rank.barrier();
    let mut pattern = rank.from(None, None);
    assert_eq!(device.iprobe(&pattern).expect("iprobe"), None);
    pattern.tag = Some(0);
    assert_eq!(device.iprobe(&pattern).expect("iprobe"), None);
    Ok(())
}
