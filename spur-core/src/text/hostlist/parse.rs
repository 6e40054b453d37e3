//! The grammar of hostlists, and their expansion within limits.
//!
//! ```text
//! list  = [ item ] { (","|blank) [ item ] }
//! item  = { text | group }
//! group = "[" entry { "," entry } "]"
//! entry = { N "-" M | N | group }           N and M are digits
//! ```
//!
//! All names are counted before any is expanded.

use nom::branch::alt;
use nom::bytes::complete::take_while1;
use nom::character::complete::{char, digit1};
use nom::combinator::{all_consuming, cut, map};
use nom::multi::{many1, separated_list1};
use nom::sequence::{delimited, separated_pair};
use nom::{IResult, Parser};

use super::{HostList, Numbers, Run};
use crate::text::ParseError;

/// Most hosts in one range. Slurm's limit is 65,536.
pub const MAX_RANGE: u64 = less_if_fuzzed(1_048_576, 1_024) as u64;
/// Most expanded texts before the last bracket of one item.
pub const MAX_PREFIXES: usize = less_if_fuzzed(65_536, 64);
/// Most ranges in one list.
pub const MAX_RANGES: usize = less_if_fuzzed(262_144, 256);
/// Most names in one list.
pub const MAX_NAMES: usize = less_if_fuzzed(4_194_304, 4_096);
/// Most names written in an expression, with those in braces counted; more than any cluster has.
pub const MAX_WRITTEN: usize = less_if_fuzzed(65_536, 4_096);
/// Deepest nesting of brackets.
const MAX_DEPTH: usize = 8;

/// Returns `fuzzed` in a fuzz build, because a fuzzer would otherwise spend most of its time on long
/// expansions.
const fn less_if_fuzzed(limit: usize, fuzzed: usize) -> usize {
    if cfg!(fuzzing) { fuzzed } else { limit }
}

pub(super) const WHAT: &str = "hostlist";
pub(super) const HELP: &str =
    "write names with ranges in brackets, e.g. `n1,n[2-5,8]` or `rack[0-1]_blade[01-16]`";

/// A piece of an item.
enum Piece<'a> {
    Text(&'a str),
    Group(Vec<Entry<'a>>),
}

/// One entry of a bracket.
enum Entry<'a> {
    Range(&'a str, &'a str),
    Nested(Vec<Piece<'a>>),
}

pub(super) fn host_list(text: &str) -> Result<HostList, ParseError> {
    plain(text, 0, MAX_NAMES).map_err(|problem| ParseError::new(WHAT, text, problem, HELP))
}

/// Reads a list without functions. `before` counts the names written so far, and `most` limits the total.
pub(super) fn plain(text: &str, before: usize, most: usize) -> Result<HostList, String> {
    let (mut list, mut named) = (HostList::new(), before);
    for item in items(text)? {
        named += push_item(&mut list, item, named, most)?;
    }
    Ok(list)
}

/// Splits a list at the commas and blanks outside brackets and braces; empty items are dropped.
pub(super) fn items(text: &str) -> Result<Vec<&str>, String> {
    let mut items = Vec::new();
    let mut open: Vec<char> = Vec::new();
    let mut start = 0;
    for (at, c) in text.char_indices() {
        match c {
            '[' | '{' => open.push(c),
            ']' if open.pop() != Some('[') => return Err("a `]` closes nothing".to_owned()),
            '}' if open.pop() != Some('{') => return Err("a `}` closes nothing".to_owned()),
            _ if open.is_empty() && (c == ',' || c.is_whitespace()) => {
                items.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
        if open.len() > MAX_DEPTH {
            return Err(format!("brackets are nested more than {MAX_DEPTH} deep"));
        }
    }
    if let Some(bracket) = open.pop() {
        return Err(format!("a `{bracket}` is not closed"));
    }
    items.push(&text[start..]);
    items.retain(|item| !item.is_empty());
    Ok(items)
}

/// Adds the names of an item to the list and returns their number. `before` counts the names written so far,
/// and `most` limits the total.
pub(super) fn push_item(
    list: &mut HostList,
    item: &str,
    before: usize,
    most: usize,
) -> Result<usize, String> {
    if item.contains('{') {
        return Err(format!("`{item}`: only plain names can stand here, no function"));
    }
    let parsed = all_consuming(pieces).parse(item);
    let (_, pieces) = parsed
        .map_err(|_| format!("`{item}`: a bracket holds numbers and ranges of numbers, e.g. `[1-4,7]`"))?;
    let names = count(&pieces)?;
    if before + names > most {
        return Err(format!("there are more than {most} names"));
    }
    let ranges = as_ranges(&pieces);
    let runs = match &ranges {
        Some((before, entries, _)) => {
            let prefixes = count(before)?;
            if prefixes > MAX_PREFIXES {
                return Err(format!("`{item}`: more than {MAX_PREFIXES} texts before its last bracket"));
            }
            prefixes.saturating_mul(entries.len())
        }
        None => names,
    };
    if list.runs.len() + runs > MAX_RANGES {
        return Err(format!("there are more than {MAX_RANGES} ranges"));
    }
    match ranges {
        Some((before, entries, suffix)) => {
            for prefix in expand(before) {
                for &(first, last) in &entries {
                    let numbers = Some(numbers(first, last)?);
                    list.push_run(Run { prefix: prefix.clone(), suffix: suffix.to_owned(), numbers });
                }
            }
        }
        None => expand(&pieces).iter().for_each(|name| list.push(name)),
    }
    Ok(names)
}

fn pieces(input: &str) -> IResult<&str, Vec<Piece<'_>>> {
    let text = take_while1(|c: char| !"[]{},".contains(c) && !c.is_whitespace());
    many1(alt((map(group, Piece::Group), map(text, Piece::Text)))).parse(input)
}

fn group(input: &str) -> IResult<&str, Vec<Entry<'_>>> {
    delimited(char('['), cut(separated_list1(char(','), entry)), cut(char(']'))).parse(input)
}

fn entry(input: &str) -> IResult<&str, Entry<'_>> {
    let single = |entry| match entry {
        Piece::Text(digits) => Entry::Range(digits, digits),
        group => Entry::Nested(vec![group]),
    };
    let number = map(digit1, Piece::Text);
    let range = map(separated_pair(digit1, char('-'), digit1), |(first, last)| {
        Piece::Group(vec![Entry::Range(first, last)])
    });
    map(many1(alt((range, number, map(group, Piece::Group)))), |mut pieces| match pieces.len() {
        1 => match pieces.remove(0) {
            Piece::Group(mut entries) if entries.len() == 1 => entries.remove(0),
            piece => single(piece),
        },
        _ => Entry::Nested(pieces),
    })
    .parse(input)
}

/// Reads a range and checks that it ascends and is not too long.
fn numbers(first: &str, last: &str) -> Result<Numbers, String> {
    let number = |text: &str| -> Result<u64, String> {
        let fits = text.len() <= super::MAX_DIGITS;
        text.parse().ok().filter(|_| fits).ok_or_else(|| format!("the number {text} is too large"))
    };
    let (low, high) = (number(first)?, number(last)?);
    if low > high {
        return Err(format!("the range {first}-{last} runs backwards"));
    }
    if high - low >= MAX_RANGE {
        return Err(format!("the range {first}-{last} stands for more than {MAX_RANGE} hosts"));
    }
    Ok(Numbers { first: low, last: high, width: first.len() })
}

/// Number of names that the pieces stand for together. Refuses an invalid range and too many names.
fn count(pieces: &[Piece<'_>]) -> Result<usize, String> {
    let mut product = 1_usize;
    for piece in pieces {
        let Piece::Group(entries) = piece else { continue };
        let mut sum = 0_usize;
        for entry in entries {
            sum += match entry {
                Entry::Range(first, last) if first == last => 1,
                Entry::Range(first, last) => {
                    let Numbers { first, last, .. } = numbers(first, last)?;
                    usize::try_from(last - first).unwrap_or(MAX_NAMES) + 1
                }
                Entry::Nested(pieces) => count(pieces)?,
            };
        }
        product = product.saturating_mul(sum);
    }
    if product > MAX_NAMES {
        return Err(format!("there are more than {MAX_NAMES} names"));
    }
    Ok(product)
}

type Ranges<'a, 'b> = (&'b [Piece<'a>], Vec<(&'a str, &'a str)>, &'a str);

/// Splits an item into pieces before the last group, that group's ranges, and a text after it.
///
/// `None` if the group is not the number of the names, e.g. because digits are next to it.
fn as_ranges<'a, 'b>(pieces: &'b [Piece<'a>]) -> Option<Ranges<'a, 'b>> {
    let digit = |c: char| c.is_ascii_digit();
    let (before, entries, suffix) = match pieces {
        [before @ .., Piece::Group(entries), Piece::Text(suffix)] if !suffix.contains(digit) => {
            (before, entries, *suffix)
        }
        [before @ .., Piece::Group(entries)] => (before, entries, ""),
        _ => return None,
    };
    if !matches!(before.last(), None | Some(Piece::Text(_))) {
        return None;
    }
    if matches!(before.last(), Some(Piece::Text(text)) if text.ends_with(digit)) {
        return None;
    }
    let plain = |entry: &Entry<'a>| match entry {
        Entry::Range(first, last) if first.len() <= super::MAX_DIGITS => Some((*first, *last)),
        _ => None,
    };
    let entries = entries.iter().map(plain).collect::<Option<Vec<_>>>()?;
    Some((before, entries, suffix))
}

/// Expands the pieces to all texts they stand for. The caller has limited their number with [`count`].
fn expand(pieces: &[Piece<'_>]) -> Vec<String> {
    let mut texts = vec![String::new()];
    for piece in pieces {
        match piece {
            Piece::Text(text) => texts.iter_mut().for_each(|before| before.push_str(text)),
            Piece::Group(entries) => {
                let ends: Vec<String> = entries.iter().flat_map(expand_entry).collect();
                texts = texts
                    .iter()
                    .flat_map(|before| ends.iter().map(move |end| format!("{before}{end}")))
                    .collect();
            }
        }
    }
    texts
}

fn expand_entry(entry: &Entry<'_>) -> Vec<String> {
    match entry {
        Entry::Range(first, last) if first == last => vec![(*first).to_owned()],
        Entry::Range(first, last) => {
            let Ok(Numbers { first, last, width }) = numbers(first, last) else { return Vec::new() };
            (first..=last).map(|number| format!("{number:0width$}")).collect()
        }
        Entry::Nested(pieces) => expand(pieces),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_before_anything_is_expanded() {
        for (text, problem) in [
            ("n[3-1]", "the range 3-1 runs backwards"),
            ("n[1-2", "a `[` is not closed"),
            ("n1-2]", "a `]` closes nothing"),
            ("n[", "a `[` is not closed"),
            ("n[]", "`n[]`: a bracket holds numbers and ranges of numbers, e.g. `[1-4,7]`"),
            ("n[1,]", "`n[1,]`: a bracket holds numbers and ranges of numbers, e.g. `[1-4,7]`"),
            ("n[-1]", "`n[-1]`: a bracket holds numbers and ranges of numbers, e.g. `[1-4,7]`"),
            ("n[1-2-3]", "`n[1-2-3]`: a bracket holds numbers and ranges of numbers, e.g. `[1-4,7]`"),
            ("n[a-b]", "`n[a-b]`: a bracket holds numbers and ranges of numbers, e.g. `[1-4,7]`"),
            ("n[1-4:2]", "`n[1-4:2]`: a bracket holds numbers and ranges of numbers, e.g. `[1-4,7]`"),
            ("n[0-2000000000]", "the range 0-2000000000 stands for more than 1048576 hosts"),
            ("n[0-1048576]", "the range 0-1048576 stands for more than 1048576 hosts"),
            ("n[0-65535]x[0-65535]", "there are more than 4194304 names"),
            (
                "a[0-999]b[0-999]c[0-3]",
                "`a[0-999]b[0-999]c[0-3]`: more than 65536 texts before its last bracket",
            ),
            ("1[001-11[001-00136672]40110103]4", "there are more than 262144 ranges"),
            ("n[0-300200]r0-30020", "there are more than 262144 ranges"),
            ("n[0-200000]r1,m[0-200000]r1", "there are more than 262144 ranges"),
            ("n[1-99999999999999999999]", "the number 99999999999999999999 is too large"),
            ("n[[[[[[[[[1]]]]]]]]]", "brackets are nested more than 8 deep"),
            ("switch{s1}", "`switch{s1}`: only plain names can stand here, no function"),
        ] {
            assert_eq!(host_list(text).unwrap_err().problem, problem, "{text}");
        }
        assert_eq!(host_list("n[0-1048575]").unwrap().len(), 1_048_576);
    }

    #[test]
    fn long_lists_stay_runs() {
        let list = host_list("n[0-65535],m[0-65535]").unwrap();
        assert_eq!((list.len(), list.runs.len()), (131_072, 2));
        let list = HostList::from_names((0..10_000).map(|n| format!("gpu{n:05}")));
        assert_eq!((list.to_string().as_str(), list.runs.len()), ("gpu[00000-09999]", 1));
    }
}
