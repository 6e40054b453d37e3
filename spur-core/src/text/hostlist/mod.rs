//! Hostlists: `gpu[001-018,020]`, `rack[0-1]_blade[2,3]`, and lists with topology functions, e.g.
//! `switch{s1},n[1-4]`.
//!
//! A list keeps its order and its duplicates. It is stored as runs of consecutive numbers, so that ten
//! thousand consecutive names take as much memory as one. Two lists are equal if and only if their names are
//! equal.

mod expr;
mod parse;

pub use expr::{Function, FunctionKind, HostExpr, HostTerm};
pub use parse::{MAX_NAMES, MAX_PREFIXES, MAX_RANGE, MAX_RANGES, MAX_WRITTEN};

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::{ParseError, serde_as_text};

/// Most digits that are read as the number of a name. A longer group of digits is plain text.
const MAX_DIGITS: usize = 18;

/// Names that differ only in a number, which increases by one from each to the next; or a single name without
/// a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Run {
    prefix: String,
    suffix: String,
    numbers: Option<Numbers>,
}

/// Numbers from `first` to `last`, both included, padded with zeros to `width` digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Numbers {
    first: u64,
    last: u64,
    width: usize,
}

impl Run {
    /// Splits a name at its last group of digits.
    fn of_name(name: &str) -> Run {
        let plain = || Run { prefix: name.to_owned(), suffix: String::new(), numbers: None };
        let Some(end) = name.rfind(|c: char| c.is_ascii_digit()).map(|at| at + 1) else {
            return plain();
        };
        let start = name[..end].rfind(|c: char| !c.is_ascii_digit());
        let start = start.map_or(0, |at| at + name[at..].chars().next().map_or(1, char::len_utf8));
        let digits = &name[start..end];
        match digits.parse() {
            Ok(number) if digits.len() <= MAX_DIGITS => Run {
                prefix: name[..start].to_owned(),
                suffix: name[end..].to_owned(),
                numbers: Some(Numbers { first: number, last: number, width: digits.len() }),
            },
            _ => plain(),
        }
    }

    fn len(&self) -> usize {
        self.numbers.map_or(1, |n| usize::try_from(n.last - n.first).unwrap_or(usize::MAX - 1) + 1)
    }

    fn name(&self, offset: usize) -> String {
        match self.numbers {
            None => self.prefix.clone(),
            Some(Numbers { first, width, .. }) => {
                format!("{}{:0width$}{}", self.prefix, first + offset as u64, self.suffix)
            }
        }
    }

    fn same_text(&self, other: &Run) -> bool {
        self.prefix == other.prefix
            && self.suffix == other.suffix
            && self.numbers.is_some()
            && other.numbers.is_some()
    }

    /// Appends `next` if its names continue these names; otherwise returns it as the error.
    fn join(&mut self, next: Run) -> Result<(), Run> {
        if !self.same_text(&next) {
            return Err(next);
        }
        match (&mut self.numbers, next.numbers) {
            (Some(mine), Some(theirs))
                if mine.last.checked_add(1) == Some(theirs.first)
                    && padded(theirs.first, mine.width) == padded(theirs.first, theirs.width) =>
            {
                mine.last = theirs.last;
                Ok(())
            }
            _ => Err(next),
        }
    }
}

/// Number of characters in `number` when padded to `width`.
fn padded(number: u64, width: usize) -> usize {
    width.max(number.checked_ilog10().unwrap_or(0) as usize + 1)
}

/// An ordered list of host names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HostList {
    runs: Vec<Run>,
    len: usize,
}

impl HostList {
    /// Builds an empty list.
    pub fn new() -> HostList {
        HostList::default()
    }

    /// Builds a list of the names, in the order given.
    pub fn from_names<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> HostList {
        let mut list = HostList::new();
        names.into_iter().for_each(|name| list.push(name.as_ref()));
        list
    }

    /// Number of names, with duplicates counted.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The names, in order.
    pub fn iter(&self) -> impl Iterator<Item = String> + '_ {
        self.runs.iter().flat_map(|run| (0..run.len()).map(|offset| run.name(offset)))
    }

    /// First name; `None` if the list is empty.
    pub fn first(&self) -> Option<String> {
        self.runs.first().map(|run| run.name(0))
    }

    /// Appends one name, in which brackets have no meaning.
    pub fn push(&mut self, name: &str) {
        self.push_run(Run::of_name(name));
    }

    /// Appends another list.
    pub fn extend(&mut self, other: &HostList) {
        other.runs.iter().for_each(|run| self.push_run(run.clone()));
    }

    fn push_run(&mut self, run: Run) {
        self.len += run.len();
        let rest = match self.runs.last_mut() {
            Some(last) => last.join(run),
            None => Err(run),
        };
        if let Err(run) = rest {
            self.runs.push(run);
        }
    }

    /// True if `name` is in the list.
    pub fn contains(&self, name: &str) -> bool {
        let wanted = Run::of_name(name);
        let Some(number) = wanted.numbers else {
            return self.runs.iter().any(|run| run.numbers.is_none() && run.prefix == wanted.prefix);
        };
        self.runs.iter().any(|run| {
            run.same_text(&wanted)
                && run.numbers.is_some_and(|n| {
                    (n.first..=n.last).contains(&number.first)
                        && padded(number.first, n.width) == number.width
                })
        })
    }

    /// Returns the list without repetitions: the first occurrence of each name, in the same order.
    pub fn unique(&self) -> HostList {
        let mut seen = BTreeSet::new();
        HostList::from_names(self.iter().filter(|name| seen.insert(name.clone())))
    }

    /// Returns the names in the order of [`compare_names`], with duplicates.
    pub fn sorted(&self) -> HostList {
        let mut names: Vec<String> = self.iter().collect();
        names.sort_by(|a, b| compare_names(a, b));
        HostList::from_names(names)
    }
}

/// Orders names naturally: groups of digits by value (`n2` before `n10`), other characters by code. Names
/// that differ only in padding are ordered as text.
pub fn compare_names(a: &str, b: &str) -> Ordering {
    let mut left = Pieces(a);
    let mut right = Pieces(b);
    loop {
        let order = match (left.next(), right.next()) {
            (None, None) => return a.cmp(b),
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(x), Some(y)) => compare_pieces(x, y),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// Iterator over the alternating pieces of a name: digits and other text.
struct Pieces<'a>(&'a str);

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let digits = self.0.chars().next()?.is_ascii_digit();
        let end = self.0.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(self.0.len());
        let (piece, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(piece)
    }
}

fn compare_pieces(a: &str, b: &str) -> Ordering {
    let digits = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    if digits(a) && digits(b) {
        let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
        a.len().cmp(&b.len()).then_with(|| a.cmp(b))
    } else {
        a.cmp(b)
    }
}

impl<S: AsRef<str>> FromIterator<S> for HostList {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> HostList {
        HostList::from_names(names)
    }
}

impl fmt::Display for HostList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, group) in self.runs.chunk_by(Run::same_text).enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            match group {
                [run] if run.len() == 1 => f.write_str(&run.name(0))?,
                _ => write_group(f, group)?,
            }
        }
        Ok(())
    }
}

/// Writes runs that have the same text as `prefix[1-3,5]suffix`.
fn write_group(f: &mut fmt::Formatter<'_>, group: &[Run]) -> fmt::Result {
    write!(f, "{}[", group[0].prefix)?;
    for (i, Numbers { first, last, width }) in group.iter().filter_map(|run| run.numbers).enumerate() {
        let comma = if i == 0 { "" } else { "," };
        write!(f, "{comma}{first:0width$}")?;
        if last > first {
            write!(f, "-{last:0width$}")?;
        }
    }
    write!(f, "]{}", group[0].suffix)
}

impl FromStr for HostList {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<HostList, ParseError> {
        parse::host_list(text)
    }
}

serde_as_text!(HostList);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> String {
        text.parse::<HostList>().unwrap().to_string()
    }

    fn names(text: &str) -> Vec<String> {
        text.parse::<HostList>().unwrap().iter().collect()
    }

    #[test]
    fn compressed_as_slurm_does() {
        for (text, expected) in [
            ("", ""),
            ("a1,b1,b2,b3,c1,d1,d2,d3,d4,d5,e1", "a1,b[1-3],c1,d[1-5],e1"),
            ("n9,n10", "n[9-10]"),
            ("n09,n10", "n[09-10]"),
            ("n08,n8", "n[08,8]"),
            ("n8,n9,n[10-11],x", "n[8-11],x"),
            ("n1,n2,n2,n3", "n[1-2,2-3]"),
            ("n10,n9", "n[10,9]"),
            ("n[99-101]", "n[99-101]"),
            ("n099,n100", "n[099-100]"),
            ("n[001-3]", "n[001-003]"),
            ("n1,n3,m1,n5", "n[1,3],m1,n5"),
            ("a-1,a-2", "a-[1-2]"),
            ("n5,n", "n5,n"),
            ("n00000000000000000001", "n00000000000000000001"),
            ("rack[0-1]_blade[2,3]", "rack0_blade[2-3],rack1_blade[2-3]"),
            ("r1n1,r1n2,r2n1", "r1n[1-2],r2n1"),
            ("n[1-2]-ib", "n[1-2]-ib"),
            ("n1-ib,n2-ib", "n[1-2]-ib"),
            ("a,,b,", "a,b"),
            (" a, b\tc\n", "a,b,c"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn brackets_of_every_kind() {
        assert_eq!(names("n[08-11]"), ["n08", "n09", "n10", "n11"]);
        assert_eq!(names("n[8-11]"), ["n8", "n9", "n10", "n11"]);
        assert_eq!(names("n1[2-3]"), ["n12", "n13"]);
        assert_eq!(names("n[1-2]5"), ["n15", "n25"]);
        assert_eq!(
            names("row[0,1]_rack[2-3]_blade[4,5]")[..5],
            [
                "row0_rack2_blade4",
                "row0_rack2_blade5",
                "row0_rack3_blade4",
                "row0_rack3_blade5",
                "row1_rack2_blade4"
            ]
        );
        assert_eq!(names("n[1-2][0-1]"), ["n10", "n11", "n20", "n21"]);
        assert_eq!(names("n[1,[3-4]]"), ["n1", "n3", "n4"]);
        assert_eq!(names("n[1[1-2],2[5-6]]x"), ["n11x", "n12x", "n25x", "n26x"]);
        assert_eq!(names("10.0.0.[1-2]"), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(names("[1-2]"), ["1", "2"]);
    }

    #[test]
    fn sorted_and_unique() {
        let list: HostList = "n10,n9,b2,a,n9,n09".parse().unwrap();
        assert_eq!(list.sorted().to_string(), "a,b2,n[09,9,9-10]");
        assert_eq!(list.unique().to_string(), "n[10,9],b2,a,n09");
        assert_eq!((list.len(), list.first().as_deref()), (6, Some("n10")));
        let racks = HostList::from_names(["r10n1", "r9n10", "r9n9"]).sorted();
        assert_eq!(racks.to_string(), "r9n[9-10],r10n1");
    }

    #[test]
    fn membership_minds_the_padding() {
        let list: HostList = "n[08-11],x,m[1-2]-ib".parse().unwrap();
        for name in ["n08", "n11", "x", "m2-ib"] {
            assert!(list.contains(name), "{name}");
        }
        for name in ["n8", "n011", "n12", "y", "m2", "m3-ib"] {
            assert!(!list.contains(name), "{name}");
        }
    }

    #[test]
    fn equal_names_make_equal_lists() {
        assert_eq!("n[1-3]".parse::<HostList>(), "n1,n2,n3".parse());
        assert_eq!("n1[0-1]".parse::<HostList>(), "n[10-11]".parse());
        let mut list: HostList = "n[1-2]".parse().unwrap();
        list.extend(&"n[3-4]".parse().unwrap());
        assert_eq!(list.to_string(), "n[1-4]");
    }

    proptest! {
        #[test]
        fn compression_loses_nothing(names in prop::collection::vec("[ab]{0,1}[-.]?[0-9]{0,3}[a_]?[0-2]?", 0..30)) {
            let names: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
            let list = HostList::from_names(&names);
            prop_assert_eq!(list.len(), names.len());
            prop_assert_eq!(list.iter().collect::<Vec<_>>(), names.clone());
            prop_assert_eq!(list.to_string().parse(), Ok(list.clone()));
            prop_assert!(names.iter().all(|name| list.contains(name)));
            let sorted: Vec<String> = list.sorted().iter().collect();
            prop_assert!(sorted.is_sorted_by(|a, b| compare_names(a, b).is_le()));
        }

        #[test]
        fn ranges_round_trip(
            ranges in prop::collection::vec((0_u64..2000, 0_u64..300, 1_usize..5), 1..6))
        {
            let body: Vec<String> = ranges
                .iter()
                .map(|&(first, more, width)| format!("{first:0width$}-{:0width$}", first + more))
                .collect();
            let list: HostList = format!("n[{}]", body.join(",")).parse().unwrap();
            let names: Vec<String> = ranges
                .iter()
                .flat_map(|&(first, more, width)| (first..=first + more).map(move |n| (n, width)))
                .map(|(n, width)| format!("n{n:0width$}"))
                .collect();
            prop_assert_eq!(list.iter().collect::<Vec<_>>(), names.clone());
            prop_assert_eq!(HostList::from_names(names), list);
        }
    }
}
