//! Records of `Key=Value` as `scontrol show` prints them.

use crate::format::value::printable;

/// A record: lines of words.
#[derive(Default)]
pub(super) struct Record {
    lines: Vec<String>,
}

impl Record {
    /// Adds a line of `Key=Value` words.
    pub(super) fn line<const N: usize>(&mut self, pairs: [(&str, String); N]) {
        let words = pairs.map(|(key, value)| format!("{key}={}", printable(value)));
        self.lines.push(words.join(" "));
    }

    /// Adds a line with a trailing blank, as Slurm prints it.
    pub(super) fn line_with_blank<const N: usize>(&mut self, pairs: [(&str, String); N]) {
        self.line(pairs);
        if let Some(line) = self.lines.last_mut() {
            line.push(' ');
        }
    }

    /// Adds a word to the last line.
    pub(super) fn more(&mut self, key: &str, value: &str) {
        if let Some(line) = self.lines.last_mut() {
            line.push_str(&format!(" {key}={}", printable(value.to_owned())));
        }
    }

    /// Adds a line with one word, unless the value is empty.
    pub(super) fn line_if(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.line([(key, value.to_owned())]);
        }
    }

    /// Returns the text. It is either a single line, or lines indented by three blanks and an empty line.
    pub(super) fn text(&self, oneline: bool) -> String {
        if oneline { self.lines.join(" ") + "\n" } else { self.lines.join("\n   ") + "\n\n" }
    }
}

/// Returns `YES` or `NO`.
pub(super) fn yes(set: bool) -> String {
    if set { "YES" } else { "NO" }.to_owned()
}
