//! How many of Slurm's options and variables there are here, by its own man pages where they are installed (Debian:
//! `slurm-client`). Prints three counts for each command: works, without effect, refused.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;

use flate2::read::GzDecoder;
use spur_cli::commands::{sacct, scancel, sinfo, sprio, squeue};
use spur_cli::options::defs::{SALLOC_LINE, SBATCH_LINE, SRUN_LINE};
use spur_cli::options::submission::Submission;
use spur_cli::options::{CommandLine, Effect};

/// A page without its fonts and escapes; `None` where it is not installed.
fn page(command: &str) -> Option<String> {
    let file = File::open(format!("/usr/share/man/man1/{command}.1.gz")).ok()?;
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).ok()?;
    let text = text.replace("\\-", "-");
    Some(["\\fB", "\\fI", "\\fR", "\\fP"].iter().fold(text, |text, font| text.replace(font, "")))
}

/// The long names of the options that begin a paragraph of their own.
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

/// The variables that the command reads.
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
}

/// Counts what works, has no effect and is refused, and wants nothing to be unknown.
fn count<S>(line: &CommandLine<S>, page: &str) {
    let (mut works, mut nothing, mut refused, mut unknown) = (0_u32, Vec::new(), Vec::new(), Vec::new());
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
    let all = works + u32::try_from(nothing.len() + refused.len()).expect("not that many");
    println!(
        "{}: {works} of {all} options work, {} are without effect ({}), {} are refused ({})",
        line.name,
        nothing.len(),
        nothing.join(" "),
        refused.len(),
        refused.join(" ")
    );
    assert!(all >= 15, "{}: only {all} options were found in the page", line.name);
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
