//! The heaviest requests of every method of the controller's service, all from one user. They run in a
//! cluster in which many of this user's jobs depend on many others. A test and a benchmark send them.

use std::collections::HashMap;

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use spur_proto::v1;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Number of jobs on which others depend.
pub(crate) const AWAITED: u32 = 40;
/// Number of jobs that depend on all [`AWAITED`] ones.
pub(crate) const WAITING: u32 = 1500;
/// Number of entries in each list of a filter.
const NAMED: u32 = 10_000;

/// Codec that leaves messages encoded.
#[derive(Clone, Copy)]
pub(crate) struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// Returns [`NAMED`] names that exist nowhere.
fn names() -> Vec<String> {
    (0..NAMED).map(|number| format!("name-{number}")).collect()
}

/// Returns the numbers of all jobs, followed by numbers without a job.
fn ids() -> Vec<String> {
    (1..=NAMED).map(|id| id.to_string()).collect()
}

fn filter() -> v1::JobFilter {
    v1::JobFilter { job_ids: ids(), states: vec!["all".to_owned()], ..v1::JobFilter::default() }
}

/// Returns a filter that examines every job and matches none.
fn futile(user: &str) -> v1::JobFilter {
    let with = |own: &str| [&names()[1..], &[own.to_owned()]].concat();
    v1::JobFilter {
        users: with(user),
        partitions: with("main"),
        states: vec!["PENDING".to_owned(); NAMED as usize],
        accounts: names(),
        names: names(),
        qos: names(),
        reservations: names(),
        wckeys: names(),
        ..v1::JobFilter::default()
    }
}

fn settings(count: u32) -> Vec<v1::KeyValue> {
    (0..count).map(|key| v1::KeyValue { key: format!("Key{key}"), value: "n[1-60000]".to_owned() }).collect()
}

/// Returns a dependency `afterany` on the first `of` jobs.
fn dependency(of: u32) -> String {
    let jobs: String = (1..=of).map(|id| format!(":{id}")).collect();
    format!("afterany{jobs}")
}

fn job(name: &str) -> v1::JobSpec {
    let batch =
        v1::Batch { script: "#!/bin/sh\n".into(), work_dir: "/tmp".to_owned(), ..v1::Batch::default() };
    v1::JobSpec {
        name: name.to_owned(),
        tasks: Some(1),
        time_limit: Some(600),
        hold: true,
        batch: Some(batch),
        ..v1::JobSpec::default()
    }
}

/// Returns the jobs of the cluster in the order of their submission.
pub(crate) fn jobs() -> impl Iterator<Item = v1::SubmitRequest> {
    let waits = v1::JobSpec { dependency: dependency(AWAITED), ..job("waits") };
    let awaited = std::iter::repeat_n(job("awaited"), AWAITED as usize);
    let all = awaited.chain(std::iter::repeat_n(waits, WAITING as usize));
    all.map(|job| v1::SubmitRequest { job: Some(job), ..v1::SubmitRequest::default() })
}

fn het() -> v1::SubmitRequest {
    let part = v1::JobSpec { dependency: dependency(32), batch: None, ..job("part") };
    let job = v1::JobSpec { dependency: dependency(32), components: vec![part; 127], ..job("het") };
    v1::SubmitRequest { job: Some(job), ..v1::SubmitRequest::default() }
}

/// Number of messages of an answer to read.
pub(crate) enum Read {
    All,
    /// At most this many messages, for an answer that does not end.
    Some(usize),
}

/// Returns the heaviest requests of every method.
#[expect(clippy::too_many_lines, reason = "a table")]
pub(crate) fn table(user: &str) -> Vec<(&'static str, Read, Bytes)> {
    fn entry(method: &'static str, request: &impl Message) -> (&'static str, Read, Bytes) {
        (method, Read::All, request.encode_to_vec().into())
    }
    let (job_ids, nodes) = (ids(), "n[1-60000]".to_owned());
    let changes: HashMap<String, String> =
        [("Dependency".to_owned(), dependency(AWAITED - 1)), ("Comment".to_owned(), "x".repeat(1024))].into();
    let all = |filter| v1::ListJobsRequest { filter: Some(filter), details: true, starts: false };
    let hosts = vec!["n1".to_owned(); 65_536];
    let accounting = v1::ListAccountingRequest {
        users: names(),
        names: names(),
        nodelist: nodes.clone(),
        ..v1::ListAccountingRequest::default()
    };
    let watched: Vec<u32> = (1..=AWAITED + WAITING).collect();
    let runs = (0..NAMED).map(|job_id| v1::fix_runaway_jobs_request::Run { job_id, restarts: 0 }).collect();
    let imported = (1..=1000)
        .map(|job_id| v1::AccountingRow {
            job_id,
            end_time: Some(1),
            work_dir: "x".repeat(256),
            ..v1::AccountingRow::default()
        })
        .collect();
    let flags = |count: u32| (0..count).map(|flag| flag.to_string()).collect();
    vec![
        entry("Ping", &v1::PingRequest::default()),
        entry("RaiseFeatureLevel", &v1::RaiseFeatureLevelRequest { level: u32::MAX, ..Default::default() }),
        entry("Submit", &het()),
        entry("SubmitStream", &het()),
        entry("TestSubmit", &het()),
        entry("Defragment", &v1::DefragmentRequest { job: het().job, ..Default::default() }),
        entry("ExplainJob", &v1::ExplainJobRequest { job_id: AWAITED + 1 }),
        entry("FixJob", &v1::FixJobRequest { job_id: AWAITED + 1 }),
        entry("UpdateJob", &v1::UpdateJobRequest { job_ids: job_ids.clone(), changes, ..Default::default() }),
        entry("HoldJobs", &v1::HoldJobsRequest { job_ids: job_ids.clone(), ..Default::default() }),
        entry("ReleaseJobs", &v1::ReleaseJobsRequest { job_ids: job_ids.clone(), ..Default::default() }),
        entry("HoldJobs", &v1::HoldJobsRequest { job_ids: job_ids.clone(), ..Default::default() }),
        entry("RequeueJobs", &v1::RequeueJobsRequest { job_ids: job_ids.clone(), ..Default::default() }),
        entry("SuspendJobs", &v1::SuspendJobsRequest { job_ids: job_ids.clone(), ..Default::default() }),
        entry("TopJobs", &v1::TopJobsRequest { job_ids: job_ids.clone(), ..Default::default() }),
        entry("NotifyJob", &v1::NotifyJobRequest { job_id: "1".to_owned(), message: "x".repeat(4096) }),
        entry("GetScript", &v1::GetScriptRequest { job_id: "1".to_owned() }),
        entry("ListJobs", &all(filter())),
        entry("ListJobs", &all(futile(user))),
        entry("ListPriorities", &v1::ListPrioritiesRequest { filter: Some(filter()) }),
        entry("ListSteps", &v1::ListStepsRequest { filter: Some(futile(user)) }),
        entry(
            "ListNodes",
            &v1::ListNodesRequest { nodes: nodes.clone(), partitions: vec![], states: names(), fabric: true },
        ),
        entry(
            "ListPartitions",
            &v1::ListPartitionsRequest {
                names: vec!["main".to_owned(); NAMED as usize],
                only_visible: false,
            },
        ),
        entry("ListReservations", &v1::ListReservationsRequest { names: names() }),
        entry("ListTopology", &v1::ListTopologyRequest { nodes: nodes.clone(), ..Default::default() }),
        entry("ShowConfig", &v1::ShowConfigRequest {}),
        entry("ExpandHostlist", &v1::ExpandHostlistRequest { expression: nodes.clone() }),
        (
            "WatchJobs",
            Read::Some(watched.len()),
            v1::WatchJobsRequest { job_ids: watched }.encode_to_vec().into(),
        ),
        (
            "WatchCluster",
            Read::Some(3),
            v1::WatchClusterRequest {
                filter: Some(futile(user)),
                nodes: nodes.clone(),
                ..v1::WatchClusterRequest::default()
            }
            .encode_to_vec()
            .into(),
        ),
        ("HoldAllocation", Read::Some(1), v1::HoldAllocationRequest { job_id: 1 }.encode_to_vec().into()),
        entry("EndAllocation", &v1::EndAllocationRequest { job_id: 1, ..Default::default() }),
        entry("CreateStep", &v1::CreateStepRequest { job_id: 1, hosts: hosts.clone(), ..Default::default() }),
        entry("AbandonStep", &v1::AbandonStepRequest { job_id: 1, nodes: hosts, ..Default::default() }),
        entry("UpdateNodes", &v1::UpdateNodesRequest { nodes: nodes.clone(), ..Default::default() }),
        entry(
            "CreateNodes",
            &v1::CreateNodesRequest { nodes: nodes.clone(), settings: settings(256), ..Default::default() },
        ),
        entry("DeleteNodes", &v1::DeleteNodesRequest { nodes, ..Default::default() }),
        entry(
            "UpdatePartition",
            &v1::UpdatePartitionRequest { settings: settings(256), ..Default::default() },
        ),
        entry(
            "CreatePartition",
            &v1::CreatePartitionRequest { settings: settings(256), ..Default::default() },
        ),
        entry(
            "DeletePartition",
            &v1::DeletePartitionRequest { name: "main".to_owned(), ..Default::default() },
        ),
        entry(
            "CreateReservation",
            &v1::CreateReservationRequest { settings: settings(256), ..Default::default() },
        ),
        entry(
            "UpdateReservation",
            &v1::UpdateReservationRequest { settings: settings(256), ..Default::default() },
        ),
        entry(
            "DeleteReservation",
            &v1::DeleteReservationRequest { name: "x".to_owned(), ..Default::default() },
        ),
        entry("ListLicenses", &v1::ListLicensesRequest {}),
        entry("Reconfigure", &v1::ReconfigureRequest {}),
        entry("Shutdown", &v1::ShutdownRequest::default()),
        entry("GetStatistics", &v1::GetStatisticsRequest { reset: false }),
        entry(
            "SetDebug",
            &v1::SetDebugRequest { flags_on: flags(64), flags_off: flags(64), ..Default::default() },
        ),
        entry("ListAccounting", &accounting),
        entry(
            "ChangeAccounts",
            &v1::ChangeAccountsRequest {
                verb: "add".to_owned(),
                entity: "account".to_owned(),
                names: names(),
                settings: vec!["parent=root".to_owned(); 256],
                ..Default::default()
            },
        ),
        entry(
            "ListAccounts",
            &v1::ListAccountsRequest {
                entity: "account".to_owned(),
                names: names(),
                with_deleted: true,
                with_associations: true,
                ..Default::default()
            },
        ),
        entry("ListNodeEvents", &v1::ListNodeEventsRequest::default()),
        entry("FixRunawayJobs", &v1::FixRunawayJobsRequest { runs }),
        entry(
            "ImportHistory",
            &v1::ImportHistoryRequest { rows: imported, last_job: NAMED, ..Default::default() },
        ),
        entry("ListUsage", &v1::ListUsageRequest { job_ids }),
        entry(
            "CancelJobs",
            &v1::CancelJobsRequest {
                filter: Some(v1::JobFilter { users: vec![user.to_owned()], ..v1::JobFilter::default() }),
                ..Default::default()
            },
        ),
    ]
}
