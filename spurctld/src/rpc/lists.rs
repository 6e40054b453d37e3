//! Reading the cluster. Long lists are read page by page: the replica is held for one page at a time, so no list,
//! however long, makes a reply wait.

use std::collections::BTreeSet;

use spur_core::cluster::Cluster;
use spur_core::controller::Reject;
use spur_core::id::{JobId, NodeId};
use spur_core::model::job::Job;
use spur_proto::convert::job::Outlook;
use spur_proto::convert::{BadField, job, node, partition, priority, reject, reservation, step, topology};
use spur_proto::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::filter::{self, Filter};
use super::foretell::Foretold;
use super::{Desk, Listing};
use crate::clock;

/// Jobs or nodes looked at while the replica is held.
const PAGE: usize = 256;
/// Domains in one message.
const CHUNK: usize = 512;
/// Pages made ahead of a slow reader.
const AHEAD: usize = 2;

/// A page of jobs and where the next one begins.
struct Page<T> {
    items: Vec<T>,
    next: Option<JobId>,
}

impl Desk {
    pub(super) async fn jobs(
        &self,
        wire: &v1::ListJobsRequest,
    ) -> Result<Listing<v1::ListJobsResponse>, Status> {
        let foretold = if wire.starts { self.foretold().await? } else { Foretold::default() };
        let desk = self.clone();
        let details = wire.details;
        let render = move |cluster: &Cluster, found: &Job| {
            let outlooks = desk.overlay.read();
            let known = outlooks.of(found.id);
            let waiting = foretold.of(found.id, known.waiting);
            let outlook = Outlook { waiting: waiting.as_ref().or(known.waiting), ..known };
            let mut message = job::render(cluster, found, outlook, clock::now());
            let alloc = found.phase.alloc().filter(|_| details);
            message.allocated = alloc.map_or_else(Vec::new, |alloc| job::shares(cluster, alloc));
            vec![message]
        };
        self.by_job(&wire.filter.clone().unwrap_or_default(), render, |jobs| v1::ListJobsResponse { jobs })
    }

    pub(super) fn priorities(
        &self,
        wire: &v1::JobFilter,
    ) -> Result<Listing<v1::ListPrioritiesResponse>, Status> {
        let now = clock::now();
        let render = move |cluster: &Cluster, found: &Job| priority::render_all(cluster, found, now);
        self.by_job(wire, render, |priorities| v1::ListPrioritiesResponse { priorities })
    }

    pub(super) fn steps(&self, wire: &v1::JobFilter) -> Result<Listing<v1::ListStepsResponse>, Status> {
        self.by_job(wire, step::render_all, |steps| v1::ListStepsResponse { steps })
    }

    /// Lists what jobs come to, a page at a time.
    fn by_job<T: Send + 'static, M: Send + 'static>(
        &self,
        wire: &v1::JobFilter,
        render: impl Fn(&Cluster, &Job) -> Vec<T> + Send + Sync + 'static,
        message: impl Fn(Vec<T>) -> M + Send + Sync + 'static,
    ) -> Result<Listing<M>, Status> {
        let filter = {
            let cluster = self.replica.read();
            known(&cluster, wire)?;
            Filter::read(&cluster, wire)?
        };
        let (pages, outgoing) = mpsc::channel(AHEAD);
        let replica = self.replica.clone();
        tokio::spawn(async move {
            let mut next = Some(JobId(0));
            while let Some(first) = next {
                let page = page(&replica.read(), &filter, first, &render);
                next = page.next;
                if !page.items.is_empty() && pages.send(Ok(message(page.items))).await.is_err() {
                    return;
                }
            }
        });
        Ok(Box::pin(ReceiverStream::new(outgoing)))
    }

    pub(super) fn nodes(
        &self,
        request: v1::ListNodesRequest,
    ) -> Result<Listing<v1::ListNodesResponse>, Status> {
        let v1::ListNodesRequest { nodes, partitions, states } = request;
        let wanted: Vec<NodeId> = {
            let cluster = self.replica.read();
            for name in &partitions {
                partition_named(&cluster, name)?;
            }
            match nodes.as_str() {
                "" => cluster.nodes().iter().map(|node| node.id).collect(),
                list => {
                    let named = filter::expand(&cluster, list)?;
                    let known = named.iter().filter_map(|name| cluster.node_named(&name));
                    let known: BTreeSet<NodeId> = known.map(|node| node.id).collect();
                    known.into_iter().collect()
                }
            }
        };
        let (pages, outgoing) = mpsc::channel(AHEAD);
        let desk = self.clone();
        let meant = move |node: &v1::Node| {
            (partitions.is_empty() || node.partitions.iter().any(|name| partitions.contains(name)))
                && (states.is_empty() || states.iter().any(|state| state.eq_ignore_ascii_case(&node.state)))
        };
        tokio::spawn(async move {
            for ids in wanted.chunks(PAGE) {
                let mut nodes = desk.render_nodes(ids);
                nodes.retain(&meant);
                let message = v1::ListNodesResponse { nodes };
                if !message.nodes.is_empty() && pages.send(Ok(message)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Box::pin(ReceiverStream::new(outgoing)))
    }

    fn render_nodes(&self, ids: &[NodeId]) -> Vec<v1::Node> {
        let cluster = self.replica.read();
        let outlooks = self.overlay.read();
        let now = clock::now();
        let configured = ids.iter().filter_map(|id| cluster.node(*id)).filter(|node| node.configured);
        let render = |found: &spur_core::cluster::Node| {
            let planned = outlooks.plans(found.id);
            node::render(&cluster, found, self.agents.pulse(found.id), planned, now)
        };
        configured.map(render).collect()
    }

    pub(super) fn partitions(&self, names: &[String]) -> Result<v1::ListPartitionsResponse, Status> {
        let cluster = self.replica.read();
        let found = match names {
            [] => cluster.partitions().iter().collect(),
            names => {
                names.iter().map(|name| partition_named(&cluster, name)).collect::<Result<Vec<_>, _>>()?
            }
        };
        let partitions = found.into_iter().map(|found| partition::render(&cluster, found)).collect();
        Ok(v1::ListPartitionsResponse { partitions })
    }

    pub(super) fn reservations(&self, names: &[String]) -> Result<v1::ListReservationsResponse, Status> {
        let cluster = self.replica.read();
        let found = match names {
            [] => cluster.reservations().collect(),
            names => {
                let named = |name: &String| {
                    let gone = || {
                        reject::status(&Reject::InvalidReservation(format!("there is no reservation {name}")))
                    };
                    cluster.reservation(name).ok_or_else(gone)
                };
                names.iter().map(named).collect::<Result<Vec<_>, _>>()?
            }
        };
        let now = clock::now();
        let reservations = found.into_iter().map(|found| reservation::render(&cluster, found, now)).collect();
        Ok(v1::ListReservationsResponse { reservations })
    }

    pub(super) fn topology(
        &self,
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
        let domains: Vec<_> = domains.map(|facts| topology::domain(&cluster, &found.fabric, facts)).collect();
        let head = topology::head(found);
        let message = move |domains| {
            let topology = Some(v1::Topology { domains, ..head.clone() });
            v1::ListTopologyResponse { topology }
        };
        match domains.is_empty() {
            // That there is a topology is said even if none of its domains was meant.
            true => Ok(Box::pin(tokio_stream::once(Ok(message(domains))))),
            false => Ok(chunked(domains, message)),
        }
    }
}

/// Refuses a list of numbers none of which is a job's.
fn known(cluster: &Cluster, wire: &v1::JobFilter) -> Result<(), Status> {
    let is = |id: &String| !filter::meant(cluster, id).is_empty();
    match wire.job_ids.is_empty() || wire.job_ids.iter().any(is) {
        true => Ok(()),
        false => Err(reject::status(&Reject::InvalidJobId)),
    }
}

fn page<T>(
    cluster: &Cluster,
    filter: &Filter,
    first: JobId,
    render: &impl Fn(&Cluster, &Job) -> Vec<T>,
) -> Page<T> {
    if let Some(ids) = &filter.ids {
        let mut rest = ids.range(first..);
        let named: Vec<JobId> = rest.by_ref().take(PAGE).copied().collect();
        let found = named.iter().filter_map(|id| cluster.job(*id)).filter(|job| filter.admits(job));
        return Page {
            items: found.flat_map(|job| render(cluster, job)).collect(),
            next: rest.next().copied(),
        };
    }
    let mut rest = cluster.jobs().range(first);
    let looked_at = rest.by_ref().take(PAGE).filter(|job| filter.admits(job));
    let items = looked_at.flat_map(|job| render(cluster, job)).collect();
    Page { items, next: rest.next().map(|job| job.id) }
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

/// A list in messages of some hundred items each; none for none.
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
