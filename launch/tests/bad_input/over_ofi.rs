//! Jobs that request a libfabric which is not available in that form. There must be one error with
//! what is wanted, what was found and what to do, the same on every rank.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::common::{Outcome, finish, portolan};

/// The variable with the path of a second version of the library. `cargo xtask test` sets it if
/// there is one.
const NEWER: &str = "PORTOLAN_TEST_LIBFABRIC";

/// Shell commands that every rank runs first, and what every rank must print then.
const CASES: [(&str, &str, &[&str]); 5] = [
    (
        "no_library",
        "export PORTOLAN_OFI_LIBRARY=/nowhere/libfabric.so.1",
        &[
            "/nowhere/libfabric.so.1 could not be loaded",
            "No such file",
            "install libfabric",
            "PORTOLAN_OFI_LIBRARY",
        ],
    ),
    (
        "no_library_on_one_rank",
        "[ $PMI_RANK != 1 ] || export PORTOLAN_OFI_LIBRARY=/nowhere/libfabric.so.1",
        &[
            "/nowhere/libfabric.so.1 could not be loaded",
            "install libfabric",
            "(rank 1)",
        ],
    ),
    (
        "no_provider",
        "export PORTOLAN_OFI_PROVIDER=pigeons",
        &[
            "no provider of libfabric is as wanted (PORTOLAN_OFI_PROVIDER=pigeons)",
            "there are: ",
            "unset PORTOLAN_OFI_PROVIDER",
            "portolan info",
        ],
    ),
    (
        "no_interface",
        "export PORTOLAN_OFI_INTERFACE=nowhere0",
        &[
            "no provider of libfabric is as wanted (PORTOLAN_OFI_INTERFACE=nowhere0)",
            "there are: ",
            "PORTOLAN_OFI_INTERFACE",
        ],
    ),
    (
        "no_domain",
        "export PORTOLAN_OFI_DOMAIN=mlx5_9",
        &[
            "no provider of libfabric is as wanted (PORTOLAN_OFI_DOMAIN=mlx5_9)",
            "there are: ",
            "PORTOLAN_OFI_DOMAIN",
            "portolan info",
        ],
    ),
];

/// The tests. If the library that a test needs is missing, the test is ignored, and the reason is
/// printed.
pub(crate) fn trials() -> Vec<Trial> {
    let transports = portolan::transports();
    let ofi = transports.iter().find(|transport| transport.name == "ofi");
    let Some(ofi) = ofi else {
        eprintln!("skipped: errors over libfabric: it is not compiled in");
        return Vec::new();
    };
    let there = ofi.unusable.is_none();
    let name = |case: &str| format!("over_ofi_{case}");
    let mut trials = Vec::new();
    for (case, first, says) in CASES {
        let trial = Trial::test(name(case), move || everybody_says(first, says));
        trials.push(trial.with_ignored_flag(!there && case != "no_library"));
    }
    let domain = Trial::test("over_ofi_on_a_domain", on_a_domain);
    trials.push(domain.with_ignored_flag(!there));
    trials.push(Trial::test(name("old_library"), old_library));
    let refused = Trial::test(name("memory_refused"), memory_refused);
    trials.push(refused.with_ignored_flag(!there));
    trials.push(
        Trial::test(name("other_provider"), || {
            let first =
                "[ $PMI_RANK = 1 ] && export PORTOLAN_OFI_PROVIDER=shm || export PORTOLAN_OFI_PROVIDER=tcp";
            let says = [
                "rank 0 (on ",
                " has tcp",
                ", rank 1 (on ",
                ") shm ",
                "name the same PORTOLAN_OFI_PROVIDER everywhere",
            ];
            everybody_says(first, &says)
        })
        .with_ignored_flag(!there),
    );
    trials.push(interface_down(there));
    let newer = std::env::var(NEWER).ok();
    if newer.is_none() {
        eprintln!("ignored: ranks over two versions of libfabric: {NEWER} names no second one");
    }
    for provider in ["shm", "tcp;ofi_rxm"] {
        let first = format!(
            "export PORTOLAN_OFI_PROVIDER='{provider}'; [ $PMI_RANK != 1 ] || export PORTOLAN_OFI_LIBRARY={}",
            newer.as_deref().unwrap_or_default()
        );
        let case = format!("other_version_of_{}", &provider[..3]);
        let trial = Trial::test(name(&case), move || {
            let says = [
                " of libfabric 1.",
                " of libfabric 2.",
                "with the same libfabric",
            ];
            everybody_says(&first, &says)
        });
        trials.push(trial.with_ignored_flag(!there || newer.is_none()));
    }
    trials
}

/// A job over TCP in the domain `lo`, and over nothing else.
fn on_a_domain() -> Result<(), Failed> {
    let me = std::env::current_exe()?;
    let words = "run --timeout 30 --transport ofi -n 2 --";
    let mut command = portolan(&words.split(' ').collect::<Vec<_>>());
    command.arg(me).arg("role:nothing");
    command.env("PORTOLAN_OFI_PROVIDER", "tcp");
    command.env("PORTOLAN_OFI_DOMAIN", "lo");
    command.env("PORTOLAN_LOG", "debug");
    let outcome = finish(command.spawn()?);
    outcome.expect_code(0);
    let open = |line: &&str| line.contains("an endpoint is open");
    let opened: Vec<&str> = outcome.err.lines().filter(open).collect();
    let there = opened.iter().all(|line| line.contains("network=lo,"));
    assert!(opened.len() >= 2 && there, "{outcome:#?}");
    Ok(())
}

/// Each rank is in a network namespace of its own, whose loopback interface exists but is down.
fn interface_down(there: bool) -> Trial {
    let alone = Command::new("unshare").args(["--net", "true"]).output();
    let why = match alone {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(why) = &why {
        eprintln!("ignored: an interface that is down: no network namespace: {why}");
    }
    let trial = Trial::test("over_ofi_interface_down", || {
        let first = "export PORTOLAN_OFI_PROVIDER=tcp PORTOLAN_OFI_INTERFACE=lo; \
                     exec unshare --net \"$0\" role:nothing";
        let says = [
            "interface lo is down",
            "there are: ",
            "bring it up (ip link set lo up)",
            "PORTOLAN_OFI_INTERFACE",
        ];
        everybody_says(first, &says)
    });
    trial.with_ignored_flag(!there || why.is_some())
}

/// A library that reports version 1.11 is refused by its version, and no other function of it is
/// called.
fn old_library() -> Result<(), Failed> {
    let library = compiled(
        "old-libfabric",
        "unsigned fi_version(void) { return 1 << 16 | 11; }\n",
        "FABRIC_1.0 { global: fi_version; };\n",
        &[],
    )?;
    let first = format!("export PORTOLAN_OFI_LIBRARY='{}'", library.display());
    let says = [
        "libfabric 1.11 was found, 1.17 or newer is wanted",
        "install libfabric",
        "PORTOLAN_OFI_LIBRARY",
    ];
    everybody_says(&first, &says)
}

/// Stands before the system's libfabric, where it refuses to register memory of `REFUSED` bytes and
/// more, as if the limit of locked memory were too low. The structures begin as those of the
/// library's headers.
const REFUSING: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

struct table { size_t size; void *calls[3]; };
struct object { size_t class; void *context, *basics; struct table *table, *memory; };
struct attr { const struct iovec *iov; };
typedef int (*make)(void *, void *, struct object **, void *);
typedef int (*make_fabric)(void *, struct object **, void *);
typedef int (*make_region)(void *, const struct attr *, unsigned long, void *);

static make own_domain;
static make_region own_region;

static struct table *changed(struct table *table, int call, void *to)
{
    struct table *copy = memcpy(malloc(table->size), table, table->size);
    copy->calls[call] = to;
    return copy;
}

static int region(void *domain, const struct attr *attr, unsigned long flags, void *region)
{
    if (attr->iov->iov_len >= strtoul(getenv("REFUSED"), NULL, 10))
        return -12; /* FI_ENOMEM */
    return own_region(domain, attr, flags, region);
}

static int domain(void *fabric, void *info, struct object **domain, void *context)
{
    int result = own_domain(fabric, info, domain, context);
    if (result == 0) {
        own_region = (make_region) (*domain)->memory->calls[2];
        (*domain)->memory = changed((*domain)->memory, 2, region);
    }
    return result;
}

int fi_fabric(void *attr, struct object **fabric, void *context)
{
    make_fabric own = (make_fabric) dlvsym(RTLD_NEXT, "fi_fabric", "FABRIC_1.1");
    int result = own(attr, fabric, context);
    if (result == 0) {
        own_domain = (make) (*fabric)->table->calls[0];
        (*fabric)->table = changed((*fabric)->table, 0, domain);
    }
    return result;
}
"#;

/// The provider refuses to register the memory of packets: any, which a rank notices when it looks
/// which transports are usable, or only as much as a job needs; on all ranks or on one. (Over
/// shared memory the host's memory is registered with `PORTOLAN_OFI_HMEM=on`.)
fn memory_refused() -> Result<(), Failed> {
    let library = compiled(
        "refusing-libfabric",
        REFUSING,
        "FABRIC_1.1 { global: fi_fabric; };\n",
        &["-Wl,--no-as-needed", "-l:libfabric.so.1", "-ldl"],
    )?;
    for (whose, from, also) in [
        ("0 1 2", "0", "transport `ofi`"),
        ("0 1 2", "1000000", "rank 2"),
        ("1", "0", "(rank 1)"),
        ("1", "1000000", "rank 1: "),
    ] {
        let first = format!(
            "export PORTOLAN_OFI_PROVIDER=shm PORTOLAN_OFI_HMEM=on REFUSED={from}; \
             case '{whose}' in *$PMI_RANK*) export PORTOLAN_OFI_LIBRARY='{}' ;; esac",
            library.display()
        );
        let says = [
            "Cannot allocate memory",
            "the limit of locked memory",
            "ulimit -l",
            also,
        ];
        everybody_says(&first, &says)?;
    }
    Ok(())
}

/// Compiles a library in a folder of its own, with these symbol versions and arguments for the
/// linker.
fn compiled(folder: &str, text: &str, versions: &str, link: &[&str]) -> std::io::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    std::fs::create_dir_all(&folder)?;
    let (source, map) = (folder.join("text.c"), folder.join("versions.map"));
    std::fs::write(&source, text)?;
    std::fs::write(&map, versions)?;
    let library = folder.join("libfabric.so.1");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]);
    compiler.arg(&library).arg(source);
    compiler.arg(format!("-Wl,--version-script={}", map.display()));
    compiler.args(link);
    assert!(compiler.status()?.success(), "{compiler:?}");
    Ok(library)
}

/// Three ranks request libfabric. Each ends with an error that has these parts, and all print the
/// same.
fn everybody_says(first: &str, says: &[&str]) -> Result<(), Failed> {
    const RANKS: usize = 3;
    let me = std::env::current_exe()?;
    let script = format!("{first}; exec \"$0\" role:nothing");
    // No rank is ended because another one has failed.
    let words = "run --label --timeout 30 --on-failure return --transport ofi -n 3 -- sh -c";
    let mut command = portolan(&words.split(' ').collect::<Vec<_>>());
    command.arg(script).arg(me);
    let outcome = finish(command.spawn()?);
    outcome.expect_code(1).expect_err(says);
    let texts: Vec<String> = (0..RANKS).map(|rank| said_by(&outcome, rank)).collect();
    for text in &texts {
        assert!(text.contains(says[0]), "{outcome:#?}");
        assert_eq!(*text, texts[0], "{outcome:#?}");
    }
    Ok(())
}

/// The output of a rank, without its label.
fn said_by(outcome: &Outcome, rank: usize) -> String {
    let (label, name) = (format!("[{rank}] "), format!("error: rank {rank} (ofi): "));
    let lines = outcome
        .err
        .lines()
        .filter_map(|line| line.strip_prefix(&label));
    let lines = lines.map(|line| line.strip_prefix(&name).unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}
