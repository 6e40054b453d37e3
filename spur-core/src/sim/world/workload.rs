//! Actions of a workload: submissions and requests of users, commands of operators, and failures of nodes.

use std::sync::Arc;

use super::nodes::operator_caller;
use super::{EPOCH, NodeState, Watch, World};
use crate::cluster::Cluster;
use crate::controller::command::{NodeChange, NodeStateChange, Submission};
use crate::controller::{self, Command, Input, Reject, Reply};
use crate::id::{JobId, NodeId};
use crate::model::caller::{Caller, Owner};
use crate::model::config::Policy;
use crate::sched;
use crate::sched::defrag::{self, Defragmentation, MovePlan};
use crate::sim::event::What;
use crate::sim::foresight::Foresight;
use crate::text::jobid::JobRef;

impl<W: Watch> World<W> {
    /// Submits a job that would run for `run_time` seconds; `None` if it never ends. A refusal is reported as
    /// an event.
    pub fn submit(
        &mut self,
        name: Arc<str>,
        owner: Arc<Owner>,
        submission: Submission,
        run_time: Option<u64>,
    ) {
        self.vain = 0;
        self.release_planned();
        let tasks = submission.spec.array.as_ref().map_or(1, |array| array.tasks.len());
        self.tally.submitted(self.now);
        let job = self.cluster.next_job();
        for job in (job.0..).take(submission.rest.len() + 1).map(JobId) {
            self.truth.learn(job, run_time);
            self.names.set(job, &name);
        }
        let command = Command::Submit(Box::new(submission));
        match self.command(Caller::new(owner, Arc::default(), false), command) {
            Ok(Reply::Submitted { job, warnings }) => {
                if self.forgotten.is_none() {
                    self.numbers.insert(Arc::clone(&name), job);
                }
                (1..tasks).for_each(|_| self.tally.submitted(self.now));
                self.accepted(&name, job, &warnings);
            }
            Ok(_) => {}
            Err(reject) => self.refused(name, reject.to_string()),
        }
        self.happened();
    }

    /// Records the event of an accepted job; for a het job, one event for each component.
    fn accepted(&mut self, name: &Arc<str>, leader: JobId, warnings: &[String]) {
        for job in self.cluster.jobs().components(leader) {
            if let Some(het) = self.cluster.job(job).and_then(|job| job.spec.het.as_deref()) {
                self.record.set_component(job, het.offset);
            }
            let warnings = if job == leader { warnings.to_vec() } else { Vec::new() };
            self.tell(job, || What::Submit { job: Arc::clone(name), jobid: job.0, warnings });
        }
    }

    /// Counts and reports a job that could not be read as a request.
    pub fn refuse(&mut self, name: Arc<str>, error: String) {
        self.tally.submitted(self.now);
        self.refused(name, error);
    }

    fn refused(&mut self, name: Arc<str>, error: String) {
        self.tally.rejected += 1;
        let next = self.cluster.next_job();
        self.tell(next, || What::Reject { job: name, error });
    }

    /// Records the expected start of a job that is not submitted.
    pub fn test(&mut self, name: Arc<str>, owner: Arc<Owner>, submission: Submission) {
        let next = self.cluster.next_job();
        if self.watch.wants_events() {
            let what = self.foresee(owner, submission).test(name);
            self.record.add(next, what);
        }
        self.happened();
    }

    /// Expected start of a job if it were submitted now without a hold, and every pending job had a
    /// reservation.
    pub fn foresee(&self, owner: Arc<Owner>, mut submission: Submission) -> Foresight {
        let begin = submission.released();
        self.over.look_up_all(&self.cluster, &mut submission);
        let mut trial = self.cluster.clone();
        let job = trial.next_job();
        let caller = Caller::new(owner, Arc::default(), false);
        let command = Command::Submit(Box::new(submission));
        let input = Input::Command { caller, request: None, command };
        let warnings = match controller::handle(&mut trial, EPOCH, self.now, input).answer {
            Ok(Reply::Submitted { warnings, .. }) => warnings,
            Ok(_) => Vec::new(),
            Err(reject) => return Foresight::refused(&reject),
        };
        let remembered = self.planner.remembered(&self.cluster);
        let plan = sched::foretell_from(&trial, self.now, &self.truth, job, begin, Some(&remembered));
        Foresight { warnings, ..Foresight::of(&trial, &plan, self.now, job) }
    }

    /// The moves that let a request, or a waiting job, start in one domain. With neither, a large waiting job
    /// is chosen. Returns the cluster with the request in it.
    ///
    /// # Errors
    /// The reason for which the request is refused, or no moves can be looked for.
    pub fn defragment(
        &self,
        request: Option<(Arc<Owner>, Submission)>,
        job: Option<JobId>,
    ) -> Result<(Cluster, Defragmentation), String> {
        let (mut cluster, mut job) = (self.cluster.clone(), job);
        if let Some((owner, mut submission)) = request {
            submission.released();
            self.over.look_up_all(&cluster, &mut submission);
            job = Some(cluster.next_job());
            let caller = Caller::new(owner, Arc::default(), false);
            let command = Command::Submit(Box::new(submission));
            let input = Input::Command { caller, request: None, command };
            controller::handle(&mut cluster, EPOCH, self.now, input)
                .answer
                .map_err(|reject| reject.to_string())?;
        }
        let remembered = self.planner.remembered(&self.cluster);
        let found = defrag::defragment(&cluster, self.now, job, Some(&remembered));
        found.map(|found| (cluster, found)).map_err(|why| why.to_string())
    }

    /// Makes the moves of a plan as an operator, one after another, and keeps the domain for a job that
    /// waits. Returns the number of moves that were begun, and the reason for which no more were.
    pub fn make_moves(&mut self, plan: &MovePlan, waits: bool) -> (u32, String) {
        let mut made = 0;
        for moved in &plan.moves {
            let command = Command::Move(Box::new(moved.start.clone()));
            if let Err(reject) = self.command(operator_caller(), command) {
                return (made, reject.to_string());
            }
            made += 1;
        }
        let kept = if waits { self.input(Input::Preempt(Box::new(plan.nomination()))).err() } else { None };
        self.happened();
        let problem = |reject| format!("the domain is not kept for the request: {reject}");
        (made, kept.map(problem).unwrap_or_default())
    }

    /// An operator cancels a job, an array or some of its tasks.
    ///
    /// # Errors
    /// The [`Reject`] of the controller, e.g. for a job that is over.
    pub fn cancel(&mut self, job: JobRef<JobId>) -> Result<(), Reject> {
        let answer = self.operate(Command::Cancel { jobs: vec![job] });
        match answer? {
            Reply::Jobs { mut problems, .. } => problems.pop().map_or(Ok(()), |(_, reject)| Err(reject)),
            _ => Ok(()),
        }
    }

    /// Changes the state of nodes.
    ///
    /// # Errors
    /// [`Reject::InvalidNodeName`] for a name that the configuration does not have.
    pub fn set_nodes(&mut self, names: &[Arc<str>], state: NodeState) -> Result<(), Reject> {
        let mut nodes = Vec::with_capacity(names.len());
        for name in names {
            let node = self.cluster.node_named(name).filter(|node| node.configured);
            nodes.push(node.map(|node| node.id).ok_or_else(|| Reject::InvalidNodeName(name.to_string()))?);
        }
        match state {
            NodeState::Fail => {
                nodes.retain(|&node| self.dead.insert(node));
                // A node that is already out of service has no jobs to lose.
                let _ = self.input(Input::Silent { nodes });
                self.happened();
                return Ok(());
            }
            NodeState::Resume => {
                nodes.retain(|node| self.dead.remove(node));
                self.let_in(&nodes)?;
            }
            NodeState::Down | NodeState::Drain => {}
        }
        let state = match state {
            NodeState::Down => NodeStateChange::Down,
            NodeState::Drain => NodeStateChange::Drain,
            NodeState::Resume | NodeState::Fail => NodeStateChange::Resume,
        };
        let change =
            NodeChange { state: Some(state), reason: Some("workload".into()), ..NodeChange::default() };
        self.operate(Command::UpdateNodes { nodes: names.to_vec(), change }).map(|_| ())
    }

    /// Registers nodes that were silent.
    ///
    /// They register one after another but become usable together. They are drained meanwhile, so that no
    /// node replaces a lost one while a nearer node is still to come.
    fn let_in(&mut self, nodes: &[NodeId]) -> Result<(), Reject> {
        let names: Vec<Arc<str>> = self.cluster.names_of(nodes.iter().copied()).map(Arc::from).collect();
        if names.len() > 1 {
            let change = NodeChange {
                state: Some(NodeStateChange::Drain),
                reason: Some("workload".into()),
                ..NodeChange::default()
            };
            self.command(operator_caller(), Command::UpdateNodes { nodes: names, change })?;
        }
        nodes.iter().for_each(|node| self.register(*node));
        Ok(())
    }

    /// Puts another configuration in force, as an operator.
    ///
    /// # Errors
    /// [`Reject`] for a configuration that cannot be put in force.
    pub fn reconfigure(&mut self, policy: Arc<Policy>) -> Result<(), Reject> {
        self.put_in_force(policy)?;
        self.happened();
        Ok(())
    }

    /// Passes an operator's command to the controller.
    ///
    /// # Errors
    /// The [`Reject`] of the controller.
    pub fn operate(&mut self, command: Command) -> Result<Reply, Reject> {
        let reply = self.command(operator_caller(), command)?;
        self.happened();
        Ok(reply)
    }

    /// Records the event of a command that was run.
    pub fn commanded(&mut self, argv: Vec<String>, status: u8, stdout: String, stderr: String) {
        self.tell(JobId(0), || What::Command { argv, status, stdout, stderr });
        self.happened();
    }
}
