//! Checks the limits of partitions on CPUs of nodes at every start in a journal. The code is independent of
//! the controller: it adds up all jobs of the node each time.

use spur_core::cluster::{Cluster, Entry, Event};
use spur_core::model::alloc::Alloc;
use spur_core::model::phase::Phase;

/// Asserts that no start gives the jobs of a partition more CPUs of a node than it allows. Returns the number
/// of nodes of starts on which they then have as many as it allows.
pub(crate) fn hold<'a>(journal: impl IntoIterator<Item = &'a Entry>) -> u64 {
    let (mut cluster, mut tight) = (Cluster::default(), 0);
    for entry in journal {
        cluster.apply(entry);
        let (Event::JobStarted { job, .. } | Event::JobNodesReplaced { job, .. }) = &entry.event else {
            continue;
        };
        let alloc = cluster.job(*job).and_then(|job| job.phase.alloc()).expect("it has started");
        let Some(partition) = cluster.partition(&alloc.partition) else { continue };
        let Some(most) = partition.config.max_cpus_per_node else { continue };
        for part in &alloc.nodes {
            let node = cluster.node(part.node).expect("it is there");
            let jobs = node.jobs.iter().filter_map(|id| cluster.job(*id));
            let cpus =
                jobs.filter_map(|job| with_cpus(&job.phase)).filter(|of| of.partition == alloc.partition);
            let sum: u32 = cpus.filter_map(|of| of.on(part.node)).map(|part| part.cpus.len()).sum();
            assert!(
                sum <= most,
                "entry {}: {sum} CPUs of {} for {}",
                entry.seq,
                node.name(),
                alloc.partition
            );
            tight += u64::from(sum == most);
        }
    }
    tight
}

/// The allocation of a job that has its CPUs.
fn with_cpus(phase: &Phase) -> Option<&Alloc> {
    match phase {
        Phase::Running { alloc, .. } => Some(alloc),
        Phase::Completing(completing) if !completing.suspended => Some(&completing.alloc),
        Phase::Completing(_) | Phase::Pending(_) | Phase::Suspended(_) | Phase::Ended(_) => None,
    }
}
