//! Every member of what daemons journal, keep or send to each other belongs to a feature level.
//!
//! `tests/data/levels/N` lists the members that level N has added, one type a line. A member in no list fails
//! the test, and so does a listed member that has gone: programs of another release still write or read it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;

use spur_core::cluster::FeatureLevel;
use spur_core::cluster::level::ADDED;

use super::{code, files, report, root};

/// Places of serialized types, with the name under which the lists have them.
const PLACES: [(&str, &str); 7] = [
    ("spur-core/src/cluster", "core"),
    ("spur-core/src/model", "core"),
    ("spur-core/src/text", "core"),
    ("spur-core/src/compute", "core"),
    ("spurctld/src", "spurctld"),
    ("spurd/src", "spurd"),
    ("spurd/wire/src", "wire"),
];

/// Members by the place and the name of their type.
type Members = BTreeMap<String, BTreeSet<String>>;

/// The members of the workspace's serialized types and messages.
fn present() -> Members {
    let mut present = Members::new();
    for (dir, place) in PLACES {
        for (_, text) in files(dir, &[".rs"]) {
            serialized(place, code(&text), &mut present);
        }
    }
    for dir in ["proto/spur/v1", "spurd/wire/proto"] {
        for (_, text) in files(dir, &[".proto"]) {
            messages(&text, &mut present);
        }
    }
    present
}

/// Adds the members of the serialized types of a source file, as rustfmt lays it out.
fn serialized(place: &str, text: &str, found: &mut Members) {
    let (mut is_derived, mut name, mut variant) = (false, None, None::<String>);
    let (mut is_skipped, mut renamed) = (false, None::<String>);
    for line in text.lines() {
        let (word, indent) = (line.trim(), line.len() - line.trim_start().len());
        match (&name, indent) {
            (None, 0) if word.starts_with("#[derive(") => is_derived = word.contains("erialize"),
            (None, 0) if word.starts_with("#[") || word.starts_with("//") => {}
            (None, 0) => {
                let bare = word.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
                let declared = bare.strip_prefix("struct ").or(bare.strip_prefix("enum "));
                let opened = declared.filter(|_| is_derived && word.ends_with('{'));
                name = opened.map(|rest| format!("{place} {}", ident(rest)));
                is_derived = false;
            }
            (Some(_), 0) if word == "}" => name = None,
            (Some(_), 4) if word.starts_with('}') => variant = None,
            (Some(_), _) if word.starts_with("#[serde(") => {
                is_skipped |= word.contains("(skip)");
                renamed = word.split_once("rename = \"").map(|(_, rest)| ident(rest).to_owned()).or(renamed);
            }
            (Some(_), 4 | 8) if word.starts_with("//") || word.starts_with("#[") => {}
            (Some(of), 4 | 8) => {
                let bare = word.trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
                let own = ident(bare.trim_start_matches("pub "));
                if own.is_empty() || (indent == 8 && variant.is_none()) {
                    continue;
                }
                let own = renamed.take().unwrap_or_else(|| own.to_owned());
                let member = match &variant {
                    Some(variant) if indent == 8 => format!("{variant}.{own}"),
                    _ => own.clone(),
                };
                if !std::mem::take(&mut is_skipped) {
                    found.entry(of.clone()).or_default().insert(member);
                }
                if indent == 4 && word.ends_with('{') {
                    variant = Some(own);
                }
            }
            _ => {}
        }
    }
}

/// Adds the fields of the messages of a file, with their numbers.
fn messages(text: &str, found: &mut Members) {
    let mut name = None;
    for line in text.lines() {
        let word = line.trim();
        if let Some(rest) = word.strip_prefix("message ").or(word.strip_prefix("enum ")) {
            name = (!word.ends_with("{}")).then(|| format!("proto {}", ident(rest)));
        } else if line == "}" {
            name = None;
        } else if let (Some(of), Some((before, number))) = (&name, word.split_once(" = "))
            && !word.starts_with("//")
        {
            let field = before.rsplit(' ').next().unwrap_or(before);
            let member = format!("{field}={}", ident(number));
            found.entry(of.clone()).or_default().insert(member);
        }
    }
}

/// The letters, digits and underscores at the start of a text.
fn ident(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    &text[..end.unwrap_or(text.len())]
}

fn path(level: u32) -> std::path::PathBuf {
    root().join(format!("tests/data/levels/{level}"))
}

/// The members that a level has added.
fn listed(level: u32) -> Members {
    let text = fs::read_to_string(path(level)).unwrap_or_default();
    let line = |line: &str| {
        let (of, members) = line.split_once(": ")?;
        Some((of.to_owned(), members.split(' ').map(str::to_owned).collect()))
    };
    text.lines().filter_map(line).collect()
}

fn write(level: u32, members: &Members) {
    let mut text = String::new();
    for (of, members) in members {
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        let _ = writeln!(text, "{of}: {}", members.join(" "));
    }
    fs::create_dir_all(root().join("tests/data/levels")).expect("the directory can be made");
    fs::write(path(level), text).expect("the list can be written");
}

/// The members of `all` that `less` lacks.
fn without(all: &Members, less: &Members) -> Members {
    let rest = all.iter().map(|(of, members)| {
        let known = less.get(of);
        let new = members.iter().filter(|member| known.is_none_or(|known| !known.contains(*member)));
        (of.clone(), new.cloned().collect::<BTreeSet<String>>())
    });
    rest.filter(|(_, members)| !members.is_empty()).collect()
}

fn lines(members: &Members) -> Vec<String> {
    members.iter().flat_map(|(of, names)| names.iter().map(move |name| format!("{of}.{name}"))).collect()
}

#[test]
fn every_serialized_member_belongs_to_a_level() {
    let (present, newest) = (present(), FeatureLevel::NEWEST.0);
    let mut known = Members::new();
    for level in 1..=newest {
        for (of, members) in listed(level) {
            known.entry(of).or_default().extend(members);
        }
    }
    let (new, gone) = (without(&present, &known), without(&known, &present));
    report(
        "a released member is never removed or renamed: another release writes or reads it",
        &lines(&gone),
    );
    if std::env::var_os("UPDATE_EXPECT").is_some() && !new.is_empty() {
        let mut list = listed(newest);
        new.into_iter().for_each(|(of, members)| list.entry(of).or_default().extend(members));
        return write(newest, &list);
    }
    let rule = "these are in no list of tests/data/levels: UPDATE_EXPECT=1 adds them to the newest level (CONTRIBUTING.md, \
                A new event or field)";
    report(rule, &lines(&new));
}

#[test]
fn journalled_members_above_the_first_level_are_in_the_table() {
    let mut wanted = BTreeSet::new();
    for level in 2..=FeatureLevel::NEWEST.0 {
        let older: BTreeSet<String> = (1..level).flat_map(|level| listed(level).into_keys()).collect();
        for (of, members) in listed(level) {
            // A new type is reached through the added members of others only.
            let Some(name) = of.strip_prefix("core ").filter(|_| older.contains(&of)) else { continue };
            let variants: BTreeSet<&str> =
                members.iter().map(String::as_str).filter(|member| !member.contains('.')).collect();
            let own = members.iter().filter(|member| {
                // The fields of a new variant are reached through the variant only.
                member.split_once('.').is_none_or(|(variant, _)| !variants.contains(variant))
            });
            wanted.extend(own.map(|member| format!("{level} {name}.{member}")));
        }
    }
    let member = |added: &spur_core::cluster::level::Added| {
        let dot = if added.variant.is_empty() || added.field.is_empty() { "" } else { "." };
        format!("{} {}.{}{dot}{}", added.level, added.of, added.variant, added.field)
    };
    let table: BTreeSet<String> = ADDED.iter().map(member).collect();
    let missing: Vec<String> = wanted.difference(&table).cloned().collect();
    report("spur-core/src/cluster/level/mod.rs: the table ADDED lacks", &missing);
    let unknown: Vec<String> = table.difference(&wanted).cloned().collect();
    report("spur-core/src/cluster/level/mod.rs: no such member is in tests/data/levels", &unknown);
}
