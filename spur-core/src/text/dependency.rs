//! Dependencies of a job on other jobs: the `--dependency` option, e.g. `afterok:36_3,after:40+10`.

use std::fmt;
use std::str::FromStr;

use super::nearest::nearest;
use super::{ParseError, number};

const WHAT: &str = "dependency";
const HELP: &str = "write TYPE:JOB[:JOB…] with after[:JOB+MINUTES], afterany, afterok, afternotok, aftercorr, \
                    afterburstbuffer or singleton, joined by `,` (all) or `?` (any)";

/// Rule that combines the terms of a dependency: all must hold, or any one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Join {
    /// All terms must hold, written with `,`.
    #[default]
    All,
    /// One job of any term is enough, written with `?`.
    Any,
}

/// Condition on the jobs that a term names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DependencyKind {
    /// The jobs have started or were cancelled.
    After,
    /// The jobs have ended, with any result.
    AfterAny,
    /// The jobs have ended with success.
    AfterOk,
    /// The jobs have ended with failure.
    AfterNotOk,
    /// The task of the same index in the named array has ended with success.
    AfterCorr,
    /// The jobs have ended and their data is staged out.
    AfterBurstBuffer,
    /// No other job of the same name and user is running or suspended.
    Singleton,
}

impl DependencyKind {
    /// All kinds, in the order of declaration.
    pub const ALL: [DependencyKind; 7] = [
        DependencyKind::After,
        DependencyKind::AfterAny,
        DependencyKind::AfterOk,
        DependencyKind::AfterNotOk,
        DependencyKind::AfterCorr,
        DependencyKind::AfterBurstBuffer,
        DependencyKind::Singleton,
    ];

    /// The kind's name in a dependency, e.g. `afterok`.
    pub fn name(self) -> &'static str {
        match self {
            DependencyKind::After => "after",
            DependencyKind::AfterAny => "afterany",
            DependencyKind::AfterOk => "afterok",
            DependencyKind::AfterNotOk => "afternotok",
            DependencyKind::AfterCorr => "aftercorr",
            DependencyKind::AfterBurstBuffer => "afterburstbuffer",
            DependencyKind::Singleton => "singleton",
        }
    }
}

/// Tasks of an array that a dependency names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskRef {
    /// One task, written `36_3`.
    One(u32),
    /// All tasks, written `36_*`.
    All,
}

/// A job that another job depends on. `I` is the form in which jobs are named: a number, or the text as
/// written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DependencyJob<I> {
    /// The named job.
    pub job: I,
    /// Tasks that are meant; `None` for a job that is no array and for a whole array.
    pub task: Option<TaskRef>,
    /// Delay in minutes after the condition holds (`+MINUTES`). It is 0 except under `after`.
    pub delay_minutes: u32,
}

/// One term of a dependency: jobs and the condition on them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DependencyTerm<I> {
    /// Condition on the jobs.
    pub kind: DependencyKind,
    /// Jobs of the term; empty for `singleton` only.
    pub jobs: Vec<DependencyJob<I>>,
}

/// Value of `--dependency`. Parsing keeps jobs as text, and [`Dependency::map_jobs`] replaces them by
/// numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dependency<I = String> {
    /// Rule that combines the terms.
    pub join: Join,
    /// Terms in the order given.
    pub terms: Vec<DependencyTerm<I>>,
}

impl<I> Dependency<I> {
    /// Most jobs that one request may depend on, because each is checked whenever one of them ends.
    pub const MOST_JOBS: usize = 4096;

    /// Refuses a dependency with more than [`MOST_JOBS`](Self::MOST_JOBS) jobs or terms.
    ///
    /// # Errors
    /// A text with the number of jobs and the limit.
    pub fn bounded(self) -> Result<Self, String> {
        let jobs: usize = self.terms.iter().map(|term| term.jobs.len()).sum();
        let terms = self.terms.len();
        match jobs.max(terms) {
            count if count > Self::MOST_JOBS => {
                Err(format!("it names {count} jobs; at most {} can be named", Self::MOST_JOBS))
            }
            _ => Ok(self),
        }
    }

    /// Returns the dependency with every job replaced by the result of `map`.
    ///
    /// # Errors
    /// The first error that `map` returns.
    pub fn map_jobs<J, E>(self, mut map: impl FnMut(I) -> Result<J, E>) -> Result<Dependency<J>, E> {
        let mut job = |from: DependencyJob<I>| {
            let DependencyJob { job, task, delay_minutes } = from;
            Ok(DependencyJob { job: map(job)?, task, delay_minutes })
        };
        let term = |from: DependencyTerm<I>| {
            let jobs = from.jobs.into_iter().map(&mut job).collect::<Result<_, E>>()?;
            Ok(DependencyTerm { kind: from.kind, jobs })
        };
        let terms = self.terms.into_iter().map(term).collect::<Result<_, E>>()?;
        Ok(Dependency { join: self.join, terms })
    }
}

impl fmt::Display for DependencyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl<I: fmt::Display> fmt::Display for DependencyJob<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.job)?;
        match self.task {
            Some(TaskRef::One(task)) => write!(f, "_{task}")?,
            Some(TaskRef::All) => f.write_str("_*")?,
            None => {}
        }
        if self.delay_minutes > 0 { write!(f, "+{}", self.delay_minutes) } else { Ok(()) }
    }
}

impl<I: fmt::Display> fmt::Display for DependencyTerm<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        self.jobs.iter().try_for_each(|job| write!(f, ":{job}"))
    }
}

impl<I: fmt::Display> fmt::Display for Dependency<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = match self.join {
            Join::All => ",",
            Join::Any => "?",
        };
        for (i, term) in self.terms.iter().enumerate() {
            write!(f, "{}{term}", if i == 0 { "" } else { join })?;
        }
        Ok(())
    }
}

impl<I: FromStr> FromStr for Dependency<I> {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Dependency<I>, ParseError> {
        let refuse = |problem: String| ParseError::new(WHAT, text, problem, HELP);
        let (join, separator) = match (text.contains(','), text.contains('?')) {
            (true, true) => return Err(refuse("`,` and `?` cannot be mixed".to_owned())),
            (false, true) => (Join::Any, '?'),
            _ => (Join::All, ','),
        };
        let terms = text.split(separator).map(|item| term(item).map_err(refuse)).collect::<Result<_, _>>()?;
        Ok(Dependency { join, terms })
    }
}

fn term<I: FromStr>(text: &str) -> Result<DependencyTerm<I>, String> {
    let (word, rest) = match text.split_once(':') {
        Some((word, rest)) => (word, Some(rest)),
        None => (text, None),
    };
    let known = DependencyKind::ALL.into_iter().find(|kind| kind.name() == word);
    let (kind, jobs) = match (known, rest) {
        (Some(DependencyKind::Singleton), None) => (DependencyKind::Singleton, None),
        (Some(DependencyKind::Singleton), Some(_)) => return Err("singleton names no job".to_owned()),
        (Some(kind), Some(rest)) => (kind, Some(rest)),
        (Some(kind), None) => return Err(format!("{kind} names no job")),
        (None, _) if is_number(text) => (DependencyKind::AfterAny, Some(text)),
        (None, _) => {
            let meant = nearest(word, DependencyKind::ALL.map(DependencyKind::name));
            let meant = meant.map(|known| format!("; did you mean `{known}`?")).unwrap_or_default();
            return Err(format!("there is no `{word}`{meant}"));
        }
    };
    let jobs = jobs.into_iter().flat_map(|jobs| jobs.split(':')).map(|item| job(item, kind));
    Ok(DependencyTerm { kind, jobs: jobs.collect::<Result<_, _>>()? })
}

/// True if the text begins with a digit: a term without a kind is a bare job number, with or without a task.
fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

fn job<I: FromStr>(text: &str, kind: DependencyKind) -> Result<DependencyJob<I>, String> {
    let (rest, delay) = match text.split_once('+') {
        Some((rest, minutes)) => {
            let delay = number::integer32(minutes).map_err(|e| format!("`{text}`: {e} after `+`"))?;
            (rest, delay)
        }
        None => (text, 0),
    };
    if delay > 0 && kind != DependencyKind::After {
        return Err(format!("`{text}`: only after takes +MINUTES"));
    }
    let split = rest.rsplit_once('_').filter(|(job, _)| !job.is_empty());
    let (name, task) = match split {
        Some((job, "*")) => (job, Some(TaskRef::All)),
        Some((job, task)) => match number::integer32(task) {
            Ok(task) => (job, Some(TaskRef::One(task))),
            Err(_) => (rest, None),
        },
        None => (rest, None),
    };
    let job = if name.is_empty() { None } else { name.parse().ok() };
    let job = job.ok_or_else(|| format!("`{name}` names no job"))?;
    Ok(DependencyJob { job, task, delay_minutes: delay })
}

impl<I: fmt::Display> serde::Serialize for Dependency<I> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, I: FromStr> serde::Deserialize<'de> for Dependency<I> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <String as serde::Deserialize>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings() {
        for (text, shown) in [
            ("36", "afterany:36"),
            ("36_3", "afterany:36_3"),
            ("36:37", "afterany:36:37"),
            ("afterok:36_*:37_2", "afterok:36_*:37_2"),
            ("after:36+5,afterok:37", "after:36+5,afterok:37"),
            ("afterany:1?afternotok:2?singleton", "afterany:1?afternotok:2?singleton"),
            ("after:36+0", "after:36"),
        ] {
            assert_eq!(text.parse::<Dependency<u32>>().unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn names_become_numbers() {
        let named: Dependency = "afterok:my_job_3:other".parse().unwrap();
        assert_eq!(named.terms[0].jobs[0].job, "my_job");
        assert_eq!(named.terms[0].jobs[0].task, Some(TaskRef::One(3)));
        let known = |name: String| match name.as_str() {
            "my_job" => Ok(7),
            "other" => Ok(8),
            _ => Err(name),
        };
        assert_eq!(named.map_jobs(known).unwrap().to_string(), "afterok:7_3:8");
        let unknown: Dependency = "afterok:nobody".parse().unwrap();
        assert_eq!(unknown.map_jobs(known), Err("nobody".to_owned()));
    }

    #[test]
    fn refused() {
        for (text, problem) in [
            ("", "there is no ``"),
            ("afterok", "afterok names no job"),
            ("afterok:", "`` names no job"),
            ("afterok:1,afterany:2?singleton", "`,` and `?` cannot be mixed"),
            ("singleton:3", "singleton names no job"),
            ("aftrok:3", "there is no `aftrok`; did you mean `afterok`?"),
            ("afterok:3+5", "`3+5`: only after takes +MINUTES"),
            ("after:3+x", "`3+x`: a number is expected after `+`"),
            // With names for jobs this was a job `922+922`.
            ("922+922+00", "`922+922+00`: a number is expected after `+`"),
            ("afterok:x", "`x` names no job"),
            ("afterok:1,", "there is no ``"),
        ] {
            let error = text.parse::<Dependency<u32>>().unwrap_err();
            assert_eq!(error.problem, problem, "{text}");
        }
    }

    fn dependency() -> impl Strategy<Value = Dependency<u32>> {
        let task = prop_oneof![
            Just(None),
            Just(Some(TaskRef::All)),
            any::<u32>().prop_map(|t| Some(TaskRef::One(t)))
        ];
        let job = (any::<u32>(), task, any::<u32>()).prop_map(|(job, task, delay_minutes)| DependencyJob {
            job,
            task,
            delay_minutes,
        });
        let term = (0..DependencyKind::ALL.len(), prop::collection::vec(job, 1..4));
        let term = term.prop_map(|(kind, mut jobs)| {
            let kind = DependencyKind::ALL[kind];
            if kind != DependencyKind::After {
                jobs.iter_mut().for_each(|job| job.delay_minutes = 0);
            }
            if kind == DependencyKind::Singleton {
                jobs.clear();
            }
            DependencyTerm { kind, jobs }
        });
        (any::<bool>(), prop::collection::vec(term, 1..4)).prop_map(|(any, terms)| {
            let join = if any && terms.len() > 1 { Join::Any } else { Join::All };
            Dependency { join, terms }
        })
    }

    proptest! {
        #[test]
        fn round_trip(dependency in dependency()) {
            prop_assert_eq!(dependency.to_string().parse(), Ok(dependency));
        }
    }
}
