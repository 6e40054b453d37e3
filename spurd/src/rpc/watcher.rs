//! A client that watches a running step: gets a copy of the output from here on, the ends of the tasks, and
//! the reason if the step fails.

use spur_proto::v1;
use spur_proto::v1::step_output::Output as Out;
use step_wire::message::{Event, OutputPart, Stream};
use tokio::sync::mpsc;

use super::Output;
use super::session::{failure, task_ended};
use crate::launcher::{Step, StreamEvent};

/// Serves until the step has ended or the client is gone.
pub(super) async fn serve(step: &Step, output: &mpsc::Sender<Output>) {
    tokio::select! {
        () = follow(step, output) => {}
        () = output.closed() => {}
    }
}

async fn follow(step: &Step, output: &mpsc::Sender<Output>) {
    // Whatever ends the connection, the step is over or about to be.
    if let Ok(mut reader) = step.watch().await {
        while let Ok(Some(event)) = reader.receive().await {
            let over = matches!(event, StreamEvent::Step(Event::Ended(_)));
            // The status answers both requests: from here on no event is missed.
            if matches!(event, StreamEvent::Step(Event::Status { .. })) {
                tracing::info!(step = %step.attempt(), "somebody looks on");
            }
            for message in shown(event) {
                // The end of the client ends this task.
                let _ = output.send(Ok(v1::StepOutput { output: Some(message) })).await;
            }
            if over {
                break;
            }
        }
    }
    let _ = output.send(Ok(v1::StepOutput { output: Some(Out::Done(v1::StepDone {})) })).await;
}

/// Returns the messages that a watcher gets for an event.
fn shown(event: StreamEvent) -> Vec<Out> {
    match event {
        StreamEvent::Output(OutputPart { bytes, .. }) if bytes.is_empty() => vec![],
        StreamEvent::Output(OutputPart { task, stream, offset, bytes, .. }) => {
            let stderr = stream == Stream::Stderr;
            vec![Out::Data(v1::StepData { task, stderr, offset, data: bytes.into() })]
        }
        StreamEvent::Step(Event::Status { started_ms, pids, ended, .. }) => {
            let started = started_ms.map(|_| Out::Started(v1::StepStarted { pids }));
            started.into_iter().chain(ended.into_iter().map(task_ended)).collect()
        }
        StreamEvent::Step(Event::Started { pids, .. }) => vec![Out::Started(v1::StepStarted { pids })],
        StreamEvent::Step(Event::TaskEnded(exit)) => vec![task_ended(exit)],
        StreamEvent::Step(Event::Aborted { message }) => vec![Out::Aborted(message)],
        StreamEvent::Step(Event::Ended(record)) => failure(&record).into_iter().collect(),
        StreamEvent::Step(_) | StreamEvent::InputTaken(_) | StreamEvent::Detached => vec![],
    }
}
