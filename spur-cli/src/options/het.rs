//! Jobs with several components. A word `:` on its own separates components on the command line. Many options
//! of a component also apply to the components after it.

use super::{CommandLine, Layer, OptionError, Origin, Said};

/// Long names of the options that a component inherits from the previous one, as with Slurm. They concern the
/// whole job or are mostly the same for all components. Sizes, places and constraints belong to one
/// component.
const INHERITED: &[&str] = &[
    "account",
    "begin",
    "chdir",
    "comment",
    "deadline",
    "dependency",
    "error",
    "exclude",
    "export",
    "export-file",
    "hold",
    "input",
    "job-name",
    "kill-on-bad-exit",
    "kill-on-invalid-dep",
    "label",
    "mail-type",
    "mail-user",
    "mpi",
    "nice",
    "no-kill",
    "no-preempt",
    "no-requeue",
    "open-mode",
    "output",
    "parsable",
    "priority",
    "propagate",
    "qos",
    "quiet",
    "requeue",
    "reservation",
    "signal",
    "test-only",
    "time",
    "time-min",
    "unbuffered",
    "verbose",
    "wait",
    "wckey",
    "wrap",
];

/// Result of reading a command line that may have several components.
pub enum Reading<S: 'static> {
    /// A text to print; nothing else is done.
    Show(String),
    /// Options and operands of the command.
    Run {
        /// Options of each component, in order; at least one component.
        components: Vec<Layer<S>>,
        /// Words after the options.
        operands: Vec<String>,
    },
}

/// Reads a command line.
///
/// # Errors
/// The invalid option, with its origin.
pub fn read<S>(line: &CommandLine<S>, words: &[String]) -> Result<Reading<S>, OptionError> {
    let (mut components, mut words) = (Vec::new(), words.to_vec());
    loop {
        match line.read(&words)? {
            super::Reading::Show(text) => return Ok(Reading::Show(text)),
            super::Reading::Run { args, operands } => {
                let parted = operands.first().is_some_and(|word| word == ":");
                if (parted || !components.is_empty()) && args.is_empty() {
                    let offset = components.len();
                    let problem =
                        format!("component {offset} of the job has no options; `:` parts components");
                    return Err(OptionError::usage(Origin::Argument(String::new()), problem));
                }
                components.push(args);
                if !parted {
                    return Ok(Reading::Run { components, operands });
                }
                words = operands[1..].to_vec();
            }
        }
    }
}

/// Returns two layers for each of `count` components: the inherited options, and its own.
pub fn inherit<S>(components: Vec<Layer<S>>, count: usize) -> Vec<(Layer<S>, Layer<S>)> {
    let mut inherited: Layer<S> = Vec::new();
    let mut components = components.into_iter();
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let own = components.next().unwrap_or_default();
        let next = inherited.iter().chain(&own).filter(|said| INHERITED.contains(&said.option.long));
        let next = next.cloned().collect();
        all.push((std::mem::replace(&mut inherited, next), own));
    }
    all
}

/// Returns the options of a component that the next component inherits, as words for a command line.
pub fn passed_on<S>(layer: &Layer<S>) -> Vec<String> {
    let taken = layer.iter().filter(|said| INHERITED.contains(&said.option.long));
    let word = |said: &Said<S>| match &said.value {
        Some(value) => format!("--{}={value}", said.option.long),
        None => format!("--{}", said.option.long),
    };
    taken.map(word).collect()
}
