//! Cases of `tests/data/options`: command line, environment and script of a submission, and the result.
//!
//! A case is a line `$ sbatch …` or `$ srun …`, followed by lines `env NAME=VALUE` and `script TEXT` and by
//! the expected result. The result is the error, or the fields that differ from an empty request; `here`
//! marks fields that the command keeps for itself. With `UPDATE_EXPECT` set, the files are rewritten with the
//! actual results.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use spur_core::text::time::{Civil, CivilNow, Time};
use spur_proto::v1::JobSpec;

use super::OptionError;
use super::defs::{SBATCH_LINE, SRUN_LINE};
use super::submission::{Export, Submission, Surroundings};

/// Friday, 2026-11-20 14:30:00 in a zone an hour east of UTC.
struct Afternoon;

impl Surroundings for Afternoon {
    fn now(&self) -> CivilNow {
        let civil = Civil { year: 2026, month: 11, day: 20, hour: 14, minute: 30, second: 0 };
        CivilNow { time: self.to_epoch(civil).unwrap(), civil }
    }

    fn to_epoch(&self, civil: Civil) -> Option<Time> {
        civil.to_utc().map(|time| Time(time.0 - 3600))
    }
}

#[derive(Default)]
struct Case {
    words: Vec<String>,
    env: BTreeMap<String, String>,
    script: Option<String>,
}

impl Case {
    fn outcome(&self) -> String {
        let told = self.submissions().and_then(|components| {
            let tell =
                |wishes: Submission| wishes.clone().into_spec(&Afternoon).map(|spec| told(wishes, &spec));
            components.into_iter().map(tell).collect::<Result<Vec<_>, _>>()
        });
        match told {
            Err(error) => format!("error: {error}\n"),
            Ok(components) => components.join(":\n"),
        }
    }

    fn submissions(&self) -> Result<Vec<Submission>, OptionError> {
        let env = |name: &str| self.env.get(name).cloned();
        if self.words[0] == "sbatch" {
            return Submission::parse(&self.words[1..], &env, self.script.as_deref());
        }
        assert_eq!((self.words[0].as_str(), SBATCH_LINE.name), ("srun", "sbatch"));
        let mut wishes = Submission::default();
        wishes.settle_line(&SRUN_LINE, &self.words[1..], &env)?;
        Ok(vec![wishes])
    }
}

/// Returns the fields of the request and of the command that differ from the defaults.
fn told(wishes: Submission, spec: &JobSpec) -> String {
    let mut text = differences(spec, &JobSpec::default());
    let here = Submission {
        spec: JobSpec::default(),
        begin: None,
        deadline: None,
        dependency: None,
        gather_with: None,
        said: BTreeMap::new(),
        is_batch: false,
        is_srun: false,
        ..wishes
    };
    for line in differences(&here, &Submission::default()).lines() {
        writeln!(text, "here {line}").unwrap();
    }
    text
}

/// Returns the fields of `value` that differ from those of `other`, one per line.
fn differences(value: &impl std::fmt::Debug, other: &impl std::fmt::Debug) -> String {
    let (value, other) = (format!("{value:?}"), format!("{other:?}"));
    let other = fields(&other);
    let mut text = String::new();
    for field in fields(&value).iter().filter(|field| !other.contains(field)) {
        writeln!(text, "{field}").unwrap();
    }
    text
}

/// Splits `Type { a: 1, b: "x" }` into its fields.
fn fields(debug: &str) -> Vec<&str> {
    let inside = debug.split_once(" { ").unwrap().1.strip_suffix(" }").unwrap();
    let (mut depth, mut quoted, mut escaped, mut from) = (0, false, false, 0);
    let mut fields = Vec::new();
    for (at, c) in inside.char_indices() {
        match c {
            '"' if !escaped => quoted = !quoted,
            '{' | '[' | '(' if !quoted => depth += 1,
            '}' | ']' | ')' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                fields.push(inside[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
        escaped = c == '\\' && !escaped;
    }
    fields.push(inside[from..].trim());
    fields
}

/// Returns the file with the actual results in place of the expected ones.
fn run(text: &str) -> String {
    let mut rewritten = String::new();
    for block in text.split("\n\n") {
        if !rewritten.is_empty() {
            rewritten.push('\n');
        }
        let mut case = Case::default();
        for line in block.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                case.words = super::directive::words(command).unwrap();
            } else if let Some(variable) = line.strip_prefix("env ") {
                let (name, value) = variable.split_once('=').unwrap();
                case.env.insert(name.to_owned(), value.to_owned());
            } else if let Some(line) = line.strip_prefix("script") {
                let script = case.script.get_or_insert_default();
                script.push_str(line.strip_prefix(' ').unwrap_or(line));
                script.push('\n');
            } else if !line.starts_with('#') {
                continue;
            }
            writeln!(rewritten, "{line}").unwrap();
        }
        if !case.words.is_empty() {
            rewritten.push_str(&case.outcome());
        }
    }
    rewritten
}

#[test]
fn what_is_typed_becomes_what_is_asked() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/options");
    let files: Vec<PathBuf> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty(), "no cases in {}", directory.display());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let outcome = run(&text);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&file, &outcome).unwrap();
        } else {
            assert_eq!(text, outcome, "{}", file.display());
        }
    }
}

#[test]
fn every_option_is_the_only_one_of_its_name() {
    for line in [&SBATCH_LINE, &SRUN_LINE] {
        let mut names = std::collections::BTreeSet::new();
        for option in line.options() {
            let letter = option.short.map(String::from);
            let long = std::iter::once(option.long).chain(option.aliases.iter().copied()).map(str::to_owned);
            for name in long.chain(letter).filter(|name| !name.is_empty()) {
                assert!(names.insert(name.clone()), "{} {name}", line.name);
            }
            assert!(!option.help.is_empty() && option.commands != u8::MAX, "{}", option.long);
        }
    }
}

#[test]
fn what_export_says_reaches_steps_with_its_values() {
    let spelled = |text: &str| text.parse::<Export>().unwrap().spelled();
    assert_eq!(spelled("ALL"), None);
    for text in
        ["NONE", "FOO", "ALL,FOO=1", "NONE,FOO=1,BAR", "A='1,2',B=x y", "A=\"it's\"", "A='\"1,2\"'", "A="]
    {
        let export: Export = text.parse().unwrap();
        let again: Export = export.spelled().unwrap().parse().unwrap();
        assert_eq!(again, export, "{text} becomes {:?}", spelled(text));
    }
    assert_eq!(spelled("ALL,FOO=1").as_deref(), Some("ALL,FOO=1"));
}
