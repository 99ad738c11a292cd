//! The first example program of the paper on the abstract device interface (section 7): an exchange
//! of messages with blocking, contiguous operations.
//!
//! It uses the device alone, without a communicator: local ranks are world ranks, and the program
//! supplies the context. Unlike the paper's program, it checks the data. Ranks 0 and 1 exchange
//! messages; the others only watch.
//!
//! ```text
//! portolan run -n 2 -- target/release/adi_blocking
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use portolan::{Error, ErrorKind, Result};
use portolan_core::matching::{Envelope, Pattern};
use portolan_core::{Adi, Device, ProcId, SendArgs};

const ROUND_TRIPS: usize = 10_000;
const LEN: usize = 256;
const CONTEXT: u32 = 0;
const TAG: u32 = 0;

fn main() -> Result<()> {
    let device = portolan::Builder::new().device()?; // MPID_Init
    if let Err(error) = round_trips(&device) {
        device.abort(1, Some("adi_blocking"), Some(&error.to_string())); // MPID_Abort
    }
    device.end() // MPID_End
}

fn round_trips(device: &impl Device) -> Result<()> {
    let (me, size) = (
        device.attributes().world_rank,
        device.attributes().world_size,
    );
    if size < 2 {
        let error = Error::new(ErrorKind::InvalidArgument, format!("a job of {size} rank"));
        return Err(error.remedy("start 2 ranks or more").on_rank(me));
    }
    if me > 1 {
        return Ok(());
    }
    let other = 1 - me;
    let to = SendArgs::new(ProcId::new(other), CONTEXT, me, TAG);
    let from = Pattern::exact(&Envelope {
        context: CONTEXT,
        source: other,
        tag: TAG,
    });
    let mut buf = [0; LEN];
    for i in 0..ROUND_TRIPS {
        if me == 0 {
            let sent = [i as u8; LEN];
            device.send_contig(&to, &sent)?; // MPID_SendContig
            device.recv_contig(&from, &mut buf)?; // MPID_RecvContig
            assert_eq!(buf, sent.map(|byte| !byte), "round trip {i}");
        } else {
            let status = device.recv_contig(&from, &mut buf)?;
            assert_eq!(
                (status.source, status.bytes),
                (0, LEN as u64),
                "round trip {i}"
            );
            device.send_contig(&to, &buf.map(|byte| !byte))?;
        }
    }
    if me == 0 {
        println!("{ROUND_TRIPS} round trips of {LEN} bytes, blocking: all data as sent");
    }
    Ok(())
}
