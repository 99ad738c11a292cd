//! Handles of messages that a matched probe has taken. No handle is given out twice, so a stale one
//! is refused.

use std::collections::BTreeMap;

use portolan_core::device::Message;

/// The handles that are still valid.
#[derive(Debug, Default)]
pub(super) struct Handles {
    live: BTreeMap<u64, u32>,
    last: u64,
}

impl Handles {
    /// Makes a handle of the message that MP_Lite knows by `number`.
    pub(super) fn add(&mut self, number: u32) -> Message {
        self.last += 1;
        self.live.insert(self.last, number);
        Message::from_bits(self.last)
    }

    /// The number behind a handle.
    pub(super) fn get(&self, message: Message) -> Option<u32> {
        self.live.get(&message.to_bits()).copied()
    }

    /// Returns the number behind a handle, and invalidates the handle.
    pub(super) fn remove(&mut self, message: Message) -> Option<u32> {
        self.live.remove(&message.to_bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_good_once() {
        let mut handles = Handles::default();
        let (first, second) = (handles.add(0), handles.add(0));
        assert_ne!(first, second);
        assert_eq!(handles.get(first), Some(0));
        assert_eq!(handles.remove(first), Some(0));
        assert_eq!(handles.get(first), None);
        assert_eq!(handles.remove(first), None);
        assert_eq!(handles.remove(second), Some(0));
    }
}
