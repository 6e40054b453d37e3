//! CPUs: sockets, cores and hardware threads, as far as this process may use them.
//!
//! Spur numbers a node's CPUs from 0 in the order socket, core, thread, so that a range of numbers is a compact
//! piece of the machine; [`Cpus::threads`] translates to the kernel's numbers.

use std::collections::{BTreeMap, BTreeSet};

use super::{Kernel, numbered};

/// The CPUs of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// Sockets with at least one usable CPU.
    pub sockets: u32,
    /// Cores in each socket, at least 1; the fewest where sockets differ.
    pub cores_per_socket: u32,
    /// Threads in each core, at least 1; the fewest where cores differ.
    pub threads_per_core: u32,
    /// The kernel's number of every usable CPU, in the order socket, core, thread.
    pub threads: Vec<u32>,
}

/// The CPUs this process may run on, by the kernel's numbers; empty if the kernel does not say.
pub fn usable() -> BTreeSet<u32> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return BTreeSet::new() };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).map(|cpu| cpu as u32).collect()
}

impl Kernel {
    /// The CPUs of the node that are among `usable`; all of them if that is empty.
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
            // Without topology, or where the kernel says -1, every CPU is a core of one socket.
            let socket = number("physical_package_id").unwrap_or(0);
            let core = number("core_id").unwrap_or(cpu);
            sockets.entry(socket).or_default().entry(core).or_default().push(cpu);
        }
        if sockets.is_empty() {
            let cores = usable.iter().map(|&cpu| (cpu, vec![cpu])).collect();
            sockets.insert(0, cores);
        }
        shape(sockets)
    }
}

fn shape(sockets: BTreeMap<u32, BTreeMap<u32, Vec<u32>>>) -> Cpus {
    let fewest = |counts: &mut dyn Iterator<Item = usize>| counts.min().unwrap_or(1).max(1) as u32;
    let cores_per_socket = fewest(&mut sockets.values().map(BTreeMap::len));
    let threads_per_core = fewest(&mut sockets.values().flat_map(BTreeMap::values).map(Vec::len));
    let sockets_found = sockets.len() as u32;
    let mut threads = Vec::new();
    for mut core in sockets.into_values().flat_map(BTreeMap::into_values) {
        core.sort_unstable();
        threads.extend(core);
    }
    Cpus { sockets: sockets_found, cores_per_socket, threads_per_core, threads }
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
        let expected = Cpus {
            sockets: 2,
            cores_per_socket: 2,
            threads_per_core: 2,
            threads: vec![0, 4, 1, 5, 2, 6, 3, 7],
        };
        assert_eq!(kernel.cpus(&BTreeSet::new()), expected);
    }

    #[test]
    fn a_process_confined_to_some_cpus_counts_only_those() {
        let (_root, kernel) = machine(&TWO_SOCKETS);
        let cpus = kernel.cpus(&BTreeSet::from([0, 1, 4, 5]));
        assert_eq!(
            cpus,
            Cpus { sockets: 1, cores_per_socket: 2, threads_per_core: 2, threads: vec![0, 4, 1, 5] }
        );
    }

    #[test]
    fn cpus_that_are_off_or_without_topology() {
        let (_root, kernel) = tree(&[
            ("sys/devices/system/cpu/cpu0/x", ""),
            ("sys/devices/system/cpu/cpu1/online", "0\n"),
            ("sys/devices/system/cpu/cpu2/online", "1\n"),
        ]);
        let expected = Cpus { sockets: 1, cores_per_socket: 2, threads_per_core: 1, threads: vec![0, 2] };
        assert_eq!(kernel.cpus(&BTreeSet::new()), expected);
    }
}
