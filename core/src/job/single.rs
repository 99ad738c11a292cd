//! A job of one: the program was started by hand.

use std::collections::HashMap;
use std::os::fd::RawFd;

use super::{Bootstrap, JobError, pmi1};

/// The only rank of its job. Keys stay in this process.
pub(super) struct Single {
    job_id: String,
    keys: HashMap<String, String>,
    finalized: bool,
}

impl Single {
    pub(super) fn new() -> Self {
        Self {
            job_id: unique_id("single"),
            keys: HashMap::new(),
            finalized: false,
        }
    }

    fn check_open(&self) -> Result<(), JobError> {
        if self.finalized {
            Err(JobError::Finalized { rank: 0 })
        } else {
            Ok(())
        }
    }
}

impl Bootstrap for Single {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn job_id(&self) -> &str {
        &self.job_id
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), JobError> {
        self.check_open()?;
        pmi1::check_key(0, key)?;
        if self.keys.contains_key(key) {
            return Err(JobError::DuplicateKey {
                rank: 0,
                key: key.to_owned(),
            });
        }
        self.keys.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    fn get(&mut self, key: &str) -> Result<String, JobError> {
        self.check_open()?;
        let missing = || JobError::KeyMissing {
            rank: 0,
            key: key.to_owned(),
        };
        self.keys.get(key).cloned().ok_or_else(missing)
    }

    fn fence(&mut self) -> Result<(), JobError> {
        self.check_open()
    }

    fn abort(&mut self, code: i32, message: &str) {
        crate::log!(
            ERROR,
            code,
            reason = message,
            "the job, of one rank, was aborted"
        );
    }

    fn finalize(&mut self) -> Result<(), JobError> {
        self.finalized = true;
        Ok(())
    }

    fn inherited(&self, _what: &str) -> Option<RawFd> {
        None
    }

    fn kind(&self) -> &'static str {
        "single"
    }
}

/// `prefix-<pid>-<random>`: distinct even for several jobs of one process.
pub(super) fn unique_id(prefix: &str) -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // std seeds every RandomState differently, with randomness from the operating system.
    let random = RandomState::new().build_hasher().finish();
    format!("{prefix}-{}-{random:016x}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_of_one_keeps_its_own_keys() {
        let mut job = Single::new();
        job.put("a", "1 2\n3").unwrap();
        job.fence().unwrap();
        assert_eq!(job.get("a").unwrap(), "1 2\n3");
        assert!(matches!(
            job.put("a", "again"),
            Err(JobError::DuplicateKey { .. })
        ));
        assert!(matches!(job.get("b"), Err(JobError::KeyMissing { .. })));
        job.finalize().unwrap();
        assert!(matches!(job.fence(), Err(JobError::Finalized { rank: 0 })));
    }

    #[test]
    fn two_jobs_of_one_process_differ_in_name() {
        assert_ne!(Single::new().job_id(), Single::new().job_id());
    }
}
