//! Finds out from the environment which job this process belongs to.

use super::single::Single;
use super::{Bootstrap, JobError, foreign, pmi1};

/// Joins the job that the environment describes.
///
/// Looks for, in this order: a PMI-1 launcher (`PMI_FD`, or `PMI_PORT`); signs of a launcher whose
/// protocol it cannot speak, which are an error unless `alone` is set (the setting
/// `ALLOW_SINGLETON`); otherwise it makes a job of one.
///
/// Takes ownership of the descriptors that the launcher left for this process, and marks them
/// close-on-exec so that programs started by this one do not inherit them. So a process can join
/// only once.
///
/// # Errors
/// [`JobError::ForeignLauncher`], [`JobError::BadVariable`], or the launcher's failure.
pub fn from_environment(alone: bool) -> Result<Box<dyn Bootstrap>, JobError> {
    from_variables(&|name| std::env::var(name).ok(), alone)
}

/// Like [`from_environment`], with the variables given by a function: for tests, and for hosts that
/// keep a launcher's variables elsewhere.
///
/// # Errors
/// As [`from_environment`].
pub fn from_variables(
    lookup: &dyn Fn(&str) -> Option<String>,
    alone: bool,
) -> Result<Box<dyn Bootstrap>, JobError> {
    let variables = Variables::new(lookup);
    if let Some(connection) = pmi1::connect(&variables)? {
        return Ok(connection);
    }
    if !alone {
        foreign::refuse(&variables)?;
    }
    Ok(Box::new(Single::new()))
}

/// Read access to environment variables. An empty variable counts as unset.
pub(super) struct Variables<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> Variables<'a> {
    pub(super) fn new(lookup: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { lookup }
    }

    pub(super) fn get(&self, name: &str) -> Option<String> {
        (self.lookup)(name).filter(|value| !value.is_empty())
    }

    /// The variable's value as a number, if it is set.
    pub(super) fn number(&self, name: &str) -> Result<Option<u32>, JobError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match value.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(JobError::BadVariable {
                name: name.to_owned(),
                value,
                why: "is not a number that a launcher would set".to_owned(),
                remedy: "unset it, or start the program with `portolan run`",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(set: &[(&str, &str)], alone: bool) -> Result<Box<dyn Bootstrap>, JobError> {
        let lookup = |name: &str| {
            set.iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        };
        from_variables(&lookup, alone)
    }

    #[test]
    fn no_launcher_is_a_job_of_one() {
        let job = join(&[], false).unwrap();
        assert_eq!((job.rank(), job.size(), job.kind()), (0, 1, "single"));
        assert_eq!(job.inherited("shm"), None);
    }

    #[test]
    fn foreign_signs_refuse_unless_alone_is_what_is_wanted() {
        let signs = [("PMIX_RANK", "0")];
        assert!(matches!(
            join(&signs, false),
            Err(JobError::ForeignLauncher { .. })
        ));
        assert_eq!(join(&signs, true).unwrap().size(), 1);
    }

    #[test]
    fn nonsense_in_the_launchers_variables_is_named() {
        let set = [("PMI_FD", "five"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")];
        let error = join(&set, false).err().unwrap();
        assert!(
            error.to_string().starts_with("PMI_FD=five is not a number"),
            "{error}"
        );
    }
}
