//! Command-line options. Each option is defined once. Its definition determines how it is read from the
//! command line, the environment and a script, its text in `--help`, and its effect.
//!
//! Options are read and applied in two steps. Reading produces layers of options with their origins
//! ([`layer`]). Folding the layers into settings, weakest first, applies them. clap parses the command line,
//! by a command that the table builds ([`build`]).

pub mod build;
pub mod defs;
pub mod directive;
pub mod help;
pub mod het;
pub mod layer;
pub mod submission;
pub mod told;
pub mod values;

#[cfg(test)]
mod tests;

use std::fmt;

pub use layer::{Layer, Reader, Said};

/// The action of a flag that makes one field of the settings true: `sets!(Args.json)`.
macro_rules! sets {
    ($settings:ident.$field:ident) => {
        |settings: &mut $settings, _: &str| {
            settings.$field = true;
            Ok(())
        }
    };
}

pub(crate) use sets;

/// Definition of one option of commands whose settings are an `S`.
#[derive(Debug)]
pub struct Opt<S> {
    /// Long name without dashes; empty for an option that only the environment can set.
    pub long: &'static str,
    /// Other long names of the option.
    pub aliases: &'static [&'static str],
    /// Letter of the option.
    pub short: Option<char>,
    /// Value of the option: none, required or optional.
    pub value: Value,
    /// Full names of the environment variables that set the option.
    pub env: &'static [&'static str],
    /// Bits of the commands that have the option; see [`CommandLine::mask`].
    pub commands: u8,
    /// Long names of options that cannot be given in the same place. In a stronger place, either option
    /// overrides the other.
    pub excludes: &'static [&'static str],
    /// Title under which `--help` lists the option; empty if there are no titles.
    pub group: &'static str,
    /// One sentence for `--help`.
    pub help: &'static str,
    /// Effect of the option: it works, has none, or is refused.
    pub effect: Effect,
    /// Applies the option's value, which is empty without one, to the settings. An error describes the
    /// invalid value.
    pub set: fn(&mut S, &str) -> Result<(), String>,
}

impl<S> Clone for Opt<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Opt<S> {}

/// Effect of an option, compared with Slurm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The option works as with Slurm.
    Works,
    /// The option is accepted without effect, because it would change no result; the sentence gives the
    /// reason.
    Nothing(&'static str),
    /// The option is refused, because the result without it would be wrong. The sentence gives the reason or
    /// an alternative.
    Refused(&'static str),
}

/// Value of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// The option has no value.
    None,
    /// The option requires a value, with this name in `--help`.
    Required(&'static str),
    /// The option may have a value after `=` or directly after the letter.
    Optional(&'static str),
}

/// Result of applying a command line's options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// A text to print; nothing else is done.
    Show(String),
    /// Operands of the command.
    Run(Vec<String>),
}

impl<S> Opt<S> {
    /// Defines an option without a value.
    pub const fn flag(
        long: &'static str,
        short: Option<char>,
        help: &'static str,
        set: fn(&mut S, &str) -> Result<(), String>,
    ) -> Opt<S> {
        Opt {
            long,
            aliases: &[],
            short,
            value: Value::None,
            env: &[],
            commands: u8::MAX,
            excludes: &[],
            group: "",
            help,
            effect: Effect::Works,
            set,
        }
    }

    /// Defines an option with a required value.
    pub const fn value(
        long: &'static str,
        short: Option<char>,
        name: &'static str,
        help: &'static str,
        set: fn(&mut S, &str) -> Result<(), String>,
    ) -> Opt<S> {
        let value = Value::Required(name);
        Opt { value, ..Opt::flag(long, short, help, set) }
    }

    /// Defines an option that only the environment can set.
    pub const fn variable(help: &'static str, set: fn(&mut S, &str) -> Result<(), String>) -> Opt<S> {
        Opt::value("", None, "", help, set)
    }

    /// Makes the value optional.
    pub const fn optional(self) -> Opt<S> {
        let value = match self.value {
            Value::Required(name) => Value::Optional(name),
            other => other,
        };
        Opt { value, ..self }
    }

    /// Adds other long names.
    pub const fn or(self, aliases: &'static [&'static str]) -> Opt<S> {
        Opt { aliases, ..self }
    }

    /// Adds environment variables.
    pub const fn env(self, env: &'static [&'static str]) -> Opt<S> {
        Opt { env, ..self }
    }

    /// Marks the option as accepted without effect, with the reason.
    pub const fn without_effect(self, why: &'static str) -> Opt<S> {
        Opt { effect: Effect::Nothing(why), ..self }
    }

    /// Marks the option as refused, with the reason.
    pub const fn refused(self, why: &'static str) -> Opt<S> {
        Opt { effect: Effect::Refused(why), ..self }
    }

    /// Excludes other options in the same place.
    pub const fn excluding(self, excludes: &'static [&'static str]) -> Opt<S> {
        Opt { excludes, ..self }
    }

    /// Restricts the option to some commands.
    pub const fn only(self, commands: u8) -> Opt<S> {
        Opt { commands, ..self }
    }
}

/// Command line of one command.
#[derive(Debug)]
pub struct CommandLine<S: 'static> {
    /// Name of the command.
    pub name: &'static str,
    /// Text after the name in the usage line.
    pub synopsis: &'static str,
    /// Description of the command for `--help`.
    pub about: &'static str,
    /// Options of the command; the table may contain those of other commands.
    pub options: &'static [Opt<S>],
    /// Bit of the command in [`Opt::commands`].
    pub mask: u8,
    /// Prefixes of the environment variables that the command reads.
    pub env_prefixes: &'static [&'static str],
    /// True if options may follow operands; otherwise the first operand ends the options.
    pub permute: bool,
}

/// Result of reading a command line.
#[derive(Debug)]
pub enum Reading<S: 'static> {
    /// A text to print; nothing else is done.
    Show(String),
    /// Options and operands of the command.
    Run {
        /// Options in the order of the command line.
        args: Layer<S>,
        /// Operands of the command.
        operands: Vec<String>,
    },
}

impl<S> CommandLine<S> {
    /// Returns the options of this command.
    pub fn options(&self) -> impl Iterator<Item = &'static Opt<S>> + '_ {
        self.options.iter().filter(|option| option.commands & self.mask != 0)
    }

    /// Parses the words after the command's name.
    ///
    /// # Errors
    /// An unknown option, a missing value or an unexpected value.
    pub fn read(&self, words: &[String]) -> Result<Reading<S>, OptionError> {
        Reader::new(self).read(words)
    }

    /// Returns the options that environment variables set.
    pub fn read_env(&self, env: &dyn Fn(&str) -> Option<String>) -> Layer<S> {
        layer::from_env(self, env)
    }

    /// Applies environment and command line to the settings, for commands without other sources of options.
    ///
    /// # Errors
    /// An invalid option or value.
    pub fn settle(
        &self,
        words: &[String],
        env: &dyn Fn(&str) -> Option<String>,
        settings: &mut S,
    ) -> Result<Settled, OptionError> {
        match self.read(words)? {
            Reading::Show(text) => Ok(Settled::Show(text)),
            Reading::Run { args, operands } => {
                // Notes are discarded: only options of jobs may be without effect.
                let _notes = fold([self.read_env(env), args], settings)?;
                Ok(Settled::Run(operands))
            }
        }
    }
}

/// Applies layers to the settings, the weakest first. Returns notes on options without effect, which `-v`
/// prints.
///
/// # Errors
/// The first value that is not accepted, with its origin.
pub fn fold<S: 'static>(
    layers: impl IntoIterator<Item = Layer<S>>,
    settings: &mut S,
) -> Result<Vec<String>, OptionError> {
    let mut notes = Vec::new();
    for layer in layers {
        for said in &layer {
            let beside = |other: &&Said<S>| said.option.excludes.contains(&other.option.long);
            if let Some(other) = layer.iter().find(beside) {
                let problem =
                    format!("--{} and --{} exclude each other", said.option.long, other.option.long);
                return Err(OptionError { origin: said.origin.clone(), problem, usage: false });
            }
        }
        for said in layer {
            let value = said.value.as_deref().unwrap_or_default();
            let refuse = |problem| OptionError { origin: said.origin.clone(), problem, usage: false };
            (said.option.set)(settings, value).map_err(|problem| invalid(&said, &problem))?;
            match said.option.effect {
                Effect::Works => {}
                Effect::Nothing(why) => notes.push(format!("{} has no effect: {why}", said.origin)),
                Effect::Refused(why) => return Err(refuse(why.to_owned())),
            }
        }
    }
    Ok(notes)
}

/// Returns the error of an invalid value. Commands that request nodes begin it with Slurm's words, unless the
/// problem is a whole sentence, which contains `{option}`.
fn invalid<S>(said: &Said<S>, problem: &str) -> OptionError {
    if said.option.group.is_empty() {
        return OptionError { origin: said.origin.clone(), problem: problem.to_owned(), usage: false };
    }
    let option = match (said.option.long, &said.origin) {
        ("", Origin::Variable(name)) => (*name).to_owned(),
        (long, _) => format!("--{long}"),
    };
    let place = match &said.origin {
        Origin::Variable(name) if !said.option.long.is_empty() => format!(" ({name})"),
        Origin::Script { line, .. } => format!(" (line {line} of the script)"),
        _ => String::new(),
    };
    let problem = if problem.contains("{option}") {
        format!("{}{place}", problem.replace("{option}", &option))
    } else {
        format!("Invalid {option} specification{place}: {problem}")
    };
    OptionError::together(problem)
}

/// Place at which an option was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line, with the option's name there.
    Argument(String),
    /// An environment variable.
    Variable(&'static str),
    /// The batch script.
    Script {
        /// Number of the line, counted from 1.
        line: usize,
        /// Name of the option in the script.
        option: String,
    },
    /// Several options together.
    Together,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Argument(option) => f.write_str(option),
            Origin::Variable(name) => f.write_str(name),
            Origin::Script { line, option } if option.is_empty() => write!(f, "line {line} of the script"),
            Origin::Script { line, option } => write!(f, "line {line} of the script: {option}"),
            Origin::Together => Ok(()),
        }
    }
}

/// An invalid option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError {
    /// Place at which the option was given.
    pub origin: Origin,
    /// Description of the problem.
    pub problem: String,
    usage: bool,
}

impl OptionError {
    /// Returns an error of a combination of options.
    pub fn together(problem: impl Into<String>) -> OptionError {
        OptionError { origin: Origin::Together, problem: problem.into(), usage: false }
    }

    /// Returns an error of the command line itself, after which the usage is recommended.
    pub fn usage(origin: Origin, problem: impl Into<String>) -> OptionError {
        OptionError { origin, problem: problem.into(), usage: true }
    }

    /// True if the user should be referred to `--help`.
    pub fn is_about_usage(&self) -> bool {
        self.usage
    }
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Together => f.write_str(&self.problem),
            Origin::Argument(option) if option.is_empty() => f.write_str(&self.problem),
            origin => write!(f, "{origin}: {}", self.problem),
        }
    }
}

impl std::error::Error for OptionError {}
