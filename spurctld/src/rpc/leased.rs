//! Answers leave a controller only within its lease: after the lease, another controller may have
//! acknowledged changes that this controller lacks.
//!
//! While the database is away, changes are refused at once. Commands that found no leader may accept an
//! old answer of a leader or a standby; the answer carries the time since which it may be out of date.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use spur_proto::refusal;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;

use crate::clock;
use crate::store::{Condition, Journal};

/// The condition for an answer of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// The method commits: calls are refused at once while the database is away.
    Commit,
    /// The method needs a valid lease: it reads the current state, or data that only the database or the
    /// leader's streams have.
    Lease,
    /// The method reads the replica: while the database is away, callers that accept an old answer receive
    /// one.
    Cluster,
    /// The method needs the process of the leader, whatever the state of its database.
    Leader,
    /// No condition: the method itself decides whether it answers.
    Nothing,
}

/// Each method of the service for commands, with its condition.
const METHODS: [(&str, Needs); 53] = [
    ("Ping", Needs::Nothing),
    ("Submit", Needs::Commit),
    ("SubmitStream", Needs::Commit),
    ("TestSubmit", Needs::Lease),
    ("ExplainJob", Needs::Lease),
    ("FixJob", Needs::Lease),
    ("Defragment", Needs::Lease),
    ("CancelJobs", Needs::Commit),
    ("UpdateJob", Needs::Commit),
    ("HoldJobs", Needs::Commit),
    ("ReleaseJobs", Needs::Commit),
    ("RequeueJobs", Needs::Commit),
    ("SuspendJobs", Needs::Commit),
    ("TopJobs", Needs::Commit),
    ("NotifyJob", Needs::Commit),
    ("GetScript", Needs::Lease),
    ("ListJobs", Needs::Cluster),
    ("ListPriorities", Needs::Cluster),
    ("ListSteps", Needs::Cluster),
    ("ListNodes", Needs::Cluster),
    ("ListPartitions", Needs::Cluster),
    ("ListTopology", Needs::Cluster),
    ("ShowConfig", Needs::Cluster),
    ("ExpandHostlist", Needs::Cluster),
    ("WatchJobs", Needs::Lease),
    ("WatchCluster", Needs::Lease),
    ("HoldAllocation", Needs::Lease),
    ("EndAllocation", Needs::Commit),
    ("CreateStep", Needs::Commit),
    ("AbandonStep", Needs::Commit),
    ("UpdateNodes", Needs::Commit),
    ("CreateNodes", Needs::Commit),
    ("DeleteNodes", Needs::Commit),
    ("UpdatePartition", Needs::Commit),
    ("CreatePartition", Needs::Commit),
    ("DeletePartition", Needs::Commit),
    ("CreateReservation", Needs::Commit),
    ("UpdateReservation", Needs::Commit),
    ("DeleteReservation", Needs::Commit),
    ("ListReservations", Needs::Cluster),
    ("ListLicenses", Needs::Cluster),
    ("Reconfigure", Needs::Commit),
    ("Shutdown", Needs::Leader),
    ("RaiseFeatureLevel", Needs::Commit),
    ("GetStatistics", Needs::Lease),
    ("SetDebug", Needs::Leader),
    ("ListAccounting", Needs::Lease),
    ("ListNodeEvents", Needs::Lease),
    ("FixRunawayJobs", Needs::Commit),
    ("ImportHistory", Needs::Commit),
    ("ChangeAccounts", Needs::Commit),
    ("ListAccounts", Needs::Cluster),
    ("ListUsage", Needs::Lease),
];

/// The service for commands, which refuses each call whose condition is not met.
#[derive(Clone)]
pub(crate) struct Leased<S> {
    pub(crate) inner: S,
    pub(crate) journal: Journal,
}

impl<S: NamedService> NamedService for Leased<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Leased<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let needs = needs(request.uri().path());
        let takes_old = needs == Needs::Cluster && request.headers().contains_key(refusal::STALE_KEY);
        let is_away = matches!(self.journal.condition(), Condition::Away { .. });
        let is_refused = match needs {
            Needs::Nothing => false,
            Needs::Leader => !self.journal.leads(),
            Needs::Commit => is_away || !self.journal.leads(),
            Needs::Lease | Needs::Cluster => !(self.journal.leads() || takes_old && is_away),
        };
        if is_refused {
            let refused = refused(&self.journal);
            return Box::pin(async move { Ok(refused.into_http()) });
        }
        let answer = self.inner.call(request);
        let journal = self.journal.clone();
        Box::pin(async move {
            let mut answer = answer.await?;
            if matches!(needs, Needs::Leader | Needs::Nothing) || journal.may_answer() {
                return Ok(answer);
            }
            match journal.condition() {
                Condition::Away { since, .. } if takes_old => {
                    answer.headers_mut().insert(refusal::STALE_KEY, since.0.into());
                    Ok(answer)
                }
                _ => Ok(refused(&journal).into_http()),
            }
        })
    }
}

/// Returns the condition of a method, by the path of its calls. A method that the table lacks counts as
/// one that commits.
fn needs(path: &str) -> Needs {
    let method = path.rsplit('/').next().unwrap_or_default();
    METHODS.iter().find(|(name, _)| *name == method).map_or(Needs::Commit, |(_, needs)| *needs)
}

/// Returns the time since which an old answer may be out of date, in seconds since the Unix epoch; `None`
/// if the answer is current.
///
/// # Errors
/// Fails if this controller may not answer, and the call does not accept an old answer or the database is
/// not away.
pub(super) fn old_since(journal: &Journal, call: &MetadataMap) -> Result<Option<i64>, Status> {
    match journal.condition() {
        _ if journal.may_answer() => Ok(None),
        Condition::Away { since, .. } if call.contains_key(refusal::STALE_KEY) => Ok(Some(since.0)),
        _ => Err(refused(journal)),
    }
}

/// Returns the refusal of a controller that may not answer: its database is away, or it does not lead.
pub(super) fn refused(journal: &Journal) -> Status {
    match journal.condition() {
        Condition::Away { since, why } => {
            let seconds = clock::wall().0.saturating_sub(since.0);
            refusal::away(&format!("the database of the controller is away since {seconds} s ({why})"))
        }
        Condition::Well => standing_by(journal),
    }
}

/// Returns the refusal of a controller that does not lead, with the address of the leader.
pub(crate) fn standing_by(journal: &Journal) -> Status {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    refusal::standby(&host, &journal.leader())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;

    #[test]
    fn the_table_has_every_method_of_the_service_once() {
        let files = FileDescriptorSet::decode(spur_proto::DESCRIPTORS).unwrap().file;
        let services = files.into_iter().flat_map(|file| file.service);
        let controller = services.into_iter().find(|service| service.name() == "Controller").unwrap();
        let described: BTreeSet<&str> = controller.method.iter().map(|method| method.name()).collect();
        let listed: BTreeSet<&str> = METHODS.iter().map(|(name, _)| *name).collect();
        assert_eq!(listed, described);
        assert_eq!(listed.len(), METHODS.len(), "a method is listed twice");
    }

    #[test]
    fn whatever_takes_a_request_id_needs_a_commit() {
        let files = FileDescriptorSet::decode(spur_proto::DESCRIPTORS).unwrap().file;
        let messages = || files.iter().flat_map(|file| &file.message_type);
        let has_id = |full: &str| {
            let message = messages().find(|message| full == format!(".spur.v1.{}", message.name()));
            message.is_some_and(|message| message.field.iter().any(|field| field.name() == "request_id"))
        };
        let services = files.iter().flat_map(|file| &file.service);
        for method in services.flat_map(|service| &service.method) {
            let is_change = has_id(method.input_type()) && method.name() != "TestSubmit";
            let needs = needs(&format!("/spur.v1.Controller/{}", method.name()));
            assert!(!is_change || needs == Needs::Commit, "{} is {needs:?}", method.name());
        }
    }
}
