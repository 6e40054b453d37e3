//! Predictions for jobs that are submitted as a test or that wait. Plans are made on request, on a copy of
//! the cluster that may be slightly outdated.

use std::collections::BTreeMap;

use spur_core::cluster::Cluster;
use spur_core::cluster::sight::Sight;
use spur_core::controller::{self, Command, Input, Reject, Reply};
use spur_core::id::{JobId, NodeId};
use spur_core::model::caller::Caller;
use spur_core::model::phase::Phase;
use spur_core::sched::forecast::Limits;
use spur_core::sched::plan::{Plan, Start, Waiting, each_once};
use spur_core::sched::request::takes_whole_nodes;
use spur_core::sched::{foretell, foretell_first, foretell_from};
use spur_core::text::hostlist::HostList;
use spur_core::text::time::{Civil, Time};
use spur_proto::convert::job::{self, Outlook};
use spur_proto::convert::reject;
use spur_proto::v1;
use tokio::sync::oneshot;
use tonic::Status;

use super::{Desk, odd, submit};
use crate::answer::Answer;
use crate::archive::CopyWanted;
use crate::clock;
use crate::inbox::{Ask, NoAnswer};

/// Number of pending jobs whose starts are predicted at once: as many as Slurm's backfill considers.
const TOLD: usize = 500;

/// Predicted starts of pending jobs, by job.
#[derive(Default)]
pub(super) struct Foretold(BTreeMap<JobId, Waiting>);

impl Foretold {
    fn new(plan: &Plan, now: Time) -> Self {
        let starts = plan.starts.iter().flat_map(Start::all).map(|start| about_to(start, now));
        let waiting = plan.waiting.iter().filter(|waiting| waiting.start.is_some()).cloned();
        Self(starts.chain(waiting).map(|waiting| (waiting.job, waiting)).collect())
    }

    /// Returns a job's outlook with the predicted start; `None` if a plan has a start already, or none is
    /// predicted.
    pub(super) fn of(&self, job: JobId, known: Option<&Waiting>) -> Option<Waiting> {
        let told = self.0.get(&job)?.clone();
        match known {
            None => Some(told),
            Some(known) if known.start.is_none() => {
                let Waiting { start, nodes, place, after, .. } = told;
                Some(Waiting { start, nodes, place, after, ..known.clone() })
            }
            Some(_) => None,
        }
    }
}

impl Desk {
    /// Predicts the starts of the first jobs of the queue.
    pub(super) async fn foretold(&self) -> Result<Foretold, Status> {
        // A standby has no copies to plan on.
        if !self.journal.leads() {
            return Ok(Foretold::default());
        }
        self.on_copy(move |cluster| {
            let now = clock::now(&cluster).max(cluster.at());
            Ok(Foretold::new(&foretell_first(&cluster, now, &Limits, TOLD), now))
        })
        .await
    }

    /// Plans a copy of the cluster with the job in it.
    pub(super) async fn test(
        &self,
        caller: Caller,
        request: v1::SubmitRequest,
    ) -> Result<v1::TestSubmitResponse, Status> {
        let Ask { mut input, .. } = self.look_up(submit::read_aside(caller.clone(), request).await?).await;
        // When it would start once it is released, and from when on it may.
        let begin = match &mut input {
            Input::Command { command: Command::Submit(submission), .. } => submission.released(),
            _ => None,
        };
        let sight = Sight::of(&self.replica.read(), &caller);
        let (epoch, last) = (self.epoch, self.overlay.read());
        self.on_copy(move |mut cluster| {
            let now = clock::now(&cluster).max(cluster.at());
            let answer = controller::handle(&mut cluster, epoch, now, input).answer;
            let (id, warnings) = match answer.map_err(|rejected| reject::status(&rejected))? {
                Reply::Submitted { job, warnings } => (job, warnings),
                other => return Err(odd(&Answer::from(other))),
            };
            let begin = begin.map(|begin| cluster.clock().own(begin));
            let plan = foretell_from(&cluster, now, &Limits, id, begin, Some(&last.remembered));
            let told = foretold(&cluster, id, &plan, now, warnings);
            Ok(v1::TestSubmitResponse { detail: sight.sentence(&cluster, &told.detail), ..told })
        })
        .await
    }

    /// Returns a job; a pending one with the start that it has if each job before it starts as soon as it
    /// can.
    pub(super) async fn explain(&self, caller: &Caller, id: JobId) -> Result<v1::Job, Status> {
        let sight = Sight::of(&self.replica.read(), caller);
        let mut shown = {
            let cluster = self.replica.read();
            let job = cluster
                .job(id)
                .filter(|job| sight.job(&job.spec))
                .ok_or_else(|| reject::status(&Reject::InvalidJobId))?;
            let mut shown = job::render(&cluster, job, self.overlay.read().of(id), clock::now(&cluster));
            shown.reason_detail = sight.sentence(&cluster, &shown.reason_detail);
            if !matches!(job.phase, Phase::Pending(_)) {
                return Ok(shown);
            }
            shown
        };
        self.on_copy(move |cluster| {
            let now = clock::now(&cluster).max(cluster.at());
            // The job may have been forgotten meanwhile.
            let Some(job) = cluster.job(id) else { return Ok(shown) };
            let plan = foretell(&cluster, now, &Limits, id);
            let Some(waiting) = outlook(&plan, id, now) else { return Ok(shown) };
            shown =
                job::render(&cluster, job, Outlook { waiting: Some(&waiting), evaluated: Some(now) }, now);
            shown.reason_detail = sight.sentence(&cluster, &shown.reason_detail);
            Ok(shown)
        })
        .await
    }

    /// Calls `look` with a copy of the cluster, on a thread for long work. One call runs at a time,
    /// because a copy is as large as the cluster.
    pub(super) async fn on_copy<T: Send + 'static>(
        &self,
        look: impl FnOnce(Cluster) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let copies = self.copies.lock().await;
        let stopping = || Status::unavailable(NoAnswer::Stopping.to_string());
        let (to, copy) = oneshot::channel();
        let seen = self.replica.read().seq();
        copies.send(CopyWanted { seen, to }).await.map_err(|_| stopping())?;
        let cluster = copy.await.map_err(|_| stopping())?;
        let seen = tokio::task::spawn_blocking(move || look(cluster)).await;
        drop(copies);
        seen.map_err(|error| Status::internal(error.to_string()))?
    }
}

/// Returns a plan's outlook of a pending job; a job that can start now is about to. `None` if the plan does
/// not mention the job.
fn outlook(plan: &Plan, id: JobId, now: Time) -> Option<Waiting> {
    let waiting = plan.waiting.iter().find(|waiting| waiting.job == id);
    waiting.cloned().or_else(|| {
        let start = plan.starts.iter().flat_map(|start| start.all()).find(|start| start.attempt.job == id)?;
        Some(about_to(start, now))
    })
}

/// Returns the outlook of a job that can start now.
fn about_to(start: &Start, now: Time) -> Waiting {
    let nodes = start.parts.iter().map(|part| part.node).collect();
    Waiting { start: Some(now), nodes, ..Waiting::of(start.attempt.job) }
}

/// Builds the answer about a job from a plan.
fn foretold(
    cluster: &Cluster,
    id: JobId,
    plan: &Plan,
    now: Time,
    warnings: Vec<String>,
) -> v1::TestSubmitResponse {
    let names = |nodes: Vec<NodeId>| HostList::from_names(cluster.names_of(nodes)).to_string();
    let job = cluster.job(id);
    let spec = job.map(|job| &job.spec);
    let mut told = v1::TestSubmitResponse {
        job_id: id.0,
        num_cpus: spec.map_or(0, |spec| job::least_cpus(&spec.shape)),
        partition: spec.map(|spec| spec.partitions.join(",")).unwrap_or_default(),
        warnings,
        ..v1::TestSubmitResponse::default()
    };
    if let Some(start) = plan.starts.iter().find(|start| start.attempt.job == id) {
        told.start_time = Some(cluster.clock().wall(now).0);
        told.nodes = names(each_once(start.all().flat_map(|start| &start.parts).map(|part| part.node)));
        told.num_cpus = start.all().flat_map(|start| &start.parts).map(|part| part.cpus).sum();
        let mut partitions: Vec<&str> = start.all().map(|start| &*start.partition).collect();
        partitions.dedup();
        told.partition = partitions.join(",");
        // The spans of one component would say nothing about the others.
        let spans = start.rest.is_empty().then_some(&start.why.spans);
        told.spans = spans.into_iter().flatten().map(|(layer, count)| job::span(layer, *count)).collect();
        told.detail.clone_from(&start.why.sentence);
    } else if let Some(waiting) = plan.waiting.iter().find(|waiting| waiting.job == id) {
        told.start_time = waiting.start.map(|start| cluster.clock().wall(start).0);
        let components = cluster.jobs().components(id);
        let of_components = plan.waiting.iter().filter(|waiting| components.contains(&waiting.job));
        let of_components: Vec<&Waiting> = of_components.collect();
        told.num_cpus = of_components.iter().map(|waiting| least_cpus(cluster, waiting)).sum();
        let nodes = each_once(of_components.iter().flat_map(|waiting| waiting.nodes.iter().copied()));
        told.nodes = names(nodes.clone());
        let spans = job.filter(|_| waiting.start.is_some()).map(|job| cluster.spans(job, &nodes));
        told.spans = spans.into_iter().flatten().map(|(layer, count)| job::span(&layer, count)).collect();
        told.reason = waiting.reason.name().to_owned();
        told.detail = waiting.sentence(|time| format!("{}Z", Civil::from_utc(cluster.clock().wall(time))));
    }
    told
}

/// Returns the least number of CPUs that a job will hold: those of its planned nodes if it takes whole nodes.
fn least_cpus(cluster: &Cluster, waiting: &Waiting) -> u32 {
    let Some(job) = cluster.job(waiting.job) else { return 0 };
    let mut partitions = job.spec.partitions.iter().filter_map(|name| cluster.partition(name));
    let whole = partitions.all(|partition| takes_whole_nodes(&job.spec, &partition.config));
    let nodes = waiting.nodes.iter().filter(|_| whole).filter_map(|node| cluster.node(*node));
    nodes.map(|node| node.shape.cpus).sum::<u32>().max(job::least_cpus(&job.spec.shape))
}
