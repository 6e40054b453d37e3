//! What `--help` and `--usage` print, made from the option table.

use super::{CommandLine, Effect, Opt, Value};

const WIDTH: usize = 80;
/// Where the sentences begin.
const COLUMN: usize = 30;

/// The whole help, in Slurm's layout: the options under their titles, in the order of the table, or without titles by
/// their names.
pub fn long<S>(line: &CommandLine<S>) -> String {
    let mut text = format!("Usage: {} {}\n\n", line.name, line.synopsis);
    let offered = |option: &&Opt<S>| !option.long.is_empty() && !matches!(option.effect, Effect::Refused(_));
    let mut options: Vec<&Opt<S>> = line.options().filter(offered).collect();
    if options.iter().all(|option| option.group.is_empty()) {
        wrapped(&mut text, line.about, 0);
        text.push_str("\nOptions:\n");
        options.sort_by_key(|option| option.long);
    }
    let mut group = "";
    for option in options {
        if option.group != group {
            let gap = if group.is_empty() { "" } else { "\n" };
            text.push_str(&format!("{gap}{}:\n", option.group));
            group = option.group;
        }
        let nothing = matches!(option.effect, Effect::Nothing(_));
        let suffix = if nothing { "; without effect here" } else { "" };
        entry(&mut text, &left(option), &format!("{}{suffix}", option.help));
    }
    let has = |letter| line.options().any(|option| option.short == Some(letter));
    text.push_str("\nHelp options:\n");
    entry(&mut text, &common('h', "help", has('h')), "show this help message");
    entry(&mut text, "      --usage", "display brief usage message");
    text.push_str("\nOther options:\n");
    entry(&mut text, &common('V', "version", has('V')), "output version information and exit");
    text
}

/// The options on a few lines.
pub fn usage<S>(line: &CommandLine<S>) -> String {
    let start = format!("Usage: {}", line.name);
    let indent = " ".repeat(start.len());
    let (mut text, mut column) = (start.clone(), start.len());
    let offered = |option: &&Opt<S>| !option.long.is_empty() && !matches!(option.effect, Effect::Refused(_));
    for option in line.options().filter(offered) {
        let word = match (option.short, option.value) {
            (Some(letter), Value::None) => format!(" [-{letter}]"),
            (Some(letter), Value::Required(name)) => format!(" [-{letter} {name}]"),
            (Some(letter), Value::Optional(name)) => format!(" [-{letter}[{name}]]"),
            (None, Value::None) => format!(" [--{}]", option.long),
            (None, Value::Required(name)) => format!(" [--{}={name}]", option.long),
            (None, Value::Optional(name)) => format!(" [--{}[={name}]]", option.long),
        };
        if column + word.len() > WIDTH {
            text.push_str(&format!("\n{indent}"));
            column = indent.len();
        }
        column += word.len();
        text.push_str(&word);
    }
    let operands = line.synopsis.strip_prefix("[OPTIONS]").unwrap_or(line.synopsis);
    if !operands.trim().is_empty() {
        text.push_str(&format!("\n{indent} {}", operands.trim()));
    }
    text.push('\n');
    text
}

fn left<S>(option: &Opt<S>) -> String {
    let letter = option.short.map_or("   ".to_owned(), |letter| format!("-{letter},"));
    let value = match option.value {
        Value::None => String::new(),
        Value::Required(name) => format!("={name}"),
        Value::Optional(name) => format!("[={name}]"),
    };
    format!("  {letter} --{}{value}", option.long)
}

fn common(letter: char, name: &str, taken: bool) -> String {
    if taken { format!("      --{name}") } else { format!("  -{letter}, --{name}") }
}

/// One option with its sentence, wrapped.
fn entry(text: &mut String, left: &str, sentence: &str) {
    text.push_str(left);
    let mut column = left.chars().count();
    if column + 2 > COLUMN {
        text.push('\n');
        column = 0;
    }
    text.push_str(&" ".repeat(COLUMN - column));
    wrapped(text, sentence, COLUMN);
}

/// A sentence that begins at `column`, where its other lines begin, too.
fn wrapped(text: &mut String, sentence: &str, column: usize) {
    let mut used = column;
    for (at, word) in sentence.split(' ').enumerate() {
        let length = word.chars().count();
        if at > 0 && used + 1 + length > WIDTH {
            text.push('\n');
            text.push_str(&" ".repeat(column));
            used = column;
        } else if at > 0 {
            text.push(' ');
            used += 1;
        }
        text.push_str(word);
        used += length;
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: &[Opt<()>] = &[
        Opt::value("nodes", Some('N'), "N[-M]", "the number of nodes that the job wants to have", |_, _| {
            Ok(())
        }),
        Opt::flag("hold", None, "do not start", |_, _| Ok(())),
        Opt::value("a-very-long-option-name", None, "AND-VALUE", "short", |_, _| Ok(()))
            .optional()
            .without_effect("it is a test"),
        Opt::flag("never", None, "not offered", |_, _| Ok(())).refused("it is a test"),
    ];
    const LINE: CommandLine<()> = CommandLine {
        name: "test",
        synopsis: "[OPTIONS]",
        about: "Does nothing.",
        options: OPTIONS,
        mask: 1,
        env_prefixes: &[],
        permute: true,
    };

    #[test]
    fn help_is_made_from_the_table() {
        let expected = "\
Usage: test [OPTIONS]

Does nothing.

Options:
      --a-very-long-option-name[=AND-VALUE]
                              short; without effect here
      --hold                  do not start
  -N, --nodes=N[-M]           the number of nodes that the job wants to have

Help options:
  -h, --help                  show this help message
      --usage                 display brief usage message

Other options:
  -V, --version               output version information and exit
";
        assert_eq!(long(&LINE), expected);
        assert!(long(&LINE).lines().all(|line| line.chars().count() <= WIDTH));
        assert!(usage(&LINE).starts_with("Usage: test [-N N[-M]] [--hold]"));
    }
}
