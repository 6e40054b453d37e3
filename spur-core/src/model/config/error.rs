//! Mistakes in a configuration file, with their places.

use std::fmt;

/// One mistake in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The line of the mistake, counted from 1.
    pub line: u32,
    /// The section as written in the file: `[scheduler]`, `[[nodes]]`; empty at the top.
    pub section: String,
    /// The key; empty if the mistake is in the section as a whole.
    pub key: String,
    /// The problem, and what would work.
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

/// Number of mistakes of one file that are displayed.
const SHOWN: usize = 40;

/// All mistakes in one file, at least one. Displays a line `FILE:LINE: [SECTION] KEY: PROBLEM` for each of
/// the first ones, and the number of the others.
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
