//! Tests of batch scripts from users, in `tests/data/batch`: all headers and `srun` lines are accepted.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use spur_cli::options::Settled;
use spur_cli::options::defs::SRUN_LINE;
use spur_cli::options::submission::Submission;
use spur_cli::place::Here;

/// Minimum number of scripts.
const SCRIPTS: usize = 125;
/// Minimum number of `srun` lines.
const STEPS: usize = 90;

fn scripts() -> Vec<(PathBuf, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/batch");
    let entries = fs::read_dir(directory).expect("the scripts are there");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    paths.map(|path| (path.clone(), fs::read_to_string(path).expect("it can be read"))).collect()
}

#[test]
fn every_header_is_taken() {
    let (mut taken, mut refused) = (0, Vec::new());
    for (path, script) in scripts() {
        let components = Submission::parse(&[], &|_| None, Some(&script));
        let specs = components
            .and_then(|all| all.into_iter().map(|one| one.into_spec(&Here)).collect::<Result<Vec<_>, _>>());
        match specs {
            Ok(_) => taken += 1,
            Err(error) => refused.push(format!("{}: {error}", path.display())),
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(taken >= SCRIPTS, "only {taken} scripts were found");
}

#[test]
fn every_srun_line_is_taken() {
    let (mut taken, mut refused) = (0, Vec::new());
    for (path, script) in scripts() {
        for words in steps(&script) {
            let mut wishes = Submission::default();
            match wishes.settle_line(&SRUN_LINE, &words, &|_| None) {
                Ok(Settled::Run(program)) if !program.is_empty() => taken += 1,
                Ok(_) => refused.push(format!("{}: no program: {}", path.display(), words.join(" "))),
                Err(error) => refused.push(format!("{}: {error}: {}", path.display(), words.join(" "))),
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(taken >= STEPS, "only {taken} lines were found");
}

/// Returns the words after each `srun` of a script, with variables replaced.
fn steps(script: &str) -> Vec<Vec<String>> {
    let mut shell = Shell::default();
    for line in script.replace("\\\n", " ").lines().filter(|line| !line.trim_start().starts_with('#')) {
        shell.read(line);
    }
    let before = |word: &str| matches!(word, "time" | "do" | "then" | "if" | "!") || word.contains('=');
    let commands = shell.commands.into_iter().map(|command| {
        let mut words = command.into_iter().skip_while(|word| before(word));
        (words.next(), words.collect::<Vec<_>>())
    });
    commands.filter(|(first, _)| first.as_deref() == Some("srun")).map(|(_, words)| words).collect()
}

/// A shell reduced to splitting lines into commands and words.
#[derive(Default)]
struct Shell {
    variables: BTreeMap<String, String>,
    commands: Vec<Vec<String>>,
}

impl Shell {
    fn read(&mut self, line: &str) {
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        let mut rest = line.chars().peekable();
        let end = |words: &mut Vec<String>, word: &mut Option<String>| words.extend(word.take());
        while let Some(c) = rest.next() {
            match (c, quote) {
                (_, Some(open)) if c == open => quote = None,
                ('\'' | '"', None) => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                ('\\', None | Some('"')) => word.get_or_insert_default().extend(rest.next()),
                ('$', None | Some('"')) if rest.peek().is_some_and(|c| c.is_alphanumeric() || *c == '{') => {
                    let braces = rest.next_if_eq(&'{').is_some();
                    let mut name = String::new();
                    while let Some(c) =
                        rest.next_if(|c| if braces { *c != '}' } else { c.is_alphanumeric() || *c == '_' })
                    {
                        name.push(c);
                    }
                    rest.next_if(|c| braces && *c == '}');
                    word.get_or_insert_default().push_str(&self.value(&name));
                }
                (' ' | '\t', None) => end(&mut words, &mut word),
                ('>' | '<', None) => {
                    // The number of a redirected descriptor is not a word of the command.
                    word = word.filter(|word| word.parse::<u8>().is_err());
                    end(&mut words, &mut word);
                    while rest.next_if(|c| matches!(c, '>' | '&' | ' ')).is_some() {}
                    while rest.next_if(|c| !matches!(c, ' ' | ';' | '|' | '&' | ')')).is_some() {}
                }
                ('|' | '&' | ';' | '(' | ')' | '`', None) => {
                    end(&mut words, &mut word);
                    self.commands.push(std::mem::take(&mut words));
                }
                _ => word.get_or_insert_default().push(c),
            }
        }
        end(&mut words, &mut word);
        for assigned in words.iter().take_while(|word| *word == "export" || word.contains('=')) {
            if let Some((name, value)) = assigned.split_once('=') {
                self.variables.insert(name.to_owned(), value.to_owned());
            }
        }
        self.commands.push(words);
    }

    /// Returns the value of a variable. If it is not set: the text after `:-`, or else the number 4.
    fn value(&self, name: &str) -> String {
        let (name, otherwise) = name.split_once(":-").unwrap_or((name, "4"));
        self.variables.get(name).map_or_else(|| otherwise.to_owned(), Clone::clone)
    }
}
