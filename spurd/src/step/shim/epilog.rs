//! What runs after a task: the user's own epilog, then the site's, one at a time.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::Shim;
use super::child::{self, Pipes, Plan};

/// How long an epilog may run, as with Slurm.
const LONGEST: Duration = Duration::from_secs(5);

impl Shim {
    /// Kills the epilogs whose time is over, with what they have started in their sessions.
    pub(super) fn end_late_epilogs(&mut self) {
        let now = Instant::now();
        for (pid, until) in self.tasks.iter_mut().filter_map(|task| task.epilog.as_mut()) {
            if *until <= now {
                *until = now + LONGEST;
                // It may have ended by itself.
                let _ = rustix::process::kill_process_group(*pid, Signal::KILL);
            }
        }
    }

    /// Starts what comes next after a task: its first epilog, or the one after that which has ended.
    pub(super) fn next_epilog(&mut self, index: usize) {
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
                    self.tasks[index].epilog = Some((child.pid, Instant::now() + LONGEST));
                    return;
                }
                Err(error) => eprintln!("spurstepd: task epilog: {error}"),
            }
        }
    }
}
