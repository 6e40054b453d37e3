//! CPU and memory binding: the share of a step's CPUs that each of its tasks on this node is bound to.

use std::collections::VecDeque;

use spur_core::model::distribution::{UnknownDistribution, Within};
use spur_core::model::idset::IdSet;
use spur_core::text::cpubind::{Bits, CpuBind, CpuBinding, CpuDomain, in_turn};
use spur_core::text::membind::{MemBind, MemBinding};
use step_wire::order::MemoryBinding;

use super::NodeFacts;
use crate::node::inventory::cpu::CpuPlace;

/// A CPU of a step: the kernel's number, and the position in the node.
pub(crate) type StepCpu = (u32, CpuPlace);

impl NodeFacts {
    /// Translates CPUs of the allocation to the kernel's numbers; empty where tasks are not bound.
    pub(super) fn kernel_cpus(&self, cpus: impl Iterator<Item = u32>) -> Vec<u32> {
        let Some(known) = &self.cpus else { return Vec::new() };
        cpus.filter_map(|cpu| known.get(cpu as usize).copied()).collect()
    }

    /// Returns the cores of CPUs given by the kernel's numbers; cores are numbered socket by socket.
    pub(super) fn cores(&self, kernel: &[u32]) -> IdSet {
        let known = self.cpus.iter().flatten().zip(0_u32..);
        let own = known.filter(|(cpu, _)| kernel.contains(cpu)).map(|(_, own)| own);
        own.map(|own| own / self.threads_per_core.max(1)).collect()
    }

    /// Translates CPUs of the allocation to the kernel's numbers, each with its position in the node.
    pub(super) fn step_cpus(&self, cpus: &IdSet) -> Vec<StepCpu> {
        let Some(known) = &self.cpus else { return Vec::new() };
        let place = |cpu: usize| self.places.get(cpu).copied().unwrap_or_default();
        cpus.iter().filter_map(|cpu| Some((*known.get(cpu as usize)?, place(cpu as usize)))).collect()
    }
}

/// Parses the CPUs of an allocation.
pub(super) fn cpu_set(text: &str) -> Result<IdSet, String> {
    if text.is_empty() {
        return Ok(IdSet::EMPTY);
    }
    text.parse().map_err(|error| format!("CPUs of the order: {error}"))
}

/// Parses the distribution of tasks over sockets; empty text is the default.
pub(crate) fn over_sockets(text: &str) -> Result<Within, String> {
    match text {
        "" => Ok(Within::default()),
        text => text.parse().map_err(|error: UnknownDistribution| error.to_string()),
    }
}

/// Returns the CPUs of each task, by the kernel's numbers. A task gets its share of the step's CPUs, or all
/// of them if there are not enough for shares.
pub(crate) fn shares(step: &[StepCpu], tasks: u32, per_task: u32, sockets: Within) -> Vec<Vec<u32>> {
    let (tasks, mut each) = (tasks as usize, per_task as usize);
    // Without a requested share, and with one CPU for each task, that CPU is the share.
    if each == 0 && tasks == step.len() {
        each = 1;
    }
    if each == 0 || tasks * each > step.len() {
        return vec![step.iter().map(|(number, _)| *number).collect(); tasks];
    }
    let mut free: Vec<(u32, VecDeque<u32>)> = Vec::new();
    for (number, place) in step {
        let own = if sockets == Within::Block { 0 } else { place.socket };
        match free.iter_mut().find(|(socket, _)| *socket == own) {
            Some((_, cpus)) => cpus.push_back(*number),
            None => free.push((own, VecDeque::from([*number]))),
        }
    }
    let (mut next, count) = (0, free.len());
    let mut one = || {
        let mut own = Vec::new();
        while own.len() < each {
            let wanted = if sockets == Within::FullyCyclic { 1 } else { each - own.len() };
            let in_turn = (0..count).map(move |step| (next + step) % count);
            // A task is split over sockets only if no socket has enough free CPUs for it.
            let room = in_turn.clone().find(|&at| free[at].1.len() >= wanted);
            let Some(at) = room.or_else(|| in_turn.clone().find(|&at| !free[at].1.is_empty())) else { break };
            let cpus = &mut free[at].1;
            own.extend(cpus.drain(..wanted.min(cpus.len())));
            next = (at + 1) % count;
        }
        own
    };
    (0..tasks).map(|_| one()).collect()
}

/// Returns the CPUs, by the kernel's numbers, for the task that is number `local` on the node; empty if it is
/// not bound.
///
/// `share` are the CPUs that belong to the task by default.
///
/// # Errors
/// Fails if the binding names CPUs that the step does not hold.
pub(crate) fn cpus(
    bind: &CpuBind,
    step: &[StepCpu],
    share: Vec<u32>,
    local: u32,
) -> Result<Vec<u32>, String> {
    // Where CPUs are not known, no task is bound.
    if step.is_empty() {
        return Ok(Vec::new());
    }
    let those = |wanted: &dyn Fn(&StepCpu) -> bool| -> Vec<u32> {
        step.iter().filter(|cpu| wanted(cpu)).map(|(number, _)| *number).collect()
    };
    let nearby = |localities: &[u32]| {
        let cpus = those(&|(_, place)| localities.contains(&place.locality));
        if cpus.is_empty() { Err(outside(step)) } else { Ok(cpus) }
    };
    match bind {
        CpuBind::Share => Ok(share),
        CpuBind::None => Ok(Vec::new()),
        CpuBind::Rank => Ok(vec![step[local as usize % step.len()].0]),
        CpuBind::Whole(domain) => {
            let own: Vec<CpuPlace> =
                step.iter().filter(|(number, _)| share.contains(number)).map(|(_, place)| *place).collect();
            Ok(those(&|(_, place)| own.iter().any(|own| together(*domain, own, place))))
        }
        CpuBind::Map(list) => held(step, in_turn(list, local).copied()),
        CpuBind::Mask(list) => held(step, in_turn(list, local).into_iter().flat_map(Bits::iter)),
        CpuBind::RankLocality => {
            let mut localities: Vec<u32> = step.iter().map(|(_, place)| place.locality).collect();
            localities.sort_unstable();
            localities.dedup();
            nearby(&[localities[local as usize % localities.len()]])
        }
        CpuBind::MapLocality(list) => {
            nearby(in_turn(list, local).map(std::slice::from_ref).unwrap_or_default())
        }
        CpuBind::MaskLocality(list) => {
            nearby(&in_turn(list, local).into_iter().flat_map(Bits::iter).collect::<Vec<_>>())
        }
    }
}

/// Returns the memory binding of the task that is number `local` on the node.
///
/// `own` are the CPUs to which the task is bound, and `nodes` the machine's NUMA nodes with memory.
///
/// # Errors
/// Fails if the binding names NUMA nodes that do not exist.
pub(crate) fn memory(
    binding: &MemBinding,
    own: &[u32],
    nodes: &[u32],
    step: &[StepCpu],
    local: u32,
) -> Result<Option<MemoryBinding>, String> {
    if *binding == MemBinding::default() {
        return Ok(None);
    }
    let bound = match &binding.bind {
        MemBind::None => Vec::new(),
        MemBind::Local if own.is_empty() => nodes.to_vec(),
        MemBind::Local => {
            let near = step.iter().filter(|(number, _)| own.contains(number));
            let near: IdSet = near.map(|(_, place)| place.locality).collect();
            near.iter().collect()
        }
        MemBind::Rank => nodes.get(local as usize % nodes.len().max(1)).into_iter().copied().collect(),
        MemBind::Map(list) => in_turn(list, local).into_iter().copied().collect(),
        MemBind::Mask(list) => in_turn(list, local).into_iter().flat_map(Bits::iter).collect(),
    };
    if let Some(stray) = bound.iter().find(|node| !nodes.contains(node)) {
        let all: IdSet = nodes.iter().copied().collect();
        return Err(format!("--mem-bind: NUMA node {stray} has no memory here; those that have are {all}"));
    }
    let tell = binding.verbose.then(|| binding.kind().to_owned());
    Ok(Some(MemoryBinding { nodes: bound, prefer: binding.prefer, tell }))
}

/// Returns the variables that describe the memory binding to tasks; empty without `--mem-bind`.
pub(crate) fn memory_variables(said: &str, binding: &MemBinding) -> Vec<(String, String)> {
    if said.is_empty() {
        return Vec::new();
    }
    let parts = binding.parts().into_iter().chain([("", binding.to_string())]);
    parts.map(|(end, value)| (format!("SLURM_MEM_BIND{end}"), value)).collect()
}

/// Returns the variables that describe the CPU binding to tasks; empty without `--cpu-bind`.
pub(crate) fn variables(said: &str, binding: &CpuBinding) -> Vec<(String, String)> {
    if said.is_empty() {
        return Vec::new();
    }
    let whole = binding.to_string();
    let (verbose, kind) = whole.split_once(',').unwrap_or_default();
    let (kind, list) = kind.split_at(kind.find(':').map_or(kind.len(), |at| at + 1));
    [("", whole.as_str()), ("_VERBOSE", verbose), ("_TYPE", kind), ("_LIST", list)]
        .map(|(end, value)| (format!("SLURM_CPU_BIND{end}"), value.to_owned()))
        .to_vec()
}

/// True if both CPUs belong to the same part of the node at this level.
fn together(domain: CpuDomain, one: &CpuPlace, other: &CpuPlace) -> bool {
    match domain {
        CpuDomain::Core => (one.socket, one.core) == (other.socket, other.core),
        CpuDomain::Socket => one.socket == other.socket,
        CpuDomain::Locality => one.locality == other.locality,
        CpuDomain::Board => true,
    }
}

/// Returns the named CPUs, or an error if the step does not hold all of them.
fn held(step: &[StepCpu], named: impl IntoIterator<Item = u32>) -> Result<Vec<u32>, String> {
    let held = |number: u32| step.iter().any(|(own, _)| *own == number).then_some(number);
    let all: Option<Vec<u32>> = named.into_iter().map(held).collect();
    all.filter(|all| !all.is_empty()).ok_or_else(|| outside(step))
}

fn outside(step: &[StepCpu]) -> String {
    let all: Bits = step.iter().map(|(number, _)| *number).collect();
    format!("CPU binding outside of job step allocation, allocated CPUs are: {all}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of two cores of two threads, with a locality domain each.
    fn machine() -> Vec<StepCpu> {
        let numbers = [0, 4, 1, 5, 2, 6, 3, 7];
        let place = |at: u32| CpuPlace { socket: at / 4, core: at / 2 % 2, locality: at / 4 };
        numbers.into_iter().zip((0..).map(place)).collect()
    }

    /// Returns the binding of the first three tasks, each with one CPU as its share.
    fn bound(said: &str) -> Vec<String> {
        let binding: CpuBinding = said.parse().unwrap();
        let step = machine();
        let one = |local: u32| match cpus(&binding.bind, &step, vec![step[local as usize].0], local) {
            Ok(cpus) => format!("{cpus:?}"),
            Err(why) => why,
        };
        (0..3).map(one).collect()
    }

    #[test]
    fn tasks_are_bound_as_is_said() {
        for (said, expected) in [
            ("threads", ["[0]", "[4]", "[1]"]),
            ("none", ["[]", "[]", "[]"]),
            ("rank", ["[0]", "[4]", "[1]"]),
            ("cores", ["[0, 4]", "[0, 4]", "[1, 5]"]),
            ("sockets", ["[0, 4, 1, 5]"; 3]),
            ("ldoms", ["[0, 4, 1, 5]"; 3]),
            ("boards", ["[0, 4, 1, 5, 2, 6, 3, 7]"; 3]),
            ("map_cpu:7,0x2", ["[7]", "[2]", "[7]"]),
            ("mask_cpu:0x11,c", ["[0, 4]", "[2, 3]", "[0, 4]"]),
            ("rank_ldom", ["[0, 4, 1, 5]", "[2, 6, 3, 7]", "[0, 4, 1, 5]"]),
            ("map_ldom:1", ["[2, 6, 3, 7]"; 3]),
            ("mask_ldom:0x3,0x2", ["[0, 4, 1, 5, 2, 6, 3, 7]", "[2, 6, 3, 7]", "[0, 4, 1, 5, 2, 6, 3, 7]"]),
        ] {
            assert_eq!(bound(said), expected, "{said}");
        }
        let outside = "CPU binding outside of job step allocation, allocated CPUs are: 0xff.";
        assert_eq!(bound("map_cpu:0,8"), ["[0]", outside, "[0]"]);
        assert_eq!(bound("map_ldom:2"), [outside; 3]);
    }

    #[test]
    fn tasks_have_their_shares_of_the_sockets() {
        let shared = |tasks, each, said: &str| shares(&machine(), tasks, each, over_sockets(said).unwrap());
        assert_eq!(shared(3, 2, ""), [[0, 4], [1, 5], [2, 6]]);
        assert_eq!(shared(3, 2, "cyclic"), [[0, 4], [2, 6], [1, 5]]);
        assert_eq!(shared(2, 2, "fcyclic"), [[0, 2], [4, 6]]);
        assert_eq!(shared(2, 3, "cyclic"), [[0, 4, 1], [2, 6, 3]]);
        assert_eq!(shared(1, 6, "cyclic"), [[0, 4, 1, 5, 2, 6]]);
        assert_eq!(shared(8, 0, "block").concat(), [0, 4, 1, 5, 2, 6, 3, 7]);
        assert_eq!(shared(2, 0, ""), [[0, 4, 1, 5, 2, 6, 3, 7]; 2]);
        assert_eq!(shared(9, 1, "cyclic")[8].len(), 8);
        assert_eq!(shares(&[], 2, 1, Within::Block), [[0_u32; 0]; 2]);
    }

    #[test]
    fn memory_is_bound_as_is_said() {
        let bound = |said: &str, own: &[u32], local: u32| {
            let binding: MemBinding = said.parse().unwrap();
            match memory(&binding, own, &[0, 1, 4], &machine(), local) {
                Ok(None) => "any".to_owned(),
                Ok(Some(MemoryBinding { nodes, prefer, tell })) => format!("{nodes:?} {prefer} {tell:?}"),
                Err(why) => why,
            }
        };
        assert_eq!(bound("none", &[], 0), "any");
        assert_eq!(bound("v,none", &[], 0), "[] false Some(\"NONE\")");
        assert_eq!(bound("local", &[2, 6], 0), "[1] false None");
        assert_eq!(bound("local", &[0, 3], 0), "[0, 1] false None");
        assert_eq!(bound("p,local", &[], 0), "[0, 1, 4] true None");
        assert_eq!(["rank"; 4].map(|said| bound(said, &[0], 2)), ["[4] false None"; 4]);
        assert_eq!(bound("rank", &[0], 3), "[0] false None");
        assert_eq!(bound("v,map_mem:4,0", &[0], 2), "[4] false Some(\"MAP\")");
        assert_eq!(bound("mask_mem:0x3,0x10", &[0], 1), "[4] false None");
        let stray = "--mem-bind: NUMA node 2 has no memory here; those that have are 0-1,4";
        assert_eq!(bound("map_mem:2", &[0], 0), stray);
    }

    #[test]
    fn tasks_are_told_what_was_said() {
        let told = |said: &str| variables(said, &said.parse().unwrap());
        let values: Vec<String> = told("v,map_cpu:1,0").into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, ["verbose,map_cpu:1,0", "verbose", "map_cpu:", "1,0"]);
        assert_eq!(told(""), []);
    }
}
