//! A strict reader of Matrix Market files: anything wrong is an error that names the file, the
//! line, the value and what to do.
//!
//! It reads `coordinate` and `array` files of `real` or `integer` values without symmetry
//! (`general`), the usual form of least squares problems.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::Entry;

/// A sparse matrix: its shape, and its entries in the order of the file.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Matrix {
    /// Number of rows.
    pub rows: u32,
    /// Number of columns.
    pub columns: u32,
    /// Entries, each place at most once.
    pub entries: Vec<Entry>,
}

/// What is wrong with a file, and what to do about it.
#[derive(Clone, Debug)]
pub struct FileError {
    path: PathBuf,
    /// Counted from 1; `None` for the file as a whole.
    line: Option<usize>,
    what: String,
    remedy: &'static str,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}; {}", self.what, self.remedy)
    }
}

impl std::error::Error for FileError {}

/// Reads a `coordinate` file.
///
/// # Errors
/// If the file cannot be read, or is not valid.
pub fn read_matrix(path: &Path) -> Result<Matrix, FileError> {
    let text = read(path)?;
    let mut file = Lines::open(path, &text, "coordinate")?;
    let [rows, columns, promised] = file.sizes("rows, columns and entries")?;
    let index = |size: u64, what| u32::try_from(size).map_err(|_| file.too_large(what, size));
    let (rows, columns) = (index(rows, "rows")?, index(columns, "columns")?);
    if promised > u64::from(rows) * u64::from(columns) {
        let what = format!("{promised} entries cannot be in a matrix of {rows} × {columns}");
        return Err(file.error(what, "correct the sizes"));
    }
    let mut entries = file.room(promised, 3)?;
    for number in 1..=promised {
        let [row, column, value] = file.words(number, promised)?;
        entries.push(Entry {
            row: file.index("row", row, rows)?,
            column: file.index("column", column, columns)?,
            value: file.value(value)?,
        });
    }
    file.end(promised)?;
    let matrix = Matrix {
        rows,
        columns,
        entries,
    };
    match matrix.twice() {
        None => Ok(matrix),
        Some(Entry { row, column, .. }) => {
            let what = format!("row {}, column {} has two entries", row + 1, column + 1);
            Err(FileError::whole(path, what, "keep one of them"))
        }
    }
}

/// Reads an `array` file of one column.
///
/// # Errors
/// If the file cannot be read, or is not valid.
pub fn read_vector(path: &Path) -> Result<Vec<f64>, FileError> {
    let text = read(path)?;
    let mut file = Lines::open(path, &text, "array")?;
    let [rows, columns] = file.sizes("rows and columns")?;
    if columns != 1 {
        let what = format!("a vector has 1 column, not {columns}");
        return Err(file.error(what, "give a file with one right-hand side"));
    }
    let mut values = file.room(rows, 1)?;
    for number in 1..=rows {
        let [value] = file.words(number, rows)?;
        values.push(file.value(value)?);
    }
    file.end(rows)?;
    Ok(values)
}

fn read(path: &Path) -> Result<String, FileError> {
    std::fs::read_to_string(path).map_err(|error| {
        let remedy = "give the name of a Matrix Market file that can be read";
        FileError::whole(path, format!("cannot be read: {error}"), remedy)
    })
}

impl FileError {
    fn whole(path: &Path, what: String, remedy: &'static str) -> Self {
        let path = path.to_owned();
        Self {
            path,
            line: None,
            what,
            remedy,
        }
    }
}

impl Matrix {
    /// An entry whose place has another entry, too.
    fn twice(&self) -> Option<Entry> {
        let mut places: Vec<_> = self.entries.iter().collect();
        places.sort_unstable_by_key(|entry| (entry.row, entry.column));
        let same =
            |pair: &&[&Entry]| (pair[0].row, pair[0].column) == (pair[1].row, pair[1].column);
        places.windows(2).find(same).map(|pair| *pair[0])
    }
}

/// The lines of a file, without comments and empty ones.
struct Lines<'a> {
    path: &'a Path,
    rest: std::iter::Enumerate<std::str::Lines<'a>>,
    bytes: usize,
    /// Number of the line read last, from 1.
    line: usize,
}

impl<'a> Lines<'a> {
    /// Checks the banner.
    fn open(path: &'a Path, text: &'a str, format: &str) -> Result<Self, FileError> {
        let mut rest = text.lines().enumerate();
        let banner = rest.next().map_or("", |(_, line)| line);
        let lines = Self {
            path,
            rest,
            bytes: text.len(),
            line: 1,
        };
        let words: Vec<_> = banner
            .split_whitespace()
            .map(str::to_ascii_lowercase)
            .collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let (kind, rest) = match words.as_slice() {
            ["%%matrixmarket", "matrix", kind, rest @ ..] => (*kind, rest),
            _ => {
                let what = format!(
                    "begins with {}, not with `%%MatrixMarket matrix`",
                    Short(banner)
                );
                return Err(lines.error(what, "give a Matrix Market file"));
            }
        };
        if kind != format {
            let what = format!("the format is {}, not `{format}`", Short(kind));
            return Err(lines.error(
                what,
                "the matrix is a coordinate file, the right-hand side an array file",
            ));
        }
        match rest {
            ["real" | "integer", "general"] => Ok(lines),
            _ => {
                let what = format!("{} cannot be read here", Short(&rest.join(" ")));
                Err(lines.error(what, "convert the file to `real general`"))
            }
        }
    }

    /// The next line that is neither empty nor, before the sizes, a comment.
    fn next(&mut self, comments: bool) -> Option<&'a str> {
        for (at, line) in self.rest.by_ref() {
            self.line = at + 1;
            if !(line.trim().is_empty() || comments && line.starts_with('%')) {
                return Some(line);
            }
        }
        None
    }

    fn sizes<const N: usize>(&mut self, names: &str) -> Result<[u64; N], FileError> {
        let Some(line) = self.next(true) else {
            let what = format!("ends before the line with the numbers of {names}");
            return Err(FileError::whole(
                self.path,
                what,
                "get a complete copy of the file",
            ));
        };
        let words = self.split::<N>(line, names)?;
        let mut sizes = [0; N];
        for (size, word) in sizes.iter_mut().zip(words) {
            *size = self.parse(word, "a number of rows, columns or entries")?;
        }
        if sizes.contains(&0) {
            return Err(self.error(
                format!("{} has a 0", Short(line)),
                "give a problem that is not empty",
            ));
        }
        Ok(sizes)
    }

    /// The words of entry `number` of `promised`.
    fn words<const N: usize>(
        &mut self,
        number: u64,
        promised: u64,
    ) -> Result<[&'a str; N], FileError> {
        let Some(line) = self.next(false) else {
            let what = format!("ends after {} of {promised} entries", number - 1);
            return Err(FileError::whole(
                self.path,
                what,
                "get a complete copy of the file",
            ));
        };
        self.split(
            line,
            if N == 1 {
                "a value"
            } else {
                "row, column and value"
            },
        )
    }

    fn split<const N: usize>(&self, line: &'a str, names: &str) -> Result<[&'a str; N], FileError> {
        let words: Vec<_> = line.split_whitespace().take(N + 1).collect();
        <[&str; N]>::try_from(words).map_err(|_| {
            let what = format!("{} is not {names}", Short(line));
            self.error(what, "correct the line")
        })
    }

    fn end(&mut self, promised: u64) -> Result<(), FileError> {
        match self.next(false) {
            None => Ok(()),
            Some(line) => {
                let what = format!("{} comes after the last of {promised} entries", Short(line));
                Err(self.error(what, "correct the number of entries, or remove the line"))
            }
        }
    }

    /// An empty vector with room for `promised` entries of `words` words, if the file is long
    /// enough to hold so many.
    fn room<T>(&self, promised: u64, words: u64) -> Result<Vec<T>, FileError> {
        // A word and its separator are two bytes at least; the last needs no separator.
        let possible = (self.bytes as u64 + 1) / (2 * words);
        let mut room = Vec::new();
        if promised > possible {
            let what = format!(
                "promises {promised} entries, more than its {} bytes can hold",
                self.bytes
            );
            return Err(self.error(
                what,
                "get a complete copy of the file, or correct the sizes",
            ));
        }
        let reserved = usize::try_from(promised).map(|count| room.try_reserve_exact(count));
        match reserved {
            Ok(Ok(())) => Ok(room),
            _ => Err(self.too_large("entries", promised)),
        }
    }

    fn index(&self, what: &str, word: &str, size: u32) -> Result<u32, FileError> {
        let index: u64 = self.parse(word, what)?;
        match u32::try_from(index) {
            Ok(index) if (1..=size).contains(&index) => Ok(index - 1),
            _ => {
                let what = format!("{what} {index} is outside of 1 to {size}");
                Err(self.error(what, "correct the entry, or the sizes"))
            }
        }
    }

    fn value(&self, word: &str) -> Result<f64, FileError> {
        let value: f64 = self.parse(word, "a value")?;
        if value.is_finite() {
            return Ok(value);
        }
        Err(self.error(
            format!("the value {} is not finite", Short(word)),
            "give numbers only",
        ))
    }

    fn parse<T: FromStr>(&self, word: &str, what: &str) -> Result<T, FileError> {
        word.parse().map_err(|_| {
            let what = format!("{} is not {what}", Short(word));
            self.error(what, "correct the line")
        })
    }

    fn too_large(&self, what: &str, size: u64) -> FileError {
        self.error(
            format!("{size} {what} are too many"),
            "give a smaller problem",
        )
    }

    fn error(&self, what: String, remedy: &'static str) -> FileError {
        FileError {
            line: Some(self.line),
            ..FileError::whole(self.path, what, remedy)
        }
    }
}

/// A piece of a file in quotes, cut if it is long.
struct Short<'a>(&'a str);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(40) {
            Some((end, _)) => write!(f, "`{}…`", self.0[..end].escape_debug()),
            None => write!(f, "`{}`", self.0.escape_debug()),
        }
    }
}
