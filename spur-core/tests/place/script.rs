//! The language of the scripts.
//!
//! A script is a topology in TOML, a line `====`, and commands. A command is a line that starts with `> `,
//! followed by its result and an empty line. Comments start with `#` and keep their place.
//!
//! | command | meaning |
//! |---|---|
//! | `nodes LIST` | set the node table; all nodes are idle |
//! | `cores N` | share nodes by cores, N on each; the default is whole nodes |
//! | `busy LIST [N]` | mark these nodes, or N cores of each, as in use |
//! | `idle LIST` | mark these nodes as idle |
//! | `place OPTIONS` | print the nodes of a job with these options |
//! | `show` | print the domains, as `scontrol show topology` does |

use std::fmt::Write;
use std::sync::Arc;

use fixedbitset::FixedBitSet;
use spur_core::id::NodeId;
use spur_core::model::fabric::{Fabric, Pos};
use spur_core::model::job::FabricAsk;
use spur_core::model::topology::TopologyConfig;
use spur_core::sched::place::{self, Ask, Slots, View, Wish};
use spur_core::text::features::FeatureExpr;
use spur_core::text::hostlist::HostList;

/// Runs a script and returns it with the present results.
pub(crate) fn run(text: &str) -> String {
    let (topology, commands) = text.split_once("====\n").expect("a line of ==== ends the topology");
    let config: TopologyConfig = toml::from_str(topology).expect("a topology");
    let mut world = World::new(config);
    let mut out = format!("{topology}====\n");
    let mut lines = commands.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("> ") else {
            writeln!(out, "{line}").expect("strings take everything");
            continue;
        };
        while lines.next_if(|line| !line.is_empty()).is_some() {}
        lines.next();
        writeln!(out, "> {command}\n{}", world.run(command)).expect("strings take everything");
        if lines.peek().is_some() {
            out.push('\n');
        }
    }
    out
}

struct World {
    config: TopologyConfig,
    fabric: Fabric,
    cores: Option<u32>,
    used: Vec<u32>,
}

fn expand(list: &str) -> Vec<String> {
    list.parse::<HostList>().expect("a hostlist").iter().collect()
}

impl World {
    fn new(config: TopologyConfig) -> Self {
        Self { fabric: Fabric::flat("none", &[]), config, cores: None, used: Vec::new() }
    }

    fn run(&mut self, command: &str) -> String {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["nodes", list] => return self.nodes(list),
            ["cores", number] => self.cores = Some(number.parse().expect("a number")),
            ["busy", list] => self.set(list, self.cores.unwrap_or(1)),
            ["busy", list, cores] => self.set(list, cores.parse().expect("a number")),
            ["idle", list] => self.set(list, 0),
            ["place", options @ ..] => return self.place(options),
            ["show"] => return self.show(),
            _ => panic!("no command: {command}"),
        }
        "ok".to_owned()
    }

    fn nodes(&mut self, list: &str) -> String {
        let names = expand(list);
        let table: Vec<(NodeId, &str)> = (0..).map(NodeId).zip(names.iter().map(String::as_str)).collect();
        match Fabric::build(&self.config, &table, &[]) {
            Ok(fabric) => self.fabric = fabric,
            Err(errors) => return errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        }
        self.used = vec![0; names.len()];
        format!("{} nodes in layers {}", names.len(), self.fabric.layer_names().join(", "))
    }

    fn set(&mut self, list: &str, used: u32) {
        for name in expand(list) {
            let pos = self.fabric.pos_named(&name).expect("a node");
            self.used[pos.index()] = used;
        }
    }

    /// Slots of one kind of job: free cores of shared nodes, or free whole nodes.
    fn slots(&self, exclusive: bool, idle: bool) -> Slots {
        let free = |index: usize| {
            let cores = self.cores.unwrap_or(1);
            let used = if idle { 0 } else { self.used[index] };
            if exclusive && used > 0 { 0 } else { cores - used }
        };
        if exclusive {
            let open: FixedBitSet = (0..self.fabric.len()).filter(|&index| free(index) > 0).collect();
            Slots::whole(&self.fabric, open)
        } else {
            Slots::tasks(&self.fabric, (0..self.fabric.len()).map(free).collect())
        }
    }

    fn place(&self, options: &[&str]) -> String {
        let job = Job::read(options, &self.fabric, self.cores.is_none());
        let placement = job.asked.placement.unwrap_or_default();
        let wish = Wish {
            asked: &job.asked,
            whole_leaves: job.whole_leaves,
            waited: job.waited,
            placement,
            size: job.base.nodes.map_or_else(|| job.base.tasks.unwrap_or(1), |(_, most)| most),
            gpus_per_slot: job.gpus,
            gpus_per_node: 0,
            gpus_by_node: None,
            gather_with: None,
            score: None,
        };
        let resolved = match place::resolve(&self.fabric, &self.config, wish, job.base) {
            Ok(resolved) => resolved,
            Err(error) => return format!("refused: {error}"),
        };
        let mut out: Vec<String> = Vec::new();
        out.extend(resolved.warnings.iter().map(|warning| format!("warning: {warning}")));
        out.extend(resolved.relaxed.iter().map(|relaxed| format!("relaxed: {relaxed}")));
        out.push(self.answer(&resolved.ask, job.exclusive));
        out.join("\n")
    }

    fn answer(&self, ask: &Ask, exclusive: bool) -> String {
        let (slots, idle) = (self.slots(exclusive, false), self.slots(exclusive, true));
        if let Some(refusal) = place::refusal(&View::new(&self.fabric, &idle, &idle), ask) {
            return format!("refused: {refusal}");
        }
        let occupied: FixedBitSet = (0..self.fabric.len()).filter(|&index| self.used[index] > 0).collect();
        let view = View { occupied: Some(&occupied), ..View::new(&self.fabric, &slots, &idle) };
        match place::place_or_say(&view, ask) {
            Ok(placement) => {
                let name = |(pos, share): &(Pos, u32)| match (exclusive, share) {
                    (true, _) => self.fabric.node_name(*pos).to_owned(),
                    (false, share) => format!("{}*{share}", self.fabric.node_name(*pos)),
                };
                let names: Vec<String> = placement.shares.iter().map(name).collect();
                let lost = place::rivals(&view, ask, &placement, 2);
                format!("{}\n{}", names.join(" "), placement.sentence(&self.fabric, &lost))
            }
            Err(misfit) => format!("waits: {}", misfit.sentence(&self.fabric)),
        }
    }

    fn show(&self) -> String {
        let lines = self.fabric.facts().into_iter().map(|facts| {
            let nodes: HostList = facts.nodes.iter().collect();
            let children: HostList = facts.children.iter().collect();
            format!(
                "{:?} {} level {} index {} size {} speed {} nodes {nodes} children {children}",
                facts.kind, facts.name, facts.level, facts.index, facts.size, facts.link_speed,
            )
        });
        let mut lines: Vec<String> = lines.collect();
        if let Some(last) = self.fabric.len().checked_sub(1) {
            let (address, pattern) = self.fabric.address(Pos(u32::try_from(last).expect("few nodes")));
            lines.push(format!("{address} is a {pattern}"));
        }
        lines.join("\n")
    }
}

/// Options of a job.
struct Job {
    base: Ask,
    asked: FabricAsk,
    exclusive: bool,
    whole_leaves: bool,
    waited: u64,
    gpus: u32,
}

impl Job {
    fn read(options: &[&str], fabric: &Fabric, whole: bool) -> Self {
        let mut job = Self {
            base: Ask::nodes(1),
            asked: FabricAsk::default(),
            exclusive: whole,
            whole_leaves: false,
            waited: 0,
            gpus: 0,
        };
        let mut nodes = None;
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match name {
                "-N" => nodes = Some(range(options.next().expect("-N takes a number"))),
                "-n" => job.base.tasks = Some(number(options.next().expect("-n takes a number"))),
                "-w" => {
                    let names = expand(options.next().expect("-w takes a list"));
                    job.base.required =
                        names.iter().map(|name| fabric.pos_named(name).expect("a node")).collect();
                    job.base.required.sort_unstable();
                }
                _ => job.set(name, value),
            }
        }
        job.base.nodes = nodes.or(job.base.nodes.filter(|_| job.base.tasks.is_none()));
        job
    }

    fn set(&mut self, name: &str, value: &str) {
        let asked = &mut self.asked;
        match name {
            "--topology" => asked.topology = Some(value.into()),
            "--gather" => asked.gather = Some(value.parse().expect("a gather list")),
            "--switches" => asked.switches = Some(value.parse().expect("a number of switches")),
            "--segment" => asked.segment = Some(number(value)),
            "--spread-segments" => asked.spread_segments = true,
            "--consolidate-segments" => asked.consolidate_segments = true,
            "--contiguous" => asked.contiguous = true,
            "--placement" => asked.placement = Some(value.parse().expect("a placement")),
            "--prefer" => asked.prefer = Some(wish(value)),
            "--network" => asked.network = Some(value.parse().expect("a network need")),
            "--exclusive" => {
                self.exclusive = true;
                self.whole_leaves = value == "topo";
            }
            "--ntasks-per-node" => self.base.max_tasks_per_node = Some(number(value)),
            "--waited" => self.waited = value.parse().expect("seconds"),
            "--gpus-per-slot" => self.gpus = number(value),
            _ => panic!("no option: {name}"),
        }
    }
}

fn wish(text: &str) -> Arc<FeatureExpr> {
    Arc::new(FeatureExpr::wish(text).expect("features"))
}

fn number(text: &str) -> u32 {
    text.parse().expect("a number")
}

fn range(text: &str) -> (u32, u32) {
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    (number(least), number(most))
}
