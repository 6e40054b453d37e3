//! Syntax of Slurm's files: lines of `Key=Value` pairs, continued by a backslash, with comments after `#`.

use std::fmt;
use std::rc::Rc;

/// Position in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    file: Rc<str>,
    line: usize,
}

impl Place {
    /// Returns the position of a line, counted from 1.
    pub(super) fn new(file: &Rc<str>, line: usize) -> Place {
        Place { file: Rc::clone(file), line }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A pair `Key=Value`: the key as written, the value without its quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) place: Place,
    pub(super) key: String,
    pub(super) value: String,
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Passwords do not get into files that others may read.
        let is_secret = self.key.to_ascii_lowercase().ends_with("pass");
        let value = if is_secret { "…" } else { &self.value };
        write!(f, "{}: {}={value}", self.place, self.key)
    }
}

/// A line with its continuations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) place: Place,
    pub(super) pairs: Vec<Pair>,
    /// Words that are not pairs.
    pub(super) rest: Vec<String>,
}

/// Returns the lines of a text that are not empty.
pub(super) fn read(text: &str, file: &Rc<str>) -> Vec<Line> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = Vec::new();
    let mut open: Option<(Place, String)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let said = before_comment(line);
        let said = said.trim_end();
        let (said, goes_on) = match said.strip_suffix('\\') {
            Some(said) => (said, true),
            None => (said, false),
        };
        let (_, whole) = open.get_or_insert_with(|| (Place::new(file, number), String::new()));
        whole.push_str(said);
        if !goes_on {
            lines.extend(open.take().and_then(|(place, whole)| line_of(&place, &whole)));
        }
    }
    lines.extend(open.and_then(|(place, whole)| line_of(&place, &whole)));
    lines
}

/// Returns the text before the first `#` without a backslash. A `#` after a backslash is an ordinary
/// character.
fn before_comment(line: &str) -> String {
    let mut said = String::new();
    for c in line.chars() {
        match c {
            '#' if said.ends_with('\\') => {
                said.pop();
                said.push('#');
            }
            '#' => break,
            _ => said.push(c),
        }
    }
    said
}

fn line_of(place: &Place, text: &str) -> Option<Line> {
    let mut line = Line { place: place.clone(), pairs: Vec::new(), rest: Vec::new() };
    let mut left = text.trim_start();
    while !left.is_empty() {
        let end = left.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(left.len());
        let (word, behind) = left.split_at(end);
        match behind.trim_start().strip_prefix('=') {
            Some(behind) if !word.is_empty() => {
                let (value, behind) = value(behind);
                // In these files, `Key+=Value` and similar forms mean the same as `Key=Value`.
                let key = word.trim_end_matches(['+', '-', '*', '/']).to_owned();
                line.pairs.push(Pair { place: place.clone(), key, value });
                left = behind.trim_start();
            }
            _ => {
                // A word that begins with `=` has no key.
                let end = left.find(char::is_whitespace).unwrap_or(left.len());
                let (word, behind) = left.split_at(if word.is_empty() { end } else { word.len() });
                line.rest.push(word.to_owned());
                left = behind.trim_start();
            }
        }
    }
    (!line.pairs.is_empty() || !line.rest.is_empty()).then_some(line)
}

/// Returns a value, either quoted or up to a blank, and the text after it.
fn value(text: &str) -> (String, &str) {
    let start = text.trim_start();
    if let Some((inside, behind)) = start.strip_prefix('"').and_then(|inside| inside.split_once('"')) {
        return (inside.to_owned(), behind);
    }
    let word = start.split(char::is_whitespace).next().unwrap_or_default();
    if start.len() < text.len() && word.contains('=') {
        // The value is missing, as in `Nodes= State=UP`.
        return (String::new(), start);
    }
    (word.to_owned(), &start[word.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<String> {
        let lines = read(text, &"f".into());
        let shown = |line: Line| {
            let words = line.rest.into_iter().map(|word| format!("{word}?"));
            line.pairs.iter().map(Pair::to_string).chain(words).collect::<Vec<_>>()
        };
        lines.into_iter().flat_map(shown).collect()
    }

    #[test]
    fn lines_are_read_as_slurm_reads_them() {
        for (text, expected) in [
            ("A=1 b = 2\tC= 3", &["f:1: A=1", "f:1: b=2", "f:1: C=3"][..]),
            ("A=1 # B=2\n\n#C=3\nD=4", &["f:1: A=1", "f:4: D=4"]),
            ("A=x,\\\ny B=2\\\n C=3\nD=4", &["f:1: A=x,y", "f:1: B=2", "f:1: C=3", "f:4: D=4"]),
            ("Reason=\"a b\" State=DOWN", &["f:1: Reason=a b", "f:1: State=DOWN"]),
            ("Nodes= State=UP", &["f:1: Nodes=", "f:1: State=UP"]),
            ("A=a\\#b", &["f:1: A=a#b"]),
            ("P+=x", &["f:1: P=x"]),
            ("what is this A=1", &["f:1: A=1", "f:1: what?", "f:1: is?", "f:1: this?"]),
            ("=oops A=1", &["f:1: A=1", "f:1: =oops?"]),
            ("A=1\\", &["f:1: A=1"]),
            ("\u{feff}A=1\r\nB=\"2\"\r\n", &["f:1: A=1", "f:2: B=2"]),
        ] {
            let found: Vec<String> = pairs(text)
                .into_iter()
                .map(|pair| if pair.ends_with('?') { format!("f:1: {pair}") } else { pair })
                .collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
