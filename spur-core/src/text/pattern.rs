//! Names of input and output files with replacements: `slurm-%j.out`, `%x/%A_%4a.log`.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use super::jobid::StepRef;
use super::{ParseError, serde_as_text};

const WHAT: &str = "file pattern";
const HELP: &str = "known are %% %A %a %b %J %j %N %n %r %s %t %u %x, and a backslash to take all as it is";
/// Widest padding in digits, as in Slurm.
const MAX_WIDTH: usize = 10;
/// Index that Slurm prints for a job that is no array task.
pub const NO_INDEX: u64 = 4_294_967_294;

/// Value that `%` and a letter stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Field {
    ArrayJob,
    ArrayIndex,
    ArrayIndexModTen,
    JobAndStep,
    Job,
    Host,
    NodeNumber,
    Restarts,
    Step,
    Task,
    User,
    JobName,
}

impl Field {
    fn of_letter(letter: char) -> Option<Field> {
        Some(match letter {
            'A' => Field::ArrayJob,
            'a' => Field::ArrayIndex,
            'b' => Field::ArrayIndexModTen,
            'J' => Field::JobAndStep,
            'j' => Field::Job,
            'N' => Field::Host,
            'n' => Field::NodeNumber,
            'r' => Field::Restarts,
            's' => Field::Step,
            't' => Field::Task,
            'u' => Field::User,
            'x' => Field::JobName,
            _ => return None,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Piece {
    Text(String),
    Field { field: Field, width: usize },
}

/// Values for the replacements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternContext<'a> {
    /// Number of the job.
    pub job: u32,
    /// Number of the array and index of the task; `None` for a job that is no array task.
    pub array: Option<(u32, u32)>,
    /// The step; `None` for the batch script.
    pub step: Option<StepRef>,
    /// Name of the node. Replacements use the part before the first dot.
    pub node: &'a str,
    /// Position of the node in the job, from 0.
    pub node_number: u32,
    /// Rank of the task, from 0.
    pub task: u32,
    /// Name of the user.
    pub user: &'a str,
    /// Name of the job.
    pub job_name: &'a str,
    /// Number of times the job was started again.
    pub restarts: u32,
}

/// A pattern for the name of a file. It displays as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FilePattern {
    text: String,
    pieces: Vec<Piece>,
}

impl FilePattern {
    /// Default of `--output` for a job that is no array.
    pub const DEFAULT: &'static str = "slurm-%j.out";
    /// Default of `--output` for an array.
    pub const DEFAULT_ARRAY: &'static str = "slurm-%A_%a.out";

    /// Returns the name of the file. A `/` in the job's name is replaced by `_`, so that the job's name stays
    /// one part of the path.
    pub fn render(&self, context: &PatternContext<'_>) -> String {
        let mut path = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => path.push_str(text),
                Piece::Field { field, width } => push_field(&mut path, *field, *width, context),
            }
        }
        path
    }

    /// True if the pattern gives every node a file of its own.
    pub fn per_node(&self) -> bool {
        self.uses(&[Field::Host, Field::NodeNumber])
    }

    /// True if the pattern gives every task a file of its own.
    pub fn per_task(&self) -> bool {
        self.uses(&[Field::Task])
    }

    fn uses(&self, fields: &[Field]) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Field { field, .. } if fields.contains(field)))
    }
}

fn push_field(path: &mut String, field: Field, width: usize, context: &PatternContext<'_>) {
    let (array_job, index) = match context.array {
        Some((job, index)) => (job, u64::from(index)),
        None => (context.job, NO_INDEX),
    };
    let number = match field {
        Field::ArrayJob => array_job.into(),
        Field::ArrayIndex => index,
        Field::ArrayIndexModTen => index % 10,
        Field::Job => context.job.into(),
        Field::NodeNumber => context.node_number.into(),
        Field::Restarts => context.restarts.into(),
        Field::Task => context.task.into(),
        Field::JobAndStep => {
            push_number(path, context.job.into(), width);
            if let Some(step) = context.step {
                path.push('.');
                push_step(path, step, 0);
            }
            return;
        }
        Field::Step => return push_step(path, context.step.unwrap_or(StepRef::Batch), width),
        Field::Host => return path.push_str(context.node.split('.').next().unwrap_or_default()),
        Field::User => return path.push_str(context.user),
        Field::JobName => return path.push_str(&context.job_name.replace('/', "_")),
    };
    push_number(path, number, width);
}

fn push_number(path: &mut String, number: u64, width: usize) {
    write!(path, "{number:0width$}").expect("a String takes everything");
}

fn push_step(path: &mut String, step: StepRef, width: usize) {
    match step {
        StepRef::Number(number) => push_number(path, number.into(), width),
        StepRef::Batch | StepRef::Extern | StepRef::Interactive => path.push_str(&step.to_string()),
    }
}

impl fmt::Display for FilePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for FilePattern {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<FilePattern, ParseError> {
        let refuse = |problem: String| ParseError::new(WHAT, text, problem, HELP);
        if text.is_empty() {
            return Err(refuse("it is empty".to_owned()));
        }
        if text.contains('\0') {
            return Err(refuse("it contains a zero byte".to_owned()));
        }
        let pieces =
            if text.contains('\\') { vec![Piece::Text(text.replace('\\', ""))] } else { pieces(text) };
        Ok(FilePattern { text: text.to_owned(), pieces })
    }
}

/// Splits a pattern into text and replacements.
///
/// As in Slurm, an unknown replacement stays as it is, and no number is padded to more than [`MAX_WIDTH`]
/// digits.
fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        plain.push_str(before);
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (width, behind) = after.split_at(digits);
        let letter = behind.chars().next();
        let end = digits + letter.map_or(0, char::len_utf8);
        rest = &after[end..];
        match letter.and_then(Field::of_letter) {
            Some(field) => {
                let width =
                    if width.is_empty() { 0 } else { width.parse().unwrap_or(MAX_WIDTH).min(MAX_WIDTH) };
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(Piece::Field { field, width });
            }
            None if letter == Some('%') && width.is_empty() => plain.push('%'),
            None => {
                plain.push('%');
                plain.push_str(&after[..end]);
            }
        }
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    pieces
}

serde_as_text!(FilePattern);

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> PatternContext<'static> {
        PatternContext {
            job: 128,
            array: None,
            step: Some(StepRef::Number(3)),
            node: "n7.cluster.example",
            node_number: 2,
            task: 5,
            user: "alice",
            job_name: "my/job",
            restarts: 1,
        }
    }

    fn render(pattern: &str, context: &PatternContext<'_>) -> String {
        pattern.parse::<FilePattern>().unwrap().render(context)
    }

    #[test]
    fn replacements() {
        for (pattern, expected) in [
            ("slurm-%j.out", "slurm-128.out"),
            ("%6j-%4t-%n-%r", "000128-0005-2-1"),
            ("%J.%s", "128.3.3"),
            ("%2s", "03"),
            ("%N/%u/%x", "n7/alice/my_job"),
            ("%5u", "alice"),
            ("100%%j", "100%j"),
            ("%A_%a_%b", "128_4294967294_4"),
            ("\\%j.out", "%j.out"),
            ("plain", "plain"),
            ("%10j", "0000000128"),
            ("%12j", "0000000128"),
            ("out-%", "out-%"),
            ("out-%3", "out-%3"),
            ("%q-%3q-%4%%t", "%q-%3q-%4%5"),
        ] {
            assert_eq!(render(pattern, &context()), expected, "{pattern}");
        }
    }

    #[test]
    fn arrays_and_batch_scripts() {
        let task = PatternContext { array: Some((36, 13)), job: 41, step: None, ..context() };
        assert_eq!(render(FilePattern::DEFAULT_ARRAY, &task), "slurm-36_13.out");
        assert_eq!(render("%3a-%b-%j-%J-%s", &task), "013-3-41-41-batch");
    }

    #[test]
    fn a_file_for_every_node_or_task() {
        let pattern = |text: &str| text.parse::<FilePattern>().unwrap();
        assert!(pattern("out-%N").per_node() && !pattern("out-%N").per_task());
        assert!(pattern("out-%n").per_node() && pattern("out-%2t").per_task());
        assert!(!pattern("\\out-%t").per_task() && !pattern("out-%%t").per_task());
    }

    #[test]
    fn refused() {
        for (text, problem) in [("", "it is empty"), ("a\0b", "it contains a zero byte")] {
            assert_eq!(text.parse::<FilePattern>().unwrap_err().problem, problem, "{text}");
        }
        let pattern: FilePattern = "%x-%4j.out".parse().unwrap();
        assert_eq!(pattern.to_string(), "%x-%4j.out");
    }
}
