//! A tolerance as it is given on a command line.

/// Parses a number above 0, for a residual to fall below; the error says what is wrong with the
/// text, and what to give.
///
/// ```
/// use portolan_examples::tolerance;
///
/// assert_eq!(tolerance("1e-10"), Ok(1e-10));
/// assert!(tolerance("-1").is_err() && tolerance("nan").is_err());
/// ```
///
/// # Errors
/// If it is not a number, not finite, or not above 0: no residual is smaller than that.
pub fn tolerance(text: &str) -> Result<f64, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| "it is no number; give one such as 1e-10".to_owned())?;
    if number.is_finite() && number > 0.0 {
        return Ok(number);
    }
    Err("a tolerance is a finite number above 0; give one such as 1e-10".to_owned())
}
