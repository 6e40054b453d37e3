//! The real events, seen from outside: every launch of every process, and every reply to clients.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use spur_core::cluster::Event;
use spur_core::id::{Attempt, JobId, NodeId};
use spur_core::text::exit::ExitCode;

use crate::limits::{self, Judged};
use crate::partition_cpus;
use crate::world::World;

/// One process of a batch script.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) attempt: Attempt,
    pub(crate) node: NodeId,
    pub(crate) from: u64,
    /// The time at which the process was gone, in milliseconds; `None` while it lives.
    pub(crate) gone: Option<u64>,
    pub(crate) exit: Option<ExitCode>,
}

/// The truth with which the controller's records are compared.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) launches: Vec<Launch>,
    /// Jobs whose acceptance a client has received, by the number of its request.
    pub(crate) acknowledged: BTreeMap<u64, JobId>,
    pub(crate) cancelled: BTreeSet<JobId>,
    pub(crate) power_cuts: u64,
    pub(crate) reboots: u64,
    pub(crate) daemon_kills: u64,
    pub(crate) broken_links: u64,
}

impl Ledger {
    pub(crate) fn launch(&mut self, attempt: Attempt, node: NodeId, now: u64) {
        self.launches.push(Launch { attempt, node, from: now, gone: None, exit: None });
    }

    pub(crate) fn gone(&mut self, attempt: Attempt, now: u64, exit: Option<ExitCode>) {
        let alive =
            self.launches.iter_mut().find(|launch| launch.attempt == attempt && launch.gone.is_none());
        if let Some(launch) = alive {
            launch.gone = Some(now);
            launch.exit = exit;
        }
    }
}

/// Counts over many runs.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) runs: u64,
    pub(crate) jobs: u64,
    /// Number of jobs with several components.
    pub(crate) het: u64,
    pub(crate) launches: u64,
    pub(crate) entries: u64,
    pub(crate) preemptions: u64,
    pub(crate) nominations: u64,
    pub(crate) suspensions: u64,
    pub(crate) power_cuts: u64,
    /// Number of moves of nodes to where they report to be.
    pub(crate) reported: u64,
    /// Number of nodes of starts on which a partition then has all CPUs that its limit allows.
    pub(crate) partition_cpus: u64,
    /// The starts that were checked against limits of accounts and QOS.
    pub(crate) limited: Judged,
    reboots: u64,
    daemon_kills: u64,
    broken_links: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, world: &World) {
        let ledger = &world.ledger;
        self.runs += 1;
        self.jobs += ledger.acknowledged.len() as u64;
        self.launches += ledger.launches.len() as u64;
        self.entries += world.disk.journal.len() as u64;
        let count = |wanted: fn(&Event) -> bool| {
            world.disk.journal.iter().filter(|entry| wanted(&entry.event)).count() as u64
        };
        let Judged { starts, tight, kinds } = limits::hold(world.disk.journal.iter().map(|entry| &**entry));
        self.partition_cpus += partition_cpus::hold(world.disk.journal.iter().map(|entry| &**entry));
        self.limited.starts += starts;
        self.limited.tight += tight;
        self.limited.kinds.extend(kinds);
        self.het += count(|event| matches!(event, Event::HetJobSubmitted { .. }));
        self.preemptions += count(|event| matches!(event, Event::JobPreempted { .. }));
        self.nominations += count(|event| matches!(event, Event::JobNominated { .. }));
        self.suspensions += count(|event| matches!(event, Event::JobSuspended { .. }));
        self.power_cuts += ledger.power_cuts;
        if world.reports {
            self.reported += count(|event| matches!(event, Event::NodesMoved { .. }));
        }
        self.reboots += ledger.reboots;
        self.daemon_kills += ledger.daemon_kills;
        self.broken_links += ledger.broken_links;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} runs: {} jobs ({} of several components), {} launches, {} entries, {} preempted for {} nominations, {} suspended, {} starts within limits ({} used one up), {} nodes with all CPUs that a partition allows, {} moves to reported places, {} power cuts of the controller, {} reboots of nodes, \
             {} kills of node daemons, {} broken connections",
            self.runs,
            self.jobs,
            self.het,
            self.launches,
            self.entries,
            self.preemptions,
            self.nominations,
            self.suspensions,
            self.limited.starts,
            self.limited.tight,
            self.partition_cpus,
            self.reported,
            self.power_cuts,
            self.reboots,
            self.daemon_kills,
            self.broken_links
        )
    }
}
