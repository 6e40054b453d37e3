//! `srun`: runs a program as a step of the job it is called in, of the job it is told of, or of an allocation of its own.
//!
//! The controller lays the step out and signs a credential; with it, the command talks to each node directly, one
//! stream each. What tasks write comes here line by line; how they end decides the exit code.

mod group;
mod mpi;
mod node;
mod output;
mod outside;
mod states;
mod stdin;
mod terminal;
mod wish;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use spur_core::text::exit::ExitCode;
use spur_core::text::signal::Signal;
use spur_proto::client::{CallError, Connection};
use spur_proto::convert::step::ranks;
use spur_proto::v1::{
    AbandonStepRequest, CancelJobsRequest, CreateStepRequest, CreateStepResponse, KeyValue, StepLaunch,
    StepNodeLayout, StepSignal, StepWindow,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use crate::commands::signals::Signals;
use crate::commands::verbose;
use crate::error::{FAILURE, Failure};
use crate::options::Settled;
use crate::options::defs::SRUN_LINE;
use crate::options::submission::Submission;
use crate::place;
use crate::session::{Session, whoami};
use mpi::Mpi;
use node::{Event, Launch, Node};
use output::{Names, Outputs, Own};
use spur_proto::v1::step_input::Input as StepInputKind;
use states::{State, States};
use terminal::Raw;

/// How much of standard input is read at a time, in bytes.
const STDIN_BYTES: usize = 64 << 10;
/// Events that may wait for this command to take them.
const EVENTS: usize = 256;
/// The signals that are taken; most are for the tasks.
const TAKEN: &[u8] = &[1, 2, 3, 10, 12, 14, 15, 18, WINCH];
/// The terminal has another size.
const WINCH: u8 = 28;
/// After how long a wait for CPUs is told of.
const QUIET_WAIT: Duration = Duration::from_secs(1);
/// For how long what the controller said of where nodes are is news.
const NEWS: Duration = Duration::from_secs(1);
/// A second interrupt within this time ends the step.
const TWICE: Duration = Duration::from_secs(1);

/// Runs `srun`.
///
/// # Errors
/// Whatever keeps the step from being run to its end.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let ended = run_step(session, &words).await;
    let code = session.env("SLURM_EXIT_ERROR").and_then(|code| code.parse().ok()).unwrap_or(FAILURE);
    ended.map_err(|error| if code == FAILURE { error } else { error.context(Failure::coded(code)) })
}

async fn run_step(session: &mut Session, words: &[String]) -> anyhow::Result<u8> {
    let mut wishes = Submission::default();
    let argv = match wishes.settle_line(&SRUN_LINE, words, &|name| session.env(name))? {
        Settled::Run(operands) => operands,
        Settled::Show(text) => {
            write!(session.out, "{text}")?;
            return Ok(0);
        }
    };
    if wishes.step.mpi.parse::<Mpi>()? == Mpi::List {
        session.out.write_all(Mpi::LIST.as_bytes())?;
        return Ok(0);
    }
    if argv.is_empty() {
        bail!("No command given to execute.");
    }
    verbose::tell(session, &wishes);
    let mut signals = Signals::listen(TAKEN)?;
    if let Some(name) = wishes.step.job.clone() {
        let job = group::named(session, &name).await?;
        return run_in(session, vec![(job, wishes)], &argv, &mut signals).await.map(ExitCode::shell);
    }
    if !group::is_inside(session) {
        return outside::run(session, wishes, &argv, &mut signals).await;
    }
    let parts = group::parts(session, wishes, words)?;
    run_in(session, parts, &argv, &mut signals).await.map(ExitCode::shell)
}

/// Runs the program as a step of each of these jobs.
async fn run_in(
    session: &mut Session,
    parts: Vec<(u32, Submission)>,
    argv: &[String],
    signals: &mut Signals,
) -> anyhow::Result<ExitCode> {
    let mut laid_out: Vec<LaidOut> = Vec::new();
    for (job, mut wishes) in parts {
        place::read_hosts(&mut wishes)?;
        match create(session, job, &wishes, argv, signals).await {
            Ok(step) => {
                if wishes.verbose > 0 {
                    states::tell_launch(session, job, &step);
                }
                laid_out.push(LaidOut { job, wishes, step });
            }
            Err(error) => {
                for LaidOut { job, step, .. } in laid_out {
                    let nodes = step.nodes.into_iter().map(|node| node.name).collect();
                    abandon(session, (job, step.step_id), nodes, FAILURE).await;
                }
                return Err(error);
            }
        }
    }
    let all: Vec<_> = laid_out
        .iter()
        .map(|LaidOut { job, step, .. }| {
            ((*job, step.step_id), step.nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>())
        })
        .collect();
    match Party::launch(session, laid_out, argv) {
        Ok(mut party) => party.follow_through(session, signals).await,
        Err(error) => {
            for (step, nodes) in all {
                abandon(session, step, nodes, FAILURE).await;
            }
            Err(error)
        }
    }
}

/// A step that the controller has laid out.
struct LaidOut {
    job: u32,
    wishes: Submission,
    step: CreateStepResponse,
}

/// Tells the controller of nodes that will never report the end of a step because they never began it.
async fn abandon(session: &mut Session, (job_id, step_id): (u32, u32), nodes: Vec<String>, exit_code: u8) {
    let request = AbandonStepRequest { job_id, step_id, nodes, exit_code: exit_code.into() };
    let Ok(connection) = session.connection() else { return };
    let told = connection.read(request, async |mut controller, r| controller.abandon_step(r).await).await;
    if let Err(error) = told {
        session.error(&format!("cannot tell the controller that the step was not launched: {error}"));
    }
}

/// Has the controller end a step, on nodes that this command does not reach.
async fn end_by_controller(session: &mut Session, job: u32, step: u32) {
    let request = CancelJobsRequest {
        steps: vec![format!("{job}.{step}")],
        signal: Some(Signal::KILL.number().into()),
        ..CancelJobsRequest::default()
    };
    let Ok(connection) = session.connection() else { return };
    let asked = connection.change(request, async |mut controller, r| controller.cancel_jobs(r).await).await;
    if let Err(error) = asked {
        session.error(&format!("cannot end the step through the controller: {error}"));
    }
}

/// Asks the controller for the step. That may take until other steps of the job have ended.
async fn create(
    session: &mut Session,
    job: u32,
    wishes: &Submission,
    argv: &[String],
    signals: &mut Signals,
) -> anyhow::Result<CreateStepResponse> {
    let program = Path::new(&argv[0]).file_name().map(|name| name.to_string_lossy().into_owned());
    let request = wish::request(session, job, wishes, program.unwrap_or_default())?;
    let name = session.name;
    let connection = session.connection()?;
    let asked =
        connection.change_when_possible(request, async |mut controller, r| controller.create_step(r).await);
    let mut asked = std::pin::pin!(asked);
    let mut told = wishes.quiet;
    loop {
        tokio::select! {
            step = &mut asked => {
                if told && !wishes.quiet && step.is_ok() {
                    eprintln!("{name}: Step created for job {job}");
                }
                return step.with_context(|| format!("Unable to create step for job {job}"));
            }
            signal = signals.next() => {
                bail!(Failure { text: "step creation was interrupted".to_owned(), code: 128 + signal.number() });
            }
            () = sleep(QUIET_WAIT), if !told => {
                told = true;
                eprintln!(
                    "{name}: Job {job} step creation temporarily disabled, retrying (Requested nodes are busy)"
                );
            }
        }
    }
}

/// Asks the controller again for what changes of a step that it has laid out.
async fn ask_again(
    connection: &mut Connection,
    job: u32,
    step: u32,
) -> Result<CreateStepResponse, CallError> {
    let request = CreateStepRequest { job_id: job, renew_step: Some(step), ..CreateStepRequest::default() };
    connection.read(request, async |mut controller, r| controller.create_step(r).await).await
}

/// Steps under way at the same time: one, or one for each component of a het job that runs the program.
struct Party {
    runs: Vec<Run>,
    /// What nodes tell, by the number that they have among those of all steps.
    events: mpsc::Receiver<(usize, Event)>,
}

/// A step under way.
struct Run {
    job: u32,
    step: u32,
    wishes: Submission,
    /// The number of its first node among those of all steps.
    first: usize,
    nodes: Vec<Node>,
    outputs: Outputs,
    /// Nodes that have something to tell yet.
    open: usize,
    states: States,
    /// Where the nodes were when somebody asked last.
    whereabouts: Option<(Instant, Vec<StepNodeLayout>)>,
    /// This command's terminal, while the first task has its keys.
    raw: Option<Raw>,
    exit: ExitCode,
    /// When the rest is ended because the first task has.
    rest_until: Option<Instant>,
    interrupted: Option<Instant>,
    /// When what an interrupt has left is killed.
    kill_at: Option<Instant>,
    killed: bool,
    /// Why nothing is written any more.
    deaf: Option<anyhow::Error>,
    /// Nodes on which the step was not launched.
    never_launched: Vec<String>,
    /// Whether there is a node on which it may run although it cannot be reached.
    out_of_reach: bool,
}

impl Party {
    /// Launches all steps. What comes in goes to all of them, or to one task of the first.
    fn launch(session: &Session, steps: Vec<LaidOut>, argv: &[String]) -> anyhow::Result<Party> {
        let (tell, events) = mpsc::channel(EVENTS);
        let mut runs: Vec<Run> = Vec::with_capacity(steps.len());
        let mut input: Option<Input> = None;
        for laid_out in steps {
            let first = runs.iter().map(|run| run.nodes.len()).sum();
            let come_in = match &input {
                None => {
                    let directory = place::directory(laid_out.wishes.chdir.as_deref())?;
                    let said = laid_out.wishes.files.input.as_deref();
                    let tasks = laid_out.step.nodes.iter().map(|node| node.tasks).sum();
                    let said = said.or_else(|| laid_out.wishes.step.pty.then_some("0"));
                    let come_in = Input::of(said, tasks, Path::new(&directory))?;
                    let all = (come_in.task(), matches!(come_in, Input::None));
                    input = Some(come_in);
                    all
                }
                Some(input) => (None, matches!(input, Input::None | Input::Task(_))),
            };
            runs.push(Run::launch(session, laid_out, argv, (first, tell.clone()), come_in)?);
        }
        if let Some(input) = input {
            let fed = runs.iter().take(if input.task().is_some() { 1 } else { usize::MAX });
            input.broadcast(fed.flat_map(|run| &run.nodes).map(|node| node.stdin.clone()).collect());
        }
        Ok(Party { runs, events })
    }

    async fn follow_through(
        &mut self,
        session: &mut Session,
        signals: &mut Signals,
    ) -> anyhow::Result<ExitCode> {
        while self.runs.iter().any(|run| run.open > 0) {
            let rest = self.runs.iter().flat_map(|run| [run.rest_until, run.kill_at]).flatten().min();
            tokio::select! {
                Some((index, event)) = self.events.recv() => {
                    if let Some(run) = self.runs.iter_mut().rev().find(|run| run.first <= index) {
                        match event {
                            Event::Expired { renewed } => run.renew(session, renewed).await,
                            Event::Away { found } => run.find(session, index - run.first, found).await,
                            event => run.take(session, index - run.first, event),
                        }
                    }
                }
                signal = signals.next() => {
                    for run in &mut self.runs {
                        run.signal(session, signal).await;
                    }
                }
                () = sleep_until(rest.unwrap_or_else(Instant::now)), if rest.is_some() => {
                    self.runs.iter_mut().for_each(|run| run.end_rest(session));
                }
            }
            if self.events.is_empty() {
                let flushed = session.out.flush().map_err(|error| error.to_string());
                for run in &mut self.runs {
                    run.hear(flushed.clone().map_err(anyhow::Error::msg));
                }
            }
        }
        let mut ended = Ok(ExitCode::default());
        for run in &mut self.runs {
            let exit = run.end(session).await;
            ended = ended.and_then(|worst| Ok(states::worse(worst, exit?)));
        }
        ended
    }
}

impl Run {
    fn launch(
        session: &Session,
        LaidOut { job, mut wishes, step }: LaidOut,
        argv: &[String],
        (first, tell): (usize, mpsc::Sender<(usize, Event)>),
        (stdin_task, no_stdin): (Option<u32>, bool),
    ) -> anyhow::Result<Run> {
        let directory = place::directory(wishes.chdir.as_deref())?;
        if wishes.step.pty {
            (wishes.step.unbuffered, wishes.step.label) = (true, false);
        }
        let tasks = step.nodes.iter().map(|node| node.tasks).sum();
        let names = names(session, job, &step, PathBuf::from(&directory));
        let outputs = Outputs::new(&wishes.files, &wishes.step, names, tasks)?;
        let environment = place::exported(session.environment(), &wishes.export);
        let window = wishes.step.pty.then(terminal::window);
        let mut job_environment = step.environment;
        if let Some(StepWindow { rows, columns }) = window {
            for (key, value) in [("SLURM_PTY_WIN_ROW", rows), ("SLURM_PTY_WIN_COL", columns)] {
                job_environment.push(KeyValue { key: key.to_owned(), value: value.to_string() });
            }
        }
        let launch = StepLaunch {
            credential: step.credential.clone(),
            argv: argv.to_vec(),
            environment: place::packed(&environment)?.into(),
            job_environment,
            work_dir: directory,
            umask: wishes.umask.unwrap_or_else(place::file_mask),
            limits: place::limits(&wishes.propagate),
            stdin_task,
            no_stdin,
            mpi: wishes.step.mpi.parse::<Mpi>()?.name().to_owned(),
            unbound: wishes.step.unbound,
            time_limit: wishes.spec.time_limit,
            terminal: window,
        };
        let plan = Arc::new(Launch { credential: step.credential, launch });
        let layouts = (first..).zip(step.nodes);
        let nodes: Vec<Node> =
            layouts.map(|(index, layout)| node::follow(index, layout, plan.clone(), tell.clone())).collect();
        Ok(Run {
            job,
            step: step.step_id,
            wishes,
            open: nodes.len(),
            first,
            nodes,
            outputs,
            states: States::new(tasks),
            whereabouts: None,
            raw: None,
            exit: ExitCode::default(),
            rest_until: None,
            interrupted: None,
            kill_at: None,
            killed: false,
            deaf: None,
            never_launched: Vec::new(),
            out_of_reach: false,
        })
    }

    /// The first task ended so long ago that the rest is ended now, if it is time.
    fn end_rest(&mut self, session: &mut Session) {
        if self.kill_at.is_some_and(|kill_at| kill_at <= Instant::now()) {
            self.kill_at = None;
            session.inform("forcing job termination");
            self.kill();
        }
        if self.rest_until.is_some_and(|rest_until| rest_until <= Instant::now()) {
            self.rest_until = None;
            session.error(&format!("Timed out waiting for the rest of step {}.{}", self.job, self.step));
            self.kill();
        }
    }

    /// What is left to do when all nodes have told everything.
    async fn end(&mut self, session: &mut Session) -> anyhow::Result<ExitCode> {
        let rest = self.with_own(session, |outputs, own| outputs.finish_all(own));
        self.hear(rest);
        if self.raw.take().is_some() {
            session.set_raw(false);
        }
        self.leave(session).await;
        match self.deaf.take() {
            Some(error) => Err(error),
            None => Ok(self.exit),
        }
    }

    /// Asks for a newer credential of the step.
    async fn renew(&mut self, session: &mut Session, renewed: oneshot::Sender<Bytes>) {
        let Ok(connection) = session.connection() else { return };
        match ask_again(connection, self.job, self.step).await {
            Ok(answer) if answer.credential.is_empty() => {
                session.error("no newer credential for the step: it has ended");
            }
            // One that has given up needs none.
            Ok(answer) => drop(renewed.send(answer.credential)),
            Err(error) => session.error(&format!("no newer credential for the step: {error}")),
        }
    }

    /// Says where a node is now, if the controller answers at once; what it says of all nodes serves those that ask soon
    /// after.
    async fn find(&mut self, session: &mut Session, index: usize, found: oneshot::Sender<StepNodeLayout>) {
        if self.whereabouts.as_ref().is_none_or(|(asked, _)| asked.elapsed() > NEWS) {
            let Ok(connection) = session.connection() else { return };
            let mut connection = connection.clone().with_patience(Duration::ZERO);
            // A controller that does not answer is asked no sooner than one that does.
            let nodes = ask_again(&mut connection, self.job, self.step)
                .await
                .map_or_else(|_| vec![], |step| step.nodes);
            self.whereabouts = Some((Instant::now(), nodes));
        }
        let name = &self.nodes[index].layout.name;
        let known = self.whereabouts.iter().flat_map(|(_, nodes)| nodes).find(|node| node.name == *name);
        if let Some(known) = known {
            // One that has given up need not know.
            drop(found.send(known.clone()));
        }
    }

    fn take(&mut self, session: &mut Session, index: usize, event: Event) {
        match event {
            Event::Expired { .. } | Event::Away { .. } => {}
            Event::Started => {
                let layout = &self.nodes[index].layout;
                self.states.set_new(&ranks(layout), State::Running);
                if self.wishes.step.pty && ranks(layout).contains(0) && self.raw.is_none() {
                    let set = Raw::set();
                    session.set_raw(matches!(set, Ok(Some(_))));
                    self.raw = set.unwrap_or_else(|error| {
                        session.warn(&format!("the terminal stays as it is: {error}"));
                        None
                    });
                }
                if self.wishes.verbose > 0 {
                    session.inform(&format!("Node {}, {} tasks started", layout.name, layout.tasks));
                }
            }
            Event::Output { task, stderr, data } => {
                if self.deaf.is_none() {
                    let written =
                        self.with_own(session, |outputs, own| outputs.write((task, stderr), &data, own));
                    self.hear(written);
                }
            }
            Event::Ended { task, code, signal } => self.task_ended(session, index, task, code, signal),
            // Of several nodes that end the step the first knows the cause.
            Event::Aborted(_) if self.killed => {}
            Event::Aborted(why) => {
                session.error(&format!("{}: {why}", self.nodes[index].layout.name));
                self.abort(session);
            }
            Event::Done => {
                self.open -= 1;
                let tasks = ranks(&self.nodes[index].layout);
                let rest = self.with_own(session, |outputs, own| {
                    tasks.iter().try_for_each(|task| outputs.finish(task, own))
                });
                self.hear(rest);
            }
            Event::Lost { why, launched } => {
                self.open -= 1;
                let layout = &self.nodes[index].layout;
                let name = layout.name.clone();
                if launched {
                    session.error(&format!("{name}: lost: {why}"));
                    self.out_of_reach = true;
                } else {
                    let step = format!("StepId={}.{}", self.job, self.step);
                    session.error(&format!("Task launch for {step} failed on node {name}: {why}"));
                    self.states.set_new(&ranks(layout), State::FailedToStart);
                    self.never_launched.push(name);
                }
                self.exit = states::worse(self.exit, ExitCode::exited(FAILURE));
                if !(launched && self.wishes.step.no_kill) {
                    self.abort(session);
                }
            }
        }
    }

    fn task_ended(&mut self, session: &mut Session, index: usize, task: u32, code: u32, signal: u32) {
        let small = |number| u8::try_from(number).unwrap_or(u8::MAX);
        let exit = ExitCode { code: small(code), signal: small(signal) };
        let state = if exit.is_success() { State::Exited } else { State::ExitedAbnormally };
        self.states.set(task, state);
        if exit.is_success() && self.wishes.verbose > 0 {
            session.inform(&format!("{}: task {task}: Completed", self.nodes[index].layout.name));
        }
        if !exit.is_success() {
            let name = &self.nodes[index].layout.name;
            session.error(&format!("{name}: task {task}: {}", ending(exit)));
            self.exit = states::worse(self.exit, exit);
            if self.wishes.step.kill_on_bad_exit {
                self.abort(session);
            }
        }
        if let Some(wait) = self.wishes.step.wait
            && self.rest_until.is_none()
            && !self.killed
        {
            self.rest_until = Some(Instant::now() + wait);
        }
    }

    /// Ends what is left of the step because a part of it failed.
    fn abort(&mut self, session: &mut Session) {
        if !self.killed && self.open > 0 {
            session.inform(&format!("Terminating StepId={}.{}", self.job, self.step));
            self.kill();
        }
    }

    fn kill(&mut self) {
        self.killed = true;
        self.pass_on(Signal::KILL);
    }

    fn pass_on(&self, signal: Signal) {
        for node in &self.nodes {
            // A node that has ended needs no signal.
            let _ = node.orders.send(StepInputKind::Signal(StepSignal { signal: signal.number().into() }));
        }
    }

    /// The first interrupt shows how the tasks are, a second one right after it ends them, as do those signals that would
    /// end this command; all others are for the tasks.
    async fn signal(&mut self, session: &mut Session, signal: Signal) {
        let step = format!("StepId={}.{}", self.job, self.step);
        match signal {
            resized if resized.number() == WINCH => {
                let first = self.nodes.iter().find(|node| ranks(&node.layout).contains(0));
                if let Some(node) = first.filter(|_| self.wishes.step.pty) {
                    // A node that has ended shows nothing.
                    let _ = node.orders.send(StepInputKind::Window(terminal::window()));
                }
            }
            Signal::INT if self.wishes.step.pty => self.pass_on(signal),
            Signal::INT if self.wishes.step.quit_on_interrupt => self.interrupt(session, &step),
            Signal::INT if self.kill_at.is_some() => {
                session.inform("forcing job termination");
                self.kill();
                end_by_controller(session, self.job, self.step).await;
            }
            Signal::INT if self.interrupted.is_some_and(is_recent) => self.interrupt(session, &step),
            Signal::INT => {
                self.interrupted = Some(Instant::now());
                // It is said once of all steps.
                if self.first == 0 {
                    session.inform("interrupt (one more within 1 sec to abort)");
                }
                self.states.lines(&step).iter().for_each(|line| session.inform(line));
            }
            Signal::TERM | Signal::HUP | Signal::QUIT => {
                session.inform("forcing job termination");
                self.kill();
                end_by_controller(session, self.job, self.step).await;
            }
            other => self.pass_on(other),
        }
    }

    /// Interrupts the tasks; those that are left in a moment are killed.
    fn interrupt(&mut self, session: &mut Session, step: &str) {
        session.inform(&format!("sending Ctrl-C to {step}"));
        self.pass_on(Signal::INT);
        self.kill_at = Some(Instant::now() + TWICE);
    }

    /// Leaves to the controller what this command could not bring to its end.
    async fn leave(&mut self, session: &mut Session) {
        let never = std::mem::take(&mut self.never_launched);
        if !never.is_empty() {
            abandon(session, (self.job, self.step), never, self.exit.shell()).await;
        }
        if self.out_of_reach {
            end_by_controller(session, self.job, self.step).await;
        }
    }

    fn with_own(
        &mut self,
        session: &mut Session,
        act: impl FnOnce(&mut Outputs, &mut Own<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (out, mut err) = session.streams();
        act(&mut self.outputs, &mut Own { out, err: &mut err })
    }

    /// Output that nobody takes ends the step, and is told at the end.
    fn hear(&mut self, written: anyhow::Result<()>) {
        if let Err(error) = written
            && self.deaf.is_none()
        {
            self.deaf = Some(error);
            self.kill();
        }
    }
}

/// Whether an interrupt right now would be the second within a second.
fn is_recent(interrupted: Instant) -> bool {
    interrupted.elapsed() < TWICE
}

fn names(session: &Session, job: u32, step: &CreateStepResponse, directory: PathBuf) -> Names {
    let number = |name: &str| session.env(name).and_then(|text| text.parse::<u32>().ok());
    Names {
        job,
        array: number("SLURM_ARRAY_JOB_ID").zip(number("SLURM_ARRAY_TASK_ID")),
        step: step.step_id,
        user: whoami().user,
        job_name: session.env("SLURM_JOB_NAME").unwrap_or_default(),
        restarts: number("SLURM_RESTART_COUNT").unwrap_or(0),
        nodes: step.nodes.iter().map(|node| (node.name.clone(), ranks(node))).collect(),
        directory,
    }
}

/// How a task ended, in Slurm's words.
fn ending(exit: ExitCode) -> String {
    let Some(signal) = Signal::new(exit.signal) else {
        return format!("Exited with exit code {}", exit.code);
    };
    match signal.name() {
        Some("HUP") => "Hangup".to_owned(),
        Some("INT") => "Interrupt".to_owned(),
        Some("QUIT") => "Quit".to_owned(),
        Some("ILL") => "Illegal instruction".to_owned(),
        Some("ABRT") => "Aborted".to_owned(),
        Some("BUS") => "Bus error".to_owned(),
        Some("FPE") => "Floating point exception".to_owned(),
        Some("KILL") => "Killed".to_owned(),
        Some("SEGV") => "Segmentation fault".to_owned(),
        Some("PIPE") => "Broken pipe".to_owned(),
        Some("TERM") => "Terminated".to_owned(),
        _ => format!("Ended by signal {signal}"),
    }
}

/// Where the tasks' standard input comes from.
enum Input {
    /// This command's own, for all tasks.
    All,
    /// This command's own, for one task.
    Task(u32),
    /// Nothing.
    None,
    /// A file, for all tasks.
    File(std::fs::File),
}

impl Input {
    fn of(said: Option<&str>, tasks: u32, directory: &Path) -> anyhow::Result<Input> {
        match said {
            None | Some("all") => Ok(Input::All),
            Some("none") => Ok(Input::None),
            Some(text) => match text.parse() {
                Ok(task) if task < tasks => Ok(Input::Task(task)),
                Ok(task) => bail!(
                    "--input: there is no task {task}; the step has tasks 0 to {}",
                    tasks.saturating_sub(1)
                ),
                Err(_) if text.contains('%') => {
                    bail!("--input: one file feeds all tasks; `{text}` would be several")
                }
                Err(_) => {
                    let path = directory.join(text);
                    let file = std::fs::File::open(&path);
                    file.map(Input::File).with_context(|| format!("--input: cannot read {}", path.display()))
                }
            },
        }
    }

    fn task(&self) -> Option<u32> {
        match self {
            Input::Task(task) => Some(*task),
            _ => None,
        }
    }

    /// Reads the input on a thread of its own, for it may block for ever, and passes it to every node.
    fn broadcast(self, nodes: Vec<mpsc::Sender<Option<Bytes>>>) {
        let source: Box<dyn io::Read + Send> = match self {
            Input::None => return,
            Input::All | Input::Task(_) => Box::new(io::stdin()),
            Input::File(file) => Box::new(file),
        };
        std::thread::spawn(move || read_to_nodes(source, &nodes));
    }
}

fn read_to_nodes(mut source: Box<dyn io::Read + Send>, nodes: &[mpsc::Sender<Option<Bytes>>]) {
    let mut buffer = vec![0; STDIN_BYTES];
    loop {
        let data = match source.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => None,
            Ok(length) => Some(Bytes::copy_from_slice(&buffer[..length])),
        };
        let end = data.is_none();
        // A node that has ended takes nothing any more.
        let taken = nodes.iter().filter(|node| node.blocking_send(data.clone()).is_ok()).count();
        if end || taken == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_told_in_slurms_words() {
        assert_eq!(ending(ExitCode::exited(3)), "Exited with exit code 3");
        assert_eq!(ending(ExitCode::signaled(9)), "Killed");
        assert_eq!(ending(ExitCode::signaled(10)), "Ended by signal USR1");
    }

    #[test]
    fn input_may_be_for_one_task_or_none() {
        let of = |said| Input::of(said, 4, Path::new("/"));
        assert!(matches!(of(None), Ok(Input::All)));
        assert!(matches!(of(Some("none")), Ok(Input::None)));
        assert_eq!(of(Some("3")).unwrap().task(), Some(3));
        assert!(of(Some("4")).is_err_and(|error| error.to_string().contains("tasks 0 to 3")));
        assert!(of(Some("in-%t")).is_err());
        assert!(of(Some("no-such-file")).is_err());
    }
}
