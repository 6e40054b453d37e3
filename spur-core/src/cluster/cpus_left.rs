//! The CPUs of a node that the jobs of one partition may still take where the partition limits them
//! (`max_cpus_per_node`, `max_cpus_per_socket`).

use super::{Cluster, Node};
use crate::id::JobId;
use crate::model::config::PartitionConfig;
use crate::model::idset::IdSet;
use crate::model::job::Job;
use crate::model::phase::Phase;

/// The numbers of CPUs that one partition's jobs may still take of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpusLeft {
    on_node: u32,
    /// The numbers of each socket, by number; `None` without a limit on sockets.
    on_sockets: Option<Vec<u32>>,
    cpus_per_socket: u32,
}

impl CpusLeft {
    /// The CPUs among `free` from which a job may choose: of each socket the lowest, as many as are left.
    #[must_use]
    pub fn among(&self, free: &IdSet) -> IdSet {
        let Some(mut left) = self.on_sockets.clone() else { return free.clone() };
        let may = |cpu: &u32| {
            let left = left.get_mut((cpu / self.cpus_per_socket) as usize).filter(|left| **left > 0);
            left.map(|left| *left -= 1).is_some()
        };
        free.iter().filter(may).collect()
    }

    /// True if jobs that start may take these CPUs.
    #[must_use]
    pub fn admits(&self, cpus: &IdSet) -> bool {
        cpus.len() <= self.on_node && self.among(cpus).len() == cpus.len()
    }
}

impl Cluster {
    /// The CPUs of a node that jobs which start in a partition may take; `None` if the partition has no
    /// limit. Jobs of `starting` do not count, although CPUs may be reserved for them.
    #[must_use]
    pub fn cpus_left(
        &self,
        node: &Node,
        partition: &PartitionConfig,
        starting: &[JobId],
    ) -> Option<CpusLeft> {
        let (most, on_socket) = (partition.max_cpus_per_node, partition.max_cpus_per_socket);
        if most.is_none() && on_socket.is_none() {
            return None;
        }
        let cpus_per_socket = node.cpus_per_socket();
        let mut left = CpusLeft {
            on_node: most.unwrap_or(u32::MAX),
            on_sockets: on_socket.map(|most| vec![most; node.all_cpus().div_ceil(cpus_per_socket) as usize]),
            cpus_per_socket,
        };
        for job in node.jobs.iter().filter_map(|id| self.job(*id)) {
            let Some(cpus) = cpus_held(job, node, partition) else { continue };
            left.on_node = left.on_node.saturating_sub(cpus.len());
            for cpu in cpus.iter() {
                let sockets = left.on_sockets.iter_mut();
                let socket = sockets.flat_map(|left| left.get_mut((cpu / cpus_per_socket) as usize)).next();
                socket.into_iter().for_each(|left| *left = left.saturating_sub(1));
            }
        }
        let nominees = node.nominees.iter().filter(|id| !starting.contains(id));
        for nomination in nominees.filter_map(|id| self.job(*id)).filter_map(Job::nomination) {
            if nomination.partition == partition.name {
                let kept = nomination.on(node.id).map_or(0, |part| part.cpus);
                left.on_node = left.on_node.saturating_sub(kept);
            }
        }
        Some(left)
    }
}

/// The CPUs of a node that count for a job in a partition: those that it has, and those that a suspended job
/// gets back as soon as they are free. `None` for a job of another partition.
fn cpus_held<'a>(job: &'a Job, node: &Node, partition: &PartitionConfig) -> Option<&'a IdSet> {
    let alloc = job.phase.alloc().filter(|alloc| alloc.partition == partition.name)?;
    match &job.phase {
        Phase::Suspended(suspended) if suspended.wanted.is_none() => Some(suspended.back_on(node.id)),
        Phase::Completing(completing) if completing.suspended => None,
        _ => alloc.on(node.id).map(|part| &part.cpus),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_choose_among_the_lowest_free_cpus_of_each_socket() {
        let left = CpusLeft { on_node: 4, on_sockets: Some(vec![1, 3]), cpus_per_socket: 4 };
        for (free, may, admitted) in [
            ("0-7", "0,4-6", false),
            ("2,5-6", "2,5-6", true),
            ("2-3,5-6", "2,5-6", false),
            ("0,4-6", "0,4-6", true),
            ("4-7", "4-6", false),
            ("9", "", false),
        ] {
            let free: IdSet = free.parse().expect("it is a list");
            assert_eq!((&*left.among(&free).to_string(), left.admits(&free)), (may, admitted), "{free}");
        }
        let left = CpusLeft { on_node: 2, on_sockets: None, cpus_per_socket: 4 };
        assert!(left.admits(&"0,7".parse().expect("it is a list")) && !left.admits(&IdSet::first(3)));
    }
}
