//! The routines of the paper, under their names and safe: every argument is checked.
//!
//! [`Adi`] is implemented for every device. `docs/adi.md` says for each routine of the paper what
//! has become of it; the example programs of the paper's section 7 are written on nothing else.

use portolan_datatype::{Layout, MsgRep};

use super::args::{Check, SendArgs, SendMode};
use super::{Device, defaults};
use crate::buffer::{ContigBuf, TypedBuf};
use crate::error::{Error, ErrorKind, Result};
use crate::matching::Pattern;
use crate::request::Request;
use crate::status::Status;

/// The paper's routines on any device. Buffers are bytes; the facade has the typed interface.
pub trait Adi: Device + Sized {
    /// `MPID_SendContig`, `SsendContig`, `RsendContig` and `BsendContig`, by the mode in `args`.
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank), [`InvalidTag`](ErrorKind::InvalidTag),
    /// [`InvalidCommunicator`](ErrorKind::InvalidCommunicator), and those of
    /// [`Device::send_contig_unchecked`].
    fn send_contig(&self, args: &SendArgs, buf: &[u8]) -> Result<()> {
        check_send(self, args)?;
        // SAFETY: the arguments were checked, and the slice lives for the call.
        unsafe { self.send_contig_unchecked(args, ContigBuf::from_bytes(buf)) }
    }

    /// `MPID_RecvContig`.
    ///
    /// # Errors
    /// As [`send_contig`](Self::send_contig), and those of [`Device::recv_contig_unchecked`].
    fn recv_contig(&self, from: &Pattern, buf: &mut [u8]) -> Result<Status> {
        check_receive(self, from)?;
        // SAFETY: the arguments were checked, and the slice lives for the call.
        unsafe { self.recv_contig_unchecked(from, ContigBuf::from_bytes_mut(buf)) }
    }

    /// `MPID_IsendContig`, `IssendContig` and `IrsendContig`, by the mode in `args`.
    ///
    /// # Errors
    /// As [`send_contig`](Self::send_contig); [`InvalidArgument`](ErrorKind::InvalidArgument) in
    /// buffered mode, which has no nonblocking form (paper, section 3.4).
    ///
    /// # Safety
    /// `len` bytes at `buf` must stay readable and unchanged until the request completes.
    unsafe fn isend_contig(&self, args: &SendArgs, buf: *const u8, len: usize) -> Result<Request> {
        check_send(self, args)?;
        check_nonblocking(self, args)?;
        check_pointer(self, buf, len)?;
        let buf = ContigBuf {
            ptr: buf.cast_mut(),
            len,
            ..ContigBuf::from_bytes(&[])
        };
        // SAFETY: the arguments were checked; the caller vouches for the buffer.
        unsafe { self.isend_contig_unchecked(args, buf) }
    }

    /// `MPID_IrecvContig`.
    ///
    /// # Errors
    /// As [`recv_contig`](Self::recv_contig).
    ///
    /// # Safety
    /// `len` bytes at `buf` must stay writable and unread until the request completes.
    unsafe fn irecv_contig(&self, from: &Pattern, buf: *mut u8, len: usize) -> Result<Request> {
        check_receive(self, from)?;
        check_pointer(self, buf, len)?;
        let buf = ContigBuf {
            ptr: buf,
            len,
            ..ContigBuf::from_bytes(&[])
        };
        // SAFETY: the arguments were checked; the caller vouches for the buffer.
        unsafe { self.irecv_contig_unchecked(from, buf) }
    }

    /// `MPID_SendDatatype` and its modes: `count` items of `layout`, counted from byte `origin` of
    /// `base`.
    ///
    /// # Errors
    /// As [`send_contig`](Self::send_contig); [`InvalidBuffer`](ErrorKind::InvalidBuffer) if the
    /// layout reaches outside of `base`.
    fn send_datatype(
        &self,
        args: &SendArgs,
        base: &[u8],
        origin: usize,
        count: usize,
        layout: &Layout,
    ) -> Result<()> {
        check_send(self, args)?;
        check_span(self, base.len(), origin, count, layout)?;
        let ptr = base.as_ptr().wrapping_add(origin).cast_mut();
        let buf = TypedBuf {
            ptr,
            count,
            layout,
            memory: Default::default(),
        };
        // SAFETY: the layout stays inside of the slice, which lives for the call.
        unsafe { self.send_datatype_unchecked(args, buf) }
    }

    /// `MPID_RecvDatatype`.
    ///
    /// # Errors
    /// As [`send_datatype`](Self::send_datatype) and [`recv_contig`](Self::recv_contig).
    fn recv_datatype(
        &self,
        from: &Pattern,
        base: &mut [u8],
        origin: usize,
        count: usize,
        layout: &Layout,
    ) -> Result<Status> {
        check_receive(self, from)?;
        check_span(self, base.len(), origin, count, layout)?;
        let ptr = base.as_mut_ptr().wrapping_add(origin);
        let buf = TypedBuf {
            ptr,
            count,
            layout,
            memory: Default::default(),
        };
        // SAFETY: the layout stays inside of the slice, which lives for the call.
        unsafe { self.recv_datatype_unchecked(from, buf) }
    }

    /// `MPID_IsendDatatype`, `IssendDatatype` and `IrsendDatatype`, by the mode in `args`.
    ///
    /// # Errors
    /// As [`isend_contig`](Self::isend_contig).
    ///
    /// # Safety
    /// Every byte that the layout covers must stay readable and unchanged until the request
    /// completes.
    unsafe fn isend_datatype(&self, args: &SendArgs, buf: TypedBuf<'_>) -> Result<Request> {
        check_send(self, args)?;
        check_nonblocking(self, args)?;
        // SAFETY: the arguments were checked; the caller vouches for the buffer.
        unsafe { self.isend_datatype_unchecked(args, buf) }
    }

    /// `MPID_IrecvDatatype`.
    ///
    /// # Errors
    /// As [`irecv_contig`](Self::irecv_contig).
    ///
    /// # Safety
    /// Every byte that the layout covers must stay writable and unread until the request completes.
    unsafe fn irecv_datatype(&self, from: &Pattern, buf: TypedBuf<'_>) -> Result<Request> {
        check_receive(self, from)?;
        // SAFETY: the arguments were checked; the caller vouches for the buffer.
        unsafe { self.irecv_datatype_unchecked(from, buf) }
    }

    /// `MPID_Probe`.
    ///
    /// # Errors
    /// As [`recv_contig`](Self::recv_contig).
    fn probe(&self, from: &Pattern) -> Result<Status> {
        check_receive(self, from)?;
        self.probe_unchecked(from)
    }

    /// `MPID_Iprobe`.
    ///
    /// # Errors
    /// As [`recv_contig`](Self::recv_contig).
    fn iprobe(&self, from: &Pattern) -> Result<Option<Status>> {
        check_receive(self, from)?;
        self.iprobe_unchecked(from)
    }

    /// Waits for all requests, in whatever order they complete (`MPI_Waitall`). Each has its own
    /// outcome, so an error of one does not hide the outcomes of the others.
    fn wait_all(&self, requests: &[Request]) -> Vec<Result<Status>> {
        requests.iter().map(|&request| self.wait(request)).collect()
    }

    /// Waits until one request is complete; returns which one, and its outcome (`MPI_Waitany`).
    /// `None` if there are no requests, or only null ones.
    fn wait_any(&self, requests: &[Request]) -> Option<(usize, Result<Status>)> {
        loop {
            // The epoch is read before the tests: a completion between them and the check below
            // changes it, so that the check returns at once.
            let epoch = self.completion_epoch();
            if let Some(found) = self.test_any(requests) {
                return Some(found);
            }
            if requests.iter().all(|request| request.is_null()) {
                return None;
            }
            if let Err(error) = self.device_check(Check::Blocking(epoch)) {
                return Some((0, Err(error)));
            }
        }
    }

    /// One request that is complete, if there is one, and its outcome (`MPI_Testany`).
    fn test_any(&self, requests: &[Request]) -> Option<(usize, Result<Status>)> {
        let first = |device: &Self| {
            requests
                .iter()
                .position(|&request| !request.is_null() && device.is_complete(request))
        };
        let found = first(self).or_else(|| {
            self.device_check(Check::NonBlocking).ok()?;
            first(self)
        })?;
        Some((found, self.wait(requests[found])))
    }

    /// Waits until some requests are complete; returns which ones, and their outcomes
    /// (`MPI_Waitsome`). Empty if there are no requests, or only null ones.
    fn wait_some(&self, requests: &[Request]) -> Vec<(usize, Result<Status>)> {
        loop {
            let epoch = self.completion_epoch();
            let done = self.test_some(requests);
            if !done.is_empty() || requests.iter().all(|request| request.is_null()) {
                return done;
            }
            if let Err(error) = self.device_check(Check::Blocking(epoch)) {
                return vec![(0, Err(error))];
            }
        }
    }

    /// The requests that are complete, and their outcomes (`MPI_Testsome`).
    fn test_some(&self, requests: &[Request]) -> Vec<(usize, Result<Status>)> {
        let mut done = Vec::new();
        if self.device_check(Check::NonBlocking).is_err() {
            return done;
        }
        for (at, &request) in requests.iter().enumerate() {
            if !request.is_null() && self.is_complete(request) {
                done.push((at, self.wait(request)));
            }
        }
        done
    }

    /// `MPID_Pack_size`: bytes that `count` items need, packed in `rep`.
    ///
    /// # Errors
    /// [`InvalidLayout`](ErrorKind::InvalidLayout) if the size overflows.
    fn pack_size(&self, count: usize, layout: &Layout, rep: MsgRep) -> Result<usize> {
        Ok(layout.packed_size(count, rep)?)
    }

    /// `MPID_Pack`: packs `count` items of `layout`, counted from byte `origin` of `base`, into
    /// `packed` at `*position`, which moves behind them.
    ///
    /// # Errors
    /// [`Truncated`](ErrorKind::Truncated) if they do not fit (nothing is written then),
    /// [`InvalidBuffer`](ErrorKind::InvalidBuffer) if the layout reaches outside of `base`.
    fn pack(
        &self,
        base: &[u8],
        origin: usize,
        count: usize,
        layout: &Layout,
        rep: MsgRep,
        packed: &mut [u8],
        position: &mut usize,
    ) -> Result<()> {
        check_span(self, base.len(), origin, count, layout)?;
        let len = layout.packed_size(count, rep)?;
        let room = packed.len().checked_sub(*position);
        if room.is_none_or(|room| room < len) {
            return Err(defaults::outside("pack", *position, len, packed.len())
                .on_rank(self.attributes().world_rank));
        }
        let source = base.as_ptr().wrapping_add(origin);
        let target = packed[*position..].as_mut_ptr();
        // SAFETY: the layout stays inside of `base`, and `packed` has `len` bytes at the position.
        unsafe { layout.pack_range(source, count, 0, target, len, rep) };
        *position += len;
        Ok(())
    }

    /// `MPID_Unpack`: unpacks `count` items of `layout` from `packed` at `*position`, which moves
    /// behind them, counted from byte `origin` of `base`. Returns the bytes unpacked.
    ///
    /// # Errors
    /// [`Truncated`](ErrorKind::Truncated) if `packed` ends before them (nothing is unpacked then),
    /// [`InvalidBuffer`](ErrorKind::InvalidBuffer) if the layout reaches outside of `base`.
    fn unpack(
        &self,
        packed: &[u8],
        position: &mut usize,
        rep: MsgRep,
        base: &mut [u8],
        origin: usize,
        count: usize,
        layout: &Layout,
    ) -> Result<usize> {
        check_span(self, base.len(), origin, count, layout)?;
        let len = layout.packed_size(count, rep)?;
        let room = packed.len().checked_sub(*position);
        if room.is_none_or(|room| room < len) {
            return Err(defaults::outside("unpack", *position, len, packed.len())
                .on_rank(self.attributes().world_rank));
        }
        let target = base.as_mut_ptr().wrapping_add(origin);
        let source = packed[*position..].as_ptr();
        // SAFETY: the layout stays inside of `base`, and `packed` has `len` bytes at the position.
        unsafe { layout.unpack_range(target, count, 0, source, len, rep) };
        *position += len;
        Ok(len)
    }
}

impl<D: Device> Adi for D {}

fn error<D: Device>(device: &D, kind: ErrorKind, what: String, remedy: &str) -> Error {
    Error::new(kind, what)
        .remedy(remedy)
        .on_rank(device.attributes().world_rank)
}

fn check_send<D: Device>(device: &D, args: &SendArgs) -> Result<()> {
    let size = device.attributes().world_size;
    let dest = args.dest.index();
    if dest >= size {
        return Err(error(
            device,
            ErrorKind::InvalidRank,
            format!("there is no world rank {dest} in a job of {size}"),
            &format!("use a rank from 0 to {}", size - 1),
        ));
    }
    check_tag(device, args.envelope.tag)?;
    check_context(device, args.envelope.context)
}

fn check_receive<D: Device>(device: &D, from: &Pattern) -> Result<()> {
    check_context(device, from.context)?;
    from.tag.map_or(Ok(()), |tag| check_tag(device, tag))
}

fn check_tag<D: Device>(device: &D, tag: u32) -> Result<()> {
    let most = device.attributes().tag_ub;
    if tag <= most {
        return Ok(());
    }
    let remedy = format!("use a tag from 0 to {most} (TAG_UB)");
    Err(error(
        device,
        ErrorKind::InvalidTag,
        format!("tag {tag} is out of range"),
        &remedy,
    ))
}

fn check_context<D: Device>(device: &D, context: u32) -> Result<()> {
    let most = device.attributes().max_context_id;
    if context <= most {
        return Ok(());
    }
    let what = format!("context id {context} is out of range");
    let remedy = format!("use an id from 0 to {most} (MAX_CONTEXT_ID)");
    Err(error(device, ErrorKind::InvalidCommunicator, what, &remedy))
}

fn check_nonblocking<D: Device>(device: &D, args: &SendArgs) -> Result<()> {
    if args.mode != SendMode::Buffered {
        return Ok(());
    }
    let what = "there is no nonblocking buffered send".to_owned();
    let remedy = "copy the message and send the copy nonblocking in standard mode";
    Err(error(device, ErrorKind::InvalidArgument, what, remedy))
}

fn check_pointer<D: Device>(device: &D, buf: *const u8, len: usize) -> Result<()> {
    if !buf.is_null() || len == 0 {
        return Ok(());
    }
    let what = format!("a null pointer was given for {len} bytes");
    Err(error(
        device,
        ErrorKind::InvalidBuffer,
        what,
        "give the address of the buffer",
    ))
}

/// Checks that `count` items, counted from byte `origin`, stay inside of `len` bytes.
fn check_span<D: Device>(
    device: &D,
    len: usize,
    origin: usize,
    count: usize,
    layout: &Layout,
) -> Result<()> {
    let span = layout.span(count)?;
    let inside = isize::try_from(origin).is_ok_and(|origin| {
        let first = origin.checked_add(span.start);
        let end = origin.checked_add(span.end);
        span.is_empty()
            || first.is_some_and(|first| first >= 0) && end.is_some_and(|end| end as usize <= len)
    });
    if inside {
        return Ok(());
    }
    let what = format!(
        "{count} items of the layout reach from byte {} to {} around byte {origin} of a buffer of \
         {len} bytes",
        span.start, span.end
    );
    Err(error(
        device,
        ErrorKind::InvalidBuffer,
        what,
        "give a buffer that holds every item",
    ))
}
