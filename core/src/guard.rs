//! Protects memory that is still being written from a panic.

/// Aborts the process if it is dropped, by a panic, before [`done`](Self::done) is called.
///
/// Held while a borrowed buffer belongs to the device. A panic out of the device (out of a handler
/// of the program, say) would otherwise end the borrow while the operation still uses the buffer.
/// Aborting is the only safe answer: without the device there is no way to tell when the operation
/// is over.
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
    /// Calls `does`; a panic in it ends the process. `what` names the operation in the message.
    #[inline(always)]
    pub fn during<R>(what: &'static str, does: impl FnOnce() -> R) -> R {
        let guard = Self::new(what);
        let result = does();
        guard.done();
        result
    }

    /// Starts guarding: a panic from here on ends the process. `what` names the operation in the
    /// message.
    #[inline]
    pub fn new(what: &'static str) -> Self {
        Self(what)
    }

    /// Stops guarding: the device no longer uses the buffer.
    #[inline]
    pub fn done(self) {
        std::mem::forget(self);
    }
}

impl Drop for NoUnwind {
    #[cold]
    fn drop(&mut self) {
        use std::io::Write;

        // If standard error is gone, there is nowhere left to report to.
        let _ = writeln!(
            std::io::stderr(),
            "portolan: a panic came out of the device during {} while a buffer was in use; \
             ending the process",
            self.0
        );
        std::process::abort();
    }
}
