//! Entries of Slurm's files. Pairs are taken one by one, so that the remaining ones can be listed.

use std::collections::BTreeSet;

use spur_core::text::nearest::nearest;

use super::keys;
use super::lines::{Line, Pair};
use super::page::Section;

/// Pairs of one entry, or of the whole cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    pairs: Vec<Pair>,
}

impl Entry {
    /// Returns the pairs of a line.
    pub(super) fn of_line(line: &Line) -> Entry {
        Entry { pairs: line.pairs.clone() }
    }

    /// Returns the pairs of all lines of a file; the last one of a key counts.
    pub(super) fn of_lines(lines: &[Line]) -> Entry {
        let mut entry = Entry::default();
        lines.iter().flat_map(|line| line.pairs.iter().cloned()).for_each(|pair| drop(entry.set(pair)));
        entry
    }

    /// Adds a pair; replaces and returns an existing pair of the same key.
    pub(super) fn set(&mut self, pair: Pair) -> Option<Pair> {
        let same = |other: &Pair| keys::same(&other.key, &pair.key);
        let before = self.pairs.iter().position(same).map(|at| self.pairs.remove(at));
        self.pairs.push(pair);
        before
    }

    /// Adds a pair besides others of the same key.
    pub(super) fn append(&mut self, pair: Pair) {
        self.pairs.push(pair);
    }

    /// Adds the pairs of `defaults` whose keys are missing.
    pub(super) fn fill_from(&mut self, defaults: &Entry) {
        let missing = |pair: &&Pair| !self.pairs.iter().any(|own| keys::same(&own.key, &pair.key));
        let missing: Vec<Pair> = defaults.pairs.iter().filter(missing).cloned().collect();
        self.pairs.extend(missing);
    }

    /// Takes the last pair of this key; `None` without one.
    pub(super) fn pair(&mut self, key: &str) -> Option<Pair> {
        let at = self.pairs.iter().rposition(|pair| keys::same(&pair.key, key))?;
        Some(self.pairs.remove(at))
    }

    /// Takes all pairs of this key.
    pub(super) fn all(&mut self, key: &str) -> Vec<Pair> {
        let (taken, left) =
            std::mem::take(&mut self.pairs).into_iter().partition(|pair| keys::same(&pair.key, key));
        self.pairs = left;
        taken
    }

    /// Takes the value of the last pair of this key; `None` without one.
    pub(super) fn value(&mut self, key: &str) -> Option<String> {
        self.pair(key).map(|pair| pair.value)
    }

    /// True if the key is set and `test` is true for its value.
    pub(super) fn says(&self, key: &str, test: impl Fn(&str) -> bool) -> bool {
        let said = self.pairs.iter().rfind(|pair| keys::same(&pair.key, key)).map(|pair| &*pair.value);
        said.is_some_and(|value| !value.is_empty() && value != "(null)" && test(value))
    }

    /// Returns the pairs that were not taken.
    pub(super) fn rest(self) -> Vec<Pair> {
        self.pairs
    }
}

/// Sentences about settings without a counterpart, each once.
#[derive(Debug, Default)]
pub(in crate::commands) struct Notes {
    said: BTreeSet<String>,
    count: usize,
}

impl Notes {
    /// Returns a sentence about a pair, unless it was returned before.
    pub(super) fn about(&mut self, pair: &Pair, why: &str) -> Option<String> {
        self.sentence(format!("{pair}: {why}"))
    }

    /// Adds a sentence about a pair above a table, unless it was added before.
    pub(super) fn tell(&mut self, section: &mut Section, pair: &Pair, why: &str) {
        self.about(pair, why).into_iter().for_each(|text| section.comment(text));
    }

    /// Returns a sentence, unless it was returned before.
    pub(in crate::commands) fn sentence(&mut self, text: String) -> Option<String> {
        let is_new = self.said.insert(text.clone());
        self.count += usize::from(is_new);
        is_new.then_some(text)
    }

    /// Returns sentences about pairs that were not taken, with reasons from the tables of this kind.
    pub(super) fn left(&mut self, kind: keys::Kind, pairs: Vec<Pair>) -> Vec<String> {
        pairs.iter().filter_map(|pair| self.about(pair, &why(kind, &pair.key))).collect()
    }

    /// Returns the number of sentences.
    pub(in crate::commands) fn count(&self) -> usize {
        self.count
    }
}

/// Returns the reason for which a key is not taken.
fn why(kind: keys::Kind, key: &str) -> String {
    let table = keys::of(kind);
    if let Some((_, reason)) = table.iter().find(|(known, _)| known.eq_ignore_ascii_case(key)) {
        return if reason.is_empty() { keys::PLAIN.to_owned() } else { (*reason).to_owned() };
    }
    let known = keys::all(kind);
    if known.iter().any(|known| known.eq_ignore_ascii_case(key)) {
        return "not taken: it stands twice, or beside what contradicts it".to_owned();
    }
    match nearest(key, known.iter().copied()) {
        Some(meant) => format!("not a key of Slurm's; was {meant} meant?"),
        None => "not a key of Slurm's".to_owned(),
    }
}
