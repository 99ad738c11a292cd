//! Communication patterns on any device. They know nothing about the machine.

use portolan_core::device::{ProcId, SendArgs};
use portolan_core::matching::Pattern;
use portolan_core::{Adi, Result};

/// Bytes of one face in the halo exchange.
pub(crate) const FACE: usize = 1024;

/// One rank of a job, with everything that patterns need.
pub(crate) struct Rank<'a, D> {
    pub(crate) device: &'a D,
    pub(crate) me: u32,
    pub(crate) n: u32,
}

impl<D: Adi> Rank<'_, D> {
    /// Sends `out` to one rank and receives as many bytes as `place` has from another.
    fn exchange(&self, to: u32, out: &[u8], from: u32, place: &mut [u8], tag: u32) -> Result<()> {
        let pattern = Pattern {
            context: 0,
            source: Some(from),
            tag: Some(tag),
        };
        // SAFETY: `place` is borrowed for longer than the request lives: it is waited for below.
        let incoming = unsafe {
            self.device
                .irecv_contig(&pattern, place.as_mut_ptr(), place.len())?
        };
        let sent = self.send(to, out, tag);
        let received = self.device.wait(incoming);
        sent?;
        received.map(drop)
    }

    fn send(&self, to: u32, out: &[u8], tag: u32) -> Result<()> {
        let args = SendArgs::new(ProcId::new(to), 0, self.me, tag);
        self.device.send_contig(&args, out)
    }

    /// A dissemination barrier: each rank tells ever more distant ranks that it is here.
    pub(crate) fn dissemination_barrier(&self) -> Result<()> {
        for round in 0..self.n.next_power_of_two().trailing_zeros() {
            let step = 1 << round;
            let (to, from) = (
                (self.me + step) % self.n,
                (self.me + self.n - step) % self.n,
            );
            self.exchange(to, &[1; 8], from, &mut [0; 8], round)?;
        }
        Ok(())
    }

    /// Sums a number over all ranks, whose count is a power of two.
    pub(crate) fn allreduce(&self, mine: u64) -> Result<u64> {
        let mut sum = mine;
        for round in 0..self.n.trailing_zeros() {
            let other = self.me ^ 1 << round;
            let mut theirs = [0; 8];
            self.exchange(other, &sum.to_le_bytes(), other, &mut theirs, 100 + round)?;
            sum += u64::from_le_bytes(theirs);
        }
        Ok(sum)
    }

    /// Each rank sends 8 bytes to every other rank, in steps in which all ranks talk in pairs. The
    /// number of ranks is a power of two.
    pub(crate) fn pairwise(&self) -> Result<()> {
        for step in 1..self.n {
            let other = self.me ^ step;
            let mut theirs = [0; 8];
            self.exchange(
                other,
                &u64::from(self.me).to_le_bytes(),
                other,
                &mut theirs,
                200,
            )?;
            assert_eq!(u64::from_le_bytes(theirs), u64::from(other));
        }
        Ok(())
    }

    /// Exchanges faces with the six neighbours of a periodic box.
    pub(crate) fn halo(&self) -> Result<()> {
        let sides = sides(self.n);
        let mut weight = 1;
        for (axis, side) in (0..).zip(sides) {
            let place = self.me / weight % side;
            let shifted = |by: u32| self.me - place * weight + (place + by) % side * weight;
            let (up, down) = (shifted(1), shifted(side - 1));
            let mut face = vec![0; FACE];
            if side > 1 {
                self.exchange(up, &[1; FACE], down, &mut face, 300 + axis)?;
                self.exchange(down, &[2; FACE], up, &mut face, 310 + axis)?;
            }
            weight *= side;
        }
        Ok(())
    }
}

/// The sides, as equal as they can be, of a box whose number of cells is a power of two.
fn sides(n: u32) -> [u32; 3] {
    let bits = n.trailing_zeros();
    [bits.div_ceil(3), (bits + 1) / 3, bits / 3].map(|bits| 1 << bits)
}
