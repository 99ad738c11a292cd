//! Signs of launchers whose protocol this crate cannot speak.
//!
//! A program that ignored them would run as *n* worlds of one rank each. Each entry names the
//! variables by which a launcher's children know their place. Launchers that also set `PMI_FD`
//! never get here, because [`pmi1`](super::pmi1) speaks their protocol.

use super::JobError;
use super::environment::Variables;

/// One launcher and how to recognise its children.
struct Launcher {
    name: &'static str,
    /// A child has this variable …
    sign: &'static str,
    /// … and one of these has the number of ranks; the first that is set counts. Without any, the
    /// number is unknown.
    sizes: &'static [&'static str],
    reason: &'static str,
    remedy: &'static str,
}

const NO_PMIX: &str = "it speaks PMIx, and only PMI-1 is compiled in";
const NO_PMI_FD: &str = "it gave no PMI-1 connection (PMI_FD is not set)";
const USE_HYDRA: &str = "start it with MPICH's `mpiexec` (Hydra)";

const LAUNCHERS: &[Launcher] = &[
    Launcher {
        name: "Open MPI's mpirun",
        sign: "OMPI_COMM_WORLD_RANK",
        sizes: &["OMPI_COMM_WORLD_SIZE"],
        reason: NO_PMIX,
        remedy: USE_HYDRA,
    },
    Launcher {
        name: "Slurm's srun",
        sign: "SLURM_PROCID",
        // Only the step's own count: in a batch script, SLURM_NTASKS is the allocation's, and the
        // script itself runs only once.
        sizes: &["SLURM_STEP_NUM_TASKS"],
        reason: NO_PMI_FD,
        remedy: "start it with `srun --mpi=pmi2`",
    },
    Launcher {
        name: "a PMIx launcher",
        sign: "PMIX_RANK",
        sizes: &[
            "OMPI_COMM_WORLD_SIZE",
            "SLURM_STEP_NUM_TASKS",
            "JSM_NAMESPACE_SIZE",
        ],
        reason: NO_PMIX,
        remedy: USE_HYDRA,
    },
    Launcher {
        name: "a PMIx launcher",
        sign: "PMIX_NAMESPACE",
        sizes: &[
            "OMPI_COMM_WORLD_SIZE",
            "SLURM_STEP_NUM_TASKS",
            "JSM_NAMESPACE_SIZE",
        ],
        reason: NO_PMIX,
        remedy: USE_HYDRA,
    },
    Launcher {
        name: "HPE's PALS (aprun, mpiexec)",
        sign: "PALS_RANKID",
        sizes: &["PALS_NRANKS", "PMI_SIZE"],
        reason: NO_PMI_FD,
        remedy: USE_HYDRA,
    },
    Launcher {
        name: "Cray's ALPS (aprun)",
        sign: "ALPS_APP_PE",
        sizes: &["PMI_SIZE"],
        reason: NO_PMI_FD,
        remedy: USE_HYDRA,
    },
    Launcher {
        name: "IBM's jsrun",
        sign: "JSM_NAMESPACE_RANK",
        sizes: &["JSM_NAMESPACE_SIZE"],
        reason: NO_PMIX,
        remedy: USE_HYDRA,
    },
    Launcher {
        name: "MVAPICH's mpirun_rsh",
        sign: "MPIRUN_RANK",
        sizes: &["MPIRUN_NPROCS"],
        reason: "it speaks its own protocol",
        remedy: USE_HYDRA,
    },
    Launcher {
        name: "a PMI launcher",
        sign: "PMI_RANK",
        sizes: &["PMI_SIZE"],
        reason: NO_PMI_FD,
        remedy: USE_HYDRA,
    },
];

/// Returns an error if a launcher whose protocol this crate cannot speak has started this process
/// as one of several.
pub(super) fn refuse(variables: &Variables<'_>) -> Result<(), JobError> {
    for launcher in LAUNCHERS {
        let Some(rank) = variables.get(launcher.sign) else {
            continue;
        };
        let size = launcher
            .sizes
            .iter()
            .find_map(|&name| Some((name, variables.get(name)?)));
        let sign = match &size {
            // One rank under a launcher is a job of one, too.
            Some((_, text)) if text.trim() == "1" => continue,
            Some((name, text)) => format!("{}={rank}, {name}={text}", launcher.sign),
            // A batch script: it has Slurm's variables but is not in a step.
            None if launcher.sign == "SLURM_PROCID" => continue,
            None => format!("{}={rank}", launcher.sign),
        };
        return Err(JobError::ForeignLauncher {
            launcher: launcher.name,
            sign,
            reason: launcher.reason,
            remedy: launcher.remedy,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(set: &[(&str, &str)]) -> Option<String> {
        let lookup = |name: &str| {
            set.iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        };
        refuse(&Variables::new(&lookup))
            .err()
            .map(|error| error.to_string())
    }

    #[test]
    fn each_launcher_is_recognised_and_answered() {
        for launcher in LAUNCHERS {
            let mut set = vec![(launcher.sign, "1")];
            set.extend(launcher.sizes.first().map(|&size| (size, "4")));
            let text = refusal(&set).unwrap_or_else(|| panic!("{} is accepted", launcher.name));
            for part in [
                launcher.sign,
                "fix: ",
                "portolan run",
                "PORTOLAN_ALLOW_SINGLETON",
            ] {
                assert!(text.contains(part), "`{part}` is missing from: {text}");
            }
        }
    }

    #[test]
    fn one_task_alone_is_a_job_of_one() {
        assert_eq!(refusal(&[]), None);
        assert_eq!(
            refusal(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")]),
            None
        );
        assert_eq!(
            refusal(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")]),
            None
        );
        // One task under Slurm's PMIx plugin.
        let alone = [
            ("PMIX_RANK", "0"),
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_NUM_TASKS", "1"),
        ];
        assert_eq!(refusal(&alone), None);
    }

    #[test]
    fn a_batch_script_is_not_a_task_of_a_step() {
        assert_eq!(
            refusal(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "64")]),
            None
        );
    }

    #[test]
    fn a_pmix_rank_of_unknown_size_is_refused() {
        let text = refusal(&[("PMIX_RANK", "3")]).unwrap();
        assert!(
            text.contains("PMIX_RANK=3") && text.contains("PMIx"),
            "{text}"
        );
    }
}
