//! What stands between a panic and memory that is still being written.

/// Ends the process if it is dropped by a panic.
///
/// Held while a borrowed buffer belongs to the device: a panic out of the device (out of a handler
/// of the program, say) would otherwise end the borrow while the operation goes on. There is
/// nothing better to do then: without the device nobody can say when the operation is over.
///
/// ```
/// use portolan_core::guard::NoUnwind;
///
/// let guard = NoUnwind::new("an example");
/// // … nothing panics here …
/// guard.done();
/// ```
#[derive(Debug)]
#[must_use]
pub struct NoUnwind(&'static str);

impl NoUnwind {
    /// Does something out of which no panic gets; `what` says in what operation.
    #[inline(always)]
    pub fn during<R>(what: &'static str, does: impl FnOnce() -> R) -> R {
        let guard = Self::new(what);
        let result = does();
        guard.done();
        result
    }

    /// From here on a panic ends the process; `what` says in what operation.
    #[inline]
    pub fn new(what: &'static str) -> Self {
        Self(what)
    }

    /// The buffer is the caller's again.
    #[inline]
    pub fn done(self) {
        std::mem::forget(self);
    }
}

impl Drop for NoUnwind {
    #[cold]
    fn drop(&mut self) {
        use std::io::Write;

        // Nobody is left to tell if standard error is gone.
        let _ = writeln!(
            std::io::stderr(),
            "portolan: a panic came out of the device during {} while a buffer was in use; \
             ending the process",
            self.0
        );
        std::process::abort();
    }
}
