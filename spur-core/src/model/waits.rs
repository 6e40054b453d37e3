//! The open part of a pending job's dependency: jobs by number, without satisfied terms.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::id::{ArrayTaskId, JobId};
use crate::text::dependency::{Dependency, DependencyJob, DependencyKind, Join, TaskRef};
use crate::text::time::Time;

/// Largest number of terms in the dependencies of one user's pending jobs. A term takes about 100 bytes of
/// memory.
pub const MOST_TERMS: usize = 1 << 20;

/// Largest number of jobs and arrays that may wait for one job: all of them are examined when it ends.
pub const MOST_WAITING: usize = 16_384;

/// The open part of a dependency; never empty.
///
/// Copies of a job share the terms and have one bit for the state of each, so a copy of a long dependency
/// costs little.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Waits {
    any: bool,
    list: Arc<WaitList>,
    /// Terms that are satisfied.
    met: Marks,
    /// Terms that can no longer be satisfied.
    never: Marks,
    /// The job that the `singleton` terms wait for: the last one before this job with the same name and user
    /// that has not ended.
    predecessor: Option<JobId>,
}

/// The terms of a dependency as requested. They do not change.
#[derive(Debug, PartialEq)]
pub(crate) struct WaitList {
    terms: Box<[Wait]>,
    /// The jobs that terms name, in ascending order, each with the position of the term; without `singleton`
    /// terms.
    by_job: Box<[(JobId, u32)]>,
    /// Positions of the `singleton` terms.
    singletons: Box<[u32]>,
    /// Positions of the terms about counterparts in another array.
    counterparts: Box<[u32]>,
}

/// A bit for each term.
#[derive(Clone, Debug, Default)]
struct Marks(SmallVec<[u64; 1]>);

impl Marks {
    fn none(terms: usize) -> Self {
        Self(SmallVec::from_elem(0, terms.div_ceil(64)))
    }

    fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    fn set(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
}

/// The open part of a dependency in a snapshot.
#[derive(Serialize, Deserialize)]
struct Written {
    any: bool,
    terms: Vec<Wait>,
}

impl From<Waits> for Written {
    fn from(waits: Waits) -> Self {
        Self { any: waits.any, terms: waits.terms().collect() }
    }
}

impl From<Written> for Waits {
    fn from(written: Written) -> Self {
        Self::new(written.any, written.terms)
    }
}

impl PartialEq for Waits {
    /// Two dependencies are equal if their open terms are, whatever has been satisfied.
    fn eq(&self, other: &Self) -> bool {
        self.any == other.any && self.terms().eq(other.terms())
    }
}

impl Eq for Waits {}

impl WaitList {
    fn new(terms: Vec<Wait>) -> Self {
        let positions = |keep: fn(&Wait) -> bool| -> Box<[u32]> {
            (0_u32..).zip(&terms).filter(|(_, wait)| keep(wait)).map(|(at, _)| at).collect()
        };
        let singletons = positions(|wait| wait.kind == WaitKind::Singleton);
        let counterparts = positions(|wait| wait.scope == Scope::Same);
        let named = (0_u32..).zip(&terms).filter(|(_, wait)| wait.kind != WaitKind::Singleton);
        let mut by_job: Vec<(JobId, u32)> = named.map(|(at, wait)| (wait.job, at)).collect();
        by_job.sort_unstable();
        Self { terms: terms.into(), by_job: by_job.into(), singletons, counterparts }
    }

    /// Number of terms in the list.
    pub(crate) fn len(&self) -> usize {
        self.terms.len()
    }

    /// The jobs that terms name, in ascending order, each once; without `singleton` terms.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.by_job.chunk_by(|one, other| one.0 == other.0).map(|same| same[0].0)
    }

    /// True if a term names this job.
    pub(crate) fn names(&self, job: JobId) -> bool {
        !self.of(job).is_empty()
    }

    /// The positions of the terms that name this job.
    fn of(&self, job: JobId) -> &[(JobId, u32)] {
        let begin = self.by_job.partition_point(|(other, _)| *other < job);
        let len = self.by_job[begin..].partition_point(|(other, _)| *other == job);
        &self.by_job[begin..begin + len]
    }
}

/// A condition on one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The event that is awaited.
    pub kind: WaitKind,
    /// The job or array.
    pub job: JobId,
    /// The part of the array.
    #[serde(default, skip_serializing_if = "Scope::is_whole")]
    pub scope: Scope,
    /// Seconds after the event at which the condition holds.
    #[serde(default)]
    pub delay: u64,
    /// True if the condition can no longer be satisfied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never: bool,
}

/// The outcome of a job that had left memory before another was to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// The job or array.
    pub job: JobId,
    /// The task of the array; `None` for the job or the whole array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<ArrayTaskId>,
    /// True if it completed as a whole.
    pub completed: bool,
}

/// The part of a job or array that a condition is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// The job, which is no array.
    #[default]
    Whole,
    /// The array with all its tasks.
    All,
    /// One task of the array.
    Task(ArrayTaskId),
    /// The task of the array that has the same index as the one that waits.
    Same,
}

impl Scope {
    fn is_whole(&self) -> bool {
        *self == Scope::Whole
    }
}

/// The event that a job waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitKind {
    /// The other job starts, or is cancelled.
    Started,
    /// The other job ends in any way.
    Ended,
    /// The other job ends with exit code 0.
    Completed,
    /// The other job ends, but not with exit code 0.
    Failed,
    /// The other job, an earlier one with the same name and user, ends (`singleton`).
    Singleton,
}

impl Waits {
    /// The open part of a new dependency; `None` if nothing is open. `predecessor` is the job that a
    /// `singleton` term waits for, if any. `of_array` is true if array tasks wait, which may have
    /// counterparts; `is_array` tells arrays from jobs.
    #[must_use]
    pub fn of(
        dependency: &Dependency<JobId>,
        predecessor: Option<JobId>,
        of_array: bool,
        is_array: impl Fn(JobId) -> bool,
    ) -> Option<Self> {
        let scope = |kind, on: &DependencyJob<JobId>| match (kind, on.task) {
            (_, Some(TaskRef::One(task))) => Scope::Task(ArrayTaskId(task)),
            (DependencyKind::AfterCorr, None) if of_array && is_array(on.job) => Scope::Same,
            (_, Some(TaskRef::All) | None) if is_array(on.job) => Scope::All,
            (_, Some(TaskRef::All) | None) => Scope::Whole,
        };
        let mut terms = Vec::new();
        for term in &dependency.terms {
            let kind = match term.kind {
                DependencyKind::After => WaitKind::Started,
                DependencyKind::AfterAny | DependencyKind::AfterBurstBuffer => WaitKind::Ended,
                DependencyKind::AfterOk | DependencyKind::AfterCorr => WaitKind::Completed,
                DependencyKind::AfterNotOk => WaitKind::Failed,
                DependencyKind::Singleton => {
                    let wait = |job| Wait {
                        kind: WaitKind::Singleton,
                        job,
                        scope: Scope::Whole,
                        delay: 0,
                        never: false,
                    };
                    terms.extend(predecessor.map(wait));
                    continue;
                }
            };
            terms.extend(term.jobs.iter().map(|on| Wait {
                kind,
                job: on.job,
                scope: scope(term.kind, on),
                delay: u64::from(on.delay_minutes) * 60,
                never: false,
            }));
        }
        (!terms.is_empty()).then(|| Self::new(dependency.join == Join::Any, terms))
    }

    fn new(any: bool, terms: Vec<Wait>) -> Self {
        let (mut never, met) = (Marks::none(terms.len()), Marks::none(terms.len()));
        for (at, _) in terms.iter().enumerate().filter(|(_, wait)| wait.never) {
            never.set(at);
        }
        let singletons = terms.iter().filter(|wait| wait.kind == WaitKind::Singleton);
        let predecessor = singletons.map(|wait| wait.job).max();
        Self { any, list: Arc::new(WaitList::new(terms)), met, never, predecessor }
    }

    /// True if one satisfied term suffices (`?` between terms).
    #[must_use]
    pub fn any(&self) -> bool {
        self.any
    }

    /// The terms that are not satisfied, hopeless ones included.
    pub fn terms(&self) -> impl Iterator<Item = Wait> {
        (0..self.list.len()).filter_map(|at| self.term(at))
    }

    /// The jobs that open terms name.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.terms().map(|wait| wait.job)
    }

    /// The open terms about counterparts in other arrays; with `array`, only those about that array.
    pub(crate) fn counterparts(&self, array: Option<JobId>) -> impl Iterator<Item = Wait> {
        self.positions(Among::Counterparts)
            .filter_map(|at| self.term(at))
            .filter(move |wait| array.is_none_or(|array| array == wait.job))
    }

    /// The job that the `singleton` terms wait for; `None` if there is none.
    pub(crate) fn predecessor(&self) -> Option<JobId> {
        self.predecessor
    }

    /// The terms as requested.
    pub(crate) fn list(&self) -> &Arc<WaitList> {
        &self.list
    }

    /// The dependency with an equal list of terms in place of its own.
    pub(crate) fn with_list(self, list: Arc<WaitList>) -> Self {
        Self { list, ..self }
    }

    /// Judges the terms that `among` selects and that are neither satisfied nor hopeless; returns the
    /// result.
    pub(crate) fn judge(&mut self, among: Among, mut verdict: impl FnMut(Wait) -> Verdict) -> Judged {
        let mut judged = Judged { held: false, from: None };
        let positions: SmallVec<[usize; 4]> = self.positions(among).collect();
        for at in positions {
            let Some(wait) = self.term(at).filter(|wait| !wait.never) else { continue };
            match verdict(wait) {
                Verdict::Met(from) => {
                    self.met.set(at);
                    judged = Judged { held: true, from: judged.from.max(Some(from)) };
                }
                Verdict::Open => {}
                Verdict::Behind(job) => self.predecessor = Some(job),
                Verdict::Never => self.never.set(at),
            }
        }
        if self.list.singletons.iter().all(|at| self.met.has(*at as usize)) {
            self.predecessor = None;
        }
        judged
    }

    /// True if every term is satisfied.
    pub(crate) fn is_met(&self) -> bool {
        self.met.count() == self.list.len()
    }

    /// True if the dependency can no longer be satisfied.
    pub(crate) fn is_hopeless(&self) -> bool {
        match (self.never.count(), self.list.len() - self.met.count()) {
            (never, left) if self.any => never == left,
            (never, _) => never > 0,
        }
    }

    /// A term, if it is not satisfied.
    fn term(&self, at: usize) -> Option<Wait> {
        if self.met.has(at) {
            return None;
        }
        let wait = self.list.terms[at];
        let predecessor = self.predecessor.filter(|_| wait.kind == WaitKind::Singleton);
        Some(Wait { job: predecessor.unwrap_or(wait.job), never: self.never.has(at), ..wait })
    }

    fn positions(&self, among: Among) -> impl Iterator<Item = usize> {
        let list = &*self.list;
        let every = if among == Among::All { 0..list.len() } else { 0..0 };
        let named = match among {
            Among::About { job, array } => [Some(job), array.filter(|array| *array != job)],
            Among::All | Among::Counterparts => [None, None],
        };
        let singletons = matches!(among, Among::About { .. }).then_some(&list.singletons);
        let counterparts = (among == Among::Counterparts).then_some(&list.counterparts);
        let listed = singletons.into_iter().chain(counterparts).flatten().map(|at| *at as usize);
        let of_jobs = named.into_iter().flatten().flat_map(|job| list.of(job)).map(|(_, at)| *at as usize);
        every.chain(of_jobs).chain(listed)
    }
}

/// A part of the terms of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Among {
    /// All terms of the dependency.
    All,
    /// Terms that an event of a job may have changed.
    About {
        /// Job of the event.
        job: JobId,
        /// The array of the job.
        array: Option<JobId>,
    },
    /// Terms about counterparts in other arrays.
    Counterparts,
}

/// The verdict on one term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The term holds from this time on.
    Met(Time),
    /// The term does not hold yet.
    Open,
    /// A `singleton` term does not hold yet, because of this job.
    Behind(JobId),
    /// The term can no longer hold.
    Never,
}

/// The result of judging terms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged {
    /// True if some of them have become satisfied.
    pub(crate) held: bool,
    /// The latest time from which one of them holds.
    pub(crate) from: Option<Time>,
}

impl fmt::Display for Waits {
    /// Writes the dependency like `squeue %E`: `afterok:36(unfulfilled)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        let mut singleton = false;
        for wait in self.terms() {
            let kind = match wait.kind {
                WaitKind::Started => "after",
                WaitKind::Ended => "afterany",
                WaitKind::Completed if wait.scope == Scope::Same => "aftercorr",
                WaitKind::Completed => "afterok",
                WaitKind::Failed => "afternotok",
                WaitKind::Singleton if singleton => continue,
                WaitKind::Singleton => {
                    singleton = true;
                    write!(f, "{between}singleton(unfulfilled)")?;
                    between = if self.any { "?" } else { "," };
                    continue;
                }
            };
            write!(f, "{between}{kind}:{}", wait.job)?;
            match wait.scope {
                Scope::Whole => {}
                Scope::Task(task) => write!(f, "_{task}")?,
                Scope::All | Scope::Same => f.write_str("_*")?,
            }
            if wait.delay > 0 {
                write!(f, "+{}", wait.delay / 60)?;
            }
            f.write_str(if wait.never { "(failed)" } else { "(unfulfilled)" })?;
            between = if self.any { "?" } else { "," };
        }
        Ok(())
    }
}
