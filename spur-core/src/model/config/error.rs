//! What is wrong with a configuration file, and where.

use std::fmt;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The line it is on, from 1.
    pub line: u32,
    /// The section it is in, as it is written in the file: `[scheduler]`, `[[nodes]]`; empty at the top.
    pub section: String,
    /// The key; empty if the section as a whole is meant.
    pub key: String,
    /// What is wrong and what would work.
    pub problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigError { line, section, key, problem } = self;
        match (section.as_str(), key.as_str()) {
            ("", "") => write!(f, "{line}: {problem}"),
            ("", key) => write!(f, "{line}: {key}: {problem}"),
            (section, "") => write!(f, "{line}: {section}: {problem}"),
            (section, key) => write!(f, "{line}: {section} {key}: {problem}"),
        }
    }
}

/// Mistakes that are displayed of one file.
const SHOWN: usize = 40;

/// Every mistake in one file, at least one; displays as a line for each of the first of them, `FILE:LINE: [SECTION] KEY:
/// PROBLEM`, and how many more there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    file: String,
    errors: Vec<ConfigError>,
}

impl ConfigErrors {
    pub(super) fn new(file: &str, mut errors: Vec<ConfigError>) -> ConfigErrors {
        errors.sort_by_key(|error| error.line);
        ConfigErrors { file: file.to_owned(), errors }
    }

    /// The name of the file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The mistakes in the order of their lines.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &ConfigError> {
        self.errors.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.errors.iter().take(SHOWN).enumerate() {
            write!(f, "{}{}:{error}", if i == 0 { "" } else { "\n" }, self.file)?;
        }
        match self.errors.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n{}: and {more} more like these, or others", self.file),
        }
    }
}

impl std::error::Error for ConfigErrors {}
