//! Allocations that a command asks for and holds until it ends: `srun` outside of jobs, and `salloc`.
//!
//! While the command lives it holds a stream to the controller, which tells of the job and keeps it from ending for want
//! of a command. A stream that breaks, e.g. because the controller is restarted, is opened again for as long as it takes.

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

use crate::commands::watch;
use crate::error::{FAILURE, Failure};
use crate::options::submission::Submission;
use crate::session::Session;

/// For how long a controller is waited for that is to hear of the end: without that the job ends as an abandoned one.
const END_PATIENCE: Duration = Duration::from_secs(300);
/// Between two attempts to reach the controller again.
const PAUSE: Duration = Duration::from_secs(1);

/// What is heard of an allocation.
enum News {
    /// The allocation as it is now.
    Job(Box<Grant>),
    /// The controller cannot be reached just now.
    Away(CallError),
    /// The controller knows nothing of it any more.
    Gone(CallError),
}

/// What is known of an allocation.
pub(super) struct Grant {
    /// The job.
    pub job: Job,
    /// The environment of programs in it.
    pub environment: Vec<KeyValue>,
    /// Whether the shell of `salloc` runs on its first node.
    pub use_interactive_step: bool,
}

/// An allocation, asked for and held.
pub(super) struct Allocation {
    /// The number of the job.
    pub job: u32,
    news: mpsc::UnboundedReceiver<News>,
    /// Whether it was said that the controller is away.
    away: bool,
    /// Whether the job ends, or has ended.
    over: bool,
    quiet: bool,
    /// Whether it was said that the job's nodes are made ready.
    told: bool,
}

/// What is said where `--immediate` is over; `SLURM_EXIT_IMMEDIATE` is its exit code.
pub(super) fn busy(session: &Session) -> Failure {
    let code = session.env("SLURM_EXIT_IMMEDIATE").and_then(|code| code.parse().ok());
    let text = "Unable to allocate resources: Requested nodes are busy".to_owned();
    Failure { text, code: code.unwrap_or(FAILURE) }
}

/// For how long an allocation is waited for: `--immediate`, or for ever.
pub(super) fn patience(wishes: &Submission) -> Option<Duration> {
    wishes.immediate.filter(|&seconds| seconds > 0).map(|seconds| Duration::from_secs(seconds.into()))
}

/// How the wait for an allocation ended.
pub(super) enum Wait {
    /// It is there.
    Granted(Box<Grant>),
    /// It is not there in time; it was given up.
    Busy,
    /// A signal came; it was given up.
    Interrupted(Signal),
    /// Somebody has taken it away.
    Revoked,
}

impl Allocation {
    /// Asks for an allocation, and holds it.
    ///
    /// # Errors
    /// What the controller refuses.
    pub(super) async fn ask(session: &mut Session, spec: JobSpec, quiet: bool) -> anyhow::Result<Allocation> {
        let request = SubmitRequest { job: Some(spec), ..SubmitRequest::default() };
        let connection = session.connection()?;
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

    /// Waits until the allocation is there. `queued` is called once if that takes longer than the controller needs to look
    /// at it.
    ///
    /// # Errors
    /// The controller knows nothing of it any more.
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
                        queued(session);
                    }
                }
                // It has them, and they are made ready.
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

    /// Waits until somebody takes the allocation away, or its time is over. Nothing is lost if it is cancelled.
    pub(super) async fn revoked(&mut self, session: &mut Session) {
        while !self.over {
            let news = self.news.recv().await;
            if self.hear(session, news).is_err() {
                return;
            }
        }
    }

    /// Whether it has been taken away, as far as is known now.
    pub(super) fn is_revoked(&mut self, session: &mut Session) -> bool {
        while let Ok(news) = self.news.try_recv() {
            // One that is unknown is over.
            let _ = self.hear(session, Some(news));
        }
        self.over
    }

    /// Ends the allocation, whose command has ended so. One that is over needs no end.
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

    /// Takes what is heard; the job if that is it.
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

/// Holds an allocation until it is over or nobody listens any more.
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

/// The outcome of `work`, unless nobody listens any more.
async fn unless_deaf(
    tell: &mpsc::UnboundedSender<News>,
    work: impl Future<Output = Result<(), CallError>>,
) -> Result<(), CallError> {
    tokio::select! {
        outcome = work => outcome,
        () = tell.closed() => Ok(()),
    }
}

/// Says at once what somebody says to the user, whatever the command is about.
fn say(name: &str, message: &str) {
    let raw = rustix::termios::tcgetattr(std::io::stderr())
        .is_ok_and(|modes| !modes.output_modes.contains(OutputModes::OPOST));
    // That nobody reads it is no reason to fail.
    let _ =
        std::io::stderr().write_all(format!("{name}: {message}{}\n", if raw { "\r" } else { "" }).as_bytes());
}

/// Follows one stream to its end. What somebody says to the user meanwhile is said by the command of that name, if by any.
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
