//! Reading of `[[qos]]`, and of keys in other sections that name QOS.

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::section::Section;
use crate::model::accounts::NORMAL;
use crate::model::config::{PreemptMode, PreemptPolicy, QosConfig};
use crate::text::gather::is_layer_name;
use crate::text::nearest::nearest;

pub(super) const PREEMPT_MODES: &[(&str, PreemptMode)] =
    &[("cancel", PreemptMode::Cancel), ("requeue", PreemptMode::Requeue), ("suspend", PreemptMode::Suspend)];

const YEAR: u64 = 365 * 86_400;

/// Reads every QOS, in file order. Each may preempt only existing ones, and not in a circle.
pub(super) fn qos(top: &mut Section<'_>, preempt: &PreemptPolicy) -> Vec<QosConfig> {
    let mut sections = top.sections("qos");
    let mut first_lines: BTreeMap<Arc<str>, u32> = BTreeMap::new();
    let mut all: Vec<QosConfig> = Vec::new();
    for section in &mut sections {
        let qos = settings(section, preempt);
        if let Some(line) = first_lines.insert(Arc::clone(&qos.name), section.line()) {
            let name = &qos.name;
            section.refuse("name", format_args!("QOS {name} is defined twice, first on line {line}"));
        }
        all.push(qos);
    }
    let named = sections.iter_mut().map(|section| list(section, "preempt", &all));
    let named: Vec<Vec<Arc<str>>> = named.collect();
    all.iter_mut().zip(named).for_each(|(qos, preempt)| qos.preempt = preempt);
    for (index, section) in sections.iter().enumerate() {
        if let Some(circle) = circle(&all, index) {
            let problem = match circle.as_slice() {
                [own] => format!("jobs of one QOS do not preempt each other; take `{own}` out"),
                _ => format!("they preempt each other in a circle, {}; take one out", circle.join(" → ")),
            };
            section.refuse("preempt", problem);
        }
    }
    sections.into_iter().for_each(Section::finish);
    all
}

fn settings(section: &mut Section<'_>, preempt: &PreemptPolicy) -> QosConfig {
    let name = section.required_name("name").unwrap_or_default();
    if !name.is_empty() && !is_layer_name(name) {
        let help = "use letters, digits, `_`, `-` and `.`";
        section.refuse("name", format_args!("`{name}` cannot be the name of a QOS; {help}"));
    }
    let own = [("off", PreemptMode::Off), ("cluster", preempt.mode)];
    let modes: Vec<_> = PREEMPT_MODES.iter().copied().chain(own).collect();
    let preempt_mode = section.choice("preempt_mode", &modes);
    QosConfig {
        name: name.into(),
        priority: section.integer("priority", 0..=u32::MAX).unwrap_or(0),
        preempt: Vec::new(),
        preempt_mode,
        grace_time: section.duration("grace_time", 0..=YEAR),
        exempt_time: section.duration("preempt_exempt_time", 0..=YEAR),
        max_wall: section.parsed("max_wall"),
        allow_groups: section.names("allow_groups"),
        allow_accounts: section.names("allow_accounts"),
        flags: BTreeSet::new(),
    }
}

/// The shortest circle of `preempt` from a QOS back to itself through later ones only, so that each circle is
/// found once. `None` if there is no circle.
///
/// The names are in that order, with the first one repeated at the end unless it is the only one.
fn circle<'a>(all: &'a [QosConfig], first: usize) -> Option<Vec<&'a str>> {
    let position = |name: &Arc<str>| all.iter().position(|qos| qos.name == *name);
    let mut before: BTreeMap<usize, usize> = BTreeMap::new();
    let mut open = VecDeque::from([first]);
    while let Some(at) = open.pop_front() {
        for next in all[at].preempt.iter().filter_map(position).filter(|next| *next >= first) {
            if next == first {
                let back = std::iter::successors(Some(at), |at| before.get(at).copied());
                let mut names: Vec<&'a str> = back.map(|at| &*all[at].name).collect();
                if names.len() > 1 {
                    names.insert(0, &all[first].name);
                    names.reverse();
                }
                return Some(names);
            }
            if let Entry::Vacant(unseen) = before.entry(next) {
                unseen.insert(at);
                open.push_back(next);
            }
        }
    }
    None
}

/// Reads a list of QOS.
pub(super) fn list(section: &mut Section<'_>, key: &'static str, known: &[QosConfig]) -> Vec<Arc<str>> {
    let texts = section.strings(key);
    texts.into_iter().map(|(line, name)| named(section, (line, key), name, known)).collect()
}

/// Reads the name of one QOS; `None` if the key is absent or refused.
pub(super) fn one(section: &mut Section<'_>, key: &'static str, known: &[QosConfig]) -> Option<Arc<str>> {
    let name = section.name(key)?;
    Some(named(section, (section.line_of(key), key), name, known))
}

fn named(section: &Section<'_>, (line, key): (u32, &str), name: &str, known: &[QosConfig]) -> Arc<str> {
    let names = || known.iter().map(|qos| &*qos.name).filter(|name| !name.is_empty());
    // Without any [[qos]], the QOS are those of the policy tree, which the reader does not know.
    if !known.is_empty() && name != NORMAL && !names().any(|known| known == name) {
        let help = match nearest(name, names()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("known are {}", names().collect::<Vec<_>>().join(", ")),
        };
        section.refuse_at(line, key, format_args!("there is no QOS `{name}`; {help}"));
    }
    name.into()
}
