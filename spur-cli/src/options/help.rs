//! What `--help` and `--usage` print, made from the option table.

use super::{CommandLine, Opt, Value};

const WIDTH: usize = 80;
/// Where the sentences begin.
const COLUMN: usize = 32;

/// The whole help.
pub fn long<S>(line: &CommandLine<S>) -> String {
    let mut text = format!("Usage: {} {}\n\n", line.name, line.synopsis);
    wrapped(&mut text, line.about, 0);
    text.push_str("\nOptions:\n");
    let mut options: Vec<&Opt<S>> = line.options().filter(|option| !option.long.is_empty()).collect();
    options.sort_by_key(|option| option.long);
    for option in options {
        entry(&mut text, &left(option), option.help);
    }
    let has = |letter| line.options().any(|option| option.short == Some(letter));
    entry(&mut text, &common('h', "help", has('h')), "show this help");
    entry(&mut text, "      --usage", "show the options in short");
    entry(&mut text, &common('V', "version", has('V')), "show the version");
    variables(&mut text, line);
    text
}

/// Which variables of the environment say what.
fn variables<S>(text: &mut String, line: &CommandLine<S>) {
    let own = |name: &&str| line.env_prefixes.iter().any(|prefix| name.starts_with(prefix));
    let named = line.options().flat_map(|option| option.env.iter().map(move |&name| (name, option)));
    let mut named: Vec<_> = named.filter(|(name, _)| own(name)).collect();
    named.sort_by_key(|&(name, _)| name);
    if !named.is_empty() {
        text.push_str("\nEnvironment, which counts less than the command line:\n");
    }
    for (name, option) in named {
        let says = if option.long.is_empty() { option.help.to_owned() } else { format!("--{}", option.long) };
        entry(text, &format!("  {name}"), &says);
    }
}

/// The options on a few lines.
pub fn usage<S>(line: &CommandLine<S>) -> String {
    let start = format!("Usage: {}", line.name);
    let mut text = start.clone();
    let mut column = start.len();
    for option in line.options().filter(|option| !option.long.is_empty()) {
        let word = match option.value {
            Value::None => format!(" [--{}]", option.long),
            Value::Required(name) => format!(" [--{}={name}]", option.long),
            Value::Optional(name) => format!(" [--{}[={name}]]", option.long),
        };
        if column + word.len() > WIDTH {
            text.push_str("\n            ");
            column = 12;
        }
        column += word.len();
        text.push_str(&word);
    }
    text.push_str(&format!("\n             {}\n", line.synopsis));
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
        Opt::value("a-very-long-option-name", None, "AND-VALUE", "short", |_, _| Ok(())).optional(),
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
                                short
      --hold                    do not start
  -N, --nodes=N[-M]             the number of nodes that the job wants to have
  -h, --help                    show this help
      --usage                   show the options in short
  -V, --version                 show the version
";
        assert_eq!(long(&LINE), expected);
        assert!(long(&LINE).lines().all(|line| line.chars().count() <= WIDTH));
        assert!(usage(&LINE).starts_with("Usage: test [--nodes=N[-M]] [--hold]"));
    }
}
