//! The owner: the one task that owns the node's state. It feeds [`Compute`] and carries out the effects.
//!
//! Everything reaches the owner through one queue, and it waits for nothing else. Prolog, epilog and steps
//! run in tasks of their own, which report back as messages.

pub(crate) mod register;
mod report;
pub(crate) mod running;
mod uplink;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use spur_core::compute::credential::Ended;
use spur_core::compute::{Compute, Effect, Input, Site, StepEnd};
use spur_core::id::{Attempt, StepId};
use spur_core::model::program;
use spur_core::text::signal::Signal;
use spur_proto::keys::Keyring;
use spur_proto::program::{SiteProgram, matching};
use spur_proto::v1::node_message::Message as Up;
use spur_proto::{convert, v1};
use step_wire::attempt::StepAttempt;
use step_wire::message::{Request, SignalScope};
use step_wire::notice::cancelled;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use self::running::{Control, Starting};
use self::uplink::Speaker;
use crate::assemble::{NodeFacts, Prepared};
use crate::clock::ControllerClock;
use crate::launcher::{Launcher, Step};
use crate::node::groups::Groups;
use crate::node::job_container::JobContainers;
use crate::prolog;
use crate::settings::Settings;
use crate::spool::Spool;

/// Capacity of the owner's queue.
pub(crate) const QUEUE: usize = 1024;

/// Longest wait for a step's answer about its usage.
const USAGE_WAIT: Duration = Duration::from_secs(2);

/// Longest run time of the program that reboots the host.
const BOOT_LIMIT: Duration = Duration::from_secs(600);

/// The answer to a client that launches a step: the live step, or the reason why there is none.
pub(crate) type LaunchAnswer = oneshot::Sender<Result<Step, NotLaunched>>;

/// The reason why a step is not launched.
pub(crate) enum NotLaunched {
    /// The credential has expired; a new one may work.
    Expired(String),
    /// The launch failed for any other reason.
    Failed(String),
}

/// A message to the owner.
pub(crate) enum Message {
    /// An order of the controller.
    Order(Box<v1::order::Order>),
    /// A stream to the controller is open and sends what comes through `uplink`. `held` gets the attempts and
    /// reports for the registration.
    Connected { uplink: mpsc::UnboundedSender<v1::NodeMessage>, held: oneshot::Sender<Holdings> },
    /// A client launches a step.
    LaunchStep { prepared: Box<Prepared>, issued_ms: i64, answer: LaunchAnswer },
    /// A client queries a live step.
    Find { step: StepAttempt, answer: oneshot::Sender<Option<Step>> },
    /// An input for [`Compute`], such as the end of a step or of a site program.
    Told(Input),
    /// The configuration was read again.
    Settings(Arc<Settings>, Arc<NodeFacts>),
}

/// The attempts and reports that a registration names.
pub(crate) struct Holdings {
    pub(crate) attempts: Vec<v1::HeldAttempt>,
    /// Reports that no controller has acknowledged, oldest first.
    pub(crate) reports: Vec<v1::Report>,
}

/// The parts of the daemon that the owner uses.
pub(crate) struct Tools {
    pub(crate) settings: Arc<Settings>,
    pub(crate) facts: Arc<NodeFacts>,
    pub(crate) spool: Arc<Spool>,
    pub(crate) launcher: Launcher,
    pub(crate) groups: Option<Groups>,
    pub(crate) containers: Option<JobContainers>,
    pub(crate) clock: Arc<ControllerClock>,
    /// The keys of the cluster in force; `None` without authentication.
    pub(crate) keyring: Option<Keyring>,
}

impl Tools {
    /// Returns the connector through which steps of this node reach other nodes.
    fn speaker(&self) -> Speaker {
        Speaker {
            node: self.facts.name.clone(),
            keyring: self.keyring.clone(),
            clock: Arc::clone(&self.clock),
        }
    }
}

/// A launch that waits for the prolog.
struct Pending {
    prepared: Box<Prepared>,
    answer: Option<LaunchAnswer>,
}

pub(crate) struct Owner {
    compute: Compute,
    tools: Tools,
    inbox: mpsc::Sender<Message>,
    pending: BTreeMap<StepAttempt, Pending>,
    running: BTreeMap<StepAttempt, mpsc::UnboundedSender<Control>>,
    uplink: Option<mpsc::UnboundedSender<v1::NodeMessage>>,
    /// The controller's reason for the termination of an attempt, for the user's notice.
    causes: BTreeMap<Attempt, String>,
    /// Attempts that are over, for as long as their credentials may be valid.
    ended: Ended,
    /// The run of the program that reboots the host, if it was ever started.
    booting: Option<JoinHandle<()>>,
}

impl Owner {
    /// Recovers the state that an earlier spurd left in the spool, and returns the owner and its queue.
    ///
    /// # Errors
    /// Fails if the spool cannot be read, or if remaining processes cannot be killed.
    pub(crate) async fn recover(
        tools: Tools,
    ) -> std::io::Result<(Owner, mpsc::Sender<Message>, mpsc::Receiver<Message>)> {
        let (found, live) = tools.spool.recover()?;
        let lost = found.iter().flat_map(|job| {
            let lost = job.steps.iter().filter(|(_, end)| *end == Some(StepEnd::Lost));
            lost.map(|(step, _)| StepAttempt { attempt: job.attempt, step: *step })
        });
        // An attempt must not be reported as over while any of its processes may still run.
        tools.launcher.bury(lost.collect()).await?;
        if let Some(containers) = &tools.containers {
            containers.keep_only(found.iter().map(|job| job.attempt));
        }
        let (inbox, messages) = mpsc::channel(QUEUE);
        let (compute, effects) = Compute::recover(site(&tools.settings), found);
        let mut owner = Owner {
            compute,
            tools,
            inbox: inbox.clone(),
            pending: BTreeMap::new(),
            running: BTreeMap::new(),
            uplink: None,
            causes: BTreeMap::new(),
            ended: Ended::default(),
            booting: None,
        };
        for step in live {
            tracing::info!(%step, "found alive");
            let (step_handle, events) = owner.tools.launcher.resume(step).await;
            let (control, controlled) = mpsc::unbounded_channel();
            owner.running.insert(step, control);
            let speaker = owner.tools.speaker();
            tokio::spawn(running::follow(speaker, step_handle, events, controlled, owner.inbox.clone()));
        }
        owner.carry_out(effects);
        Ok((owner, inbox, messages))
    }

    /// Handles messages until every sender is gone.
    pub(crate) async fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        while let Some(message) = messages.recv().await {
            self.receive(message);
        }
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Order(order) => self.obey(*order),
            Message::Connected { uplink, held } => self.connected(uplink, held),
            Message::LaunchStep { prepared, issued_ms, answer } => {
                let step = prepared.launch.order.attempt;
                if let Err(expired) = self.credential(step.attempt, issued_ms) {
                    // A client that is gone needs no answer.
                    drop(answer.send(Err(NotLaunched::Expired(expired))));
                    return;
                }
                let fault = self.tools.spool.fault();
                if !fault.is_empty() {
                    drop(answer.send(Err(NotLaunched::Failed(fault.to_string()))));
                    return;
                }
                self.launch(
                    prepared,
                    Some(answer),
                    Input::LaunchStep { attempt: step.attempt, step: step.step },
                );
            }
            Message::Find { step, answer } => self.find(step, answer),
            Message::Told(input) => {
                if let Input::StepEnded { attempt, step, end } = &input {
                    self.running.remove(&StepAttempt { attempt: *attempt, step: *step });
                    // A job on this node alone ends without an order of the controller; an order's outcome
                    // takes precedence.
                    if !self.causes.contains_key(attempt) {
                        let (is_batch, exit) = (*step == StepId::BATCH, end.exit());
                        self.note_end(*attempt, |known| program::of_end_after(known, is_batch, exit));
                    }
                }
                self.tell(input);
            }
            Message::Settings(settings, facts) => {
                self.compute.set_site(site(&settings));
                self.tools.settings = settings;
                self.tools.facts = facts;
            }
        }
    }

    /// Answers with a handle on the step; the handle of an ended step still gives access to its output.
    fn find(&self, step: StepAttempt, answer: oneshot::Sender<Option<Step>>) {
        let mut asked = Control::Handle(answer);
        if let Some(control) = self.running.get(&step) {
            match control.send(asked) {
                Ok(()) => return,
                // The step has just ended, and its end has not reached the owner yet.
                Err(mpsc::error::SendError(unsent)) => asked = unsent,
            }
        }
        let Control::Handle(answer) = asked else { return };
        let known = self.compute.knows(step.attempt, step.step);
        // A client that is gone needs no answer.
        drop(answer.send(known.then(|| self.tools.launcher.ended(step))));
    }

    fn tell(&mut self, input: Input) {
        let effects = self.compute.handle(input);
        self.carry_out(effects);
    }

    fn connected(&mut self, uplink: mpsc::UnboundedSender<v1::NodeMessage>, held: oneshot::Sender<Holdings>) {
        let outstanding = self.compute.outstanding();
        let reports: Vec<v1::Report> =
            outstanding.map(|(id, attempt, said)| report::wire(id, attempt, said)).collect();
        let attempts = self.compute.held().map(report::held).collect();
        if held.send(Holdings { attempts, reports: reports.clone() }).is_err() {
            return;
        }
        for told in reports {
            // A controller of an earlier release does not read reports in the registration. If the stream is
            // gone already, the next one gets all reports.
            let _ = uplink.send(report::message(Up::Report(told)));
        }
        self.uplink = Some(uplink);
    }

    fn obey(&mut self, order: v1::order::Order) {
        use v1::order::Order;
        match order {
            Order::Launch(launch) => self.obey_launch(launch),
            Order::Terminate(v1::Terminate { attempt: Some(attempt), kill, cause, exit }) => {
                let attempt = convert::agent::attempt(attempt);
                tracing::info!(%attempt, kill, "terminate");
                self.causes.insert(attempt, cause);
                if let Some(exit) = exit {
                    let derived = convert::agent::exit(exit.derived_code, exit.derived_signal);
                    let own = convert::agent::exit(exit.code, exit.signal);
                    self.note_end(attempt, |_| program::of_end(own, derived));
                }
                self.tell(Input::Terminate { attempt, kill });
            }
            Order::Suspend(v1::Suspend { attempt: Some(attempt), resume }) => {
                let attempt = convert::agent::attempt(attempt);
                tracing::info!(%attempt, resume, "suspend");
                self.tell(Input::Suspend { attempt, stop: !resume });
            }
            Order::Signal(v1::Signal { attempt: Some(attempt), signal, step_id, batch, steps }) => {
                let attempt = convert::agent::attempt(attempt);
                match u8::try_from(signal).ok().and_then(Signal::new) {
                    Some(signal) => {
                        let step = step_id.map(StepId);
                        self.tell(Input::Signal { attempt, step, signal, batch, steps });
                    }
                    None => tracing::error!(%attempt, signal, "order to send a signal that does not exist"),
                }
            }
            Order::Acknowledge(v1::Acknowledge { report_ids }) => {
                self.tell(Input::Acknowledge { reports: report_ids });
            }
            Order::Reboot(_) => self.reboot(),
            Order::Usage(query) => self.tell_usage(query),
            Order::Forget(v1::Forget { attempts }) => {
                for attempt in attempts {
                    self.tell(Input::Forget { attempt: convert::agent::attempt(attempt) });
                }
            }
            Order::Notify(v1::Notify { attempt: Some(attempt), message }) => {
                let step = StepAttempt { attempt: convert::agent::attempt(attempt), step: StepId::BATCH };
                self.ask(step, Request::Notice { text: format!("slurmstepd: error: {message}") });
            }
            Order::EndStep(v1::EndStep { attempt: Some(attempt), step_id, kill_wait_ms, cause }) => {
                let step = StepAttempt { attempt: convert::agent::attempt(attempt), step: StepId(step_id) };
                tracing::info!(%step, kill_wait_ms, cause, "end the step");
                let notice = Some(cancelled(step, &self.tools.facts.name, &cause));
                self.ask(step, Request::Terminate { kill_wait_ms: Some(kill_wait_ms), notice });
            }
            Order::Terminate(_)
            | Order::Suspend(_)
            | Order::Signal(_)
            | Order::Notify(_)
            | Order::EndStep(_) => {
                tracing::error!("an order that names no attempt")
            }
            Order::Welcome(_)
            | Order::Refusal(_)
            | Order::Shutdown(_)
            | Order::Standing(_)
            | Order::Ping(_) => {
                tracing::error!("not an order about an attempt");
            }
        }
    }

    /// Collects the usage of the steps of attempts, and sends it to the controller.
    fn tell_usage(&self, query: v1::UsageQuery) {
        let Some(uplink) = self.uplink.clone() else { return };
        let attempts: Vec<Attempt> = query.attempts.into_iter().map(convert::agent::attempt).collect();
        let asked: Vec<StepAttempt> =
            self.running.keys().filter(|step| attempts.contains(&step.attempt)).copied().collect();
        let launcher = self.tools.launcher.clone();
        tokio::spawn(async move {
            let mut steps = Vec::new();
            for step in asked {
                let answer = tokio::time::timeout(USAGE_WAIT, async { launcher.ended(step).usage().await });
                // A step without an answer is ending, or does not respond.
                if let Ok(Ok(used)) = answer.await {
                    steps.push(report::step_usage(step, used));
                }
            }
            let answer = v1::UsageAnswer { id: query.id, steps };
            // Nobody waits for the answer once the stream is gone.
            let _ = uplink.send(report::message(v1::node_message::Message::Usage(answer)));
        });
    }

    fn obey_launch(&mut self, launch: v1::Launch) {
        let Some(attempt) = launch.attempt.map(convert::agent::attempt) else {
            tracing::error!("a launch that names no attempt");
            return;
        };
        if self.compute.knows(attempt, StepId::BATCH) {
            return;
        }
        tracing::info!(%attempt, "launch");
        let (alone, fault) = (launch.alone, self.tools.spool.fault());
        if !fault.is_empty() {
            self.tell(Input::CannotLaunch { attempt, message: fault.to_string() });
            return;
        }
        match self.tools.facts.batch(launch) {
            Ok(prepared) => self.launch(Box::new(prepared), None, Input::Launch { attempt, alone }),
            Err(error) => {
                let message = format!("order not understood: {error}");
                self.tell(Input::CannotLaunch { attempt, message });
            }
        }
    }

    /// Checks that a credential issued at `issued_ms` still allows a launch.
    fn credential(&self, attempt: Attempt, issued_ms: i64) -> Result<(), String> {
        let time = self.tools.clock.now_and_start();
        let (now, start) = time.ok_or("no controller has welcomed this node since its daemon started")?;
        self.ended.allows(attempt, issued_ms, now, start).map_err(|expired| expired.to_string())
    }

    fn launch(&mut self, prepared: Box<Prepared>, answer: Option<LaunchAnswer>, input: Input) {
        let step = prepared.launch.order.attempt;
        if self.compute.knows(step.attempt, step.step) {
            let known = format!("step {step} was launched on this node before");
            // A client that is gone needs no answer.
            drop(answer.map(|answer| answer.send(Err(NotLaunched::Failed(known)))));
            return;
        }
        let agent = &self.tools.settings.agent;
        if !agent.prolog.is_empty() || !agent.epilog.is_empty() {
            let kept = self.tools.spool.remember_variables(step.attempt, &prepared.site_environment);
            complain(kept, "keep the variables of", step.attempt);
        }
        self.pending.insert(step, Pending { prepared, answer });
        self.tell(input);
    }

    /// Stores for the epilog how the job ends; `how` computes the variables from those of the job.
    fn note_end(&self, attempt: Attempt, how: impl FnOnce(&[(String, String)]) -> Vec<(String, String)>) {
        if self.tools.settings.agent.epilog.is_empty() {
            return;
        }
        let end = how(&self.tools.spool.variables(attempt));
        complain(self.tools.spool.remember_end(attempt, &end), "keep the end of", attempt);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Remember { attempt, record } => {
                    let kept = self.tools.spool.remember(attempt, &record);
                    complain(kept, "keep the record of", attempt);
                }
                Effect::RunProlog { attempt } => self.run_site_program(attempt, true),
                Effect::RunEpilog { attempt } => self.run_site_program(attempt, false),
                Effect::Spawn { attempt, step } => self.spawn(StepAttempt { attempt, step }),
                Effect::Refuse { attempt, step, reason } => {
                    let pending = self.pending.remove(&StepAttempt { attempt, step });
                    let answer = pending.and_then(|pending| pending.answer);
                    // A client that is gone needs no answer.
                    drop(answer.map(|answer| answer.send(Err(NotLaunched::Failed(reason)))));
                }
                Effect::TerminateStep { attempt, step, kill } => {
                    self.terminate(StepAttempt { attempt, step }, kill)
                }
                Effect::SuspendStep { attempt, step, stop } => {
                    self.ask(StepAttempt { attempt, step }, Request::Suspend { stop });
                }
                Effect::SignalStep { attempt, step, signal: Signal::KILL, tasks_only: false } => {
                    let step = StepAttempt { attempt, step };
                    let notice = cancelled(step, &self.tools.facts.name, "");
                    self.ask(step, Request::Terminate { kill_wait_ms: Some(0), notice: Some(notice) });
                }
                Effect::SignalStep { attempt, step, signal, tasks_only } => {
                    let scope = if tasks_only { SignalScope::Tasks } else { SignalScope::All };
                    let signal = signal.number().into();
                    self.ask(StepAttempt { attempt, step }, Request::Signal { signal, scope });
                }
                Effect::Report { id, attempt, report } => {
                    if let Some(uplink) = &self.uplink {
                        // If the stream is gone, the next one gets every report that is not acknowledged.
                        let _ = uplink.send(report::report(id, attempt, &report));
                    }
                }
                Effect::StepAcknowledged { attempt, step } => {
                    let gone = self.tools.spool.acknowledge(StepAttempt { attempt, step });
                    complain(gone, "clear up a step of", attempt);
                }
                Effect::Forget { attempt, steps } => {
                    complain(self.tools.spool.forget(attempt, &steps), "forget", attempt);
                    self.causes.remove(&attempt);
                    if let Some((now, _)) = self.tools.clock.now_and_start() {
                        self.ended.remember(attempt, now);
                    }
                    if let Some(groups) = &self.tools.groups {
                        groups.remove(attempt);
                    }
                    if let Some(containers) = &self.tools.containers {
                        containers.remove(attempt);
                    }
                }
            }
        }
    }

    fn spawn(&mut self, step: StepAttempt) {
        let Some(Pending { prepared, answer }) = self.pending.remove(&step) else {
            tracing::error!(%step, "nothing is known of a step that is to be spawned");
            let end = running::not_launched("the order is lost".to_owned(), true);
            self.tell(Input::StepEnded { attempt: step.attempt, step: step.step, end });
            return;
        };
        let (control, controlled) = mpsc::unbounded_channel();
        self.running.insert(step, control);
        let starting = Starting {
            prepared: *prepared,
            answer,
            spool: Arc::clone(&self.tools.spool),
            launcher: self.tools.launcher.clone(),
            groups: self.tools.groups.clone(),
            containers: self.tools.containers.clone(),
            speaker: self.tools.speaker(),
        };
        tokio::spawn(starting.run(controlled, self.inbox.clone()));
    }

    fn ask(&self, step: StepAttempt, request: Request) {
        if let Some(control) = self.running.get(&step) {
            // A step that is just ending needs no request.
            let _ = control.send(Control::Ask(request));
        }
    }

    fn terminate(&mut self, step: StepAttempt, kill: bool) {
        let notice = (!kill).then(|| {
            let cause = self.causes.get(&step.attempt).map_or("", String::as_str);
            cancelled(step, &self.tools.facts.name, cause)
        });
        self.ask(step, Request::Terminate { kill_wait_ms: kill.then_some(0), notice });
    }

    /// Runs the program that reboots this host, unless it is running already.
    fn reboot(&mut self) {
        let settings = &self.tools.settings;
        if self.booting.as_ref().is_some_and(|under_way| !under_way.is_finished()) {
            return;
        }
        let Some(path) = settings.reboot_program.clone() else {
            tracing::error!("told to boot this host, and its configuration has no reboot_program in [power]");
            return;
        };
        tracing::info!(program = %path.display(), "told to boot this host");
        let program = prolog::program(&path, settings, Vec::new(), BOOT_LIMIT);
        let program = SiteProgram { outlives: true, ..program };
        self.booting = Some(tokio::spawn(async move {
            if let Err(error) = program.run().await {
                tracing::error!("reboot_program {error}");
            }
        }));
    }

    fn run_site_program(&self, attempt: Attempt, is_prolog: bool) {
        let (settings, inbox) = (Arc::clone(&self.tools.settings), self.inbox.clone());
        let agent = &settings.agent;
        let (what, paths) = if is_prolog { ("prolog", &agent.prolog) } else { ("epilog", &agent.epilog) };
        let variables = prolog::variables(attempt, self.tools.spool.variables(attempt), what);
        let limit = Duration::from_secs(agent.prolog_timeout.0);
        let paths = matching(paths);
        tokio::spawn(async move {
            let ended = prolog::run(paths, &settings, &variables, limit).await;
            let error = ended.err().map(|error| format!("{what} {error}"));
            if let Some(error) = &error {
                tracing::error!(%attempt, "{error}");
            }
            let told = if is_prolog {
                Input::PrologDone { attempt, error }
            } else {
                Input::EpilogDone { attempt, error }
            };
            // Without an owner spurd is stopping; the next spurd runs the missing programs.
            let _ = inbox.send(Message::Told(told)).await;
        });
    }
}

/// Returns the site programs that run around jobs according to the configuration.
fn site(settings: &Settings) -> Site {
    Site { prolog: !settings.agent.prolog.is_empty(), epilog: !settings.agent.epilog.is_empty() }
}

fn complain(result: std::io::Result<()>, what: &str, attempt: Attempt) {
    if let Err(error) = result {
        tracing::error!(%attempt, %error, "the spool cannot {what} the attempt");
    }
}
