//! The jobs of the demonstration, their purposes, and checks of their results.
//!
//! All jobs run the same program on each of their nodes. Every task integrates its part of a circle and
//! prints its node; the parts of a job add up to π. Jobs that must be shown running wait at a gate.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use spur_core::text::hostlist::HostList;
use spur_proto::v1::Job;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::fabric;

/// Definition of one job.
#[derive(Debug)]
pub(super) struct Plan {
    pub name: &'static str,
    pub nodes: usize,
    /// The job's `#SBATCH` lines besides name and nodes.
    options: &'static [&'static str],
    /// True if the job waits at a gate.
    pub gated: bool,
    /// Purpose of the job.
    pub about: &'static str,
    /// Maximum number of leaves that the job may span.
    most_leaves: usize,
    /// Maximum number of spines that the job may span.
    most_spines: usize,
    pub backfills: bool,
    /// Number of times that the job loses a node.
    pub restarts: u32,
}

/// The job that shows that all nodes work.
pub(super) const GREETING: Plan = Plan {
    name: "hello",
    nodes: 16,
    options: &["--time=5"],
    gated: false,
    about: "all sixteen nodes",
    most_leaves: 4,
    most_spines: 2,
    backfills: false,
    restarts: 0,
};

/// The jobs that fill the cluster, in the order of their submission.
pub(super) const PLANS: [Plan; 5] = [
    Plan {
        name: "block4",
        nodes: 4,
        options: &["--topology=block", "--time=10"],
        gated: true,
        about: "4 nodes, --topology=block: one whole leaf, guaranteed",
        most_leaves: 1,
        most_spines: 1,
        backfills: false,
        restarts: 0,
    },
    Plan {
        name: "tree8",
        nodes: 8,
        options: &["--topology=tree", "--time=10"],
        gated: true,
        about: "8 nodes, --topology=tree: as deep in the tree as possible",
        most_leaves: 2,
        most_spines: 1,
        backfills: false,
        restarts: 0,
    },
    Plan {
        name: "switch1",
        nodes: 2,
        options: &["--switches=1", "--time=10"],
        gated: true,
        about: "2 nodes, --switches=1: one leaf and no other; loses a node",
        most_leaves: 1,
        most_spines: 1,
        backfills: false,
        restarts: 1,
    },
    Plan {
        name: "wide",
        nodes: 16,
        options: &["--time=5"],
        gated: false,
        about: "all nodes: must wait for the others",
        most_leaves: 4,
        most_spines: 2,
        backfills: false,
        restarts: 0,
    },
    Plan {
        name: "small",
        nodes: 1,
        options: &["--time=3"],
        gated: true,
        about: "1 node for three minutes: starts before `wide` without delaying it",
        most_leaves: 1,
        most_spines: 1,
        backfills: true,
        restarts: 0,
    },
];

/// The program of every task: it prints its part of the area of a circle of radius 1, and its node and leaf.
const TASK: &str = r#"#!/bin/sh
part=$(awk -v rank="$SLURM_PROCID" -v tasks="$SLURM_NTASKS" 'BEGIN {
    steps = 100000
    for (i = rank; i < steps; i += tasks) { x = (i + 0.5) / steps; sum += 4 / (1 + x * x) }
    printf "%.9f", sum / steps
}')
switches=${SLURM_TOPOLOGY_ADDR%.*}
echo "rank $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME in ${switches##*.}: part $part"
"#;

/// A gate at which a job waits until [`Gate::open`].
pub(super) struct Gate {
    file: fs::File,
    /// The pipe into which the job writes when it has come to the gate.
    here: pipe::Receiver,
}

impl Gate {
    /// Waits until the job has come to the gate.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) async fn reached(&mut self) -> anyhow::Result<()> {
        self.here.read_u8().await.context("cannot wait for a job at its gate")?;
        Ok(())
    }

    /// Lets the job pass.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn open(&mut self) -> anyhow::Result<()> {
        self.file.write_all(b"go\n").context("cannot let a job pass its gate")
    }
}

/// Writes the program of the tasks.
///
/// # Errors
/// The error of the system.
pub(super) fn write_task(directory: &Path) -> anyhow::Result<()> {
    fs::write(directory.join("task.sh"), TASK).context("cannot write the program of the tasks")
}

impl Plan {
    /// Writes the script and creates the gate.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn write(&self, directory: &Path) -> anyhow::Result<Option<Gate>> {
        let path = directory.join(format!("{}.sh", self.name));
        fs::write(&path, self.script()).with_context(|| format!("cannot write {}", path.display()))?;
        if !self.gated {
            return Ok(None);
        }
        let pipe = |suffix: &str| {
            let path = directory.join(format!("{}.{suffix}", self.name));
            let made = mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0);
            made.with_context(|| format!("cannot make {}", path.display()))?;
            // Opening both ends avoids waiting for the other end.
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let file = rustix::fs::open(&path, flags, Mode::empty());
            file.with_context(|| format!("cannot open {}", path.display()))
        };
        let (file, here) = (fs::File::from(pipe("gate")?), pipe("here")?);
        let here = pipe::Receiver::from_owned_fd(here).context("cannot wait for a job at its gate")?;
        Ok(Some(Gate { file, here }))
    }

    fn script(&self) -> String {
        let mut script = format!(
            "#!/bin/sh\n#SBATCH --job-name={}\n#SBATCH --nodes={}\n#SBATCH --ntasks-per-node=1\n#SBATCH --output=%x.out\n",
            self.name, self.nodes
        );
        for option in self.options {
            script.push_str(&format!("#SBATCH {option}\n"));
        }
        script.push_str("\nset -e\nsrun sh task.sh\n");
        if self.gated {
            script.push_str(&format!(
                "\n# Stay until the queue has been shown.\necho > {0}.here\nread -r go < {0}.gate\n",
                self.name
            ));
        }
        script
    }

    /// Returns the differences between a job's result and its definition; empty if there are none.
    pub(super) fn faults(&self, job: &Job, output: &str) -> Vec<String> {
        let mut faults = Vec::new();
        let mut expect = |holds: bool, problem: String| {
            if !holds {
                faults.push(format!("{} (job {}): {problem}", self.name, job.id));
            }
        };
        let exit = format!("{}:{}", job.exit_code, job.exit_signal);
        expect(job.state == "COMPLETED" && exit == "0:0", format!("ended as {} with {exit}", job.state));
        let nodes: Vec<String> =
            job.nodes.parse::<HostList>().map(|list| list.iter().collect()).unwrap_or_default();
        expect(nodes.len() == self.nodes, format!("ran on {} nodes ({})", nodes.len(), job.nodes));
        let leaves = leaves(&nodes);
        let mut spines: Vec<String> = leaves.iter().filter_map(|leaf| fabric::spine(leaf)).collect();
        spines.dedup();
        expect(leaves.len() <= self.most_leaves, format!("touched the leaves {}", leaves.join(", ")));
        expect(spines.len() <= self.most_spines, format!("touched the spines {}", spines.join(", ")));
        expect(job.restarts == self.restarts, format!("was begun {} times", job.restarts + 1));
        expect(!self.backfills || job.backfilled, "did not backfill".to_owned());
        let lines: Vec<Line<'_>> = output.lines().filter_map(Line::read).collect();
        let mut ranks: Vec<usize> = lines.iter().map(|line| line.rank).collect();
        ranks.sort_unstable();
        expect(ranks.iter().copied().eq(0..self.nodes), format!("has output of the ranks {ranks:?}"));
        for line in &lines {
            let node = nodes.get(line.rank).map_or("", String::as_str);
            let leaf = fabric::leaf(node).unwrap_or_default();
            expect(
                line.node == node && line.leaf == leaf,
                format!("rank {} ran on {} in {}, not on {node} in {leaf}", line.rank, line.node, line.leaf),
            );
        }
        let sum: f64 = lines.iter().map(|line| line.part).sum();
        expect((sum - std::f64::consts::PI).abs() < 1e-6, format!("its parts add up to {sum}"));
        faults
    }
}

/// Returns the leaves of nodes, in order.
pub(super) fn leaves(nodes: &[String]) -> Vec<String> {
    let mut leaves: Vec<String> = nodes.iter().filter_map(|node| fabric::leaf(node)).collect();
    leaves.sort();
    leaves.dedup();
    leaves
}

/// Returns the lines of an output; the tasks' lines come last, in the order of their ranks.
pub(super) fn by_rank(output: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_by_key(|line| Line::read(line).map(|line| line.rank));
    lines
}

/// Output line of a task.
struct Line<'a> {
    rank: usize,
    node: &'a str,
    leaf: &'a str,
    part: f64,
}

impl Line<'_> {
    fn read(line: &str) -> Option<Line<'_>> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["rank", rank, "of", _, "on", node, "in", leaf, "part", part] = words[..] else { return None };
        Some(Line { rank: rank.parse().ok()?, node, leaf: leaf.strip_suffix(':')?, part: part.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &Plan = &PLANS[2];
    const GOOD: &str = "rank 1 of 2 on node06 in leaf2: part 1.570796327\n\
                        noise\nrank 0 of 2 on node05 in leaf2: part 1.570796327\n";

    fn job() -> Job {
        Job { id: 4, state: "COMPLETED".into(), nodes: "node[05-06]".into(), restarts: 1, ..Job::default() }
    }

    #[test]
    fn output_is_shown_by_rank() {
        let lines = by_rank(GOOD);
        let starts: Vec<&str> = lines.iter().filter_map(|line| line.split(" of").next()).collect();
        assert_eq!(starts, ["noise", "rank 0", "rank 1"]);
    }

    #[test]
    fn a_good_end_has_no_faults() {
        assert_eq!(SMALL.faults(&job(), GOOD), Vec::<String>::new());
    }

    #[test]
    fn every_fault_is_found() {
        let other = |nodes: &str| Job { nodes: nodes.into(), ..job() };
        for (job, output, part) in [
            (Job { state: "FAILED".into(), exit_code: 2, ..job() }, GOOD.to_owned(), "FAILED with 2:0"),
            (other("node[05-07]"), GOOD.to_owned(), "ran on 3 nodes"),
            (other("node[04-05]"), GOOD.to_owned(), "leaves leaf1, leaf2"),
            (job(), GOOD.replace("rank 1", "rank 0"), "ranks [0, 0]"),
            (job(), GOOD.replace("leaf2", "leaf1"), "in leaf1, not on"),
            (job(), GOOD.replace("1.57", "1.67"), "add up to 3.3"),
            (job(), String::new(), "ranks []"),
            (Job { restarts: 2, ..job() }, GOOD.to_owned(), "begun 3 times"),
        ] {
            let faults = SMALL.faults(&job, &output);
            assert!(faults.iter().any(|fault| fault.contains(part)), "{part}: {faults:?}");
        }
        let late = PLANS[4].faults(&Job { nodes: "node07".into(), ..job() }, "");
        assert!(late.iter().any(|fault| fault.contains("did not backfill")));
    }

    #[test]
    fn scripts_are_scripts() {
        let script = PLANS[0].script();
        let mut wishes =
            crate::options::submission::Submission::parse(&[], &|_| None, Some(&script)).unwrap();
        let wishes = wishes.remove(0);
        assert_eq!((wishes.spec.nodes.as_str(), wishes.spec.topology.as_str()), ("4", "block"));
        assert!(script.ends_with("read -r go < block4.gate\n"));
    }
}
