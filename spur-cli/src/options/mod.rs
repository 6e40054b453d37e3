//! Options: each is defined once, and that one definition drives how it is read from the command line, from the
//! environment and from a script, what `--help` says of it, and what it does.
//!
//! What was said and what it means are two things. Reading gives layers of what was said, with where it was said
//! ([`layer`]); folding them, weakest first, into settings gives what it means. The command line itself is read by
//! clap, from a command that the table makes ([`build`]).

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

/// One option of a command whose settings are an `S`.
#[derive(Debug)]
pub struct Opt<S> {
    /// The long name, without dashes; empty for what only the environment can say.
    pub long: &'static str,
    /// Other long names for the same.
    pub aliases: &'static [&'static str],
    /// The letter.
    pub short: Option<char>,
    /// What follows it.
    pub value: Value,
    /// Variables of the environment that say the same, with the whole name.
    pub env: &'static [&'static str],
    /// The commands that have it; see [`CommandLine::mask`].
    pub commands: u8,
    /// Long names of options that cannot stand beside it in one place. In a stronger place, either overrides the
    /// other.
    pub excludes: &'static [&'static str],
    /// Under which title `--help` lists it; empty if there are no titles.
    pub group: &'static str,
    /// One sentence for `--help`.
    pub help: &'static str,
    /// Whether it does what it says.
    pub effect: Effect,
    /// What it does to the settings: its value, empty if it has none. The error says what is wrong with it.
    pub set: fn(&mut S, &str) -> Result<(), String>,
}

impl<S> Clone for Opt<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Opt<S> {}

/// Whether an option does what Slurm's does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It does.
    Works,
    /// It is taken and changes nothing, because nobody's result would differ; the sentence says why.
    Nothing(&'static str),
    /// It is refused, because a result without it would be wrong; the sentence says why, or what works instead.
    Refused(&'static str),
}

/// What follows an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    None,
    /// A value, by the name that `--help` has for it.
    Required(&'static str),
    /// Perhaps a value, behind `=` or right behind the letter.
    Optional(&'static str),
}

/// What is left of a command line when its options have acted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Only a text, which is printed and that is all.
    Show(String),
    /// The other words.
    Run(Vec<String>),
}

impl<S> Opt<S> {
    /// An option without a value.
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

    /// An option with a value.
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

    /// What only the environment can say.
    pub const fn variable(help: &'static str, set: fn(&mut S, &str) -> Result<(), String>) -> Opt<S> {
        Opt::value("", None, "", help, set)
    }

    /// The same with a value that may be left out.
    pub const fn optional(self) -> Opt<S> {
        let value = match self.value {
            Value::Required(name) => Value::Optional(name),
            other => other,
        };
        Opt { value, ..self }
    }

    /// The same with other long names.
    pub const fn or(self, aliases: &'static [&'static str]) -> Opt<S> {
        Opt { aliases, ..self }
    }

    /// The same with variables of the environment.
    pub const fn env(self, env: &'static [&'static str]) -> Opt<S> {
        Opt { env, ..self }
    }

    /// The same, taken and without effect, for this reason.
    pub const fn without_effect(self, why: &'static str) -> Opt<S> {
        Opt { effect: Effect::Nothing(why), ..self }
    }

    /// The same, refused for this reason.
    pub const fn refused(self, why: &'static str) -> Opt<S> {
        Opt { effect: Effect::Refused(why), ..self }
    }

    /// The same, not to stand beside others.
    pub const fn excluding(self, excludes: &'static [&'static str]) -> Opt<S> {
        Opt { excludes, ..self }
    }

    /// The same for some commands only.
    pub const fn only(self, commands: u8) -> Opt<S> {
        Opt { commands, ..self }
    }
}

/// How one command is called.
#[derive(Debug)]
pub struct CommandLine<S: 'static> {
    /// Its name.
    pub name: &'static str,
    /// What stands behind the name in the usage line.
    pub synopsis: &'static str,
    /// What it does, for `--help`.
    pub about: &'static str,
    /// Its options, and perhaps those of others.
    pub options: &'static [Opt<S>],
    /// The bit by which options know it.
    pub mask: u8,
    /// What the variables begin with that it reads.
    pub env_prefixes: &'static [&'static str],
    /// Whether options may follow operands; otherwise the first operand ends the options.
    pub permute: bool,
}

/// What a command line asks for.
#[derive(Debug)]
pub enum Reading<S: 'static> {
    /// Only a text, which is printed and that is all.
    Show(String),
    /// To do something.
    Run {
        /// What the options say.
        args: Layer<S>,
        /// The other words.
        operands: Vec<String>,
    },
}

impl<S> CommandLine<S> {
    /// The options of this command.
    pub fn options(&self) -> impl Iterator<Item = &'static Opt<S>> + '_ {
        self.options.iter().filter(|option| option.commands & self.mask != 0)
    }

    /// Reads the words behind the command's name.
    ///
    /// # Errors
    /// An option that there is not, a value too few or too many.
    pub fn read(&self, words: &[String]) -> Result<Reading<S>, OptionError> {
        Reader::new(self).read(words)
    }

    /// What the environment says.
    pub fn read_env(&self, env: &dyn Fn(&str) -> Option<String>) -> Layer<S> {
        layer::from_env(self, env)
    }

    /// Command line and environment folded into settings, for commands that read nothing else.
    ///
    /// # Errors
    /// What is wrong with an option or its value.
    pub fn settle(
        &self,
        words: &[String],
        env: &dyn Fn(&str) -> Option<String>,
        settings: &mut S,
    ) -> Result<Settled, OptionError> {
        match self.read(words)? {
            Reading::Show(text) => Ok(Settled::Show(text)),
            Reading::Run { args, operands } => {
                // Only options of jobs have no effect.
                let _notes = fold([self.read_env(env), args], settings)?;
                Ok(Settled::Run(operands))
            }
        }
    }
}

/// Lets layers act on the settings, the weakest first. What it gives is told under `-v`: what was said and has no
/// effect.
///
/// # Errors
/// The first value that is not accepted, with where it was said.
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

/// A value that is not accepted. Commands that ask for nodes say it in Slurm's words first; a problem that names
/// `{option}` is a sentence already.
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

/// Where something was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// On the command line, by this name.
    Argument(String),
    /// By a variable of the environment.
    Variable(&'static str),
    /// In the script.
    Script {
        /// The line, counted from 1.
        line: usize,
        /// The option.
        option: String,
    },
    /// By several options together.
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

/// An option that cannot be honoured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError {
    /// Where it was said.
    pub origin: Origin,
    /// What is wrong.
    pub problem: String,
    usage: bool,
}

impl OptionError {
    /// An error about what several options say together.
    pub fn together(problem: impl Into<String>) -> OptionError {
        OptionError { origin: Origin::Together, problem: problem.into(), usage: false }
    }

    /// An error about the command line as such, after which the usage is pointed to.
    pub fn usage(origin: Origin, problem: impl Into<String>) -> OptionError {
        OptionError { origin, problem: problem.into(), usage: true }
    }

    /// Whether `--help` would tell what is right.
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
