//! Options as given, with their origin: the command line, parsed by clap, and the environment.

use clap::ArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use spur_core::text::nearest::nearest;

use super::{CommandLine, Opt, OptionError, Origin, Reading, Value, build, help};
use crate::version;

/// One option as given.
#[derive(Debug)]
pub struct Said<S: 'static> {
    /// The option's definition.
    pub option: &'static Opt<S>,
    /// Value of the option, if it has one.
    pub value: Option<String>,
    /// Place at which the option was given.
    pub origin: Origin,
}

impl<S> Clone for Said<S> {
    fn clone(&self) -> Self {
        Said { option: self.option, value: self.value.clone(), origin: self.origin.clone() }
    }
}

/// Options of one place, in the order in which they were given.
pub type Layer<S> = Vec<Said<S>>;

/// Parser of command lines, or of lines of a script, for one command.
pub struct Reader<'a, S: 'static> {
    line: &'a CommandLine<S>,
    /// The clap command, which is built for the first words, because a script may have no options.
    command: Option<clap::Command>,
}

impl<'a, S> Reader<'a, S> {
    /// Returns a parser of the options of `line`.
    pub fn new(line: &'a CommandLine<S>) -> Reader<'a, S> {
        Reader { line, command: None }
    }

    /// Parses the words after the command's name.
    ///
    /// # Errors
    /// An unknown option, a missing value or an unexpected value.
    pub fn read(&mut self, words: &[String]) -> Result<Reading<S>, OptionError> {
        let words = self.spelled(words);
        let command = self.command.get_or_insert_with(|| build::command(self.line));
        let matches = command.try_get_matches_from_mut(words).map_err(|error| self.refusal(&error))?;
        if let Some(name) = COMMON.into_iter().find(|name| is_said(&matches, name)) {
            return Ok(Reading::Show(match name {
                "help" => help::long(self.line),
                "usage" => help::usage(self.line),
                _ => version::line(),
            }));
        }
        let operands = matches.get_many::<String>(build::OPERANDS).unwrap_or_default().cloned().collect();
        Ok(Reading::Run { args: self.layer(&matches), operands })
    }

    /// Expands letters to long names with values after `=`, and inserts `--` before the operands.
    ///
    /// The text directly after a letter is its value, even if the value is optional or begins with `=`
    /// (`-I5`, `-J=x`). This is the rule of `getopt`, and clap cannot express it.
    fn spelled(&self, words: &[String]) -> Vec<String> {
        let mut spelled = Vec::with_capacity(words.len());
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if let Some(name) = word.strip_prefix("--").filter(|name| !name.is_empty()) {
                let needs = self.named(name).is_some_and(|option| matches!(option.value, Value::Required(_)));
                let next = if needs && !name.contains('=') { words.next() } else { None };
                spelled.push(next.map_or_else(|| word.clone(), |value| format!("{word}={value}")));
            } else if let Some(letters) =
                word.strip_prefix('-').filter(|letters| !letters.is_empty() && word != "--")
            {
                self.letters(letters, &mut words, &mut spelled);
            } else if word != "--" && self.line.permute {
                spelled.push(word.clone());
            } else {
                let first = (word != "--").then_some(word);
                spelled.push("--".to_owned());
                spelled.extend(first.into_iter().chain(words.by_ref()).cloned());
            }
        }
        spelled
    }

    /// Expands `-abc`: several letters, of which the first one that takes a value takes the rest of the word.
    fn letters(&self, letters: &str, words: &mut std::slice::Iter<'_, String>, spelled: &mut Vec<String>) {
        let mut rest = letters.chars();
        while let Some(letter) = rest.next() {
            let Some(option) = self.line.options().find(|option| option.short == Some(letter)) else {
                match letter {
                    'h' => spelled.push("--help".to_owned()),
                    'V' => spelled.push("--version".to_owned()),
                    unknown => {
                        spelled.push(format!("-{unknown}"));
                        return;
                    }
                }
                continue;
            };
            let attached = Some(rest.as_str().to_owned()).filter(|rest| !rest.is_empty());
            let value = match option.value {
                Value::None => {
                    spelled.push(format!("--{}", option.long));
                    continue;
                }
                Value::Optional(_) => attached,
                Value::Required(_) => attached.or_else(|| words.next().cloned()),
            };
            let value = value.map(|value| format!("={value}")).unwrap_or_default();
            spelled.push(format!("--{}{value}", option.long));
            return;
        }
    }

    /// Returns the option with the name in `word`, or the only option whose name begins so. A value may
    /// follow after `=`. `None` for an unknown or ambiguous name.
    fn named(&self, word: &str) -> Option<&'static Opt<S>> {
        let name = word.split('=').next().unwrap_or_default();
        let names = |option: &Opt<S>| [&[option.long], option.aliases].concat();
        let exact = self.line.options().find(|option| names(option).contains(&name));
        exact.or_else(|| {
            let mut begun = self.line.options().filter(|option| {
                names(option).iter().any(|known| !known.is_empty() && known.starts_with(name))
            });
            begun.next().filter(|_| begun.next().is_none())
        })
    }

    /// Returns the options that clap has found, in the order of the command line.
    fn layer(&self, matches: &ArgMatches) -> Layer<S> {
        let mut found = Vec::new();
        for option in self.line.options().filter(|option| is_said(matches, option.long)) {
            let mut indices = matches.indices_of(option.long).unwrap_or_default();
            let said = |value| Said { option, value, origin: Origin::Argument(format!("--{}", option.long)) };
            if option.value == Value::None {
                // A repeated flag counts at its last position, with the number of its repetitions.
                let last = indices.next_back().unwrap_or_default();
                let times = matches.get_count(option.long);
                found.extend((0..times).map(|_| (last, said(None))));
            } else {
                let values = matches.get_many::<String>(option.long).unwrap_or_default();
                found.extend(indices.zip(values).map(|(index, value)| (index, said(Some(value.clone())))));
            }
        }
        found.sort_by_key(|&(index, _)| index);
        found.into_iter().map(|(_, said)| said).collect()
    }

    /// Converts clap's error to the words of `getopt_long`.
    fn refusal(&self, error: &clap::Error) -> OptionError {
        let context = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(text)) => text.as_str(),
            _ => "",
        };
        let name = context.split([' ', '=', '[', '.']).next().unwrap_or_default();
        let problem = match error.kind() {
            ErrorKind::UnknownArgument => match name.strip_prefix("--") {
                Some(long) => self.unknown(long),
                None => format!("invalid option -- '{}'", name.trim_start_matches('-')),
            },
            ErrorKind::TooManyValues => format!("option '{name}' doesn't allow an argument"),
            ErrorKind::InvalidValue => {
                let option = self.named(name.trim_start_matches('-'));
                let what = match option.map(|option| option.value) {
                    Some(Value::Required(what) | Value::Optional(what)) => format!("={what}"),
                    Some(Value::None) | None => String::new(),
                };
                format!("option '{name}' requires an argument: {name}{what}")
            }
            _ => error.to_string().trim_end().to_owned(),
        };
        OptionError::usage(Origin::Argument(String::new()), problem)
    }

    fn unknown(&self, name: &str) -> String {
        let known = self.line.options().filter(|option| !option.long.is_empty());
        let known =
            known.flat_map(|option| std::iter::once(option.long).chain(option.aliases.iter().copied()));
        let known: Vec<&str> = known.chain(COMMON).collect();
        let begun: Vec<String> = known
            .iter()
            .filter(|known| !name.is_empty() && known.starts_with(name))
            .map(|known| format!("'--{known}'"))
            .collect();
        if begun.len() > 1 {
            return format!("option '--{name}' is ambiguous; possibilities: {}", begun.join(" "));
        }
        let hint = nearest(name, known.iter().copied());
        let hint = hint.map(|known| format!("; did you mean `--{known}`?")).unwrap_or_default();
        format!("unrecognized option '--{name}'{hint}")
    }
}

/// Long names of the options of every command.
const COMMON: [&str; 3] = ["help", "usage", "version"];

fn is_said(matches: &ArgMatches, name: &str) -> bool {
    !name.is_empty() && matches.value_source(name) == Some(ValueSource::CommandLine)
}

pub(super) fn from_env<S>(line: &CommandLine<S>, env: &dyn Fn(&str) -> Option<String>) -> Layer<S> {
    let mut layer = Vec::new();
    for option in line.options() {
        let own = option.env.iter().filter(|name| line.env_prefixes.iter().any(|p| name.starts_with(p)));
        for &name in own {
            // A flag's variable sets the flag if it is empty, `yes` or a number other than 0; any other value
            // is ignored.
            let says = |value: &String| {
                let on = || value.parse::<i64>().is_ok_and(|number| number != 0);
                option.value != Value::None || value.is_empty() || value.eq_ignore_ascii_case("yes") || on()
            };
            if let Some(value) = env(name).filter(says) {
                let value = Some(value).filter(|_| option.value != Value::None);
                layer.push(Said { option, value, origin: Origin::Variable(name) });
            }
        }
    }
    layer
}

#[cfg(test)]
mod tests {
    use super::super::Settled;
    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Settings(Vec<String>);

    macro_rules! note {
        ($name:literal) => {
            |settings: &mut Settings, value| {
                settings.0.push(format!("{}={value}", $name));
                if value == "bad" { Err("that is bad".into()) } else { Ok(()) }
            }
        };
    }

    const OPTIONS: &[Opt<Settings>] = &[
        Opt::value("nodes", Some('N'), "N", "how many", note!("nodes")).env(&["TEST_NODES", "OTHER_NODES"]),
        Opt::value("nodelist", Some('w'), "LIST", "which", note!("nodelist")),
        Opt::flag("hold", Some('H'), "wait", note!("hold")).env(&["TEST_HOLD"]),
        Opt::value("exclusive", Some('e'), "KIND", "alone", note!("exclusive"))
            .optional()
            .or(&["exact", "excl"]),
        Opt::flag("other", Some('o'), "not ours", note!("other")).only(2),
    ];

    fn line(permute: bool) -> CommandLine<Settings> {
        CommandLine {
            name: "test",
            synopsis: "",
            about: "",
            options: OPTIONS,
            mask: 1,
            env_prefixes: &["TEST_"],
            permute,
        }
    }

    fn read(permute: bool, text: &str) -> Result<String, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let mut settings = Settings::default();
        match line(permute).settle(&words, &|_| None, &mut settings) {
            Ok(Settled::Run(operands)) => Ok(format!("{} | {}", settings.0.join(" "), operands.join(" "))),
            Ok(Settled::Show(_)) => Ok("shown".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn words_are_read_as_getopt_long_reads_them() {
        for (text, expected) in [
            ("--nodes 3 --nodes=4 -N5 -N 6", "nodes=3 nodes=4 nodes=5 nodes=6 | "),
            ("-HN7", "hold= nodes=7 | "),
            ("--exc", "exclusive= | "),
            ("--exclusive=user -e -etopo", "exclusive=user exclusive= exclusive=topo | "),
            ("--ho x --hold", "hold= | x --hold"),
            ("-- --hold", " | --hold"),
            ("-", " | -"),
            ("--nodes=", "nodes= | "),
            ("-w -N", "nodelist=-N | "),
            ("-w=-N --nodes --hold", "nodelist==-N nodes=--hold | "),
            ("-Hetopo -He", "exclusive=topo hold= hold= exclusive= | "),
            ("-HeH -N -4 a -N9", "hold= exclusive=H nodes=-4 | a -N9"),
            ("--help", "shown"),
            ("--us", "shown"),
            ("-V", "shown"),
        ] {
            assert_eq!(read(false, text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(read(true, "a -H b -- -c").as_deref(), Ok("hold= | a b -c"));
    }

    #[test]
    fn wrong_words_are_refused() {
        for (text, part) in [
            ("--nod", "ambiguous"),
            ("--hodl", "did you mean `--hold`"),
            ("--zzzzzz", "unrecognized option '--zzzzzz'"),
            ("--hold=1", "option '--hold' doesn't allow an argument"),
            ("--nodes", "option '--nodes' requires an argument: --nodes=N"),
            ("-N", "option '--nodes' requires an argument: --nodes=N"),
            ("-x", "invalid option -- 'x'"),
            ("-o", "invalid option -- 'o'"),
            ("--=1", "unrecognized option '--'"),
            ("--nodes=bad", "--nodes: that is bad"),
        ] {
            let error = read(false, text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn the_environment_counts_less_than_the_command_line() {
        let env =
            |name: &str| Some("bad".to_owned()).filter(|_| name == "TEST_HOLD" || name == "OTHER_NODES");
        let mut settings = Settings::default();
        let words = ["-N".to_owned(), "1".to_owned()];
        line(false).settle(&words, &env, &mut settings).unwrap();
        assert_eq!(settings.0, ["nodes=1"]);
        let env = |name: &str| Some("1".to_owned()).filter(|_| name == "TEST_HOLD");
        let mut settings = Settings::default();
        line(false).settle(&words, &env, &mut settings).unwrap();
        assert_eq!(settings.0, ["hold=", "nodes=1"]);
        let env = |name: &str| Some("bad".to_owned()).filter(|_| name == "TEST_NODES");
        let error = line(false).settle(&[], &env, &mut settings).unwrap_err();
        assert_eq!(error.to_string(), "TEST_NODES: that is bad");
    }
}
