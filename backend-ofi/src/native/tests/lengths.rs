//! Messages that are longer than their receives, or than there is memory for.

use portolan_core::ErrorKind;
use portolan_core::device::Check;

use super::*;
use crate::native::buffers::NoMemory;

/// Set in the process that a test starts: `ofi_rxm` reads its limit from the environment, which a
/// process with threads must not change.
const TOLD: &str = "PORTOLAN_TEST_TOLD";

/// Under `portolan run`, `ofi_rxm` sends messages of this length at once.
const AT_ONCE: usize = 128 << 10;

/// What is sent at once and is too long leaves the connection as it is, whatever its length and
/// that of the receive.
#[test]
fn a_message_that_is_too_long_breaks_no_connection() {
    if std::env::var_os(TOLD).is_some() {
        return cut_to_size();
    }
    if opened::<1>().is_none() {
        return; // The skip has been printed.
    }
    let name = "native::tests::lengths::a_message_that_is_too_long_breaks_no_connection";
    let child = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name])
        .env(TOLD, "1")
        .env(Config::RXM_AT_ONCE, Config::RXM_AT_ONCE_OF_RANKS)
        .output()
        .expect("it starts");
    assert!(child.status.success(), "{child:?}");
}

fn cut_to_size() {
    let [mut zero, mut one] = pair().expect("a moment ago, it opened");
    let message = vec![7; AT_ONCE + 1];
    for (number, (room, len)) in (1..).zip([
        (100, 100_000),
        (100, AT_ONCE),
        (64 << 10, AT_ONCE),
        ((64 << 10) + 1, AT_ONCE),
        (AT_ONCE - 1, AT_ONCE),
        (AT_ONCE, AT_ONCE + 1),
        (100, 100),
    ]) {
        let mut bytes = vec![0; room];
        // SAFETY: the message outlives the ranks, and the buffer the receive, which ends below.
        unsafe {
            let Core { ofi, tags } = &mut zero;
            let data = Data::Contig(ContigBuf::from_bytes_mut(&mut bytes));
            tags.start_receive(ofi, request(2 * number), &from(FROM), data)
                .unwrap();
            let Core { ofi, tags } = &mut one;
            let data = Data::Contig(ContigBuf::from_bytes(&message[..len]));
            tags.start_send(ofi, request(2 * number + 1), &args(0, FROM), data)
                .unwrap();
        }
        let mut end = None;
        until("the receive never ends", || {
            one.step();
            zero.step();
            end = end.or_else(|| zero.end());
            end.is_some()
        });
        let Some(End::Over(status)) = end else {
            panic!("{len} bytes to a receive of {room}: {end:?}");
        };
        let error = (room < len).then_some(ErrorKind::Truncated);
        let got = (status.error, status.bytes);
        assert_eq!(got, (error, room as u64), "{len} bytes to one of {room}");
        assert!(bytes.iter().all(|&byte| byte == 7));
        assert_eq!(zero.ofi.shared.deaths.count(), 0);
    }
}

/// More than there can be.
const ENDLESS: usize = 1 << 50;

#[test]
fn what_there_is_no_memory_for_is_refused() {
    let Some([zero]) = opened() else {
        return; // The skip has been printed.
    };
    let zero = Native::<Single>::new(zero, &Settings::default()).unwrap();
    let mut room = [0];
    // SAFETY: the device has no memory for the message, so it touches none of the buffer.
    let receive = unsafe { zero.irecv_contig(&from(0), room.as_mut_ptr(), ENDLESS) };
    // SAFETY: as above.
    let send = unsafe { zero.isend_contig(&args(0, 0), room.as_ptr(), ENDLESS) };
    for refused in [receive, send] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
        assert!(error.to_string().contains("no memory"), "{error}");
    }
    // SAFETY: the buffer outlives the rank's operations: the message arrives below.
    let receive = unsafe { zero.irecv_contig(&from(0), room.as_mut_ptr(), 1) }.unwrap();
    zero.send_contig(&args(0, 0), b"y").unwrap();
    zero.wait(receive).unwrap();
    assert_eq!(room, *b"y");
}

/// A receive with a buffer of [`ENDLESS`] bytes, none of which is there.
fn endless() -> Data {
    Data::Contig(ContigBuf {
        len: ENDLESS,
        ..ContigBuf::from_bytes(&[])
    })
}

#[test]
fn a_taken_message_that_there_is_no_memory_for_stays() {
    let Some([mut zero, mut one]) = pair() else {
        return; // The skip has been printed.
    };
    let (message, mut room) = ([7; 1000], [0; 1000]);
    // SAFETY: the buffers outlive the ranks; of the endless one, nothing is touched.
    unsafe {
        let handle = taken(&mut zero, &mut one, &message);
        let Core { ofi, tags } = &mut zero;
        let refused = tags.receive_taken(ofi, handle, request(1), endless());
        assert_eq!(refused, Err(NoMemory(ENDLESS)));
        let data = Data::Contig(ContigBuf::from_bytes_mut(&mut room));
        assert_eq!(tags.receive_taken(ofi, handle, request(1), data), Ok(true));
    }
    until("it does not arrive", || {
        one.step();
        zero.step();
        matches!(zero.end(), Some(End::Over(status)) if status.error.is_none())
    });
    assert_eq!(room, message);
}

/// The provider has taken the message for a receive that waited for room. Its sender must not wait
/// for ever.
#[test]
fn a_message_that_there_is_no_memory_for_any_more_is_dropped() {
    let Some([mut zero, mut one]) = pair() else {
        return; // The skip has been printed.
    };
    let message = vec![7; 400_000];
    // SAFETY: the message outlives the ranks; of the endless buffer, nothing is touched.
    unsafe {
        let handle = taken(&mut zero, &mut one, &message);
        let Core { ofi, tags } = &mut zero;
        let number = tags.handles.remove(&handle.to_bits()).expect("it is kept");
        tags.receive_claimed(ofi, number, request(1), endless(), None);
    }
    let mut ends = (None, None);
    until("it does not end", || {
        one.step();
        zero.step();
        ends = (ends.0.or_else(|| zero.end()), ends.1.or_else(|| one.end()));
        ends.0.is_some() && ends.1.is_some()
    });
    let Some(End::Over(status)) = ends.0 else {
        panic!("{ends:?}");
    };
    assert_eq!(
        (status.error, status.bytes),
        (Some(ErrorKind::Exhausted), 0)
    );
}

/// However long the message is that a peer has sent.
#[test]
fn discarding_takes_no_memory() {
    let Some([zero, one]) = opened() else {
        return; // The skip has been printed.
    };
    let settings = Settings::default();
    let zero = Native::<Single>::new(zero, &settings).unwrap();
    let one = Native::<Single>::new(one, &settings).unwrap();
    let message = vec![7; 1 << 20];
    let synchronous = SendArgs {
        mode: portolan_core::SendMode::Synchronous,
        ..args(0, FROM)
    };
    // SAFETY: the message outlives the send.
    let send = unsafe { one.isend_contig(&synchronous, message.as_ptr(), message.len()) };
    let send = send.unwrap();
    let mut found = None;
    until("it does not arrive", || {
        one.device_check(Check::NonBlocking).unwrap();
        found = zero.improbe_unchecked(&from(FROM)).unwrap();
        found.is_some()
    });
    let before = zero.shared.lock().tags.memory();
    let (handle, status) = found.expect("it was found");
    assert_eq!(status.bytes, 1 << 20);
    zero.discard(handle).unwrap();
    until("the send never ends", || {
        zero.device_check(Check::NonBlocking).unwrap();
        one.test(send).unwrap().is_some()
    });
    assert_eq!(zero.shared.lock().tags.memory(), before);
}
