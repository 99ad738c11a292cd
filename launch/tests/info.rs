//! `portolan info`.

// A skip prints why.
#![allow(clippy::print_stderr)]

mod common;

use common::{outcome, portolan};

#[test]
fn the_page_shows_settings_with_their_origin_and_warns() {
    let mut command = portolan(&["info"]);
    command
        .env("PORTOLAN_EAGER_MAX", "32k")
        .env("PORTOLAN_TRANSPROT", "shm");
    let outcome = outcome(command, b"");
    outcome.expect_code(0);
    let line = outcome
        .out
        .lines()
        .find(|line| line.contains("PORTOLAN_EAGER_MAX"))
        .unwrap();
    assert!(
        line.contains("32k bytes") && line.ends_with("environment"),
        "{line}"
    );
    let warning = "unknown variable PORTOLAN_TRANSPROT (did you mean PORTOLAN_TRANSPORT?)";
    assert!(outcome.out.contains(warning), "{}", outcome.out);
    assert!(outcome.out.contains("shm "), "{}", outcome.out);
    let unset = ["unset bytes", "unset nodes"].map(|text| outcome.out.contains(text));
    assert_eq!(unset, [false; 2], "{}", outcome.out);
}

#[test]
fn values_that_no_rank_could_use_make_it_fail() {
    for words in [
        &["info"][..],
        &["info", "--json"],
        &["info", "--collectives"],
    ] {
        let mut command = portolan(words);
        command.env("PORTOLAN_SPIN", "often");
        let outcome = outcome(command, b"");
        outcome.expect_code(1);
        let refused = "PORTOLAN_SPIN=often (environment) cannot be used";
        assert!(outcome.out.contains(refused), "{}", outcome.out);
    }
}

#[test]
fn the_object_has_the_same_for_programs() {
    let mut command = portolan(&["info", "--json"]);
    command
        .env("PORTOLAN_WAIT", "never")
        .env("PORTOLAN_SPIN", "7");
    let outcome = outcome(command, b"");
    let object: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
    assert_eq!(object["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(object["transports"][0]["name"], "shm");
    let settings = object["settings"].as_array().unwrap();
    let spin = settings
        .iter()
        .find(|row| row["name"] == "PORTOLAN_SPIN")
        .unwrap();
    assert_eq!(
        (&spin["value"], &spin["origin"]),
        (&"7".into(), &"environment".into())
    );
    let error = object["errors"][0].as_str().unwrap();
    assert!(error.contains("one of auto, spin, yield, park"), "{error}");
}

#[test]
fn what_libfabric_offers_is_listed_with_why_the_rest_is_not_used() {
    if let Some(why) = common::no_libfabric() {
        eprintln!("skipped: what libfabric offers: {why}");
        return;
    }
    let mut command = portolan(&["info", "--json"]);
    command.env("PORTOLAN_OFI_INTERFACE", "lo");
    if let Some(newer) = std::env::var_os("PORTOLAN_TEST_LIBFABRIC") {
        // It has a provider that is chosen, but cannot match.
        command.env("PORTOLAN_OFI_LIBRARY", newer);
    }
    let outcome = outcome(command, b"");
    let object: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
    let transports = object["transports"].as_array().unwrap();
    let ofi = transports.iter().find(|one| one["name"] == "ofi").unwrap();
    let found = ofi["found"].as_array().unwrap().iter();
    let found: Vec<(&str, Option<&str>)> = found
        .map(|row| (row[0].as_str().unwrap(), row[1].as_str()))
        .collect();
    let has = |what: &str, why: Option<&str>| {
        let mut rows = found.iter().filter(|row| row.0.contains(what));
        rows.any(|row| match (row.1, why) {
            (Some(found), Some(why)) => found.contains(why),
            (found, why) => found == why,
        })
    };
    for (what, why) in [
        ("tcp", None),
        (": udp on lo ", Some("its datagrams may be lost")),
        (
            ": shm on shm ",
            Some("it is not asked for: PORTOLAN_OFI_INTERFACE=lo"),
        ),
    ] {
        assert!(has(what, why), "{what}, {why:?}: {found:#?}");
    }
    let facts = ofi["facts"].as_array().unwrap().iter();
    let facts: Vec<&str> = facts.map(|fact| fact.as_str().unwrap()).collect();
    // Which provider would match is said, because it need not be the one that is chosen.
    for fact in [
        "messages are matched by Portolan (PORTOLAN_MATCH=auto); PORTOLAN_MATCH=native would have \
         provider tcp;ofi_rxm match them",
        "memory is registered over tcp",
    ] {
        let mut facts = facts.iter();
        assert!(facts.any(|said| said.starts_with(fact)), "{fact}: {ofi:#?}");
    }
}

/// What is no choice is not said to be usable.
#[test]
fn facts_of_libfabric_are_sentences() {
    if let Some(why) = common::no_libfabric() {
        eprintln!("skipped: facts of libfabric: {why}");
        return;
    }
    let outcome = outcome(portolan(&["info"]), b"");
    for begin in ["messages are matched by", "memory is registered over"] {
        let mut lines = outcome.out.lines();
        let line = lines.find(|line| line.trim_start().starts_with(begin));
        let line = line.unwrap_or_else(|| panic!("`{begin}`: {}", outcome.out));
        assert!(!line.ends_with("can be used"), "{line}");
    }
}

/// The output of `portolan info --collectives` with these settings, which can be used.
fn collectives(settings: &[(&str, &str)]) -> String {
    let mut command = portolan(&["info", "--collectives"]);
    command.envs(settings.iter().copied());
    let outcome = outcome(command, b"");
    outcome.expect_code(0);
    outcome.out
}

#[test]
fn the_page_of_collectives_says_when_its_table_is_not_asked() {
    let page = collectives(&[]);
    assert!(
        page.contains("short nonblocking and persistent ones"),
        "{page}"
    );
    assert!(!page.contains("is not used"), "{page}");
    assert!(!page.contains("PORTOLAN_REPRODUCIBLE"), "{page}");
    for (name, value) in [
        ("PORTOLAN_COLL_DIRECT", "off"),
        ("PORTOLAN_COLL_CHECK", "on"),
    ] {
        let page = collectives(&[(name, value)]);
        assert!(
            page.contains("Memory that ranks share is not used"),
            "{page}"
        );
        assert!(page.contains(&format!("({name}={value})")), "{page}");
    }
    let page = collectives(&[("PORTOLAN_REPRODUCIBLE", "on")]);
    assert!(
        page.contains("same bits every time (PORTOLAN_REPRODUCIBLE=on)"),
        "{page}"
    );
    assert!(page.contains("use it and ignore the table"), "{page}");
}

#[test]
fn the_manual_is_the_page_in_docs() {
    let outcome = outcome(portolan(&["info", "--manual"]), b"");
    assert_eq!(outcome.out, portolan_core::config::manual());
}
