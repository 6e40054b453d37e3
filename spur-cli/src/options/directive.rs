//! `#SBATCH` lines of a batch script.
//!
//! Options are read from lines that begin with exactly `#SBATCH`, up to the first line that is neither blank
//! nor a comment. A line is split into words as a shell does, with quotes and backslashes; a `#` outside
//! quotes ends it.

use super::{CommandLine, Layer, OptionError, Origin, Reader, Reading};

const MARK: &str = "#SBATCH";
/// Options that print something instead of running a job.
const SHOWING: [&str; 5] = ["-V", "--version", "-h", "--help", "--usage"];

/// Reads the options of a script, one layer per component of the job. A line `#SBATCH hetjob` begins the next
/// component.
///
/// # Errors
/// A line that cannot be read, with its number.
pub fn from_script<S>(line: &CommandLine<S>, script: &str) -> Result<Vec<Layer<S>>, OptionError> {
    let (mut layers, mut layer, mut reader) = (Vec::new(), Vec::new(), Reader::new(line));
    for (at, text) in directives(script) {
        let place = |option: &str| Origin::Script { line: at, option: option.to_owned() };
        let mut words = words(text).map_err(|problem| OptionError::usage(place(""), problem))?;
        // Scripts for PBS contain `-V`. Slurm, too, ignores options in a script that only print something.
        words.retain(|word| !SHOWING.contains(&word.as_str()));
        if let [word] = &words[..]
            && matches!(word.as_str(), "hetjob" | "packjob")
        {
            layers.push(std::mem::take(&mut layer));
            continue;
        }
        let moved = |origin: Origin| match origin {
            Origin::Argument(option) => place(&option),
            other => other,
        };
        let read = reader.read(&words);
        let reading = read.map_err(|error| OptionError { origin: moved(error.origin.clone()), ..error })?;
        let Reading::Run { args, operands } = reading else {
            return Err(OptionError::usage(place(""), "--help, --usage and --version have no place here"));
        };
        if let Some(word) = operands.first() {
            let problem = format!("Invalid directive found in batch script: {word}");
            return Err(OptionError::usage(place(""), problem));
        }
        layer.extend(args.into_iter().map(|said| super::Said { origin: moved(said.origin), ..said }));
    }
    layers.push(layer);
    Ok(layers)
}

/// Returns the text after each mark, with the line's number, counted from 1.
fn directives(script: &str) -> impl Iterator<Item = (usize, &str)> {
    let head = script.lines().enumerate().take_while(|(_, line)| {
        let line = line.trim_start();
        line.is_empty() || line.starts_with('#')
    });
    head.filter_map(|(at, line)| {
        let rest = line.strip_prefix(MARK)?;
        let marked = rest.is_empty() || rest.starts_with([' ', '\t', '-']);
        marked.then_some((at + 1, rest))
    })
}

/// Returns the first line with options for another batch system, in the comments at the head of a script: its
/// number and its mark. `None` if there is none.
pub fn foreign(script: &str) -> Option<(usize, &'static str)> {
    let head = script.lines().enumerate().take_while(|(_, line)| line.is_empty() || line.starts_with('#'));
    let mark = |line: &str| ["#PBS", "#BSUB"].into_iter().find(|mark| line.starts_with(mark));
    head.filter_map(|(at, line)| Some((at + 1, mark(line)?))).next()
}

/// Cuts a line into words.
pub(crate) fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '#' => break,
            // At the end of a line a backslash has no effect; shells would continue the line.
            '\\' => chars.next().into_iter().for_each(|next| word.get_or_insert_default().push(next)),
            '\'' | '"' => quoted(c, &mut chars, word.get_or_insert_default())?,
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Appends the text up to the closing quote to `word`.
fn quoted(quote: char, chars: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), String> {
    loop {
        match chars.next() {
            None => return Err(format!("the quote {quote} is not closed")),
            Some(c) if c == quote => return Ok(()),
            Some('\\') if quote == '"' => match chars.next() {
                Some(c @ ('"' | '\\' | '$' | '`')) => word.push(c),
                Some(c) => word.extend(['\\', c]),
                None => return Err(format!("the quote {quote} is not closed")),
            },
            Some(c) => word.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_cut_as_a_shell_cuts_them() {
        for (line, expected) in [
            (" -N 4  -n8", &["-N", "4", "-n8"][..]),
            (" --comment='a b' # c", &["--comment=a b"]),
            (r#" --comment="a \"b\" \n" x\ y"#, &[r#"--comment=a "b" \n"#, "x y"]),
            (" --constraint=a#b", &["--constraint=a"]),
            (" -N2#two", &["-N2"]),
            (" -J'a#b'", &["-Ja#b"]),
            (" -N2 \\", &["-N2"]),
            (" -N2\\", &["-N2"]),
            (" ''", &[""]),
            ("", &[]),
        ] {
            assert_eq!(words(line).unwrap(), expected, "{line}");
        }
        for line in ["'a", "\"a", "\"a\\"] {
            assert!(words(line).is_err(), "{line}");
        }
    }

    #[test]
    fn directives_end_where_the_script_begins() {
        let script = "#!/bin/sh\n#SBATCH -N1\n\n# SBATCH -N2\n  #SBATCH -N3\n#SBATCHER\n#SBATCH -N4\ntrue\n#SBATCH -N5\n";
        assert_eq!(directives(script).collect::<Vec<_>>(), [(2, " -N1"), (7, " -N4")]);
    }
}
