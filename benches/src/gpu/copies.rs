//! How fast a GPU's driver copies from and to the host's memory.

use std::ptr;
use std::time::Instant;

use portolan::device_memory::{Accelerator, Cuda};
use portolan::{Error, ErrorKind, Result};

use super::driver::Memory;
use crate::Buffers;

/// Number of measurements, of which the shortest counts.
const TRIALS: u32 = 20;
/// Bytes of the long copies, and how many are put into the GPU's queue at a time.
const LONG: (usize, u32) = (4 << 20, 16);
/// Bytes of the short copies, each of which is waited for.
const SHORT: (usize, u32) = (8, 1);

/// What the first GPU's driver needs for copies from and to locked memory of the host, with no
/// message in between: no message through the host is faster.
#[derive(Clone, Debug, PartialEq)]
pub struct Copies {
    /// The GPU's name.
    pub name: String,
    /// Seconds of a copy of 8 bytes, from its start until it has been waited for: from the GPU, and
    /// to it.
    pub short: [f64; 2],
    /// Bytes of a long copy.
    pub bytes: usize,
    /// Seconds of a long copy while many follow one another: from the GPU, and to it.
    pub long: [f64; 2],
}

/// Measures the first GPU.
///
/// # Errors
/// [`UnsupportedMemory`](ErrorKind::UnsupportedMemory) if there is no driver or no GPU, or the
/// driver fails; [`Exhausted`](ErrorKind::Exhausted) if there is no memory for the copies.
pub fn copies() -> Result<Copies> {
    let gpu = Memory::new(0, LONG.0)?;
    let name = gpu.name()?;
    let host = Buffers::new(LONG.0, 1)?;
    let Some(cuda) = Cuda::open() else {
        return Err(failed("the driver cannot be opened a second time"));
    };
    let mut ends = Ends { cuda, gpu, host };
    match ends.measured() {
        Ok([short, long]) => Ok(Copies {
            name,
            short,
            bytes: LONG.0,
            long,
        }),
        Err(why) => {
            // A copy that has failed may still be under way, so its memory is not freed.
            std::mem::forget(ends);
            Err(failed(&why))
        }
    }
}

fn failed(why: &str) -> Error {
    let what = format!("copies from and to the GPU cannot be measured: {why}");
    Error::new(ErrorKind::UnsupportedMemory, what).remedy("look whether the driver is in order")
}

/// The memory on both sides, and the driver between them.
struct Ends {
    cuda: Cuda,
    gpu: Memory,
    host: Buffers,
}

impl Ends {
    /// Seconds of a short copy and of a long one, each from the GPU and to it. After an error, a
    /// copy may still be under way.
    fn measured(&mut self) -> std::result::Result<[[f64; 2]; 2], String> {
        let gpu: *mut u8 = ptr::with_exposed_provenance_mut(self.gpu.at(0) as usize);
        let host = self.host.both().1.as_mut_ptr();
        // SAFETY: as many bytes of the host, which outlive the lock: an error forgets their owner.
        let lock = unsafe { self.cuda.pin(gpu, host, LONG.0) };
        let lock = lock.ok_or("the host's memory cannot be locked")?;
        let both = |(bytes, count)| {
            // SAFETY: both sides have as many bytes, and no other code uses them until the copies
            // are over.
            let from = shortest(count, || unsafe { self.cuda.start_fetch(gpu, host, bytes) })?;
            // SAFETY: as above.
            let to = shortest(count, || unsafe { self.cuda.start_store(gpu, host, bytes) })?;
            Ok([from, to])
        };
        let figures = both(SHORT).and_then(|short| Ok([short, both(LONG)?]));
        if figures.is_err() {
            // The memory stays locked for the copy that may still be under way.
            std::mem::forget(lock);
        }
        figures
    }
}

type Started = std::result::Result<Option<Box<dyn portolan_core::staging::Copying>>, String>;

/// The shortest time of a copy, if `count` are started one after the other and then waited for.
fn shortest(count: u32, start: impl Fn() -> Started) -> std::result::Result<f64, String> {
    let mut least = f64::INFINITY;
    for _ in 0..TRIALS {
        let mut under_way = Vec::with_capacity(count as usize);
        let begun = Instant::now();
        for _ in 0..count {
            under_way.extend(start()?);
        }
        // The copies are in one stream, which makes them in their order.
        for mut copying in under_way {
            copying.finish()?;
        }
        least = least.min(begun.elapsed().as_secs_f64() / f64::from(count));
    }
    Ok(least)
}
