//! Which processors each rank may run on.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::{fmt, fs, io};

use crate::os::{CpuSet, allowed_cpus};

/// What `--bind` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bind {
    /// Wherever the system puts the ranks.
    None,
    /// Each rank on one core with all its hardware threads. If there are more ranks than cores, the
    /// cores are reused in turn.
    Core,
    /// Rank *i* on the *i*-th processor of the list.
    List(Vec<usize>),
}

impl FromStr for Bind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "core" => Ok(Self::Core),
            list => parse_list(list).map(Self::List).ok_or_else(|| {
                format!("`{list}` is none of: none, core, a list of processors such as 0,2,4-7")
            }),
        }
    }
}

impl fmt::Display for Bind {
    /// The same text that is parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Core => f.write_str("core"),
            Self::List(list) => {
                let list: Vec<_> = list.iter().map(usize::to_string).collect();
                f.write_str(&list.join(","))
            }
        }
    }
}

/// `0,2,4-7`, which is also how the kernel writes sets of processors.
fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // No machine has more; without a limit `0-9999999999` would fill memory.
        if first > last || last >= 65_536 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// The same text for processors in ascending order.
fn listed(cpus: &[usize]) -> String {
    let runs = cpus.chunk_by(|one, next| one + 1 == *next);
    let each = runs.map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        few => few.iter().map(usize::to_string).collect(),
    });
    each.collect::<Vec<_>>().join(",")
}

impl Bind {
    /// The processors of each rank, or the reason why this binding is impossible. `option` is the
    /// name of the option that asked for it.
    pub(crate) fn plan(&self, ranks: u32, option: &str) -> Result<Vec<Option<CpuSet>>, String> {
        let ranks = ranks as usize;
        match self {
            Self::None => Ok(vec![None; ranks]),
            Self::Core => {
                let cores = cores().map_err(|error| format!("{option} core: {error}"))?;
                let set = |core: &Vec<usize>| Some(CpuSet::of(core.iter().copied()));
                Ok(cores.iter().cycle().take(ranks).map(set).collect())
            }
            Self::List(list) => {
                let allowed = allowed_cpus().map_err(|error| format!("{option}: {error}"))?;
                if let Some(cpu) = list.iter().find(|cpu| !allowed.contains(cpu)) {
                    return Err(format!(
                        "{option}: processor {cpu} is not one that this process may use; choose \
                         from {}",
                        listed(&allowed)
                    ));
                }
                if list.len() < ranks {
                    let plural = if list.len() == 1 { "" } else { "s" };
                    return Err(format!(
                        "{option}: the list has {} processor{plural} for {ranks} ranks; name one \
                         for each rank (one may be named several times)",
                        list.len()
                    ));
                }
                Ok(list
                    .iter()
                    .take(ranks)
                    .map(|&cpu| Some(CpuSet::of([cpu])))
                    .collect())
            }
        }
    }
}

/// The allowed processors, grouped by core, in the order of each core's first processor.
pub(crate) fn cores() -> io::Result<Vec<Vec<usize>>> {
    let mut cores: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for cpu in allowed_cpus()? {
        let first = siblings(cpu).into_iter().min().unwrap_or(cpu);
        cores.entry(first).or_default().push(cpu);
    }
    Ok(cores.into_values().collect())
}

/// All processors of the core to which a processor belongs, whether this process may use them or
/// not. If the kernel does not tell, every processor counts as a core.
pub(crate) fn siblings(cpu: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let told = fs::read_to_string(path).ok();
    told.and_then(|text| parse_list(text.trim()))
        .unwrap_or_else(|| vec![cpu])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!("0,2,4-7".parse(), Ok(Bind::List(vec![0, 2, 4, 5, 6, 7])));
        assert_eq!("0,0".parse(), Ok(Bind::List(vec![0, 0])));
        assert_eq!(listed(&[0, 2, 4, 5, 6, 7]), "0,2,4-7");
        for bad in ["", "-", "1-", "3-1", "a", "0,,1", "cores", "0-99999999999"] {
            assert!(bad.parse::<Bind>().is_err(), "{bad}");
        }
    }

    #[test]
    fn every_rank_gets_a_core_even_if_there_are_too_few() {
        let sets = Bind::Core.plan(1000, "--bind").unwrap();
        assert_eq!(sets.len(), 1000);
        assert!(sets.iter().all(Option::is_some));
    }

    #[test]
    fn a_list_that_cannot_be_honoured_is_refused() {
        let told = |list, option| Bind::List(list).plan(2, option).err();
        let all = allowed_cpus().unwrap();
        assert_eq!(
            told(vec![65_535], "--pin").unwrap(),
            format!(
                "--pin: processor 65535 is not one that this process may use; choose from {}",
                listed(&all)
            )
        );
        let error = told(vec![all[0]], "--bind").unwrap();
        assert!(error.starts_with("--bind: "), "{error}");
        assert!(error.contains("1 processor for 2 ranks"), "{error}");
        assert_eq!(told(vec![all[0], all[0]], "--bind"), None);
    }
}
