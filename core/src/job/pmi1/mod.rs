//! PMI version 1: the protocol between a process and its launcher while a job starts and ends.
//!
//! It is MPICH's "simple PMI": lines of `name=value` words over a stream, whose descriptor is
//! `PMI_FD` in the child's environment. Hydra, Slurm (`--mpi=pmi2`, which answers version 1 too),
//! Flux and `portolan run` serve it. Every request has one answer, and a rank sends no request
//! before the last one is answered.
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
//! `portolan run` adds `reports=1` to its answer to `init`. It then accepts lines `cmd=report
//! what=NAME text=TEXT`, and does not answer them ([`Bootstrap::report`](super::Bootstrap)).
//!
//! [`Message`] is one line; [`Lines`] cuts a stream into lines. The server in the launcher uses
//! both. Neither does any input or output, and neither panics on any input.

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
