//! Lays out records in columns as Slurm does: long texts are truncated, short ones padded.

use super::field::Show;
use super::spec::{Column, Format};
use super::value::printable;

/// Returns the line of headers, without a newline.
pub fn header<R>(format: &Format<R>) -> String {
    assemble(format, |column| column.field.header.to_owned())
}

/// Returns the line of one record, without a newline.
pub fn line<R>(format: &Format<R>, record: &R, show: &Show) -> String {
    assemble(format, |column| printable((column.field.text)(record, show)))
}

/// Returns the headers and the lines of all records, each terminated.
pub fn render<'a, R>(
    format: &Format<R>,
    records: impl IntoIterator<Item = &'a R>,
    with_header: bool,
    show: &Show,
) -> String {
    let mut out = String::new();
    let lines = records.into_iter().map(|record| line(format, record, show));
    for line in with_header.then(|| header(format)).into_iter().chain(lines) {
        out.push_str(&line);
        out.push('\n');
    }
    out
}

fn assemble<R>(format: &Format<R>, text: impl Fn(&Column<R>) -> String) -> String {
    let mut line = format.prefix.clone();
    for column in &format.columns {
        let text = text(column);
        let never_cut = column.field.span && text.starts_with(|c: char| c.is_ascii_digit());
        let width = column.width.map(|width| if never_cut { width.max(text.len()) } else { width });
        line.push_str(&fit(&text, width, column.right));
        line.push_str(&column.suffix);
    }
    line
}

/// Fits `text` into exactly `width` characters, aligned right or left; `None` leaves it unchanged.
pub fn fit(text: &str, width: Option<usize>, right: bool) -> String {
    match width {
        None => text.to_owned(),
        Some(width) if right => format!("{text:>width$.width$}"),
        Some(width) => format!("{text:<width$.width$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_padded_and_cut_by_characters() {
        let table = [
            ("abc", None, true, "abc"),
            ("abc", Some(5), true, "  abc"),
            ("abc", Some(5), false, "abc  "),
            ("abcdef", Some(3), true, "abc"),
            ("abcdef", Some(3), false, "abc"),
            ("größer", Some(4), false, "größ"),
        ];
        for (text, width, right, wanted) in table {
            assert_eq!(fit(text, width, right), wanted);
        }
    }
}
