//! Job arrays: the `--array` option, e.g. `0-15:4%2`, and the text for the tasks left in an array.

use std::fmt;
use std::str::FromStr;

use super::number::integer32;
use super::{ParseError, serde_as_text};

const WHAT: &str = "array specification";
const HELP: &str = "write indices and ranges with an optional step and limit, e.g. `0-15:4%2` or `1,3,5-7`";

/// Most tasks that one array may have, whatever limit the site sets.
pub const MAX_TASKS: usize = 4_000_000;
/// Distance between first and last index above which tasks in equal steps print with a step.
const STEP_SPAN: u32 = 10;

/// A set of array task indices.
///
/// The set prints as in Slurm: `1-2,6-8,11`, or `2-18:2` where all steps are equal and the span is long
/// enough. A set in equal steps, which covers nearly all arrays, takes the same memory for a million tasks as
/// for two.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TaskSet(Form);

/// The stored form of a [`TaskSet`]. Each set has one form only, so that equal sets compare equal.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Form {
    /// `count` tasks in equal steps. The step is 1 for fewer than two tasks, and an empty set begins at 0.
    Even { first: u32, count: u32, step: u32 },
    /// First and last index of each run of neighbours, ascending and not adjacent. A set in equal steps is
    /// never stored in this form.
    Runs(Vec<Run>),
}

/// First and last index of a run of neighbours, both included.
type Run = (u32, u32);

impl TaskSet {
    /// The indices, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        let (even, runs): (_, &[Run]) = match &self.0 {
            Form::Even { first, count, step } => ((*first, *count, *step), &[]),
            Form::Runs(runs) => ((0, 0, 1), runs),
        };
        let (first, count, step) = even;
        let even = (0..count).map(move |at| first + at * step);
        even.chain(runs.iter().flat_map(|(first, last)| *first..=*last))
    }

    /// Number of tasks in the set.
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Even { count, .. } => *count as usize,
            Form::Runs(runs) => runs.iter().map(|(first, last)| (last - first) as usize + 1).sum(),
        }
    }

    /// True if the set has no task.
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Form::Even { count: 0, .. })
    }

    /// True if the set has `task`.
    pub fn contains(&self, task: u32) -> bool {
        match &self.0 {
            Form::Even { first, count, step } => {
                task >= *first && (task - first).is_multiple_of(*step) && (task - first) / step < *count
            }
            Form::Runs(runs) => {
                let at = runs.partition_point(|(_, last)| *last < task);
                runs.get(at).is_some_and(|(first, _)| *first <= task)
            }
        }
    }

    /// Smallest index; `None` if the set is empty.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// Largest index; `None` if the set is empty.
    pub fn last(&self) -> Option<u32> {
        self.iter().next_back()
    }

    /// The index that has `before` smaller indices in the set; `None` if there are too few.
    pub fn nth(&self, mut before: usize) -> Option<u32> {
        match &self.0 {
            Form::Even { first, count, step } => {
                let at = u32::try_from(before).ok().filter(|at| at < count)?;
                Some(first + at * step)
            }
            Form::Runs(runs) => runs.iter().find_map(|(first, last)| {
                let long = (last - first) as usize + 1;
                let found = u32::try_from(before).ok().filter(|_| before < long).map(|at| first + at);
                before = before.saturating_sub(long);
                found
            }),
        }
    }

    /// The only index; `None` unless the set has exactly one.
    pub fn only(&self) -> Option<u32> {
        match self.0 {
            Form::Even { first, count: 1, .. } => Some(first),
            Form::Even { .. } | Form::Runs(_) => None,
        }
    }

    /// Difference between neighbouring indices, 1 for fewer than two tasks; `None` if it varies.
    pub fn step(&self) -> Option<u32> {
        match &self.0 {
            Form::Even { step, .. } => Some(*step),
            Form::Runs(_) => None,
        }
    }

    /// Removes a task and returns true if it was in the set.
    pub fn remove(&mut self, task: u32) -> bool {
        let found = self.contains(task);
        match &mut self.0 {
            Form::Even { first, count, step } if found && task == *first => {
                let left = *count - 1;
                *self = even(if left == 0 { 0 } else { *first + *step }, left, *step);
            }
            _ if found => *self = self.without(&TaskSet::from(task)),
            _ => {}
        }
        found
    }

    /// The union: tasks that are in this set, in `other` or in both.
    #[must_use]
    pub fn with(&self, other: &TaskSet) -> TaskSet {
        let mut runs = self.runs();
        runs.extend(other.runs());
        joined(runs)
    }

    /// The intersection: tasks that are in both sets.
    #[must_use]
    pub fn common(&self, other: &TaskSet) -> TaskSet {
        let (mine, theirs) = (self.runs(), other.runs());
        let (mut a, mut b) = (mine.iter().peekable(), theirs.iter().peekable());
        let mut both = Vec::new();
        while let (Some(one), Some(two)) = (a.peek(), b.peek()) {
            let (first, last) = (one.0.max(two.0), one.1.min(two.1));
            if first <= last {
                both.push((first, last));
            }
            if one.1 < two.1 {
                a.next()
            } else {
                b.next()
            };
        }
        joined(both)
    }

    /// The difference: tasks of this set that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &TaskSet) -> TaskSet {
        let theirs = other.runs();
        let mut left = Vec::new();
        for (first, last) in self.runs() {
            let mut from = Some(first);
            let begin = theirs.partition_point(|(_, end)| *end < first);
            for (begin, end) in theirs[begin..].iter().take_while(|(begin, _)| *begin <= last) {
                let Some(first) = from else { break };
                if first < *begin {
                    left.push((first, begin - 1));
                }
                from = end.checked_add(1).filter(|next| *next <= last);
            }
            left.extend(from.map(|first| (first, last)));
        }
        joined(left)
    }

    /// The printed set, cut for a column as Slurm does with `SLURM_BITSTR_LEN`.
    ///
    /// `length` counts a closing zero byte, as in C. A longer text ends in `...`, and a `length` of 0 cuts
    /// nothing. Slurm's default is 64.
    pub fn truncated(&self, length: usize) -> String {
        let full = self.to_string();
        if length == 0 || full.len() + 3 <= length {
            return full;
        }
        let dots = 3.min(length - 1);
        let kept = length - 1 - dots;
        full.chars().take(kept).chain(std::iter::repeat_n('.', dots)).collect()
    }

    fn runs(&self) -> Vec<Run> {
        match &self.0 {
            Form::Even { first, count, step: 1 } => {
                count.checked_sub(1).map(|more| (*first, first + more)).into_iter().collect()
            }
            Form::Even { .. } => self.iter().map(|task| (task, task)).collect(),
            Form::Runs(runs) => runs.clone(),
        }
    }
}

fn even(first: u32, count: u32, step: u32) -> TaskSet {
    TaskSet(Form::Even { first, count, step: if count < 2 { 1 } else { step } })
}

/// The set of runs that may be given in any order, touch and overlap.
fn joined(mut runs: Vec<Run>) -> TaskSet {
    runs.sort_unstable();
    runs.dedup_by(|next, run| {
        let touches = run.1.checked_add(1).is_none_or(|end| next.0 <= end);
        if touches {
            run.1 = run.1.max(next.1);
        }
        touches
    });
    match runs[..] {
        [] => even(0, 0, 1),
        [(first, last)] => even(first, last - first + 1, 1),
        [one, two, ..] => {
            let step = two.0 - one.0;
            let lone = runs.iter().all(|(first, last)| first == last);
            let count = u32::try_from(runs.len()).unwrap_or(u32::MAX);
            match lone && runs.windows(2).all(|pair| pair[1].0 - pair[0].0 == step) {
                true => even(one.0, count, step),
                false => TaskSet(Form::Runs(runs)),
            }
        }
    }
}

impl Default for TaskSet {
    fn default() -> TaskSet {
        even(0, 0, 1)
    }
}

impl From<u32> for TaskSet {
    fn from(task: u32) -> TaskSet {
        even(task, 1, 1)
    }
}

impl FromIterator<u32> for TaskSet {
    fn from_iter<T: IntoIterator<Item = u32>>(tasks: T) -> TaskSet {
        joined(tasks.into_iter().map(|task| (task, task)).collect())
    }
}

impl fmt::Debug for TaskSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{self}]")
    }
}

impl fmt::Display for TaskSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(first), Some(last), Some(step @ 2..)) = (self.first(), self.last(), self.step())
            && last - first > STEP_SPAN
        {
            return write!(f, "{first}-{last}:{step}");
        }
        for (i, (first, last)) in self.runs().into_iter().enumerate() {
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
        if text.is_empty() {
            return Ok(TaskSet::default());
        }
        let (mut runs, mut total) = (Vec::new(), 0);
        for item in text.split(',') {
            let (first, last, step) = range(item).map_err(refuse)?;
            let count = (last - first) / step;
            total += count as usize + 1;
            if total > MAX_TASKS {
                return Err(refuse(format!("an array has at most {MAX_TASKS} tasks")));
            }
            if item.len() == text.len() {
                return Ok(even(first, count + 1, step));
            }
            match step {
                1 => runs.push((first, last)),
                _ => runs.extend((first..=last).step_by(step as usize).map(|task| (task, task))),
            }
        }
        Ok(joined(runs))
    }
}

/// Reads `N`, `N-M` or `N-M:STEP` as first index, last index and step.
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

/// Value of `--array`: the tasks and the limit on running ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArraySpec {
    /// Tasks of the array, at least one.
    pub tasks: TaskSet,
    /// Most tasks that may run at one time (`%N`), at least 1; `None` for no limit.
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
        // Slurm accepts the brackets that it prints: `[0-4]`, `[1-3]%2`, `1-3,[5-6]`.
        let plain = text.replace(['[', ']', ' '], "");
        let balanced = text.matches('[').count() == text.matches(']').count();
        let (tasks, limit) = match plain.split_once('%').filter(|_| balanced) {
            // An empty limit means no limit.
            Some((tasks, "")) => (tasks, None),
            Some((tasks, limit)) => {
                let limit = integer32(limit).map_err(|e| refuse(format!("`%{limit}`: {e}")))?;
                // Slurm reads a limit of zero as no limit.
                (tasks, Some(limit).filter(|&limit| limit > 0))
            }
            None if balanced => (plain.as_str(), None),
            None => return Err(refuse("a bracket stands alone".to_owned())),
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
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings() {
        for (text, shown) in [
            ("0-15:4%2", "0-12:4%2"),
            ("1,3,5-7", "1,3,5-7"),
            ("1, 3,5-7%", "1,3,5-7"),
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
        fn sets_behave_as_sets(
            one in prop::collection::btree_set(0_u32..40, 0..30), step in 1_u32..4,
            two in prop::collection::btree_set(0_u32..40, 0..30), task in 0_u32..40)
        {
            let one: BTreeSet<u32> = one.into_iter().map(|task| task * step).collect();
            let (a, b): (TaskSet, TaskSet) = (one.iter().copied().collect(), two.iter().copied().collect());
            prop_assert_eq!(a.iter().collect::<Vec<_>>(), one.iter().copied().collect::<Vec<_>>());
            prop_assert!(a.iter().rev().eq(one.iter().rev().copied()));
            prop_assert_eq!(a.len(), one.len());
            prop_assert_eq!(a.is_empty(), one.is_empty());
            let nth = |set: &BTreeSet<u32>| set.iter().nth(task as usize).copied();
            prop_assert_eq!(a.nth(task as usize), nth(&one));
            prop_assert_eq!(a.contains(task), one.contains(&task));
            prop_assert_eq!(a.only(), if one.len() == 1 { one.first().copied() } else { None });
            prop_assert_eq!(a.with(&b), one.union(&two).copied().collect());
            prop_assert_eq!(a.common(&b), one.intersection(&two).copied().collect());
            prop_assert_eq!(a.without(&b), one.difference(&two).copied().collect());
            prop_assert_eq!(a.to_string().parse(), Ok(a.clone()));
            let mut less = a.clone();
            prop_assert_eq!(less.remove(task), one.contains(&task));
            prop_assert_eq!(less, one.iter().copied().filter(|other| *other != task).collect());
        }

        #[test]
        fn round_trip(
            tasks in prop::collection::btree_set(0_u32..60, 1..40), limit in prop::option::of(1_u32..))
        {
            let spec = ArraySpec { tasks: tasks.into_iter().collect(), limit };
            prop_assert_eq!(spec.to_string().parse(), Ok(spec));
        }
    }
}
