//! The command on a terminal: typed input reaches rank 0, Ctrl-C ends the job, closing the window
//! ends the input, and a measurement shows its progress.

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use common::{finish, of_ours, portolan};

/// `portolan run -n 2 -- sh -c SCRIPT` as a shell would start it: in the foreground of a terminal.
///
/// Gives the process, whose outputs are pipes, and the terminal's other end.
fn on_terminal(script: &str) -> (Child, File) {
    leading(portolan(&["run", "-n", "2", "--", "sh", "-c", script]))
}

/// A terminal: the end of a person's keyboard and screen, and the end of a program.
fn terminal() -> (File, OwnedFd) {
    let (mut keyboard, mut terminal) = (0, 0);
    let none = std::ptr::null_mut();
    let size = libc::winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: both places are writable, the size is readable, and the other two pointers may be
    // null and say "nothing wanted".
    let opened = unsafe {
        libc::openpty(
            &raw mut keyboard,
            &raw mut terminal,
            none,
            none.cast(),
            &raw const size,
        )
    };
    assert_eq!(
        opened,
        0,
        "no terminal: {}",
        std::io::Error::last_os_error()
    );
    // Processes that other tests start must not inherit it: the terminal hangs up when the last
    // copy is closed.
    // SAFETY: changes one flag of a descriptor that the call above has made.
    unsafe { libc::fcntl(keyboard, libc::F_SETFD, libc::FD_CLOEXEC) };
    // SAFETY: the call above has made it, and nobody else owns it.
    let keyboard = unsafe { File::from_raw_fd(keyboard) };
    // SAFETY: as above.
    let terminal = unsafe { OwnedFd::from_raw_fd(terminal) };
    (keyboard, terminal)
}

/// Starts a command on a terminal of its own, in whose foreground it is.
fn leading(mut command: Command) -> (Child, File) {
    let (keyboard, terminal) = terminal();
    command.stdin(Stdio::from(terminal));
    // SAFETY: system calls on numbers only, between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            // Makes the standard input the session's terminal, and this process its foreground.
            match libc::ioctl(0, libc::TIOCSCTTY, 0) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            }
        });
    }
    let child = command.spawn().expect("the command starts");
    (child, keyboard)
}

/// Reads until both ranks have printed `up`.
fn wait_until_up(child: &mut Child) {
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 6]).expect("both ranks say `up`");
    child.stdout = Some(out);
}

#[test]
fn what_is_typed_reaches_rank_0_and_nobody_else() {
    let (child, mut keyboard) = on_terminal("read x; echo $PMI_RANK got $x");
    keyboard.write_all(b"hello\n").unwrap();
    let outcome = finish(child);
    outcome.expect_code(0);
    assert_eq!(outcome.sorted(), ["0 got hello", "1 got"]);
}

#[test]
fn the_end_of_typing_is_the_end_of_input() {
    let (child, mut keyboard) = on_terminal("cat; echo $PMI_RANK ends");
    keyboard.write_all(b"one\n\x04").unwrap();
    let outcome = finish(child);
    outcome.expect_code(0);
    assert_eq!(outcome.sorted(), ["0 ends", "1 ends", "one"]);
}

#[test]
fn control_c_ends_the_job() {
    let (mut child, mut keyboard) = on_terminal("echo up; exec sleep 1000");
    wait_until_up(&mut child);
    keyboard.write_all(b"\x03").unwrap();
    finish(child)
        .expect_code(130)
        .expect_err(&["signal 2 (SIGINT)"]);
}

/// The launcher ignores the hang-up and is in the background, where it may not read.
#[test]
fn a_terminal_that_hangs_up_is_the_end_of_input() {
    let mut command = of_ours(Command::new("sh"));
    // With `-m`, a background job has a process group of its own, and keeps its input.
    let background = "trap '' HUP; \"$@\" & wait $!; echo code $?";
    command.args(["-m", "-c", background, "sh"]);
    command.args([env!("CARGO_BIN_EXE_portolan"), "run", "--timeout", "30"]);
    let rank = "[ $PMI_RANK = 0 ] || exit 0; echo up; cat; echo ends";
    command.args(["-n", "2", "--", "sh", "-c", rank]);
    let (mut child, keyboard) = leading(command);
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 3]).expect("rank 0 says `up`");
    child.stdout = Some(out);
    drop(keyboard);
    // The shell's own exit code is an error: it cannot take back the terminal.
    assert_eq!(finish(child).out, "ends\ncode 0\n");
}

/// While it measures, `portolan bench` shows how much of the work is done, and then removes that.
#[test]
fn a_measurement_shows_its_progress_on_a_terminal() {
    let (mut screen, terminal) = terminal();
    let mut command = portolan(&["bench", "latency", "--sizes", "8", "--iterations", "3"]);
    command.args(["--repeat", "1"]).stderr(terminal);
    let mut child = command.spawn().expect("the command starts");
    // It holds the program's end of the terminal, whose hang-up ends the reading.
    drop(command);
    let mut shown = Vec::new();
    // A terminal that hangs up is an error for its reader.
    let _ = screen.read_to_end(&mut shown);
    let shown = String::from_utf8_lossy(&shown);
    assert!(child.wait().unwrap().success(), "{shown}");
    let last = shown.rfind("/1 ");
    assert!(shown.contains("latency") && last.is_some(), "{shown:?}");
    let erase = shown.rfind("\u{1b}[2K");
    assert!(erase > last, "{shown:?}");
}
