//! The command `srun`: runs a program as a step of its own job, of a given job, or of a new allocation.
//!
//! The controller lays out the step and signs a credential. With the credential, the command connects to each
//! node directly, with one stream per node. The tasks' output arrives here line by line, and their results
//! determine the exit code.

pub mod attach;
pub mod bcast;
mod components;
mod endings;
pub mod exec;
mod group;
mod input;
mod launch;
mod libraries;
pub mod logs;
mod mpi;
mod node;
mod output;
mod outside;
mod patience;
mod programs;
mod states;
mod stdin;
mod terminal;
mod wish;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{anyhow, bail};
use bytes::Bytes;
use spur_core::text::exit::ExitCode;
use spur_core::text::signal::Signal;
use spur_proto::client::{CallError, Connection};
use spur_proto::convert::step::ranks;
use spur_proto::v1::{
    AbandonStepRequest, CancelJobsRequest, CreateStepRequest, CreateStepResponse, HetStep, StepNodeLayout,
    StepSignal, StepTerminate, TaskEnded,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

pub(in crate::commands) use outside::read_hostfile;

use crate::commands::allocation::patience;
use crate::commands::gres;
use crate::commands::signals::Signals;
use crate::commands::verbose;
use crate::error::{FAILURE, Failure};
use crate::options::Settled;
use crate::options::defs::SRUN_LINE;
use crate::options::submission::Submission;
use crate::place;
use crate::session::Session;
use endings::{Ended, Endings};
use input::Input;
use mpi::Mpi;
use node::{Event, Node, Whereabouts};
use output::{Outputs, Own};
use spur_proto::v1::step_input::Input as StepInputKind;
use states::{State, States};
use terminal::Raw;

/// Capacity of the queue of events.
const EVENTS: usize = 256;
/// Numbers of the handled signals; most are passed on to the tasks.
const TAKEN: &[u8] = &[1, 2, 3, 10, 12, 14, 15, 18, WINCH];
/// Number of the signal that reports another size of the terminal.
const WINCH: u8 = 28;
/// Time after which a wait for CPUs is reported.
const QUIET_WAIT: Duration = Duration::from_secs(1);
/// Time for which the controller's answer about the nodes' addresses is reused.
const NEWS: Duration = Duration::from_secs(1);
/// Time from SIGTERM to SIGKILL for tasks that are ended because one has failed.
const TERM_WAIT: Duration = Duration::from_secs(5);
/// Number of seconds that the message about an ended step gives: Slurm's with its default KillWait.
const CANCEL_WAIT: u32 = 32;
/// Result of a task whose files cannot be opened.
const NO_FILES: ExitCode = ExitCode { code: 0, signal: 53 };
/// Time for the controller to answer if the job is ending.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// The controller's code for a step whose job is ending.
const JOB_IS_OVER: &str = "ESLURM_ALREADY_DONE";
/// Time within which a second interrupt ends the step.
const TWICE: Duration = Duration::from_secs(1);

/// Runs `srun`.
///
/// # Errors
/// A failure to run the step.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let words = &words[..];
    let mut wishes = Submission::default();
    let mut argv = match wishes.settle_line(&SRUN_LINE, words, &|name| session.env(name))? {
        Settled::Run(operands) => operands,
        Settled::Show(text) => {
            write!(session.out, "{text}")?;
            return Ok(0);
        }
    };
    if gres::is_help(wishes.said.get("gres").and_then(Option::as_deref)) {
        return gres::help(session).await;
    }
    if wishes.step.mpi.parse::<Mpi>()? == Mpi::List {
        session.out.write_all(Mpi::LIST.as_bytes())?;
        return Ok(0);
    }
    if argv.is_empty() {
        bail!("No command given to execute.");
    }
    if wishes.step.pty && !std::io::stdin().is_terminal() {
        session.error("ioctl(TIOCGWINSZ): Inappropriate ioctl for device");
        session.error("Not using a pseudo-terminal, disregarding --pty option");
        wishes.step.pty = false;
    }
    let het =
        wishes.step.job.is_none() && group::is_inside(session) && session.env("SLURM_HET_SIZE").is_some();
    let components = components::are_in(&argv);
    if components && !het {
        (wishes, argv) = components::merged(session, wishes, words, &argv)?;
    }
    wishes.spec.submit_line = [&["srun".to_owned()], words].concat().join(" ");
    programs::read(session, &mut wishes, &argv)?;
    verbose::tell(session, &wishes);
    let mut signals = Signals::listen(TAKEN)?;
    if let Some(name) = wishes.step.job.clone() {
        let parts = group::parts_of(session, &name, wishes, words).await?;
        return run_in(session, parts, &argv, &mut signals).await.map(ExitCode::shell);
    }
    // `--test-only` describes a new allocation, also inside a job.
    if wishes.test_only || !group::is_inside(session) {
        return outside::run(session, wishes, &argv, &mut signals).await;
    }
    let (parts, argv) = if components && het {
        components::of_het_job(session, wishes, words, &argv)?
    } else {
        (group::parts(session, wishes, words)?, argv)
    };
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
                laid_out.push(LaidOut { job, wishes, step, world: Vec::new() });
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
    if let Err(error) = group::make_one_world(session, &mut laid_out).await {
        for LaidOut { job, step, .. } in laid_out {
            let nodes = step.nodes.into_iter().map(|node| node.name).collect();
            abandon(session, (job, step.step_id), nodes, FAILURE).await;
        }
        return Err(error);
    }
    let all: Vec<_> = laid_out
        .iter()
        .map(|LaidOut { job, step, .. }| {
            ((*job, step.step_id), step.nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>())
        })
        .collect();
    let first = laid_out.first().map(|first| (first.wishes.clone(), (first.job, first.step.step_id)));
    for LaidOut { job, wishes, step, .. } in &laid_out {
        if let Err(error) = bcast::executable(session, *job, wishes, step, argv).await {
            for (step, nodes) in all {
                abandon(session, step, nodes, FAILURE).await;
            }
            return Err(error);
        }
    }
    if let Some((wishes, step)) = &first {
        let prolog = ("prolog", wishes.step.prolog.as_deref());
        if let Some(failed) = programs::beside(session, prolog, *step, argv).await {
            for (step, nodes) in all {
                abandon(session, step, nodes, FAILURE).await;
            }
            bail!("srun prolog failed {failed}. Aborting step.");
        }
    }
    let ended = match Party::launch(session, laid_out, argv) {
        Ok(mut party) => party.follow_through(session, signals).await,
        Err(error) => {
            for (step, nodes) in all {
                abandon(session, step, nodes, FAILURE).await;
            }
            Err(error)
        }
    };
    if let Some((wishes, step)) = &first {
        let epilog = ("epilog", wishes.step.epilog.as_deref());
        if let Some(failed) = programs::beside(session, epilog, *step, argv).await {
            session.error(&format!("srun epilog failed {failed}"));
        }
    }
    ended
}

/// A step with the controller's layout.
struct LaidOut {
    job: u32,
    wishes: Submission,
    step: CreateStepResponse,
    /// The steps of all components that run the program; none where this is the only one.
    world: Vec<HetStep>,
}

impl LaidOut {
    /// Returns the rank of the step's first task.
    fn first_task(&self) -> u32 {
        self.step.nodes.first().map_or(0, |node| node.first_task)
    }

    fn tasks(&self) -> u32 {
        self.step.nodes.iter().map(|node| node.tasks).sum()
    }
}

/// Reports nodes on which the step never started, since they cannot report its end.
async fn abandon(session: &mut Session, (job_id, step_id): (u32, u32), nodes: Vec<String>, exit_code: u8) {
    let request = AbandonStepRequest { job_id, step_id, nodes, exit_code: exit_code.into() };
    let Ok(connection) = session.connection() else { return };
    let told = connection.read(request, async |mut controller, r| controller.abandon_step(r).await).await;
    // A refusal means that the controller knows the end of the step.
    if let Err(error) = told
        && error.code().is_none()
    {
        session.error(&format!("cannot tell the controller that the step was not launched: {error}"));
    }
}

/// Ends a step through the controller, also on nodes that this command cannot reach. Returns true if the job
/// is already ending, which gives its steps their KillWait.
async fn end_by_controller(session: &mut Session, job: u32, step: u32) -> bool {
    let request = CancelJobsRequest {
        steps: vec![format!("{job}.{step}")],
        signal: Some(Signal::KILL.number().into()),
        ..CancelJobsRequest::default()
    };
    let Ok(connection) = session.connection() else { return false };
    let asked = connection.change(request, async |mut controller, r| controller.cancel_jobs(r).await).await;
    match asked {
        Ok(answer) => {
            let errors = answer.problems.iter().flat_map(|problem| &problem.error);
            errors.into_iter().any(|error| error.code == JOB_IS_OVER)
        }
        Err(error) => {
            session.error(&format!("cannot end the step through the controller: {error}"));
            false
        }
    }
}

/// Requests the step from the controller, and waits while other steps of the job use the resources.
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
    let patience = patience(wishes).unwrap_or(Duration::MAX);
    let mut over = std::pin::pin!(sleep(patience));
    loop {
        tokio::select! {
            step = &mut asked => {
                if told && !wishes.quiet && step.is_ok() {
                    eprintln!("{name}: Step created for job {job}");
                }
                return step.map_err(|error| not_created(job, error));
            }
            signal = signals.next() => {
                bail!(Failure { text: "step creation was interrupted".to_owned(), code: 128 + signal.number() });
            }
            () = &mut over => bail!("Unable to create step for job {job}: Requested nodes are busy"),
            () = sleep(QUIET_WAIT), if !told => {
                told = true;
                eprintln!(
                    "{name}: Job {job} step creation temporarily disabled, retrying (Requested nodes are busy)"
                );
            }
        }
    }
}

/// Returns the error for a refused step, in Slurm's words.
fn not_created(job: u32, error: CallError) -> anyhow::Error {
    let expired = format!("Check SLURM_JOB_ID environment variable. Expired or invalid job {job}");
    match error.code() {
        Some("ESLURM_INVALID_JOB_ID") => {
            anyhow!("Unable to confirm allocation for job {job}: {error}\n{expired}")
        }
        Some(JOB_IS_OVER) => anyhow!("Slurm job {job} has expired\n{expired}"),
        _ => anyhow::Error::new(error).context(format!("Unable to create step for job {job}")),
    }
}

/// Requests the changed parts of a step's layout from the controller.
async fn ask_again(
    connection: &mut Connection,
    job: u32,
    step: u32,
    world: &[HetStep],
) -> Result<CreateStepResponse, CallError> {
    let request = CreateStepRequest {
        job_id: job,
        renew_step: Some(step),
        het_steps: world.to_vec(),
        ..CreateStepRequest::default()
    };
    connection.read(request, async |mut controller, r| controller.create_step(r).await).await
}

/// Steps that run together: a single one, or one per component of a het job.
struct Party {
    runs: Vec<Run>,
    /// Events of nodes, with the index of the node among those of all steps.
    events: mpsc::Receiver<(usize, Event)>,
}

/// The controller's answer about the addresses of a step's nodes.
struct Answered {
    at: Instant,
    nodes: Vec<StepNodeLayout>,
    /// True if the controller said that the step has ended, or that it knows no such step.
    is_over: bool,
}

/// A running step.
struct Run {
    job: u32,
    step: u32,
    /// The steps of all components that run the program; none where this is the only one.
    world: Vec<HetStep>,
    wishes: Submission,
    /// Index of the step's first node among those of all steps.
    first: usize,
    nodes: Vec<Node>,
    outputs: Outputs,
    endings: Endings,
    /// Number of nodes that have not ended.
    open: usize,
    states: States,
    /// The last answer about the nodes' addresses.
    whereabouts: Option<Answered>,
    /// Raw mode of the terminal while the first task has its keys.
    raw: Option<Raw>,
    exit: ExitCode,
    /// Time at which the other tasks are ended because the first one has ended.
    rest_until: Option<Instant>,
    interrupted: Option<Instant>,
    /// Time at which tasks that survive an interrupt are killed.
    kill_at: Option<Instant>,
    killed: bool,
    /// True if the early end of the step was reported.
    cancelled: bool,
    /// True if a task was ended by TERM or KILL.
    forced: bool,
    /// Error of the output, after which nothing is written.
    deaf: Option<anyhow::Error>,
    /// Nodes on which the step was not launched.
    never_launched: Vec<String>,
    /// True if the step may run on a node that cannot be reached.
    out_of_reach: bool,
}

impl Party {
    /// Launches all steps. Input goes to all of them, or to one task of the first.
    fn launch(session: &Session, steps: Vec<LaidOut>, argv: &[String]) -> anyhow::Result<Party> {
        let (tell, events) = mpsc::channel(EVENTS);
        let mut runs: Vec<Run> = Vec::with_capacity(steps.len());
        let mut input: Option<Input> = None;
        let alone = steps.len() == 1;
        let all_tasks = steps.iter().map(LaidOut::tasks).sum();
        for laid_out in steps {
            let first = runs.iter().map(|run| run.nodes.len()).sum();
            let come_in = match &input {
                None => {
                    let said = laid_out.wishes.files.input.as_deref();
                    let tasks = laid_out.tasks();
                    let said = said.or_else(|| laid_out.wishes.step.pty.then_some("0"));
                    input.insert(Input::of(said, tasks)?).wanted(true)
                }
                Some(input) => input.wanted(false),
            };
            let all_tasks = Some(all_tasks).filter(|_| !alone);
            runs.push(Run::launch(session, laid_out, argv, (first, tell.clone()), come_in, all_tasks)?);
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
            let due = |run: &Run| [run.rest_until, run.kill_at, run.endings.due()];
            let due = self.runs.iter().flat_map(due).flatten().min();
            tokio::select! {
                Some((index, event)) = self.events.recv() => {
                    if let Some(run) = self.runs.iter_mut().rev().find(|run| run.first <= index) {
                        match event {
                            Event::Expired { renewed } => run.renew(session, renewed).await,
                            Event::Away { found } => run.find(session, index - run.first, found).await,
                            event => run.take(session, index - run.first, event),
                        }
                    }
                    // The components of one program end together.
                    let is_ended = |run: &Run| run.killed || run.cancelled;
                    if self.runs.iter().any(is_ended) {
                        let others = self.runs.iter_mut().filter(|run| !is_ended(run));
                        others.for_each(|run| run.abort(session));
                    }
                }
                signal = signals.next() => {
                    for run in &mut self.runs {
                        run.signal(session, signal).await;
                    }
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    for run in &mut self.runs {
                        run.tell_endings(session, Ended::is_due);
                        run.end_rest(session);
                    }
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
    /// Ends the remaining tasks if the time after an interrupt or after the first task's end is over.
    fn end_rest(&mut self, session: &mut Session) {
        if self.kill_at.is_some_and(|kill_at| kill_at <= Instant::now()) {
            self.kill_at = None;
            session.inform("forcing job termination");
            self.cancelled = true;
            self.kill();
        }
        if self.rest_until.is_some_and(|rest_until| rest_until <= Instant::now()) {
            self.rest_until = None;
            self.tell_endings(session, |_| true);
            let waited = self.wishes.step.wait.unwrap_or_default().as_secs();
            session.inform(&format!("First task exited {waited}s ago"));
            let step = format!("StepId={}.{}", self.job, self.step);
            self.states.lines(&step).iter().for_each(|line| session.inform(line));
            session.inform(&format!("Terminating {step}"));
            self.terminate(Duration::ZERO);
            self.tell_of_end(session);
        }
    }

    /// Reports the chosen ends of tasks.
    fn tell_endings(&mut self, session: &mut Session, chosen: impl Fn(&Ended) -> bool) {
        self.endings.tell(session, |node| &self.nodes[node].layout.name, chosen);
    }

    /// Reports once that the step is ended early.
    fn tell_of_end(&mut self, session: &mut Session) {
        if !std::mem::replace(&mut self.cancelled, true) {
            session.inform(&format!(
                "Job step aborted: Waiting up to {CANCEL_WAIT} seconds for job step to finish."
            ));
        }
    }

    /// Finishes the step after all nodes have ended and returns its exit code.
    async fn end(&mut self, session: &mut Session) -> anyhow::Result<ExitCode> {
        let rest = self.with_own(session, |outputs, own| outputs.finish_all(own));
        self.hear(rest);
        if self.raw.take().is_some() {
            session.set_raw(false);
        }
        self.leave(session).await;
        if self.forced && !self.cancelled {
            session.inform(&format!("Force Terminated StepId={}.{}", self.job, self.step));
        }
        match self.deaf.take() {
            Some(error) => Err(error),
            None => Ok(self.exit),
        }
    }

    /// Requests a newer credential of the step.
    async fn renew(&mut self, session: &mut Session, renewed: oneshot::Sender<Bytes>) {
        let Ok(connection) = session.connection() else { return };
        match ask_again(connection, self.job, self.step, &self.world).await {
            Ok(answer) if answer.credential.is_empty() => session.error(&self.cut_off("")),
            // The receiver is gone if the node was given up.
            Ok(answer) => drop(renewed.send(answer.credential)),
            Err(error) if error.code().is_some() => session.error(&self.cut_off(&format!(" ({error})"))),
            Err(error) => session.error(&format!("no newer credential for the step: {error}")),
        }
    }

    /// Returns the message for a launch that a restart of the daemon interrupted. Tasks may have run, so the
    /// launch is not repeated.
    fn cut_off(&self, why: &str) -> String {
        format!(
            "StepId={}.{} is lost: the daemon of a node ended while the step was launched there{why}",
            self.job, self.step
        )
    }

    /// Returns what the controller knows of a node, if the controller answers at once. The answer covers all
    /// nodes and is reused for [`NEWS`].
    async fn find(&mut self, session: &mut Session, index: usize, found: oneshot::Sender<Whereabouts>) {
        if self.whereabouts.as_ref().is_none_or(|last| last.at.elapsed() > NEWS) {
            let Ok(connection) = session.connection() else { return };
            let mut connection = connection.clone().with_patience(Duration::ZERO);
            let (nodes, is_over) = match ask_again(&mut connection, self.job, self.step, &self.world).await {
                // An ended step has no credential.
                Ok(step) => (step.nodes, step.credential.is_empty()),
                // A controller that does not answer is asked no sooner than one that does.
                Err(error) => (vec![], error.is_refusal()),
            };
            self.whereabouts = Some(Answered { at: Instant::now(), nodes, is_over });
        }
        let Some(Answered { nodes, is_over, .. }) = &self.whereabouts else { return };
        let name = &self.nodes[index].layout.name;
        let node = nodes.iter().find(|node| node.name == *name).cloned();
        // The receiver is gone if the node was given up.
        drop(found.send(Whereabouts { node, is_over: *is_over }));
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
            Event::Ended(ended) => self.task_ended(session, index, &ended),
            Event::Cancelled if self.killed => {}
            Event::Cancelled => self.tell_of_end(session),
            // If several nodes end the step, the first message has the cause.
            Event::Aborted(_) if self.killed => {}
            Event::Aborted(why) => {
                session.error(&format!("{}: {why}", self.nodes[index].layout.name));
                self.abort(session);
            }
            Event::Done => {
                self.open -= 1;
                self.tell_endings(session, |ended| ended.node == index);
                let tasks = ranks(&self.nodes[index].layout);
                let rest = self.with_own(session, |outputs, own| {
                    tasks.iter().try_for_each(|task| outputs.finish(task, own))
                });
                self.hear(rest);
            }
            Event::Lost { why, launched } => {
                self.open -= 1;
                self.tell_endings(session, |_| true);
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

    fn task_ended(&mut self, session: &mut Session, index: usize, ended: &TaskEnded) {
        let small = |number| u8::try_from(number).unwrap_or(u8::MAX);
        let exit = ExitCode { code: small(ended.exit_code), signal: small(ended.exit_signal) };
        let task = ended.task;
        if exit == NO_FILES {
            // The node reports the file, and the task has not run.
            self.states.set(task, State::FailedToStart);
            self.exit = states::worse(self.exit, ExitCode::exited(FAILURE));
            return;
        }
        let state = if exit.is_success() { State::Exited } else { State::ExitedAbnormally };
        self.states.set(task, state);
        if !exit.is_success() || self.wishes.verbose > 0 {
            self.endings.add(index, task, (exit, ended.core_dumped));
        }
        if !exit.is_success() {
            self.exit = states::worse(self.exit, exit);
            self.forced |= [Signal::TERM.number(), Signal::KILL.number()].contains(&exit.signal);
            // Each node knows only the ends of its own tasks.
            let ends_all = self.wishes.oom_kill_step == Some(true) && exit == ExitCode::OUT_OF_MEMORY;
            if (ends_all || self.wishes.step.kill_on_bad_exit == Some(true)) && !self.killed && self.open > 0
            {
                self.tell_endings(session, |_| true);
                session.inform(&format!("Terminating StepId={}.{}", self.job, self.step));
                self.terminate(TERM_WAIT);
            }
        }
        if let Some(wait) = self.wishes.step.wait
            && self.rest_until.is_none()
            && !self.killed
        {
            self.rest_until = Some(Instant::now() + wait);
        }
    }

    /// Ends the remaining tasks because a part of the step failed.
    fn abort(&mut self, session: &mut Session) {
        if !self.killed && self.open > 0 {
            self.tell_endings(session, |_| true);
            session.inform(&format!("Terminating StepId={}.{}", self.job, self.step));
            self.kill();
        }
    }

    /// Asks the nodes to end all tasks, with `wait` before SIGKILL.
    fn terminate(&mut self, wait: Duration) {
        self.killed = true;
        let kill_wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        for node in &self.nodes {
            // The receiver is gone if the node has ended.
            let _ = node.orders.send(StepInputKind::Terminate(StepTerminate { kill_wait_ms }));
        }
    }

    fn kill(&mut self) {
        self.killed = true;
        self.pass_on(Signal::KILL);
    }

    fn pass_on(&self, signal: Signal) {
        for node in &self.nodes {
            // The receiver is gone if the node has ended.
            let _ = node.orders.send(StepInputKind::Signal(StepSignal { signal: signal.number().into() }));
        }
    }

    /// Handles a signal. The first interrupt prints the tasks' states, and a second one within [`TWICE`] ends
    /// them, as do signals that would end this command. Other signals are passed on to the tasks; with
    /// `--disable-status` also the first interrupt.
    async fn signal(&mut self, session: &mut Session, signal: Signal) {
        let step = format!("StepId={}.{}", self.job, self.step);
        self.tell_endings(session, |_| true);
        match signal {
            resized if resized.number() == WINCH => {
                let first = self.nodes.iter().find(|node| ranks(&node.layout).contains(0));
                if let Some(node) = first.filter(|_| self.wishes.step.pty) {
                    // The receiver is gone if the node has ended.
                    let _ = node.orders.send(StepInputKind::Window(terminal::window()));
                }
            }
            Signal::INT if self.wishes.step.pty => self.pass_on(signal),
            Signal::INT if self.wishes.step.quit_on_interrupt => self.interrupt(session, &step),
            Signal::INT if self.kill_at.is_some() => self.force(session).await,
            Signal::INT if self.wishes.step.disable_status => {
                if self.interrupted.replace(Instant::now()).is_some_and(is_recent) {
                    self.force(session).await;
                } else {
                    session.inform(&format!("sending Ctrl-C to {step}"));
                    self.pass_on(signal);
                }
            }
            Signal::INT if self.interrupted.is_some_and(is_recent) => self.interrupt(session, &step),
            Signal::INT => {
                self.interrupted = Some(Instant::now());
                // The message is printed once for all steps.
                if self.first == 0 {
                    session.inform("interrupt (one more within 1 sec to abort)");
                }
                self.states.lines(&step).iter().for_each(|line| session.inform(line));
            }
            Signal::TERM | Signal::HUP | Signal::QUIT => {
                session.inform("forcing job termination");
                self.cancelled = true;
                // The signal may come from the job's end, which also reaches the tasks; these then have
                // KillWait to end.
                let job_ends = end_by_controller(session, self.job, self.step);
                if !tokio::time::timeout(ANSWER_WAIT, job_ends).await.unwrap_or(false) {
                    self.kill();
                }
            }
            other => self.pass_on(other),
        }
    }

    /// Interrupts the tasks; those that remain after [`TWICE`] are killed.
    fn interrupt(&mut self, session: &mut Session, step: &str) {
        session.inform(&format!("sending Ctrl-C to {step}"));
        self.pass_on(Signal::INT);
        self.kill_at = Some(Instant::now() + TWICE);
    }

    /// Kills the tasks and ends the step through the controller.
    async fn force(&mut self, session: &mut Session) {
        session.inform("forcing job termination");
        self.cancelled = true;
        self.kill();
        end_by_controller(session, self.job, self.step).await;
    }

    /// Reports to the controller the nodes that this command could not start or end.
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

    /// Ends the step after a failed write; the error is reported at the end.
    fn hear(&mut self, written: anyhow::Result<()>) {
        if let Err(error) = written
            && self.deaf.is_none()
        {
            self.deaf = Some(error);
            self.kill();
        }
    }
}

/// True if a further interrupt would be the second within [`TWICE`].
fn is_recent(interrupted: Instant) -> bool {
    interrupted.elapsed() < TWICE
}
