//! Allocations that a command requests and holds until it ends: `srun` outside of jobs, and `salloc`.
//!
//! The command holds a stream to the controller, which reports on the job and keeps the job alive. A broken
//! stream, e.g. by a restart of the controller, is reopened without a limit of time.

use std::future::Future;
use std::io::Write;
use std::time::Duration;

use rustix::termios::OutputModes;
use spur_core::text::exit::ExitCode;
use spur_core::text::signal::Signal;
use spur_proto::client::{CallError, Connection};
use spur_proto::v1::{
    EndAllocationRequest, HoldAllocationRequest, HoldAllocationResponse, Job, JobSpec, KeyValue,
    SubmitRequest,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use crate::commands::{level, watch};
use crate::error::{FAILURE, Failure};
use crate::options::submission::Submission;
use crate::session::Session;

/// Maximum time to retry reporting the end of an allocation. Without the report, the controller ends the job
/// as abandoned.
const END_PATIENCE: Duration = Duration::from_secs(300);
/// Time between two attempts to reach the controller.
const PAUSE: Duration = Duration::from_secs(1);

/// Message about an allocation.
enum News {
    /// The present state of the allocation.
    Job(Box<Grant>),
    /// The controller cannot be reached just now.
    Away(CallError),
    /// The controller does not know the allocation.
    Gone(CallError),
}

/// A granted allocation, with the environment for programs that run in it.
pub(super) struct Grant {
    /// The job.
    pub job: Job,
    /// Variables for programs that run in the allocation.
    pub environment: Vec<KeyValue>,
    /// True if `salloc` runs the user's shell in a step on the first node of the allocation.
    pub use_interactive_step: bool,
}

/// An allocation, asked for and held.
pub(super) struct Allocation {
    /// Number of the job.
    pub job: u32,
    news: mpsc::UnboundedReceiver<News>,
    /// True if the user was warned that the controller cannot be reached.
    away: bool,
    /// True if the job is ending or has ended.
    over: bool,
    quiet: bool,
    /// True if the user was informed that the nodes are being configured.
    told: bool,
}

/// Returns the error after the time of `--immediate`; `SLURM_EXIT_IMMEDIATE` is its exit code.
pub(super) fn busy(session: &Session) -> Failure {
    let code = session.env("SLURM_EXIT_IMMEDIATE").and_then(|code| code.parse().ok());
    let text = "Unable to allocate resources: Requested nodes are busy".to_owned();
    Failure { text, code: code.unwrap_or(FAILURE) }
}

/// Returns the time to wait for an allocation, given by `--immediate`; `None` for no limit.
pub(super) fn patience(wishes: &Submission) -> Option<Duration> {
    wishes.immediate.filter(|&seconds| seconds > 0).map(|seconds| Duration::from_secs(seconds.into()))
}

/// Result of waiting for an allocation.
pub(super) enum Wait {
    /// The allocation is granted.
    Granted(Box<Grant>),
    /// The allocation was not granted in time; the request was cancelled.
    Busy,
    /// A signal arrived; the request was cancelled.
    Interrupted(Signal),
    /// The allocation was ended by others.
    Revoked,
}

impl Allocation {
    /// Requests an allocation and holds it.
    ///
    /// # Errors
    /// A refusal by the controller.
    pub(super) async fn ask(session: &mut Session, spec: JobSpec, quiet: bool) -> anyhow::Result<Allocation> {
        let connection = session.connection()?;
        level::check(connection, &spec).await?;
        let request = SubmitRequest { job: Some(spec), ..SubmitRequest::default() };
        let asked = connection.change(request, async |mut controller, r| controller.submit(r).await).await;
        let connection = connection.clone();
        let asked = asked?;
        for warning in asked.warnings.iter().filter(|_| !quiet) {
            session.warn(warning);
        }
        let (tell, news) = mpsc::unbounded_channel();
        let name = (!quiet).then_some(session.name);
        tokio::spawn(hold(connection, asked.job_id, name, tell));
        Ok(Allocation { job: asked.job_id, news, away: false, over: false, quiet, told: false })
    }

    /// Waits until the allocation starts. Calls `queued` once if the job has a reason to wait.
    ///
    /// # Errors
    /// The controller does not know the allocation.
    pub(super) async fn wait(
        &mut self,
        session: &mut Session,
        patience: Option<Duration>,
        mut interrupted: impl AsyncFnMut() -> Signal,
        queued: impl FnOnce(&mut Session),
    ) -> anyhow::Result<Wait> {
        let mut give_up = patience.map(|patience| Instant::now() + patience);
        let mut queued = Some(queued);
        loop {
            let news = tokio::select! {
                news = self.news.recv() => news,
                signal = interrupted() => {
                    self.end(session, ExitCode::signaled(signal.number())).await;
                    return Ok(Wait::Interrupted(signal));
                }
                () = sleep_until(give_up.unwrap_or_else(Instant::now)), if give_up.is_some() => {
                    self.end(session, ExitCode::default()).await;
                    return Ok(Wait::Busy);
                }
            };
            let Some(grant) = self.hear(session, news)? else { continue };
            match grant.job.state.as_str() {
                "PENDING" if grant.job.reason == "None" => {}
                "PENDING" => {
                    if let Some(queued) = queued.take() {
                        if let Some(text) = hindrance(&grant.job.reason).filter(|_| !self.quiet) {
                            session.inform(text);
                        }
                        queued(session);
                    }
                }
                // The nodes are allocated and being configured, so `--immediate` no longer applies.
                "CONFIGURING" if !self.over => {
                    if !self.told && !self.quiet {
                        session.inform("Waiting for resource configuration");
                    }
                    (self.told, give_up) = (true, None);
                }
                _ if self.over => return Ok(Wait::Revoked),
                _ => return Ok(Wait::Granted(grant)),
            }
        }
    }

    /// Waits until the allocation ends. Cancelling the wait loses no message.
    pub(super) async fn revoked(&mut self, session: &mut Session) {
        while !self.over {
            let news = self.news.recv().await;
            if self.hear(session, news).is_err() {
                return;
            }
        }
    }

    /// True if the allocation has ended according to the messages received.
    pub(super) fn is_revoked(&mut self, session: &mut Session) -> bool {
        while let Ok(news) = self.news.try_recv() {
            // An unknown allocation has ended.
            let _ = self.hear(session, Some(news));
        }
        self.over
    }

    /// Ends the allocation with the command's exit code, unless it is over.
    pub(super) async fn end(&mut self, session: &mut Session, exit: ExitCode) {
        let request = EndAllocationRequest {
            job_id: self.job,
            exit_code: exit.code.into(),
            exit_signal: exit.signal.into(),
            ..EndAllocationRequest::default()
        };
        let Ok(connection) = session.connection() else { return };
        let mut connection = connection.clone().with_patience(END_PATIENCE);
        let ended =
            connection.change(request, async |mut controller, r| controller.end_allocation(r).await).await;
        self.over = true;
        if let Err(error) = ended
            && error.code() != Some("ESLURM_ALREADY_DONE")
        {
            session.error(&format!(
                "cannot end job {}: {error}; it ends by itself ([controller] inactive_limit)",
                self.job
            ));
        }
    }

    /// Applies one message about the allocation. Returns the allocation if the message contains it.
    ///
    /// # Errors
    /// The allocation is gone, or no more messages come.
    fn hear(&mut self, session: &mut Session, news: Option<News>) -> anyhow::Result<Option<Box<Grant>>> {
        match news {
            Some(News::Job(grant)) => {
                self.away = false;
                self.over |= grant.job.state == "COMPLETING" || watch::is_final(&grant.job.state);
                Ok(Some(grant))
            }
            Some(News::Away(error)) => {
                if !std::mem::replace(&mut self.away, true) {
                    session.warn(&format!("{error}; waiting for it"));
                }
                Ok(None)
            }
            Some(News::Gone(error)) => {
                self.over = true;
                Err(error.into())
            }
            None => {
                self.over = true;
                Err(anyhow::anyhow!("nothing more is heard of job {}", self.job))
            }
        }
    }
}

/// Returns Slurm's message for a job that waits with this reason; `None` if Slurm prints no message.
fn hindrance(reason: &str) -> Option<&'static str> {
    Some(match reason.split([',', ' ', '(']).next().unwrap_or_default() {
        "PartitionDown" => "Partition in DOWN state",
        "PartitionNodeLimit" | "PartitionTimeLimit" => "Requested partition configuration not available now",
        "JobHeldAdmin" | "JobHeldUser" => "Job is in held state, pending scheduler release",
        "ReqNodeNotAvail" => "Required node not available (down, drained or reserved)",
        _ => return None,
    })
}

/// Holds an allocation until it is over or the receiver is dropped.
async fn hold(
    mut connection: Connection,
    job: u32,
    name: Option<&'static str>,
    tell: mpsc::UnboundedSender<News>,
) {
    loop {
        let Err(error) = unless_deaf(&tell, follow(&mut connection, job, name, &tell)).await else { return };
        let news = if error.is_transient() || matches!(error, CallError::TimedOut { .. }) {
            News::Away(error)
        } else {
            News::Gone(error)
        };
        let over = matches!(news, News::Gone(_));
        if tell.send(news).is_err() || over {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// Returns the result of `work`, or success once the receiver is dropped.
async fn unless_deaf(
    tell: &mpsc::UnboundedSender<News>,
    work: impl Future<Output = Result<(), CallError>>,
) -> Result<(), CallError> {
    tokio::select! {
        outcome = work => outcome,
        () = tell.closed() => Ok(()),
    }
}

/// Prints a message to the user at once.
fn say(name: &str, message: &str) {
    let raw = rustix::termios::tcgetattr(std::io::stderr())
        .is_ok_and(|modes| !modes.output_modes.contains(OutputModes::OPOST));
    // A closed stream is ignored.
    let _ =
        std::io::stderr().write_all(format!("{name}: {message}{}\n", if raw { "\r" } else { "" }).as_bytes());
}

/// Follows one stream to its end. Messages to the user are printed under `name`, or not at all for `None`.
async fn follow(
    connection: &mut Connection,
    job_id: u32,
    name: Option<&'static str>,
    tell: &mpsc::UnboundedSender<News>,
) -> Result<(), CallError> {
    let request = HoldAllocationRequest { job_id };
    let mut stream =
        connection.read(request, async |mut controller, r| controller.hold_allocation(r).await).await?;
    while let Some(heard) = connection.next(&mut stream).await? {
        let HoldAllocationResponse { job, environment, message, use_interactive_step } = heard;
        if let Some(job) = job
            && tell.send(News::Job(Box::new(Grant { job, environment, use_interactive_step }))).is_err()
        {
            return Ok(());
        }
        if let Some(name) = name.filter(|_| !message.is_empty()) {
            say(name, &message);
        }
    }
    Ok(())
}
