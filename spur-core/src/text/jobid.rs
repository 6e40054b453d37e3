//! References to jobs, tasks, components and steps as users write them: `123`, `123_4`, `123_[1-4]`, `123+1`,
//! `123.batch`.

use std::fmt;
use std::str::FromStr;

use super::array::TaskSet;
use super::{ParseError, number};

const WHAT: &str = "job id";
const HELP: &str = "write JOB, JOB_TASK, JOB_[TASKS], JOB+COMPONENT, each with .STEP or not, e.g. `123_4.0`";

/// Part of a job that a reference means.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum JobPart {
    /// The whole job.
    #[default]
    Whole,
    /// Tasks of an array, at least one, written `_4` or `_[1-4]`.
    Tasks(TaskSet),
    /// One component of a het job, written `+1`.
    Component(u32),
}

/// Reference to a step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepRef {
    /// The numbered step.
    Number(u32),
    /// The batch script.
    Batch,
    /// Processes of the job outside any step of the user.
    Extern,
    /// The shell of an interactive allocation.
    Interactive,
}

/// Reference to a job on a command line. `I` is the form in which jobs are named: a number, or the text as
/// written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobRef<I = u32> {
    /// Job that the reference names.
    pub job: I,
    /// Part of the job.
    pub part: JobPart,
    /// Step of the job; `None` if none is named.
    pub step: Option<StepRef>,
}

impl<I> JobRef<I> {
    /// Builds a reference to the whole job.
    pub fn whole(job: I) -> JobRef<I> {
        JobRef { job, part: JobPart::Whole, step: None }
    }

    /// Returns the reference with the job replaced by the result of `map`.
    ///
    /// # Errors
    /// The error that `map` returns.
    pub fn map_job<J, E>(self, map: impl FnOnce(I) -> Result<J, E>) -> Result<JobRef<J>, E> {
        Ok(JobRef { job: map(self.job)?, part: self.part, step: self.step })
    }
}

impl<I: FromStr> JobRef<I> {
    /// Reads references separated by commas, e.g. `1,2_[3,5],4.0`.
    ///
    /// # Errors
    /// [`ParseError`] for the first reference that cannot be read, and for an empty list.
    pub fn parse_list(text: &str) -> Result<Vec<JobRef<I>>, ParseError> {
        let mut inside = false;
        let items = text.split(|c: char| {
            inside = (inside || c == '[') && c != ']';
            c == ',' && !inside
        });
        items.map(str::parse).collect()
    }
}

impl fmt::Display for StepRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepRef::Number(number) => write!(f, "{number}"),
            StepRef::Batch => f.write_str("batch"),
            StepRef::Extern => f.write_str("extern"),
            StepRef::Interactive => f.write_str("interactive"),
        }
    }
}

impl FromStr for StepRef {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<StepRef, ParseError> {
        match text {
            "batch" => Ok(StepRef::Batch),
            "extern" => Ok(StepRef::Extern),
            "interactive" => Ok(StepRef::Interactive),
            _ => number::integer32(text).map(StepRef::Number).map_err(|e| {
                ParseError::new("step", text, e.to_string(), "write a number, batch, extern or interactive")
            }),
        }
    }
}

impl<I: fmt::Display> fmt::Display for JobRef<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.job)?;
        match &self.part {
            JobPart::Whole => {}
            JobPart::Tasks(tasks) if tasks.len() == 1 => write!(f, "_{tasks}")?,
            JobPart::Tasks(tasks) => write!(f, "_[{tasks}]")?,
            JobPart::Component(component) => write!(f, "+{component}")?,
        }
        self.step.map_or(Ok(()), |step| write!(f, ".{step}"))
    }
}

impl<I: FromStr> FromStr for JobRef<I> {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<JobRef<I>, ParseError> {
        let refuse = |problem: String| ParseError::new(WHAT, text, problem, HELP);
        let (rest, step) = match text.rsplit_once('.').map(|(rest, step)| (rest, step.parse())) {
            Some((rest, Ok(step))) => (rest, Some(step)),
            _ => (text, None),
        };
        let (name, part) = part(rest).map_err(refuse)?;
        let job = if name.is_empty() { None } else { name.parse().ok() };
        let job = job.ok_or_else(|| refuse(format!("`{name}` names no job")))?;
        Ok(JobRef { job, part, step })
    }
}

/// Splits `JOB_TASK`, `JOB_[TASKS]` and `JOB+COMPONENT`; any other text is the name of a job.
///
/// All tasks of an array, written `JOB_*`, are the array itself.
fn part(text: &str) -> Result<(&str, JobPart), String> {
    if let Some(job) = text.strip_suffix("_*") {
        return Ok((job, JobPart::Whole));
    }
    if let Some((job, tasks)) = text.strip_suffix(']').and_then(|text| text.split_once("_[")) {
        let tasks: TaskSet = tasks.parse().map_err(|e: ParseError| e.problem)?;
        if tasks.is_empty() {
            return Err("no task is given".to_owned());
        }
        return Ok((job, JobPart::Tasks(tasks)));
    }
    let number = |split: Option<(_, &str)>| match split {
        Some((job, digits)) => number::integer32(digits).ok().map(|number| (job, number)),
        None => None,
    };
    if let Some((job, component)) = number(text.rsplit_once('+')) {
        return Ok((job, JobPart::Component(component)));
    }
    if let Some((job, task)) = number(text.rsplit_once('_')) {
        return Ok((job, JobPart::Tasks(TaskSet::from_iter([task]))));
    }
    Ok((text, JobPart::Whole))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings() {
        for text in [
            "123",
            "123.0",
            "123_4",
            "123_[1-4]",
            "123+1",
            "123.batch",
            "123_4.extern",
            "123+1.3",
            "123_[1,3].interactive",
        ] {
            assert_eq!(text.parse::<JobRef>().unwrap().to_string(), text);
        }
        let named: JobRef<String> = "my_job.v2_7".parse().unwrap();
        assert_eq!((named.job.as_str(), named.to_string().as_str()), ("my_job.v2", "my_job.v2_7"));
        let list = JobRef::<u32>::parse_list("1,2_[3,5],4.0").unwrap();
        assert_eq!(list.iter().map(ToString::to_string).collect::<Vec<_>>(), ["1", "2_[3,5]", "4.0"]);
        assert_eq!("36_*".parse(), Ok(JobRef::whole(36)));
        assert_eq!(JobRef::whole(7).map_job(|job: u32| Ok::<_, ()>(job + 1)), Ok(JobRef::whole(8)));
    }

    #[test]
    fn refused() {
        for (text, problem) in [
            ("", "`` names no job"),
            ("x", "`x` names no job"),
            ("1.x", "`1.x` names no job"),
            ("_4", "`` names no job"),
            ("1_[]", "no task is given"),
            ("1_[4-1]", "`4-1`: the range runs backwards"),
            ("1+x", "`1+x` names no job"),
            ("-5", "`-5` names no job"),
        ] {
            assert_eq!(text.parse::<JobRef>().unwrap_err().problem, problem, "{text}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(
            job: u32,
            tasks in prop::collection::btree_set(0_u32..50, 0..5),
            component in prop::option::of(any::<u32>()),
            step in prop::option::of(any::<u32>()),
        ) {
            let part = match component {
                Some(component) => JobPart::Component(component),
                None if tasks.is_empty() => JobPart::Whole,
                None => JobPart::Tasks(tasks.into_iter().collect()),
            };
            let reference = JobRef { job, part, step: step.map(StepRef::Number) };
            prop_assert_eq!(reference.to_string().parse(), Ok(reference));
        }
    }
}
