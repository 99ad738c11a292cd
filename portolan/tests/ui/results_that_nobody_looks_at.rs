//! An exit code that does not leave `main`, results of requests that nobody looks at, and drivers
//! that may not be used: the failure behind each would go unnoticed.

#![deny(unused_must_use)]

use portolan::{Builder, SendRequest, World, wait_all};

fn main() {
    portolan::run(program);
    Builder::new().run(program);
}

fn program(world: World) -> portolan::Result<()> {
    world.set_accelerators(Vec::new());
    let requests: Vec<SendRequest<Vec<u8>>> = vec![world.comm().isend_owned(vec![1], 0, 0)?];
    wait_all(requests);
    Ok(())
}
