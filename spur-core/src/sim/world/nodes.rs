//! Calls of the controller, which are made only here, and the virtual nodes that carry out its effects.

use std::sync::Arc;

use super::{EPOCH, Watch, World};
use crate::cluster;
use crate::controller::command::Report;
use crate::controller::{self, Command, Effect, Input, Reject, Reply};
use crate::id::NodeId;
use crate::model::accounts::ask::Ask;
use crate::model::caller::{Caller, Owner};
use crate::model::config::{JobPolicy, Policy};
use crate::model::fabric_report::FabricReport;
use crate::model::history::Seen;
use crate::model::node::{NodeShape, Registration};
use crate::sim::fragmentation::{Fewest, Fragmentation};

impl<W: Watch> World<W> {
    pub(super) fn put_in_force(&mut self, policy: Arc<Policy>) -> Result<(), Reject> {
        // A simulation has no process to run the site's programs.
        let jobs = JobPolicy { prolog_slurmctld: None, epilog_slurmctld: None, ..policy.jobs.clone() };
        let policy = Arc::new(Policy { jobs, ..Policy::clone(&policy) });
        self.command(operator_caller(), Command::Reconfigure(policy))?;
        let fresh = |node: &&cluster::Node| node.configured && !self.registered.contains(&node.id);
        let fresh: Vec<NodeId> = self.cluster.nodes().iter().filter(fresh).map(|node| node.id).collect();
        for node in fresh {
            self.registered.insert(node);
            self.register(node);
        }
        let configured = self.cluster.nodes().iter().filter(|node| node.configured);
        self.cpus = configured.map(|node| u64::from(node.shape.cpus)).sum();
        self.tally.set_cpus(self.cpus);
        self.take_measure();
        Ok(())
    }

    /// Begins the policy tree with what these requests add to it.
    ///
    /// # Errors
    /// The first request that is refused.
    pub fn begin_accounts(&mut self, asks: Vec<Ask>) -> Result<(), Reject> {
        self.input(Input::FileQos(Vec::new()))?;
        asks.into_iter().try_for_each(|ask| self.change_accounts(ask).map(drop))
    }

    /// An administrator changes the policy tree. Returns the lines that `sacctmgr` prints.
    ///
    /// # Errors
    /// The refusal.
    pub fn change_accounts(&mut self, ask: Ask) -> Result<Vec<String>, Reject> {
        let command = Command::ChangeAccounts { ask: Box::new(ask), shown: None };
        match self.command(operator_caller(), command)? {
            Reply::AccountsChanged { lines } => Ok(lines),
            _ => Ok(Vec::new()),
        }
    }

    /// Recomputes `fewest` and `fragmentation`, by which placements and the rest of the fabric are judged.
    pub(super) fn take_measure(&mut self) {
        let partition = self.cluster.default_partition().or_else(|| self.cluster.partitions().first());
        let fabric = partition.and_then(|partition| self.cluster.fabric_of(partition)).cloned();
        self.fewest = fabric.as_ref().map(|fabric| Arc::new(Fewest::new(fabric)));
        self.fragmentation = fabric.map(|fabric| Fragmentation::new(fabric, &self.cluster));
    }

    /// Registers a node, with the shape from the configuration and no earlier jobs.
    pub(super) fn register(&mut self, id: NodeId) {
        let Some(node) = self.cluster.node(id) else { return };
        self.said += 1;
        let said = &node.config.shape;
        let registration = Registration {
            // Features come from the configuration only, so that an operator may remove them.
            shape: NodeShape { cpus: said.cpus.max(1), features: Vec::new(), ..said.clone() },
            boot_id: format!("boot {}", self.said).into(),
            spool_id: "spool".into(),
            address: node.name().as_ref().into(),
            hostname: Arc::clone(node.name()),
            version: env!("CARGO_PKG_VERSION").into(),
            arch: "virtual".into(),
            os: "virtual".into(),
            booted: self.now,
            started: self.now,
            peer: Arc::default(),
            containment: Arc::default(),
            fault: Arc::default(),
            fabric: FabricReport::default(),
        };
        let name = Arc::clone(node.name());
        let registration = Arc::new(registration);
        let answer = self.input(Input::Registered {
            name,
            registration,
            held: Vec::new(),
            reports: Vec::new(),
            seen: Seen::default(),
            connection: 0,
        });
        debug_assert!(answer.is_ok(), "a configured node may register");
    }

    pub(super) fn command(&mut self, caller: Caller, mut command: Command) -> Result<Reply, Reject> {
        self.over.look_up(&self.cluster, &mut command);
        self.input(Input::Command { caller, request: None, command })
    }

    /// Passes an input to the controller, and then all reports that nodes make in consequence.
    pub(super) fn input(&mut self, input: Input) -> Result<Reply, Reject> {
        let answer = self.handle(input);
        self.listen();
        answer
    }

    pub(super) fn listen(&mut self) {
        while let Some((node, attempt, report)) = self.reports.pop_front() {
            self.said += 1;
            // A report about an attempt that is over changes nothing.
            let _ = self.handle(Input::Report { node, id: self.said, attempt, report });
        }
    }

    /// Passes an input to the controller, and handles its entries and effects.
    fn handle(&mut self, input: Input) -> Result<Reply, Reject> {
        let outcome = controller::handle(&mut self.cluster, EPOCH, self.now, input);
        for entry in &outcome.entries {
            self.note(&entry.event);
        }
        for effect in outcome.effects {
            self.obey(&effect);
        }
        outcome.answer
    }

    /// Carries out an effect on a node immediately, unless the node is dead.
    fn obey(&mut self, effect: &Effect) {
        match effect {
            Effect::Launch { node, attempt } if !self.dead.contains(node) => {
                let run_time = self.truth.run_time(attempt.job);
                if let Some(live) = self.live.get_mut(&attempt.job) {
                    live.ends = run_time.map(|seconds| live.started + seconds);
                    self.ends.extend(live.ends.map(|at| ((at, live.order), attempt.job)));
                }
            }
            Effect::Terminate { node, attempt, .. } if !self.dead.contains(node) => {
                self.reports.push_back((*node, *attempt, Report::NodeDone { epilog_error: None }));
            }
            Effect::Open { .. }
            | Effect::Launch { .. }
            | Effect::Terminate { .. }
            | Effect::Suspend { .. }
            | Effect::EndStep { .. }
            | Effect::Signal { .. }
            | Effect::Tell { .. }
            | Effect::Reboot { .. }
            | Effect::Power { .. }
            | Effect::Acknowledge { .. }
            | Effect::Forget { .. }
            | Effect::StepsChanged { .. }
            | Effect::Program { .. }
            | Effect::Mail { .. } => {}
        }
    }
}

pub(super) fn operator_caller() -> Caller {
    let owner = Owner { uid: 0, gid: 0, user: "root".into(), group: "root".into() };
    Caller::new(Arc::new(owner), Arc::default(), true)
}
