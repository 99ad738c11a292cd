//! The output of `portolan info`, for people and for programs.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::process::ExitCode;

use portolan_core::config::Settings;
use serde_json::json;

use super::backends::Backend;
use super::limits::Limit;

/// Everything that is shown.
pub(super) struct Page<'a> {
    pub(super) version: &'static str,
    pub(super) transports: Vec<Backend>,
    pub(super) limits: Vec<Limit>,
    pub(super) settings: &'a Settings,
    pub(super) errors: &'a [String],
}

impl Page<'_> {
    /// As one JSON object.
    pub(super) fn json(&self) -> String {
        let settings: Vec<_> = self
            .settings
            .shown()
            .map(|shown| {
                json!({
                    "name": shown.setting.variable(),
                    "value": (!shown.value.is_empty()).then_some(shown.value),
                    "origin": shown.origin.to_string(),
                    "default": shown.setting.default_shown(),
                    "unit": shown.setting.unit,
                    "meaning": shown.setting.meaning.trim(),
                })
            })
            .collect();
        let object = json!({
            "version": self.version,
            "transports": self.transports,
            "limits": self.limits,
            "settings": settings,
            "unknown": self.settings.unknown().iter().map(ToString::to_string).collect::<Vec<_>>(),
            "errors": self.errors,
        });
        format!("{object:#}\n")
    }

    /// As text.
    pub(super) fn text(&self) -> String {
        let mut page = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut page);
        page
    }

    fn write(&self, page: &mut String) -> fmt::Result {
        writeln!(page, "portolan {}\n\ntransports", self.version)?;
        for transport in &self.transports {
            let Backend {
                name,
                what,
                compiled_in,
                obstacle,
                found,
                facts,
            } = transport;
            let state = match (compiled_in, obstacle) {
                (_, None) => "usable here".to_owned(),
                (true, Some(why)) => format!("not usable here: {why}"),
                (false, Some(_)) => "not compiled in".to_owned(),
            };
            writeln!(page, "  {name:<10} {what}: {state}")?;
            for (place, why) in found {
                let why = why.as_deref().unwrap_or("can be used");
                writeln!(page, "  {:<10}   {place}: {why}", "")?;
            }
            for fact in facts {
                writeln!(page, "  {:<10}   {fact}", "")?;
            }
        }
        writeln!(page, "\nlimits")?;
        for Limit {
            name,
            value,
            meaning,
        } in &self.limits
        {
            writeln!(page, "  {name:<14} {value:<24} {meaning}")?;
        }
        writeln!(page, "\nsettings (environment variable, value, origin)")?;
        for shown in self.settings.shown() {
            let value = match (&*shown.value, shown.setting.unit) {
                ("", _) => "unset".to_owned(),
                (value, "") => value.to_owned(),
                (value, unit) => format!("{value} {unit}"),
            };
            writeln!(
                page,
                "  {:<28} {value:<22} {}",
                shown.setting.variable(),
                shown.origin
            )?;
        }
        page.push_str(&errors(self.errors));
        for unknown in self.settings.unknown() {
            writeln!(page, "\nwarning: {unknown}")?;
        }
        Ok(())
    }
}

/// The errors in the settings. They follow a page that shows the settings without the faulty
/// values.
pub(super) fn errors(errors: &[String]) -> String {
    let lines = errors.iter().map(|error| format!("\nerror: {error}\n"));
    lines.collect()
}

/// Prints to the standard error why the page cannot be shown.
#[expect(clippy::print_stderr, reason = "a command speaks to people")]
pub(super) fn complain(why: &str) {
    eprintln!("portolan info: {why}");
}

/// Prints a page, and fails if it shows errors: no job starts with such settings. A reader that
/// closes the output early is no failure.
pub(super) fn print(text: &str, errors: &[String]) -> ExitCode {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ if !errors.is_empty() => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}
