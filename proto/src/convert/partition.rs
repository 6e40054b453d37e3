//! Partitions, for `sinfo` and `scontrol show partition`.

use spur_core::cluster::{Cluster, Partition};
use spur_core::model::config::{Oversubscribe, PartitionState, PreemptBy, PreemptMode};
use spur_core::text::hostlist::HostList;
use spur_core::text::tres::{Tres, TresKind};

use super::count;
use crate::v1;

/// Encodes a partition.
pub fn render(cluster: &Cluster, partition: &Partition) -> v1::Partition {
    let config = &partition.config;
    let members = || partition.nodes.iter().filter_map(|id| cluster.node(*id));
    // As in Slurm: all CPUs here, and in the resources those that jobs can have.
    let cpus: u64 = members().map(|node| u64::from(node.all_cpus())).sum();
    let preempt = &cluster.policy().preempt;
    let mode = match preempt.by {
        PreemptBy::None => PreemptMode::Off,
        PreemptBy::Partition | PreemptBy::Qos => config.preempt_mode.unwrap_or(preempt.mode),
    };
    let topology = partition.topology.and_then(|at| cluster.topologies().get(at));
    v1::Partition {
        name: config.name.to_string(),
        state: state_name(config.state).to_owned(),
        is_default: config.default,
        nodes: HostList::from_names(members().map(|node| node.name())).to_string(),
        total_nodes: count(partition.nodes.len()),
        total_cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        max_time: config.max_time.seconds(),
        default_time: config.default_time.and_then(|limit| limit.seconds()),
        min_nodes: config.min_nodes,
        max_nodes: config.max_nodes,
        priority_tier: config.priority_tier,
        priority_job_factor: config.priority_job_factor,
        oversubscribe: match config.oversubscribe {
            Oversubscribe::No => "NO",
            Oversubscribe::Exclusive => "EXCLUSIVE",
        }
        .to_owned(),
        topology: topology.map(|topology| topology.name.to_string()).unwrap_or_default(),
        placement: config.placement.to_string(),
        allow_groups: config.allow_groups.join(","),
        allow_accounts: config.allow_accounts.join(","),
        allow_qos: config.allow_qos.join(","),
        deny_qos: config.deny_qos.join(","),
        qos: config.qos.as_deref().unwrap_or_default().to_owned(),
        preempt_mode: mode_name(mode).to_owned(),
        grace_time: config.grace_time.unwrap_or(cluster.policy().preempt.grace_time).0,
        default_memory_per_cpu_mb: config.def_mem_per_cpu,
        max_memory_per_cpu_mb: config.max_mem_per_cpu,
        deny_accounts: config.deny_accounts.join(","),
        alloc_nodes: HostList::from_names(config.alloc_nodes.iter()).to_string(),
        alternate: config.alternate.as_deref().unwrap_or_default().to_owned(),
        disable_root_jobs: config.disable_root_jobs,
        hidden: config.hidden,
        req_resv: config.req_resv,
        root_only: config.root_only,
        default_memory_per_node_mb: config.def_mem_per_node,
        max_memory_per_node_mb: config.max_mem_per_node,
        default_cpus_per_gpu: config.def_cpu_per_gpu,
        default_memory_per_gpu_mb: config.def_mem_per_gpu,
        max_cpus_per_node: config.max_cpus_per_node,
        max_cpus_per_socket: config.max_cpus_per_socket,
        billing_weights: config.tres_billing_weights.to_string(),
        tres: tres(cluster, partition).to_string(),
    }
}

fn tres(cluster: &Cluster, partition: &Partition) -> Tres {
    let mut tres = Tres::default();
    let (mut cpus, mut memory) = (0, 0);
    for node in partition.nodes.iter().filter_map(|id| cluster.node(*id)) {
        cpus += u64::from(node.shape.cpus);
        memory += node.shape.memory_mb + node.specialized.memory_mb;
        for gres in node.shape.listed() {
            let kind = TresKind::Gres { name: gres.name.to_string(), kind: None };
            let sum = tres.get(&kind) + u64::from(gres.count);
            tres.set(kind, sum);
        }
    }
    tres.set(TresKind::Cpu, cpus);
    tres.set(TresKind::Mem, memory);
    tres.set(TresKind::Node, u64::from(count(partition.nodes.len())));
    tres.set(TresKind::Billing, cpus);
    tres
}

const STATES: [(&str, PartitionState); 4] = [
    ("UP", PartitionState::Up),
    ("DOWN", PartitionState::Down),
    ("DRAIN", PartitionState::Drain),
    ("INACTIVE", PartitionState::Inactive),
];

/// Returns Slurm's word for a partition's state.
pub fn state_name(state: PartitionState) -> &'static str {
    match state {
        PartitionState::Up => "UP",
        PartitionState::Down => "DOWN",
        PartitionState::Drain => "DRAIN",
        PartitionState::Inactive => "INACTIVE",
    }
}

/// Returns the partition state with Slurm's word `name`, in any case; `None` for any other word.
pub fn state_named(name: &str) -> Option<PartitionState> {
    STATES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, state)| *state)
}

/// Returns Slurm's word for a preemption mode.
pub fn mode_name(mode: PreemptMode) -> &'static str {
    match mode {
        PreemptMode::Off => "OFF",
        PreemptMode::Cancel => "CANCEL",
        PreemptMode::Requeue => "REQUEUE",
        PreemptMode::Suspend => "SUSPEND",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_as_they_are_written() {
        for (name, state) in STATES {
            assert_eq!((state_named(&name.to_lowercase()), state_name(state)), (Some(state), name));
        }
        assert_eq!(state_named("OPEN"), None);
    }
}
