//! The pages of Slurm 25.11, with its names and meanings, so that dashboards made for Slurm work.
//!
//! All metrics are gauges. Names of states that Spur lacks, such as jobs of a federation, are 0, because
//! dashboards add them up. The size of Slurm's backfill table (`slurm_bf_table_size`) is left out.

use std::fmt::Result;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use spur_core::model::reason::Reason;
use spur_proto::v1::{Cycles, GetStatisticsResponse};

use super::Sources;
use super::nodes::{self, Base, Mark, Row};
use super::page::Page;
use crate::clock;
use crate::tally::{ByName, Counts, State, Tally};

/// States of jobs in Slurm's metrics that Spur's jobs never have.
const NO_STATES: [&str; 7] =
    ["bootfail", "expediting", "fed_requeued", "resizing", "revoked", "signaling", "stageout"];
/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// Returns the counts of jobs at the moment of the scrape.
fn tally(sources: &Sources) -> Tally {
    let cluster = sources.replica.read();
    let mut tally = sources.replica.tally();
    tally.advance(&cluster, clock::now(&cluster));
    tally.without_jobs()
}

/// The page `/metrics/jobs`.
#[derive(Debug)]
pub(super) struct JobsPage(pub(super) Sources);

impl Collector for JobsPage {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result {
        let tally = tally(&self.0);
        jobs(&mut Page(encoder), "slurm_jobs", Held::All, &[([("", ""); 0], *tally.total())])
    }
}

/// The page `/metrics/jobs-users-accts`.
#[derive(Debug)]
pub(super) struct UsersPage(pub(super) Sources);

impl Collector for UsersPage {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result {
        let (mut page, tally) = (Page(encoder), tally(&self.0));
        jobs(&mut page, "slurm_user_jobs", Held::All, &labelled("username", tally.users()))?;
        jobs(&mut page, "slurm_account_jobs", Held::All, &labelled("account", tally.accounts()))
    }
}

fn labelled<'a>(label: &'a str, names: &'a ByName) -> Vec<([(&'a str, &'a str); 1], Counts)> {
    names.iter().map(|(name, counts)| ([(label, &**name)], *counts)).collect()
}

/// Sums to report; Slurm sums the nodes of jobs too, except for partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    All,
    WithoutNodes,
}

/// Writes jobs by state and their allocated resources, for each label set.
fn jobs<L: Labels>(page: &mut Page<'_>, name: &str, held: Held, counts: &[(L, Counts)]) -> Result {
    let each =
        |count: fn(&Counts) -> u64| counts.iter().map(move |(labels, counts)| (*labels, count(counts)));
    page.gauges(name, "Jobs that are not over", each(|counts| counts.jobs))?;
    for (state, word) in State::ALL {
        let values = counts.iter().map(|(labels, counts)| (*labels, counts.of(state)));
        page.gauges(&format!("{name}_{word}"), &format!("Jobs in the state {word}"), values)?;
    }
    for word in NO_STATES {
        page.gauges(&format!("{name}_{word}"), &format!("Jobs in the state {word}"), each(|_| 0))?;
    }
    page.gauges(
        &format!("{name}_cpus_alloc"),
        "CPUs of running and suspended jobs",
        each(|counts| counts.cpus),
    )?;
    page.gauges(
        &format!("{name}_gpus_alloc"),
        "GPUs of running and suspended jobs",
        each(|counts| counts.gpus),
    )?;
    page.gauges(
        &format!("{name}_memory_alloc"),
        "Memory of running and suspended jobs, MiB",
        each(|counts| counts.memory_mb),
    )?;
    match held {
        Held::All => page.gauges(
            &format!("{name}_nodes_alloc"),
            "Nodes of running and suspended jobs",
            each(|counts| counts.nodes),
        ),
        Held::WithoutNodes => Ok(()),
    }
}

/// A label set that is as cheap to copy as a number.
trait Labels: prometheus_client::encoding::EncodeLabelSet + Copy {}

impl<L: prometheus_client::encoding::EncodeLabelSet + Copy> Labels for L {}

/// The set of names for states of nodes: Slurm's metrics of the cluster and of partitions differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Words {
    Cluster,
    Partition,
}

/// A test whether a node is in a state.
type IsIn = fn(&Row) -> bool;
/// A figure of a node.
type Number = fn(&Row) -> u64;

/// Returns the states of nodes in Slurm's metrics, each with its test.
fn node_states(words: Words) -> Vec<(&'static str, IsIn)> {
    let (completing, silent, reboot) = match words {
        Words::Cluster => ("completing", "noresp", "reboot_req"),
        Words::Partition => ("cg", "no_resp", "reboot_requested"),
    };
    let mut states: Vec<(&'static str, IsIn)> = vec![
        ("alloc", |row| row.base == Base::Allocated),
        ("blocked", |_| false),
        ("cloud", |_| false),
        (completing, |row| row.has(Mark::Completing)),
        ("down", |row| row.base == Base::Down),
        ("drain", |row| row.has(Mark::Drained)),
        ("drained", |row| row.has(Mark::Drained)),
        ("draining", |row| row.has(Mark::Draining)),
        ("dyn_future", |_| false),
        ("dyn_normal", |_| false),
        ("external", |_| false),
        ("fail", |_| false),
        ("future", |_| false),
        ("idle", |row| row.base == Base::Idle),
        ("invalid_reg", |_| false),
        ("maint", |row| row.has(Mark::Maintenance)),
        ("mixed", |row| row.base == Base::Mixed),
        (silent, |row| row.has(Mark::NotResponding)),
        ("planned", |row| row.has(Mark::Planned)),
        ("power_down", |row| row.has(Mark::PowerDown)),
        ("power_up", |_| false),
        ("powered_down", |row| row.has(Mark::PoweredDown)),
        ("powering_up", |row| row.has(Mark::PoweringUp)),
        ("reboot_issued", |row| row.has(Mark::RebootIssued)),
        (reboot, |row| row.has(Mark::RebootRequested)),
        ("resv", |row| row.has(Mark::Reserved)),
        ("unknown", |row| row.base == Base::Unknown),
    ];
    if words == Words::Partition {
        states.push(("powering_down", |row| row.has(Mark::PoweringDown)));
    }
    states
}

/// The page `/metrics/nodes`.
#[derive(Debug)]
pub(super) struct NodesPage(pub(super) Sources);

impl Collector for NodesPage {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result {
        let (mut page, rows) = (Page(encoder), nodes::rows(&self.0));
        page.gauge("slurm_nodes", "Nodes", rows.len() as u64)?;
        for (word, is_in) in node_states(Words::Cluster) {
            let count = rows.iter().filter(|row| is_in(row)).count() as u64;
            page.gauge(&format!("slurm_nodes_{word}"), &format!("Nodes in the state {word}"), count)?;
        }
        let figures: [(&str, &str, Number); 10] = [
            ("cpus", "CPUs of a node", |row| row.cpus.total + row.specialized_cpus),
            ("cpus_alloc", "CPUs of a node that jobs have", |row| row.cpus.used),
            ("cpus_effective", "CPUs of a node that jobs can have", |row| row.cpus.total),
            ("cpus_idle", "CPUs of a node that no job has", |row| row.cpus.total - row.cpus.used),
            ("gpus", "GPUs of a node", |row| row.gpus.total),
            ("gpus_alloc", "GPUs of a node that jobs have", |row| row.gpus.used),
            ("memory_bytes", "Memory of a node", |row| {
                (row.memory_mb.total + row.specialized_memory_mb) * MIB
            }),
            ("memory_alloc_bytes", "Memory of a node that jobs have", |row| row.memory_mb.used * MIB),
            ("memory_effective_bytes", "Memory of a node that jobs can have", |row| {
                row.memory_mb.total * MIB
            }),
            ("memory_free_bytes", "Memory of a node that its processes could get", |row| {
                row.free_memory_mb.unwrap_or(0) * MIB
            }),
        ];
        for (word, help, figure) in figures {
            let values = rows.iter().map(|row| ([("node", &*row.name)], figure(row)));
            page.gauges(&format!("slurm_node_{word}"), help, values)?;
        }
        Ok(())
    }
}

/// The page `/metrics/partitions`.
#[derive(Debug)]
pub(super) struct PartitionsPage(pub(super) Sources);

/// One partition with its nodes and jobs.
struct Part<'a> {
    name: std::sync::Arc<str>,
    rows: Vec<&'a Row>,
    jobs: Counts,
}

impl Part<'_> {
    fn labels(&self) -> [(&'static str, &str); 1] {
        [("partition", &self.name)]
    }

    fn sum(&self, figure: Number) -> u64 {
        self.rows.iter().map(|row| figure(row)).sum()
    }
}

impl Collector for PartitionsPage {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result {
        let (mut page, sources) = (Page(encoder), &self.0);
        let (rows, tally) = (nodes::rows(sources), tally(sources));
        let members: Vec<_> = {
            let cluster = sources.replica.read();
            let partitions = cluster.partitions().iter();
            partitions.map(|partition| (partition.name().clone(), partition.members.clone())).collect()
        };
        let part = |(name, members): &(std::sync::Arc<str>, fixedbitset::FixedBitSet)| Part {
            jobs: tally.partition(name),
            rows: rows.iter().filter(|row| members.contains(row.id.index())).collect(),
            name: name.clone(),
        };
        let parts: Vec<Part<'_>> = members.iter().map(part).collect();
        page.gauge("slurm_partitions", "Partitions", parts.len() as u64)?;
        partition_jobs(&mut page, &parts, &tally)?;
        partition_nodes(&mut page, &parts)
    }
}

fn partition_jobs(page: &mut Page<'_>, parts: &[Part<'_>], tally: &Tally) -> Result {
    let counts: Vec<_> = parts.iter().map(|part| (part.labels(), part.jobs)).collect();
    jobs(page, "slurm_partition_jobs", Held::WithoutNodes, &counts)?;
    let waiting = |part: &Part<'_>| tally.waiting_for(&part.name, Reason::PartitionNodeLimit);
    page.gauges(
        "slurm_partition_jobs_wait_part_node_limit",
        "Waiting jobs that ask for more nodes than the partition allows",
        parts.iter().map(|part| (part.labels(), waiting(part))),
    )?;
    for (suffix, which) in [("", 0), ("_nohold", 1)] {
        let wish = |part: &Part<'_>| tally.largest_wishes(&part.name)[which];
        page.gauges(
            &format!("slurm_partition_jobs_max_job_nodes{suffix}"),
            "The largest maximum of nodes that a waiting job asks for",
            parts.iter().map(|part| (part.labels(), wish(part).most)),
        )?;
        page.gauges(
            &format!("slurm_partition_jobs_min_job_nodes{suffix}"),
            "The largest minimum of nodes that a waiting job asks for",
            parts.iter().map(|part| (part.labels(), wish(part).least)),
        )?;
    }
    Ok(())
}

fn partition_nodes(page: &mut Page<'_>, parts: &[Part<'_>]) -> Result {
    page.gauges(
        "slurm_partition_nodes",
        "Nodes of a partition",
        parts.iter().map(|part| (part.labels(), part.rows.len() as u64)),
    )?;
    for (word, is_in) in node_states(Words::Partition) {
        let values = parts
            .iter()
            .map(|part| (part.labels(), part.rows.iter().filter(|row| is_in(row)).count() as u64));
        page.gauges(&format!("slurm_partition_nodes_{word}"), &format!("Nodes in the state {word}"), values)?;
    }
    let sums: [(&str, &str, Number); 9] = [
        ("cpus", "CPUs of a partition", |row| row.cpus.total + row.specialized_cpus),
        ("gpus", "GPUs of a partition", |row| row.gpus.total),
        ("nodes_cpus_alloc", "CPUs that jobs have", |row| row.cpus.used),
        ("nodes_cpus_efctv", "CPUs that jobs can have", |row| row.cpus.total),
        ("nodes_cpus_idle", "CPUs that no job has", |row| row.cpus.total - row.cpus.used),
        ("nodes_mem_alloc", "Memory that jobs have, MiB", |row| row.memory_mb.used),
        ("nodes_mem_avail", "Memory that jobs can have and no job has, MiB", |row| {
            row.memory_mb.total.saturating_sub(row.memory_mb.used)
        }),
        ("nodes_mem_free", "Memory that processes could get, MiB", |row| row.free_memory_mb.unwrap_or(0)),
        ("nodes_mem_tot", "Memory, MiB", |row| row.memory_mb.total + row.specialized_memory_mb),
    ];
    for (word, help, figure) in sums {
        let values = parts.iter().map(|part| (part.labels(), part.sum(figure)));
        page.gauges(&format!("slurm_partition_{word}"), help, values)?;
    }
    Ok(())
}

/// The page `/metrics/scheduler`, with the figures of `sdiag`.
#[derive(Debug)]
pub(super) struct SchedulerPage(pub(super) Sources);

impl Collector for SchedulerPage {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result {
        let figures = self.0.figures(false);
        let mut page = Page(encoder);
        for (name, help, value) in scheduler(&figures).into_iter().chain(backfill(&figures)) {
            page.gauge(&format!("slurm_{name}"), help, value)?;
        }
        Ok(())
    }
}

type Figure = (&'static str, &'static str, u64);

fn scheduler(figures: &GetStatisticsResponse) -> Vec<Figure> {
    let main = figures.main.unwrap_or_default();
    let mean = |sum: u64| sum.checked_div(main.count).unwrap_or(0);
    let seconds = |at: i64| u64::try_from(at).unwrap_or(0);
    vec![
        ("agent_cnt", "Nodes for which orders wait", figures.agent_count),
        ("agent_queue_size", "Orders that wait for nodes", figures.agent_queue_size),
        ("agent_thread_cnt", "Threads that only send orders", 0),
        ("server_thread_cnt", "Threads of the controller", figures.threads.into()),
        ("slurmdbd_queue_size", "Entries that accounting has not written", figures.accounting_queue_size),
        ("last_proc_req_start", "When the figures began, Unix time", seconds(figures.since)),
        ("sched_stats_timestamp", "When the figures were read, Unix time", seconds(figures.time)),
        ("sdiag_latency", "Microseconds of 1000 looks at the clock", figures.clock),
        ("sdiag_job_states_ts", "When jobs were counted by state, Unix time", seconds(figures.time)),
        ("sdiag_jobs_submitted", "Jobs submitted since the figures began", figures.jobs_submitted),
        ("sdiag_jobs_started", "Jobs started since the figures began", figures.jobs_started),
        ("sdiag_jobs_completed", "Jobs completed since the figures began", figures.jobs_completed),
        ("sdiag_jobs_canceled", "Jobs cancelled since the figures began", figures.jobs_cancelled),
        ("sdiag_jobs_failed", "Jobs that failed since the figures began", figures.jobs_failed),
        ("sdiag_jobs_pending", "Waiting jobs", figures.jobs_pending.into()),
        ("sdiag_jobs_running", "Running jobs", figures.jobs_running.into()),
        ("schedule_cycle_cnt", "Quick passes", main.count),
        ("schedule_cycle_last", "Microseconds of the last quick pass", main.last),
        ("schedule_cycle_max", "Microseconds of the longest quick pass", main.max),
        ("schedule_cycle_tot", "Microseconds of all quick passes", main.sum),
        ("schedule_cycle_depth", "Jobs that quick passes looked at", main.depth_sum),
        ("schedule_queue_len", "Waiting jobs at the last quick pass", main.last_queue),
        ("sched_mean_cycle", "Mean microseconds of a quick pass", mean(main.sum)),
        ("sched_mean_depth_cycle", "Mean of jobs that a quick pass looks at", mean(main.depth_sum)),
        ("sched_exit_end", "Quick passes that ended at the end of their jobs", whole(&main)),
        ("sched_exit_max_depth", "Quick passes that ended at a depth", main.truncated),
        ("sched_exit_max_job_start", "Quick passes that ended at a number of starts", 0),
        ("sched_exit_lic", "Quick passes that ended for want of licenses", 0),
        ("sched_exit_rpc_cnt", "Quick passes that ended for requests", 0),
        ("sched_exit_timeout", "Quick passes that ended at a time", 0),
    ]
}

fn backfill(figures: &GetStatisticsResponse) -> Vec<Figure> {
    let cycles = figures.backfill.unwrap_or_default();
    let mean = |sum: u64| sum.checked_div(cycles.count).unwrap_or(0);
    let last = cycles.last_when.and_then(|at| u64::try_from(at).ok()).unwrap_or(0);
    vec![
        (
            "backfilled_jobs",
            "Jobs that deep passes started since the controller began",
            figures.backfilled_ever,
        ),
        ("last_backfilled_jobs", "Jobs that deep passes started since the figures began", figures.backfilled),
        ("backfilled_het_jobs", "Components of het jobs that deep passes started", figures.backfilled_het),
        ("bf_active", "Whether a deep pass is under way", figures.backfill_active.into()),
        ("bf_cycle_cnt", "Deep passes", cycles.count),
        ("bf_cycle_last", "Microseconds of the last deep pass", cycles.last),
        ("bf_cycle_max", "Microseconds of the longest deep pass", cycles.max),
        ("bf_cycle_tot", "Microseconds of all deep passes", cycles.sum),
        ("bf_mean_cycle", "Mean microseconds of a deep pass", mean(cycles.sum)),
        ("bf_last_depth", "Jobs that the last deep pass looked at", cycles.last_depth),
        ("bf_last_depth_try", "Jobs that the last deep pass tried to place", cycles.last_depth),
        ("bf_depth_tot", "Jobs that deep passes looked at", cycles.depth_sum),
        ("bf_depth_try_tot", "Jobs that deep passes tried to place", cycles.depth_sum),
        ("bf_depth_mean", "Mean of jobs that a deep pass looks at", mean(cycles.depth_sum)),
        ("bf_try_depth_mean", "Mean of jobs that a deep pass tries to place", mean(cycles.depth_sum)),
        ("bf_queue_len", "Waiting jobs at the last deep pass", cycles.last_queue),
        ("bf_queue_len_tot", "Waiting jobs at all deep passes", cycles.queue_sum),
        ("bf_queue_len_mean", "Mean of waiting jobs at a deep pass", mean(cycles.queue_sum)),
        ("bf_when_last_cycle", "When the last deep pass ended, Unix time", last),
        ("bf_exit_end", "Deep passes that ended at the end of the queue", whole(&cycles)),
        ("bf_exit_max_job_test", "Deep passes that ended at a depth", cycles.truncated),
        ("bf_exit_max_job_start", "Deep passes that ended at a number of starts", 0),
        (
            "bf_exit_state_changed",
            "Deep passes that were given up because the cluster changed",
            cycles.abandoned,
        ),
        ("bf_exit_table_limit", "Deep passes that ended at a size of the table", 0),
        ("bf_exit_timeout", "Deep passes that ended at a time", 0),
    ]
}

/// Returns the number of passes that considered all their jobs.
fn whole(cycles: &Cycles) -> u64 {
    cycles.count.saturating_sub(cycles.truncated)
}
