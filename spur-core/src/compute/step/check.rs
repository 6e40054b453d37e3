//! A checker of traces. It knows the promises of [`super`], not how [`Step`] keeps them.

use super::*;

/// The state that follows from a trace so far.
#[derive(Clone, Debug)]
pub(super) struct Checker {
    plan: Plan,
    limit_at: Option<u64>,
    is_ready: bool,
    /// True if anything but the end of its tasks has ended the step.
    is_told: bool,
    /// The earliest time at which KILL may be sent.
    kill_at: Option<u64>,
    has_killed: bool,
    is_suspended: bool,
    is_frozen: bool,
    terms: usize,
    tasks: Vec<Seen>,
    helpers: usize,
    has_server: bool,
    has_ended: bool,
    is_on_disk: bool,
    pub(super) has_exited: bool,
}

/// The state of a task that follows from a trace.
#[derive(Clone, Debug, Default)]
struct Seen {
    is_launched: bool,
    is_alive: bool,
    epilog: bool,
    exits: usize,
}

type Verdict = Result<(), String>;

fn demand(holds: bool, promise: &str) -> Verdict {
    if holds { Ok(()) } else { Err(promise.to_owned()) }
}

impl Checker {
    pub(super) fn new(plan: &Plan, now: Now) -> Checker {
        Checker {
            plan: plan.clone(),
            limit_at: plan.time_limit_ms.map(|limit| now.steady_ms + limit),
            is_ready: false,
            is_told: false,
            kill_at: None,
            has_killed: false,
            is_suspended: false,
            is_frozen: false,
            terms: 0,
            tasks: vec![Seen::default(); plan.ranks.len()],
            helpers: 0,
            has_server: false,
            has_ended: false,
            is_on_disk: false,
            has_exited: false,
        }
    }

    fn are_tasks_over(&self) -> bool {
        self.tasks.iter().all(|task| task.exits > 0 && !task.is_alive && !task.epilog)
    }

    /// Number of children that were started and not yet waited for.
    fn children(&self) -> usize {
        let alive = |task: &Seen| usize::from(task.is_alive) + usize::from(task.epilog);
        self.tasks.iter().map(alive).sum::<usize>() + self.helpers + usize::from(self.has_server)
    }

    fn bring_forward(&mut self, at: u64) {
        self.kill_at = Some(self.kill_at.map_or(at, |known| known.min(at)));
    }

    fn is_launching(&self, task: usize) -> bool {
        self.tasks.get(task).is_some_and(|task| task.is_alive)
    }

    /// Checks an input with its effects and the step afterwards.
    ///
    /// # Errors
    /// The promise that is broken.
    pub(super) fn observe(&mut self, now: Now, input: &Input, effects: &[Effect], step: &Step) -> Verdict {
        if self.has_ended {
            return self.observe_drained(now, input, effects, step);
        }
        let was_told = self.is_told;
        let asked = self.are_tasks_over() && self.helpers == 0;
        self.take(now, input);
        for effect in effects {
            self.judge(now, effect, step)?;
        }
        if self.are_tasks_over() && !self.has_ended {
            self.bring_forward(now.steady_ms);
            self.is_suspended = false;
        }
        let has_time = self.kill_at.is_none_or(|at| at > now.steady_ms);
        if self.is_told && !was_told && has_time {
            demand(self.terms == 1, "a step that has time to end is sent TERM")?;
        }
        if *input == Input::Left && asked {
            demand(effects.contains(&Effect::Kill), "what is left of an ended step is sent KILL")?;
        }
        let is_due = self.kill_at.is_some_and(|at| at <= now.steady_ms);
        if *input == Input::Time && is_due && !self.are_tasks_over() {
            demand(self.has_killed, "KILL is sent when its time has come")?;
        }
        if *input == Input::Time {
            demand(step.due().is_none_or(|at| at > now.steady_ms), "the next time lies ahead")?;
        }
        if let Some(at) = self.kill_at.filter(|_| !self.has_killed && !self.are_tasks_over()) {
            demand(step.due().is_some_and(|due| due <= at), "the shell wakes up for KILL")?;
        }
        Ok(())
    }

    fn observe_drained(&mut self, now: Now, input: &Input, effects: &[Effect], step: &Step) -> Verdict {
        if let Input::Recorded { outcome: Outcome::Written | Outcome::Acknowledged } = input {
            self.is_on_disk = true;
        }
        for effect in effects {
            match effect {
                Effect::WriteRecord { is_first: false } => {
                    demand(!self.is_on_disk, "a record is written once")?;
                }
                Effect::Exit => {
                    demand(self.is_on_disk, "the shell exits when the record is kept")?;
                    self.has_exited = true;
                }
                _ => demand(false, "an input after the end changes nothing")?,
            }
        }
        demand(step.record().is_some(), "what has ended has a record")?;
        if *input == Input::Time && !self.has_exited {
            demand(step.due().is_none_or(|at| at > now.steady_ms), "the next time lies ahead")?;
        }
        Ok(())
    }

    /// Applies an input to the state of the checker.
    fn take(&mut self, now: Now, input: &Input) {
        let at = now.steady_ms;
        let mut is_told = false;
        match *input {
            Input::Begin => self.is_ready |= !self.plan.has_server,
            Input::Served => self.is_ready = true,
            Input::ServerEnded { .. } => {
                self.has_server = false;
                is_told = !self.is_ready;
            }
            Input::NotLaunched { task, .. } if self.is_launching(task) => is_told = true,
            Input::NotForked { task, .. } if self.is_launching(task) => {
                self.tasks[task].is_alive = false;
                is_told = true;
            }
            Input::Failed { .. } => is_told = true,
            // After TERM, an abort does not shorten the time that tasks have to end.
            Input::Abort { .. } => is_told = !self.is_told,
            Input::TaskEnded { task, .. } => self.tasks[task].is_alive = false,
            Input::EpilogEnded { task } => self.tasks[task].epilog = false,
            Input::HelperStarted => self.helpers += 1,
            Input::HelperEnded => self.helpers = self.helpers.saturating_sub(1),
            Input::OverMemory if self.plan.ends_out_of_memory => is_told = true,
            Input::Suspend { stop } if !self.is_told && !self.are_tasks_over() => self.is_suspended = stop,
            Input::Terminate { kill_wait_ms, .. } => {
                self.is_told = true;
                if let Some(wait) = kill_wait_ms {
                    self.bring_forward(at + wait);
                }
            }
            Input::Time if !self.is_told && self.limit_at.is_some_and(|limit| limit <= at) => {
                self.is_told = true;
                self.bring_forward(at + AFTER_LIMIT_MS);
            }
            _ => {}
        }
        if is_told {
            self.is_told = true;
            self.bring_forward(at);
        }
    }

    fn judge(&mut self, now: Now, effect: &Effect, step: &Step) -> Verdict {
        match *effect {
            Effect::StartServer => self.has_server = true,
            Effect::Launch { task } => {
                demand(self.is_ready, "tasks wait until they can be served")?;
                demand(!self.is_told && !self.are_tasks_over(), "no task starts once the step is ending")?;
                demand(!self.is_suspended, "a suspended step starts no task")?;
                demand(!self.tasks[task].is_launched, "a task starts once")?;
                self.tasks[task] = Seen { is_launched: true, is_alive: true, ..Seen::default() };
            }
            Effect::StartEpilog { task, .. } => {
                demand(self.tasks[task].exits == 1, "an epilog follows its task")?;
                self.tasks[task].epilog = true;
            }
            Effect::Freeze => self.is_frozen = true,
            Effect::Resume => self.is_frozen = false,
            Effect::Term => {
                self.terms += 1;
                demand(self.is_told, "TERM has a cause")?;
                demand(self.terms == 1, "TERM is sent once")?;
                demand(!self.is_frozen, "a suspended step is resumed before TERM")?;
            }
            Effect::Kill => {
                let is_due = self.kill_at.is_some_and(|at| at <= now.steady_ms);
                demand(is_due || self.are_tasks_over(), "KILL is not sent before its time")?;
                self.has_killed = true;
            }
            Effect::EndServer => {
                demand(self.are_tasks_over(), "the server is there for every task")?;
                self.has_server = false;
                self.helpers += 1;
            }
            Effect::Tell(News::TaskEnded(_)) | Effect::GiveUp { .. } => self.count_exit(effect),
            Effect::Tell(News::Ended) => {
                demand(self.children() == 0, "every child is waited for")?;
                let record = step.record().ok_or("the record is there when the end is told")?;
                demand(record.tasks.len() == self.tasks.len(), "the record has the end of every task")?;
                self.has_ended = true;
            }
            Effect::Exit => {
                demand(self.has_ended && self.is_on_disk, "the shell exits when the record is kept")?
            }
            _ => {}
        }
        Ok(())
    }

    fn count_exit(&mut self, effect: &Effect) {
        match effect {
            Effect::Tell(News::TaskEnded(exit)) => {
                let ranks = &self.plan.ranks;
                let task = ranks.iter().position(|rank| *rank == exit.global).expect("a rank of the plan");
                self.tasks[task].exits = 1;
            }
            Effect::GiveUp { task } => self.tasks[*task].exits = 1,
            _ => {}
        }
    }
}
