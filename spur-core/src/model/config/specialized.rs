//! Core specialization: the resources that a node reserves for the system, with Slurm's names.

use super::NodeConfig;
use crate::model::idset::IdSet;
use crate::model::node::NodeShape;

impl NodeConfig {
    /// CPUs of a node of this shape that jobs never get, as whole cores. For `core_spec_count` these are, as
    /// in Slurm, the last core of each socket, from the last socket down, then the cores before.
    #[must_use]
    pub fn specialized_cpus(&self, shape: &NodeShape) -> IdSet {
        let threads = shape.threads_per_core.max(1);
        let all = shape.cpus / threads;
        let whole = |cores: &mut dyn Iterator<Item = u32>| -> IdSet {
            cores.flat_map(|core| core * threads..((core + 1) * threads).min(shape.cpus)).collect()
        };
        if self.core_spec_count == 0 {
            let listed = self.cpu_spec_list.iter().take_while(|cpu| *cpu < shape.cpus);
            return whole(&mut listed.map(|cpu| cpu / threads));
        }
        // A node may have fewer cores than its sockets would hold.
        let (sockets, each) = match (shape.sockets, shape.cores_per_socket) {
            (sockets, each) if sockets.checked_mul(each) == Some(all) => (sockets, each),
            _ => (1, all),
        };
        let last = |turn: u32| (sockets - turn % sockets) * each - 1 - turn / sockets;
        whole(&mut (0..self.core_spec_count.min(all)).map(last))
    }

    /// The contradiction in the specialized resources, with its key; `None` if there is none as far as
    /// resources are configured.
    #[must_use]
    pub fn specialized_wrongly(&self) -> Option<(&'static str, String)> {
        let shape = &self.shape;
        if self.core_spec_count > 0 && !self.cpu_spec_list.is_empty() {
            let problem = "core_spec_count and cpu_spec_list both say which cores jobs do not get; keep one";
            return Some(("core_spec_count", problem.to_owned()));
        }
        if shape.cpus > 0 && self.specialized_cpus(shape).len() == shape.cpus {
            let cores = shape.cpus / shape.threads_per_core.max(1);
            return Some(match self.core_spec_count {
                0 => {
                    let list = &self.cpu_spec_list;
                    ("cpu_spec_list", format!("CPUs {list} leave no core to jobs; leave those of a core out"))
                }
                count => {
                    let most = cores.saturating_sub(1);
                    (
                        "core_spec_count",
                        format!("{count} of {cores} cores leave none to jobs; keep {most} at the most"),
                    )
                }
            });
        }
        if let Some(cpu) = self.cpu_spec_list.iter().find(|cpu| shape.cpus > 0 && *cpu >= shape.cpus) {
            let last = shape.cpus - 1;
            return Some((
                "cpu_spec_list",
                format!("there is no CPU {cpu}; the CPUs of the node are 0-{last}"),
            ));
        }
        let memory = shape.memory_mb;
        (memory > 0 && self.mem_spec_limit >= memory).then(|| {
            let problem = format!("{} MiB of {memory} leave no memory to jobs", self.mem_spec_limit);
            ("mem_spec_limit", problem)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(sockets: u32, cores_per_socket: u32, threads_per_core: u32) -> NodeShape {
        let cpus = sockets * cores_per_socket * threads_per_core;
        NodeShape { sockets, cores_per_socket, threads_per_core, cpus, ..NodeShape::default() }
    }

    /// The values are those that slurmd 22.05.8 reports on such nodes: "Resource spec: Reserved abstract CPU
    /// IDs".
    #[test]
    fn the_cores_are_those_that_slurm_chooses() {
        for (count, list, of, wanted) in [
            (3, "", shape(2, 4, 2), "6-7,12-15"),
            (0, "0,5", shape(2, 4, 2), "0-1,4-5"),
            (1, "", shape(1, 4, 1), "3"),
            (2, "", shape(2, 2, 1), "1,3"),
            (2, "", shape(4, 1, 1), "2-3"),
            (0, "", shape(2, 4, 2), ""),
            // A node may have fewer cores than configured.
            (9, "", shape(1, 2, 2), "0-3"),
            (0, "1,70-80", shape(1, 4, 1), "1"),
            (1, "", NodeShape { cpus: 3, ..shape(2, 2, 1) }, "2"),
            (1, "", NodeShape::default(), ""),
        ] {
            let cpu_spec_list = list.parse().expect("it is a list");
            let config = NodeConfig { core_spec_count: count, cpu_spec_list, ..NodeConfig::default() };
            assert_eq!(config.specialized_cpus(&of).to_string(), wanted, "{count} {list} of {of:?}");
        }
    }
}
