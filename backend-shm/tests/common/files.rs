//! A job of processes for tests: this test binary, started again once per rank, with a directory
//! for keys.

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use portolan_core::job::{Bootstrap, JobError};

/// Guard against hangs: no test comes near it.
pub const GUARD: Duration = Duration::from_secs(30);

/// A bootstrap whose key-value store is a directory.
pub struct Files {
    dir: PathBuf,
    rank: u32,
    size: u32,
    fences: u32,
    file: Option<RawFd>,
    /// Kill this process at this fence.
    pub die_at_fence: Option<u32>,
}

impl Files {
    /// The bootstrap in the environment of a process that [`Job::start`] has started.
    pub fn from_environment() -> Option<(Self, String)> {
        let read = |name: &str| std::env::var(format!("SHM_TEST_{name}")).ok();
        let number = |name: &str| read(name)?.parse().ok();
        let role = read("ROLE")?;
        let files = Self {
            dir: read("DIR")?.into(),
            rank: number("RANK")?,
            size: number("SIZE")?,
            fences: 0,
            file: number("FILE").map(|fd: u32| fd as RawFd),
            die_at_fence: None,
        };
        Some((files, role))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

impl Bootstrap for Files {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn job_id(&self) -> &str {
        "files"
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), JobError> {
        fs::write(self.dir.join(key), value).unwrap();
        Ok(())
    }

    fn get(&mut self, key: &str) -> Result<String, JobError> {
        Ok(fs::read_to_string(self.dir.join(key)).unwrap())
    }

    fn fence(&mut self) -> Result<(), JobError> {
        self.fences += 1;
        if self.die_at_fence == Some(self.fences) {
            die();
        }
        let name = |rank: u32| self.dir.join(format!("fence.{}.{rank}", self.fences));
        fs::write(name(self.rank), "").unwrap();
        let start = Instant::now();
        while !(0..self.size).all(|rank| name(rank).exists()) {
            assert!(
                start.elapsed() < GUARD,
                "fence {} of rank {}",
                self.fences,
                self.rank
            );
            if self.dir.join("aborted").exists() {
                return Err(JobError::Finalized { rank: self.rank });
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    fn abort(&mut self, code: i32, _message: &str) {
        std::process::exit(code);
    }

    fn finalize(&mut self) -> Result<(), JobError> {
        Ok(())
    }

    fn inherited(&self, what: &str) -> Option<RawFd> {
        assert_eq!(what, "shm");
        self.file
    }

    fn kind(&self) -> &'static str {
        "files"
    }
}

/// Ends this process as `kill -9` does.
pub fn die() -> ! {
    // SAFETY: a signal to oneself.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    unreachable!("a process that was killed")
}

/// The processes of a job. Dropping it kills them and removes their files.
pub struct Job {
    pub dir: PathBuf,
    pub ranks: Vec<Child>,
    _file: Option<OwnedFd>,
}

impl Job {
    /// Starts `size` processes that run the test `child` of this binary as `role`.
    pub fn start(role: &str, size: u32, hand_over: bool) -> Self {
        let dir = std::env::temp_dir().join(format!("portolan-shm-{role}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        open_to_all(&dir);
        let file = hand_over.then(memory_file);
        let ranks = (0..size)
            .map(|rank| spawn(role, size, rank, &dir, file.as_ref()))
            .collect();
        Self {
            dir,
            ranks,
            _file: file,
        }
    }

    /// Starts ranks that are handed a file each, instead of one for all.
    pub fn start_with_wrong_file(role: &str, size: u32) -> Self {
        let mut job = Self::start(role, 0, false);
        let files: Vec<OwnedFd> = (0..size).map(|_| memory_file()).collect();
        for (rank, file) in (0..).zip(&files) {
            job.ranks
                .push(spawn(role, size, rank, &job.dir, Some(file)));
        }
        job
    }

    /// Waits for a rank. Returns its exit code, or the signal that killed it as a negative number.
    pub fn wait(&mut self, rank: usize) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let status = self.ranks[rank].wait().unwrap();
        status.code().unwrap_or_else(|| -status.signal().unwrap())
    }

    /// Waits for all ranks and expects them to succeed.
    pub fn succeed(mut self) {
        let codes: Vec<i32> = (0..self.ranks.len()).map(|rank| self.wait(rank)).collect();
        assert!(codes.iter().all(|&code| code == 0), "exit codes {codes:?}");
    }

    /// Waits until a rank has written a file.
    pub fn await_file(&self, name: &str) {
        let start = Instant::now();
        while !self.dir.join(name).exists() {
            assert!(start.elapsed() < GUARD, "waiting for {name}");
            std::thread::yield_now();
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for child in &mut self.ranks {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn spawn(role: &str, size: u32, rank: u32, dir: &Path, file: Option<&OwnedFd>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
    command
        .env("SHM_TEST_ROLE", role)
        .env("SHM_TEST_DIR", dir)
        .stdout(Stdio::null());
    command
        .env("SHM_TEST_RANK", rank.to_string())
        .env("SHM_TEST_SIZE", size.to_string());
    if let Some(file) = file {
        let fd = file.as_raw_fd();
        command.env("SHM_TEST_FILE", fd.to_string());
        // SAFETY: between fork and exec only one system call is made.
        unsafe {
            command.pre_exec(move || {
                libc::fcntl(fd, libc::F_SETFD, 0);
                Ok(())
            });
        }
    }
    command.spawn().unwrap()
}

/// A memory file as a launcher makes it: empty and not sealed.
fn memory_file() -> OwnedFd {
    // SAFETY: a name and flags; the descriptor is new.
    unsafe {
        let fd = libc::memfd_create(
            c"portolan".as_ptr(),
            libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
        );
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd)
    }
}

/// Ranks of another user also write there.
fn open_to_all(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
}
