//! Wrong input: a clear error, a code that is not 0, and no rank waits.

use std::fs;
use std::path::Path;

use libtest_mimic::{Failed, Trial};

use crate::command::{Job, Outcome};

const MATRIX: &str = "%%MatrixMarket matrix coordinate real general\n\
                      % a comment\n3 2 4\n1 1 2.5\n2 1 -1\n3 2 1e2\n2 2 0.5\n";
const RHS: &str = "%%MatrixMarket matrix array real general\n3 1\n1\n2\n3\n";

/// The case's name, what replaces what in the matrix file, and the texts that the error must
/// contain.
const BROKEN: [(&str, [&str; 2], &[&str]); 20] = [
    (
        "banner",
        ["%%MatrixMarket", "%%Matrix"],
        &["A.mtx`, line 1: begins with `%%Matrix matrix"],
    ),
    (
        "empty_file",
        [MATRIX, ""],
        &["A.mtx`, line 1: begins with ``"],
    ),
    (
        "format",
        ["coordinate", "array"],
        &["line 1: the format is `array`, not `coordinate`"],
    ),
    (
        "symmetry",
        ["general", "symmetric"],
        &["`real symmetric` cannot be read", "convert the file"],
    ),
    (
        "complex",
        ["real", "complex"],
        &["`complex general` cannot be read here"],
    ),
    (
        "no_sizes",
        ["3 2 4\n1 1 2.5\n2 1 -1\n3 2 1e2\n2 2 0.5\n", ""],
        &["ends before the line with"],
    ),
    (
        "two_sizes",
        ["3 2 4", "3 2"],
        &["line 3: `3 2` is not rows, columns and entries"],
    ),
    (
        "negative_size",
        ["3 2 4", "3 -2 4"],
        &["line 3: `-2` is not a number of rows"],
    ),
    ("size_0", ["3 2 4", "3 0 4"], &["line 3: `3 0 4` has a 0"]),
    (
        "too_many_rows",
        ["3 2 4", "5000000000 2 4"],
        &["5000000000 rows are too many"],
    ),
    (
        "too_many_entries",
        ["3 2 4", "3 2 7"],
        &["7 entries cannot be in a matrix of 3 × 2"],
    ),
    (
        "larger_than_the_file",
        ["3 2 4", "4000000000 2 5000000000"],
        &["promises 5000000000 entries, more"],
    ),
    (
        "row_out_of_range",
        ["3 2 1e2", "4 2 1e2"],
        &["line 6: row 4 is outside of 1 to 3"],
    ),
    (
        "column_0",
        ["3 2 1e2", "3 0 1e2"],
        &["line 6: column 0 is outside of 1 to 2"],
    ),
    (
        "missing_lines",
        ["3 2 1e2\n2 2 0.5\n", ""],
        &["A.mtx`: ends after 2 of 4 entries"],
    ),
    (
        "cut_line",
        ["2 2 0.5", "2 2"],
        &["line 7: `2 2` is not row, column and value"],
    ),
    (
        "extra_line",
        ["2 2 0.5", "2 2 0.5\n3 1 1"],
        &["line 8: `3 1 1` comes after the last of 4"],
    ),
    (
        "nan",
        ["1e2", "NaN"],
        &["line 6: the value `NaN` is not finite"],
    ),
    (
        "infinite",
        ["1e2", "1e999"],
        &["line 6: the value `1e999` is not finite"],
    ),
    (
        "not_a_number",
        ["1e2", "ten"],
        &["line 6: `ten` is not a value"],
    ),
];

/// As above, for problems that have no unique solution or whose sizes do not fit.
const UNFIT: [(&str, [&str; 2], &[&str]); 4] = [
    (
        "twice",
        ["2 2 0.5", "2 1 0.5"],
        &["row 2, column 1 has two entries"],
    ),
    (
        "wide",
        ["3 2 4", "3 4 4"],
        &["3 rows and 4 columns", "no unique solution"],
    ),
    (
        "empty_column",
        ["3 2 4", "3 3 4"],
        &["column 3 has no entries"],
    ),
    (
        "other_rhs",
        ["3 2 4", "4 2 4"],
        &["matrix has 4 rows, the right-hand side 3"],
    ),
];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, [from, to], says) in BROKEN.into_iter().chain(UNFIT) {
        trials.push(Trial::test(format!("broken_matrix_{name}"), move || {
            // A typing error in this table must not pass for an error found in the file.
            assert!(MATRIX.contains(from), "`{from}` is not in the matrix");
            refused(&MATRIX.replacen(from, to, 1), RHS, says)
        }));
    }
    trials.push(Trial::test("the_unbroken_matrix_is_read", unbroken));
    trials.push(Trial::test("broken_rhs", || {
        let wide = RHS.replace("3 1\n", "3 2\n");
        refused(
            MATRIX,
            &wide,
            &["b.mtx`, line 2: a vector has 1 column, not 2"],
        )?;
        refused(
            MATRIX,
            &RHS.replace("3\n", "\n"),
            &["b.mtx`: ends after 2 of 3 entries"],
        )?;
        refused(
            MATRIX,
            &RHS.replace("2\n", "2 5\n"),
            &["b.mtx`, line 4: `2 5` is not a value"],
        )
    }));
    trials.push(Trial::test("missing_matrix", missing));
    trials.push(Trial::test("wrong_options", wrong_options));
    trials.push(Trial::test("heat_too_small_for_its_ranks", too_small));
    trials.push(Trial::test(
        "heat_without_a_place_for_its_picture",
        no_place,
    ));
    trials.push(Trial::test("adi_programs_alone", alone));
    trials.push(Trial::test("sample_sort_of_what_is_no_number", no_number));
    trials.push(Trial::test("more_ranks_than_rows", more_ranks_than_rows));
    trials
}

/// Runs `least_squares` on three ranks with these files.
fn solve(matrix: &str, rhs: &str) -> Result<Outcome, Failed> {
    let folder = tempfile::tempdir()?;
    let file = |name| folder.path().join(name);
    fs::write(file("A.mtx"), matrix)?;
    fs::write(file("b.mtx"), rhs)?;
    let job = Job::new("least_squares", 3).option("--matrix", file("A.mtx"));
    Ok(job.option("--rhs", file("b.mtx")).run())
}

fn refused(matrix: &str, rhs: &str, says: &[&str]) -> Result<(), Failed> {
    let outcome = solve(matrix, rhs)?.failed(1, &["error: rank 0: ", "; "])?;
    assert_eq!(outcome.out, "");
    outcome.failed(1, says).map(drop)
}

fn unbroken() -> Result<(), Failed> {
    solve(MATRIX, RHS)?.succeeded()?;
    // Spaces, empty lines and the end of the last line do not matter.
    let matrix = MATRIX.replace('\n', " \r\n\r\n");
    solve(matrix.trim_end(), RHS)?.succeeded().map(drop)
}

fn missing() -> Result<(), Failed> {
    let nowhere = Path::new("/no/such/folder/A.mtx");
    let job = || {
        let job = Job::new("least_squares", 4).option("--matrix", nowhere);
        job.option("--rhs", nowhere)
    };
    let says = [
        "error: rank 0: `/no/such/folder/A.mtx`: cannot be read: No such file",
        "give the name",
    ];
    job().run().failed(1, &says)?;
    // The other ranks wait for data that rank 0 will never send, and learn why.
    let outcome = job().ranks_go_on().run().failed(1, &says)?;
    outcome
        .failed(1, &["error: rank 1", "world rank 0 has failed"])
        .map(drop)
}

fn wrong_options() -> Result<(), Failed> {
    let job = Job::new("least_squares", 2).option("--matrix", "A.mtx");
    job.run().failed(2, &["--rhs <FILE>"])?;
    let job = Job::new("heat", 2).option("--size", "-3");
    job.run().failed(2, &["-3"])?;
    let job = Job::new("heat", 2).option("--size", "4000000000");
    job.run().failed(2, &["4000000000 is not in 1..=16384"])?;
    for name in ["least_squares", "poisson"] {
        for wrong in ["nan", "inf", "-inf", "-1e-9", "0", "1e-999"] {
            let job = Job::new(name, 2).option("--tolerance", wrong);
            let says = [
                wrong,
                "--tolerance",
                "finite number above 0",
                "such as 1e-10",
            ];
            job.run().failed(2, &says)?;
        }
        let job = Job::new(name, 2).option("--tolerance", "small");
        job.run().failed(2, &["small", "it is no number"])?;
    }
    // A tolerance below what rounding allows.
    let job = Job::new("least_squares", 2).option("--tolerance", "1e-300");
    let says = ["rank 0: stopped at", "raise --tolerance"];
    job.run().failed(1, &says).map(drop)
}

fn too_small() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let job = Job::new("heat", 5).option("--size", "4");
    let job = job.option("--output", folder.path().join("heat.png"));
    let says = [
        "a grid of 4 × 4 points cannot be cut into 1 × 5 blocks",
        "choose a size of 5",
    ];
    job.run().failed(1, &says).map(drop)
}

fn no_place() -> Result<(), Failed> {
    let job = Job::new("heat", 4).option("--output", "/no/such/folder/heat.png");
    let says = [
        "error: rank 0: cannot write `/no/such/folder/heat.png`",
        "give another --output",
    ];
    job.run().failed(1, &says).map(drop)
}

fn alone() -> Result<(), Failed> {
    for program in ["adi_blocking", "adi_nonblocking"] {
        let says = ["rank 0: a job of 1 rank; start 2 ranks or more"];
        Job::new(program, 1).run().failed(1, &says)?;
    }
    Ok(())
}

fn no_number() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("numbers.txt");
    fs::write(&file, "3\n\n-4x\n")?;
    let job = Job::new("sample_sort", 3).option("--input", &file);
    let says = "numbers.txt`, line 3: `-4x` is not a whole number of 64 bits";
    job.run().failed(1, &["rank 0: ", says]).map(drop)
}

fn more_ranks_than_rows() -> Result<(), Failed> {
    for program in ["poisson", "fft2"] {
        let outcome = Job::new(program, 4).option("--size", "3").run();
        let says = "3 rows cannot be shared by 4 ranks; take a larger --size, or fewer ranks";
        outcome.failed(1, &[says])?;
    }
    Ok(())
}
