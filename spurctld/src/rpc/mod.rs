//! The service for clients. Each method identifies the caller, and leaves the rest to the file of its
//! subject. Reads use the replica and the planner's overlay; changes go to the owner.

pub(crate) mod access;
mod accounting;
mod accounts;
mod admin;
mod allocations;
mod annotate;
mod defrag;
mod events;
mod feature_level;
mod filter;
pub(crate) mod fix;
mod foretell;
mod gone;
mod import;
mod jobs;
pub(crate) mod leased;
mod lists;
pub(crate) mod quota;
mod slices;
mod steps;
mod submit;
pub(crate) mod turns;
mod usage;
mod watch;
mod watch_cluster;
mod worlds;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use spur_core::controller::{Command, Input};
use spur_core::id::{JobId, RequestId};
use spur_core::model::caller::Caller;
use spur_core::model::config::NodeAddress;
use spur_core::text::jobid::JobRef;
use spur_core::text::time::Time;
use spur_proto::convert::{self, license, reject};
use spur_proto::keys::Keyring;
use spur_proto::refusal;
use spur_proto::v1;
use spur_proto::v1::controller_server::Controller;
use tokio::sync::{Mutex, mpsc};
use tokio_stream::Stream;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::agents::Agents;
use crate::answer::Answer;
use crate::archive::{Accounts, CopyWanted};
use crate::blobs::Blobs;
use crate::changes::Changes;
use crate::clock;
use crate::holders::Holders;
use crate::inbox::{Answered, Ask, Inbox, NoAnswer, Refused};
use crate::metrics::Sources;
use crate::planner::Overlay;
use crate::reload::Reload;
use crate::replica::Replica;
use crate::standby::Differs;
use crate::statistics::Statistics;
use crate::stop::Stop;
use crate::store::accounting::Accounting;
use crate::store::{Condition, Journal};
use crate::watchers::Watchers;
use access::caller_of;
use fix::Fixing;
use quota::{Kind, Quotas};
use turns::Turns;

/// Everything that the service needs. Clones share it.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) journal: Journal,
    pub(crate) inbox: Inbox,
    pub(crate) replica: Replica,
    pub(crate) overlay: Overlay,
    pub(crate) agents: Agents,
    pub(crate) watchers: Watchers,
    pub(crate) changes: Changes,
    pub(crate) holders: Holders,
    pub(crate) blobs: Blobs,
    pub(crate) accounting: Accounting,
    pub(crate) accounts: Accounts,
    /// The keys that sign credentials; `None` in a cluster without keys.
    pub(crate) keyring: Option<Keyring>,
    pub(crate) node_addresses: Arc<BTreeMap<Arc<str>, NodeAddress>>,
    pub(crate) reload: Reload,
    pub(crate) quotas: Quotas,
    pub(crate) turns: Turns,
    pub(crate) stop: Stop,
    pub(crate) statistics: Statistics,
    /// The controller's epoch.
    pub(crate) epoch: u64,
    /// Time at which the epoch began.
    pub(crate) started: Time,
    /// The queue for copies of the cluster; its lock keeps their number at one, and delays nothing else.
    pub(crate) copies: Arc<Mutex<mpsc::Sender<CopyWanted>>>,
    pub(crate) fixing: Fixing,
    /// Differences between the configuration of a standby's host and the policy in force.
    pub(crate) differs: Differs,
}

impl Desk {
    /// Returns the sources of figures and metrics.
    pub(crate) fn sources(&self) -> Sources {
        Sources {
            replica: self.replica.clone(),
            overlay: self.overlay.clone(),
            agents: self.agents.clone(),
            inbox: self.inbox.clone(),
            watchers: self.watchers.clone(),
            holders: self.holders.clone(),
            statistics: self.statistics.clone(),
            epoch: self.epoch,
        }
    }
}

/// Number of watched jobs that a request that follows the cluster counts as.
const CLUSTER_WATCHED: usize = 1024;
/// Longest wait of a ping for the owner; after this time the controller counts as not answering.
const PING_WAIT: Duration = Duration::from_secs(5);

type Listing<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The id under which a request may be repeated, and whether this is a repetition.
#[derive(Clone, Copy)]
struct Name {
    id: Option<RequestId>,
    retry: bool,
}

impl Name {
    /// Parses a request's id; a request without one cannot be repeated.
    fn read(id: &[u8], retry: bool) -> Result<Self, Status> {
        if id.is_empty() {
            return Ok(Self { id: None, retry: false });
        }
        let id = id.try_into().map_err(|_| {
            let message = format!("request_id: a UUID has 16 bytes, this one has {}", id.len());
            refusal::status(Code::InvalidArgument, &v1::Error::new(reject::INVALID, message))
        })?;
        Ok(Self { id: Some(RequestId(id)), retry })
    }

    /// Returns the id of the numbered part of a request that is handled in several parts.
    fn part(self, number: usize) -> Self {
        self.moved(number as u128)
    }

    /// Returns the id of the part about these jobs. It depends on the jobs, because a repetition may cut its
    /// parts differently once jobs have gone.
    fn part_about(self, jobs: &[JobRef<JobId>]) -> Self {
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, jobs).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        self.moved(half(0) << 64 | half(1))
    }

    fn moved(self, by: u128) -> Self {
        let moved = |RequestId(id)| RequestId(u128::from_be_bytes(id).wrapping_add(by).to_be_bytes());
        Self { id: self.id.map(moved), retry: self.retry }
    }
}

impl Desk {
    /// Returns the caller of a request, with the privileges that the policy tree gives.
    fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        let caller = caller_of(request)?;
        Ok(self.replica.read().recognize(caller))
    }

    /// Sends a command to the owner, and waits for the answer.
    async fn command(&self, caller: Caller, name: Name, command: Command) -> Result<Answer, Status> {
        self.ask(Ask { retry: name.retry, ..Ask::of(input(caller, name, command)) }).await
    }

    async fn ask(&self, ask: Ask) -> Result<Answer, Status> {
        outcome(self.inbox.ask(ask).await)
    }
}

fn input(caller: Caller, name: Name, command: Command) -> Input {
    Input::Command { caller, request: name.id, command }
}

/// Builds a submission for the owner.
fn submission(caller: Caller, name: Name, command: Command, payload: Option<Bytes>) -> Ask {
    Ask { payload, retry: name.retry, ..Ask::of(input(caller, name, command)) }
}

fn outcome(answered: Result<Answered, NoAnswer>) -> Result<Answer, Status> {
    match answered.map(|answered| answered.answer) {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(Refused::Rejected(rejected))) => Err(reject::status(&rejected)),
        Ok(Err(Refused::Unsure)) => {
            Err(refusal::busy("whether this was done before is not known; ask again"))
        }
        Ok(Err(Refused::NoSpace(no_space))) => {
            let error = v1::Error::new("ESLURM_WRITING_TO_FILE", no_space.to_string());
            Err(refusal::status(Code::FailedPrecondition, &error))
        }
        Ok(Err(Refused::Fault)) => {
            let message = "the controller has a fault and could not judge this request; nothing was changed, and its log \
                           has the details";
            Err(refusal::status(Code::Internal, &v1::Error::new("SLURM_ERROR", message)))
        }
        Err(error) => Err(no_answer(error)),
    }
}

fn no_answer(error: NoAnswer) -> Status {
    match error {
        NoAnswer::Busy => refusal::busy(&error.to_string()),
        NoAnswer::Stopping => Status::unavailable(error.to_string()),
    }
}

/// Reports an answer that this kind of request cannot have, which is a fault of the controller.
fn odd(answer: &Answer) -> Status {
    Status::internal(format!("the controller answered with {answer:?}"))
}

#[tonic::async_trait]
impl Controller for Desk {
    type SubmitStreamStream = Listing<v1::SubmitStreamResponse>;
    type ListJobsStream = Listing<v1::ListJobsResponse>;
    type ListPrioritiesStream = Listing<v1::ListPrioritiesResponse>;
    type ListStepsStream = Listing<v1::ListStepsResponse>;
    type ListNodesStream = Listing<v1::ListNodesResponse>;
    type ListTopologyStream = Listing<v1::ListTopologyResponse>;
    type WatchJobsStream = Listing<v1::WatchJobsResponse>;
    type WatchClusterStream = Listing<v1::WatchClusterResponse>;
    type HoldAllocationStream = Listing<v1::HoldAllocationResponse>;
    type ListAccountingStream = Listing<v1::ListAccountingResponse>;
    type ListNodeEventsStream = Listing<v1::ListNodeEventsResponse>;
    type ListAccountsStream = Listing<v1::ListAccountsResponse>;

    async fn ping(&self, request: Request<v1::PingRequest>) -> Result<Response<v1::PingResponse>, Status> {
        let _share = self.quotas.take(&self.caller(&request)?, Kind::Request)?;
        let is_away = matches!(self.journal.condition(), Condition::Away { .. });
        if request.get_ref().whoever_leads && (is_away || !self.journal.may_answer()) {
            return Ok(Response::new(self.describe()));
        }
        if let Some(since) = leased::old_since(&self.journal, request.metadata())? {
            let mut answer = Response::new(self.describe());
            answer.metadata_mut().insert(refusal::STALE_KEY, since.into());
            return Ok(answer);
        }
        if is_away {
            // A ping of the owner would wait for the database; within the lease the answer is known
            // without the owner.
            return Ok(Response::new(self.describe()));
        }
        let passed = tokio::time::timeout(PING_WAIT, self.inbox.ping()).await;
        // The database may have failed during the ping.
        leased::old_since(&self.journal, request.metadata())?;
        match passed {
            Ok(Ok(())) => Ok(Response::new(self.describe())),
            Ok(Err(error)) => Err(no_answer(error)),
            Err(_) => {
                let problem = format!("the controller has answered nobody for {} s", PING_WAIT.as_secs());
                Err(Status::unavailable(problem))
            }
        }
    }

    async fn submit(
        &self,
        request: Request<v1::SubmitRequest>,
    ) -> Result<Response<v1::SubmitResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::Request)?;
        self.submit_one(caller, request.into_inner()).await.map(Response::new)
    }

    async fn submit_stream(
        &self,
        request: Request<Streaming<v1::SubmitRequest>>,
    ) -> Result<Response<Self::SubmitStreamStream>, Status> {
        let caller = self.caller(&request)?;
        let share = self.quotas.take(&caller, Kind::Wait)?;
        Ok(Response::new(share.over(self.submit_many(caller, request.into_inner()))))
    }

    async fn test_submit(
        &self,
        request: Request<v1::SubmitRequest>,
    ) -> Result<Response<v1::TestSubmitResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::List)?;
        self.test(caller, request.into_inner()).await.map(Response::new)
    }

    async fn explain_job(
        &self,
        request: Request<v1::ExplainJobRequest>,
    ) -> Result<Response<v1::ExplainJobResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::List)?;
        let job = self.explain(&caller, JobId(request.into_inner().job_id)).await?;
        Ok(Response::new(v1::ExplainJobResponse { job: Some(job) }))
    }

    async fn fix_job(
        &self,
        request: Request<v1::FixJobRequest>,
    ) -> Result<Response<v1::FixJobResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::List)?;
        self.fix(caller, JobId(request.into_inner().job_id)).await.map(Response::new)
    }

    async fn defragment(
        &self,
        request: Request<v1::DefragmentRequest>,
    ) -> Result<Response<v1::DefragmentResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::List)?;
        self.defragment_for(caller, request.into_inner()).await.map(Response::new)
    }

    async fn cancel_jobs(
        &self,
        request: Request<v1::CancelJobsRequest>,
    ) -> Result<Response<v1::CancelJobsResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::Request)?;
        self.cancel(caller, request.into_inner()).await.map(Response::new)
    }

    async fn update_job(
        &self,
        request: Request<v1::UpdateJobRequest>,
    ) -> Result<Response<v1::JobsChangedResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::Request)?;
        self.update(caller, request.into_inner()).await.map(Response::new)
    }

    async fn hold_jobs(
        &self,
        request: Request<v1::HoldJobsRequest>,
    ) -> Result<Response<v1::JobsChangedResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::Request)?;
        let v1::HoldJobsRequest { job_ids, by_user, request_id, retry } = request.into_inner();
        let name = Name::read(&request_id, retry)?;
        self.change(caller, name, &job_ids, |jobs| Command::Hold { jobs, by_user }).await.map(Response::new)
    }

    async fn release_jobs(
        &self,
        request: Request<v1::ReleaseJobsRequest>,
    ) -> Result<Response<v1::JobsChangedResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::Request)?;
        let v1::ReleaseJobsRequest { job_ids, request_id, retry } = request.into_inner();
        let name = Name::read(&request_id, retry)?;
        self.change(caller, name, &job_ids, |jobs| Command::Release { jobs }).await.map(Response::new)
    }

    async fn requeue_jobs(
        &self,
        request: Request<v1::RequeueJobsRequest>,
    ) -> Result<Response<v1::JobsChangedResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::Request)?;
        let v1::RequeueJobsRequest { job_ids, hold, request_id, retry } = request.into_inner();
        let name = Name::read(&request_id, retry)?;
        self.change(caller, name, &job_ids, |jobs| Command::Requeue { jobs, hold }).await.map(Response::new)
    }

    async fn suspend_jobs(
        &self,
        request: Request<v1::SuspendJobsRequest>,
    ) -> Result<Response<v1::JobsChangedResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::Request)?;
        let v1::SuspendJobsRequest { job_ids, resume, request_id, retry } = request.into_inner();
        let name = Name::read(&request_id, retry)?;
        let command = |jobs| if resume { Command::Resume { jobs } } else { Command::Suspend { jobs } };
        self.change(caller, name, &job_ids, command).await.map(Response::new)
    }

    async fn top_jobs(
        &self,
        request: Request<v1::TopJobsRequest>,
    ) -> Result<Response<v1::JobsChangedResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::Request)?;
        let v1::TopJobsRequest { job_ids, request_id, retry } = request.into_inner();
        let name = Name::read(&request_id, retry)?;
        self.change(caller, name, &job_ids, |jobs| Command::Top { jobs }).await.map(Response::new)
    }

    async fn notify_job(
        &self,
        request: Request<v1::NotifyJobRequest>,
    ) -> Result<Response<v1::NotifyJobResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::Request)?;
        self.notify(caller, request.into_inner()).await.map(Response::new)
    }

    async fn get_script(
        &self,
        request: Request<v1::GetScriptRequest>,
    ) -> Result<Response<v1::GetScriptResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::Request)?;
        self.script(&caller, &request.into_inner().job_id).await.map(Response::new)
    }

    async fn list_jobs(
        &self,
        request: Request<v1::ListJobsRequest>,
    ) -> Result<Response<Self::ListJobsStream>, Status> {
        let caller = self.caller(&request)?;
        let share = self.quotas.take(&caller, Kind::List)?;
        let mut request = request.into_inner();
        if let Some(filter) = request.filter.as_mut().filter(|_| caller.is_operator()) {
            filter.only_visible = false;
        }
        let listing = self.jobs(&caller, &request).await?;
        Ok(Response::new(share.over(listing)))
    }

    async fn list_priorities(
        &self,
        request: Request<v1::ListPrioritiesRequest>,
    ) -> Result<Response<Self::ListPrioritiesStream>, Status> {
        let caller = self.caller(&request)?;
        let share = self.quotas.take(&caller, Kind::List)?;
        let listing = self.priorities(&caller, &request.into_inner().filter.unwrap_or_default()).await?;
        Ok(Response::new(share.over(listing)))
    }

    async fn list_steps(
        &self,
        request: Request<v1::ListStepsRequest>,
    ) -> Result<Response<Self::ListStepsStream>, Status> {
        let caller = self.caller(&request)?;
        let share = self.quotas.take(&caller, Kind::List)?;
        let listing = self.steps(&caller, &request.into_inner().filter.unwrap_or_default()).await?;
        Ok(Response::new(share.over(listing)))
    }

    async fn list_nodes(
        &self,
        request: Request<v1::ListNodesRequest>,
    ) -> Result<Response<Self::ListNodesStream>, Status> {
        let caller = self.caller(&request)?;
        let share = self.quotas.take(&caller, Kind::List)?;
        let listing = self.nodes(&caller, request.into_inner()).await?;
        Ok(Response::new(share.over(listing)))
    }

    async fn list_partitions(
        &self,
        request: Request<v1::ListPartitionsRequest>,
    ) -> Result<Response<v1::ListPartitionsResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::List)?;
        let v1::ListPartitionsRequest { names, only_visible } = request.into_inner();
        self.partitions(&caller, &names, only_visible && !caller.is_operator()).await.map(Response::new)
    }

    async fn list_topology(
        &self,
        request: Request<v1::ListTopologyRequest>,
    ) -> Result<Response<Self::ListTopologyStream>, Status> {
        let caller = self.caller(&request)?;
        let share = self.quotas.take(&caller, Kind::List)?;
        let listing = self.topology(&caller, &request.into_inner())?;
        Ok(Response::new(share.over(listing)))
    }

    async fn show_config(
        &self,
        request: Request<v1::ShowConfigRequest>,
    ) -> Result<Response<v1::ShowConfigResponse>, Status> {
        let _share = self.quotas.take(&self.caller(&request)?, Kind::List)?;
        let mut settings = convert::config::settings(self.replica.read().policy());
        settings.extend(convert::config::local_settings(self.reload.local()));
        Ok(Response::new(v1::ShowConfigResponse { settings }))
    }

    async fn expand_hostlist(
        &self,
        request: Request<v1::ExpandHostlistRequest>,
    ) -> Result<Response<v1::ExpandHostlistResponse>, Status> {
        let _share = self.quotas.take(&self.caller(&request)?, Kind::List)?;
        let nodes = filter::expand(&self.replica.read(), &request.into_inner().expression)?.to_string();
        Ok(Response::new(v1::ExpandHostlistResponse { nodes }))
    }

    async fn watch_jobs(
        &self,
        request: Request<v1::WatchJobsRequest>,
    ) -> Result<Response<Self::WatchJobsStream>, Status> {
        let caller = self.caller(&request)?;
        let ids = request.into_inner().job_ids;
        let share = self.quotas.take_watch(&caller, ids.len())?;
        let listing = self.watch(&caller, &ids)?;
        Ok(Response::new(share.over(listing)))
    }

    async fn watch_cluster(
        &self,
        request: Request<v1::WatchClusterRequest>,
    ) -> Result<Response<Self::WatchClusterStream>, Status> {
        let caller = self.caller(&request)?;
        let share = self.quotas.take_watch(&caller, CLUSTER_WATCHED)?;
        let listing = self.watch_cluster_of(caller, request.into_inner())?;
        Ok(Response::new(share.over(listing)))
    }

    async fn hold_allocation(
        &self,
        request: Request<v1::HoldAllocationRequest>,
    ) -> Result<Response<Self::HoldAllocationStream>, Status> {
        let caller = self.caller(&request)?;
        let share = self.quotas.take(&caller, Kind::Wait)?;
        let listing = self.hold_allocation_of(&caller, request.into_inner().job_id)?;
        Ok(Response::new(share.over(listing)))
    }

    async fn end_allocation(
        &self,
        request: Request<v1::EndAllocationRequest>,
    ) -> Result<Response<v1::EndAllocationResponse>, Status> {
        let caller = self.caller(&request)?;
        self.end_allocation_of(caller, request.into_inner()).await.map(Response::new)
    }

    async fn create_step(
        &self,
        request: Request<v1::CreateStepRequest>,
    ) -> Result<Response<v1::CreateStepResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::Wait)?;
        self.lay_out(caller, request.into_inner()).await.map(Response::new)
    }

    async fn abandon_step(
        &self,
        request: Request<v1::AbandonStepRequest>,
    ) -> Result<Response<v1::AbandonStepResponse>, Status> {
        let caller = self.caller(&request)?;
        self.abandon(caller, request.into_inner()).await.map(Response::new)
    }

    async fn update_nodes(
        &self,
        request: Request<v1::UpdateNodesRequest>,
    ) -> Result<Response<v1::UpdateNodesResponse>, Status> {
        let caller = self.caller(&request)?;
        self.change_nodes(caller, request.into_inner()).await.map(Response::new)
    }

    async fn update_partition(
        &self,
        request: Request<v1::UpdatePartitionRequest>,
    ) -> Result<Response<v1::UpdatePartitionResponse>, Status> {
        let caller = self.caller(&request)?;
        self.change_partition(caller, request.into_inner()).await.map(Response::new)
    }

    async fn create_partition(
        &self,
        request: Request<v1::CreatePartitionRequest>,
    ) -> Result<Response<v1::CreatePartitionResponse>, Status> {
        let caller = self.caller(&request)?;
        self.make_partition(caller, request.into_inner()).await.map(Response::new)
    }

    async fn delete_partition(
        &self,
        request: Request<v1::DeletePartitionRequest>,
    ) -> Result<Response<v1::DeletePartitionResponse>, Status> {
        let caller = self.caller(&request)?;
        self.drop_partition(caller, request.into_inner()).await.map(Response::new)
    }

    async fn create_nodes(
        &self,
        request: Request<v1::CreateNodesRequest>,
    ) -> Result<Response<v1::CreateNodesResponse>, Status> {
        let caller = self.caller(&request)?;
        self.make_nodes(caller, request.into_inner()).await.map(Response::new)
    }

    async fn delete_nodes(
        &self,
        request: Request<v1::DeleteNodesRequest>,
    ) -> Result<Response<v1::DeleteNodesResponse>, Status> {
        let caller = self.caller(&request)?;
        self.drop_nodes(caller, request.into_inner()).await.map(Response::new)
    }

    async fn list_usage(
        &self,
        request: Request<v1::ListUsageRequest>,
    ) -> Result<Response<v1::ListUsageResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::List)?;
        self.usage(&caller, request.into_inner()).await.map(Response::new)
    }

    async fn get_statistics(
        &self,
        request: Request<v1::GetStatisticsRequest>,
    ) -> Result<Response<v1::GetStatisticsResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::Request)?;
        self.figures(&caller, request.into_inner()).map(Response::new)
    }

    async fn set_debug(
        &self,
        request: Request<v1::SetDebugRequest>,
    ) -> Result<Response<v1::SetDebugResponse>, Status> {
        let caller = self.caller(&request)?;
        Self::log_more(&caller, &request.into_inner()).map(Response::new)
    }

    async fn create_reservation(
        &self,
        request: Request<v1::CreateReservationRequest>,
    ) -> Result<Response<v1::CreateReservationResponse>, Status> {
        let caller = self.caller(&request)?;
        self.reserve(caller, request.into_inner()).await.map(Response::new)
    }

    async fn update_reservation(
        &self,
        request: Request<v1::UpdateReservationRequest>,
    ) -> Result<Response<v1::UpdateReservationResponse>, Status> {
        let caller = self.caller(&request)?;
        self.change_reservation(caller, request.into_inner()).await.map(Response::new)
    }

    async fn delete_reservation(
        &self,
        request: Request<v1::DeleteReservationRequest>,
    ) -> Result<Response<v1::DeleteReservationResponse>, Status> {
        let caller = self.caller(&request)?;
        self.unreserve(caller, request.into_inner()).await.map(Response::new)
    }

    async fn list_reservations(
        &self,
        request: Request<v1::ListReservationsRequest>,
    ) -> Result<Response<v1::ListReservationsResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::List)?;
        self.reservations(&caller, &request.into_inner().names).await.map(Response::new)
    }

    async fn list_licenses(
        &self,
        request: Request<v1::ListLicensesRequest>,
    ) -> Result<Response<v1::ListLicensesResponse>, Status> {
        let _share = self.quotas.take(&self.caller(&request)?, Kind::List)?;
        let cluster = self.replica.read();
        let licenses = license::render_all(&cluster, clock::now(&cluster));
        Ok(Response::new(v1::ListLicensesResponse { licenses }))
    }

    async fn reconfigure(
        &self,
        request: Request<v1::ReconfigureRequest>,
    ) -> Result<Response<v1::ReconfigureResponse>, Status> {
        let caller = self.caller(&request)?;
        self.reconfigured(caller).await.map(Response::new)
    }

    async fn shutdown(
        &self,
        request: Request<v1::ShutdownRequest>,
    ) -> Result<Response<v1::ShutdownResponse>, Status> {
        let caller = self.caller(&request)?;
        self.shut_down(&caller, request.into_inner()).await.map(Response::new)
    }

    async fn raise_feature_level(
        &self,
        request: Request<v1::RaiseFeatureLevelRequest>,
    ) -> Result<Response<v1::RaiseFeatureLevelResponse>, Status> {
        let caller = self.caller(&request)?;
        self.raise_level(caller, request.into_inner()).await.map(Response::new)
    }

    async fn list_accounting(
        &self,
        request: Request<v1::ListAccountingRequest>,
    ) -> Result<Response<Self::ListAccountingStream>, Status> {
        let caller = self.caller(&request)?;
        let share = self.quotas.take(&caller, Kind::List)?;
        let listing = self.account(&caller, request.into_inner())?;
        Ok(Response::new(share.over(listing)))
    }

    async fn list_node_events(
        &self,
        request: Request<v1::ListNodeEventsRequest>,
    ) -> Result<Response<Self::ListNodeEventsStream>, Status> {
        let caller = self.caller(&request)?;
        let share = self.quotas.take(&caller, Kind::List)?;
        let listing = self.node_events(&caller, request.into_inner())?;
        Ok(Response::new(share.over(listing)))
    }

    async fn fix_runaway_jobs(
        &self,
        request: Request<v1::FixRunawayJobsRequest>,
    ) -> Result<Response<v1::FixRunawayJobsResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::Request)?;
        self.fix_runaway(&caller, request.into_inner()).await.map(Response::new)
    }

    async fn import_history(
        &self,
        request: Request<v1::ImportHistoryRequest>,
    ) -> Result<Response<v1::ImportHistoryResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::Request)?;
        self.import(caller, request.into_inner()).await.map(Response::new)
    }

    async fn change_accounts(
        &self,
        request: Request<v1::ChangeAccountsRequest>,
    ) -> Result<Response<v1::ChangeAccountsResponse>, Status> {
        let caller = self.caller(&request)?;
        let _share = self.quotas.take(&caller, Kind::Request)?;
        self.change_policy_tree(caller, request.into_inner()).await.map(Response::new)
    }

    async fn list_accounts(
        &self,
        request: Request<v1::ListAccountsRequest>,
    ) -> Result<Response<Self::ListAccountsStream>, Status> {
        let caller = self.caller(&request)?;
        let share = self.quotas.take(&caller, Kind::List)?;
        let listing = self.policy_tree(&caller, request.get_ref())?;
        Ok(Response::new(share.over(listing)))
    }
}
