//! Buffers in the memory of CUDA GPUs, as the OSU suite has them with `-d cuda D D`.

mod copies;
mod driver;

use std::sync::Arc;

use portolan::device_memory::{Cuda, MemoryKind, Slice, SliceMut};
use portolan::{Comm, Datatype, Device, Error, ErrorKind, Layout, Level, Result, SplitBy};
use portolan_core::matching::Pattern;
use portolan_core::staging::Staging;
use portolan_core::{Request, SendArgs, TypedBuf};

use crate::Role;
use crate::window::{Part, Window};
use driver::Memory;

pub use copies::{Copies, copies};

/// The smallest distance from one buffer to the next.
const PAGE: usize = 4096;

/// Buffers to send from, and as many to receive into, on the GPU of a rank. Each begins at a page
/// boundary.
pub(crate) struct GpuBuffers {
    memory: Memory,
    count: usize,
    bytes: usize,
    /// The distance from one buffer to the next.
    stride: usize,
    /// For windows, whose messages are sent and received by the device's calls.
    staging: Staging,
    layout: Layout,
}

impl GpuBuffers {
    /// `count` buffers of `bytes` bytes in each direction, or one if `count` is zero. The ranks of
    /// a node take its GPUs in turn. Send buffers are filled with `fill`, receive buffers with
    /// zeros. Collective.
    ///
    /// # Errors
    /// [`UnsupportedMemory`](ErrorKind::UnsupportedMemory) if there is no driver or no GPU,
    /// [`Exhausted`](ErrorKind::Exhausted) if there is no memory for them.
    pub(crate) fn new<L: Level, D: Device>(
        comm: &Comm<L, D>,
        count: u32,
        bytes: usize,
        fill: u8,
    ) -> Result<Self> {
        let on_node = comm.split_by(SplitBy::Node, 0)?.rank();
        let count = count.max(1) as usize;
        let stride = bytes.max(1).checked_next_multiple_of(PAGE);
        let area = stride.and_then(|stride| stride.checked_mul(count));
        let total = area.and_then(|area| area.checked_mul(2));
        let (Some(stride), Some(area), Some(total)) = (stride, area, total) else {
            let what = format!("no memory for {} buffers of {bytes} bytes", 2 * count);
            return Err(Error::new(ErrorKind::Exhausted, what).remedy("measure smaller messages"));
        };
        let memory = Memory::new(on_node, total)?;
        memory.fill(0, area, fill)?;
        let cuda = Cuda::open().map(|cuda| Arc::new(cuda) as _);
        Ok(Self {
            memory,
            count,
            bytes,
            stride,
            staging: Staging::new(cuda.into_iter().collect()),
            layout: u8::layout(),
        })
    }

    /// The first send buffer and the first receive buffer.
    fn both(&mut self) -> (Slice<'_, u8>, SliceMut<'_, u8>) {
        let second = self.count * self.stride;
        // SAFETY: both are within the memory, which is borrowed for the life of the results, and do
        // not overlap. What filled them has ended.
        unsafe {
            (
                Slice::cuda(self.memory.at(0), self.bytes),
                SliceMut::cuda(self.memory.at(second), self.bytes),
            )
        }
    }

    /// A window of messages between all send buffers and all receive buffers.
    pub(crate) fn window<'a, L: Level, D: Device>(
        &'a mut self,
        comm: &'a Comm<L, D>,
        messages: u32,
    ) -> Window<'a, L, D, OnGpu<'a>> {
        let this = &*self;
        let part = |at: usize| OnGpu {
            staging: &this.staging,
            buf: TypedBuf {
                ptr: std::ptr::with_exposed_provenance_mut(
                    this.memory.at(at * this.stride) as usize
                ),
                count: this.bytes,
                layout: &this.layout,
                memory: MemoryKind::Cuda,
            },
        };
        let send = (0..this.count).map(part).collect();
        let receive = (this.count..2 * this.count).map(part).collect();
        // SAFETY: the buffers are borrowed exclusively for the life of the window, and are memory
        // that the processor does not access.
        unsafe { Window::of_parts(comm, messages, send, receive) }
    }

    /// Copies what has arrived in the first receive buffer to the host.
    #[cfg(test)]
    fn received(&self) -> Vec<u8> {
        use portolan::device_memory::Accelerator as _;
        let cuda = Cuda::open().expect("the driver of the buffers");
        let mut host = vec![0; self.bytes];
        let address = self.memory.at(self.count * self.stride) as usize;
        let source = std::ptr::with_exposed_provenance(address);
        // SAFETY: a buffer of as many bytes, which no operation uses, and as many bytes of room.
        unsafe { cuda.fetch(source, host.as_mut_ptr(), self.bytes) }.expect("a copy");
        host
    }
}

/// A buffer on a GPU, for the messages of a window.
#[derive(Clone, Copy)]
pub(crate) struct OnGpu<'a> {
    staging: &'a Staging,
    buf: TypedBuf<'a>,
}

impl Part for OnGpu<'_> {
    #[inline]
    unsafe fn isend<D: Device>(self, device: &D, args: &SendArgs) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.staging.isend(device, args, self.buf) }
    }

    #[inline]
    unsafe fn irecv<D: Device>(self, device: &D, from: &Pattern) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.staging.irecv(device, from, self.buf) }
    }
}

/// Ping-pong, as [`ping_pong`](crate::pattern::ping_pong) of the host's memory.
pub(crate) fn ping_pong<L: Level, D: Device>(
    comm: &Comm<L, D>,
    role: Role,
    rounds: u64,
    tag: u32,
    buffers: &mut GpuBuffers,
) -> Result<()> {
    let (send, mut receive) = buffers.both();
    match role {
        Role::Starts { peer } => {
            for _ in 0..rounds {
                comm.send_device(&send, peer, tag)?;
                comm.recv_device(&mut receive, peer, tag)?;
            }
        }
        Role::Answers { peer } => {
            for _ in 0..rounds {
                comm.recv_device(&mut receive, peer, tag)?;
                comm.send_device(&send, peer, tag)?;
            }
        }
        Role::Rests => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests;
