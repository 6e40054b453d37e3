//! Lists from the replica. Long lists are made page by page. The replica is locked for one page at a time,
//! and each page waits for its [turn](super::turns), so that no list delays a reply.

use std::collections::BTreeSet;
use std::sync::Arc;

use prost::Message;
use spur_core::cluster::Cluster;
use spur_core::cluster::sight::Sight;
use spur_core::controller::Reject;
use spur_core::id::{JobId, NodeId};
use spur_core::model::caller::Caller;
use spur_core::model::config::Private;
use spur_core::model::job::Job;
use spur_core::model::reservation::Reservation;
use spur_core::text::jobid::{JobPart, JobRef};
use spur_proto::convert::job::Outlook;
use spur_proto::convert::{
    BadField, agent, job, node, partition, priority, reject, reservation, step, topology,
};
use spur_proto::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::filter::{self, Filter};
use super::foretell::Foretold;
use super::{Desk, Listing};
use crate::clock;

/// Jobs or nodes looked at while the replica is held.
pub(super) const PAGE: usize = 256;
/// Bytes after which a message of a list is full. No message is much longer than this and one job.
const MESSAGE_BYTES: usize = 1 << 20;
/// Largest number of domains in one message.
const CHUNK: usize = 512;
/// Pages made ahead of a slow reader.
const AHEAD: usize = 2;

/// A page of a list, and the beginning of the next one.
struct Page<T> {
    items: Vec<T>,
    next: Option<JobId>,
    /// Number of records that were read.
    seen: usize,
}

impl Desk {
    pub(super) async fn jobs(
        &self,
        caller: &Caller,
        wire: &v1::ListJobsRequest,
    ) -> Result<Listing<v1::ListJobsResponse>, Status> {
        let foretold = if wire.starts { self.foretold().await? } else { Foretold::default() };
        let (desk, sight) = (self.clone(), Sight::of(&self.replica.read(), caller));
        let details = wire.details;
        let render = move |cluster: &Cluster, found: &Job| {
            let outlooks = desk.overlay.read();
            let known = outlooks.of(found.id);
            let waiting = foretold.of(found.id, known.waiting);
            let outlook = Outlook { waiting: waiting.as_ref().or(known.waiting), ..known };
            let mut message = job::render(cluster, found, outlook, clock::now(cluster));
            message.reason_detail = sight.sentence(cluster, &message.reason_detail);
            let alloc = found.phase.alloc().filter(|_| details);
            message.allocated = alloc.map_or_else(Vec::new, |alloc| job::shares(cluster, alloc));
            vec![message]
        };
        let filter = wire.filter.clone().unwrap_or_default();
        self.by_job(caller, &filter, render, |jobs| v1::ListJobsResponse { jobs }).await
    }

    pub(super) async fn priorities(
        &self,
        caller: &Caller,
        wire: &v1::JobFilter,
    ) -> Result<Listing<v1::ListPrioritiesResponse>, Status> {
        let now = clock::now(&self.replica.read());
        let render = move |cluster: &Cluster, found: &Job| priority::render_all(cluster, found, now);
        self.by_job(caller, wire, render, |priorities| v1::ListPrioritiesResponse { priorities }).await
    }

    pub(super) async fn steps(
        &self,
        caller: &Caller,
        wire: &v1::JobFilter,
    ) -> Result<Listing<v1::ListStepsResponse>, Status> {
        self.by_job(caller, wire, step::render_all, |steps| v1::ListStepsResponse { steps }).await
    }

    /// Looks up the records that job ids name, some at a time; `None` without ids.
    ///
    /// # Errors
    /// Fails if the caller sees none of the jobs.
    async fn records(&self, caller: &Caller, written: &[String]) -> Result<Option<BTreeSet<JobId>>, Status> {
        if written.is_empty() {
            return Ok(None);
        }
        let mut ids = BTreeSet::new();
        for some in written.chunks(PAGE) {
            let turn = self.turns.take(caller).await;
            let cluster = self.replica.read();
            let sight = Sight::of(&cluster, caller);
            let shown = |job: &Job| sight.job(&job.spec) && !job.is_withdrawn();
            let seen = |id: &JobId| cluster.job(*id).is_some_and(shown);
            ids.extend(some.iter().flat_map(|id| filter::meant(&cluster, id)).filter(seen));
            turn.end(some.len());
        }
        // Tasks of an existing array may be over.
        let of_array = |id: &String| {
            let reference = id.parse::<JobRef<JobId>>().ok();
            let reference = reference.filter(|reference| matches!(reference.part, JobPart::Tasks(_)));
            let cluster = self.replica.read();
            let array = reference.and_then(|reference| cluster.jobs().array(reference.job));
            let first = array.and_then(|array| array.records().find_map(|id| cluster.job(id)));
            first.is_some_and(|job| Sight::of(&cluster, caller).job(&job.spec))
        };
        if ids.is_empty() && !written.iter().any(of_array) {
            return Err(reject::status(&Reject::InvalidJobId));
        }
        Ok(Some(ids))
    }

    /// Lists the rendered items of jobs, page by page.
    async fn by_job<T: Message + 'static, M: Send + 'static>(
        &self,
        caller: &Caller,
        wire: &v1::JobFilter,
        render: impl Fn(&Cluster, &Job) -> Vec<T> + Send + Sync + 'static,
        message: impl Fn(Vec<T>) -> M + Send + Sync + 'static,
    ) -> Result<Listing<M>, Status> {
        let ids = self.records(caller, &wire.job_ids).await?;
        let filter = Filter::read(&self.replica.read(), caller, wire, ids)?;
        let (pages, outgoing) = mpsc::channel(AHEAD);
        let (replica, turns, caller) = (self.replica.clone(), self.turns.clone(), caller.clone());
        tokio::spawn(async move {
            let mut next = Some(JobId(0));
            while let Some(first) = next {
                let turn = turns.take(&caller).await;
                let page = page(&replica.read(), &filter, first, &render);
                turn.end(page.seen);
                next = page.next;
                for part in parts(page.items) {
                    if pages.send(Ok(message(part))).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Box::pin(ReceiverStream::new(outgoing)))
    }

    /// Refuses a list that is hidden from the caller as a whole.
    fn shown(&self, what: Private, caller: &Caller) -> Result<(), Status> {
        match self.replica.read().policy().jobs.hides(what, caller) {
            true => Err(reject::status(&Reject::AccessDenied)),
            false => Ok(()),
        }
    }

    pub(super) async fn nodes(
        &self,
        caller: &Caller,
        request: v1::ListNodesRequest,
    ) -> Result<Listing<v1::ListNodesResponse>, Status> {
        self.shown(Private::Nodes, caller)?;
        let v1::ListNodesRequest { nodes, partitions, states, fabric } = request;
        let partitions: BTreeSet<String> = partitions.into_iter().collect();
        let states: BTreeSet<String> = states.iter().map(|state| state.to_ascii_uppercase()).collect();
        let wanted: Vec<NodeId> = {
            let turn = self.turns.take(caller).await;
            let cluster = self.replica.read();
            for name in &partitions {
                partition_named(&cluster, name)?;
            }
            let wanted: Vec<NodeId> = match nodes.as_str() {
                "" => cluster.nodes().iter().map(|node| node.id).collect(),
                list => {
                    let named = filter::expand(&cluster, list)?;
                    let known = named.iter().filter_map(|name| cluster.node_named(&name));
                    let known: BTreeSet<NodeId> = known.map(|node| node.id).collect();
                    known.into_iter().collect()
                }
            };
            turn.end(wanted.len());
            wanted
        };
        let (pages, outgoing) = mpsc::channel(AHEAD);
        let (desk, sight) = (self.clone(), Sight::of(&self.replica.read(), caller));
        let meant = move |node: &v1::Node| {
            (partitions.is_empty() || node.partitions.iter().any(|name| partitions.contains(name)))
                && (states.is_empty() || states.contains(&node.state.to_ascii_uppercase()))
        };
        let caller = caller.clone();
        tokio::spawn(async move {
            for ids in wanted.chunks(PAGE) {
                let turn = desk.turns.take(&caller).await;
                let mut nodes = desk.render_nodes(ids, &sight);
                nodes.retain(&meant);
                if fabric {
                    desk.add_reports(&mut nodes);
                }
                turn.end(ids.len());
                for nodes in parts(nodes) {
                    if pages.send(Ok(v1::ListNodesResponse { nodes })).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Box::pin(ReceiverStream::new(outgoing)))
    }

    pub(super) fn render_nodes(&self, ids: &[NodeId], sight: &Sight) -> Vec<v1::Node> {
        let cluster = self.replica.read();
        let outlooks = self.overlay.read();
        let now = clock::now(&cluster);
        let configured = ids.iter().filter_map(|id| cluster.node(*id)).filter(|node| node.configured);
        let render = |found: &spur_core::cluster::Node| {
            let planned = outlooks.plans(found.id);
            let mut shown = node::render(&cluster, found, self.agents.pulse(found.id), planned, now);
            node::show_absent_gres(&mut shown, cluster.gres_names());
            shown.jobs.retain(|id| cluster.job(JobId(*id)).is_some_and(|job| sight.job(&job.spec)));
            shown
        };
        configured.map(render).collect()
    }

    /// Adds the nodes' reports about their places in the network.
    fn add_reports(&self, nodes: &mut [v1::Node]) {
        let cluster = self.replica.read();
        for shown in nodes {
            let registration = cluster.node_named(&shown.name).and_then(|node| node.registration.as_ref());
            shown.fabric = registration.map(|registration| agent::wire_fabric_report(&registration.fabric));
        }
    }

    pub(super) async fn partitions(
        &self,
        caller: &Caller,
        names: &[String],
        only_visible: bool,
    ) -> Result<v1::ListPartitionsResponse, Status> {
        self.shown(Private::Partitions, caller)?;
        let wanted: Vec<Arc<str>> = {
            let cluster = self.replica.read();
            let name = |found: &spur_core::cluster::Partition| Arc::clone(found.name());
            let visible = |found: &&spur_core::cluster::Partition| !only_visible || !found.config.hidden;
            match names {
                [] => cluster.partitions().iter().filter(visible).map(name).collect(),
                names => {
                    let named = names.iter().map(|written| partition_named(&cluster, written).map(name));
                    named.collect::<Result<_, _>>()?
                }
            }
        };
        let sight = Sight::of(&self.replica.read(), caller);
        let mut partitions = Vec::with_capacity(wanted.len());
        for name in wanted {
            let turn = self.turns.take(caller).await;
            let cluster = self.replica.read();
            let shown = cluster.partition(&name).map(|found| partition::render(&cluster, found));
            partitions.extend(shown.map(|partition| v1::Partition {
                allow_accounts: sight.accounts(cluster.accounts(), &partition.allow_accounts),
                deny_accounts: sight.accounts(cluster.accounts(), &partition.deny_accounts),
                ..partition
            }));
            turn.end(1);
        }
        Ok(v1::ListPartitionsResponse { partitions })
    }

    pub(super) async fn reservations(
        &self,
        caller: &Caller,
        names: &[String],
    ) -> Result<v1::ListReservationsResponse, Status> {
        let wanted: Vec<Arc<Reservation>> = {
            let cluster = self.replica.read();
            let hidden = cluster.policy().jobs.hides(Private::Reservations, caller);
            let seen =
                |found: &&Arc<Reservation>| !hidden || found.users.admit(Some(caller.owner.user.as_ref()));
            match names {
                [] => cluster.reservations().filter(seen).cloned().collect(),
                names => {
                    let gone =
                        |name: &str| Reject::InvalidReservation(format!("there is no reservation {name}"));
                    let named = names.iter().map(|name| {
                        let found = cluster.reservation(name).filter(seen).cloned();
                        found.ok_or_else(|| reject::status(&gone(name)))
                    });
                    named.collect::<Result<_, _>>()?
                }
            }
        };
        let sight = Sight::of(&self.replica.read(), caller);
        let mut reservations = Vec::with_capacity(wanted.len());
        for found in wanted {
            let turn = self.turns.take(caller).await;
            let cluster = self.replica.read();
            let shown = reservation::render(&cluster, &found, clock::now(&cluster));
            reservations.push(v1::Reservation {
                users: sight.users(cluster.accounts(), &shown.users),
                accounts: sight.accounts(cluster.accounts(), &shown.accounts),
                ..shown
            });
            turn.end(1);
        }
        Ok(v1::ListReservationsResponse { reservations })
    }

    pub(super) fn topology(
        &self,
        caller: &Caller,
        request: &v1::ListTopologyRequest,
    ) -> Result<Listing<v1::ListTopologyResponse>, Status> {
        let cluster = self.replica.read();
        let found = match request.name.as_str() {
            "" => cluster.topology("default").or_else(|| cluster.topologies().first()),
            name => Some(cluster.topology(name).ok_or_else(|| no_topology(&cluster, name))?),
        };
        let Some(found) = found else { return Ok(Box::pin(tokio_stream::empty())) };
        let wanted: Option<BTreeSet<String>> = match request.nodes.as_str() {
            "" => None,
            list => Some(filter::expand(&cluster, list)?.iter().collect()),
        };
        let meant = |facts: &spur_core::model::fabric::DomainFacts| {
            let full = found.fabric.domain(facts.id).full_name();
            (request.unit.is_empty() || facts.name == request.unit || full == request.unit)
                && wanted.as_ref().is_none_or(|wanted| facts.nodes.iter().any(|node| wanted.contains(node)))
        };
        let facts = found.fabric.facts();
        let domains = facts.iter().filter(|facts| meant(facts));
        let mut domains: Vec<_> =
            domains.map(|facts| topology::domain(&cluster, &found.fabric, facts)).collect();
        if cluster.policy().jobs.hides(Private::Nodes, caller) {
            for domain in &mut domains {
                (domain.free_nodes, domain.allocated_nodes, domain.down_nodes) = (0, 0, 0);
            }
        }
        let head = topology::head(found);
        let message = move |domains| {
            let topology = Some(v1::Topology { domains, ..head.clone() });
            v1::ListTopologyResponse { topology }
        };
        match domains.is_empty() {
            // The topology is named even if none of its domains was selected.
            true => Ok(Box::pin(tokio_stream::once(Ok(message(domains))))),
            false => Ok(chunked(domains, message)),
        }
    }
}

/// Makes the next page: the records that a filter selects, until enough are read or a message is full.
fn page<T: Message>(
    cluster: &Cluster,
    filter: &Filter,
    first: JobId,
    render: &impl Fn(&Cluster, &Job) -> Vec<T>,
) -> Page<T> {
    let (mut items, mut bytes, mut seen) = (Vec::new(), 0, 0);
    for job in filter.candidates(cluster, first, PAGE + 1) {
        if seen >= PAGE || bytes >= MESSAGE_BYTES {
            return Page { items, next: Some(job.id), seen };
        }
        seen += 1;
        if filter.admits(job) && !job.is_withdrawn() {
            let rendered = render(cluster, job);
            bytes += rendered.iter().map(Message::encoded_len).sum::<usize>();
            items.extend(rendered);
        }
    }
    Page { items, next: None, seen }
}

/// Cuts a list into messages.
pub(super) fn parts<T: Message>(items: Vec<T>) -> impl Iterator<Item = Vec<T>> {
    let mut items = items.into_iter();
    std::iter::from_fn(move || {
        let (mut part, mut bytes) = (Vec::new(), 0);
        while bytes < MESSAGE_BYTES
            && let Some(item) = items.next()
        {
            bytes += item.encoded_len();
            part.push(item);
        }
        (!part.is_empty()).then_some(part)
    })
}

fn partition_named<'a>(
    cluster: &'a Cluster,
    name: &str,
) -> Result<&'a spur_core::cluster::Partition, Status> {
    cluster.partition(name).ok_or_else(|| {
        let known: Vec<&str> = cluster.partitions().iter().map(|partition| &**partition.name()).collect();
        reject::status(&Reject::InvalidPartition { name: name.to_owned(), known: known.join(", ") })
    })
}

fn no_topology(cluster: &Cluster, name: &str) -> Status {
    let known: Vec<&str> = cluster.topologies().iter().map(|topology| &*topology.name).collect();
    let problem = match known[..] {
        [] => "this cluster has no topology".to_owned(),
        _ => format!("there is no topology `{name}`; there are {}", known.join(", ")),
    };
    reject::bad_field(&BadField::new("topology", problem))
}

/// Cuts a list into messages of [`CHUNK`] items; no messages for an empty list.
fn chunked<T: Send + 'static, M: Send + 'static>(
    items: Vec<T>,
    message: impl Fn(Vec<T>) -> M + Send + 'static,
) -> Listing<M> {
    let mut items = items.into_iter();
    let chunks = std::iter::from_fn(move || {
        let chunk: Vec<T> = items.by_ref().take(CHUNK).collect();
        (!chunk.is_empty()).then(|| Ok(message(chunk)))
    });
    Box::pin(tokio_stream::iter(chunks))
}
