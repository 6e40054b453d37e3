//! The language of the scripts: a cluster, its running and pending jobs, and the result of each `plan`.
//!
//! ```text
//! node n[0-3] cpus=8 mem=16000 gres=gpu:4 features=ib
//! partition main n[0-3] exclusive tier=2
//! topology plugin = "tree" …            (TOML; further lines begin with |)
//! scheduler backfill = "easy"           (TOML, likewise)
//! preempt by = "partition"              (TOML, likewise)
//! qos name = "high"                     (TOML, likewise)
//! limit user a MaxJobs=1                (of an account `x`, a user or a QOS; enforced from then on)
//! run 1 n[0-1] limit=600 cpus=4 (cpus left out: whole nodes; partition=low qos=low user=a no-preempt)
//! job 2 -N 2 -t 600 -n 4 …
//! reserve r n[2-3] from=600 to=1200 flags=MAINT users=alice  (licenses=x:2; no nodes: `-`)
//! at 60 end 1
//! plan
//! ----
//! start 2 n[0-1] | 2 nodes
//! ```
//!
//! Other commands: `expire`, `check OPTIONS`, `foretell JOB`, `foretell-first NUMBER`, `start-now`, `next`,
//! `next-plan`, `hold JOB`, `down NODES`, `drain NODES`, `close PARTITION`.

use std::sync::Arc;

use spur_core::cluster::event::Event;
use spur_core::id::JobId;
use spur_core::model::config::{
    AccountingEnforce, Oversubscribe, PartitionConfig, PartitionState, Policy, PreemptMode,
};
use spur_core::model::job::{FabricAsk, JobSpec, MemoryNeed, Shape, Sharing};
use spur_core::model::node::{Drain, NodeGres, NodeShape};
use spur_core::model::phase::Hold;
use spur_core::model::reservation::{Edit, Flag, ReservationAsk};
use spur_core::sched::forecast::Limits;
use spur_core::sched::plan::Plan;
use spur_core::sched::{self, Planner};
use spur_core::text::features::FeatureExpr;
use spur_core::text::gres::{GresList, GresSpec};
use spur_core::text::hostlist::HostList;
use spur_core::text::nodes::NodeCount;
use spur_core::text::time::{Seconds, Time};

use crate::limits;
use crate::world::{self, World};

/// Runs a script and returns it with the present results.
pub(crate) fn run(text: &str) -> String {
    let mut script = Script::default();
    let mut out = String::new();
    let mut in_result = false;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if in_result {
            in_result = !line.is_empty();
            if in_result {
                continue;
            }
        }
        out.push_str(line);
        out.push('\n');
        let mut command = line.to_owned();
        while let Some(more) = lines.peek().and_then(|next| next.strip_prefix('|')) {
            out.push_str(lines.peek().expect("just peeked"));
            out.push('\n');
            command.push('\n');
            command.push_str(more.trim());
            lines.next();
        }
        if line == "----" {
            out.push_str(&std::mem::take(&mut script.result));
            in_result = true;
        } else if !line.is_empty() && !line.starts_with('#') {
            script.command(&command);
        }
    }
    out
}

#[derive(Default)]
struct Script {
    policy: Policy,
    world: Option<World>,
    planner: Option<Planner>,
    result: String,
}

impl Script {
    fn command(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<&str> = rest.split_whitespace().collect();
        match word {
            "node" => self.node(&words),
            "partition" => self.partition(&words),
            "license" => {
                let count = words[1].parse().expect("a number");
                self.policy.licenses.push((words[0].into(), count));
            }
            "topology" => self.policy.topologies.push(world::topology(rest)),
            "scheduler" => self.policy.scheduler = toml::from_str(rest).expect("a scheduler"),
            "preempt" => self.policy.preempt = toml::from_str(rest).expect("a preemption policy"),
            "qos" => self.policy.qos.push(toml::from_str(rest).expect("a QOS")),
            "limit" => {
                self.policy.jobs.accounting_enforce = vec![AccountingEnforce::Limits];
                limits::set(self.world(), rest);
            }
            "run" => self.put(&words),
            "job" => {
                let spec = spec(&words[1..]);
                self.world().submit(id(words[0]), spec);
            }
            "at" => {
                self.world().now = Time(words[0].parse().expect("seconds"));
                if words.len() > 1 {
                    self.command(&words[1..].join(" "));
                }
            }
            "end" => self.world().end(id(words[0])),
            "reserve" => self.reserve(&words),
            "expire" => self.world().expire(),
            "hold" => self.world().apply(Event::JobHeld { job: id(words[0]), by: Hold::User }),
            "down" | "drain" => self.take_out(word, words[0]),
            "close" => {
                let state = PartitionState::Down;
                self.world().apply(Event::PartitionSet { partition: words[0].into(), state });
            }
            "plan" => self.plan(),
            "check" => self.result = self.feasible(&spec(&words)),
            "foretell" => {
                let world = self.world().clone();
                let job = id(words[0]);
                let mut plan = sched::foretell(&world.cluster, world.now, &Limits, job);
                plan.starts.retain(|start| start.attempt.job == job);
                plan.waiting.retain(|waiting| waiting.job == job);
                plan.promise = None;
                self.result = show(&world, &plan);
            }
            "foretell-first" => {
                let world = self.world().clone();
                let count = words[0].parse().expect("a number");
                let plan = sched::foretell_first(&world.cluster, world.now, &Limits, count);
                self.result = show(&world, &Plan { promise: None, ..plan });
            }
            "start-now" => self.start_now(),
            "next-plan" => {
                let world = self.world().clone();
                let planner = self.planner.get_or_insert_with(|| Planner::new(&world.cluster));
                let next = planner.next_event_time(&world.cluster, world.now);
                self.result = next.map_or("never\n".to_owned(), |time| format!("{}\n", time.0));
            }
            "next" => {
                let now = self.world().now;
                let next = sched::next_event_time(&self.world().cluster, now);
                self.result = next.map_or("never\n".to_owned(), |time| format!("{}\n", time.0));
            }
            other => panic!("{other}: no such command"),
        }
    }

    /// Says whether a request can ever be honoured.
    fn feasible(&mut self, spec: &JobSpec) -> String {
        match sched::feasible::check(&self.world().cluster, spec) {
            Ok(warnings) => format!("ok {}\n", warnings.join("; ")),
            Err(refusal) => format!("{:?}: {}\n", refusal.kind, refusal.message),
        }
    }

    fn world(&mut self) -> &mut World {
        let policy = &self.policy;
        self.world.get_or_insert_with(|| World::new(policy.clone()))
    }

    fn node(&mut self, words: &[&str]) {
        let mut shape = NodeShape { threads_per_core: 1, ..NodeShape::default() };
        let mut weight = 1;
        for (key, value) in words[1..].iter().filter_map(|word| word.split_once('=')) {
            match key {
                "cpus" => shape.cpus = value.parse().expect("a number"),
                "sockets" => shape.sockets = value.parse().expect("a number"),
                "cores" => shape.cores_per_socket = value.parse().expect("a number"),
                "threads" => shape.threads_per_core = value.parse().expect("a number"),
                "mem" => shape.memory_mb = value.parse().expect("a number"),
                "weight" => weight = value.parse().expect("a number"),
                "features" => shape.features = value.split(',').map(Arc::from).collect(),
                "gres" => shape.gres = value.parse::<GresList>().expect("gres").0.iter().map(gres).collect(),
                other => panic!("{other}: no such key"),
            }
        }
        for name in words[0].parse::<HostList>().expect("a hostlist").iter() {
            self.policy.nodes.push(world::node(&name, shape.clone(), weight));
        }
    }

    fn partition(&mut self, words: &[&str]) {
        let names: HostList = words[1].parse().expect("a hostlist");
        let nodes = names.iter().map(|name| Arc::from(name.as_str())).collect();
        let mut partition: PartitionConfig = world::partition(words[0], nodes);
        for word in &words[2..] {
            match word.split_once('=').unwrap_or((word, "")) {
                ("exclusive", _) => partition.oversubscribe = Oversubscribe::Exclusive,
                ("spared", _) => partition.preempt_mode = Some(PreemptMode::Off),
                ("grace", seconds) => {
                    partition.grace_time = Some(Seconds(seconds.parse().expect("a number")));
                }
                ("max_cpus_per_node", count) => partition.max_cpus_per_node = count.parse().ok(),
                ("max_cpus_per_socket", count) => partition.max_cpus_per_socket = count.parse().ok(),
                ("max_nodes", count) => partition.max_nodes = Some(count.parse().expect("a number")),
                ("min_nodes", count) => partition.min_nodes = count.parse().expect("a number"),
                ("max_time", time) => partition.max_time = time.parse().expect("a time"),
                ("allow_accounts", names) => {
                    partition.allow_accounts = names.split(',').map(Arc::from).collect();
                }
                ("allow_qos", names) => partition.allow_qos = names.split(',').map(Arc::from).collect(),
                ("deny_qos", names) => partition.deny_qos = names.split(',').map(Arc::from).collect(),
                ("qos", name) => partition.qos = Some(name.into()),
                ("tier", tier) => partition.priority_tier = tier.parse().expect("a number"),
                ("def_mem_per_cpu", memory) => partition.def_mem_per_cpu = memory.parse().ok(),
                (other, _) => panic!("{other}: no such key"),
            }
        }
        self.policy.partitions.push(partition);
    }

    fn put(&mut self, words: &[&str]) {
        let (mut limit, mut cpus, mut partition, mut qos) = (3600, 0, None, None);
        let mut user: Arc<str> = "user".into();
        for (key, value) in words[2..].iter().filter_map(|word| word.split_once('=')) {
            match key {
                "partition" => partition = Some(Arc::from(value)),
                "qos" => qos = Some(Arc::from(value)),
                "user" => user = Arc::from(value),
                "limit" => limit = value.parse().expect("seconds"),
                "cpus" => cpus = value.parse().expect("a number"),
                other => panic!("{other}: no such key"),
            }
        }
        let nodes = self.world().ids(words[1]);
        let mut spec = JobSpec { qos, ..world::spec(Shape::default(), limit) };
        spec.partitions = partition.map_or(spec.partitions, |partition| Box::from([partition]));
        Arc::make_mut(&mut spec.owner).user = user;
        if words.contains(&"no-preempt") {
            spec.extra.get_or_insert_default().no_preempt = true;
        }
        self.world().submit(id(words[0]), spec);
        self.world().put(id(words[0]), &nodes, cpus);
    }

    fn reserve(&mut self, words: &[&str]) {
        let mut ask = ReservationAsk::default();
        let (mut from, mut to) = (Time::ZERO, Time::MAX);
        for (key, value) in words[2..].iter().filter_map(|word| word.split_once('=')) {
            match key {
                "from" => from = Time(value.parse().expect("seconds")),
                "to" => to = Time(value.parse().expect("seconds")),
                key => ask.take(key, value).expect("a key of a reservation"),
            }
        }
        let Some(Edit::Set(flags)) = ask.flags.or(Some(Edit::Set(Vec::new()))) else {
            panic!("flags are set")
        };
        let nodes = if words[1] == "-" { Vec::new() } else { self.world().ids(words[1]) };
        let mut reservation = world::reservation(words[0], nodes, from, to, &flags);
        reservation.licenses = ask.licenses.unwrap_or_default();
        if let Some(Edit::Set(users)) = ask.users {
            reservation.users = users;
        }
        if reservation.has(Flag::TimeFloat) {
            reservation = reservation.floating(self.world().now);
        }
        self.world().apply(Event::ReservationCreated { reservation: Arc::new(reservation) });
    }

    fn take_out(&mut self, how: &str, names: &str) {
        let world = self.world();
        for node in world.ids(names) {
            let at = world.now;
            let drain = Drain { reason: "test".into(), by: "root".into(), at, until_mended: false };
            world.apply(if how == "down" {
                Event::NodeDowned { node, reason: "test".into(), silent: true, by: None }
            } else {
                Event::NodeDrained { node, drain }
            });
        }
    }

    /// Makes a deep pass and carries out its starts.
    fn plan(&mut self) {
        let world = self.world().clone();
        let plan = sched::plan(&world.cluster, world.now, &Limits);
        let planner = self.planner.get_or_insert_with(|| Planner::new(&world.cluster));
        let pass = planner.begin(&world.cluster, world.now);
        assert_eq!(planner.finish(pass), plan, "a pass in slices is the same plan");
        self.show(&plan);
    }

    fn start_now(&mut self) {
        let world = self.world().clone();
        let planner = self.planner.get_or_insert_with(|| Planner::new(&world.cluster));
        let plan = planner.start_now(&world.cluster, world.now);
        let reserved = planner.reservations().iter().map(|made| {
            let nodes = world.cluster.names_of(made.amounts().map(|(node, _)| node));
            format!("reserve {} {} {}\n", made.job, HostList::from_names(nodes), made.start.0)
        });
        let reserved: String = reserved.collect();
        self.show(&plan);
        self.result += &reserved;
    }

    fn show(&mut self, plan: &Plan) {
        self.result = show(self.world.as_ref().expect("there is a world"), plan);
        for start in &plan.starts {
            self.world().start(start);
        }
        for preemption in &plan.preemptions {
            self.world().preempt(preemption, 0);
        }
    }
}

fn show(world: &World, plan: &Plan) -> String {
    use std::fmt::Write;
    let names = |ids: &mut dyn Iterator<Item = spur_core::id::NodeId>| {
        HostList::from_names(world.cluster.names_of(ids)).to_string()
    };
    let mut out = String::new();
    for start in &plan.starts {
        let nodes = names(&mut start.parts.iter().map(|part| part.node));
        let task = start.task.map_or_else(String::new, |task| format!("_{task}"));
        write!(out, "start {}{task} {nodes}", start.attempt.job).unwrap();
        let first = &start.parts[0];
        if start.parts.iter().any(|part| part.tasks != 1) {
            let tasks: Vec<String> = start.parts.iter().map(|part| part.tasks.to_string()).collect();
            write!(out, " tasks={}", tasks.join(",")).unwrap();
        }
        start.reservation.iter().for_each(|name| write!(out, " in {name}").unwrap());
        let limit = start.time_limit.and_then(|limit| limit.seconds());
        limit.iter().for_each(|limit| write!(out, " limit={limit}").unwrap());
        if !start.exclusive {
            write!(out, " cpus={}", first.cpus).unwrap();
        }
        if first.memory_mb > 0 {
            write!(out, " mem={}", first.memory_mb).unwrap();
        }
        first.gres.iter().for_each(|(entry, count)| write!(out, " gres{entry}={count}").unwrap());
        if start.why.backfilled {
            out.push_str(" backfilled");
        }
        start.why.relaxed.iter().for_each(|relaxed| write!(out, " relaxed {relaxed}").unwrap());
        writeln!(out, " | {}", start.why.sentence).unwrap();
    }
    for preemption in &plan.preemptions {
        let list = |jobs: &[JobId]| jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let victims: Vec<JobId> = preemption.victims.iter().map(|victim| victim.job).collect();
        let start = &preemption.start;
        let nodes = names(&mut start.parts.iter().map(|part| part.node));
        write!(out, "preempt {} for {} {nodes}", list(&victims), start.attempt.job).unwrap();
        if !preemption.displaces.is_empty() {
            write!(out, " displaces {}", list(&preemption.displaces)).unwrap();
        }
        writeln!(out, " | {}", start.why.sentence).unwrap();
    }
    for waiting in &plan.waiting {
        let sentence = waiting.sentence(|time| time.0.to_string());
        let nodes = names(&mut waiting.nodes.iter().copied());
        let gap = if nodes.is_empty() { "" } else { " " };
        writeln!(out, "wait {} {}{gap}{nodes} | {sentence}", waiting.job, waiting.reason).unwrap();
    }
    if let Some((job, start)) = plan.promise {
        writeln!(out, "promise {job} {}", start.0).unwrap();
    }
    out
}

fn id(word: &str) -> JobId {
    word.parse().expect("a job's number")
}

fn gres(spec: &GresSpec) -> NodeGres {
    let kind = spec.kind.as_deref().unwrap_or("").into();
    NodeGres { name: spec.name.as_str().into(), kind, count: u32::try_from(spec.count).unwrap() }
}

/// Reads the options that scripts use. Times are in seconds.
pub(crate) fn spec(words: &[&str]) -> JobSpec {
    let mut spec = world::spec(Shape::default(), 3600);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let (key, value) = word.split_once('=').map_or((*word, None), |(key, value)| (key, Some(value)));
        let flag = ["--exclusive", "--contiguous", "--hold", "--use-min-nodes"].contains(&key);
        let value =
            if flag { value.unwrap_or("") } else { value.or_else(|| rest.next().copied()).expect("a value") };
        let shape = &mut spec.shape;
        match key {
            "-N" => shape.nodes = Some(value.parse::<NodeCount>().expect("nodes")),
            "-n" => shape.tasks = value.parse().ok(),
            "-c" => shape.cpus_per_task = value.parse().ok(),
            "-t" => spec.time_limit = spur_core::text::time::TimeLimit::Seconds(value.parse().unwrap()),
            "--time-min" => {
                spec.time_min = Some(spur_core::text::time::TimeLimit::Seconds(value.parse().unwrap()));
            }
            "-p" => spec.partitions = value.split(',').map(Arc::from).collect(),
            "-q" => spec.qos = Some(value.into()),
            "-C" => shape.features = Some(Box::new(value.parse().expect("features"))),
            "-w" => shape.nodelist = Some(Box::new(value.parse().expect("nodes"))),
            "-x" => shape.exclude = Some(Box::new(value.parse().expect("nodes"))),
            "--ntasks-per-node" => shape.tasks_per_node = value.parse().ok(),
            "--mem" => shape.memory = Some(MemoryNeed::PerNode(value.parse().unwrap())),
            "--mem-per-cpu" => shape.memory = Some(MemoryNeed::PerCpu(value.parse().unwrap())),
            "--mem-per-gpu" => shape.cores.get_or_insert_default().memory_per_gpu = value.parse().ok(),
            "--threads-per-core" => {
                shape.cores.get_or_insert_default().threads_per_core = value.parse().ok();
            }
            "--mincpus" => shape.min_cpus = value.parse().unwrap(),
            "--gres" => shape.gres = value.parse::<GresList>().expect("gres").0,
            "--gpus" => shape.gpus = GresList::parse_gpus(value).expect("gpus").0,
            "--gpus-per-task" => shape.gpus_per_task = GresList::parse_gpus(value).expect("gpus").0,
            "--use-min-nodes" => shape.use_min_nodes = true,
            "--exclusive" if value == "topo" => shape.sharing = Sharing::Topo,
            "--exclusive" => shape.sharing = Sharing::Exclusive,
            "-L" => {
                let (name, count) = value.split_once(':').unwrap_or((value, "1"));
                let count = count.parse().expect("a number");
                spec.extra.get_or_insert_default().licenses.push((name.into(), count));
            }
            "--array" => spec.array = Some(Box::new(value.parse().expect("tasks"))),
            "--deadline" => spec.deadline = Some(Time(value.parse().unwrap())),
            "--begin" => spec.begin = Some(Time(value.parse().unwrap())),
            "--reservation" => spec.extra.get_or_insert_default().reservation = Some(value.into()),
            "--hold" => spec.hold = true,
            "--nice" => spec.nice = value.parse().expect("a number"),
            "--priority" => spec.priority = value.parse().ok(),
            "--user" => {
                let owner = Arc::make_mut(&mut spec.owner);
                owner.user = value.into();
                owner.uid = value.bytes().map(u32::from).sum();
            }
            "--dependency" => spec.dependency = Some(Box::new(dependency(value))),
            _ => fabric(spec.fabric.get_or_insert_default(), key, value),
        }
    }
    spec
}

fn dependency(value: &str) -> spur_core::text::dependency::Dependency<JobId> {
    let read: spur_core::text::dependency::Dependency = value.parse().expect("a dependency");
    read.map_jobs(|job| job.parse::<JobId>()).expect("job numbers")
}

fn fabric(ask: &mut FabricAsk, key: &str, value: &str) {
    match key {
        "--gather-with" => ask.gather_with = Some(id(value)),
        "--gather" => ask.gather = Some(value.parse().expect("a gather list")),
        "--switches" => ask.switches = Some(value.parse().expect("switches")),
        "--topology" => ask.topology = Some(value.into()),
        "--placement" => ask.placement = Some(value.parse().expect("a placement")),
        "--contiguous" => ask.contiguous = true,
        "--segment" => ask.segment = value.parse().ok(),
        "--network" => ask.network = Some(value.parse().expect("a network")),
        "--prefer" => ask.prefer = Some(Arc::new(FeatureExpr::wish(value).expect("features"))),
        other => panic!("{other}: no such option"),
    }
}
