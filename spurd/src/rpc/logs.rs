//! Serves the output file of a batch script, from its beginning to the end of the script, to a remote client.
//!
//! A helper process of spurstepd reads the file as the job's user.

use std::io::ErrorKind;
use std::path::PathBuf;

use spur_proto::v1;
use spur_proto::v1::step_output::Output as Out;
use step_wire::message::{Event, MAX_STREAM_PART};
use step_wire::order::{self, Identity, ReadOrder, StepOrder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::Output;
use crate::launcher::{Launcher, Step, StreamEvent, StreamReader};

/// One output file and the client that reads it.
struct Reading<'a> {
    output: &'a mpsc::Sender<Output>,
    identity: Identity,
    file: PathBuf,
    stderr: bool,
    /// Number of bytes read so far.
    offset: u64,
}

/// Serves until the script has ended and all its output is sent, or the client is gone.
pub(super) async fn serve(
    launcher: &Launcher,
    step: &Step,
    asked: &v1::StepLogs,
    output: &mpsc::Sender<Output>,
) {
    let last = tokio::select! {
        read = read(launcher, step, asked, output) => match read {
            Ok(()) => Out::Done(v1::StepDone {}),
            Err(why) => Out::Failed(v1::Error::new("ESLURM_INVALID_JOB_ID", why)),
        },
        () = output.closed() => return,
    };
    // A client that is gone needs no answer.
    let _ = output.send(Ok(v1::StepOutput { output: Some(last) })).await;
}

async fn read(
    launcher: &Launcher,
    step: &Step,
    asked: &v1::StepLogs,
    output: &mpsc::Sender<Output>,
) -> Result<(), String> {
    let gone = || "the script has just ended".to_owned();
    let mut events = step.watch().await.map_err(|_| gone())?;
    let order = loop {
        match events.receive().await {
            Ok(Some(StreamEvent::Step(Event::Status { order, .. }))) => break order,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return Err(gone()),
        }
    };
    let file = file_of(&order, asked.stderr)?;
    let (identity, stderr) = (order.identity, asked.stderr);
    let mut reading = Reading { output, identity, file, stderr, offset: 0 };
    reading.pass_on(launcher, asked.follow.then_some(&mut events)).await
}

/// Returns the path of a batch script's output file.
fn file_of(order: &StepOrder, stderr: bool) -> Result<PathBuf, String> {
    let task = order.tasks.first().ok_or("the step has no task here")?;
    let said = match &task.stderr {
        order::Output::Stdout => &task.stdout,
        own if stderr => own,
        _ => &task.stdout,
    };
    match said {
        order::Output::File { path, .. } => Ok(order.on_host(&order.cwd.join(path))),
        order::Output::Null => Err("what the job writes goes nowhere (/dev/null)".to_owned()),
        order::Output::Stream | order::Output::Stdout => {
            Err("what the step writes goes to its srun; sattach shows it, too".to_owned())
        }
    }
}

impl Reading<'_> {
    /// Sends the file's content; with `events`, continues until the script has ended.
    async fn pass_on(
        &mut self,
        launcher: &Launcher,
        events: Option<&mut StreamReader>,
    ) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{} cannot be read: {error}", self.file.display());
        let order =
            ReadOrder { identity: self.identity.clone(), file: self.file.clone(), follow: events.is_some() };
        let mut reader = launcher.read(&order).await.map_err(failed)?;
        let mut events = events;
        let mut bytes = vec![0; MAX_STREAM_PART];
        let mut is_open = false;
        loop {
            let count = tokio::select! {
                () = ended(&mut events) => {
                    events = None;
                    // A reader that is gone has sent everything.
                    let _ = reader.shutdown().await;
                    continue;
                }
                count = reader.read(&mut bytes) => count.map_err(failed)?,
            };
            let said = match (&bytes[..count], is_open) {
                ([], _) => {
                    return if is_open { Ok(()) } else { Err(failed(ErrorKind::UnexpectedEof.into())) };
                }
                (said, true) | ([ReadOrder::OPENED, said @ ..], false) => said,
                ([_, said @ ..], false) => {
                    let mut why = said.to_vec();
                    reader.read_to_end(&mut why).await.map_err(failed)?;
                    return Err(format!(
                        "{} cannot be read: {}",
                        self.file.display(),
                        String::from_utf8_lossy(&why)
                    ));
                }
            };
            is_open = true;
            if !said.is_empty() {
                let data = said.to_vec().into();
                let data = v1::StepData { task: 0, stderr: self.stderr, offset: self.offset, data };
                self.offset += said.len() as u64;
                let sent = self.output.send(Ok(v1::StepOutput { output: Some(Out::Data(data)) })).await;
                sent.map_err(|_| "the client is gone".to_owned())?;
            }
        }
    }
}

/// Waits until the script has ended; never returns without events.
async fn ended(events: &mut Option<&mut StreamReader>) {
    let Some(events) = events else { return std::future::pending().await };
    while let Ok(Some(event)) = events.receive().await {
        if matches!(event, StreamEvent::Step(Event::Ended(_))) {
            return;
        }
    }
}
