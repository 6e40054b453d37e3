//! Comparison of usage and ranks with an independent implementation: random clusters, and a book computed
//! from their journals alone.

mod book;

use std::collections::BTreeMap;
use std::sync::Arc;

use book::Book;
use spur_chance::Chance;
use spur_core::cluster::{Cluster, Entry, Event, snapshot};
use spur_core::controller::command::{Report, Submission};
use spur_core::controller::{Command, Input, handle, timers};
use spur_core::id::{BlobId, JobId, NodeId};
use spur_core::model::accounts::ask::{self, Ask, Entity, Which, Word};
use spur_core::model::caller::{Caller, Owner};
use spur_core::model::config::{Config, PriorityFlag};
use spur_core::model::history::Seen;
use spur_core::model::job::{Batch, Job, JobSpec, MemoryNeed, Shape};
use spur_core::model::node::Registration;
use spur_core::model::phase::Phase;
use spur_core::model::step::StepNodeEnd;
use spur_core::sched::{Planner, present_priority};
use spur_core::text::exit::ExitCode;
use spur_core::text::time::{Time, TimeLimit};

const CONFIG: &str = r#"
cluster_name = "c"
[scheduler]
priority_weight_fairshare = 1000
priority_decay_half_life = "2h"
priority_calc_period = "5m"
[[nodes]]
names = "n[1-4]"
cpus = 8
memory_mb = 16000
gres = ["gpu:a100:4"]
[[partitions]]
name = "main"
nodes = "ALL"
default = true
[[partitions]]
name = "weighed"
nodes = "ALL"
tres_billing_weights = "CPU=0.3,Mem=0.25G,GRES/gpu=7"
"#;

/// A cluster with the journal that it has written.
struct World {
    cluster: Cluster,
    planner: Planner,
    journal: Vec<Arc<Entry>>,
    book: Book,
    /// The last priority of each pending job.
    priorities: BTreeMap<JobId, u32>,
    now: i64,
}

impl World {
    /// A cluster with accounts and users, and these settings of its priority in the section `[scheduler]`.
    fn new(settings: &str) -> Self {
        let cluster = Cluster::of_newest_level();
        let planner = Planner::new(&cluster);
        let mut world = Self {
            cluster,
            planner,
            journal: Vec::new(),
            book: Book::default(),
            priorities: BTreeMap::new(),
            now: 1_000_000_000,
        };
        let text = CONFIG.replace("[scheduler]\n", &format!("[scheduler]\n{settings}\n"));
        let policy = Config::parse(&text, "test").expect("a configuration").policy;
        world.command(Command::Reconfigure(Arc::new(policy)));
        world.input(Input::FileQos(Vec::new()));
        for index in 0..4 {
            let node = &world.cluster.nodes()[index];
            let (name, shape) = (Arc::clone(node.name()), Arc::clone(&node.shape));
            world.input(Input::Registered {
                name,
                registration: Arc::new(Registration { shape: (*shape).clone(), ..Registration::default() }),
                held: Vec::new(),
                reports: Vec::new(),
                seen: Seen::default(),
                connection: index as u64,
            });
        }
        for (names, text) in [("sci,arts", ""), ("phys,chem", "parent=sci fairshare=3")] {
            let set = ask::account_set(&words(text)).expect("settings");
            world.ask(Ask::AddAccounts(list(names), set));
        }
        for (users, text) in
            [("anna,ben", "account=phys fairshare=2"), ("carl", "account=chem"), ("dora", "account=arts")]
        {
            let add = ask::user_add(&words(text)).expect("settings");
            world.ask(Ask::AddUsers(list(users), add));
        }
        let qos = ask::qos_set(&words("usagefactor=0.5 flags=NoDecay")).expect("settings");
        world.ask(Ask::AddQos(list("half"), qos));
        world
    }

    fn input(&mut self, input: Input) -> bool {
        let outcome = handle(&mut self.cluster, 1, Time(self.now), input);
        for entry in &outcome.entries {
            self.planner.note(&self.cluster, &entry.event);
            self.book.apply(entry);
        }
        self.journal.extend(outcome.entries);
        outcome.answer.is_ok()
    }

    fn command(&mut self, command: Command) -> bool {
        let owner = Owner { uid: 0, gid: 0, user: "root".into(), group: "root".into() };
        let caller = Caller::new(Arc::new(owner), Arc::default(), true);
        self.input(Input::Command { caller, request: None, command })
    }

    fn ask(&mut self, ask: Ask) {
        let done = self.command(Command::ChangeAccounts { ask: Box::new(ask.clone()), shown: None });
        assert!(done, "{ask:?}");
    }

    /// Advances the time and handles the controller's timers.
    fn pass_time(&mut self, seconds: i64) {
        let until = self.now + seconds;
        while let Some(due) = timers::next_due(&self.cluster).filter(|due| due.0 <= until) {
            self.now = self.now.max(due.0);
            self.input(Input::Wakeup { due: Time(self.now) });
        }
        self.now = until;
    }

    fn submit(&mut self, chance: &mut Chance) {
        let users = ["anna", "ben", "carl", "dora", "eve", "fred", "root"];
        let user = users[pick(chance, users.len())];
        let accounts = [None, Some("phys"), Some("chem"), Some("arts"), Some("nowhere")];
        let owner = Owner { uid: 100, gid: 100, user: user.into(), group: "users".into() };
        let spec = JobSpec {
            name: "job".into(),
            owner: Arc::new(owner.clone()),
            account: accounts[pick(chance, accounts.len())].map(Into::into),
            qos: [None, Some("half".into())][pick(chance, 2)].clone(),
            partitions: [["main".into()], ["weighed".into()]][pick(chance, 2)].clone().into(),
            shape: Shape {
                tasks: Some(1 + chance.below(6) as u32),
                memory: Some(MemoryNeed::PerCpu(1 + chance.below(2_000))),
                gres: match chance.below(3) {
                    0 => vec!["gpu:2".parse().expect("devices")],
                    _ => Vec::new(),
                },
                ..Shape::default()
            },
            batch: Some(Box::new(Batch { command: "job.sh".into(), ..Batch::plain(BlobId(1), BlobId(2)) })),
            ..plain(&owner)
        };
        let time_limit = Some(TimeLimit::Seconds(600 + chance.below(20_000)));
        let submission = Submission { spec, time_limit, requeue: None, rest: Vec::new() };
        let caller = Caller::new(Arc::new(owner), Arc::default(), false);
        let command = Command::Submit(Box::new(submission));
        self.input(Input::Command { caller, request: None, command });
    }

    fn start(&mut self) {
        for start in self.planner.start_now(&self.cluster, Time(self.now)).starts {
            assert!(self.input(Input::Start(Box::new(start))), "nothing has changed since");
        }
    }

    /// Ends a running job's script, perhaps some time before its node can report it.
    fn end(&mut self, chance: &mut Chance, ago: i64) {
        let running = |job: &&Job| matches!(job.phase, Phase::Running { .. });
        let running: Vec<JobId> = self.cluster.jobs().iter().filter(running).map(|job| job.id).collect();
        let Some(id) = running.get(pick(chance, running.len().max(1))) else { return };
        let job = self.cluster.job(*id).expect("it runs");
        let (attempt, node) = (job.attempt(), job.phase.alloc().and_then(|alloc| alloc.batch_node()));
        let ended_ms = Some((self.now - ago) * 1_000 + 17);
        let end = StepNodeEnd { ended_ms, ..ExitCode::SUCCESS.into() };
        let report = Report::BatchEnded { end, lost: false, done: true };
        let node = node.unwrap_or(NodeId(0));
        self.input(Input::Report { node, id: 1, attempt, report });
    }

    fn suspend(&mut self, chance: &mut Chance) {
        let ids: Vec<JobId> = self.cluster.jobs().iter().map(|job| job.id).collect();
        if let Some(id) = ids.get(pick(chance, ids.len().max(1))) {
            let jobs = vec![id.to_string().parse().expect("a number")];
            let resume = matches!(self.cluster.job(*id).map(|job| &job.phase), Some(Phase::Suspended(_)));
            self.command(if resume { Command::Resume { jobs } } else { Command::Suspend { jobs } });
        }
    }

    fn change_tree(&mut self, chance: &mut Chance) {
        let which = |entity, text: &str| ask::which(entity, "c", &words(text)).expect("conditions");
        let modify = |text: &str, set: &str| {
            let set = ask::account_set(&words(set)).expect("settings");
            Ask::ModifyAccounts(which(Entity::Account, text), set)
        };
        let of_user = |text: &str, set: &str| {
            let set = ask::user_set(&words(set)).expect("settings");
            Ask::ModifyUsers(which(Entity::User, text), set)
        };
        let change = match chance.below(7) {
            0 => modify("phys", "parent=arts"),
            1 => modify("phys", "parent=sci"),
            2 => modify("chem", "rawusage=0"),
            3 => of_user("anna account=phys", ["rawusage=0", "rawusage=0 fairshare=4"][pick(chance, 2)]),
            4 => of_user(
                "ben account=phys",
                ["fairshare=0", "fairshare=parent", "fairshare=5"][pick(chance, 3)],
            ),
            5 => Ask::AddUsers(list("eve"), ask::user_add(&words("account=chem")).expect("settings")),
            _ => {
                let set = ask::qos_set(&words("rawusage=0")).expect("settings");
                Ask::ModifyQos(Which { names: ["half".into()].into(), ..Which::default() }, set)
            }
        };
        // A change to a value that is already set is refused.
        self.command(Command::ChangeAccounts { ask: Box::new(change), shown: None });
    }

    /// Compares the priorities of pending jobs with their last ones. With `INCR_ONLY`, none may be lower.
    fn check_priorities(&mut self, seed: u64) {
        let pending = self.cluster.jobs().pending();
        let priority = |job: &Job| present_priority(&self.cluster, job, Time(self.now));
        let now: BTreeMap<JobId, u32> = pending.map(|job| (job.id, priority(job))).collect();
        let falls = |(job, before): (&JobId, &u32)| now.get(job).is_some_and(|now| now < before);
        let fallen = self.priorities.iter().any(falls);
        let keeps = self.cluster.policy().scheduler.has_flag(PriorityFlag::IncrOnly);
        assert!(!(keeps && fallen), "seed {seed}: {:?} are now {now:?}", self.priorities);
        self.priorities = now;
    }

    fn check(&self, seed: u64) {
        let differences = self.book.differences(&self.cluster);
        assert!(differences.is_empty(), "seed {seed}, at {}:\n{}", self.now, differences.join("\n"));
    }
}

fn plain(owner: &Owner) -> JobSpec {
    let text = serde_json::json!({
        "name": "job", "owner": owner, "partitions": [], "time_limit": "UNLIMITED", "requeue": true
    });
    serde_json::from_value(text).expect("a request")
}

fn words(text: &str) -> Vec<Word> {
    text.split_whitespace().map(Word::read).collect()
}

fn list(names: &str) -> Vec<Arc<str>> {
    names.split(',').map(Arc::from).collect()
}

fn pick(chance: &mut Chance, of: usize) -> usize {
    usize::try_from(chance.below(of as u64)).expect("small")
}

/// Compares the records of two clusters and fails with the first record that differs.
fn same(one: &[snapshot::Record], other: &[snapshot::Record], seed: u64) {
    for (own, theirs) in one.iter().zip(other) {
        assert_eq!(own, theirs, "seed {seed}");
    }
    assert_eq!(one.len(), other.len(), "seed {seed}");
}

#[test]
fn usage_and_ranks_are_those_of_an_independent_book() {
    for seed in 0..20 {
        let mut chance = Chance::new(seed);
        let settings = [
            "",
            "priority_flags = [\"NO_FAIR_TREE\"]",
            "priority_flags = [\"DEPTH_OBLIVIOUS\"]\nfair_share_dampening_factor = 3",
            "priority_flags = [\"INCR_ONLY\"]\npriority_weight_age = 100000",
        ];
        let mut world = World::new(settings[seed as usize % settings.len()]);
        for _ in 0..120 {
            match chance.below(12) {
                0..=3 => world.submit(&mut chance),
                4..=5 => {
                    let ago = [0, 0, 40, 700][pick(&mut chance, 4)];
                    world.end(&mut chance, ago);
                }
                6 => world.suspend(&mut chance),
                7 => world.change_tree(&mut chance),
                8 => world.pass_time(100_000),
                _ => {
                    let seconds = 1 + i64::try_from(chance.below(900)).expect("small");
                    world.pass_time(seconds);
                }
            }
            world.start();
            world.check(seed);
            world.check_priorities(seed);
        }
        let keeps = world.cluster.policy().scheduler.has_flag(PriorityFlag::IncrOnly);
        let kept = |entry: &Arc<Entry>| matches!(entry.event, Event::PrioritiesKept { .. });
        assert_eq!(world.journal.iter().any(kept), keeps, "seed {seed}");
        assert!(world.book.has_counted(), "seed {seed}: nothing ran");
        // A replay of the journal gives the same usage, and so does a snapshot.
        let mut replayed = Cluster::of_newest_level();
        world.journal.iter().for_each(|entry| replayed.apply(entry));
        let records = |cluster: &Cluster| snapshot::records(cluster).collect::<Vec<_>>();
        same(&records(&replayed), &records(&world.cluster), seed);
        let mut restore = snapshot::Restore::default();
        for record in records(&world.cluster) {
            let text = serde_json::to_string(&record).expect("a record");
            restore.push(serde_json::from_str(&text).expect("the same record"));
        }
        let restored = restore.finish();
        let usage = |cluster: &Cluster| -> Vec<snapshot::Record> {
            records(cluster)
                .into_iter()
                .filter(|record| matches!(record, snapshot::Record::Usage(_)))
                .collect()
        };
        same(&usage(&restored), &usage(&world.cluster), seed);
        assert_eq!(*restored.fair_shares(), *world.cluster.fair_shares(), "seed {seed}");
    }
}
