//! Tests of the commands' requests and of their output for the answers: `tests/data/commands/*.txt`. A case
//! begins with a line `$ COMMAND …`. The requests (`>`), the output, the messages on the standard error (`!`)
//! and an exit code other than 0 (`=`) follow. `UPDATE_EXPECT=1` rewrites the files.
//!
//! The controller of these tests has jobs 1 and 7, of which 7 has ended, and nodes n1 to n4 in a switch s1.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use spur_cli::commands::{sacct, salloc, sbatch, scancel, scontrol, sinfo, squeue, srun};
use spur_cli::error;
use spur_cli::session::Session;
use spur_core::text::address::HostPort;
use spur_proto::client::{Connection, Identity};
use spur_proto::refusal;
use spur_proto::v1::controller_server::{Controller, ControllerServer};
use spur_proto::v1::{self, JobProblem, TokenClaims};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status, Streaming};

type Listing<T> = tokio_stream::Iter<std::vec::IntoIter<Result<T, Status>>>;

/// A controller that records its requests.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Vec<String>>>);

impl Fake {
    fn heard(&self, what: &str, words: &[(&str, String)]) {
        let words = words.iter().filter(|(_, value)| !value.is_empty());
        let words: String = words.map(|(key, value)| format!(" {key}={value}")).collect();
        self.0.lock().expect("nobody panics with it").push(format!("{what}{words}"));
    }

    fn jobs_heard(&self, what: &str, ids: &[String]) -> Response<v1::JobsChangedResponse> {
        self.heard(what, &[("jobs", ids.join(" "))]);
        Response::new(v1::JobsChangedResponse { problems: problems(ids), warnings: Vec::new() })
    }
}

fn list<T>(messages: Vec<T>) -> Response<Listing<T>> {
    let messages: Vec<Result<T, Status>> = messages.into_iter().map(Ok).collect();
    Response::new(tokio_stream::iter(messages))
}

fn invalid(what: &str) -> v1::Error {
    v1::Error::new("ESLURM_INVALID_JOB_ID", format!("Invalid {what} specified"))
}

/// Returns the problems of these jobs and steps.
fn problems(ids: &[String]) -> Vec<JobProblem> {
    let done = v1::Error::new("ESLURM_ALREADY_DONE", "Job/step already completing or completed");
    let problem = |id: &String| {
        let error = match id.as_str() {
            "1" | "1.0" | "1.batch" => return None,
            "7" => done.clone(),
            _ => invalid("job id"),
        };
        Some(JobProblem { job_id: id.clone(), error: Some(error) })
    };
    ids.iter().filter_map(problem).collect()
}

/// Returns the fields of a filter.
fn words(filter: &v1::JobFilter) -> Vec<(&'static str, String)> {
    vec![
        ("jobs", filter.job_ids.join(" ")),
        ("users", filter.users.join(" ")),
        ("partitions", filter.partitions.join(" ")),
        ("states", filter.states.join(" ")),
        ("names", filter.names.join(" ")),
        ("accounts", filter.accounts.join(" ")),
        ("qos", filter.qos.join(" ")),
        ("nodes", filter.nodelist.clone()),
    ]
}

fn job(id: u32, state: &str, compact: &str) -> v1::Job {
    v1::Job {
        id,
        name: "train".into(),
        user: "alice".into(),
        partition: "main".into(),
        state: state.into(),
        state_compact: compact.into(),
        num_nodes: 1,
        nodes: "n1".into(),
        ..v1::Job::default()
    }
}

type Answer<T> = Result<Response<T>, Status>;

/// Returns the recorded fields of a request with a name, keys and values.
fn named(key: &'static str, name: String, settings: Vec<v1::KeyValue>) -> Vec<(&'static str, String)> {
    let settings = settings.iter().map(|setting| format!("{}={}", setting.key, setting.value));
    vec![(key, name), ("settings", settings.collect::<Vec<_>>().join(" "))]
}

#[tonic::async_trait]
impl Controller for Fake {
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

    async fn ping(&self, _: Request<v1::PingRequest>) -> Answer<v1::PingResponse> {
        self.heard("Ping", &[]);
        Ok(Response::new(v1::PingResponse {
            hostname: "head".into(),
            cluster_name: "lab".into(),
            ..v1::PingResponse::default()
        }))
    }

    async fn submit(&self, _: Request<v1::SubmitRequest>) -> Answer<v1::SubmitResponse> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn submit_stream(
        &self,
        _: Request<Streaming<v1::SubmitRequest>>,
    ) -> Answer<Self::SubmitStreamStream> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn test_submit(&self, _: Request<v1::SubmitRequest>) -> Answer<v1::TestSubmitResponse> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn hold_allocation(
        &self,
        _: Request<v1::HoldAllocationRequest>,
    ) -> Answer<Self::HoldAllocationStream> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn end_allocation(
        &self,
        _: Request<v1::EndAllocationRequest>,
    ) -> Answer<v1::EndAllocationResponse> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn defragment(&self, _: Request<v1::DefragmentRequest>) -> Answer<v1::DefragmentResponse> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn fix_job(&self, _: Request<v1::FixJobRequest>) -> Answer<v1::FixJobResponse> {
        Ok(Response::new(v1::FixJobResponse::default()))
    }

    async fn explain_job(&self, _: Request<v1::ExplainJobRequest>) -> Answer<v1::ExplainJobResponse> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn cancel_jobs(&self, request: Request<v1::CancelJobsRequest>) -> Answer<v1::CancelJobsResponse> {
        let request = request.into_inner();
        assert_eq!(request.request_id.len(), 16);
        let mut heard = request.filter.as_ref().map(words).unwrap_or_default();
        heard.push(("steps", request.steps.join(" ")));
        heard.push(("signal", request.signal.map(|signal| signal.to_string()).unwrap_or_default()));
        heard.push(("batch", if request.batch_only { "only".into() } else { String::new() }));
        heard.push(("full", if request.full { "yes".into() } else { String::new() }));
        self.heard("CancelJobs", &heard);
        let ids: Vec<String> =
            request.filter.unwrap_or_default().job_ids.into_iter().chain(request.steps).collect();
        let problems = problems(&ids);
        let failed = |id: &&String| problems.iter().all(|problem| problem.job_id != **id);
        let names: Vec<String> = ids.iter().filter(failed).cloned().collect();
        let cancelled = names.iter().filter_map(|id| id.parse().ok()).collect();
        Ok(Response::new(v1::CancelJobsResponse { cancelled, problems, names, next_job_id: 0 }))
    }

    async fn update_job(&self, request: Request<v1::UpdateJobRequest>) -> Answer<v1::JobsChangedResponse> {
        let request = request.into_inner();
        let mut changes: Vec<String> =
            request.changes.iter().map(|(key, value)| format!("{key}:{value}")).collect();
        changes.sort();
        self.heard("UpdateJob", &[("changes", changes.join(" "))]);
        Ok(self.jobs_heard("of", &request.job_ids))
    }

    async fn hold_jobs(&self, request: Request<v1::HoldJobsRequest>) -> Answer<v1::JobsChangedResponse> {
        let request = request.into_inner();
        Ok(self.jobs_heard(if request.by_user { "HoldJobs by user" } else { "HoldJobs" }, &request.job_ids))
    }

    async fn release_jobs(
        &self,
        request: Request<v1::ReleaseJobsRequest>,
    ) -> Answer<v1::JobsChangedResponse> {
        Ok(self.jobs_heard("ReleaseJobs", &request.into_inner().job_ids))
    }

    async fn requeue_jobs(
        &self,
        request: Request<v1::RequeueJobsRequest>,
    ) -> Answer<v1::JobsChangedResponse> {
        let request = request.into_inner();
        Ok(self.jobs_heard(if request.hold { "RequeueJobs held" } else { "RequeueJobs" }, &request.job_ids))
    }

    async fn suspend_jobs(
        &self,
        request: Request<v1::SuspendJobsRequest>,
    ) -> Answer<v1::JobsChangedResponse> {
        let request = request.into_inner();
        Ok(self
            .jobs_heard(if request.resume { "SuspendJobs resume" } else { "SuspendJobs" }, &request.job_ids))
    }

    async fn top_jobs(&self, request: Request<v1::TopJobsRequest>) -> Answer<v1::JobsChangedResponse> {
        Ok(self.jobs_heard("TopJobs", &request.into_inner().job_ids))
    }

    async fn notify_job(&self, request: Request<v1::NotifyJobRequest>) -> Answer<v1::NotifyJobResponse> {
        let request = request.into_inner();
        self.heard("NotifyJob", &[("job", request.job_id.clone()), ("message", request.message)]);
        match problems(&[request.job_id]).into_iter().find_map(|problem| problem.error) {
            Some(error) => Err(refusal::status(Code::NotFound, &error)),
            None => Ok(Response::new(v1::NotifyJobResponse {})),
        }
    }

    async fn get_script(&self, request: Request<v1::GetScriptRequest>) -> Answer<v1::GetScriptResponse> {
        self.heard("GetScript", &[("job", request.into_inner().job_id)]);
        let script = "#!/bin/sh\ntrue\n".into();
        Ok(Response::new(v1::GetScriptResponse { script, environment: Vec::new().into() }))
    }

    async fn list_jobs(&self, request: Request<v1::ListJobsRequest>) -> Answer<Self::ListJobsStream> {
        let filter = request.into_inner().filter.unwrap_or_default();
        self.heard("ListJobs", &words(&filter));
        if filter.job_ids == ["99"] {
            return Err(refusal::status(Code::NotFound, &invalid("job id")));
        }
        // Two messages, as for a long queue.
        let messages = [job(7, "COMPLETED", "CD"), job(1, "RUNNING", "R")]
            .into_iter()
            .filter(|job| filter.job_ids.is_empty() || filter.job_ids.contains(&job.id.to_string()))
            .filter(|job| !filter.states.is_empty() || job.id == 1)
            .filter(|_| filter.names != ["nosuch"])
            .map(|job| v1::ListJobsResponse { jobs: vec![job] });
        Ok(list(messages.collect()))
    }

    async fn list_priorities(
        &self,
        request: Request<v1::ListPrioritiesRequest>,
    ) -> Answer<Self::ListPrioritiesStream> {
        self.heard("ListPriorities", &words(&request.into_inner().filter.unwrap_or_default()));
        let job =
            v1::PriorityFactors { job_id: 1, partition: "main".into(), ..v1::PriorityFactors::default() };
        Ok(list(vec![v1::ListPrioritiesResponse { priorities: vec![job] }]))
    }

    async fn list_steps(&self, request: Request<v1::ListStepsRequest>) -> Answer<Self::ListStepsStream> {
        self.heard("ListSteps", &words(&request.into_inner().filter.unwrap_or_default()));
        let step = |id: &str| v1::Step { job_id: 1, step_id: id.into(), ..v1::Step::default() };
        Ok(list(vec![v1::ListStepsResponse { steps: vec![step("batch"), step("0")] }]))
    }

    async fn list_nodes(&self, request: Request<v1::ListNodesRequest>) -> Answer<Self::ListNodesStream> {
        self.heard("ListNodes", &[("nodes", request.into_inner().nodes)]);
        let node = |at| v1::Node {
            name: format!("n{at}"),
            state: "idle".into(),
            partitions: vec!["main".into()],
            gres: if at == 4 { "gpu:a100:2,nic:1".into() } else { String::new() },
            ..v1::Node::default()
        };
        Ok(list((1..=4).map(|at| v1::ListNodesResponse { nodes: vec![node(at)] }).collect()))
    }

    async fn list_partitions(
        &self,
        _: Request<v1::ListPartitionsRequest>,
    ) -> Answer<v1::ListPartitionsResponse> {
        self.heard("ListPartitions", &[]);
        let main = v1::Partition { name: "main".into(), state: "UP".into(), ..v1::Partition::default() };
        Ok(Response::new(v1::ListPartitionsResponse { partitions: vec![main] }))
    }

    async fn list_topology(
        &self,
        request: Request<v1::ListTopologyRequest>,
    ) -> Answer<Self::ListTopologyStream> {
        let request = request.into_inner();
        let heard = [("name", request.name), ("unit", request.unit.clone()), ("nodes", request.nodes)];
        self.heard("ListTopology", &heard);
        let domain = |name: &str, nodes: &str| v1::Domain {
            name: name.into(),
            nodes: nodes.into(),
            ..v1::Domain::default()
        };
        let message = |domain| {
            let topology = v1::Topology { domains: vec![domain], ..v1::Topology::default() };
            v1::ListTopologyResponse { topology: Some(topology) }
        };
        let all = [domain("s1", "n[1-4]"), domain("s2", "n[5-8]")];
        let wanted = all.into_iter().filter(|domain| request.unit.is_empty() || request.unit == domain.name);
        Ok(list(wanted.map(message).collect()))
    }

    async fn show_config(&self, _: Request<v1::ShowConfigRequest>) -> Answer<v1::ShowConfigResponse> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn expand_hostlist(
        &self,
        request: Request<v1::ExpandHostlistRequest>,
    ) -> Answer<v1::ExpandHostlistResponse> {
        self.heard("ExpandHostlist", &[("expression", request.into_inner().expression)]);
        Ok(Response::new(v1::ExpandHostlistResponse { nodes: "n[1-4]".into() }))
    }

    async fn watch_cluster(&self, _: Request<v1::WatchClusterRequest>) -> Answer<Self::WatchClusterStream> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn watch_jobs(&self, _: Request<v1::WatchJobsRequest>) -> Answer<Self::WatchJobsStream> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn create_step(&self, _: Request<v1::CreateStepRequest>) -> Answer<v1::CreateStepResponse> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn abandon_step(&self, _: Request<v1::AbandonStepRequest>) -> Answer<v1::AbandonStepResponse> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn update_nodes(
        &self,
        request: Request<v1::UpdateNodesRequest>,
    ) -> Answer<v1::UpdateNodesResponse> {
        let request = request.into_inner();
        let topology = request.topology.unwrap_or_default();
        let heard = [
            ("nodes", request.nodes),
            ("state", request.state),
            ("reason", request.reason),
            ("topology", topology),
            ("asap", if request.asap { "yes".to_owned() } else { String::new() }),
            ("next", request.next_state),
        ];
        self.heard("UpdateNodes", &heard);
        Ok(Response::new(v1::UpdateNodesResponse {}))
    }

    async fn update_partition(
        &self,
        request: Request<v1::UpdatePartitionRequest>,
    ) -> Answer<v1::UpdatePartitionResponse> {
        let request = request.into_inner();
        self.heard("UpdatePartition", &named("name", request.name, request.settings));
        Ok(Response::new(v1::UpdatePartitionResponse {}))
    }

    async fn create_partition(
        &self,
        request: Request<v1::CreatePartitionRequest>,
    ) -> Answer<v1::CreatePartitionResponse> {
        let request = request.into_inner();
        self.heard("CreatePartition", &named("name", request.name, request.settings));
        Ok(Response::new(v1::CreatePartitionResponse {}))
    }

    async fn delete_partition(
        &self,
        request: Request<v1::DeletePartitionRequest>,
    ) -> Answer<v1::DeletePartitionResponse> {
        self.heard("DeletePartition", &[("name", request.into_inner().name)]);
        Ok(Response::new(v1::DeletePartitionResponse {}))
    }

    async fn create_nodes(
        &self,
        request: Request<v1::CreateNodesRequest>,
    ) -> Answer<v1::CreateNodesResponse> {
        let request = request.into_inner();
        self.heard("CreateNodes", &named("nodes", request.nodes, request.settings));
        Ok(Response::new(v1::CreateNodesResponse {}))
    }

    async fn delete_nodes(
        &self,
        request: Request<v1::DeleteNodesRequest>,
    ) -> Answer<v1::DeleteNodesResponse> {
        self.heard("DeleteNodes", &[("nodes", request.into_inner().nodes)]);
        Ok(Response::new(v1::DeleteNodesResponse {}))
    }

    async fn fix_runaway_jobs(
        &self,
        _: Request<v1::FixRunawayJobsRequest>,
    ) -> Answer<v1::FixRunawayJobsResponse> {
        Ok(Response::new(v1::FixRunawayJobsResponse::default()))
    }

    async fn import_history(
        &self,
        request: Request<v1::ImportHistoryRequest>,
    ) -> Answer<v1::ImportHistoryResponse> {
        let rows = request.into_inner().rows;
        self.heard(
            "ImportHistory",
            &[("rows", rows.iter().map(|row| row.job_id.to_string()).collect::<Vec<_>>().join(","))],
        );
        Ok(Response::new(v1::ImportHistoryResponse::default()))
    }

    async fn list_usage(&self, _: Request<v1::ListUsageRequest>) -> Answer<v1::ListUsageResponse> {
        Ok(Response::new(v1::ListUsageResponse::default()))
    }

    async fn get_statistics(
        &self,
        _: Request<v1::GetStatisticsRequest>,
    ) -> Answer<v1::GetStatisticsResponse> {
        Ok(Response::new(v1::GetStatisticsResponse::default()))
    }

    async fn set_debug(&self, request: Request<v1::SetDebugRequest>) -> Answer<v1::SetDebugResponse> {
        let v1::SetDebugRequest { level, flags_on, flags_off } = request.into_inner();
        self.heard("SetDebug", &[("level", level), ("on", flags_on.join(" ")), ("off", flags_off.join(" "))]);
        Ok(Response::new(v1::SetDebugResponse {}))
    }

    async fn create_reservation(
        &self,
        request: Request<v1::CreateReservationRequest>,
    ) -> Answer<v1::CreateReservationResponse> {
        let pairs = request.into_inner().settings;
        let heard: Vec<_> = pairs.iter().map(|pair| (pair.key.as_str(), pair.value.clone())).collect();
        self.heard("CreateReservation", &heard);
        Ok(Response::new(v1::CreateReservationResponse { name: "r".into() }))
    }

    async fn update_reservation(
        &self,
        request: Request<v1::UpdateReservationRequest>,
    ) -> Answer<v1::UpdateReservationResponse> {
        self.heard("UpdateReservation", &[("name", request.into_inner().name)]);
        Ok(Response::new(v1::UpdateReservationResponse {}))
    }

    async fn delete_reservation(
        &self,
        request: Request<v1::DeleteReservationRequest>,
    ) -> Answer<v1::DeleteReservationResponse> {
        self.heard("DeleteReservation", &[("name", request.into_inner().name)]);
        Ok(Response::new(v1::DeleteReservationResponse {}))
    }

    async fn list_reservations(
        &self,
        _: Request<v1::ListReservationsRequest>,
    ) -> Answer<v1::ListReservationsResponse> {
        Ok(Response::new(v1::ListReservationsResponse::default()))
    }

    async fn list_licenses(&self, _: Request<v1::ListLicensesRequest>) -> Answer<v1::ListLicensesResponse> {
        self.heard("ListLicenses", &[]);
        let licenses = vec![v1::License { name: "matlab".into(), total: 4, used: 1, reserved: 2 }];
        Ok(Response::new(v1::ListLicensesResponse { licenses }))
    }

    async fn reconfigure(&self, _: Request<v1::ReconfigureRequest>) -> Answer<v1::ReconfigureResponse> {
        self.heard("Reconfigure", &[]);
        Ok(Response::new(v1::ReconfigureResponse { changes: vec!["node n9 is new".into()] }))
    }

    async fn shutdown(&self, request: Request<v1::ShutdownRequest>) -> Answer<v1::ShutdownResponse> {
        let only = if request.into_inner().controller_only { " the controller only" } else { "" };
        self.heard(&format!("Shutdown{only}"), &[]);
        Ok(Response::new(v1::ShutdownResponse {}))
    }

    async fn raise_feature_level(
        &self,
        request: Request<v1::RaiseFeatureLevelRequest>,
    ) -> Answer<v1::RaiseFeatureLevelResponse> {
        self.heard(&format!("RaiseFeatureLevel {}", request.into_inner().level), &[]);
        Ok(Response::new(v1::RaiseFeatureLevelResponse {}))
    }

    async fn change_accounts(
        &self,
        _: Request<v1::ChangeAccountsRequest>,
    ) -> Answer<v1::ChangeAccountsResponse> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn list_node_events(
        &self,
        request: Request<v1::ListNodeEventsRequest>,
    ) -> Answer<Self::ListNodeEventsStream> {
        let request = request.into_inner();
        self.heard("ListNodeEvents", &[("nodes", request.nodelist), ("open", request.open.to_string())]);
        let event = |node: &str, end, state: &str| v1::NodeEvent {
            node: node.into(),
            start: 1_000,
            end,
            state: state.into(),
            reason: "broken fan".into(),
            user: "root".into(),
        };
        let events = vec![event("n1", Some(1_100), "DRAIN"), event("n2", None, "DOWN*")];
        Ok(list(vec![v1::ListNodeEventsResponse { events }]))
    }

    async fn list_accounts(&self, _: Request<v1::ListAccountsRequest>) -> Answer<Self::ListAccountsStream> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn list_accounting(
        &self,
        request: Request<v1::ListAccountingRequest>,
    ) -> Answer<Self::ListAccountingStream> {
        let request = request.into_inner();
        let heard = [("jobs", request.job_ids.join(" ")), ("users", request.users.join(" "))];
        self.heard("ListAccounting", &heard);
        let row = |step: &str| v1::AccountingRow {
            job_id: 1,
            step_id: step.into(),
            state: "RUNNING".into(),
            ..v1::AccountingRow::default()
        };
        let rows = vec![row(""), row("batch"), row("0")];
        Ok(list(
            rows.into_iter()
                .map(|row| v1::ListAccountingResponse { rows: vec![row], ..Default::default() })
                .collect(),
        ))
    }
}

async fn run(line: &str, address: &HostPort, fake: &Fake) -> String {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let command = words.remove(0);
    let claims = TokenClaims { user: "alice".into(), uid: 1000, ..TokenClaims::default() };
    let connection = Connection::new(std::slice::from_ref(address), Identity::Unsigned(claims));
    let connection = connection.expect("the address is one");
    let name = ["squeue", "sinfo", "scancel", "scontrol", "sacct", "sbatch", "salloc", "srun"]
        .into_iter()
        .find(|name| *name == command);
    let name = name.unwrap_or_else(|| panic!("no such command in these tests: {command}"));
    let mut session = Session::in_memory(name, BTreeMap::new(), Some(connection));
    let ended = match name {
        "squeue" => squeue::run(&mut session, words).await,
        "sinfo" => sinfo::run(&mut session, words).await,
        "scancel" => scancel::run(&mut session, words).await,
        "scontrol" => scontrol::run(&mut session, words).await,
        "sbatch" => sbatch::run(&mut session, words).await,
        "salloc" => salloc::run(&mut session, words).await,
        "srun" => srun::run(&mut session, words).await,
        _ => sacct::run(&mut session, words).await,
    };
    let code = ended.unwrap_or_else(|error| error::report(&mut session, &error));
    let mut text = String::new();
    for asked in fake.0.lock().expect("nobody panics with it").drain(..) {
        text.push_str(&format!("> {asked}\n"));
    }
    text.push_str(&session.out.take_text());
    for said in session.take_complaints().lines() {
        text.push_str(&format!("! {said}\n"));
    }
    if code != 0 {
        text.push_str(&format!("= {code}\n"));
    }
    text
}

#[tokio::test]
async fn commands_ask_for_what_they_are_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: HostPort = listener.local_addr().unwrap().to_string().parse().unwrap();
    let fake = Fake::default();
    let server = Server::builder().add_service(ControllerServer::new(fake.clone()));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/commands");
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let mut got = String::new();
        for line in text.lines().filter(|line| line.starts_with("$ ") || line.starts_with("# ")) {
            got.push_str(&format!("{line}\n"));
            if let Some(command) = line.strip_prefix("$ ") {
                got.push_str(&run(command, &address, &fake).await);
            }
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&file, &got).unwrap();
        } else {
            assert_eq!(text, got, "{}", file.display());
        }
    }
}
