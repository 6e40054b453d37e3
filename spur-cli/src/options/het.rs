//! Jobs of several components: words that stand alone as `:` part them on a command line, and what is said of one counts
//! for those behind it where that is of use.

use super::{CommandLine, Layer, OptionError, Origin, Said};

/// Options that a component takes over from the one before it, as with Slurm, by their long names: what is about the whole
/// job, or is mostly the same for all of it. Sizes, places and constraints are each component's own.
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

/// A command line that may have several components.
pub enum Reading<S: 'static> {
    /// Only a text, which is printed and that is all.
    Show(String),
    /// What was said.
    Run {
        /// The options of each component, in order; at least one.
        components: Vec<Layer<S>>,
        /// The words behind the options.
        operands: Vec<String>,
    },
}

/// Reads a command line.
///
/// # Errors
/// What is wrong, with the place where it was said.
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

/// For each of `count` components what it takes over from those before it, and what is said of itself.
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

/// What the next component takes over of what was said up to here, as words for a command line.
pub fn passed_on<S>(layer: &Layer<S>) -> Vec<String> {
    let taken = layer.iter().filter(|said| INHERITED.contains(&said.option.long));
    let word = |said: &Said<S>| match &said.value {
        Some(value) => format!("--{}={value}", said.option.long),
        None => format!("--{}", said.option.long),
    };
    taken.map(word).collect()
}
