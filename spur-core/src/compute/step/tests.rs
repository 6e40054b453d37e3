//! The life of a step: every short order of inputs, long random ones, and faults that the checker must find.

use std::collections::BTreeSet;

use spur_chance::Chance;

use super::check::Checker;
use super::*;

/// A step with the world around it, which answers as a shell and a kernel would.
#[derive(Clone, Debug)]
struct World {
    step: Step,
    check: Checker,
    now: Now,
    tasks: Vec<Process>,
    epilogs: Vec<bool>,
    helpers: usize,
    server: ServerProcess,
    /// True if a process is left that is no task.
    has_stray: bool,
    is_disk_full: bool,
    fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    None,
    Launching,
    Running,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerProcess {
    None,
    Starting,
    Serving,
    Leaving,
}

/// A fault of a state machine, put into its effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    TermTwice,
    KillEarly,
    StartAfterEnding,
    StartWhileSuspended,
    ExitWithoutRecord,
    ChildNotWaitedFor,
}

/// The faults, each with the promise that it breaks.
const FAULTS: [(Fault, &str); 6] = [
    (Fault::TermTwice, "TERM is sent once"),
    (Fault::KillEarly, "KILL is not sent before its time"),
    (Fault::StartAfterEnding, "no task starts once the step is ending"),
    (Fault::StartWhileSuspended, "a suspended step starts no task"),
    (Fault::ExitWithoutRecord, "the shell exits when the record is kept"),
    (Fault::ChildNotWaitedFor, "every child is waited for"),
];

/// Plans of steps for the tests: one task; two with epilogs and a limit; a server; several tasks launched at
/// once that end together.
fn plans() -> Vec<Plan> {
    let plan = |ranks: &[u32]| Plan { ranks: ranks.to_vec(), launched_together: 1, ..Plan::default() };
    let epilogs = vec![Epilog { limit_ms: Some(5000) }, Epilog { limit_ms: None }];
    vec![
        plan(&[0]),
        Plan { epilogs, time_limit_ms: Some(60_000), ..plan(&[4, 7]) },
        Plan { has_server: true, ends_out_of_memory: true, ..plan(&[0, 1]) },
        Plan { launched_together: 2, ends_out_of_memory: true, ..plan(&[0, 1, 2]) },
    ]
}

fn failure() -> LaunchFailure {
    LaunchFailure { stage: LaunchStage::StandardFiles, message: "no such file".to_owned() }
}

fn terminate(kill_wait_ms: Option<u64>) -> Input {
    Input::Terminate { kill_wait_ms, notice: Some("cancelled".to_owned()) }
}

impl World {
    fn new(plan: Plan, fault: Option<Fault>) -> World {
        let now = Now { steady_ms: 1_000, unix_ms: 1_700_000_000_000 };
        World {
            check: Checker::new(&plan, now),
            tasks: vec![Process::None; plan.ranks.len()],
            epilogs: vec![false; plan.ranks.len()],
            step: Step::new(plan, now),
            now,
            helpers: 0,
            server: ServerProcess::None,
            has_stray: false,
            is_disk_full: false,
            fault,
        }
    }

    /// The inputs that are possible next: those of processes first, then those of people and spurd.
    fn possible(&self) -> Vec<Input> {
        let mut inputs = self.natural();
        inputs.extend([
            Input::Begin,
            Input::Suspend { stop: true },
            Input::Suspend { stop: false },
            terminate(Some(30_000)),
            terminate(Some(0)),
            terminate(None),
            Input::OverMemory,
            Input::Abort { message: "a task called abort".to_owned() },
            Input::Needed { by_others: true },
            Input::Needed { by_others: false },
            Input::Signal { signal: 18, tasks_only: false },
            Input::Notice { text: "soon".to_owned() },
            Input::Attached { patience_ms: 5_000 },
            Input::Failed { failure: failure() },
        ]);
        inputs
    }

    /// The inputs that happen without an order.
    fn natural(&self) -> Vec<Input> {
        let mut inputs = Vec::new();
        for (task, process) in self.tasks.iter().enumerate() {
            let ended = Input::TaskEnded { task, status: ExitCode::exited(3), core_dumped: false };
            match process {
                Process::None => {}
                Process::Launching => {
                    inputs.extend([
                        Input::Launched { task },
                        Input::NotLaunched { task, failure: failure() },
                        Input::NotForked { task, failure: failure() },
                    ]);
                }
                Process::Running | Process::Failed => inputs.push(ended),
            }
        }
        let epilogs = self.epilogs.iter().enumerate().filter(|(_, runs)| **runs);
        inputs.extend(epilogs.map(|(task, _)| Input::EpilogEnded { task }));
        inputs.extend((self.helpers > 0).then_some(Input::HelperEnded));
        match self.server {
            ServerProcess::None => {}
            ServerProcess::Starting => {
                inputs.extend([Input::Served, Input::ServerEnded { failure: failure() }]);
            }
            ServerProcess::Serving => inputs.push(Input::ServerEnded { failure: failure() }),
            ServerProcess::Leaving => inputs.push(Input::HelperEnded),
        }
        if self.step.asks_for_processes() {
            inputs.push(if self.has_stray { Input::Left } else { Input::Emptied { patience_ms: 5_000 } });
        }
        inputs.extend(self.step.due().map(|_| Input::Time));
        inputs.extend(self.step.record().map(|_| Input::ReaderGone));
        inputs
    }

    /// Passes an input, then the shell's immediate answers to its effects.
    fn deliver(&mut self, input: Input) -> Result<Vec<Effect>, String> {
        let mut all = Vec::new();
        let mut inputs = std::collections::VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.happen(&input);
            let mut effects = self.step.handle(self.now, input.clone());
            self.corrupt(&input, &mut effects);
            self.check
                .observe(self.now, &input, &effects, &self.step)
                .map_err(|promise| format!("{promise}; {input:?} gave {effects:?} in {:?}", self.step))?;
            inputs.extend(effects.iter().filter_map(|effect| self.carry_out(effect)));
            all.extend(effects);
        }
        Ok(all)
    }

    fn happen(&mut self, input: &Input) {
        match *input {
            Input::Launched { task } => self.tasks[task] = Process::Running,
            Input::NotLaunched { task, .. } => self.tasks[task] = Process::Failed,
            Input::NotForked { task, .. } | Input::TaskEnded { task, .. } => self.tasks[task] = Process::None,
            Input::EpilogEnded { task } => self.epilogs[task] = false,
            Input::HelperEnded if self.server == ServerProcess::Leaving => self.server = ServerProcess::None,
            Input::HelperEnded => self.helpers -= 1,
            Input::Served => self.server = ServerProcess::Serving,
            Input::ServerEnded { .. } => self.server = ServerProcess::None,
            Input::Time => {
                let due = self.step.due().unwrap_or(self.now.steady_ms).max(self.now.steady_ms);
                self.now.unix_ms += due - self.now.steady_ms;
                self.now.steady_ms = due;
            }
            _ => {}
        }
    }

    fn carry_out(&mut self, effect: &Effect) -> Option<Input> {
        match *effect {
            Effect::StartServer => self.server = ServerProcess::Starting,
            Effect::EndServer => self.server = ServerProcess::Leaving,
            Effect::Launch { task } => self.tasks[task] = Process::Launching,
            Effect::StartEpilog { task, .. } => self.epilogs[task] = true,
            Effect::Notice(_) => {
                self.helpers += 1;
                return Some(Input::HelperStarted);
            }
            Effect::Kill => self.has_stray = false,
            Effect::WriteRecord { .. } => {
                let outcome = if self.is_disk_full { Outcome::Refused } else { Outcome::Written };
                return Some(Input::Recorded { outcome });
            }
            _ => {}
        }
        None
    }

    /// Puts the world's fault into the effects, where possible.
    fn corrupt(&self, input: &Input, effects: &mut Vec<Effect>) {
        let waiting = self.tasks.len() - 1;
        match (self.fault, input) {
            (Some(Fault::TermTwice), Input::Terminate { .. }) if self.step.record().is_none() => {
                effects.push(Effect::Term);
            }
            (Some(Fault::KillEarly), _) if effects.contains(&Effect::Term) => effects.push(Effect::Kill),
            (Some(Fault::StartAfterEnding), Input::Terminate { .. }) => {
                effects.push(Effect::Launch { task: waiting });
            }
            (Some(Fault::StartWhileSuspended), Input::Suspend { stop: true }) => {
                effects.push(Effect::Launch { task: waiting });
            }
            (Some(Fault::ExitWithoutRecord), Input::Recorded { outcome: Outcome::Refused }) => {
                effects.push(Effect::Exit);
            }
            (Some(Fault::ChildNotWaitedFor), Input::TaskEnded { .. }) => {
                // The state machine would continue as if the last child had ended.
                effects.push(Effect::Tell(News::Ended));
            }
            _ => {}
        }
    }

    /// Lets everything that lives end by itself; then the step and its shell must end.
    fn wind_up(&mut self) -> Result<(), String> {
        self.is_disk_full = false;
        self.deliver(Input::Needed { by_others: false })?;
        self.deliver(Input::Begin)?;
        self.deliver(Input::Suspend { stop: false })?;
        for _ in 0..200 {
            if self.check.has_exited {
                return Ok(());
            }
            let next = self.natural().into_iter().find(|input| {
                !matches!(
                    input,
                    Input::NotLaunched { .. } | Input::NotForked { .. } | Input::ServerEnded { .. }
                )
            });
            let next = next.ok_or_else(|| format!("nothing can happen any more: {:?}", self.step))?;
            self.deliver(next)?;
        }
        Err(format!("the step does not end: {:?}", self.step))
    }
}

/// Tries every sequence of up to six possible inputs, each followed by the end of everything. Sequences that
/// lead to the same state are continued once. Returns the number of states.
fn every_order(plan: Plan) -> usize {
    let (mut known, mut front) = (BTreeSet::new(), vec![World::new(plan, None)]);
    for _ in 0..6 {
        let mut next = Vec::new();
        for world in &front {
            for input in world.possible() {
                let mut after = world.clone();
                after.deliver(input).unwrap_or_else(|broken| panic!("{broken}"));
                if !after.check.has_exited && known.insert(format!("{after:?}")) {
                    after.clone().wind_up().unwrap_or_else(|broken| panic!("{broken}"));
                    next.push(after);
                }
            }
        }
        front = next;
    }
    known.len()
}

#[test]
fn every_order_of_up_to_six_inputs_keeps_the_promises() {
    for plan in plans() {
        let states = every_order(plan.clone());
        assert!(states > 1_000, "{states} states of {plan:?}");
    }
}

/// Runs a random life; returns the broken promise, if any.
fn live(seed: u64, fault: Option<Fault>) -> Result<(), String> {
    let mut chance = Chance::new(seed);
    let plans = plans();
    let plan = plans[chance.below(plans.len() as u64) as usize].clone();
    let mut world = World::new(plan, fault);
    world.deliver(Input::Begin)?;
    for _ in 0..chance.between(1, 80) {
        world.has_stray |= chance.percent(10);
        world.is_disk_full = chance.percent(50);
        let natural = world.natural();
        let inputs = if chance.percent(60) && !natural.is_empty() { natural } else { world.possible() };
        let input = inputs[chance.below(inputs.len() as u64) as usize].clone();
        world.deliver(input)?;
        if world.check.has_exited {
            return Ok(());
        }
    }
    world.wind_up()
}

#[test]
fn random_lives_keep_the_promises() {
    for seed in 0..20_000 {
        live(seed, None).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}

#[test]
fn the_checker_finds_every_fault() {
    for (fault, promise) in FAULTS {
        let broken = (0..200).filter_map(|seed| live(seed, Some(fault)).err());
        let found = broken.filter(|broken| broken.starts_with(promise)).count();
        assert!(found > 0, "{fault:?} passes");
    }
}
