//! A page of TOML with comments.

use std::fmt::{self, Display};

/// A table with its comments, or comments alone.
#[derive(Clone, Debug, Default)]
pub(in crate::commands) struct Section {
    /// Header `[name]` or `[[name]]`; empty for keys before the first table.
    head: String,
    comments: Vec<String>,
    rows: Vec<(String, String)>,
}

impl Section {
    /// Returns an empty table with this header.
    pub(super) fn new(head: impl Into<String>) -> Section {
        Section { head: head.into(), ..Section::default() }
    }

    /// Removes the keys and keeps the comments.
    pub(super) fn comments_only(mut self) -> Section {
        self.rows.clear();
        self
    }

    /// Adds a comment line above the table.
    pub(super) fn comment(&mut self, text: impl Display) {
        let text: String = text.to_string().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.comments.push(text);
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there are neither keys nor comments.
    pub(in crate::commands) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.comments.is_empty()
    }

    /// Adds a text.
    pub(super) fn text(&mut self, key: &str, value: impl Display) {
        self.rows.push((key.to_owned(), quoted(&value.to_string())));
    }

    /// Adds a text before all other keys.
    pub(super) fn front_text(&mut self, key: &str, value: impl Display) {
        self.rows.insert(0, (key.to_owned(), quoted(&value.to_string())));
    }

    /// Removes the comments.
    pub(super) fn clear_comments(&mut self) {
        self.comments.clear();
    }

    /// Adds a number or a boolean.
    pub(super) fn plain(&mut self, key: &str, value: impl Display) {
        self.rows.push((key.to_owned(), value.to_string()));
    }

    /// Adds a list of texts, unless it is empty.
    pub(super) fn list<S: AsRef<str>>(&mut self, key: &str, values: &[S]) {
        if !values.is_empty() {
            let values: Vec<String> = values.iter().map(|value| quoted(value.as_ref())).collect();
            self.rows.push((key.to_owned(), format!("[{}]", values.join(", "))));
        }
    }
}

/// Returns a name as a TOML key.
pub(super) fn key(name: &str) -> String {
    let is_bare = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)) && !name.is_empty();
    if is_bare { name.to_owned() } else { quoted(name) }
}

/// Returns a text in TOML.
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
