//! `portolan info`: the version of this command, the transports that work here, and the settings.

mod backends;
mod collectives;
mod limits;
mod show;

use std::process::ExitCode;

use portolan_core::config::{self, Settings};

use crate::cli::InfoArgs;

/// Prints what was asked for.
pub(crate) fn main(args: &InfoArgs) -> ExitCode {
    if args.manual {
        return show::print(&config::manual(), &[]);
    }
    let (settings, errors) = Settings::inspect(std::env::vars_os());
    let mut errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    errors.extend(backends::check_name(settings.transport()).err());
    let text = if args.collectives {
        match collectives::page(&settings) {
            Ok(page) => page + &show::errors(&errors),
            Err(why) => {
                show::complain(&why);
                return ExitCode::from(2);
            }
        }
    } else {
        let page = show::Page {
            version: env!("CARGO_PKG_VERSION"),
            transports: backends::backends(),
            limits: limits::limits(),
            settings: &settings,
            errors: &errors,
        };
        if args.json { page.json() } else { page.text() }
    };
    show::print(&text, &errors)
}
