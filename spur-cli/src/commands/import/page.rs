//! A page of TOML with comments, as it is written.

use std::fmt::{self, Display};

/// One table with its comments, or comments alone.
#[derive(Clone, Debug, Default)]
pub(in crate::commands) struct Section {
    /// `[name]` or `[[name]]`; empty for what stands before all tables.
    head: String,
    comments: Vec<String>,
    rows: Vec<(String, String)>,
}

impl Section {
    /// A table of this head, without anything in it yet.
    pub(super) fn new(head: impl Into<String>) -> Section {
        Section { head: head.into(), ..Section::default() }
    }

    /// Its comments alone.
    pub(super) fn comments_only(mut self) -> Section {
        self.rows.clear();
        self
    }

    /// A line of comment above the table.
    pub(super) fn comment(&mut self, text: impl Display) {
        let text: String = text.to_string().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.comments.push(text);
    }

    /// How many keys it has.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is nothing to write.
    pub(in crate::commands) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.comments.is_empty()
    }

    /// A text.
    pub(super) fn text(&mut self, key: &str, value: impl Display) {
        self.rows.push((key.to_owned(), quoted(&value.to_string())));
    }

    /// A text before all others.
    pub(super) fn front_text(&mut self, key: &str, value: impl Display) {
        self.rows.insert(0, (key.to_owned(), quoted(&value.to_string())));
    }

    /// Takes the comments away.
    pub(super) fn clear_comments(&mut self) {
        self.comments.clear();
    }

    /// A number, or `true` and `false`.
    pub(super) fn plain(&mut self, key: &str, value: impl Display) {
        self.rows.push((key.to_owned(), value.to_string()));
    }

    /// A list of texts; none if it is empty.
    pub(super) fn list<S: AsRef<str>>(&mut self, key: &str, values: &[S]) {
        if !values.is_empty() {
            let values: Vec<String> = values.iter().map(|value| quoted(value.as_ref())).collect();
            self.rows.push((key.to_owned(), format!("[{}]", values.join(", "))));
        }
    }
}

/// A name as a key in TOML.
pub(super) fn key(name: &str) -> String {
    let is_bare = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)) && !name.is_empty();
    if is_bare { name.to_owned() } else { quoted(name) }
}

/// A text in TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

impl Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for comment in &self.comments {
            writeln!(f, "# {comment}")?;
        }
        if self.rows.is_empty() {
            return Ok(());
        }
        if !self.head.is_empty() {
            writeln!(f, "{}", self.head)?;
        }
        for (key, value) in &self.rows {
            writeln!(f, "{key} = {value}")?;
        }
        Ok(())
    }
}
