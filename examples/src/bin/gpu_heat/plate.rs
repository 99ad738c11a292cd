//! A rank's rows of the plate, in the memory of its GPU.

use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, LaunchConfig,
    PushKernelArg,
};
use cudarc::nvrtc::Ptx;
use portolan::Comm;
use portolan::device_memory::{Slice, SliceMut};

use crate::Outcome;

/// What the GPU runs.
const KERNELS: &str = include_str!("kernels.ptx");
/// Threads of a block: across, down.
const BLOCK: (u32, u32) = (64, 4);
/// The tag of an edge on its way to a neighbour.
const EDGE: u32 = 1;

/// Rows of the plate, with a ring of further points around them.
///
/// The first and the last row of the ring are copies of the neighbours' rows of the previous step
/// (*ghost rows*). At the rim of the plate the ring is 0 and stays so.
#[derive(Debug)]
pub(crate) struct Plate {
    stream: Arc<CudaStream>,
    step: CudaFunction,
    change: CudaFunction,
    rows: u32,
    columns: u32,
    /// `rows + 2` rows of `columns + 2` values.
    now: CudaSlice<f64>,
    /// The same, one step earlier; the next step writes here.
    before: CudaSlice<f64>,
    /// The bits of the largest change.
    largest: CudaSlice<u64>,
}

impl Plate {
    /// Rows on the GPU of this context, filled from `start`, a function of row and column.
    pub(crate) fn new(
        context: &Arc<CudaContext>,
        [rows, columns]: [u32; 2],
        start: impl Fn(usize, usize) -> f64,
    ) -> Outcome<Self> {
        let module = context.load_module(Ptx::from_src(KERNELS))?;
        let stream = context.default_stream();
        let (inner, stride) = (columns as usize, columns as usize + 2);
        let mut values = vec![0.0; (rows as usize + 2) * stride];
        for (row, values) in values[stride..]
            .chunks_exact_mut(stride)
            .enumerate()
            .take(rows as usize)
        {
            for (column, value) in values[1..=inner].iter_mut().enumerate() {
                *value = start(row, column);
            }
        }
        let memory =
            |error| format!("{error}: the GPU has no memory for the rows; take a smaller --size");
        Ok(Self {
            step: module.load_function("heat_step")?,
            change: module.load_function("heat_change")?,
            rows,
            columns,
            now: stream.clone_htod(&values).map_err(memory)?,
            before: stream.alloc_zeros(values.len()).map_err(memory)?,
            largest: stream.alloc_zeros(1)?,
            stream,
        })
    }

    /// The name of the GPU.
    pub(crate) fn gpu(&self) -> Outcome<String> {
        Ok(self.stream.context().name()?)
    }

    /// Fills the ghost rows: each neighbour gets this rank's row at its side, straight from the
    /// GPU's memory, and this rank gets the neighbour's.
    pub(crate) fn exchange(&mut self, comm: &Comm) -> Outcome<()> {
        let (rank, ranks) = (comm.rank(), comm.size());
        let (above, below) = (rank.checked_sub(1), (rank + 1 < ranks).then_some(rank + 1));
        let (rows, stride) = (self.rows as usize, self.columns as usize + 2);
        // The kernel that computes the rows must have ended before Portolan reads them.
        self.stream.synchronize()?;
        let (address, _in_use) = self.now.device_ptr_mut(&self.stream);
        let at = |row: usize| address + (row * stride * size_of::<f64>()) as u64;
        // For each side: the neighbour, the row that it needs, and the row that it fills.
        let mut sides = [(above, 1, 0), (below, rows, rows + 1)];
        if rank.is_multiple_of(2) {
            // Ranks meet in pairs: 0 and 1, 2 and 3, and so on, then 1 and 2, and so on. If all
            // began with the rank above, each would wait for all the ranks above it.
            sides.reverse();
        }
        for (neighbour, edge, ghosts) in sides {
            let Some(neighbour) = neighbour else {
                continue;
            };
            // SAFETY: both are rows of `now`, which is borrowed until after the call, and they are
            // different rows. The stream was synchronized, and no kernel is launched meanwhile.
            let (edge, mut ghosts) = unsafe {
                (
                    Slice::<f64>::cuda(at(edge), stride),
                    SliceMut::<f64>::cuda(at(ghosts), stride),
                )
            };
            comm.sendrecv_device(&edge, neighbour, EDGE, &mut ghosts, neighbour, EDGE)?;
        }
        Ok(())
    }

    /// Starts a time step on the GPU, and does not wait for it.
    pub(crate) fn step(&mut self, ratio: f64) -> Outcome<()> {
        let config = LaunchConfig {
            grid_dim: (
                self.columns.div_ceil(BLOCK.0),
                self.rows.div_ceil(BLOCK.1),
                1,
            ),
            block_dim: (BLOCK.0, BLOCK.1, 1),
            shared_mem_bytes: 0,
        };
        let mut launch = self.stream.launch_builder(&self.step);
        launch.arg(&self.now).arg(&mut self.before);
        launch.arg(&self.rows).arg(&self.columns).arg(&ratio);
        // SAFETY: the arguments of `heat_step`, in its order. Both grids have `rows + 2` rows of
        // `columns + 2` values, and the kernel accesses no others.
        unsafe { launch.launch(config) }?;
        std::mem::swap(&mut self.now, &mut self.before);
        Ok(())
    }

    /// The largest change of a value of these rows in the last step.
    pub(crate) fn change(&mut self) -> Outcome<f64> {
        let threads = BLOCK.0 * BLOCK.1;
        let config = LaunchConfig {
            grid_dim: (self.columns.div_ceil(threads), 1, 1),
            block_dim: (threads, 1, 1),
            shared_mem_bytes: 0,
        };
        self.stream.memset_zeros(&mut self.largest)?;
        let mut launch = self.stream.launch_builder(&self.change);
        launch.arg(&self.now).arg(&self.before);
        launch.arg(&self.rows).arg(&self.columns);
        launch.arg(&mut self.largest);
        // SAFETY: the arguments of `heat_change`, in its order; the grids are as for a step, and
        // there is room for one number.
        unsafe { launch.launch(config) }?;
        let bits = self.stream.clone_dtoh(&self.largest)?;
        self.stream.synchronize()?;
        Ok(f64::from_bits(bits[0]))
    }

    /// Sends the rows, without the ghost rows, to a rank, which may receive them anywhere.
    pub(crate) fn send(&self, comm: &Comm, dest: u32, tag: u32) -> Outcome<()> {
        let (rows, stride) = (self.rows as usize, self.columns as usize + 2);
        self.stream.synchronize()?;
        let (address, _in_use) = self.now.device_ptr(&self.stream);
        let first = address + (stride * size_of::<f64>()) as u64;
        // SAFETY: rows of `now`, which is borrowed until after the call. The stream was
        // synchronized, and no kernel is launched meanwhile.
        let values = unsafe { Slice::<f64>::cuda(first, rows * stride) };
        comm.send_device(&values, dest, tag)?;
        Ok(())
    }
}
