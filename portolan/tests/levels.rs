//! SND-11: the thread level is in the types. The claims of this file hold if it compiles.

use portolan::{
    CartComm, Comm, InterComm, Memory, Message, Multiple, OwnedMessage, PersistentRecv,
    RecvRequest, RequestFuture, Scope, SendRequest, Single, World,
};

/// Has two candidates for types that are `Send`, so that naming it fails to compile for them.
trait NotSend<Candidate> {
    fn holds() {}
}
impl<T: ?Sized> NotSend<()> for T {}
impl<T: ?Sized + Send> NotSend<u8> for T {}

/// The same for `Sync`.
trait NotSync<Candidate> {
    fn holds() {}
}
impl<T: ?Sized> NotSync<()> for T {}
impl<T: ?Sized + Sync> NotSync<u8> for T {}

fn is_send<T: Send>() {}
fn is_sync<T: Sync>() {}

#[test]
fn single_threaded_ranks_stay_in_their_thread() {
    <World<Single> as NotSend<_>>::holds();
    <World<Single> as NotSync<_>>::holds();
    <Comm as NotSend<_>>::holds();
    <Comm as NotSync<_>>::holds();
    <CartComm as NotSend<_>>::holds();
    <InterComm as NotSend<_>>::holds();
    <SendRequest<Vec<u8>> as NotSend<_>>::holds();
    <RecvRequest<Vec<u8>> as NotSend<_>>::holds();
    <PersistentRecv<Vec<u8>> as NotSend<_>>::holds();
    <Message<'static, Single, portolan::AnyDevice> as NotSend<_>>::holds();
    <OwnedMessage as NotSend<_>>::holds();
}

#[test]
fn multi_threaded_ranks_go_anywhere() {
    is_send::<World<Multiple>>();
    is_sync::<World<Multiple>>();
    is_send::<Comm<Multiple>>();
    is_sync::<Comm<Multiple>>();
    is_send::<InterComm<Multiple>>();
    is_sync::<InterComm<Multiple>>();
    is_send::<SendRequest<Vec<u8>, Multiple>>();
    is_send::<RecvRequest<Box<[f64]>, Multiple>>();
    is_send::<PersistentRecv<Vec<u8>, Multiple>>();
    is_send::<RequestFuture<RecvRequest<Vec<u8>, Multiple>>>();
    is_send::<OwnedMessage<Multiple>>();
}

/// Another thread may read, write and drop the values at any level: it does not call the device.
#[test]
fn memory_of_the_device_goes_anywhere() {
    is_send::<Memory<f64>>();
    is_sync::<Memory<f64>>();
    is_send::<Memory<f64, Multiple>>();
    is_sync::<Memory<f64, Multiple>>();
    is_send::<SendRequest<Memory<f64, Multiple>, Multiple>>();
    <SendRequest<Memory<f64>> as NotSend<_>>::holds();
}

#[test]
fn scopes_belong_to_one_thread_at_every_level() {
    <Scope<'static, 'static, Single> as NotSend<_>>::holds();
    <Scope<'static, 'static, Multiple> as NotSync<_>>::holds();
}
