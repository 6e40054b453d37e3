//! Which columns are printed, and how wide: `%[.][width]X` strings and lists of long names.

use spur_core::text::nearest::nearest;

use super::field::{Field, by_letter, by_name};

/// The width of a column that is picked by its long name without a width.
const NAMED_WIDTH: usize = 20;

/// A format that names something that is not there.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// `%` before something that is no field.
    #[error("Invalid {records} format specification: {spec}; the letters are {known}")]
    Letter {
        /// What is printed: `job`, `node`.
        records: &'static str,
        /// From the `%` on.
        spec: String,
        /// All letters there are.
        known: String,
    },
    /// A long name that is none.
    #[error("Invalid {records} format specification: {name}{}", suggestion(nearest))]
    Name {
        /// What is printed.
        records: &'static str,
        /// The name.
        name: String,
        /// A name that is like it.
        nearest: Option<&'static str>,
    },
    /// A width that is no number.
    #[error("Invalid {records} format specification: {0} has no usable width, write e.g. {1}:20 or {1}:.20",
        spec, spec.split(':').next().unwrap_or_default())]
    Width {
        /// What is printed.
        records: &'static str,
        /// The name with its width.
        spec: String,
    },
}

fn suggestion(nearest: &Option<&'static str>) -> String {
    nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

/// How columns were chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Columns {
    /// By `-o`.
    Letters(String),
    /// By `-O`.
    Names(String),
}

impl Columns {
    /// The columns of `table` that are meant; `records` says what is printed.
    ///
    /// # Errors
    /// What names no field.
    pub fn read<R>(
        &self,
        table: &'static [Field<R>],
        records: &'static str,
    ) -> Result<Format<R>, FormatError> {
        match self {
            Columns::Letters(text) => Format::letters(text, table, records),
            Columns::Names(text) => Format::names(text, table, records),
        }
    }
}

/// One column of a table.
pub struct Column<R: 'static> {
    /// What it shows.
    pub field: &'static Field<R>,
    /// The exact number of characters; `None`: as many as the text has.
    pub width: Option<usize>,
    /// Whether the text stands at the right.
    pub right: bool,
    /// What is printed behind it in every line.
    pub suffix: String,
}

/// The columns of a table, in order.
pub struct Format<R: 'static> {
    /// What is printed before the first column.
    pub prefix: String,
    /// The columns.
    pub columns: Vec<Column<R>>,
}

impl<R> Format<R> {
    /// Reads `%[.][width]X` with the letters of `table`; `%all` stands for all of them, with bars between.
    ///
    /// # Errors
    /// [`FormatError::Letter`] for a `%` without a known letter; `records` says what is printed.
    pub fn letters(
        text: &str,
        table: &'static [Field<R>],
        records: &'static str,
    ) -> Result<Format<R>, FormatError> {
        let (prefix, rest) = text.split_once('%').map_or((text, None), |(prefix, rest)| (prefix, Some(rest)));
        let mut columns = Vec::new();
        for item in rest.into_iter().flat_map(|rest| rest.split('%')) {
            if let Some(suffix) = item.strip_prefix("all") {
                columns.extend(Format::all(table, suffix));
                continue;
            }
            let (right, spec) = item.strip_prefix('.').map_or((false, item), |spec| (true, spec));
            let digits = spec.bytes().take_while(u8::is_ascii_digit).count();
            let (width, spec) = spec.split_at(digits);
            let letter = spec.chars().next();
            let field = letter.and_then(|letter| by_letter(table, letter));
            let (Some(letter), Some(field)) = (letter, field) else {
                let known = table.iter().filter_map(|field| field.letter).collect();
                return Err(FormatError::Letter { records, spec: format!("%{item}"), known });
            };
            let width = width.parse().ok().filter(|&width| width > 0);
            let suffix = spec[letter.len_utf8()..].to_owned();
            columns.push(Column { field, width, right, suffix });
        }
        Ok(Format { prefix: prefix.to_owned(), columns })
    }

    fn all(table: &'static [Field<R>], suffix: &str) -> Vec<Column<R>> {
        let lettered = table.iter().filter(|field| field.letter.is_some());
        let mut columns: Vec<_> = lettered
            .map(|field| Column { field, width: None, right: false, suffix: "|".to_owned() })
            .collect();
        if let Some(last) = columns.last_mut() {
            suffix.clone_into(&mut last.suffix);
        }
        columns
    }

    /// Reads `name[:[.][width][suffix]]` with commas between; without a colon a column is 20 wide.
    ///
    /// # Errors
    /// [`FormatError::Name`] for a name that `table` does not have.
    pub fn names(
        text: &str,
        table: &'static [Field<R>],
        records: &'static str,
    ) -> Result<Format<R>, FormatError> {
        let column = |item: &str| {
            let (name, size) = item.split_once(':').map_or((item, None), |(name, size)| (name, Some(size)));
            let field = by_name(table, name).ok_or_else(|| FormatError::Name {
                records,
                name: name.to_owned(),
                nearest: nearest(name, table.iter().map(|field| field.name)),
            })?;
            let Some(size) = size else {
                let suffix = String::new();
                return Ok(Column { field, width: Some(NAMED_WIDTH), right: false, suffix });
            };
            let (right, size) = size.strip_prefix('.').map_or((false, size), |size| (true, size));
            let digits = size.bytes().take_while(u8::is_ascii_digit).count();
            let (width, suffix) = size.split_at(digits);
            let too_wide = |_| FormatError::Width { records, spec: item.to_owned() };
            let width: usize = if width.is_empty() { 0 } else { width.parse().map_err(too_wide)? };
            let width = Some(width).filter(|&width| width > 0);
            Ok(Column { field, width, right, suffix: suffix.to_owned() })
        };
        let columns = text.split(',').map(column).collect::<Result<_, _>>()?;
        Ok(Format { prefix: String::new(), columns })
    }

    /// Whether a field of this long name is printed.
    pub fn shows(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.field.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::fields::job;

    fn shape(format: Result<Format<job::Row>, FormatError>) -> String {
        let format = match format {
            Ok(format) => format,
            Err(error) => return error.to_string(),
        };
        let column = |c: &Column<_>| {
            let right = if c.right { "." } else { "" };
            format!("{right}{}{}'{}'", c.width.unwrap_or_default(), c.field.name, c.suffix)
        };
        format!("'{}'", format.prefix) + &format.columns.iter().map(column).collect::<String>()
    }

    #[test]
    fn letters_take_a_width_and_what_follows_them() {
        let table = [
            ("%.18i %.9P %R", "''.18JobArrayID' '.9Partition' '0ReasonList''"),
            ("x%5jy|%t", "'x'5Name'y|'0StateCompact''"),
            ("plain", "'plain'"),
            ("", "''"),
            ("%0j", "''0Name''"),
        ];
        for (text, wanted) in table {
            assert_eq!(shape(Format::letters(text, job::FIELDS, "job")), wanted, "{text}");
        }
    }

    #[test]
    fn names_are_twenty_wide_unless_they_say_otherwise() {
        let table = [
            ("JobID,partition", "''20JobID''20Partition''"),
            ("jobid:5,name:.7,state:6x,reasonlist:", "''5JobID''.7Name''6State'x'0ReasonList''"),
        ];
        for (text, wanted) in table {
            assert_eq!(shape(Format::names(text, job::FIELDS, "job")), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_field_is_refused() {
        for text in ["%!", "%", "%.5", "%5 %j", "%%i"] {
            let error = shape(Format::letters(text, job::FIELDS, "job"));
            assert!(error.starts_with("Invalid job format specification: %"), "{text}: {error}");
        }
        assert_eq!(
            shape(Format::names("jobid,partitoin", job::FIELDS, "job")),
            "Invalid job format specification: partitoin; did you mean Partition?"
        );
        let wide = shape(Format::names("name:99999999999999999999999", job::FIELDS, "job"));
        assert!(wide.contains("no usable width"), "{wide}");
    }

    #[test]
    fn all_has_bars_between_the_fields_only() {
        let format = Format::letters("%all.", job::FIELDS, "job").unwrap();
        let (last, others) = format.columns.split_last().unwrap();
        assert!(others.iter().all(|column| column.suffix == "|"));
        assert_eq!(last.suffix, ".");
    }
}
