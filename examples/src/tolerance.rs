//! How small something has to become, as people give it on a command line.

/// A number above 0, for a residual to fall below; else what is wrong with it, and what to give.
///
/// ```
/// use portolan_examples::tolerance;
///
/// assert_eq!(tolerance("1e-10"), Ok(1e-10));
/// assert!(tolerance("-1").is_err() && tolerance("nan").is_err());
/// ```
///
/// # Errors
/// If it is no number, not finite, or not above 0: no residual is smaller than that.
pub fn tolerance(text: &str) -> Result<f64, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| "it is no number; give one such as 1e-10".to_owned())?;
    if number.is_finite() && number > 0.0 {
        return Ok(number);
    }
    Err("a tolerance is a finite number above 0; give one such as 1e-10".to_owned())
}
