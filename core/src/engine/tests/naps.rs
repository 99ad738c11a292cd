//! Sleeps of a rank that waits for room: nobody rings when a provider has some again.

use super::*;
use crate::device::HandlerId;

/// A rank sends something where its transport refuses a while, and sleeps meanwhile: never without an end.
#[track_caller]
fn naps_until_there_is_room(send: impl FnOnce(&Engine<Scripted, Single>)) {
    let bell = Arc::<NoBell>::default();
    let transport = Scripted {
        refuses: 50,
        has_bell: true,
        bell: Arc::clone(&bell),
        ..scripted()
    };
    let set = [("PORTOLAN_WAIT", "park"), ("PORTOLAN_STUCK_AFTER", "0")];
    let (settings, wrong) = Settings::inspect(set);
    assert!(wrong.is_empty(), "{wrong:?}");
    let engine = Engine::<_, Single>::new(transport, &settings).expect("an engine over a script");
    send(&engine);
    assert_eq!(engine.state.lock().transport.sent.len(), 1);
    assert_eq!(bell.endless.load(Ordering::Relaxed), 0);
    assert!(bell.naps.load(Ordering::Relaxed) > 0, "it has slept");
}

#[test]
fn an_active_message_that_waits_for_room() {
    naps_until_there_is_room(|engine| {
        engine
            .active_send(ProcId::new(1), HandlerId(7), [0; 2], &[])
            .expect("there is room in the end");
    });
}

#[test]
fn a_put_that_waits_for_room() {
    naps_until_there_is_room(|engine| {
        let bytes = [7_u8; 100];
        // As the peer's would be: where it lies is the peer's affair.
        let key = engine.alloc_region(bytes.len()).expect("a region").key;
        // SAFETY: as many bytes are readable until this returns.
        let put = unsafe { engine.put(ProcId::new(1), &key, 0, bytes.as_ptr(), bytes.len()) };
        put.expect("there is room in the end");
    });
}
