//! Test that `docs/compat.md` has every option, variable and field. Its tables are generated from those of
//! the commands. The last column is written by hand and preserved, except for options without effect, which
//! contain their reason. `UPDATE_EXPECT=1` rewrites the tables.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use spur_cli::commands::srun::{attach, bcast};
use spur_cli::commands::{
    sacct, sacctmgr, scancel, scontrol, sdiag, seff, sinfo, sprio, squeue, sreport, sshare, sstat,
};
use spur_cli::format::Field;
use spur_cli::format::fields::{accounting, job, node, priority, step};
use spur_cli::options::defs::{SALLOC_LINE, SBATCH_LINE, SRUN_LINE};
use spur_cli::options::{CommandLine, Effect, Value};

const BEGIN: &str = "<!-- table: ";
const END: &str = "<!-- end -->";

/// A row without its last column, and that column if it is generated.
type Row = (Vec<String>, Option<String>);

fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

fn options<S>(line: &CommandLine<S>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for option in line.options() {
        let value = match option.value {
            Value::None => String::new(),
            Value::Required(name) => format!("={name}"),
            Value::Optional(name) => format!("[={name}]"),
        };
        let letter = option.short.map(|letter| code(&format!("-{letter}")));
        let names = std::iter::once(&option.long).chain(option.aliases).filter(|name| !name.is_empty());
        let names = names.map(|name| code(&format!("--{name}{value}")));
        let said: Vec<String> = letter.into_iter().chain(names).collect();
        let own = option.env.iter().filter(|name| line.env_prefixes.iter().any(|p| name.starts_with(p)));
        let variables: Vec<String> = own.map(|name| code(name)).collect();
        if !said.is_empty() || !variables.is_empty() {
            let note = match option.effect {
                Effect::Works => None,
                Effect::Nothing(why) => Some(format!("without effect: {why}")),
                Effect::Refused(why) => Some(format!("refused: {why}")),
            };
            rows.push((
                vec![said.join(", "), variables.join(", ")],
                note.map(|note| note.replace('|', "\\|")),
            ));
        }
    }
    rows.sort();
    rows
}

fn fields<R>(table: &[Field<R>]) -> Vec<Row> {
    let row = |field: &Field<R>| {
        let letter = field.letter.map(|letter| code(&format!("%{letter}"))).unwrap_or_default();
        (vec![letter, code(field.name), code(field.header)], None)
    };
    table.iter().map(row).collect()
}

fn accounting_fields() -> Vec<Row> {
    accounting::FIELDS.iter().map(|field| (vec![code(field.name), field.width.to_string()], None)).collect()
}

fn rows(table: &str) -> Vec<Row> {
    match table {
        "sbatch options" => options(&SBATCH_LINE),
        "salloc options" => options(&SALLOC_LINE),
        "srun options" => options(&SRUN_LINE),
        "sattach options" => options(&attach::LINE),
        "sbcast options" => options(&bcast::LINE),
        "squeue options" => options(&squeue::LINE),
        "squeue fields" => fields(job::FIELDS),
        "squeue step fields" => fields(step::FIELDS),
        "sinfo options" => options(&sinfo::LINE),
        "sinfo fields" => fields(node::FIELDS),
        "scontrol options" => options(&scontrol::LINE),
        "sprio options" => options(&sprio::LINE),
        "sprio fields" => fields(priority::FIELDS),
        "sstat options" => options(&sstat::LINE),
        "sdiag options" => options(&sdiag::LINE),
        "seff options" => options(&seff::LINE),
        "sacctmgr options" => options(&sacctmgr::LINE),
        "sshare options" => options(&sshare::LINE),
        "sreport options" => options(&sreport::LINE),
        "scancel options" => options(&scancel::LINE),
        "sacct options" => options(&sacct::LINE),
        "sacct fields" => accounting_fields(),
        other => panic!("docs/compat.md has a table that nobody makes: {other}"),
    }
}

/// True if a note was generated from an option's effect, and may be outdated.
fn was_made(note: &str) -> bool {
    note.starts_with("refused: ") || note.starts_with("without effect: ")
}

const TABLES: usize = 22;

#[test]
fn every_option_and_field_is_in_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/compat.md");
    let text = fs::read_to_string(&path).unwrap();
    let (mut out, mut tables) = (String::new(), 0);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        out.push_str(&format!("{line}\n"));
        let Some(table) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(" -->")) else {
            continue;
        };
        tables += 1;
        // The header and the line below it.
        lines.by_ref().take(2).for_each(|line| out.push_str(&format!("{line}\n")));
        let mut notes = BTreeMap::new();
        for line in lines.by_ref().take_while(|line| *line != END) {
            let (row, note) = line.trim_end_matches('|').rsplit_once(" | ").unwrap_or((line, ""));
            notes.insert(row.trim().to_owned(), note.trim().to_owned());
        }
        for (row, made) in rows(table) {
            let row = format!("| {}", row.join(" | "));
            let by_hand = notes.get(row.trim()).map(String::as_str).filter(|note| !was_made(note));
            let note = made.as_deref().or(by_hand).unwrap_or_default();
            out.push_str(&format!("{row} | {note} |\n"));
        }
        out.push_str(&format!("{END}\n"));
    }
    assert_eq!(tables, TABLES, "a table is missing");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, &out).unwrap();
        return;
    }
    let mut pairs = text.lines().zip(out.lines());
    let differs = pairs.find(|(there, made)| there != made);
    assert!(text == out, "docs/compat.md is out of date, UPDATE_EXPECT=1 rewrites its tables: {differs:?}");
}
