//! Tests with providers that report no room (`-FI_EAGAIN`) every now and then, whatever is asked of
//! them: no packet may be lost or overtake another because of that.
//!
//! The tables of an endpoint's operations are replaced by tables of this file. They refuse some
//! calls, sometimes a few in a row and sometimes many, and pass the others on.

use std::cell::Cell;
use std::ffi::c_void;

use libfabric_sys::{
    FI_EAGAIN, fi_addr_t, fi_datatype, fi_msg, fi_msg_rma, fi_msg_tagged, fi_op, fi_ops_atomic,
    fi_ops_msg, fi_ops_rma, fi_ops_tagged, fid_ep,
};
use portolan_conformance::{Job, Over, Sut, Transports, on_threads, run_cases_in_one_job};
use portolan_core::config::MatchMode;
use portolan_core::level::{Multiple, Single};
use portolan_core::transport::{Header, Payload, Sent, Sink, Transport};

use crate::config::Config;
use crate::native::Native;
use crate::ofi::Ofi;
use crate::start::open::in_process;
use crate::testing::opened_or_skipped;

/// A table that replaces the provider's. It is never freed, since the endpoint uses it as long as
/// it is open.
#[repr(C)]
struct Busy<T> {
    /// First, so that a pointer to this field is a pointer to the whole struct.
    ours: T,
    theirs: *const T,
    /// Random state (xorshift) that decides which calls are refused.
    random: Cell<u64>,
    /// How many of the next calls are refused.
    row: Cell<u32>,
    refused: Cell<u32>,
}

impl<T> Busy<T> {
    /// Whether a call is refused: one in three, and sometimes many in a row.
    fn has_no_room(&self) -> bool {
        if self.row.get() == 0 {
            let mut random = self.random.get();
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            self.random.set(random);
            if !random.is_multiple_of(3) {
                return false;
            }
            self.row
                .set(if random.is_multiple_of(64) { 300 } else { 1 });
        }
        self.row.set(self.row.get() - 1);
        self.refused.set(self.refused.get() + 1);
        true
    }
}

/// Tables, each with the operations of it that this crate calls.
macro_rules! tables {
    ($($table:ident: $ops:ident { $($op:ident($($arg:ident: $type:ty),*);)* })*) => {$(
        mod $table {
            use super::*;

            $(unsafe extern "C" fn $op(ep: *mut fid_ep, $($arg: $type),*) -> isize {
                // SAFETY: only `replace` gives an endpoint this function, together with the table
                // around it, which is never freed; the entry is the provider's, and its caller's
                // promise holds for it as well.
                unsafe {
                    let table = (*ep).$table.cast::<Busy<$ops>>();
                    if (*table).has_no_room() {
                        return -(FI_EAGAIN as isize);
                    }
                    let theirs = (*(*table).theirs).$op.expect("it was there");
                    theirs(ep, $($arg),*)
                }
            })*

            /// Puts a busy table into an endpoint that has such operations.
            ///
            /// # Safety
            /// The endpoint must be open, and must not be in use.
            pub(super) unsafe fn replace(ep: *mut fid_ep, seed: u64) {
                // SAFETY: an open endpoint. Its table has at least the checked size, and lives as
                // long as it.
                unsafe {
                    let theirs = (*ep).$table;
                    if theirs.is_null() || (*theirs).size < size_of::<$ops>() {
                        return;
                    }
                    let mut ours = theirs.read();
                    ours.size = size_of::<$ops>();
                    $(ours.$op = ours.$op.map(|_| $op as _);)*
                    let busy = Box::new(Busy {
                        ours,
                        theirs,
                        random: Cell::new(seed),
                        row: Cell::new(0),
                        refused: Cell::new(0),
                    });
                    (*ep).$table = (&raw mut Box::leak(busy).ours).cast();
                }
            }
        }
    )*};
}

tables! {
    msg: fi_ops_msg {
        recv(buf: *mut c_void, len: usize, desc: *mut c_void, from: fi_addr_t, context: *mut c_void);
        recvmsg(msg: *const fi_msg, flags: u64);
        send(buf: *const c_void, len: usize, desc: *mut c_void, to: fi_addr_t, context: *mut c_void);
        inject(buf: *const c_void, len: usize, to: fi_addr_t);
        senddata(buf: *const c_void, len: usize, desc: *mut c_void, data: u64, to: fi_addr_t, context: *mut c_void);
        injectdata(buf: *const c_void, len: usize, data: u64, to: fi_addr_t);
    }
    tagged: fi_ops_tagged {
        recvmsg(msg: *const fi_msg_tagged, flags: u64);
        senddata(
            buf: *const c_void, len: usize, desc: *mut c_void, data: u64, to: fi_addr_t, tag: u64, context: *mut c_void
        );
        injectdata(buf: *const c_void, len: usize, data: u64, to: fi_addr_t, tag: u64);
    }
    rma: fi_ops_rma {
        read(buf: *mut c_void, len: usize, desc: *mut c_void, from: fi_addr_t, addr: u64, key: u64, context: *mut c_void);
        writemsg(msg: *const fi_msg_rma, flags: u64);
    }
    atomic: fi_ops_atomic {
        readwrite(
            buf: *const c_void, count: usize, desc: *mut c_void, result: *mut c_void, result_desc: *mut c_void,
            to: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, op: fi_op, context: *mut c_void
        );
        compwrite(
            buf: *const c_void, count: usize, desc: *mut c_void, compare: *const c_void, compare_desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, to: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype,
            op: fi_op, context: *mut c_void
        );
    }
}

/// The same ranks, with providers that are busy from now on.
fn busy(ranks: Vec<Ofi>) -> Vec<Ofi> {
    for rank in &ranks {
        let (ep, seed) = (rank.link.ep.get(), u64::from(rank.rank) + 0x9e37_79b9);
        // SAFETY: an open endpoint, which only this thread knows.
        unsafe {
            msg::replace(ep, seed);
            tagged::replace(ep, seed);
            rma::replace(ep, seed);
            atomic::replace(ep, seed);
        }
    }
    ranks
}

fn config(provider: &str) -> Config {
    Config {
        provider: Some(provider.to_owned()),
        interface: (!["shm", "sm2"].contains(&provider)).then(|| "lo".to_owned()),
        ..Config::default()
    }
}

/// Expects packets numbered by their tags, in this order.
struct InOrder(u32);

impl Sink for InOrder {
    fn accepts(&mut self, _peer: u32) -> bool {
        true
    }

    fn packet(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
        assert_eq!((peer, header.tag), (0, self.0), "another packet is next");
        let byte = self.0 as u8;
        assert!(payload.to_vec().iter().all(|&b| b == byte), "other bytes");
        self.0 += 1;
    }
}

#[test]
fn packets_are_neither_lost_nor_overtaken_where_there_is_no_room() {
    const PACKETS: u32 = 2000;
    for provider in ["tcp", "shm", "sm2", "sockets", "ofi_rxd"] {
        let what = format!("{provider} without room");
        let Some(ranks) = opened_or_skipped(&what, 2, &config(provider)) else {
            continue; // The skip has been printed.
        };
        let mut ranks = busy(ranks);
        let limits = ranks[0].limits();
        let lengths = [0, 8, 300, limits.short, limits.short + 1, limits.bulk];
        let bytes: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte; limits.bulk]).collect();
        let (mut next, mut heard, mut polls) = (0_u32, InOrder(0), 0);
        while heard.0 < PACKETS {
            let len = lengths[next as usize % lengths.len()];
            let header = Header {
                tag: next,
                ..Header::default()
            };
            let data = bytes[next as usize % 256].as_ptr();
            // SAFETY: another rank, which exists; as many bytes are readable, and written where
            // there is room.
            let sent = unsafe {
                match len {
                    _ if next == PACKETS => Sent::Full,
                    _ if len <= limits.short => ranks[0].send_short(1, &header, data, len),
                    _ if next.is_multiple_of(2) => ranks[0].send_bulk_from(1, &header, data, len),
                    _ => {
                        let fill = |place: *mut u8| place.copy_from_nonoverlapping(data, len);
                        ranks[0].send_bulk(1, &header, len, fill)
                    }
                }
            };
            if sent == Sent::Done {
                next += 1;
                continue;
            }
            assert_eq!(sent, Sent::Full, "{provider}");
            ranks[0].poll(&mut InOrder(0));
            ranks[1].poll(&mut heard);
            polls += 1;
            assert!(
                polls < 50_000_000,
                "{provider}: {} arrive, and no more",
                heard.0
            );
        }
        for rank in &ranks {
            // SAFETY: an open endpoint with the table that `busy` has put there.
            let refused = unsafe {
                (*(*rank.link.ep.get()).msg.cast::<Busy<fi_ops_msg>>())
                    .refused
                    .get()
            };
            assert!(refused > 0, "{provider}: nothing was refused");
        }
    }
}

/// The conformance suite over providers without room, chosen by index in this list.
struct Without<const N: usize>;

const PROVIDERS: [&str; 3] = ["tcp", "shm", "sockets"];

impl<const N: usize> Without<N> {
    fn open(job: &Job) -> Vec<Ofi> {
        let mut job = job.clone().set("OFI_PROVIDER", PROVIDERS[N]);
        if PROVIDERS[N] != "shm" {
            job = job.set("OFI_INTERFACE", "lo");
        }
        busy(in_process(job.ranks, &job.settings).expect("an endpoint for each rank"))
    }
}

impl<const N: usize> Transports for Without<N> {
    type Transport = Ofi;

    const NAME: &'static str = ["busy tcp", "busy shm", "busy sockets"][N];

    fn missing() -> Option<String> {
        let opened = opened_or_skipped(Self::NAME, 1, &config(PROVIDERS[N]));
        opened.is_none().then(|| "no such provider".to_owned())
    }

    fn open(job: &Job) -> Vec<Ofi> {
        Self::open(job)
    }
}

/// The same, where tcp does the matching.
struct MatchesWithout;

impl Sut for MatchesWithout {
    type Device = Native<Single>;
    type Shared = Native<Multiple>;

    const NAME: &'static str = "busy tcp, which matches";

    fn missing() -> Option<String> {
        let config = Config {
            matching: MatchMode::Native,
            ..config("tcp")
        };
        let opened = opened_or_skipped(Self::NAME, 1, &config);
        opened.is_none().then(|| "no such provider".to_owned())
    }

    fn run<R: Send>(job: &Job, body: impl Fn(&Self::Device) -> R + Sync) -> Vec<R> {
        let job = job.clone().set("MATCH", "native");
        let device = |ofi| Native::new(ofi, &job.settings).expect("a device");
        on_threads(Without::<0>::open(&job), device, body)
    }

    fn run_shared<R: Send>(job: &Job, body: impl Fn(&Self::Shared) -> R + Sync) -> Vec<R> {
        let job = job.clone().set("MATCH", "native");
        let device = |ofi| Native::new(ofi, &job.settings).expect("a device");
        on_threads(Without::<0>::open(&job), device, body)
    }
}

#[test]
fn every_case_without_room_on_tcp() {
    run_cases_in_one_job::<Over<Without<0>>>(3);
}

#[test]
fn every_case_without_room_on_shm() {
    run_cases_in_one_job::<Over<Without<1>>>(3);
}

#[test]
fn every_case_without_room_on_sockets() {
    run_cases_in_one_job::<Over<Without<2>>>(3);
}

#[test]
fn every_case_without_room_where_tcp_matches() {
    run_cases_in_one_job::<MatchesWithout>(3);
}
