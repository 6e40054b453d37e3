//! The task of one step of this node, from the marker in the spool to the last event.

use std::sync::Arc;

use nix::unistd::{Gid, Uid};
use spur_core::compute::{Input, StepEnd};
use spur_core::text::exit::ExitCode;
use step_wire::attempt::StepAttempt;
use step_wire::message::Request;
use step_wire::order::{Confinement, Identity};
use tokio::sync::{mpsc, oneshot};

use crate::assemble::Prepared;
use crate::launcher::{Launcher, Step, StepEvent};
use crate::node::groups::Groups;
use crate::node::job_container::JobContainers;
use crate::owner::uplink::{First, Speaker};
use crate::owner::{LaunchAnswer, Message, NotLaunched};
use crate::spool::Spool;

/// A request to the task of a step.
#[derive(Debug)]
pub(crate) enum Control {
    /// Pass a request on to the step.
    Ask(Request),
    /// Send a handle on the step to a client that wants to talk to it.
    Handle(oneshot::Sender<Option<Step>>),
}

/// A step that is about to start.
pub(crate) struct Starting {
    pub(crate) prepared: Prepared,
    pub(crate) answer: Option<LaunchAnswer>,
    pub(crate) spool: Arc<Spool>,
    pub(crate) launcher: Launcher,
    pub(crate) groups: Option<Groups>,
    pub(crate) containers: Option<JobContainers>,
    pub(crate) speaker: Speaker,
}

/// Returns the end of a step that did not start.
pub(crate) fn not_launched(message: String, node_fault: bool) -> StepEnd {
    StepEnd::NotLaunched { message, node_fault, exit: ExitCode::exited(1) }
}

impl Starting {
    /// Starts the step, follows it to its end, and reports the end to the owner.
    pub(crate) async fn run(
        mut self,
        controlled: mpsc::UnboundedReceiver<Control>,
        inbox: mpsc::Sender<Message>,
    ) {
        let step = self.prepared.launch.order.attempt;
        let (answer, speaker) = (self.answer.take(), self.speaker.clone());
        match self.start().await {
            Ok((handle, events)) => {
                // A client that is gone meanwhile may return and attach.
                drop(answer.map(|answer| answer.send(Ok(handle.clone()))));
                follow(speaker, handle, events, controlled, inbox).await;
            }
            Err(message) => {
                tracing::error!(%step, "not launched: {message}");
                drop(answer.map(|answer| answer.send(Err(NotLaunched::Failed(message.clone())))));
                tell(&inbox, step, not_launched(message, true)).await;
            }
        }
    }

    async fn start(self) -> Result<(Step, mpsc::Receiver<StepEvent>), String> {
        let Prepared { mut launch, memory_mb, step_memory_mb, cpus, denied, .. } = self.prepared;
        let step = launch.order.attempt;
        let identity = launch.order.identity.clone();
        launch.order.identity.groups = groups_of(identity).await;
        if let Some(groups) = &self.groups {
            let held = groups
                .prepare(step.attempt, memory_mb << 20, cpus, denied)
                .map_err(|error| format!("control group: {error}"))?;
            launch.order.confinement = Some(Confinement { memory_bytes: step_memory_mb << 20, ..held });
        }
        if !self.groups.as_ref().is_some_and(|groups| groups.limits("memory")) {
            let asked = [memory_mb, step_memory_mb].into_iter().filter(|&mb| mb > 0).min();
            launch.order.sampled_memory_bytes = asked.unwrap_or(0) << 20;
        }
        if let Some(containers) = &self.containers {
            let own = containers.prepare(step.attempt, &launch.order.identity);
            launch.order.private_directories =
                own.map_err(|error| format!("private directories: {error}"))?;
        }
        self.spool.accept(step).map_err(whole)?;
        self.spool.mark_spawning(step).await.map_err(|error| format!("spool: {error}"))?;
        self.launcher.launch(launch).await.map_err(whole)
    }
}

/// Formats an error with all its sources, on one line.
fn whole(error: impl std::error::Error + Send + Sync + 'static) -> String {
    format!("{:#}", anyhow::Error::new(error))
}

/// Returns the supplementary groups of a user on this host; only the primary group if the user is unknown.
async fn groups_of(identity: Identity) -> Vec<u32> {
    if !Uid::effective().is_root() {
        return identity.groups;
    }
    // The name service may be slow, so the query must not block the runtime.
    let primary = identity.gid;
    let listed = tokio::task::spawn_blocking(move || {
        let name = std::ffi::CString::new(identity.user).ok()?;
        nix::unistd::getgrouplist(&name, Gid::from_raw(identity.gid)).ok()
    });
    let listed = listed.await.ok().flatten();
    listed.map_or(vec![primary], |groups| groups.into_iter().map(Gid::as_raw).collect())
}

/// Follows a live step and reports its end to the owner. `speaker` connects the step to its first node on
/// demand.
pub(crate) async fn follow(
    speaker: Speaker,
    step: Step,
    mut events: mpsc::Receiver<StepEvent>,
    mut controlled: mpsc::UnboundedReceiver<Control>,
    inbox: mpsc::Sender<Message>,
) {
    let attempt = step.attempt();
    let mut tied = false;
    let answer = |answer: oneshot::Sender<Option<Step>>| {
        // A client that is gone needs no answer.
        drop(answer.send(Some(step.clone())));
    };
    let end = loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(StepEvent::UplinkWanted { node, address, of }) => if !std::mem::replace(&mut tied, true) {
                    // The task ends by itself after the step has closed its side, so that the last
                    // messages of the step arrive.
                    tokio::spawn(speaker.clone().tie(step.clone(), First { node, address, of }));
                },
                Some(StepEvent::Stopped) => {
                    let told = Input::StepStopped { attempt: attempt.attempt, step: attempt.step };
                    // Without an owner spurd is stopping, and launches nothing more.
                    let _ = inbox.send(Message::Told(told)).await;
                }
                Some(event) => if let Some(end) = last(attempt, event) { break end },
                // Without events spurd is stopping.
                None => return,
            },
            Some(control) = controlled.recv() => match control {
                Control::Ask(request) => if let Err(error) = step.request(request).await {
                    tracing::debug!(%error, "too late");
                },
                Control::Handle(asked) => answer(asked),
            },
        }
    };
    // A client that asked for the step before its end may still read its output.
    controlled.close();
    while let Some(control) = controlled.recv().await {
        if let Control::Handle(asked) = control {
            answer(asked);
        }
    }
    tell(&inbox, attempt, end).await;
}

/// Returns the step's end if the event is its last.
fn last(attempt: StepAttempt, event: StepEvent) -> Option<StepEnd> {
    match event {
        StepEvent::Started { .. }
        | StepEvent::TaskEnded(_)
        | StepEvent::Stopped
        | StepEvent::UplinkWanted { .. }
        | StepEvent::Found { .. } => None,
        StepEvent::Refused { message, node_fault } => Some(not_launched(message, node_fault)),
        StepEvent::Ended(record) => {
            tracing::info!(step = %attempt, status = %record.status(), "ended");
            Some(record.end())
        }
        StepEvent::Lost => {
            tracing::error!(step = %attempt, "lost: its spurstepd is gone and left no record");
            Some(StepEnd::Lost)
        }
    }
}

async fn tell(inbox: &mpsc::Sender<Message>, step: StepAttempt, end: StepEnd) {
    let told = Input::StepEnded { attempt: step.attempt, step: step.step, end };
    // Without an owner spurd is stopping; the next spurd reads the same from the spool.
    let _ = inbox.send(Message::Told(told)).await;
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::clock::ControllerClock;

    #[tokio::test]
    async fn who_asks_for_a_step_that_is_just_ending_is_answered() {
        let root = tempfile::tempdir().unwrap();
        let spool = Arc::new(Spool::open(root.path()).unwrap());
        let step = Launcher::new(PathBuf::new(), spool, None).ended("1.0.0".parse().unwrap());
        let (told, events) = mpsc::channel(1);
        let (control, controlled) = mpsc::unbounded_channel();
        let (inbox, mut inputs) = mpsc::channel(1);
        told.try_send(StepEvent::Lost).unwrap();
        let asked: Vec<_> = (0..64)
            .map(|_| {
                let (answer, answered) = oneshot::channel();
                control.send(Control::Handle(answer)).unwrap();
                answered
            })
            .collect();
        let speaker =
            Speaker { node: "n1".to_owned(), keyring: None, clock: Arc::new(ControllerClock::new()) };
        follow(speaker, step, events, controlled, inbox).await;
        for answered in asked {
            assert!(answered.await.unwrap().is_some());
        }
        assert!(control.is_closed(), "the owner answers from here on");
        assert!(matches!(inputs.recv().await, Some(Message::Told(Input::StepEnded { .. }))));
    }
}
