//! A table of the file, read key by key. Keys that were never read are mistakes.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::model::config::ConfigError;
use crate::text::memory::MemoryMb;
use crate::text::nearest::nearest;
use crate::text::time::Seconds;

/// The range of an unrestricted number.
const ANY: RangeInclusive<u32> = 0..=u32::MAX;

/// The text of the file, and the mistakes found so far.
pub(super) struct Reader<'a> {
    text: &'a str,
    line_starts: Vec<usize>,
    errors: RefCell<Vec<ConfigError>>,
    /// Every key that was read.
    #[cfg(test)]
    pub(super) asked: RefCell<std::collections::BTreeSet<&'static str>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Reader<'a> {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Reader {
            text,
            line_starts: std::iter::once(0).chain(ends).collect(),
            errors: RefCell::default(),
            #[cfg(test)]
            asked: RefCell::default(),
        }
    }

    /// Parses the text as TOML.
    pub(super) fn syntax(&self) -> Result<Spanned<DeTable<'a>>, Vec<ConfigError>> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        if errors.is_empty() {
            return Ok(table);
        }
        let error = |e: toml::de::Error| ConfigError {
            line: self.line(e.span().unwrap_or_default()),
            section: String::new(),
            key: String::new(),
            problem: format!("not TOML: {}", e.message()),
        };
        Err(errors.into_iter().map(error).collect())
    }

    /// `value`, or the mistakes if there are any.
    pub(super) fn result<T>(self, value: T) -> Result<T, Vec<ConfigError>> {
        let errors = self.errors.into_inner();
        if errors.is_empty() { Ok(value) } else { Err(errors) }
    }

    /// The line, counted from 1, on which a span starts.
    fn line(&self, span: Range<usize>) -> u32 {
        let line = self.line_starts.partition_point(|&start| start <= span.start);
        u32::try_from(line).unwrap_or(u32::MAX)
    }
}

/// A table of the file.
pub(super) struct Section<'a> {
    reader: &'a Reader<'a>,
    table: &'a DeTable<'a>,
    label: String,
    line: u32,
    known: Vec<&'static str>,
}

/// A value with the line of its key.
struct Entry<'a> {
    line: u32,
    value: &'a DeValue<'a>,
}

impl<'a> Section<'a> {
    /// The whole file as a section.
    pub(super) fn top(reader: &'a Reader<'a>, table: &'a Spanned<DeTable<'a>>) -> Section<'a> {
        Section { reader, table: table.get_ref(), label: String::new(), line: 1, known: Vec::new() }
    }

    /// The line of the section's header.
    pub(super) fn line(&self) -> u32 {
        self.line
    }

    /// True if the section has the key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// True if the section has the key with a string as its value.
    pub(super) fn is_string(&self, key: &str) -> bool {
        self.table.get(key).is_some_and(|value| value.get_ref().is_str())
    }

    /// The line of a key; that of the header if the key is missing.
    pub(super) fn line_of(&self, key: &str) -> u32 {
        let found = self.table.get_key_value(key);
        found.map_or(self.line, |(key, _)| self.reader.line(key.span()))
    }

    /// Records a mistake under a key, or with an empty key in the section as a whole.
    pub(super) fn refuse(&self, key: &str, problem: impl Display) {
        self.refuse_at(self.line_of(key), key, problem);
    }

    /// Records a mistake on another line of the section.
    pub(super) fn refuse_at(&self, line: u32, key: &str, problem: impl Display) {
        self.reader.errors.borrow_mut().push(ConfigError {
            line,
            section: self.label.clone(),
            key: key.to_owned(),
            problem: problem.to_string(),
        });
    }

    /// Records every key that was not read as a mistake.
    pub(super) fn finish(self) {
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if self.known.contains(&name) {
                continue;
            }
            let meant = match nearest(name, self.known.iter().copied()) {
                Some(known) => format!("did you mean `{known}`?"),
                None if self.label.is_empty() => format!("known here are {}", self.known.join(", ")),
                None => format!("known in {} are {}", self.label, self.known.join(", ")),
            };
            self.refuse(name, format_args!("unknown key; {meant}"));
        }
    }

    fn note(&mut self, key: &'static str) {
        self.known.push(key);
        #[cfg(test)]
        self.reader.asked.borrow_mut().insert(key);
    }

    fn entry(&mut self, key: &'static str) -> Option<Entry<'a>> {
        self.note(key);
        let value = self.table.get(key)?;
        Some(Entry { line: self.line_of(key), value: value.get_ref() })
    }

    fn expected(&self, line: u32, key: &str, expected: &str, value: &DeValue<'_>) {
        let found = value.type_str();
        self.refuse_at(line, key, format_args!("{expected} is expected here, not {}", with_article(found)));
    }

    /// Reads a string; `None` if the key is absent, or refused because its value is no string.
    pub(super) fn string(&mut self, key: &'static str) -> Option<&'a str> {
        let entry = self.entry(key)?;
        let text = entry.value.as_str();
        if text.is_none() {
            self.expected(entry.line, key, "a string", entry.value);
        }
        text
    }

    /// Reads a string that must not be empty; `None` if the key is absent or refused.
    pub(super) fn name(&mut self, key: &'static str) -> Option<&'a str> {
        let text = self.string(key)?;
        if text.is_empty() {
            self.refuse(key, "it must not be empty");
        }
        Some(text).filter(|text| !text.is_empty())
    }

    /// Reads a string that must be present and not empty; `None` if the key is refused.
    pub(super) fn required_name(&mut self, key: &'static str) -> Option<&'a str> {
        if !self.has(key) {
            self.note(key);
            self.refuse("", format_args!("`{key}` is missing"));
            return None;
        }
        self.name(key)
    }

    /// Reads a string and parses it; `None` if the key is absent or refused.
    pub(super) fn parsed<T: FromStr<Err: Display>>(&mut self, key: &'static str) -> Option<T> {
        let text = self.string(key)?;
        text.parse().map_err(|error: T::Err| self.refuse(key, error)).ok()
    }

    /// Reads one of a few words, compared without regard to case; `None` if the key is absent or refused.
    pub(super) fn choice<T: Copy>(&mut self, key: &'static str, known: &[(&'static str, T)]) -> Option<T> {
        let text = self.string(key)?;
        let found = known.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
        if found.is_none() {
            let words = || known.iter().map(|&(word, _)| word);
            let meant = nearest(text, words()).map(|word| format!("did you mean `{word}`? "));
            let meant = meant.unwrap_or_default();
            let words: Vec<String> = words().map(|word| format!("`{word}`")).collect();
            self.refuse(
                key,
                format_args!("there is no `{text}` here; {meant}known are {}", words.join(", ")),
            );
        }
        found.map(|&(_, value)| value)
    }

    /// Reads `true` or `false`; `None` if the key is absent or refused.
    pub(super) fn boolean(&mut self, key: &'static str) -> Option<bool> {
        let entry = self.entry(key)?;
        let value = entry.value.as_bool();
        if value.is_none() {
            self.expected(entry.line, key, "true or false", entry.value);
        }
        value
    }

    /// Reads a whole number within a range; `None` if the key is absent or refused.
    pub(super) fn integer<T>(&mut self, key: &'static str, range: RangeInclusive<T>) -> Option<T>
    where
        T: TryFrom<i128> + PartialOrd + Display,
    {
        let Entry { line, value } = self.entry(key)?;
        self.within(line, key, value, &range)
    }

    fn within<T>(&self, line: u32, key: &str, value: &DeValue<'_>, range: &RangeInclusive<T>) -> Option<T>
    where
        T: TryFrom<i128> + PartialOrd + Display,
    {
        let Some(integer) = value.as_integer() else {
            self.expected(line, key, "a whole number", value);
            return None;
        };
        let number = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
        let number = number.and_then(|number| T::try_from(number).ok()).filter(|n| range.contains(n));
        if number.is_none() {
            let (low, high) = (range.start(), range.end());
            let problem = format!("{integer} is out of range; it must be from {low} to {high}");
            self.refuse_at(line, key, problem);
        }
        number
    }

    /// Reads a number, whole or not, within a range; `None` if the key is absent or refused.
    pub(super) fn number(&mut self, key: &'static str, range: RangeInclusive<f64>) -> Option<f64> {
        let entry = self.entry(key)?;
        let text = match entry.value {
            DeValue::Float(float) => float.as_str().to_owned(),
            DeValue::Integer(integer) => integer.to_string(),
            other => {
                self.expected(entry.line, key, "a number", other);
                return None;
            }
        };
        let number = text.parse().ok().filter(|n| range.contains(n));
        if number.is_none() {
            let (low, high) = (range.start(), range.end());
            self.refuse(key, format_args!("{text} is out of range; it must be from {low} to {high}"));
        }
        number
    }

    /// Reads a duration within a range: a string such as `30s`, or a number of seconds. `None` if the key is
    /// absent or refused.
    pub(super) fn duration(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<Seconds> {
        let seconds = match self.table.get(key).map(Spanned::get_ref) {
            Some(DeValue::Integer(_)) => return self.integer(key, range).map(Seconds),
            Some(DeValue::String(_)) => self.parsed::<Seconds>(key)?,
            other => {
                self.note(key);
                let line = self.line_of(key);
                other.inspect(|value| self.expected(line, key, "a duration such as \"30s\"", value));
                return None;
            }
        };
        if !range.contains(&seconds.0) {
            let (low, high) = (Seconds(*range.start()), Seconds(*range.end()));
            self.refuse(key, format_args!("{seconds} is out of range; it must be from {low} to {high}"));
            return None;
        }
        Some(seconds)
    }

    /// Reads a size of memory or disk in MiB: a string such as `512G`, or a number of MiB. `None` if the key
    /// is absent or refused.
    pub(super) fn mebibytes(&mut self, key: &'static str) -> Option<u64> {
        match self.table.get(key).map(Spanned::get_ref) {
            Some(DeValue::Integer(_)) => self.integer(key, 0..=u64::from(u32::MAX) << 10),
            Some(DeValue::String(_)) => self.parsed::<MemoryMb>(key).map(|memory| memory.0),
            other => {
                self.note(key);
                let line = self.line_of(key);
                other.inspect(|value| self.expected(line, key, "a size such as \"512G\"", value));
                None
            }
        }
    }

    /// Reads a list of names.
    pub(super) fn names(&mut self, key: &'static str) -> Vec<Arc<str>> {
        self.strings(key).into_iter().map(|(_, name)| name.into()).collect()
    }

    /// Reads a list of strings, each with its line.
    pub(super) fn strings(&mut self, key: &'static str) -> Vec<(u32, &'a str)> {
        let mut texts = Vec::new();
        for (line, value) in self.array(key, "a list of strings") {
            match value.as_str() {
                Some(text) => texts.push((line, text)),
                None => self.expected(line, key, "a string", value),
            }
        }
        texts
    }

    /// Reads a list of whole numbers.
    pub(super) fn integers(&mut self, key: &'static str) -> Vec<u32> {
        let values = self.array(key, "a list of whole numbers");
        values.into_iter().filter_map(|(line, value)| self.within(line, key, value, &ANY)).collect()
    }

    fn array(&mut self, key: &'static str, expected: &str) -> Vec<(u32, &'a DeValue<'a>)> {
        let Some(entry) = self.entry(key) else { return Vec::new() };
        let Some(array) = entry.value.as_array() else {
            self.expected(entry.line, key, expected, entry.value);
            return Vec::new();
        };
        array.iter().map(|value| (self.reader.line(value.span()), value.get_ref())).collect()
    }

    /// Reads a table below this one; `None` if the key is absent or refused.
    pub(super) fn section(&mut self, key: &'static str) -> Option<Section<'a>> {
        let label = format!("[{}]", self.path(key));
        let entry = self.entry(key)?;
        let Some(table) = entry.value.as_table() else {
            self.refuse(key, format_args!("it is a section; write {label}"));
            return None;
        };
        Some(Section { reader: self.reader, table, label, line: entry.line, known: Vec::new() })
    }

    /// Reads a list of tables below this one.
    pub(super) fn sections(&mut self, key: &'static str) -> Vec<Section<'a>> {
        let label = format!("[[{}]]", self.path(key));
        let Some(entry) = self.entry(key) else { return Vec::new() };
        let Some(array) = entry.value.as_array() else {
            self.refuse(key, format_args!("it is a list of sections; write {label}"));
            return Vec::new();
        };
        let mut sections = Vec::new();
        for value in array {
            let line = self.reader.line(value.span());
            match value.get_ref().as_table() {
                Some(table) => {
                    let (reader, label) = (self.reader, label.clone());
                    sections.push(Section { reader, table, label, line, known: Vec::new() });
                }
                None => self.refuse_at(line, key, format_args!("it is a list of sections; write {label}")),
            }
        }
        sections
    }

    /// Every key of the section, for sections whose keys are names.
    pub(super) fn keys(&self) -> Vec<&'a str> {
        self.table.keys().map(|key| key.get_ref().as_ref()).collect()
    }

    /// Reads a whole number whose key is a name; `None` if the key is absent or refused.
    pub(super) fn count_of(&self, key: &str) -> Option<u32> {
        let value = self.table.get(key)?.get_ref();
        self.within(self.line_of(key), key, value, &ANY)
    }

    fn path(&self, key: &str) -> String {
        match self.label.trim_matches(['[', ']']) {
            "" => key.to_owned(),
            parent => format!("{parent}.{key}"),
        }
    }
}

fn with_article(type_name: &str) -> String {
    let vowel = type_name.starts_with(['a', 'i', 'o']);
    format!("{} {type_name}", if vowel { "an" } else { "a" })
}
