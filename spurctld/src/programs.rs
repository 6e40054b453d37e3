//! The site's programs on the controller's host.
//!
//! `prolog_slurmctld` and `epilog_slurmctld` run for jobs; `suspend_program` and `resume_program` for
//! nodes, with `resume_fail_program` for nodes that do not come up. The owner does not wait: a message
//! reports the end of each program. The programs of one job run one after another, even if the job ends
//! meanwhile. A program that was running when the controller ended is run again by the next controller.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use spur_core::cluster::{Cluster, Node};
use spur_core::controller::environment::Variables;
use spur_core::controller::{Input, PowerProgram, Program, environment};
use spur_core::id::{Attempt, JobId, NodeId};
use spur_core::model::node::Power;
use spur_core::model::phase::Phase;
use spur_core::text::hostlist::HostList;
use spur_proto::program::SiteProgram;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::inbox::Inbox;
use crate::replica::Replica;

/// Programs that may run at once; a site's prolog may well wait for nodes that boot.
const AT_ONCE: usize = 256;

/// Lower bound on the time limit of a program that switches nodes.
const SWITCHING: Duration = Duration::from_secs(60);

/// Runs the site's programs.
pub(crate) struct Programs {
    replica: Replica,
    inbox: Inbox,
    /// Value of `SPUR_CONF` for the programs, by which commands that they call find this cluster.
    config: PathBuf,
    runtime: Handle,
    permits: Arc<Semaphore>,
    /// The last program of each job.
    last: Mutex<BTreeMap<JobId, JoinHandle<()>>>,
}

impl Programs {
    /// Returns a runner. Has to be called inside the runtime that will run the programs.
    pub(crate) fn new(replica: Replica, inbox: Inbox, config: PathBuf) -> Self {
        let permits = Arc::new(Semaphore::new(AT_ONCE));
        Self { replica, inbox, config, runtime: Handle::current(), permits, last: Mutex::default() }
    }

    /// Runs the programs again for which the cluster waits, after a start.
    pub(crate) fn resume(&self, cluster: &Cluster) {
        for program in [PowerProgram::Suspend, PowerProgram::Resume] {
            let is_under_way = |node: &&Node| match program {
                PowerProgram::Suspend => matches!(node.power, Some(Power::PoweringDown { .. })),
                PowerProgram::Resume => matches!(node.power, Some(Power::PoweringUp { .. })),
                PowerProgram::ResumeFail => false,
            };
            let nodes: Vec<NodeId> = cluster.powered().filter(is_under_way).map(|node| node.id).collect();
            if !nodes.is_empty() {
                self.switch(program, &nodes);
            }
        }
        for job in cluster.jobs().iter() {
            match &job.phase {
                Phase::Running { .. } | Phase::Suspended(_) if job.configuring.prolog => {
                    self.run(job.attempt(), Program::Prolog);
                }
                Phase::Completing(_) if job.epilog => self.run(job.attempt(), Program::Epilog),
                _ => {}
            }
        }
    }

    /// Runs the program that switches nodes off or on, with their names as argument.
    pub(crate) fn switch(&self, program: PowerProgram, nodes: &[NodeId]) {
        let run = self.prepare_switch(program, nodes);
        let permits = Arc::clone(&self.permits);
        self.runtime.spawn(async move {
            // The semaphore is never closed.
            let _permit = permits.acquire_owned().await;
            if let Some(Err(why)) = match run {
                Some(run) => Some(run.run().await),
                None => None,
            } {
                tracing::warn!(?program, "{why}");
            }
        });
    }

    fn prepare_switch(&self, program: PowerProgram, nodes: &[NodeId]) -> Option<SiteProgram> {
        let cluster = self.replica.read();
        let power = &cluster.policy().power;
        let (path, limit) = match program {
            PowerProgram::Suspend => (&power.suspend_program, power.suspend_timeout),
            PowerProgram::Resume => (&power.resume_program, power.resume_timeout),
            PowerProgram::ResumeFail => (&power.resume_fail_program, power.resume_timeout),
        };
        let names = HostList::from_names(cluster.names_of(nodes.iter().copied())).to_string();
        tracing::info!(?program, nodes = names, "switching nodes");
        let limit = Duration::from_secs(limit.0).max(SWITCHING);
        let path = path.clone()?;
        Some(SiteProgram { arguments: vec![names], ..self.program(&path, Vec::new(), limit) })
    }

    fn program(&self, path: &str, variables: Variables, limit: Duration) -> SiteProgram {
        SiteProgram {
            path: path.into(),
            arguments: Vec::new(),
            variables,
            daemon: vec![("SPUR_CONF".to_owned(), self.config.display().to_string())],
            limit,
            outlives: false,
        }
    }

    /// Runs a program of a job, after earlier programs of the same job.
    pub(crate) fn run(&self, attempt: Attempt, program: Program) {
        let run = self.prepare(attempt, program);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.retain(|_, task| !task.is_finished());
        let before = last.remove(&attempt.job);
        let (inbox, permits) = (self.inbox.clone(), Arc::clone(&self.permits));
        let task = self.runtime.spawn(async move {
            if let Some(before) = before {
                // The order matters, not how the earlier program ended.
                let _ = before.await;
            }
            // The semaphore is never closed.
            let _permit = permits.acquire_owned().await;
            let failed = match run {
                Some(run) => run.run().await.err(),
                None => None,
            };
            if let Some(why) = &failed {
                tracing::warn!(%attempt, ?program, "{why}");
            }
            // A controller that is stopping runs the program again after its next start.
            let _ = inbox.tell(Input::ProgramEnded { attempt, program, failed }).await;
        });
        last.insert(attempt.job, task);
    }

    /// Returns the program to run; `None` if none is configured, or the attempt is over.
    fn prepare(&self, attempt: Attempt, program: Program) -> Option<SiteProgram> {
        let cluster = self.replica.read();
        let jobs = &cluster.policy().jobs;
        let path = match program {
            Program::Prolog => &jobs.prolog_slurmctld,
            Program::Epilog => &jobs.epilog_slurmctld,
        };
        let job = cluster.job(attempt.job).filter(|job| job.attempt() == attempt)?;
        let limit = Duration::from_secs(jobs.prolog_epilog_timeout.0);
        Some(self.program(path.as_ref()?, environment::of_program(&cluster, job, program), limit))
    }
}
