//! Accepting jobs, one by one and many at once, and saying what would become of one.

use bytes::Bytes;
use spur_core::controller::{self, Command, Reply};
use spur_core::id::JobId;
use spur_core::model::caller::Caller;
use spur_core::sched;
use spur_core::sched::forecast::Limits;
use spur_core::sched::plan::Plan;
use spur_core::text::hostlist::HostList;
use spur_core::text::time::{Civil, Time};
use spur_proto::convert::spec::Payload;
use spur_proto::convert::{job, reject, spec};
use spur_proto::refusal;
use spur_proto::v1;
use spur_proto::v1::submit_stream_response::Result as Outcome;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::{Desk, Listing, Name, odd, outcome, submission};
use crate::answer::Answer;
use crate::clock;
use crate::inbox::{Answered, Ask, NoAnswer};

/// Submissions of one stream that may wait for their answers. At 5 ms for a commit that is 50,000 a second from one client.
const IN_FLIGHT: usize = 256;

/// A submission of a stream: its answer to come, or why there will be none.
type Taken = Result<oneshot::Receiver<Answered>, Status>;

impl Desk {
    pub(super) async fn submit_one(
        &self,
        caller: Caller,
        request: v1::SubmitRequest,
    ) -> Result<v1::SubmitResponse, Status> {
        accepted(self.ask(read(caller, request)?).await?)
    }

    /// Takes submissions as fast as they come and answers them in order.
    pub(super) fn submit_many(
        &self,
        caller: Caller,
        mut requests: Streaming<v1::SubmitRequest>,
    ) -> Listing<v1::SubmitStreamResponse> {
        let (taken, mut waiting) = mpsc::channel::<Taken>(IN_FLIGHT);
        let (answers, outgoing) = mpsc::channel(IN_FLIGHT);
        let desk = self.clone();
        tokio::spawn(async move {
            while let Ok(Some(request)) = requests.message().await {
                let taking = match read(caller.clone(), request) {
                    Ok(ask) => desk.take(ask).await,
                    Err(refused) => Err(refused),
                };
                if taken.send(taking).await.is_err() {
                    return;
                }
            }
        });
        tokio::spawn(async move {
            while let Some(taking) = waiting.recv().await {
                let answer = match taking {
                    Ok(answer) => outcome(answer.await.map_err(|_| NoAnswer::Stopping)).and_then(accepted),
                    Err(refused) => Err(refused),
                };
                let outcome = match answer {
                    Ok(accepted) => Outcome::Submitted(accepted),
                    Err(status) => match refusal::error_of(&status) {
                        Some(error) => Outcome::Refused(error),
                        None => {
                            // The stream ends with what ended it; a client that is gone need not be told.
                            let _ = answers.send(Err(status)).await;
                            return;
                        }
                    },
                };
                if answers.send(Ok(v1::SubmitStreamResponse { result: Some(outcome) })).await.is_err() {
                    return;
                }
            }
        });
        Box::pin(ReceiverStream::new(outgoing))
    }

    /// Puts a submission of a stream in the queue. A stream waits for room instead of being told to come back.
    async fn take(&self, ask: Ask) -> Taken {
        let answer = self.inbox.enqueue(ask).await;
        answer.map_err(|error| Status::unavailable(error.to_string()))
    }

    /// Plans a copy of the cluster with the job in it. The copy may be a moment old.
    pub(super) async fn test(
        &self,
        caller: Caller,
        request: v1::SubmitRequest,
    ) -> Result<v1::TestSubmitResponse, Status> {
        let Ask { input, .. } = read(caller, request)?;
        // Held until the plan is made: a copy is as large as the cluster.
        let copies = self.copies.lock().await;
        let (wanted, copy) = oneshot::channel();
        let stopping = |_| Status::unavailable(NoAnswer::Stopping.to_string());
        copies.send(wanted).await.map_err(|_| Status::unavailable(NoAnswer::Stopping.to_string()))?;
        let mut cluster = copy.await.map_err(stopping)?;
        let epoch = self.epoch;
        let planned = tokio::task::spawn_blocking(move || {
            let now = clock::now().max(cluster.at());
            let answer = controller::handle(&mut cluster, epoch, now, input).answer;
            let (id, warnings) = match answer.map_err(|rejected| reject::status(&rejected))? {
                Reply::Submitted { job, warnings } => (job, warnings),
                other => return Err(odd(&Answer::from(other))),
            };
            let plan = sched::plan(&cluster, now, &Limits);
            Ok(foretold(&cluster, id, &plan, now, warnings))
        });
        let told = planned.await.map_err(|error| Status::internal(error.to_string()))?;
        drop(copies);
        told
    }
}

/// What a plan says of a job.
fn foretold(
    cluster: &spur_core::cluster::Cluster,
    id: JobId,
    plan: &Plan,
    now: Time,
    warnings: Vec<String>,
) -> v1::TestSubmitResponse {
    let names = |nodes: &mut dyn Iterator<Item = spur_core::id::NodeId>| {
        HostList::from_names(cluster.names_of(nodes.collect::<Vec<_>>())).to_string()
    };
    let spec = cluster.job(id).map(|job| &job.spec);
    let mut told = v1::TestSubmitResponse {
        num_cpus: spec.map_or(0, |spec| job::least_cpus(&spec.shape)),
        partition: spec.map(|spec| spec.partitions.join(",")).unwrap_or_default(),
        warnings,
        ..v1::TestSubmitResponse::default()
    };
    if let Some(start) = plan.starts.iter().find(|start| start.attempt.job == id) {
        told.start_time = Some(now.0);
        told.nodes = names(&mut start.all().flat_map(|start| &start.parts).map(|part| part.node));
        told.num_cpus = start.all().flat_map(|start| &start.parts).map(|part| part.cpus).sum();
        let mut partitions: Vec<&str> = start.all().map(|start| &*start.partition).collect();
        partitions.dedup();
        told.partition = partitions.join(",");
        // Those of one component would say nothing of the others.
        let spans = start.rest.is_empty().then_some(&start.why.spans);
        told.spans = spans.into_iter().flatten().map(|(layer, count)| job::span(layer, *count)).collect();
        told.detail.clone_from(&start.why.sentence);
    } else if let Some(waiting) = plan.waiting.iter().find(|waiting| waiting.job == id) {
        told.start_time = waiting.start.map(|start| start.0);
        let components = cluster.jobs().components(id);
        let of_components = plan.waiting.iter().filter(|waiting| components.contains(&waiting.job));
        told.nodes = names(&mut of_components.flat_map(|waiting| waiting.nodes.iter().copied()));
        told.reason = waiting.reason.name().to_owned();
        told.detail = waiting.sentence(|time| format!("{}Z", Civil::from_utc(time)));
    }
    told
}

fn read(caller: Caller, request: v1::SubmitRequest) -> Result<Ask, Status> {
    let name = Name::read(&request.request_id, request.retry)?;
    let wire = request.job.unwrap_or_default();
    let (wish, payload) = spec::submission(wire).map_err(|bad| reject::bad_field(&bad))?;
    // They are kept for a while, and should not keep what else came in the same piece from the network.
    let payload = payload.map(|payload| Payload {
        script: Bytes::copy_from_slice(&payload.script),
        environment: Bytes::copy_from_slice(&payload.environment),
    });
    Ok(submission(caller, name, Command::Submit(Box::new(wish)), payload))
}

fn accepted(answer: Answer) -> Result<v1::SubmitResponse, Status> {
    match answer {
        Answer::Submitted { job, warnings } => Ok(v1::SubmitResponse { job_id: job.0, warnings }),
        other => Err(odd(&other)),
    }
}
