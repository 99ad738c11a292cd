//! [`Optional`]: an `Option` whose `None` is memory full of zeros.
//!
//! A rank has a place for every other rank ([`Places`](crate::places::Places)), and one that is not
//! used has to be all zeros. The standard library does not promise that an `Option` of a struct can
//! be made of zeros.

use bytemuck::Zeroable;

/// A type that can tell a value from zeros.
pub(crate) trait Present: Zeroable {
    /// Whether this is a value, and not zeros.
    fn is_present(&self) -> bool;
}

/// A value, or zeros.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(transparent)]
pub(crate) struct Optional<T>(T);

impl<T: Present> Optional<T> {
    #[inline(always)]
    pub(crate) fn as_ref(&self) -> Option<&T> {
        self.0.is_present().then_some(&self.0)
    }

    #[inline(always)]
    pub(crate) fn as_mut(&mut self) -> Option<&mut T> {
        match self.0.is_present() {
            true => Some(&mut self.0),
            false => None,
        }
    }

    #[inline(always)]
    pub(crate) fn is_none(&self) -> bool {
        !self.0.is_present()
    }

    /// Puts `value`, or nothing, into the place.
    pub(crate) fn set(&mut self, value: Option<T>) {
        debug_assert!(value.as_ref().is_none_or(T::is_present));
        self.0 = value.unwrap_or_else(T::zeroed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq, Zeroable)]
    struct Number(u32);

    impl Present for Number {
        fn is_present(&self) -> bool {
            self.0 != 0
        }
    }

    #[test]
    fn zeros_are_no_value_until_one_is_put_there() {
        let mut place: Optional<Number> = Zeroable::zeroed();
        assert!(place.is_none() && place.as_ref().is_none() && place.as_mut().is_none());
        place.set(Some(Number(7)));
        assert_eq!(place.as_ref(), Some(&Number(7)));
        place.as_mut().unwrap().0 = 8;
        assert_eq!(place.as_ref(), Some(&Number(8)));
        place.set(None);
        assert!(place.is_none());
    }
}
