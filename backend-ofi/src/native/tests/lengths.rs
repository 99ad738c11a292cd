//! Messages that are longer than their receives.

use portolan_core::ErrorKind;

use super::*;

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
            tags.start_receive(ofi, request(2 * number), &from(FROM), data);
            let Core { ofi, tags } = &mut one;
            let data = Data::Contig(ContigBuf::from_bytes(&message[..len]));
            tags.start_send(ofi, request(2 * number + 1), &args(0, FROM), data);
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
