//! One-sided operations from, to and on memory that only its driver reaches ("driven" memory).
//!
//! | this side | the peer's region | how |
//! | --- | --- | --- |
//! | driven | loaded and stored here | one copy by the driver |
//! | driven | registered | by the network, if it serves such memory; else not here: `Staging` copies |
//! | any | driven, registered | by the network |
//! | any | driven, not registered | packets, which the owner's driver stores; a stream, which it loads |

use crate::device::{Completion, ProcId, Region, RegionKey};
use crate::engine::entry::Op;
use crate::engine::long::loader::Loader;
use crate::engine::one_sided::regions::{Memory, MemoryOwner};
use crate::engine::one_sided::remote::{by_host, reaches};
use crate::engine::one_sided::{Reach, one_sided, step};
use crate::engine::short::outgoing::{Stream, StreamSource};
use crate::engine::state::{Proto, State};
use crate::error::{Error, ErrorKind, Result};
use crate::request::Request;
use crate::staging::{Driven, DrivenBuf, unsupported};
use crate::status::Status;
use crate::transport::{Header, Payload, Remote, Transport};
use portolan_datatype::MsgRep;

impl<T: Transport> State<T> {
    /// # Safety
    /// As for `Device::register_driven`.
    pub(in crate::engine) unsafe fn register_driven(&mut self, buf: DrivenBuf) -> Result<Region> {
        buf.check()?;
        let data = Driven::new(buf)?;
        let mut memory = Memory::new(data.at(0), data.bytes, MemoryOwner::Caller);
        memory.driven = Some(data);
        // SAFETY: the caller's promise; a region that is freed is withdrawn from the transport at
        // once.
        Ok(unsafe { self.add_registered(memory) })
    }

    /// # Safety
    /// As for `Device::put_driven`.
    pub(in crate::engine) unsafe fn put_driven(
        &mut self,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        buf: DrivenBuf,
    ) -> Result<Request> {
        buf.check()?;
        let data = Driven::new(buf)?;
        let (source, len) = (data.at(0).cast_const(), data.bytes);
        let reach = self.reach(peer, key, offset, len, 1)?;
        if let Reach::Direct(target) = reach {
            // SAFETY: the range is inside of a live region; the caller vouches for the source.
            return unsafe { read(&data, 0, target, len) }.map(|()| Request::NULL);
        }
        self.start_driven(&reach, key, offset, Remote::Put { source, len }, data)
    }

    /// # Safety
    /// As for `Device::get_driven`.
    pub(in crate::engine) unsafe fn get_driven(
        &mut self,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        buf: DrivenBuf,
    ) -> Result<Request> {
        buf.check()?;
        let data = Driven::new(buf)?;
        let (target, len) = (data.at(0), data.bytes);
        let reach = self.reach(peer, key, offset, len, 1)?;
        if let Reach::Direct(source) = reach {
            // SAFETY: the range is inside of a live region; the caller vouches for the target.
            return unsafe { written(&data, 0, source, len) }.map(|()| Request::NULL);
        }
        self.start_driven(&reach, key, offset, Remote::Get { target, len }, data)
    }

    /// Gives an operation to the network, if the network serves this memory.
    fn start_driven(
        &mut self,
        reach: &Reach,
        key: &RegionKey,
        offset: u64,
        what: Remote,
        data: Driven,
    ) -> Result<Request> {
        let (at, kind, null) = (data.at(0), data.kind(), std::ptr::null_mut());
        let served = reaches(&self.transport, false) && self.transport.serves(at, kind);
        let request = match *reach {
            Reach::Packets(_) if data.bytes == 0 => return Ok(Request::NULL),
            Reach::Packets(rank) if served => {
                let data = Some(Box::new(data));
                self.start_remote_with(rank, key, offset, what, null, data)?
            }
            _ => None,
        };
        request.ok_or_else(|| unsupported(kind, "this access to a peer's region"))
    }

    /// Continues an operation on driven memory of which no part has begun and that the network
    /// cannot do directly: from, or into, a copy in host memory. If the driver fails, the operation
    /// ends.
    pub(in crate::engine) fn copy_driven(&mut self, index: u32) {
        let Op::Remote(op) = &mut self.proto.table.entry(index).op else {
            return;
        };
        let Some((data, what)) = by_host(op) else {
            return;
        };
        let mut host = vec![0_u8; data.bytes];
        let get = matches!(what, Remote::Get { .. });
        if get {
            op.set_memory(host.as_mut_ptr());
        } else {
            // SAFETY: the memory is the operation's until its request completes; the copy has as
            // many bytes.
            let fetched = unsafe { data.fetch(0, host.as_mut_ptr(), data.bytes) };
            if fetched.is_none() {
                return self
                    .proto
                    .end_remote_with(index, Some(ErrorKind::UnsupportedMemory));
            }
            op.set_memory(host.as_mut_ptr());
        }
        let completion = Completion {
            keep: Box::new((data, host)),
            then: Some(if get { stored } else { checked }),
        };
        let request = self.proto.table.handle(index);
        let attached = self.proto.attach(request, completion);
        debug_assert!(attached.is_ok(), "the request is active");
    }
}

/// The end of a put from a copy: reports a fault of the driver.
fn checked(keep: &mut (dyn std::any::Any + Send), status: Status) -> Status {
    let fault = keep
        .downcast_ref::<(Driven, Vec<u8>)>()
        .and_then(|(data, _)| data.fault());
    match fault {
        Some(_) => Status {
            error: Some(ErrorKind::UnsupportedMemory),
            ..status
        },
        None => status,
    }
}

/// The end of a get into a copy: stores the copy into the driven memory.
fn stored(keep: &mut (dyn std::any::Any + Send), status: Status) -> Status {
    if status.error.is_none()
        && let Some((data, host)) = keep.downcast_ref::<(Driven, Vec<u8>)>()
    {
        // SAFETY: the memory is the operation's until its request completes; the copy has as many
        // bytes.
        unsafe { data.write(0, host.as_ptr(), host.len(), MsgRep::Native) };
    }
    checked(keep, status)
}

impl Proto {
    /// Serves a peer's packet about a region of driven memory.
    pub(in crate::engine) fn serve_driven(
        &mut self,
        peer: u32,
        header: &Header,
        (region, offset): (u32, usize),
        data: &Driven,
        (len, payload): (usize, Payload<'_>),
    ) {
        match header.flags {
            step::PUT => {
                let bytes = payload.after(crate::engine::one_sided::PREFIX);
                // SAFETY: the range is inside of a live region.
                unsafe { data.write(offset, bytes.as_ptr(), len, MsgRep::Native) };
                if data.fault().is_some() {
                    self.refuse_access(peer, header.cookie);
                }
            }
            step::GET => {
                let part = offset..offset + len;
                let loader = Loader::new(data, &self.flows.fetches, part.clone());
                self.streams.push_back(Stream {
                    peer,
                    header: one_sided(step::GET_DATA, header.cookie, 0),
                    source: StreamSource::Region { region, offset: 0 },
                    piece: self.limits.piece_of(len),
                    position: part.start,
                    end: part.end,
                    loader: Some(Box::new(loader)),
                });
                self.work = true;
            }
            // Neither a processor nor a driver can do an atomic operation there.
            _ => self.refuse_access(peer, header.cookie),
        }
    }

    /// Handles the freeing of a region: the streams out of it end, and the gets that they serve
    /// fail. (A stream names only the region's slot, which the next region may use.)
    pub(in crate::engine) fn end_streams_of(&mut self, index: u32) {
        let of_it = |stream: &Stream| matches!(stream.source, StreamSource::Region { region, .. } if region == index);
        if !self.streams.iter().any(of_it) {
            return;
        }
        let all = std::mem::take(&mut self.streams).into_iter();
        let (ended, others): (Vec<_>, Vec<_>) = all.partition(of_it);
        self.streams = others.into();
        for stream in ended {
            self.refuse_access(stream.peer, stream.header.cookie);
        }
    }
}

/// Copies from driven memory to host memory. If the driver fails, an error is returned.
///
/// # Safety
/// As for `Driven::fetch`.
pub(in crate::engine) unsafe fn read(
    data: &Driven,
    position: usize,
    target: *mut u8,
    len: usize,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let _ = unsafe { data.fetch(position, target, len) };
    failed(data)
}

/// Copies from host memory to driven memory. If the driver fails, an error is returned.
///
/// # Safety
/// As for `Driven::write`.
pub(in crate::engine) unsafe fn written(
    data: &Driven,
    position: usize,
    source: *const u8,
    len: usize,
) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { data.write(position, source, len, MsgRep::Native) };
    failed(data)
}

fn failed(data: &Driven) -> Result<()> {
    match data.fault() {
        None => Ok(()),
        Some(why) => {
            let what = format!(
                "{} bytes of a device could not be copied: {why}",
                data.bytes
            );
            Err(Error::new(ErrorKind::UnsupportedMemory, what)
                .remedy("look whether the device and its driver are in order"))
        }
    }
}
