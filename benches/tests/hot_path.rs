//! The budget of a small message over shared memory: no allocation and no system call between the
//! facade's call and its end. One thread steps both ranks.
//!
//! Each case is a process of its own, because a filter on system calls stays for the life of a
//! process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use libtest_mimic::{Arguments, Failed, Trial};
use portolan::{Builder, Comm, Result};

/// The variable that names the case to the process that plays it.
const CASE: &str = "HOT_PATH_CASE";

/// Exit codes of a case's process.
const QUIET: i32 = 0;
const CALLED: i32 = 3;
const ALLOCATED: i32 = 4;
const REFUSED: i32 = 5;
const BROKEN: i32 = 6;

/// Seconds after which a case counts as hanging.
const GUARD: u32 = 60;

/// Messages before the filter is set, and behind it.
const WARM_UP: u32 = 2000;
const ROUNDS: u32 = 2000;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// A copy of the standard error's descriptor that only [`say`] knows. No other code can write while
/// the filter is set.
static REPORT: AtomicI32 = AtomicI32::new(-1);

// SAFETY: every call is handed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The cases that run behind the filter, with the exit code that each must have. The last three
/// prove that the filter and the counter detect a violation.
const CASES: [(&str, i32); 7] = [
    ("blocking", QUIET),
    ("unexpected", QUIET),
    ("requests", QUIET),
    ("probe", QUIET),
    ("a system call", CALLED),
    ("a word", CALLED),
    ("an allocation", ALLOCATED),
];

fn main() -> ExitCode {
    if let Ok(case) = std::env::var(CASE) {
        // SAFETY: alarm has no conditions. It ends a case that hangs.
        unsafe { libc::alarm(GUARD) };
        end(play(&case).unwrap_or(BROKEN));
    }
    let trial = |(case, expected)| Trial::test(case, move || expect(case, expected));
    let trials = CASES.into_iter().map(trial).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Runs a case in a process of its own.
fn expect(case: &str, expected: i32) -> Result<(), Failed> {
    let output = Command::new(std::env::current_exe()?)
        .env(CASE, case)
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(code) if code == expected => Ok(()),
        Some(REFUSED) => {
            skipped(case);
            Ok(())
        }
        Some(CALLED) => Err(format!("a system call on the hot path: number {said}").into()),
        Some(ALLOCATED) => Err(format!("the hot path allocates: {said}").into()),
        _ => Err(format!("{}: {said}", output.status).into()),
    }
}

#[expect(clippy::print_stdout, reason = "a skip has a reason that is counted")]
fn skipped(case: &str) {
    println!("skipped: hot path, {case}: this machine allows no filter on system calls");
}

/// Plays the case. Returns only if it fails.
fn play(case: &str) -> Result<i32> {
    let worlds = Builder::new().transport("shm").in_process(2)?;
    let (zero, one) = (worlds[0].comm(), worlds[1].comm());
    let round = |case: &str| step(case, &zero, &one);
    // Two ranks that have not connected yet take only one message, and the next must wait for the
    // connection.
    (0..100).try_for_each(|_| round("blocking"))?;
    for _ in 0..WARM_UP {
        round(case)?;
    }
    if !forbid_system_calls() {
        end(REFUSED);
    }
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..ROUNDS {
        round(case)?;
    }
    match case {
        // SAFETY: getppid has no conditions, and no way to fail.
        "a system call" => drop(unsafe { libc::getppid() }),
        // SAFETY: the text is readable. It goes to the standard error, as a log message on the hot
        // path would.
        "a word" => drop(unsafe { libc::write(2, b"here\n".as_ptr().cast(), 5) }),
        "an allocation" => drop(std::hint::black_box(Box::new(1_u8))),
        _ => {}
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    if allocations > 0 {
        say(allocations);
    }
    // Exits before the job is left, which needs system calls.
    end(if allocations > 0 { ALLOCATED } else { QUIET })
}

/// Ends the process at once.
fn end(code: i32) -> ! {
    // SAFETY: _exit has no conditions.
    unsafe { libc::_exit(code) }
}

/// Sends one message of 8 bytes, by one of the interface's forms.
fn step(case: &str, zero: &Comm, one: &Comm) -> Result<()> {
    let (out, mut back) = ([1_u64], [0_u64]);
    match case {
        "unexpected" => {
            zero.send(&out, 1, 1)?;
            zero.send(&out, 1, 0)?;
            // The first message is put aside while the second is searched.
            one.recv_into(&mut back, 0, 0)?;
            one.recv_into(&mut back, 0, 1)?;
        }
        "requests" => one.scope(|receives| {
            let incoming = receives.recv(&mut back, 0, 0)?;
            zero.scope(|sends| sends.send(&out, 1, 0)?.wait().map(drop))?;
            incoming.wait().map(drop)
        })?,
        "probe" => {
            zero.send(&out, 1, 0)?;
            one.probe(0, 0)?;
            one.match_recv(0, 0)?.recv_into(&mut back)?;
        }
        _ => {
            zero.send(&out, 1, 0)?;
            one.recv_into(&mut back, 0, 0)?;
        }
    }
    Ok(())
}

/// Sets a filter: from here on every system call ends the process with [`CALLED`] and prints the
/// call's number. Only the exit of the process and the writes of [`say`] are allowed. Returns
/// whether the filter could be set.
fn forbid_system_calls() -> bool {
    // SAFETY: dup has no conditions.
    let report = unsafe { libc::dup(2) };
    if report < 0 {
        return false;
    }
    REPORT.store(report, Ordering::Relaxed);
    // SAFETY: a sigaction is numbers and a pointer, for which zero is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_call as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler is a function of the kind that SA_SIGINFO asks for.
    if unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) } != 0 {
        return false;
    }
    let statement = |code: u32, value: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k: value,
    };
    // Skips `skip` statements if the loaded value is `number`, else `skip_else` statements.
    let jump = |number: u32, skip: u8, skip_else: u8| libc::sock_filter {
        jt: skip,
        jf: skip_else,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number)
    };
    let load = |at: usize| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at as u32);
    // The lower half of the first argument, which is all of a descriptor.
    let descriptor = std::mem::offset_of!(libc::seccomp_data, args)
        + if cfg!(target_endian = "big") { 4 } else { 0 };
    let mut program = [
        load(std::mem::offset_of!(libc::seccomp_data, nr)),
        jump(libc::SYS_exit_group as u32, 4, 0),
        jump(libc::SYS_write as u32, 0, 2),
        load(descriptor),
        jump(report as u32, 1, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_TRAP),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: this option takes one number. Without it only root may set a filter.
    let allowed = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0;
    // SAFETY: the filter points to a program of the length that it says.
    allowed
        && unsafe {
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const filter,
            )
        } == 0
}

/// Handles a system call that the filter does not allow.
extern "C" fn on_call(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    /// Offset of the call's number in the kernel's siginfo_t: behind three numbers, a gap and a
    /// pointer.
    const NUMBER: usize = 24;
    // SAFETY: the kernel gives a siginfo_t, which is larger than that, and for this signal has the
    // number of the call there.
    let number = unsafe { info.cast::<u8>().add(NUMBER).cast::<i32>().read() };
    say(number.unsigned_abs().into());
    end(CALLED);
}

/// Prints a number to the standard error, by the one descriptor that the filter allows, without any
/// allocation or lock.
fn say(mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    let text = &digits[first..];
    // SAFETY: the text is readable. Nothing can be done if it is not written.
    unsafe {
        libc::write(
            REPORT.load(Ordering::Relaxed),
            text.as_ptr().cast(),
            text.len(),
        )
    };
}
