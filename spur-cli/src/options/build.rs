//! Builds the clap command of an option table. The command parses the command line and is the source of man
//! pages and completions.

use clap::{Arg, ArgAction, Command};

use super::{CommandLine, Effect, Opt, Value};

/// Name of the operands in the clap command.
pub const OPERANDS: &str = "operands";

/// Builds the clap command of a command line.
pub fn command<S>(line: &CommandLine<S>) -> Command {
    let taken = |letter| line.options().any(|option| option.short == Some(letter));
    let common = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).help(help).action(ArgAction::Count)
    };
    let letter = |arg: Arg, letter| if taken(letter) { arg } else { arg.short(letter) };
    Command::new(line.name)
        .about(line.about)
        .override_usage(format!("{} {}", line.name, line.synopsis))
        .no_binary_name(true)
        .infer_long_args(true)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(line.options().filter(|option| !option.long.is_empty()).map(argument))
        .arg(letter(common("help", "show this help message"), 'h'))
        .arg(common("usage", "display brief usage message"))
        .arg(letter(common("version", "output version information and exit"), 'V'))
        .arg(Arg::new(OPERANDS).num_args(0..).action(ArgAction::Append).hide(true))
}

fn argument<S>(option: &Opt<S>) -> Arg {
    let arg = Arg::new(option.long)
        .long(option.long)
        .visible_aliases(option.aliases.iter().copied())
        .help(option.help)
        .hide(matches!(option.effect, Effect::Refused(_)));
    let arg = match option.short {
        Some(letter) => arg.short(letter),
        None => arg,
    };
    let arg = if option.group.is_empty() { arg } else { arg.help_heading(option.group) };
    match option.value {
        Value::None => arg.action(ArgAction::Count),
        Value::Required(name) => {
            arg.action(ArgAction::Append).value_name(name).num_args(1).allow_hyphen_values(true)
        }
        Value::Optional(name) => arg
            .action(ArgAction::Append)
            .value_name(name)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value(""),
    }
}
