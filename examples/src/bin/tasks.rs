//! Rank 0 serves all other ranks at once: one task for each awaits its questions and answers them.
//!
//! Shows requests that are awaited in an ordinary executor (tokio's). The level `Multiple` lets the
//! tasks sleep until their messages are there; a rank that nobody asks anything uses no processor.
//!
//! ```text
//! portolan run -n 4 -- target/release/tasks
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use portolan::{Builder, Comm, Multiple, Result, World};
use tokio::runtime;
use tokio::task::JoinSet;

/// Accounts that rank 0 keeps.
const ACCOUNTS: usize = 16;
/// Payments that each of the other ranks makes.
const PAYMENTS: u64 = 500;

const PAY: u32 = 1;
const BALANCE: u32 = 2;

/// Balances, which all tasks share. No task holds the lock while it awaits something.
type Accounts = Arc<Mutex<[u64; ACCOUNTS]>>;

fn main() -> ExitCode {
    Builder::new().multiple().run(program)
}

pub(crate) fn program(world: World<Multiple>) -> Result<()> {
    let comm = world.comm();
    if comm.rank() > 0 {
        return pay(&comm);
    }
    let accounts = Accounts::default();
    let one_thread = runtime::Builder::new_current_thread().build();
    let one_thread = one_thread.expect("a runtime without timers and sockets needs no resources");
    one_thread.block_on(serve_all(&comm, &accounts))?;
    let sum = accounts.lock().expect("no task panics").iter().sum::<u64>();
    let payers = u64::from(comm.size() - 1);
    assert_eq!(
        sum,
        payers * PAYMENTS * (PAYMENTS + 1) / 2,
        "a payment got lost"
    );
    println!("{} payments, {sum} in all", payers * PAYMENTS);
    Ok(())
}

/// Runs a task for each of the other ranks until all of them have gone.
async fn serve_all(comm: &Comm<Multiple>, accounts: &Accounts) -> Result<()> {
    let mut tasks = JoinSet::new();
    for payer in 1..comm.size() {
        tasks.spawn(serve(comm.clone(), payer, Arc::clone(accounts)));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no task panics")?;
    }
    Ok(())
}

/// Adds each payment of a rank to its account, and answers with the balance, until an empty message
/// comes.
async fn serve(comm: Comm<Multiple>, payer: u32, accounts: Accounts) -> Result<()> {
    let mut room = vec![0_u64; 2];
    loop {
        let payment = comm.irecv_owned(room, payer, PAY)?.await?;
        if payment.status.bytes == 0 {
            return Ok(());
        }
        let (account, amount) = (payment.buf[0] as usize % ACCOUNTS, payment.buf[1]);
        let balance = {
            let mut accounts = accounts.lock().expect("no task panics");
            accounts[account] += amount;
            accounts[account]
        };
        comm.isend_owned(vec![balance], payer, BALANCE)?.await?;
        room = payment.buf;
    }
}

/// The other ranks: each makes its payments one by one, to one account after the other.
fn pay(comm: &Comm<Multiple>) -> Result<()> {
    for amount in 1..=PAYMENTS {
        comm.send(&[amount + u64::from(comm.rank()), amount], 0, PAY)?;
        let (balance, _) = comm.recv_one::<u64>(0, BALANCE)?;
        assert!(balance >= amount, "{balance} after {amount} was paid in");
    }
    comm.send::<u64>(&[], 0, PAY)
}
