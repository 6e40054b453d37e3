//! Lays out records in columns as Slurm does: a text that is too long is cut, one that is too short is padded.

use super::field::Show;
use super::spec::{Column, Format};
use super::value::printable;

/// The line of headers, without its end.
pub fn header<R>(format: &Format<R>) -> String {
    assemble(format, |column| column.field.header.to_owned())
}

/// The line of one record, without its end.
pub fn line<R>(format: &Format<R>, record: &R, show: &Show) -> String {
    assemble(format, |column| printable((column.field.text)(record, show)))
}

/// Header and lines of all records, each line ended.
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

/// `text` in exactly `width` characters, at the right or the left; as it is without a width.
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
