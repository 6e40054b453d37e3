//! Tables that Slurm's commands print with `-P`: a header, then one row on each line.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};

/// A table with its columns.
pub(super) struct Table {
    /// Name of the file without its directory, for messages.
    name: String,
    columns: Vec<String>,
    /// The rows with as many values as there are columns.
    pub(super) rows: Vec<Row>,
    /// Sentences about lines that are not rows.
    pub(super) notes: Vec<String>,
}

/// A row of a table.
pub(super) struct Row {
    /// Number of the line in the file; the header is line 1.
    pub(super) line: usize,
    values: Vec<String>,
}

impl Table {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read, or that lacks a header or one of the required columns. `command` is the
    /// command that writes such a file.
    pub(super) fn read(path: &Path, required: &[&str], command: &str) -> anyhow::Result<Table> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let table = Table::parse(name, &String::from_utf8_lossy(&bytes));
        let lacks = |column: &&&str| table.column(column).is_none();
        let missing: Vec<&str> = required.iter().filter(lacks).copied().collect();
        if !missing.is_empty() {
            let (name, missing) = (&table.name, missing.join(", "));
            bail!("{name}:1: the header lacks the columns {missing}; the file is written by: {command}");
        }
        Ok(table)
    }

    /// Parses a table. The delimiter is the text between the first two names of the header.
    fn parse(name: String, text: &str) -> Table {
        let mut lines = (1..).zip(text.lines());
        let header = lines.next().map_or("", |(_, header)| header);
        let behind_first = header.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
        let after = behind_first.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
        let delimiter = &behind_first[..behind_first.len() - after.len()];
        let split = |line: &str| -> Vec<String> {
            // With -p the delimiter also ends the line.
            let line = line.strip_suffix(delimiter).filter(|_| header.ends_with(delimiter)).unwrap_or(line);
            match delimiter {
                "" => vec![line.to_owned()],
                _ => line.split(delimiter).map(str::to_owned).collect(),
            }
        };
        let columns = split(header);
        let (mut rows, mut notes) = (Vec::new(), Vec::new());
        for (line, text) in lines.filter(|(_, text)| !text.is_empty()) {
            let values = split(text);
            if values.len() == columns.len() {
                rows.push(Row { line, values });
            } else {
                let (has, wanted) = (values.len(), columns.len());
                notes.push(format!(
                    "{name}:{line}: left out: the line has {has} values where the header has {wanted}; a value contains \
                     the delimiter or a line break"
                ));
            }
        }
        Table { name, columns, rows, notes }
    }

    /// Returns the names of the columns.
    pub(super) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Returns the position of a column; `None` if the table lacks it.
    fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.eq_ignore_ascii_case(name))
    }

    /// Returns the value of a row in a column, without spaces around it; empty if the table lacks the
    /// column.
    pub(super) fn value<'r>(&self, row: &'r Row, column: &str) -> &'r str {
        self.column(column).and_then(|at| row.values.get(at)).map_or("", |value| value.trim())
    }

    /// True if the table has a column of this name.
    pub(super) fn has(&self, column: &str) -> bool {
        self.column(column).is_some()
    }

    /// Returns the place of a line, for messages.
    pub(super) fn place(&self, line: usize) -> String {
        format!("{}:{line}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delimiters_are_those_of_the_header() {
        for (text, wanted) in [
            ("A|B\nx| y \n", ["x", "y"]),
            ("A|B|\nx|y|\n", ["x", "y"]),
            ("A\u{1f}B\nx|1\u{1f}y\n", ["x|1", "y"]),
            ("A, B\nx, \n", ["x", ""]),
        ] {
            let table = Table::parse("t".to_owned(), text);
            let row = &table.rows[0];
            assert_eq!([table.value(row, "a"), table.value(row, "b")], wanted, "{text:?}");
            assert_eq!((row.line, table.notes.len()), (2, 0), "{text:?}");
        }
    }

    #[test]
    fn broken_lines_are_named() {
        let table = Table::parse("t".to_owned(), "A|B\nx\ny|z\nb|c|d\n");
        assert_eq!(table.rows.iter().map(|row| row.line).collect::<Vec<_>>(), [3]);
        assert!(
            table.notes[0].starts_with("t:2: ") && table.notes[1].starts_with("t:4: "),
            "{:?}",
            table.notes
        );
    }
}
