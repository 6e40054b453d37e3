//! Licenses that a job needs: the `--licenses` option, e.g. `matlab:2,ansys`.

use std::fmt;
use std::str::FromStr;

use super::gres::is_word;
use super::number::integer32;
use super::{ParseError, serde_as_text};

/// Licenses by name with their counts, all of which are needed together. Each name occurs once, and `@server`
/// is part of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LicenseList(pub Vec<(String, u32)>);

impl fmt::Display for LicenseList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, count)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{name}:{count}")?;
        }
        Ok(())
    }
}

impl FromStr for LicenseList {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<LicenseList, ParseError> {
        const HELP: &str = "write NAME[@SERVER][:COUNT], separated by commas, e.g. `matlab:2,ansys`";
        let refuse = |problem: String| ParseError::new("licence list", text, problem, HELP);
        let mut list: Vec<(String, u32)> = Vec::new();
        if text.is_empty() {
            return Ok(LicenseList(list));
        }
        if text.contains('|') {
            return Err(refuse("a choice with `|` is not offered".to_owned()));
        }
        for item in text.split(',') {
            let (name, count) = item.split_once(':').unwrap_or((item, "1"));
            if !name.splitn(2, '@').all(is_word) {
                return Err(refuse(format!("`{name}` cannot be the name of a licence")));
            }
            let count = integer32(count).map_err(|e| refuse(format!("`{item}`: {e}")))?;
            if list.iter().any(|(other, _)| other == name) {
                return Err(refuse(format!("`{name}` comes twice")));
            }
            list.push((name.to_owned(), count));
        }
        Ok(LicenseList(list))
    }
}

serde_as_text!(LicenseList);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        for (text, shown) in [("", ""), ("matlab", "matlab:1"), ("foo:4,bar@db:12", "foo:4,bar@db:12")] {
            assert_eq!(text.parse::<LicenseList>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn refused() {
        for (text, problem) in [
            ("a|b", "a choice with `|` is not offered"),
            ("a:", "`a:`: a number is expected"),
            ("a,a", "`a` comes twice"),
            ("a,", "`` cannot be the name of a licence"),
            ("a@", "`a@` cannot be the name of a licence"),
            ("a:-1", "`a:-1`: a number is expected"),
        ] {
            assert_eq!(text.parse::<LicenseList>().unwrap_err().problem, problem, "{text}");
        }
    }
}
