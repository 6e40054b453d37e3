//! What was said, and where: the command line by the rules of `getopt_long`, and the environment.

use spur_core::text::nearest::nearest;

use super::{CommandLine, Opt, OptionError, Origin, Reading, Value, help};
use crate::command::version;

/// One option as it was said.
#[derive(Debug)]
pub struct Said<S: 'static> {
    /// Which.
    pub option: &'static Opt<S>,
    /// With what value.
    pub value: Option<String>,
    /// Where.
    pub origin: Origin,
}

impl<S> Clone for Said<S> {
    fn clone(&self) -> Self {
        Said { option: self.option, value: self.value.clone(), origin: self.origin.clone() }
    }
}

/// Options in the order in which they were said in one place.
pub type Layer<S> = Vec<Said<S>>;

/// A name after two dashes.
enum Named<S: 'static> {
    Option(&'static Opt<S>),
    Help,
    Usage,
    Version,
}

impl<S> Clone for Named<S> {
    fn clone(&self) -> Self {
        match self {
            Named::Option(option) => Named::Option(option),
            Named::Help => Named::Help,
            Named::Usage => Named::Usage,
            Named::Version => Named::Version,
        }
    }
}

impl<S> Named<S> {
    fn same(&self, other: &Named<S>) -> bool {
        match (self, other) {
            (Named::Option(a), Named::Option(b)) => std::ptr::eq(*a, *b),
            (Named::Help, Named::Help) | (Named::Usage, Named::Usage) => true,
            (Named::Version, Named::Version) => true,
            _ => false,
        }
    }
}

pub(super) fn from_args<S>(line: &CommandLine<S>, words: &[String]) -> Result<Reading<S>, OptionError> {
    let mut args = Vec::new();
    let mut operands = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let shown = if word == "--" {
            operands.extend(words.by_ref().cloned());
            None
        } else if let Some(name) = word.strip_prefix("--") {
            long(line, name, &mut words, &mut args)?
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            short(line, letters, &mut words, &mut args)?
        } else {
            operands.push(word.clone());
            if !line.permute {
                operands.extend(words.by_ref().cloned());
            }
            None
        };
        if let Some(text) = shown {
            return Ok(Reading::Show(text));
        }
    }
    Ok(Reading::Run { args, operands })
}

/// `--name`, `--name=value`, `--name value`; a name may be cut where no other begins like it.
fn long<S>(
    line: &CommandLine<S>,
    word: &str,
    words: &mut std::slice::Iter<'_, String>,
    args: &mut Layer<S>,
) -> Result<Option<String>, OptionError> {
    let (name, attached) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (word, None),
    };
    let option = match find_long(line, name)? {
        Named::Option(option) => option,
        Named::Help => return Ok(Some(help::long(line))),
        Named::Usage => return Ok(Some(help::usage(line))),
        Named::Version => return Ok(Some(format!("{}\n", version()))),
    };
    let origin = Origin::Argument(format!("--{}", option.long));
    let value = match (option.value, attached) {
        (Value::None, Some(_)) => return Err(OptionError::usage(origin, "it takes no value")),
        (Value::Required(what), None) => {
            let missing =
                || OptionError::usage(origin.clone(), format!("it needs a value: --{}={what}", option.long));
            Some(words.next().ok_or_else(missing)?.clone())
        }
        (_, attached) => attached,
    };
    args.push(Said { option, value, origin });
    Ok(None)
}

fn find_long<S>(line: &CommandLine<S>, name: &str) -> Result<Named<S>, OptionError> {
    let own = line.options().flat_map(|option| {
        let names = std::iter::once(option.long).chain(option.aliases.iter().copied());
        names.map(move |name| (name, Named::Option(option)))
    });
    let own = own.filter(|(name, _)| !name.is_empty());
    let common = [("help", Named::Help), ("usage", Named::Usage), ("version", Named::Version)];
    let known: Vec<(&str, Named<S>)> = own.chain(common).collect();
    if let Some((_, exact)) = known.iter().find(|(known, _)| *known == name) {
        return Ok(exact.clone());
    }
    let origin = Origin::Argument(String::new());
    let begun: Vec<_> =
        known.iter().filter(|(known, _)| !name.is_empty() && known.starts_with(name)).collect();
    match &begun[..] {
        [] => {
            let hint = nearest(name, known.iter().map(|(known, _)| *known));
            let hint = hint.map(|known| format!("; did you mean `--{known}`?")).unwrap_or_default();
            Err(OptionError::usage(origin, format!("unrecognized option '--{name}'{hint}")))
        }
        [(_, first), rest @ ..] if rest.iter().all(|(_, other)| first.same(other)) => Ok(first.clone()),
        several => {
            let names: Vec<String> = several.iter().map(|(name, _)| format!("'--{name}'")).collect();
            let problem = format!("option '--{name}' is ambiguous; it could be {}", names.join(" "));
            Err(OptionError::usage(origin, problem))
        }
    }
}

/// `-abc`: several letters, of which the first that takes a value takes all the rest.
fn short<S>(
    line: &CommandLine<S>,
    letters: &str,
    words: &mut std::slice::Iter<'_, String>,
    args: &mut Layer<S>,
) -> Result<Option<String>, OptionError> {
    let mut rest = letters.chars();
    while let Some(letter) = rest.next() {
        let origin = Origin::Argument(format!("-{letter}"));
        let Some(option) = line.options().find(|option| option.short == Some(letter)) else {
            return match letter {
                'h' => Ok(Some(help::long(line))),
                'V' => Ok(Some(format!("{}\n", version()))),
                _ => {
                    let problem = format!("invalid option -- '{letter}'");
                    Err(OptionError::usage(Origin::Argument(String::new()), problem))
                }
            };
        };
        let attached = Some(rest.as_str()).filter(|text| !text.is_empty()).map(str::to_owned);
        let value = match option.value {
            Value::None => None,
            Value::Optional(_) => attached,
            Value::Required(what) => {
                let missing =
                    || OptionError::usage(origin.clone(), format!("it needs a value: -{letter} {what}"));
                Some(attached.or_else(|| words.next().cloned()).ok_or_else(missing)?)
            }
        };
        let takes_rest = option.value != Value::None;
        args.push(Said { option, value, origin });
        if takes_rest {
            break;
        }
    }
    Ok(None)
}

pub(super) fn from_env<S>(line: &CommandLine<S>, env: &dyn Fn(&str) -> Option<String>) -> Layer<S> {
    let mut layer = Vec::new();
    for option in line.options() {
        let own = option.env.iter().filter(|name| line.env_prefixes.iter().any(|p| name.starts_with(p)));
        for &name in own {
            if let Some(value) = env(name) {
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
            ("--hold=1", "--hold: it takes no value"),
            ("--nodes", "--nodes: it needs a value: --nodes=N"),
            ("-N", "-N: it needs a value: -N N"),
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
        assert_eq!(settings.0, ["hold=", "nodes=1"]);
        let env = |name: &str| Some("bad".to_owned()).filter(|_| name == "TEST_NODES");
        let error = line(false).settle(&[], &env, &mut settings).unwrap_err();
        assert_eq!(error.to_string(), "TEST_NODES: that is bad");
    }
}
