//! Job arrays: `--array=0-15:4%2`, and how the tasks that are left are shown.

use std::fmt;
use std::str::FromStr;

use super::number::integer32;
use super::{ParseError, serde_as_text};

const WHAT: &str = "array specification";
const HELP: &str = "write indices and ranges with an optional step and limit, e.g. `0-15:4%2` or `1,3,5-7`";

/// How many tasks one array may have, whatever the site's own limit says.
pub const MAX_TASKS: usize = 4_000_000;
/// From which span on tasks in equal steps are shown with a step.
const STEP_SPAN: u32 = 10;

/// A set of task indices, kept in ascending order without duplicates. Prints as Slurm does: `1-2,6-8,11`,
/// or `2-18:2` where all steps are equal and the span is long enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TaskSet(Vec<u32>);

impl TaskSet {
    /// The indices, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + DoubleEndedIterator + '_ {
        self.0.iter().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `task` is among them.
    pub fn contains(&self, task: u32) -> bool {
        self.0.binary_search(&task).is_ok()
    }

    /// The smallest index.
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// The largest index.
    pub fn last(&self) -> Option<u32> {
        self.0.last().copied()
    }

    /// The difference between neighbours if it is the same everywhere; 1 for fewer than two tasks.
    pub fn step(&self) -> Option<u32> {
        let mut steps = self.0.windows(2).map(|pair| pair[1] - pair[0]);
        let first = steps.next().unwrap_or(1);
        steps.all(|step| step == first).then_some(first)
    }

    /// Takes a task out; says whether it was there.
    pub fn remove(&mut self, task: u32) -> bool {
        let found = self.0.binary_search(&task);
        if let Ok(at) = found {
            self.0.remove(at);
        }
        found.is_ok()
    }

    /// The text cut for a column as Slurm does with `SLURM_BITSTR_LEN`: `length` counts a closing zero byte,
    /// a longer text ends in `...`, 0 cuts nothing. Slurm's default is 64.
    pub fn truncated(&self, length: usize) -> String {
        let full = self.to_string();
        if length == 0 || full.len() + 3 <= length {
            return full;
        }
        let dots = 3.min(length - 1);
        let kept = length - 1 - dots;
        full.chars().take(kept).chain(std::iter::repeat_n('.', dots)).collect()
    }

    fn ranges(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let adjacent = |a: &u32, b: &u32| a.checked_add(1) == Some(*b);
        self.0.chunk_by(adjacent).map(|run| (run[0], run[run.len() - 1]))
    }
}

impl FromIterator<u32> for TaskSet {
    fn from_iter<T: IntoIterator<Item = u32>>(tasks: T) -> TaskSet {
        let mut tasks: Vec<u32> = tasks.into_iter().collect();
        tasks.sort_unstable();
        tasks.dedup();
        TaskSet(tasks)
    }
}

impl fmt::Display for TaskSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(first), Some(last), Some(step @ 2..)) = (self.first(), self.last(), self.step())
            && last - first > STEP_SPAN
        {
            return write!(f, "{first}-{last}:{step}");
        }
        for (i, (first, last)) in self.ranges().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for TaskSet {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<TaskSet, ParseError> {
        let refuse = |problem: String| ParseError::new(WHAT, text, problem, HELP);
        let mut tasks = Vec::new();
        if text.is_empty() {
            return Ok(TaskSet::default());
        }
        for item in text.split(',') {
            let (first, last, step) = range(item).map_err(refuse)?;
            let count = (last - first) as usize / step as usize + 1;
            if tasks.len() + count > MAX_TASKS {
                return Err(refuse(format!("an array has at most {MAX_TASKS} tasks")));
            }
            tasks.extend((first..=last).step_by(step as usize));
        }
        Ok(tasks.into_iter().collect())
    }
}

/// `N`, `N-M` or `N-M:STEP`.
fn range(item: &str) -> Result<(u32, u32, u32), String> {
    let number = |text: &str| integer32(text).map_err(|e| format!("`{item}`: {e}"));
    let (bounds, step) = match item.split_once(':') {
        Some((bounds, step)) if bounds.contains('-') => (bounds, number(step)?),
        Some(_) => return Err(format!("`{item}`: a step needs a range")),
        None => (item, 1),
    };
    let (first, last) = bounds.split_once('-').unwrap_or((bounds, bounds));
    let (first, last) = (number(first)?, number(last)?);
    if step == 0 {
        return Err(format!("`{item}`: the step is zero"));
    }
    if first > last {
        return Err(format!("`{item}`: the range runs backwards"));
    }
    Ok((first, last, step))
}

/// The value of `--array`: the tasks, and how many may run at one time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArraySpec {
    /// The tasks, at least one.
    pub tasks: TaskSet,
    /// `%N`: at most so many at one time; at least 1.
    pub limit: Option<u32>,
}

impl fmt::Display for ArraySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit {
            Some(limit) => write!(f, "{}%{limit}", self.tasks),
            None => self.tasks.fmt(f),
        }
    }
}

impl FromStr for ArraySpec {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<ArraySpec, ParseError> {
        let refuse = |problem: String| ParseError::new(WHAT, text, problem, HELP);
        let (tasks, limit) = match text.split_once('%') {
            Some((tasks, limit)) => {
                let limit = integer32(limit).map_err(|e| refuse(format!("`%{limit}`: {e}")))?;
                // Slurm reads a limit of zero as none.
                (tasks, Some(limit).filter(|&limit| limit > 0))
            }
            None => (text, None),
        };
        let tasks: TaskSet = tasks.parse().map_err(|e: ParseError| refuse(e.problem))?;
        if tasks.is_empty() {
            return Err(refuse("no task is given".to_owned()));
        }
        Ok(ArraySpec { tasks, limit })
    }
}

serde_as_text!(TaskSet, ArraySpec);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings() {
        for (text, shown) in [
            ("0-15:4%2", "0-12:4%2"),
            ("1,3,5-7", "1,3,5-7"),
            ("5-7,1,3,6", "1,3,5-7"),
            ("1-2,6-8,11", "1-2,6-8,11"),
            ("2-18:2", "2-18:2"),
            ("1-10:9", "1,10"),
            ("0-11:11", "0-11:11"),
            ("7", "7"),
            ("0-3%0", "0-3"),
        ] {
            assert_eq!(text.parse::<ArraySpec>().unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn refused() {
        for (text, problem) in [
            ("", "no task is given"),
            ("%2", "no task is given"),
            ("1,", "``: a number is expected"),
            ("3-1", "`3-1`: the range runs backwards"),
            ("1-4:0", "`1-4:0`: the step is zero"),
            ("4:2", "`4:2`: a step needs a range"),
            ("1-4%", "`%`: a number is expected"),
            ("-1", "`-1`: a number is expected"),
            ("0-4294967295", "an array has at most 4000000 tasks"),
            ("0-4294967296", "`0-4294967296`: the number is too large"),
        ] {
            assert_eq!(text.parse::<ArraySpec>().unwrap_err().problem, problem, "{text}");
        }
    }

    #[test]
    fn cut_like_slurm() {
        let tasks: TaskSet = "0,2,4,7,9".parse().unwrap();
        for (length, shown) in
            [(0, "0,2,4,7,9"), (12, "0,2,4,7,9"), (11, "0,2,4,7..."), (5, "0..."), (4, "..."), (1, "")]
        {
            assert_eq!(tasks.truncated(length), shown, "{length}");
        }
    }

    #[test]
    fn sets() {
        let mut tasks: TaskSet = "1-3,9".parse().unwrap();
        assert!(tasks.contains(2) && tasks.remove(2) && !tasks.remove(2) && !tasks.contains(2));
        assert_eq!((tasks.len(), tasks.first(), tasks.last(), tasks.step()), (3, Some(1), Some(9), None));
        assert_eq!("0-12:3".parse::<TaskSet>().unwrap().step(), Some(3));
    }

    proptest! {
        #[test]
        fn round_trip(
            tasks in prop::collection::btree_set(0_u32..60, 1..40), limit in prop::option::of(1_u32..))
        {
            let spec = ArraySpec { tasks: tasks.into_iter().collect(), limit };
            prop_assert_eq!(spec.to_string().parse(), Ok(spec));
        }
    }
}
