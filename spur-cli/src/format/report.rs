//! The tables of `sacct`, `sacctmgr`, `sshare` and `sreport`: a line of dashes, a plus where a text is cut, or values with bars between.

use spur_core::text::nearest::nearest;
use spur_proto::v1::AccountingRow;

use super::Show;
use super::fields::accounting::FIELDS;
use super::value::printable;

/// A column that a report can have.
pub struct Column<R: 'static> {
    /// The name, matched without regard to case, also by its beginning.
    pub name: &'static str,
    /// What stands above it.
    pub header: &'static str,
    /// Its characters; negative for texts that stand at the left.
    pub width: isize,
    /// The text of one row.
    pub text: fn(&R, &Show) -> String,
}

impl<R> Clone for Column<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Column<R> {}

/// A list of fields that cannot be printed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// A name that no field begins with.
    #[error("Invalid field requested: \"{name}\"{}", nearest.map(|n| format!("; did you mean {n}?")).unwrap_or_default())]
    Field {
        /// The name.
        name: String,
        /// A field that is like it.
        nearest: Option<&'static str>,
    },
    /// A width that is no number.
    #[error("Invalid width in \"{0}\"; write e.g. jobname%30 or jobname%-30")]
    Width(String),
}

/// How values are separated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// In columns.
    Columns,
    /// With this between them, and behind the last one if `closed`.
    Delimited {
        /// What stands between values.
        delimiter: String,
        /// Whether it also ends lines.
        closed: bool,
    },
}

/// The columns of a report: fields with their widths, negative where texts stand at the left.
pub struct Report<R: 'static> {
    columns: Vec<(Column<R>, isize)>,
}

impl Report<AccountingRow> {
    /// A report of accounting: see [`Report::of`].
    ///
    /// # Errors
    /// A name that is none, a width that is none.
    pub fn parse(text: &str) -> Result<Self, ReportError> {
        Report::of(FIELDS, text)
    }
}

impl<R> Report<R> {
    /// Reads `name[%[-]width]` with commas between; `ALL` stands for every field.
    ///
    /// # Errors
    /// A name that is none, a width that is none.
    pub fn of(fields: &[Column<R>], text: &str) -> Result<Report<R>, ReportError> {
        let mut columns = Vec::new();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, width) =
                item.split_once('%').map_or((item, None), |(name, width)| (name, Some(width)));
            if name.eq_ignore_ascii_case("all") {
                columns.extend(fields.iter().map(|field| (*field, field.width)));
                continue;
            }
            let begins = |field: &&Column<R>| {
                field.name.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
            };
            let field = fields.iter().find(begins).ok_or_else(|| ReportError::Field {
                name: name.to_owned(),
                nearest: nearest(name, fields.iter().map(|field| field.name)),
            })?;
            let width = match width {
                None => field.width,
                Some(text) => {
                    let width =
                        text.parse().ok().filter(|width: &isize| *width != 0 && width.abs() < 1 << 16);
                    width.ok_or_else(|| ReportError::Width(item.to_owned()))?
                }
            };
            columns.push((*field, width));
        }
        Ok(Report { columns })
    }

    /// All rows, each line ended.
    pub fn render(&self, rows: &[R], layout: &Layout, with_header: bool, show: &Show) -> String {
        let mut out = String::new();
        if with_header {
            self.line(&mut out, layout, |field, width| {
                field.header.chars().take(width.unsigned_abs()).collect()
            });
            if *layout == Layout::Columns {
                self.line(&mut out, layout, |_, width| "-".repeat(width.unsigned_abs()));
            }
        }
        for row in rows {
            self.line(&mut out, layout, |field, _| printable((field.text)(row, show)));
        }
        out
    }

    fn line(&self, out: &mut String, layout: &Layout, text: impl Fn(&Column<R>, isize) -> String) {
        match layout {
            Layout::Columns => {
                for (field, width) in &self.columns {
                    out.push_str(&column(&text(field, *width), *width));
                    out.push(' ');
                }
            }
            Layout::Delimited { delimiter, closed } => {
                let values: Vec<_> =
                    self.columns.iter().map(|(field, _)| text(field, isize::from(i16::MAX))).collect();
                out.push_str(&values.join(delimiter));
                if *closed {
                    out.push_str(delimiter);
                }
            }
        }
        out.push('\n');
    }
}

/// `text` in its column, with a plus as the last character if it is cut.
fn column(text: &str, width: isize) -> String {
    let places = width.unsigned_abs();
    let cut: String;
    let text = if text.chars().count() > places {
        cut = text.chars().take(places - 1).chain(['+']).collect();
        &cut
    } else {
        text
    };
    if width < 0 { format!("{text:<places$}") } else { format!("{text:>places$}") }
}

/// The names of all fields, four in a line, as `--helpformat` lists them.
pub fn help() -> String {
    let mut out = String::new();
    for fields in FIELDS.chunks(4) {
        let line: String = fields.iter().map(|field| format!("{:<19} ", field.name)).collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_cuts_with_a_plus_and_pads() {
        let table = [
            ("a-very-long-job-name", 10, "a-very-lo+"),
            ("short", 10, "     short"),
            ("short", -7, "short  "),
            ("toolong", -3, "to+"),
        ];
        for (text, width, wanted) in table {
            assert_eq!(column(text, width), wanted);
        }
    }

    #[test]
    fn fields_are_found_by_their_beginning() {
        let names = |text: &str| -> Vec<_> {
            let report = Report::parse(text).unwrap();
            report.columns.iter().map(|(field, width)| (field.name, *width)).collect()
        };
        assert_eq!(
            names("jobid,Elap,jobn%30,st%-5"),
            [("JobID", -12), ("Elapsed", 10), ("JobName", 30), ("Start", -5)]
        );
        assert_eq!(names("all").len(), FIELDS.len());
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        let error = Report::parse("jobid,stat").err();
        assert_eq!(error, None);
        let error = Report::parse("jobid,statee").err().unwrap();
        assert_eq!(error.to_string(), "Invalid field requested: \"statee\"; did you mean State?");
        assert_eq!(Report::parse("jobid%x").err(), Some(ReportError::Width("jobid%x".into())));
        assert_eq!(Report::parse("jobid%0").err(), Some(ReportError::Width("jobid%0".into())));
    }
}
