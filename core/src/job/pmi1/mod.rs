//! PMI version 1: how a process and its launcher talk while a job starts and ends.
//!
//! The protocol is MPICH's "simple PMI": lines of `name=value` words over a stream, `PMI_FD` in the
//! child's environment. Hydra, Slurm (`--mpi=pmi2`, which answers version 1 too), Flux and
//! `portolan run` serve it. One request, one answer; no request is sent before the last is
//! answered.
//!
//! ```text
//! rank → launcher                                  launcher → rank
//! cmd=init pmi_version=1 pmi_subversion=1          cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
//! cmd=get_maxes                                    cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024
//! cmd=get_my_kvsname                               cmd=my_kvsname kvsname=kvs_1
//! cmd=put kvsname=kvs_1 key=a value=b              cmd=put_result rc=0 msg=success
//! cmd=barrier_in                                   cmd=barrier_out
//! cmd=get kvsname=kvs_1 key=a                      cmd=get_result rc=0 msg=success value=b
//! cmd=finalize                                     cmd=finalize_ack
//! cmd=abort exitcode=3                             (none: the job is ended)
//! ```
//!
//! `portolan run` adds `reports=1` to its answer to `init`, and then takes lines
//! `cmd=report what=NAME text=TEXT`, which are not answered
//! ([`Bootstrap::report`](super::Bootstrap)). A rank that it has started may add `reason=TEXT` to
//! `abort`, and `failed=RANK` if that rank's failure is the reason.
//!
//! [`Message`] is one line, [`Lines`] cuts a stream into lines; the server in the launcher uses
//! both. Neither does any input or output, and neither panics on any bytes.

mod client;
#[cfg(test)]
mod client_tests;
mod connect;
mod keys;
mod lines;
mod message;

pub(super) use connect::connect;
pub(super) use keys::check_key;
pub use lines::{Lines, MAX_LINE};
pub use message::{Message, WireError};
