//! Takes the CPUs, cores and memory that nodes reserve for the system.

use spur_core::model::config::Config;

use super::page::Section;
use super::source::{Entry, Notes};

/// Slurm's keys with those of `[[nodes]]`. If both of the first two are given, Slurm uses the list.
const KEYS: [(&str, &str); 3] = [
    ("CPUSpecList", "cpu_spec_list"),
    ("CoreSpecCount", "core_spec_count"),
    ("MemSpecLimit", "mem_spec_limit"),
];

/// Takes the keys that are valid for the nodes of a section; others become notes.
pub(super) fn specialized(entry: &mut Entry, section: &mut Section, notes: &mut Notes) {
    for (from, to) in KEYS {
        let Some(pair) = entry.pair(from).filter(|pair| !["", "(null)", "0"].contains(&&*pair.value)) else {
            continue;
        };
        let mut with = section.clone();
        match pair.value.parse::<u64>() {
            Ok(number) if from != "CPUSpecList" => with.plain(to, number),
            _ => with.text(to, &pair.value),
        }
        let mut judged = with.clone();
        judged.front_text("names", "n");
        let refused = Config::parse(&judged.to_string(), "").err();
        match refused.iter().flat_map(|errors| errors.iter()).find(|error| error.key == to) {
            None => *section = with,
            Some(error) => notes.tell(section, &pair, &error.problem),
        }
    }
}
