//! Text of `--help` and `--usage`, generated from the option table.

use super::{CommandLine, Effect, Opt, Value};

const WIDTH: usize = 80;
/// Column at which the descriptions begin.
const COLUMN: usize = 30;
/// Column at which the descriptions begin below options with a colon.
const LISTED_COLUMN: usize = 19;

/// Returns the whole help in Slurm's layout. Options are listed under their titles in the table's order;
/// options without titles are sorted by name.
pub fn long<S>(line: &CommandLine<S>) -> String {
    if is_listed(line) {
        return listed(line);
    }
    if is_short_list(line) {
        return short_list(line);
    }
    let mut text = format!("Usage: {} {}\n\n", line.name, line.synopsis);
    let mut options: Vec<&Opt<S>> = line.options().filter(is_offered).collect();
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
        entry(&mut text, &left(option), &sentence(option));
    }
    let has = |letter| line.options().any(|option| option.short == Some(letter));
    text.push_str("\nHelp options:\n");
    entry(&mut text, &common('h', "help", has('h')), "show this help message");
    entry(&mut text, "      --usage", "display brief usage message");
    text.push_str("\nOther options:\n");
    entry(&mut text, &common('V', "version", has('V')), "output version information and exit");
    text
}

/// Returns the help of a command whose synopsis begins with `[<OPTION>]`, as with Slurm: the options, each
/// with a colon, and then the rest.
fn listed<S>(line: &CommandLine<S>) -> String {
    let mut text = format!("{} {}\n    Valid <OPTION> values are:\n", line.name, line.synopsis);
    let mut options: Vec<&Opt<S>> = line.options().filter(is_offered).collect();
    options.sort_by_key(|option| option.long.to_ascii_lowercase());
    let mut entry = |letter: Option<char>, long: &str, sentence: &str| {
        let letter = letter.map_or("    ".to_owned(), |letter| format!("-{letter}, "));
        text.push_str(&format!("     {letter}--{long}:\n{:LISTED_COLUMN$}", ""));
        wrapped(&mut text, sentence, LISTED_COLUMN);
    };
    for option in options {
        entry(option.short, option.long, &sentence(option));
    }
    let free = |letter| line.options().all(|option| option.short != Some(letter));
    entry(Some('h').filter(|letter| free(*letter)), "help", "display this help message");
    entry(None, "usage", "display brief usage message");
    entry(Some('V').filter(|letter| free(*letter)), "version", "display tool version number");
    text.push('\n');
    if line.about.contains('\n') {
        text.push_str(line.about);
    } else {
        wrapped(&mut text, line.about, 0);
    }
    text
}

/// True for a command whose synopsis is `[OPTION]`.
fn is_short_list<S>(line: &CommandLine<S>) -> bool {
    line.synopsis == "[OPTION]"
}

/// Returns the help of a command whose synopsis is `[OPTION]`, as with Slurm: each option on a line.
fn short_list<S>(line: &CommandLine<S>) -> String {
    let mut text = format!("Usage:  {} {}\n  Valid OPTIONs are:\n", line.name, line.synopsis);
    let mut options: Vec<&Opt<S>> = line.options().filter(is_offered).collect();
    options.sort_by_key(|option| option.long.to_ascii_lowercase());
    let mut put = |letter: Option<char>, long: &str, sentence: &str| {
        let letter = letter.map_or("      ".to_owned(), |letter| format!("-{letter} or "));
        entry(&mut text, &format!("    {letter}--{long}"), sentence);
    };
    for option in options {
        let sign = if option.value == Value::None { "" } else { "=" };
        put(option.short, &format!("{}{sign}", option.long), &sentence(option));
    }
    let free = |letter| line.options().all(|option| option.short != Some(letter));
    put(Some('V').filter(|letter| free(*letter)), "version", "display tool version number");
    put(Some('h').filter(|letter| free(*letter)), "help", "display this usage description");
    put(None, "usage", "display this usage description");
    text.push('\n');
    wrapped(&mut text, line.about, 0);
    text
}

/// Returns the usage in a few lines: the options in flat brackets, which programs parse, and the operands.
pub fn usage<S>(line: &CommandLine<S>) -> String {
    if let Some(rest) = line.synopsis.strip_prefix("[<OPTION>]") {
        // As in Slurm, commands of keywords have one text for both.
        return match rest.contains("<COMMAND>") {
            true => listed(line),
            false => format!("Usage: {} [options]{rest}\n\tUse --help for help\n", line.name),
        };
    }
    if is_short_list(line) {
        return short_list(line);
    }
    let start = format!("Usage: {}", line.name);
    if line.synopsis.starts_with("[options]") {
        return format!("{start} {}\n", line.synopsis);
    }
    let indent = " ".repeat(start.len());
    let (mut text, mut column) = (start.clone(), start.len());
    let mut put = |word: &str| {
        if column + 1 + word.len() > WIDTH {
            text.push_str(&format!("\n{indent}"));
            column = indent.len();
        }
        column += 1 + word.len();
        text.push_str(&format!(" {word}"));
    };
    let flags = line.options().filter(is_offered).filter(|option| option.value == Value::None);
    let letters: String = flags.filter_map(|option| option.short).collect();
    if !letters.is_empty() {
        put(&format!("[-{letters}]"));
    }
    for option in line.options().filter(is_offered) {
        let word = match (option.short, option.value) {
            (Some(_), Value::None) => continue,
            (Some(letter), Value::Required(name)) => format!("-{letter} {name}"),
            (Some(letter), Value::Optional(name)) => format!("-{letter}{{{name}}}"),
            (None, Value::None) => format!("--{}", option.long),
            (None, Value::Required(name)) => format!("--{}={name}", option.long),
            (None, Value::Optional(name)) => format!("--{}{{={name}}}", option.long),
        };
        put(&format!("[{}]", word.replace('[', "{").replace(']', "}")));
    }
    let operands = operands(line.synopsis);
    if !operands.is_empty() {
        put(&operands);
    }
    text.push('\n');
    text
}

/// Returns the operands in a usage line, for a single component of a het job. Slurm calls the script an
/// executable there.
fn operands(synopsis: &str) -> String {
    let components =
        ["[OPTIONS(0)...] [ : [OPTIONS(N)...]]", "[OPTIONS(0)...] [ : [OPTIONS(N)]]", "[OPTIONS]"];
    let rest = components.iter().find_map(|options| synopsis.strip_prefix(options)).unwrap_or(synopsis);
    rest.trim().replace("(0)", "").replace("script", "executable")
}

/// True if the help has the layout of Slurm's commands with `[<OPTION>]`.
fn is_listed<S>(line: &CommandLine<S>) -> bool {
    line.synopsis.starts_with("[<OPTION>]")
}

fn is_offered<S>(option: &&Opt<S>) -> bool {
    !option.long.is_empty() && !matches!(option.effect, Effect::Refused(_))
}

/// Returns the description of an option, and notes if the option has no effect.
fn sentence<S>(option: &Opt<S>) -> String {
    let nothing = matches!(option.effect, Effect::Nothing(_));
    format!("{}{}", option.help, if nothing { "; without effect here" } else { "" })
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

/// Appends an option and its description, wrapped.
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

/// Appends a sentence wrapped to lines that begin at `column`; the text already reaches `column`.
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
        let brief = "Usage: test [-N N{-M}] [--hold] [--a-very-long-option-name{=AND-VALUE}]\n";
        assert_eq!(usage(&LINE), brief);
        let short = CommandLine { synopsis: "[options] <id>", ..LINE };
        assert_eq!(usage(&short), "Usage: test [options] <id>\n");
    }

    #[test]
    fn usage_names_the_operands_of_one_component() {
        for (synopsis, rest) in [
            ("[OPTIONS(0)...] [ : [OPTIONS(N)...]] script(0) [args(0)...]", "executable [args...]"),
            ("[OPTIONS(0)...] [ : [OPTIONS(N)]] [command(0) [args(0)...]]", "[command [args...]]"),
            ("[OPTIONS] SOURCE DEST", "SOURCE DEST"),
            ("[OPTIONS]", ""),
        ] {
            assert_eq!(operands(synopsis), rest);
        }
    }

    #[test]
    fn a_short_list_has_an_option_on_each_line() {
        let line = CommandLine { synopsis: "[OPTION]", ..LINE };
        let text = long(&line);
        assert!(text.starts_with("Usage:  test [OPTION]\n  Valid OPTIONs are:\n"), "{text}");
        assert!(text.contains("\n    -N or --nodes=            the number of nodes"), "{text}");
        assert!(text.contains("\n    -V or --version           display tool version number\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert_eq!(usage(&line), text);
    }

    #[test]
    fn commands_of_keywords_list_their_options_with_colons() {
        let line = CommandLine { synopsis: "[<OPTION>] [<COMMAND>]", about: "one\ntwo\n", ..LINE };
        let text = long(&line);
        assert!(text.starts_with("test [<OPTION>] [<COMMAND>]\n    Valid <OPTION> values are:\n"), "{text}");
        assert!(text.contains("\n     -N, --nodes:\n                   the number of nodes"), "{text}");
        assert!(text.ends_with("display tool version number\n\none\ntwo\n"), "{text}");
        assert_eq!(usage(&line), text);
        let line = CommandLine { synopsis: "[<OPTION>] -j <job>", ..LINE };
        assert_eq!(usage(&line), "Usage: test [options] -j <job>\n\tUse --help for help\n");
    }
}
