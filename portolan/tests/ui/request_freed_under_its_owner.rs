//! The traits behind the functions for several requests expose neither handles nor devices.

use portolan::Device;

fn steal<R: portolan::OwnedRequest>(request: &R) {
    let (device, handle) = request.parts();
    let _ = device.free(handle);
}

fn steal_by_the_device<R: portolan::OwnedRequest>(request: &R) {
    let device = request.host().unwrap();
    let _ = device.free(portolan_core::Request::DONE);
}

fn main() {
    let _ = steal::<portolan::SendRequest<Vec<u8>>>;
    let _ = steal_by_the_device::<portolan::SendRequest<Vec<u8>>>;
}
