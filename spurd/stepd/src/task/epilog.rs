//! What runs after a task: the user's own epilog, then the site's, one at a time.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::step::Shim;
use crate::task::child::{self, Pipes, Plan};

/// How long the user's own epilog may run, as with Slurm; the site's runs as long as it likes.
const LONGEST: Duration = Duration::from_secs(5);

impl Shim {
    /// Kills the users' epilogs whose time is over, with what they have started in their sessions.
    pub(crate) fn end_late_epilogs(&mut self) {
        let now = Instant::now();
        for (pid, until) in self.tasks.iter_mut().filter_map(|task| task.epilog.as_mut()) {
            if until.take_if(|until| *until <= now).is_some() {
                // It may have ended by itself.
                let _ = rustix::process::kill_process_group(*pid, Signal::KILL);
            }
        }
    }

    /// Starts what comes next after a task: its first epilog, or the one after that which has ended.
    pub(crate) fn next_epilog(&mut self, index: usize) {
        self.tasks[index].epilog = None;
        while let Some(epilog) = self.tasks[index].next_epilog(&self.order) {
            let argv = [epilog.display().to_string()];
            let plan = Plan {
                order: &self.order,
                task: &self.tasks[index].epilog_order(),
                environment: &self.environment,
                argv: &argv,
                truncate: (false, false),
                group: self.group.as_ref(),
                is_task: false,
            };
            match child::spawn(&plan, Pipes::default()) {
                Ok(child) => {
                    self.childless = false;
                    let is_own = self.order.own_task_epilog.as_deref() == Some(epilog);
                    self.tasks[index].epilog = Some((child.pid, is_own.then(|| Instant::now() + LONGEST)));
                    return;
                }
                Err(error) => eprintln!("spurstepd: task epilog: {error}"),
            }
        }
    }
}
