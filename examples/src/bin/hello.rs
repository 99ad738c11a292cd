//! Every rank prints its number.
//!
//! ```text
//! portolan run -n 4 -- target/release/hello
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::process::ExitCode;

use portolan::{Result, World};

fn main() -> ExitCode {
    portolan::run(hello)
}

pub(crate) fn hello(world: World) -> Result<()> {
    let transport = world.comm().transport();
    println!(
        "hello from rank {} of {} over {transport}",
        world.rank(),
        world.size()
    );
    Ok(())
}
