//! Budgets: what the facade allocates per operation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use portolan::in_process;

struct Counting;

std::thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(body: impl FnOnce()) -> u64 {
    let before = COUNT.with(Cell::get);
    body();
    COUNT.with(Cell::get) - before
}

#[test]
fn small_messages_allocate_nothing_once_they_have_flowed() {
    let worlds = in_process(2).unwrap();
    let (zero, one) = (worlds[0].comm(), worlds[1].comm());
    let mut got = [0u64; 4];
    let mut round = |kind: u32| match kind {
        0 => {
            zero.send(&[1u64, 2, 3, 4], 1, 0).unwrap();
            one.recv_into(&mut got, 0, 0).unwrap();
        }
        1 => {
            zero.send(&[(1u8, 2.5f64)], 1, 0).unwrap();
            one.recv_into(&mut [(0u8, 0.0f64)], 0, 0).unwrap();
        }
        2 => {
            zero.send(&[1u64], 1, 0).unwrap();
            one.match_recv(0, 0).unwrap().recv_into(&mut got).unwrap();
        }
        3 => one
            .scope(|s| {
                let incoming = s.recv(&mut got, 0, 0)?;
                zero.scope(|t| t.send(&[5u64], 1, 0)?.wait().map(drop))?;
                incoming.wait().map(drop)
            })
            .unwrap(),
        _ => zero
            .bsend(&[1u64], 1, 0)
            .and_then(|()| one.recv_into(&mut got, 0, 0))
            .map(drop)
            .unwrap(),
    };
    for kind in 0..5 {
        for _ in 0..1000 {
            round(kind);
        }
        let allocations = count(|| (0..100).for_each(|_| round(kind)));
        assert_eq!(allocations, 0, "kind {kind}");
    }
}

#[test]
fn owned_requests_allocate_nothing_besides_their_buffers() {
    let worlds = in_process(2).unwrap();
    let (zero, one) = (worlds[0].comm(), worlds[1].comm());
    let (mut to, mut from) = (vec![0u8; 64], vec![1u8; 64]);
    let mut round = || {
        let incoming = one.irecv_owned(std::mem::take(&mut to), 0, 0).unwrap();
        from = zero
            .isend_owned(std::mem::take(&mut from), 1, 0)
            .unwrap()
            .wait()
            .unwrap()
            .buf;
        to = incoming.wait().unwrap().buf;
    };
    (0..1000).for_each(|_| round());
    assert_eq!(count(|| (0..100).for_each(|_| round())), 0);
    assert_eq!(to, from);
}
