//! Selection and widths of columns, from `%[.][width]X` strings and lists of long names.
//!
//! An unknown field causes a complaint and is printed literally, as with Slurm: a report without one column
//! is more useful than no report.

use spur_core::text::nearest::nearest;

use super::field::{Field, Table};

/// Width of a column selected by its long name without a width.
const NAMED_WIDTH: usize = 20;
/// Maximum width; a larger one is considered an error.
const WIDEST: usize = 1 << 16;

/// Specification of columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Columns {
    /// Letters, given by `-o`.
    Letters(String),
    /// Long names, given by `-O`.
    Names(String),
}

impl Columns {
    /// Returns the text of the specification.
    pub fn text(&self) -> &str {
        match self {
            Columns::Letters(text) | Columns::Names(text) => text,
        }
    }

    /// Selects the columns from `table`.
    pub fn read<R>(&self, table: &'static Table<R>) -> Format<R> {
        match self {
            Columns::Letters(text) => Format::letters(text, table),
            Columns::Names(text) => Format::names(text, table),
        }
    }
}

/// One column of a table.
pub struct Column<R: 'static> {
    /// Field of the column.
    pub field: &'static Field<R>,
    /// Exact number of characters; `None` for the length of each text.
    pub width: Option<usize>,
    /// True for right-aligned text.
    pub right: bool,
    /// Text printed after the column in every line.
    pub suffix: String,
}

/// Columns of a table, in order.
pub struct Format<R: 'static> {
    /// Text printed before the first column.
    pub prefix: String,
    /// The columns.
    pub columns: Vec<Column<R>>,
    /// Complaints about unknown fields, in Slurm's words.
    pub complaints: Vec<String>,
}

impl<R> Format<R> {
    /// Parses `%[.][width]X` with the letters of `table`. `%all` stands for all letters with bars between
    /// them. `%%` is `%`, and a trailing `%` is ignored.
    pub fn letters(text: &str, table: &'static Table<R>) -> Format<R> {
        let (prefix, rest) = text.split_once('%').map_or((text, None), |(prefix, rest)| (prefix, Some(rest)));
        let mut format = Format { prefix: prefix.to_owned(), columns: Vec::new(), complaints: Vec::new() };
        for item in rest.into_iter().flat_map(|rest| rest.split('%')).filter(|item| !item.is_empty()) {
            if let Some(suffix) = item.strip_prefix("all") {
                format.all(table, suffix);
                continue;
            }
            let (right, spec) = item.strip_prefix('.').map_or((false, item), |spec| (true, spec));
            let digits = spec.bytes().take_while(u8::is_ascii_digit).count();
            let (width, spec) = spec.split_at(digits);
            let letter = spec.chars().next();
            let Some((letter, field)) = letter.and_then(|letter| Some((letter, table.by_letter(letter)?)))
            else {
                let letter = letter.map(String::from).unwrap_or_default();
                format.complain(table, &letter, None);
                format.literal(&format!("%{item}"));
                continue;
            };
            let width = width.parse().ok().filter(|width| (1..=WIDEST).contains(width));
            let suffix = spec[letter.len_utf8()..].to_owned();
            format.columns.push(Column { field, width, right, suffix });
        }
        format
    }

    fn complain(&mut self, table: &Table<R>, what: &str, hint: Option<&str>) {
        let hint = hint.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
        self.complaints.push(format!("Invalid {} format specification: {what}{hint}", table.records));
    }

    /// Adds literal text to every line.
    fn literal(&mut self, text: &str) {
        match self.columns.last_mut() {
            Some(column) => column.suffix.push_str(text),
            None => self.prefix.push_str(text),
        }
    }

    fn all(&mut self, table: &'static Table<R>, suffix: &str) {
        let [small, capital, last] = table.bars;
        let column = |(letter, field): (char, &'static Field<R>)| {
            let suffix = if letter.is_ascii_uppercase() { capital } else { small };
            Column { field, width: None, right: false, suffix: suffix.to_owned() }
        };
        let mut columns: Vec<_> = table.lettered().into_iter().map(column).collect();
        if let Some(column) = columns.last_mut() {
            column.suffix = format!("{last}{suffix}");
        }
        self.columns.extend(columns);
    }

    /// Parses a comma-separated list of `name[:[.][width][suffix]]`. A column without a colon is 20
    /// characters wide, and empty items are ignored.
    pub fn names(text: &str, table: &'static Table<R>) -> Format<R> {
        let mut format = Format { prefix: String::new(), columns: Vec::new(), complaints: Vec::new() };
        for item in text.split(',').filter(|item| !item.is_empty()) {
            let (name, size) = item.split_once(':').map_or((item, None), |(name, size)| (name, Some(size)));
            if name.eq_ignore_ascii_case("all") {
                format.all(table, "");
                continue;
            }
            let Some(field) = table.by_name(name) else {
                let hint = nearest(name, table.fields.iter().map(|field| field.name));
                format.complain(table, name, hint);
                continue;
            };
            let (right, width, suffix) = match size {
                None => (false, Some(NAMED_WIDTH), ""),
                Some(size) => {
                    let (right, size) = size.strip_prefix('.').map_or((false, size), |size| (true, size));
                    let digits = size.bytes().take_while(u8::is_ascii_digit).count();
                    let (width, suffix) = size.split_at(digits);
                    (right, width.parse().ok().filter(|width| (1..=WIDEST).contains(width)), suffix)
                }
            };
            format.columns.push(Column { field, width, right, suffix: suffix.to_owned() });
        }
        format
    }

    /// True if the field with this long name is printed.
    pub fn shows(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.field.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::fields::job;

    fn shape(format: Format<job::Row>) -> String {
        let column = |c: &Column<_>| {
            let right = if c.right { "." } else { "" };
            format!("{right}{}{}'{}'", c.width.unwrap_or_default(), c.field.name, c.suffix)
        };
        let complaints = format.complaints.iter().map(|complaint| format!("; {complaint}"));
        let columns: String = format.columns.iter().map(column).collect();
        format!("'{}'{columns}{}", format.prefix, complaints.collect::<String>())
    }

    #[test]
    fn letters_take_a_width_and_what_follows_them() {
        let table = [
            ("%.18i %.9P %R", "''.18JobArrayID' '.9Partition' '0ReasonList''"),
            ("x%5jy|%t", "'x'5Name'y|'0StateCompact''"),
            ("plain", "'plain'"),
            ("", "''"),
            ("%0j", "''0Name''"),
            ("%%i", "''0JobArrayID''"),
            ("%i%", "''0JobArrayID''"),
        ];
        for (text, wanted) in table {
            assert_eq!(shape(Format::letters(text, &job::TABLE)), wanted, "{text}");
        }
    }

    #[test]
    fn names_are_twenty_wide_unless_they_say_otherwise() {
        let table = [
            ("JobID,partition", "''20JobID''20Partition''"),
            ("jobid:5,name:.7,state:6x,reasonlist:", "''5JobID''.7Name''6State'x'0ReasonList''"),
            (",jobid,,Tres,", "''20JobID''20tres-alloc''"),
            ("JobID:|,", "''0JobID'|'"),
            ("name:99999999999999999999999", "''0Name''"),
        ];
        for (text, wanted) in table {
            assert_eq!(shape(Format::names(text, &job::TABLE)), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_field_is_complained_of_and_printed_as_it_is() {
        let invalid = "Invalid job format specification: ";
        for (text, wanted) in [
            ("%!", format!("'%!'; {invalid}!")),
            ("%.5", format!("'%.5'; {invalid}")),
            ("%i|%5!", format!("''0JobArrayID'|%5!'; {invalid}!")),
        ] {
            assert_eq!(shape(Format::letters(text, &job::TABLE)), wanted, "{text}");
        }
        assert_eq!(
            shape(Format::names("jobid,partitoin", &job::TABLE)),
            format!("''20JobID''; {invalid}partitoin; did you mean Partition?")
        );
    }

    #[test]
    fn all_has_bars_between_the_fields_only() {
        let format = Format::letters("%all.", &job::TABLE);
        let (last, others) = format.columns.split_last().unwrap();
        assert!(others.iter().all(|column| column.suffix == "|"));
        assert_eq!((last.field.name, last.suffix.as_str()), ("WorkDir", "."));
        assert_eq!(format.columns[0].field.name, "Account");
    }
}
