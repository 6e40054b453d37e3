//! The CPU and memory binding and the resource limits of a task.

use std::fs;
use std::io::{self, Write};

use rustix::process::{Resource, Rlimit};
use spur_core::model::idset::IdSet;
use spur_core::text::cpubind::{Bits, CpuBinding};
use step_wire::order::{Limit, LimitedResource, MemoryBinding};

use crate::task::plan::Plan;

/// Writes the task's CPU binding to its standard error, in Slurm's words.
pub(super) fn tell_binding(plan: &Plan<'_>, kind: &str) {
    let own = rustix::thread::sched_getaffinity(None).map(|set| {
        let numbers = 0..rustix::thread::CpuSet::MAX_CPU;
        numbers.filter(|&cpu| set.is_set(cpu)).filter_map(|cpu| u32::try_from(cpu).ok()).collect::<Bits>()
    });
    let local = plan.order.tasks.iter().position(|task| task.global == plan.task.global).unwrap_or_default();
    let (node, rank, pid) = (&plan.order.node, plan.task.global, std::process::id());
    let action = if kind == CpuBinding::UNBOUND { "" } else { " set" };
    // Without a working standard error there is no way to report a failure.
    let _ = writeln!(
        io::stderr(),
        "cpu-bind{kind} - {node}, task {rank:2} {local:2} [{pid}]: mask {}{action}",
        own.unwrap_or_default()
    );
}

/// Writes the task's memory binding to its standard error, in Slurm's words.
pub(super) fn tell_memory(plan: &Plan<'_>, memory: &MemoryBinding, kind: &str) {
    let local = plan.order.tasks.iter().position(|task| task.global == plan.task.global).unwrap_or_default();
    let (node, rank, pid) = (&plan.order.node, plan.task.global, std::process::id());
    let (mask, action) = match memory.nodes.is_empty() {
        true => (allowed_memory(), ""),
        false => (memory.nodes.iter().copied().collect(), " set"),
    };
    let _ = writeln!(
        io::stderr(),
        "mem-bind={kind} - {node}, task {rank:2} {local:2} [{pid}]: mask {mask}{action}"
    );
}

/// Returns the NUMA nodes that this process may use.
fn allowed_memory() -> Bits {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"));
    let nodes: IdSet = list.and_then(|list| list.trim().parse().ok()).unwrap_or_default();
    nodes.iter().collect()
}

/// Binds the task's memory to NUMA nodes, or makes the task prefer the first of them.
pub(super) fn bind_memory(memory: &MemoryBinding) -> io::Result<()> {
    const BITS: u32 = libc::c_ulong::BITS;
    let mut mask = [0 as libc::c_ulong; 1024 / BITS as usize];
    let (mode, count) = match memory.prefer {
        true => (libc::MPOL_PREFERRED, 1),
        false => (libc::MPOL_BIND, memory.nodes.len()),
    };
    for &node in memory.nodes.iter().take(count) {
        let place = mask.get_mut((node / BITS) as usize).ok_or(rustix::io::Errno::INVAL)?;
        *place |= 1 << (node % BITS);
    }
    if memory.nodes.is_empty() {
        return Ok(());
    }
    // SAFETY: the kernel reads one bit less than the given number, all within the mask.
    let done = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask.as_ptr(), 1024 + 1) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(super) fn bind(cpus: &[u32]) -> io::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = rustix::thread::CpuSet::new();
    for &cpu in cpus {
        if cpu as usize >= rustix::thread::CpuSet::MAX_CPU {
            return Err(io::Error::from(rustix::io::Errno::INVAL));
        }
        set.set(cpu as usize);
    }
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Sets one limit; a limit beyond what this process may have becomes the largest possible, as in Slurm.
pub(super) fn set_limit(limit: &Limit) -> io::Result<()> {
    let resource = match limit.resource {
        LimitedResource::As => Resource::As,
        LimitedResource::Core => Resource::Core,
        LimitedResource::Cpu => Resource::Cpu,
        LimitedResource::Data => Resource::Data,
        LimitedResource::Fsize => Resource::Fsize,
        LimitedResource::Memlock => Resource::Memlock,
        LimitedResource::Nofile => Resource::Nofile,
        LimitedResource::Nproc => Resource::Nproc,
        LimitedResource::Rss => Resource::Rss,
        LimitedResource::Stack => Resource::Stack,
    };
    let hard = rustix::process::getrlimit(resource).maximum;
    // Unlimited exceeds any limit.
    let over = match (limit.soft, hard) {
        (Some(soft), Some(hard)) => soft > hard,
        (None, Some(_)) => true,
        (_, None) => false,
    };
    let wish = Rlimit { current: limit.soft, maximum: if over { limit.soft } else { hard } };
    match rustix::process::setrlimit(resource, wish) {
        Err(_) if over => Ok(rustix::process::setrlimit(resource, Rlimit { current: hard, maximum: hard })?),
        other => Ok(other?),
    }
}
