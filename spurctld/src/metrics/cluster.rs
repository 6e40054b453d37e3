//! Metrics of the cluster: jobs, the queue, nodes, CPUs, GPUs and memory, connections.

use std::collections::BTreeMap;
use std::fmt::Result;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use spur_core::model::config::Private;

use super::Sources;
use super::fabric::{self, Extent};
use super::nodes::{Amount, Shares};
use super::page::Page;
use crate::clock;
use crate::tally::State;

/// The part of `/metrics` that is read from the replica at each scrape.
#[derive(Debug)]
pub(super) struct ClusterPage(pub(super) Sources);

impl Collector for ClusterPage {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result {
        let (mut page, sources) = (Page(encoder), &self.0);
        let nodes = Shares::read(sources);
        self.controller(&mut page)?;
        self.jobs(&mut page)?;
        totals(&mut page, &nodes)?;
        let private = sources.replica.read().policy().jobs.private_data.contains(&Private::Nodes);
        fabric::write(&mut page, sources, &nodes, if private { Extent::Layers } else { Extent::Few })
    }
}

impl ClusterPage {
    fn controller(&self, page: &mut Page<'_>) -> Result {
        let Sources { replica, agents, inbox, watchers, holders, epoch, .. } = &self.0;
        page.gauge("spur_epoch", "Reign of this controller", *epoch)?;
        page.gauge("spur_journal_seq", "Last entry of the journal that is durable", replica.read().seq())?;
        page.gauge("spur_inbox_requests", "Requests that wait for the owner", inbox.waiting() as u64)?;
        let nodes = agents.figures();
        let streams =
            [("agent", nodes.connected), ("watch", watchers.count() as u64), ("hold", holders.held() as u64)];
        let streams = streams.map(|(kind, count)| ([("kind", kind)], count));
        page.gauges(
            "spur_streams",
            "Streams of nodes (agent), and jobs that clients watch and hold",
            streams,
        )?;
        page.gauge("spur_agent_orders", "Orders that wait for nodes", nodes.queued)?;
        let budgets: Vec<_> = {
            let cluster = replica.read();
            let topologies = &cluster.policy().topologies;
            topologies.iter().map(|topology| (topology.name.clone(), topology.search_budget)).collect()
        };
        let budgets = budgets.iter().map(|(name, budget)| ([("topology", &**name)], *budget));
        page.gauges("spur_search_budget_steps", "Steps that a search for a placement may take", budgets)
    }

    fn jobs(&self, page: &mut Page<'_>) -> Result {
        let tally = {
            let cluster = self.0.replica.read();
            let mut tally = self.0.replica.tally();
            tally.advance(&cluster, clock::now(&cluster));
            (*tally.total(), tally.queue().clone())
        };
        let (total, queue) = tally;
        let ended = total.of(State::Finished).saturating_sub(total.of(State::Completing));
        let by_state = [
            ("pending", total.of(State::Pending)),
            ("running", total.of(State::Running)),
            ("suspended", total.of(State::Suspended)),
            ("completing", total.of(State::Completing)),
            ("ended", ended),
        ];
        let by_state = by_state.map(|(state, jobs)| ([("state", state)], jobs));
        page.gauges("spur_jobs", "Jobs in memory by state, each task of an array by itself", by_state)?;
        let waiting = queue.iter().map(|(queue, count)| {
            let labels =
                [("partition", &*queue.partition), ("qos", &*queue.qos), ("reason", queue.reason.name())];
            (labels, *count)
        });
        page.gauges("spur_queue_jobs", "Waiting jobs by partition, QOS and reason", waiting)
    }
}

fn totals(page: &mut Page<'_>, nodes: &Shares) -> Result {
    let mut states: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut cpus, mut gpus, mut memory) = (Amount::default(), Amount::default(), Amount::default());
    for share in nodes.iter() {
        *states.entry(share.state).or_default() += 1;
        cpus += share.cpus;
        gpus += share.gpus;
        memory += share.memory_mb;
    }
    let states = states.iter().map(|(state, count)| ([("state", *state)], *count));
    page.gauges("spur_nodes", "Nodes by Slurm's state", states)?;
    page.gauges("spur_cpus", "CPUs of nodes by use", by_use(cpus, 1))?;
    page.gauges("spur_gpus", "GPUs of nodes by use", by_use(gpus, 1))?;
    page.gauges("spur_memory_bytes", "Memory of nodes by use", by_use(memory, 1 << 20))
}

fn by_use(amount: Amount, unit: u64) -> [([(&'static str, &'static str); 1], u64); 2] {
    let free = amount.total.saturating_sub(amount.used);
    [([("use", "allocated")], amount.used * unit), ([("use", "free")], free * unit)]
}

/// The page `/metrics/domains`.
#[derive(Debug)]
pub(super) struct DomainsPage(pub(super) Sources);

impl Collector for DomainsPage {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result {
        fabric::write(&mut Page(encoder), &self.0, &Shares::read(&self.0), Extent::All)
    }
}
