//! Changes of existing jobs.

use std::collections::{BTreeSet, HashSet};

use spur_core::cluster::Cluster;
use spur_core::controller::{Command, Reject};
use spur_core::id::{JobId, StepId};
use spur_core::model::caller::Caller;
use spur_core::model::change::JobChange;
use spur_core::model::job::Job;
use spur_core::model::phase::Phase;
use spur_core::text::ParseError;
use spur_core::text::jobid::{JobPart, JobRef, StepRef};
use spur_core::text::length;
use spur_core::text::signal::Signal;
use spur_core::text::time::TimeLimit;
use spur_proto::convert::{BadField, reject};
use spur_proto::lists::MOST_NAMED;
use spur_proto::{refusal, v1};
use tonic::Status;

use super::filter::{Filter, reference};
use super::slices::{CutArrays, Slices};
use super::{Desk, Name, odd};
use crate::answer::{Answer, Problem};

/// Largest number of jobs in one answer.
const MOST: usize = MOST_NAMED;
/// Jobs of a request that are cut into slices while the replica is locked.
const CUT_AT_ONCE: usize = 64;
/// Largest size of the message about one job in an answer about many, in bytes.
const MOST_SAID: usize = 1 << 10;
/// Records that are read while the replica is locked.
const PAGE: usize = 4096;

/// Parses the jobs of a request; returns the valid ones, and the problems of the rest.
fn named(cluster: &Cluster, written: &[String]) -> (Vec<JobRef<JobId>>, Vec<v1::JobProblem>) {
    let (mut jobs, mut problems) = (Vec::new(), Vec::new());
    for id in written {
        match reference(cluster, id) {
            Ok(job) => jobs.push(job),
            Err(rejected) => problems.push(trouble(id, &rejected)),
        }
    }
    (jobs, problems)
}

fn trouble(id: &str, rejected: &Reject) -> v1::JobProblem {
    v1::JobProblem { job_id: id.to_owned(), error: Some(reject::error(rejected)) }
}

fn told(problem: Problem) -> v1::JobProblem {
    let message = refusal::shortened(&problem.message, MOST_SAID);
    v1::JobProblem { job_id: problem.job, error: Some(v1::Error::new(problem.code, message)) }
}

impl Desk {
    /// Carries out a command on jobs.
    pub(super) async fn change(
        &self,
        caller: Caller,
        name: Name,
        written: &[String],
        command: impl Fn(Vec<JobRef<JobId>>) -> Command,
    ) -> Result<v1::JobsChangedResponse, Status> {
        let (jobs, mut problems) = named(&self.replica.read(), written);
        let warnings = self.in_parts(&caller, name, &jobs, &mut problems, command).await?;
        Ok(v1::JobsChangedResponse { problems, warnings })
    }

    /// Carries out a command on jobs, part by part, and returns warnings.
    async fn in_parts(
        &self,
        caller: &Caller,
        name: Name,
        jobs: &[JobRef<JobId>],
        problems: &mut Vec<v1::JobProblem>,
        command: impl Fn(Vec<JobRef<JobId>>) -> Command,
    ) -> Result<Vec<String>, Status> {
        let jobs = self.without_followers(jobs);
        let (slices, mut arrays) = self.slices(caller, &jobs).await;
        let mut all = Vec::new();
        for part in slices {
            let command = command(part.clone());
            let cancels = matches!(command, Command::Cancel { .. });
            match self.command(caller.clone(), name.part_about(&part), command).await? {
                Answer::Jobs { problems: mut found, warnings } => {
                    // A repeated request may be cut differently, because jobs have ended since.
                    found.retain(|problem| {
                        !(cancels && name.retry && problem.code == Reject::AlreadyDone.code())
                    });
                    found.retain(|problem| !arrays.take(problem));
                    problems.extend(found.into_iter().map(told));
                    all.extend(warnings);
                }
                other => return Err(odd(&other)),
            }
        }
        problems.extend(arrays.problems().map(told));
        Ok(all)
    }

    /// Cuts the jobs of a request into slices.
    async fn slices(&self, caller: &Caller, jobs: &[JobRef<JobId>]) -> (Vec<Vec<JobRef<JobId>>>, CutArrays) {
        let mut slices = Slices::default();
        for some in jobs.chunks(CUT_AT_ONCE) {
            let turn = self.turns.take(caller).await;
            slices.add(&self.replica.read(), some);
            turn.end(some.len());
        }
        slices.finish()
    }

    /// Removes het job components whose leader is also named, since the leader stands for all of them. The
    /// parts of a request are processed independently.
    fn without_followers(&self, jobs: &[JobRef<JobId>]) -> Vec<JobRef<JobId>> {
        let cluster = self.replica.read();
        let named: BTreeSet<JobId> = jobs.iter().map(|named| named.job).collect();
        let follows = |job: &JobRef<JobId>| {
            let het = cluster.job(job.job).and_then(|job| job.spec.het.as_deref());
            het.is_some_and(|het| het.offset > 0 && named.contains(&het.leader))
        };
        jobs.iter().filter(|job| !follows(job)).cloned().collect()
    }

    pub(super) async fn update(
        &self,
        caller: Caller,
        request: v1::UpdateJobRequest,
    ) -> Result<v1::JobsChangedResponse, Status> {
        let name = Name::read(&request.request_id, request.retry)?;
        let mut keys: Vec<(&String, &String)> = request.changes.iter().collect();
        keys.sort();
        if request.job_ids.iter().any(|id| id.contains('.')) {
            return self.update_steps(&caller, name, &request.job_ids, &keys).await;
        }
        let changes = keys.into_iter().map(|(key, value)| JobChange::parse(key, value));
        let changes = changes.collect::<Result<Vec<_>, _>>();
        let mut changes = changes.map_err(|error| reject::status(&Reject::Invalid(error.to_string())))?;
        let dependency = changes.iter().find_map(|change| match change {
            JobChange::Dependency(dependency) => dependency.clone(),
            _ => None,
        });
        if let Some(dependency) = dependency {
            changes.push(JobChange::Gone(self.gone(&dependency).await));
        }
        let (jobs, mut problems) = named(&self.replica.read(), &request.job_ids);
        let (slices, mut arrays) = self.slices(&caller, &jobs).await;
        let mut all = Vec::new();
        for (number, job) in slices.into_iter().flatten().enumerate() {
            let id = job.to_string();
            let command = Command::UpdateJob { job, changes: changes.clone() };
            let mut found = match self.command(caller.clone(), name.part(number), command).await {
                Ok(Answer::Jobs { problems: found, warnings }) => {
                    all.extend(warnings);
                    found
                }
                Ok(other) => return Err(odd(&other)),
                Err(status) => match refusal::error_of(&status) {
                    Some(v1::Error { code, message }) if code != refusal::BUSY => {
                        vec![Problem { job: id, code, message }]
                    }
                    Some(_) | None => return Err(status),
                },
            };
            found.retain(|problem| !arrays.take(problem));
            problems.extend(found.into_iter().map(told));
        }
        problems.extend(arrays.problems().map(told));
        all.dedup();
        Ok(v1::JobsChangedResponse { problems, warnings: all })
    }

    pub(super) async fn cancel(
        &self,
        caller: Caller,
        request: v1::CancelJobsRequest,
    ) -> Result<v1::CancelJobsResponse, Status> {
        let name = Name::read(&request.request_id, request.retry)?;
        let filter = request.filter.clone().unwrap_or_default();
        let (names, mut problems) = named(&self.replica.read(), &filter.job_ids);
        // Steps come first in the numbering of parts, so that the parts of a repeated request have the same
        // ids.
        self.cancel_steps(&caller, name, &request, &mut problems).await?;
        let by_steps_alone = request.filter.is_none() && !request.steps.is_empty();
        if by_steps_alone {
            return Ok(v1::CancelJobsResponse { problems, ..v1::CancelJobsResponse::default() });
        }
        let (jobs, next) = match filter.job_ids.is_empty() {
            true => self.admitted(&caller, &filter, JobId(request.after_job_id)).await?,
            false => (self.meant(&caller, &filter, names, &mut problems)?, 0),
        };
        let name = name.part(request.steps.len());
        let signal = request.signal.map(read_signal).transpose()?;
        let before = problems.len();
        match signal {
            Some(signal) if signal != Signal::KILL || request.batch_only => {
                // -b: the batch script alone; -f: the script and the steps; otherwise the steps alone.
                let batch = request.batch_only || request.full;
                let steps = !request.batch_only;
                let command = |jobs| Command::Signal { jobs, step: None, signal, batch, steps };
                self.in_parts(&caller, name, &jobs, &mut problems, command).await?;
            }
            Some(_) | None => {
                self.in_parts(&caller, name, &jobs, &mut problems, |jobs| Command::Cancel { jobs }).await?;
            }
        }
        let failed: HashSet<&str> =
            problems[before..].iter().map(|problem| problem.job_id.as_str()).collect();
        let done = jobs.iter().map(|job| (job.job.0, job.to_string()));
        let (cancelled, names) = done.filter(|(_, name)| !failed.contains(name.as_str())).unzip();
        Ok(v1::CancelJobsResponse { cancelled, problems, names, next_job_id: next })
    }

    /// Returns the jobs beyond `after` that a filter without ids selects and that the caller may change.
    ///
    /// At most [`MOST`] jobs are returned. The number is that of the last one if there may be more, otherwise
    /// 0.
    async fn admitted(
        &self,
        caller: &Caller,
        wire: &v1::JobFilter,
        after: JobId,
    ) -> Result<(Vec<JobRef<JobId>>, u32), Status> {
        let filter = Filter::read(&self.replica.read(), caller, wire, None)?;
        let (mut meant, mut last) = (Vec::new(), after);
        let mut next = Some(JobId(after.0.saturating_add(1)));
        while let Some(first) = next.take() {
            let turn = self.turns.take(caller).await;
            let mut count = 0;
            let cluster = self.replica.read();
            for (seen, job) in filter.candidates(&cluster, first, PAGE + 1).enumerate() {
                count = seen;
                if seen >= PAGE || meant.len() >= MOST {
                    next = Some(job.id);
                    break;
                }
                if !matches!(job.phase, Phase::Ended(_))
                    && filter.admits(job)
                    && cluster.may_change(caller, &job.spec)
                {
                    meant.push(job.reference());
                    last = job.id;
                }
            }
            drop(cluster);
            turn.end(count);
            if meant.len() >= MOST && next.is_some() {
                return Ok((meant, last.0));
            }
        }
        Ok((meant, 0))
    }

    /// Returns the jobs that a filter with ids selects, of any owner.
    fn meant(
        &self,
        caller: &Caller,
        wire: &v1::JobFilter,
        names: Vec<JobRef<JobId>>,
        problems: &mut Vec<v1::JobProblem>,
    ) -> Result<Vec<JobRef<JobId>>, Status> {
        let only_names = v1::JobFilter { job_ids: wire.job_ids.clone(), ..v1::JobFilter::default() };
        let cluster = self.replica.read();
        if !names.is_empty() && *wire == only_names {
            return Ok(names);
        }
        let wire = match wire.states.is_empty() {
            true => v1::JobFilter { states: vec!["all".to_owned()], ..wire.clone() },
            false => wire.clone(),
        };
        let filter = Filter::read(&cluster, caller, &wire, None)?;
        let mut meant = Vec::with_capacity(names.len());
        for name in &names {
            let records = cluster.jobs().meant(name);
            if records.is_empty() {
                problems.push(trouble(&name.to_string(), &Reject::InvalidJobId));
            }
            let admitted = records.iter().filter_map(|id| cluster.job(*id)).filter(|job| filter.admits(job));
            meant.extend(admitted.map(|job| among(job, name)));
        }
        Ok(meant)
    }

    /// Changes the time limit of steps, the only value of a step that can be changed.
    async fn update_steps(
        &self,
        caller: &Caller,
        name: Name,
        ids: &[String],
        changes: &[(&String, &String)],
    ) -> Result<v1::JobsChangedResponse, Status> {
        let invalid = |text: String| reject::status(&Reject::Invalid(text));
        let limit = match changes {
            [(key, value)] if key.eq_ignore_ascii_case("TimeLimit") => value,
            _ => {
                return Err(invalid(
                    "Update of this parameter is not supported: steps have TimeLimit".to_owned(),
                ));
            }
        };
        let limit: TimeLimit =
            limit.parse().map_err(|error: ParseError| invalid(format!("TimeLimit={limit}: {error}")))?;
        let mut problems = Vec::new();
        for (number, written) in ids.iter().enumerate() {
            let named = step_id(&self.replica.read(), written);
            let Some((job, step)) = named.filter(|(_, step)| *step != StepId::BATCH) else {
                problems.push(trouble(written, &Reject::InvalidJobId));
                continue;
            };
            let command = Command::LimitStep { job, step, limit };
            if let Err(status) = self.command(caller.clone(), name.part(number), command).await {
                match refusal::error_of(&status) {
                    Some(v1::Error { code, message }) if code != refusal::BUSY => {
                        problems.push(told(Problem { job: written.clone(), code, message }));
                    }
                    Some(_) | None => return Err(status),
                }
            }
        }
        Ok(v1::JobsChangedResponse { problems, ..v1::JobsChangedResponse::default() })
    }

    async fn cancel_steps(
        &self,
        caller: &Caller,
        name: Name,
        request: &v1::CancelJobsRequest,
        problems: &mut Vec<v1::JobProblem>,
    ) -> Result<(), Status> {
        let signal = request.signal.map(read_signal).transpose()?;
        for (number, written) in request.steps.iter().enumerate() {
            let named = step_id(&self.replica.read(), written);
            let Some((job, step)) = named else {
                problems.push(trouble(written, &Reject::InvalidJobId));
                continue;
            };
            let command = match signal {
                None | Some(Signal::KILL) if step != StepId::BATCH => Command::CancelStep { job, step },
                signal => Command::Signal {
                    jobs: vec![JobRef::whole(job)],
                    step: Some(step),
                    signal: signal.unwrap_or(Signal::TERM),
                    batch: step == StepId::BATCH,
                    steps: step != StepId::BATCH,
                },
            };
            match self.command(caller.clone(), name.part(number), command).await {
                Ok(Answer::Jobs { problems: found, .. }) => problems.extend(found.into_iter().map(told)),
                Ok(_) => {}
                Err(status) => match refusal::error_of(&status) {
                    Some(error) => {
                        problems.push(v1::JobProblem { job_id: written.clone(), error: Some(error) });
                    }
                    None => return Err(status),
                },
            }
        }
        Ok(())
    }

    pub(super) async fn notify(
        &self,
        caller: Caller,
        request: v1::NotifyJobRequest,
    ) -> Result<v1::NotifyJobResponse, Status> {
        // The message goes to a node together with other orders, in one gRPC message.
        let fits = length::check(&request.message, length::PATH);
        fits.map_err(|error| reject::bad_field(&BadField::new("message", error.to_string())))?;
        let job = {
            let cluster = self.replica.read();
            let job = reference(&cluster, &request.job_id).map_err(|rejected| reject::status(&rejected))?;
            let mut meant = cluster.jobs().meant(&job).into_iter();
            match (meant.next(), meant.next()) {
                (Some(job), None) => job,
                (None, _) => return Err(reject::status(&Reject::InvalidJobId)),
                (Some(_), Some(_)) => {
                    let text = format!("{job} is several jobs; name one of its tasks");
                    return Err(reject::status(&Reject::InvalidArray(text)));
                }
            }
        };
        let name = Name { id: None, retry: false };
        self.command(caller, name, Command::Notify { job, message: request.message }).await?;
        Ok(v1::NotifyJobResponse {})
    }

    pub(super) async fn script(
        &self,
        caller: &Caller,
        written: &str,
    ) -> Result<v1::GetScriptResponse, Status> {
        let batch = {
            let cluster = self.replica.read();
            let id = reference(&cluster, written).map_err(|rejected| reject::status(&rejected))?;
            let record = cluster.jobs().meant(&id).first().and_then(|id| cluster.job(*id));
            let job = record.ok_or_else(|| reject::status(&Reject::InvalidJobId))?;
            if !caller.may_change(&job.spec.owner) {
                return Err(reject::status(&Reject::AccessDenied));
            }
            job.spec.batch.clone()
        };
        let none = || Reject::Invalid(format!("job {written} has no batch script"));
        let batch = batch.ok_or_else(|| reject::status(&none()))?;
        let payload =
            self.blobs.payload(&batch).await.map_err(|error| Status::internal(error.to_string()))?;
        let payload = payload.ok_or_else(|| reject::status(&none()))?;
        Ok(v1::GetScriptResponse { script: payload.script, environment: payload.environment })
    }
}

/// Returns the tasks of a record that a name covers.
fn among(job: &Job, name: &JobRef<JobId>) -> JobRef<JobId> {
    let mut own = job.reference();
    if let (JobPart::Tasks(mine), JobPart::Tasks(named)) = (&mut own.part, &name.part) {
        *mine = mine.common(named);
    }
    own
}

/// Parses a step; returns the record of its job or array task, and the step. `None` if the text is malformed,
/// or names neither a numbered step nor the batch step of one record.
fn step_id(cluster: &Cluster, written: &str) -> Option<(JobId, StepId)> {
    let read: JobRef = written.parse().ok()?;
    let named = reference(cluster, &JobRef { step: None, ..read.clone() }.to_string()).ok()?;
    let step = match read.step? {
        StepRef::Number(number) => StepId(number),
        StepRef::Batch => StepId::BATCH,
        StepRef::Extern | StepRef::Interactive => return None,
    };
    match &named.part {
        JobPart::Whole => Some((named.job, step)),
        JobPart::Tasks(_) => Some((cluster.jobs().meant(&named).first().copied()?, step)),
        JobPart::Component(_) => None,
    }
}

fn read_signal(number: u32) -> Result<Signal, Status> {
    let signal = u8::try_from(number).ok().and_then(Signal::new);
    signal.ok_or_else(|| {
        let problem = format!("there is no signal {number}; signals are 1 to 64");
        reject::bad_field(&BadField::new("--signal", problem))
    })
}
