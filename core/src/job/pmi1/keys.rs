//! Keys and values within a launcher's limits. Long values travel as several entries.

use super::super::JobError;

/// Longest key. PMI allows 64, but the parts of a long value need room for a suffix.
const MAX_KEY: usize = 48;

/// Returns an error unless every bootstrap can exchange `key`.
pub(in super::super) fn check_key(rank: u32, key: &str) -> Result<(), JobError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let why = if key.is_empty() {
        "it is empty"
    } else if key.len() > MAX_KEY {
        "it is too long"
    } else if !key.chars().all(legal) {
        "it has a character that launchers cannot carry"
    } else {
        return Ok(());
    };
    Err(JobError::BadKey {
        rank,
        key: key.to_owned(),
        why,
    })
}

/// The key of part `index` of a value. Part 0 is under the key itself.
///
/// A key must not contain `:`, so a part's key never equals that of another value.
pub(super) fn part_key(key: &str, index: usize) -> String {
    if index == 0 {
        key.to_owned()
    } else {
        format!("{key}:{index}")
    }
}

/// Splits an escaped value into entries `(key, text)` of at most `limit` bytes.
///
/// The first starts with the number of entries (`3:…`). A value that fits is one entry (`1:…`).
///
/// `limit` must be at least 32.
pub(super) fn split(key: &str, escaped: &str, limit: usize) -> Vec<(String, String)> {
    debug_assert!(limit >= 32 && escaped.is_ascii());
    // The count takes room in the first part; it never has more than eight digits.
    let (first, mut rest) = escaped.split_at(escaped.len().min(limit - 9));
    let count = 1 + rest.len().div_ceil(limit);
    let mut parts = vec![(key.to_owned(), format!("{count}:{first}"))];
    while !rest.is_empty() {
        let (part, tail) = rest.split_at(rest.len().min(limit));
        parts.push((part_key(key, parts.len()), part.to_owned()));
        rest = tail;
    }
    parts
}

/// The number of parts, and the content of the first; `None` if [`split`] did not write it.
pub(super) fn first_part(text: &str) -> Option<(usize, &str)> {
    let (count, part) = text.split_once(':')?;
    let count: usize = count.parse().ok()?;
    // A garbled count must not make this rank ask for millions of parts.
    (1..=1_000_000).contains(&count).then_some((count, part))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_are_within_the_limit_and_make_up_the_whole(
            text in "[a-z%0-9:]{0,3000}", limit in 32usize..200,
        ) {
            let parts = split("key", &text, limit);
            prop_assert!(parts.iter().all(|(_, part)| part.len() <= limit));
            let (count, first) = first_part(&parts[0].1).unwrap();
            prop_assert_eq!(count, parts.len());
            let rest: String = parts[1..].iter().map(|(_, part)| &**part).collect();
            prop_assert_eq!(format!("{first}{rest}"), text);
            for (index, (key, _)) in parts.iter().enumerate() {
                prop_assert_eq!(key, &part_key("key", index));
            }
        }

        #[test]
        fn any_text_as_a_first_part_is_refused_or_understood(text in any::<String>()) {
            let _ = first_part(&text);
        }
    }

    #[test]
    fn keys_are_checked_before_they_travel() {
        check_key(0, "card-0.A_z").unwrap();
        check_key(0, &"k".repeat(MAX_KEY)).unwrap();
        for bad in ["", "a b", "a:1", "é", "a=b", &"k".repeat(MAX_KEY + 1)] {
            let text = check_key(3, bad).unwrap_err().to_string();
            assert!(
                text.starts_with("rank 3: key `") && text.contains("48 characters"),
                "{text}"
            );
        }
    }
}
