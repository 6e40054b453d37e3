//! Tables of `sacct`, `sacctmgr`, `sshare` and `sreport`. They have a line of dashes and a plus after
//! truncated texts, or separators between values.

use spur_core::text::nearest::nearest;
use spur_proto::v1::AccountingRow;

use super::Show;
use super::fields::accounting::FIELDS;
use super::value::printable;

/// A column of reports.
pub struct Column<R: 'static> {
    /// Name of the column; case is ignored, and a prefix suffices.
    pub name: &'static str,
    /// Header of the column.
    pub header: &'static str,
    /// Width in characters; negative for left-aligned texts.
    pub width: isize,
    /// Returns the text of one row.
    pub text: fn(&R, &Show) -> String,
}

impl<R> Clone for Column<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Column<R> {}

/// Error in a list of fields.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// No field's name begins with this name.
    #[error("Invalid field requested: \"{name}\"{}", nearest.map(|n| format!("; did you mean {n}?")).unwrap_or_default())]
    Field {
        /// The unknown name.
        name: String,
        /// Most similar field, if any.
        nearest: Option<&'static str>,
    },
    /// A width that is not a number.
    #[error("Invalid width in \"{0}\"; write e.g. jobname%30 or jobname%-30")]
    Width(String),
}

/// Separation of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Aligned columns.
    Columns,
    /// Values with a delimiter between them.
    Delimited {
        /// Text between values.
        delimiter: String,
        /// True if the delimiter also ends each line.
        closed: bool,
    },
}

/// Columns of a report: fields with their widths, which are negative for left-aligned texts.
pub struct Report<R: 'static> {
    columns: Vec<(Column<R>, isize)>,
}

impl Report<AccountingRow> {
    /// Parses a list of accounting fields; see [`Report::of`].
    ///
    /// # Errors
    /// An unknown name or an invalid width.
    pub fn parse(text: &str) -> Result<Self, ReportError> {
        Report::of(FIELDS, text)
    }
}

impl<R> Report<R> {
    /// Parses a comma-separated list of `name[%[-]width]`; `ALL` stands for every field.
    ///
    /// # Errors
    /// An unknown name or an invalid width.
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

    /// Returns the report of all rows, each line terminated.
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

/// Fits `text` into its column; a plus replaces the last character of a truncated text.
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

/// Returns the names of all fields, four per line, as `--helpformat` lists them.
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
