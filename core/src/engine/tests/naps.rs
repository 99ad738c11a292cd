//! Sleeps of a rank that waits for room: nobody rings when a provider has some again.

use super::*;
use crate::device::HandlerId;

#[test]
fn who_waits_for_room_never_sleeps_without_end() {
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
    engine
        .active_send(ProcId::new(1), HandlerId(7), [0; 2], &[])
        .expect("there is room in the end");
    assert_eq!(engine.state.lock().transport.sent.len(), 1);
    assert!(bell.naps.load(Ordering::Relaxed) > 0, "it has slept");
    assert_eq!(bell.endless.load(Ordering::Relaxed), 0);
}
