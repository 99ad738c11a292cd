//! Sleeps of a rank that waits for room: not every transport rings its bell when there is some
//! again.

use super::*;
use crate::device::HandlerId;

/// A rank sends something that its transport refuses for a while, and sleeps meanwhile: for long
/// only where the bell rings when there is room.
#[track_caller]
fn sleeps_until_there_is_room(send: impl Fn(&Engine<Scripted, Single>)) {
    for rings_for_room in [false, true] {
        let bell = Arc::<NoBell>::default();
        let transport = Scripted {
            refuses: 50,
            has_bell: true,
            rings_for_room,
            bell: Arc::clone(&bell),
            ..scripted()
        };
        let set = [
            ("PORTOLAN_WAIT", "park"),
            ("PORTOLAN_SPIN", "1"),
            ("PORTOLAN_STUCK_AFTER", "0"),
        ];
        let (settings, wrong) = Settings::inspect(set);
        assert!(wrong.is_empty(), "{wrong:?}");
        let engine =
            Engine::<_, Single>::new(transport, &settings).expect("an engine over a script");
        send(&engine);
        assert_eq!(engine.state.lock().transport.sent.len(), 1);
        let [naps, long] = [&bell.naps, &bell.long].map(|sleeps| sleeps.load(Ordering::Relaxed));
        let (expected, never) = match rings_for_room {
            true => (long, naps),
            false => (naps, long),
        };
        assert!(expected > 0, "it has slept");
        assert_eq!(never, 0, "rings: {rings_for_room}");
    }
}

#[test]
fn a_message_that_waits_for_room() {
    sleeps_until_there_is_room(|engine| {
        let args = SendArgs::new(ProcId::new(1), 0, 0, 0);
        engine.send_contig(&args, b"ahoy").expect("sent");
    });
}

#[test]
fn an_active_message_that_waits_for_room() {
    sleeps_until_there_is_room(|engine| {
        engine
            .active_send(ProcId::new(1), HandlerId(7), [0; 2], &[])
            .expect("there is room in the end");
    });
}

#[test]
fn a_put_that_waits_for_room() {
    sleeps_until_there_is_room(|engine| {
        let bytes = [7_u8; 100];
        // A key of this rank serves as one of the peer's: only the owner of a region interprets it.
        let key = engine.alloc_region(bytes.len()).expect("a region").key;
        // SAFETY: as many bytes are readable until this returns.
        let put = unsafe { engine.put(ProcId::new(1), &key, 0, bytes.as_ptr(), bytes.len()) };
        put.expect("there is room in the end");
    });
}
