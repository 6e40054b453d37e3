//! The file of `srun --multi-prog`, which gives the program of each task of a step.
//!
//! A line is `RANKS PROGRAM ARGUMENTS`. Ranks are `0`, `1-2,5` or, in the last line, `*` for the rest. A line
//! that begins with `#` is a comment, and a backslash at the end of a line continues it. Quotes `'…'` keep
//! blanks together, and `\x` is `x`. Outside quotes `%t` stands for the rank of the task, and `%o` for its
//! place among the ranks of its line.

use std::collections::BTreeSet;

/// Programs of the tasks of a step, as the file gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultiProg {
    lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    /// Number of the line in the file, from 1.
    number: usize,
    /// Ranks in the order written; `None` for all ranks that no other line names.
    ranks: Option<Vec<u32>>,
    words: Vec<Word>,
}

/// A word in pieces. The flag of a piece is true if it was in quotes.
type Word = Vec<(bool, String)>;

/// A program and the tasks that run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Ranks of the tasks.
    pub ranks: Vec<u32>,
    /// Program and arguments.
    pub words: Vec<String>,
}

/// Error in a multi-program file, in Slurm's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MultiProgError {
    /// No line gives the program of this task.
    #[error("Configuration file {{file}} invalid, no record for task id {0}")]
    NoRecord(u32),
    /// Invalid line: its number in the file and the reason.
    #[error("{1}\nLine {0} of configuration file {{file}} invalid")]
    Line(usize, String),
}

impl MultiProgError {
    /// Returns the message, with `file` as the name of the file.
    #[must_use]
    pub fn of_file(&self, file: &str) -> String {
        self.to_string().replace("{file}", file)
    }
}

impl MultiProg {
    /// Reads the file.
    ///
    /// # Errors
    /// [`MultiProgError::Line`] for a line without ranks or program, with invalid ranks, or with an open
    /// quote.
    pub fn parse(text: &str) -> Result<MultiProg, MultiProgError> {
        let mut lines = Vec::new();
        let mut physical = (1..).zip(text.lines());
        while let Some((number, first)) = physical.next() {
            let mut whole = first.to_owned();
            while whole.ends_with('\\') {
                whole.pop();
                match physical.next() {
                    Some((_, more)) => whole.push_str(more),
                    None => break,
                }
            }
            if whole.trim().is_empty() || whole.trim_start().starts_with('#') {
                continue;
            }
            let wrong = |why: String| MultiProgError::Line(number, why);
            let mut words = split(&whole).map_err(wrong)?;
            if words.len() < 2 {
                return Err(wrong("No program is named".to_owned()));
            }
            let ranks = ranks(&fill(&words.remove(0), None)).map_err(wrong)?;
            lines.push(Line { number, ranks, words });
        }
        Ok(MultiProg { lines })
    }

    /// Number of tasks that the file needs, one more than its highest rank; `None` if it names no rank.
    #[must_use]
    pub fn tasks(&self) -> Option<u32> {
        let named = self.lines.iter().filter_map(|line| line.ranks.as_ref()).flatten();
        named.max().map(|rank| rank.saturating_add(1))
    }

    /// Programs of a step of `tasks` tasks, with `more` words after the words of the file.
    ///
    /// # Errors
    /// [`MultiProgError`] for a task that two lines name or no line names, and for a rank that the step does
    /// not have.
    pub fn programs(&self, tasks: u32, more: &[String]) -> Result<Vec<Program>, MultiProgError> {
        let mut left: BTreeSet<u32> = (0..tasks).collect();
        let mut programs = Vec::new();
        for line in &self.lines {
            let wrong = |why: String| MultiProgError::Line(line.number, why);
            let own: Vec<(u32, u32)> = match &line.ranks {
                None => std::mem::take(&mut left).into_iter().map(|rank| (rank, rank)).collect(),
                Some(ranks) => (0..).zip(ranks.iter().copied()).map(|(place, rank)| (rank, place)).collect(),
            };
            for (rank, _) in own.iter().filter(|_| line.ranks.is_some()) {
                if *rank >= tasks {
                    return Err(wrong(format!("Invalid task id, {rank} >= ntasks")));
                }
                if !left.remove(rank) {
                    return Err(wrong(format!("Duplicate record for task {rank}")));
                }
            }
            let words = |rank: u32, place: u32| {
                let own = line.words.iter().map(|word| fill(word, Some((rank, place))));
                own.chain(more.iter().cloned()).collect::<Vec<_>>()
            };
            let is_own =
                |(quoted, text): &(bool, String)| !quoted && (text.contains("%t") || text.contains("%o"));
            if line.words.iter().flatten().any(is_own) {
                let each = own.into_iter();
                programs.extend(
                    each.map(|(rank, place)| Program { ranks: vec![rank], words: words(rank, place) }),
                );
            } else if !own.is_empty() {
                let ranks = own.into_iter().map(|(rank, _)| rank).collect();
                programs.push(Program { ranks, words: words(0, 0) });
            }
        }
        match left.first() {
            Some(rank) => Err(MultiProgError::NoRecord(*rank)),
            None => Ok(programs),
        }
    }
}

/// Replaces `%t` and `%o` in a word by the rank and the place of a task; `None` replaces nothing.
fn fill(word: &Word, task: Option<(u32, u32)>) -> String {
    let piece = |(quoted, text): &(bool, String)| match task.filter(|_| !quoted) {
        Some((rank, place)) => text.replace("%t", &rank.to_string()).replace("%o", &place.to_string()),
        None => text.clone(),
    };
    word.iter().map(piece).collect()
}

/// Reads the ranks of a line; `None` stands for the rest.
fn ranks(text: &str) -> Result<Option<Vec<u32>>, String> {
    if text == "*" {
        return Ok(None);
    }
    let mut ranks = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<u32>().map_err(|_| format!("Invalid task id \"{part}\""));
        let (first, last) = (number(first)?, number(last)?);
        // No step has this many tasks, so the ranks are not listed.
        if last < first || last - first > 1 << 24 {
            return Err(format!("Invalid task id \"{part}\""));
        }
        ranks.extend(first..=last);
    }
    Ok(Some(ranks))
}

/// Splits a line into words.
fn split(line: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let add = |word: &mut Option<Word>, quoted: bool, letter: Option<char>| {
        let pieces = word.get_or_insert_default();
        if pieces.last().is_none_or(|(last, _)| *last != quoted) {
            pieces.push((quoted, String::new()));
        }
        pieces.last_mut().into_iter().for_each(|(_, text)| text.extend(letter));
    };
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            letter if letter.is_whitespace() => words.extend(word.take()),
            '\'' => loop {
                match letters.next() {
                    Some('\'') => break add(&mut word, true, None),
                    Some(letter) => add(&mut word, true, Some(letter)),
                    None => return Err("A quote has no end".to_owned()),
                }
            },
            '\\' => add(&mut word, false, letters.next()),
            letter => add(&mut word, false, Some(letter)),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str, tasks: u32, more: &[&str]) -> Result<Vec<String>, String> {
        let more: Vec<String> = more.iter().map(|word| (*word).to_owned()).collect();
        let programs = MultiProg::parse(text).and_then(|file| file.programs(tasks, &more));
        let shown = |program: &Program| format!("{:?} {}", program.ranks, program.words.join("|"));
        programs.map(|all| all.iter().map(shown).collect()).map_err(|error| error.of_file("F"))
    }

    #[test]
    fn tasks_have_programs_of_their_own() {
        let text = "# who does what\n\n0 ./master 'a %t' \\'c\n1-2,5 ./worker %t:%o \\\n  -v\n* ./rest %o\n";
        let expected = [
            "[0] ./master|a %t|'c|x",
            "[1] ./worker|1:0|-v|x",
            "[2] ./worker|2:1|-v|x",
            "[5] ./worker|5:2|-v|x",
            "[3] ./rest|3|x",
            "[4] ./rest|4|x",
        ];
        assert_eq!(run(text, 6, &["x"]).unwrap(), expected);
        assert_eq!(run("* hostname\n", 3, &[]).unwrap(), ["[0, 1, 2] hostname"]);
        assert_eq!(MultiProg::parse(text).unwrap().tasks(), Some(6));
        assert_eq!(MultiProg::parse("* a\n").unwrap().tasks(), None);
    }

    #[test]
    fn what_is_wrong_is_said_in_slurms_words() {
        for (text, said) in [
            ("0-1 a\n", "Configuration file F invalid, no record for task id 2"),
            ("0-1 a\n1-2 b\n", "Duplicate record for task 1\nLine 2 of configuration file F invalid"),
            ("0-2 a\n# c\n5 b\n", "Invalid task id, 5 >= ntasks\nLine 3 of configuration file F invalid"),
            ("x a\n", "Invalid task id \"x\"\nLine 1 of configuration file F invalid"),
            ("0\n", "No program is named\nLine 1 of configuration file F invalid"),
            ("0 'a\n", "A quote has no end\nLine 1 of configuration file F invalid"),
        ] {
            assert_eq!(run(text, 3, &[]).unwrap_err(), said);
        }
    }
}
