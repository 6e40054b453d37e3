//! What runs after a task: the user's own epilog, then the site's, one at a time.

use super::Shim;
use super::child::{self, Pipes, Plan};

impl Shim {
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
                    self.tasks[index].epilog = Some(child.pid);
                    return;
                }
                Err(error) => eprintln!("spurstepd: task epilog: {error}"),
            }
        }
    }
}
