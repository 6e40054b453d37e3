//! Counts Slurm's options and variables that Spur has, based on Slurm's man pages if they are installed
//! (Debian: `slurm-client`). Prints three counts per command: works, without effect, refused.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;

use flate2::read::GzDecoder;
use spur_cli::commands::{sacct, scancel, scontrol, sinfo, sprio, squeue};
use spur_cli::format::Field;
use spur_cli::format::fields::{accounting, job, node, step};
use spur_cli::options::defs::{SALLOC_LINE, SBATCH_LINE, SRUN_LINE};
use spur_cli::options::submission::Submission;
use spur_cli::options::{CommandLine, Effect};
use spur_core::model::change;
use spur_core::model::config::edit;
use spur_core::model::reservation;

/// Returns a page without fonts and escapes; `None` if it is not installed.
fn page(command: &str) -> Option<String> {
    let file = File::open(format!("/usr/share/man/man1/{command}.1.gz")).ok()?;
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).ok()?;
    let text = text.replace("\\-", "-");
    Some(["\\fB", "\\fI", "\\fR", "\\fP"].iter().fold(text, |text, font| text.replace(font, "")))
}

/// Returns the long names of options that begin a paragraph.
fn options(page: &str) -> BTreeSet<String> {
    let lines: Vec<&str> = page.lines().collect();
    let heads = lines.windows(2).filter(|pair| pair[0].starts_with(".TP")).map(|pair| pair[1]);
    let named = heads.filter(|line| line.starts_with('-')).filter_map(|line| {
        let name = line.split("--").nth(1)?;
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(name.len());
        Some(name[..end].to_owned())
    });
    named.collect()
}

/// Returns the variables that the command reads.
fn variables(page: &str) -> BTreeSet<String> {
    let input = page.split("\"INPUT ENVIRONMENT VARIABLES\"").nth(1).unwrap_or_default();
    let input = input.split("OUTPUT ENVIRONMENT VARIABLES").next().unwrap_or_default();
    let lines: Vec<&str> = input.lines().collect();
    let heads = lines.windows(2).filter(|pair| pair[0].starts_with(".TP")).map(|pair| pair[1]);
    let words = heads.flat_map(|line| line.split([' ', '=', ',']));
    let is_name = |word: &&str| {
        word.contains('_') && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
    };
    words.filter(is_name).map(str::to_owned).collect()
}

#[test]
fn slurms_options_and_variables_are_known() {
    for line in [&SBATCH_LINE, &SALLOC_LINE, &SRUN_LINE] {
        let Some(page) = page(line.name) else {
            println!("SKIPPED: there is no man page of {}", line.name);
            continue;
        };
        count(line, &page);
        judge_variables(line, &page);
    }
}

/// Returns the first words of the paragraphs of a section, keys only up to their `=`, and those of nested
/// lists.
fn heads(page: &str, section: &str) -> (Vec<String>, Vec<String>) {
    let (mut heads, mut within, mut depth, mut is_head) = (Vec::new(), Vec::new(), 0, false);
    let begin = format!(".SH \"{section}\"");
    let lines = page.lines().skip_while(|line| !line.starts_with(&begin)).skip(1);
    for line in lines.take_while(|line| !line.starts_with(".SH")) {
        match line {
            ".RS" => depth += 1,
            ".RE" => depth -= 1,
            _ if is_head => {
                let end = line.find(|c: char| !c.is_ascii_alphanumeric() && !"-_!/".contains(c));
                let word = line[..end.unwrap_or(line.len())].to_owned();
                if depth == 0 { &mut heads } else { &mut within }.push(word);
            }
            _ => {}
        }
        is_head = line.starts_with(".TP");
    }
    (heads, within)
}

/// Prints the number of words that work, and returns it with the number of all words.
fn words(command: &str, what: &str, words: &[String], works: impl Fn(&str) -> bool) -> (usize, usize) {
    let missing: Vec<&str> = words.iter().map(String::as_str).filter(|word| !works(word)).collect();
    let all = words.len();
    println!("{command}: {} of {all} {what} work; not {}", all - missing.len(), missing.join(" "));
    (all - missing.len(), all)
}

#[test]
fn most_of_scontrols_commands_and_keys_work() {
    let Some(page) = page("scontrol") else {
        println!("SKIPPED: there is no man page of scontrol");
        return;
    };
    let is = |known: &str, word: &str| known.eq_ignore_ascii_case(word);
    let section = |name: &str| heads(&page, name);
    let (mut verbs, shown) = section("COMMANDS");
    verbs.extend(section("INTERACTIVE COMMANDS").0);
    // Nested words in the paragraph of `show`, except those that restrict an entity or `requeue`.
    let narrows = ["users", "accounts", "qos", "flags", "Incomplete", "State"];
    let shown: Vec<String> = shown.into_iter().filter(|word| !narrows.contains(&word.as_str())).collect();
    // The page misspells one key.
    let (jobs, _) = section("JOBS - SPECIFICATIONS FOR UPDATE COMMAND");
    let jobs: Vec<String> = jobs.into_iter().map(|key| key.replace("IRequeue", "Requeue")).collect();
    let (nodes, _) = section("NODES - SPECIFICATIONS FOR UPDATE COMMAND");
    let (partitions, _) = section("PARTITIONS - SPECIFICATIONS FOR CREATE, UPDATE, AND DELETE COMMANDS");
    let (reservations, _) = section("RESERVATIONS - SPECIFICATIONS FOR CREATE, UPDATE, AND DELETE COMMANDS");
    let counts = [
        words("scontrol", "commands", &verbs, |word| {
            word == "!!" || scontrol::commands().any(|(name, works)| works && is(name, word))
        }),
        words("scontrol", "entities", &shown, |word| {
            scontrol::entities().any(|name| is(name.trim_end_matches('s'), word.trim_end_matches('s')))
        }),
        words("scontrol", "keys of jobs", &jobs, |word| {
            ["Clusters", "JobId", "UserID"].iter().any(|key| is(key, word))
                || change::keys().any(|key| is(key, word))
        }),
        words("scontrol", "keys of nodes", &nodes, |word| {
            scontrol::update::NODE_KEYS.iter().any(|key| is(key, word))
        }),
        words("scontrol", "keys of partitions", &partitions, |word| {
            is("PartitionName", word) || edit::PARTITION_KEYS.iter().any(|key| is(key, word))
        }),
        words("scontrol", "keys of reservations", &reservations, |word| {
            is("Reservation", word) || reservation::KEYS.iter().any(|key| is(key, word))
        }),
    ];
    let (works, all) = counts.iter().fold((0, 0), |(works, all), (more, of)| (works + more, all + of));
    println!("scontrol: {works} of {all} work");
    assert!(all > 190, "only {all} words were found in the page");
    assert!(works * 10 >= all * 9, "{works} of {all}");
}

/// Returns the names that `-O` of a command accepts according to its page.
fn long_formats(page: &str) -> Vec<String> {
    let option = page.split("\n-O, --Format=").nth(1).unwrap_or_default();
    let list = option.split("alid type specifications").nth(1).unwrap_or_default();
    let list = list.split("\n.RE").next().unwrap_or_default();
    let lines: Vec<&str> = list.lines().collect();
    let heads = lines.windows(2).filter(|pair| pair[0].starts_with(".TP")).map(|pair| pair[1]);
    heads.filter_map(|head| head.split_whitespace().next()).map(str::to_owned).collect()
}

/// Returns the fields of `sacct --format` according to its page.
fn accounting_fields(page: &str) -> Vec<String> {
    let list = page.split("Fields available:").nth(1).unwrap_or_default();
    let list = list.split(".ft").next().unwrap_or_default();
    list.split_whitespace().map(str::to_owned).collect()
}

/// True if one of the fields has this long name.
fn has<R>(fields: &[Field<R>], name: &str) -> bool {
    let is = |other: &str| other.eq_ignore_ascii_case(name);
    fields.iter().any(|field| is(field.name) || field.aliases.iter().any(|alias| is(alias)))
}

#[test]
fn fields_are_known() {
    // `All` prints every field of a node. Slurm's own `squeue` does not know ResvPort.
    let squeue = |word: &str| has(job::FIELDS, word) || has(step::FIELDS, word);
    let sinfo = |word: &str| word == "All" || has(node::FIELDS, word);
    let sacct = |word: &str| accounting::FIELDS.iter().any(|field| field.name.eq_ignore_ascii_case(word));
    let counts = [
        ("squeue", long_formats as fn(&str) -> Vec<String>, &squeue as &dyn Fn(&str) -> bool, 110),
        ("sinfo", long_formats, &sinfo, 45),
        ("sacct", accounting_fields, &sacct, 105),
    ];
    for (command, named, works, fewest) in counts {
        let Some(page) = page(command) else {
            println!("SKIPPED: there is no man page of {command}");
            continue;
        };
        let named = named(&page);
        let (works, all) = words(command, "fields", &named, works);
        assert!(all >= fewest, "{command}: only {all} fields were found in the page");
        assert!(works * 100 >= all * 95, "{command}: {works} of {all}");
    }
}

#[test]
fn options_of_the_other_commands_are_known() {
    fn of<S>(line: &CommandLine<S>) {
        match page(line.name) {
            Some(page) => count(line, &page),
            None => println!("SKIPPED: there is no man page of {}", line.name),
        }
    }
    of(&squeue::LINE);
    of(&sinfo::LINE);
    of(&sacct::LINE);
    of(&scancel::LINE);
    of(&sprio::LINE);
    of(&scontrol::LINE);
}

/// Counts options that work, have no effect and are refused; no option may be unknown.
fn count<S>(line: &CommandLine<S>, page: &str) {
    let (mut works, mut nothing, mut refused, mut unknown) = (0, Vec::new(), Vec::new(), Vec::new());
    for name in options(page) {
        let mut known =
            line.options().filter(|option| option.long == name || option.aliases.contains(&name.as_str()));
        match known.next().map(|option| option.effect) {
            Some(Effect::Works) => works += 1,
            Some(Effect::Nothing(_)) => nothing.push(name),
            Some(Effect::Refused(_)) => refused.push(name),
            None if matches!(name.as_str(), "help" | "usage" | "version") => works += 1,
            None => unknown.push(name),
        }
    }
    let all = works + nothing.len() + refused.len();
    println!(
        "{}: {works} of {all} options work, {} are without effect ({}), {} are refused ({})",
        line.name,
        nothing.len(),
        nothing.join(" "),
        refused.len(),
        refused.join(" ")
    );
    assert!(all >= 14, "{}: only {all} options were found in the page", line.name);
    assert!(unknown.is_empty(), "{}: options that are not in the table: {}", line.name, unknown.join(" "));
}

fn judge_variables(line: &CommandLine<Submission>, page: &str) {
    let ignored: Vec<String> = variables(page)
        .into_iter()
        .filter(|name| {
            let read = line.env_prefixes.iter().any(|prefix| name.starts_with(prefix));
            !read || !line.options().any(|option| option.env.contains(&name.as_str()))
        })
        .collect();
    assert!(ignored.is_empty(), "{}: variables that are ignored: {}", line.name, ignored.join(" "));
}
