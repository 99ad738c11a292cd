//! A table of operations by number.

/// Values that keep their number until they are removed.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, value: T) -> u32 {
        if let Some(id) = self.free.pop() {
            self.slots[id as usize] = Some(value);
            return id;
        }
        self.slots.push(Some(value));
        (self.slots.len() - 1) as u32
    }

    pub(super) fn get(&self, id: u32) -> Option<&T> {
        self.slots.get(id as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.slots.get_mut(id as usize)?.as_mut()
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<T> {
        let value = self.slots.get_mut(id as usize)?.take()?;
        self.free.push(id);
        Some(value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let numbered = (0..).zip(&self.slots);
        numbered.filter_map(|(id, slot)| slot.as_ref().map(|value| (id, value)))
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
