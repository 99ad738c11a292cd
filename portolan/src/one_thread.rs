//! Devices that one thread at a time can use. They exist at level `Single` only.

use std::marker::PhantomData;
use std::ops::Deref;

use portolan_core::level::{Level, Multiple};
use portolan_core::{Error, ErrorKind, Result};

/// A device that cannot be shared between threads, wrapped in a type that exists for every level.
#[derive(Debug)]
pub struct OneThread<D, L: Level> {
    /// On the heap, because such a device is larger than the others; its path is not the shortest
    /// anyway.
    device: Box<D>,
    level: PhantomData<fn() -> L>,
}

impl<D, L: Level> OneThread<D, L> {
    /// Checks the level, before anything is made.
    pub(crate) fn check(name: &str) -> Result<()> {
        if !L::MULTIPLE {
            return Ok(());
        }
        let what = format!("transport {name} cannot be used by several threads of a rank");
        Err(Error::new(ErrorKind::Unsupported, what)
            .remedy("leave out Builder::multiple, or choose another transport"))
    }

    /// Wraps the device for this level; the caller has called `check` first.
    pub(crate) fn new(name: &str, device: D) -> Result<Self> {
        Self::check(name)?;
        Ok(Self {
            device: Box::new(device),
            level: PhantomData,
        })
    }
}

// SAFETY: no value of this type exists: only `new` can make one, and it refuses level `Multiple`.
unsafe impl<D> Sync for OneThread<D, Multiple> {}

impl<D, L: Level> Deref for OneThread<D, L> {
    type Target = D;

    #[inline]
    fn deref(&self) -> &D {
        &self.device
    }
}

#[cfg(test)]
mod tests {
    use portolan_core::level::Single;

    use super::*;

    #[test]
    fn level_multiple_is_refused_and_says_so() {
        assert_eq!(*OneThread::<_, Single>::new("t3e-sim", 5).unwrap(), 5);
        let error = OneThread::<_, Multiple>::new("t3e-sim", 5).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("Builder::multiple"), "{error}");
    }
}
