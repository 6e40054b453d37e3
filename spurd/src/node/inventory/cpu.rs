//! CPUs: sockets, cores and hardware threads, as far as this process may use them.
//!
//! Spur numbers a node's CPUs from 0 in the order socket, core, thread, so that a range of numbers is a
//! compact piece of the machine; [`Cpus::threads`] translates to the kernel's numbers.

use std::collections::{BTreeMap, BTreeSet};

use spur_core::model::idset::IdSet;

use super::{Kernel, numbered};

/// The CPUs of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// Number of sockets with at least one usable CPU.
    pub sockets: u32,
    /// Cores in each socket, at least 1; the fewest where sockets differ.
    pub cores_per_socket: u32,
    /// Threads in each core, at least 1; the fewest where cores differ.
    pub threads_per_core: u32,
    /// The kernel's number of every usable CPU, in the order socket, core, thread.
    pub threads: Vec<u32>,
    /// Position of every CPU in `threads`, in the same order.
    pub places: Vec<CpuPlace>,
}

/// Position of a CPU in its node, by the kernel's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuPlace {
    /// Number of the socket.
    pub socket: u32,
    /// Number of the core in its socket.
    pub core: u32,
    /// The locality domain (NUMA node), 0 where the kernel names none.
    pub locality: u32,
}

/// Returns the CPUs that this process may run on, by the kernel's numbers; empty if the kernel does not say.
pub fn usable() -> BTreeSet<u32> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return BTreeSet::new() };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).map(|cpu| cpu as u32).collect()
}

impl Kernel {
    /// Returns the node's online CPUs among `usable`, or all of them if `usable` is empty. If the kernel
    /// describes none of them, each CPU in `usable` is a core of one socket.
    pub fn cpus(&self, usable: &BTreeSet<u32>) -> Cpus {
        let base = "sys/devices/system/cpu";
        let online = |cpu: u32| self.line(format!("{base}/cpu{cpu}/online")).is_none_or(|state| state != "0");
        let mut sockets: BTreeMap<u32, BTreeMap<u32, Vec<u32>>> = BTreeMap::new();
        for name in self.names(base) {
            let Some(cpu) = numbered(&name, "cpu") else { continue };
            if !online(cpu) || (!usable.is_empty() && !usable.contains(&cpu)) {
                continue;
            }
            let number = |file: &str| {
                let text = self.line(format!("{base}/cpu{cpu}/topology/{file}"))?;
                text.parse::<u32>().ok()
            };
            // Without topology, or where the kernel reports -1, every CPU is a core of one socket.
            let socket = number("physical_package_id").unwrap_or(0);
            let core = number("core_id").unwrap_or(cpu);
            sockets.entry(socket).or_default().entry(core).or_default().push(cpu);
        }
        if sockets.is_empty() {
            let cores = usable.iter().map(|&cpu| (cpu, vec![cpu])).collect();
            sockets.insert(0, cores);
        }
        let localities = self.localities();
        let near = |cpu: u32| {
            let own = localities.iter().find(|(_, cpus)| cpus.contains(cpu));
            own.map_or(0, |(locality, _)| *locality)
        };
        shape(sockets, near)
    }

    /// Returns the NUMA nodes with memory; node 0 alone where the kernel names none.
    pub fn memory_nodes(&self) -> Vec<u32> {
        let list = self.line("sys/devices/system/node/has_memory");
        let nodes = list.and_then(|list| list.parse::<IdSet>().ok()).unwrap_or_default();
        if nodes.is_empty() { vec![0] } else { nodes.iter().collect() }
    }

    /// Returns the locality domains of the node with their CPUs.
    fn localities(&self) -> Vec<(u32, IdSet)> {
        let base = "sys/devices/system/node";
        let names = self.names(base);
        let numbers = names.iter().filter_map(|name| numbered(name, "node"));
        let with_cpus = numbers.filter_map(|number| {
            let list = self.line(format!("{base}/node{number}/cpulist"))?;
            Some((number, list.parse().ok()?))
        });
        with_cpus.collect()
    }
}

fn shape(sockets: BTreeMap<u32, BTreeMap<u32, Vec<u32>>>, near: impl Fn(u32) -> u32) -> Cpus {
    let fewest = |counts: &mut dyn Iterator<Item = usize>| counts.min().unwrap_or(1).max(1) as u32;
    let cores_per_socket = fewest(&mut sockets.values().map(BTreeMap::len));
    let threads_per_core = fewest(&mut sockets.values().flat_map(BTreeMap::values).map(Vec::len));
    let sockets_found = sockets.len() as u32;
    let (mut threads, mut places) = (Vec::new(), Vec::new());
    for (socket, cores) in sockets {
        for (core, mut cpus) in cores {
            cpus.sort_unstable();
            places.extend(cpus.iter().map(|&cpu| CpuPlace { socket, core, locality: near(cpu) }));
            threads.extend(cpus);
        }
    }
    Cpus { sockets: sockets_found, cores_per_socket, threads_per_core, threads, places }
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;

    fn machine(cpus: &[(u32, u32, u32)]) -> (tempfile::TempDir, Kernel) {
        let mut files = Vec::new();
        for (cpu, socket, core) in cpus {
            let base = format!("sys/devices/system/cpu/cpu{cpu}");
            files.push((format!("{base}/topology/physical_package_id"), format!("{socket}\n")));
            files.push((format!("{base}/topology/core_id"), format!("{core}\n")));
        }
        files.push(("sys/devices/system/cpu/cpufreq/x".to_owned(), String::new()));
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        tree(&files)
    }

    const TWO_SOCKETS: [(u32, u32, u32); 8] =
        [(0, 0, 0), (1, 0, 4), (2, 1, 0), (3, 1, 4), (4, 0, 0), (5, 0, 4), (6, 1, 0), (7, 1, 4)];

    #[test]
    fn cpus_are_numbered_by_socket_core_and_thread() {
        let (_root, kernel) = machine(&TWO_SOCKETS);
        let place = |(socket, core)| CpuPlace { socket, core, locality: 0 };
        let expected = Cpus {
            sockets: 2,
            cores_per_socket: 2,
            threads_per_core: 2,
            threads: vec![0, 4, 1, 5, 2, 6, 3, 7],
            places: [(0, 0), (0, 0), (0, 4), (0, 4), (1, 0), (1, 0), (1, 4), (1, 4)].map(place).to_vec(),
        };
        assert_eq!(kernel.cpus(&BTreeSet::new()), expected);
    }

    #[test]
    fn a_process_confined_to_some_cpus_counts_only_those() {
        let (_root, kernel) = machine(&TWO_SOCKETS);
        let cpus = kernel.cpus(&BTreeSet::from([0, 1, 4, 5]));
        let Cpus { sockets, cores_per_socket, threads_per_core, threads, .. } = cpus;
        assert_eq!((sockets, cores_per_socket, threads_per_core, threads), (1, 2, 2, vec![0, 4, 1, 5]));
    }

    #[test]
    fn cpus_that_are_off_or_without_topology() {
        let (_root, kernel) = tree(&[
            ("sys/devices/system/cpu/cpu0/x", ""),
            ("sys/devices/system/cpu/cpu1/online", "0\n"),
            ("sys/devices/system/cpu/cpu2/online", "1\n"),
        ]);
        let cpus = kernel.cpus(&BTreeSet::new());
        assert_eq!((cpus.sockets, cpus.cores_per_socket, cpus.threads), (1, 2, vec![0, 2]));
    }

    #[test]
    fn cpus_lie_in_the_locality_domain_that_lists_them() {
        let (_root, kernel) = tree(&[
            ("sys/devices/system/cpu/cpu0/x", ""),
            ("sys/devices/system/cpu/cpu1/x", ""),
            ("sys/devices/system/cpu/cpu2/x", ""),
            ("sys/devices/system/node/node0/cpulist", "0\n"),
            ("sys/devices/system/node/node8/cpulist", "1-2,4\n"),
            ("sys/devices/system/node/possible", "0,8\n"),
        ]);
        let places = kernel.cpus(&BTreeSet::new()).places;
        assert_eq!(places.iter().map(|place| place.locality).collect::<Vec<_>>(), [0, 8, 8]);
    }
}
