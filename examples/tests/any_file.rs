//! Any file is a matrix, a vector, or an error that names the file: no panic, and no more memory
//! than the file's own length justifies.

use portolan_examples::least_squares::{read_matrix, read_vector};
use proptest::prelude::*;

/// Lines that are nearly right, including sizes that no machine has memory for.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let header = prop_oneof![
        Just("%%MatrixMarket matrix coordinate real general".to_owned()),
        Just("%%MatrixMarket matrix array real general".to_owned()),
        "%%MatrixMarket (matrix|vector) (coordinate|array) (real|integer|complex) (general|symmetric)",
        ".{0,40}",
    ];
    let number = prop_oneof![
        "[0-9]{1,2}",
        Just("4294967295".to_owned()),
        Just("18446744073709551615".to_owned()),
        Just("-1".to_owned()),
        "[-+.0-9eEnaif]{0,8}",
    ];
    let line = prop::collection::vec(number, 0..4).prop_map(|words| words.join(" "));
    (header, prop::collection::vec(line, 0..8)).prop_map(|(header, lines)| {
        let text = std::iter::once(header).chain(lines).collect::<Vec<_>>();
        text.join("\n").into_bytes()
    })
}

proptest! {
    #[test]
    fn any_file_is_data_or_an_error(
        bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..300), nearly()],
    ) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        let name = file.path().display().to_string();
        match read_matrix(file.path()) {
            Ok(matrix) => prop_assert!(
                matrix.entries.iter().all(|e| e.row < matrix.rows && e.column < matrix.columns)
            ),
            Err(error) => prop_assert!(error.to_string().contains(&name)),
        }
        if let Err(error) = read_vector(file.path()) {
            prop_assert!(error.to_string().contains(&name));
        }
    }
}
