//! The file that a batch script writes, for somebody elsewhere: read by `tail` as the job's user, who may read what he may,
//! from its beginning to the end of the script, after which nothing more is written.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use spur_proto::v1;
use spur_proto::v1::step_output::Output as Out;
use step_wire::message::{Event, MAX_STREAM_PART};
use step_wire::order::{self, Identity, StepOrder};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc;

use super::Output;
use crate::launcher::{Step, StreamEvent, StreamReader};

/// Where what was read goes.
struct Reading<'a> {
    output: &'a mpsc::Sender<Output>,
    identity: Identity,
    file: PathBuf,
    stderr: bool,
    /// How much was read.
    offset: u64,
}

/// Serves until the script has ended, everything is told or the client is gone.
pub(super) async fn serve(step: &Step, asked: &v1::StepLogs, output: &mpsc::Sender<Output>) {
    let last = tokio::select! {
        read = read(step, asked, output) => match read {
            Ok(()) => Out::Done(v1::StepDone {}),
            Err(why) => Out::Failed(v1::Error::new("ESLURM_INVALID_JOB_ID", why)),
        },
        () = output.closed() => return,
    };
    // A client that is gone learns nothing more.
    let _ = output.send(Ok(v1::StepOutput { output: Some(last) })).await;
}

async fn read(step: &Step, asked: &v1::StepLogs, output: &mpsc::Sender<Output>) -> Result<(), String> {
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
    if asked.follow { reading.follow(&mut events).await } else { reading.pass_on().await }
}

/// The file of a batch script's output.
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
    /// Passes on what there is beyond what was passed on.
    async fn pass_on(&mut self) -> Result<(), String> {
        let (mut tail, mut out) = self.tail(&[])?;
        while self.part(&mut out).await? {}
        let status = tail.wait().await.map_err(|error| format!("tail: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("{} cannot be read", self.file.display())) }
    }

    /// Passes on what there is and what comes, until the script has ended.
    async fn follow(&mut self, events: &mut StreamReader) -> Result<(), String> {
        let (mut tail, mut out) = self.tail(&["--follow=name", "--retry", "--sleep-interval=0.2"])?;
        let mut bytes = vec![0; MAX_STREAM_PART];
        loop {
            let count = tokio::select! {
                event = events.receive() => match event {
                    Ok(Some(StreamEvent::Step(Event::Ended(_))) | None) | Err(_) => break,
                    Ok(Some(_)) => continue,
                },
                count = out.read(&mut bytes) => count.map_err(|error| format!("tail: {error}"))?,
            };
            if count == 0 {
                return Err(format!("{} cannot be followed", self.file.display()));
            }
            self.send(&bytes[..count]).await?;
        }
        // It may be asleep; what it has not read is read now.
        tail.kill().await.map_err(|error| format!("tail: {error}"))?;
        while self.part(&mut out).await? {}
        self.pass_on().await
    }

    fn tail(&self, how: &[&str]) -> Result<(Child, ChildStdout), String> {
        let mut command = Command::new("tail");
        command
            .args(how)
            .arg(format!("--bytes=+{}", self.offset + 1))
            .arg("--")
            .arg(&self.file)
            .current_dir(Path::new("/"));
        // The user may look into it.
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        if rustix::process::geteuid().is_root() {
            command.uid(self.identity.uid).gid(self.identity.gid);
        }
        let mut child =
            command.spawn().map_err(|error| format!("tail cannot be run on this node: {error}"))?;
        let out = child.stdout.take().ok_or("tail has no output")?;
        Ok((child, out))
    }

    /// Passes one part on; false at the end.
    async fn part(&mut self, out: &mut ChildStdout) -> Result<bool, String> {
        let mut bytes = vec![0; MAX_STREAM_PART];
        let count = out.read(&mut bytes).await.map_err(|error| format!("tail: {error}"))?;
        self.send(&bytes[..count]).await?;
        Ok(count > 0)
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let data = bytes.to_vec().into();
        let data = v1::StepData { task: 0, stderr: self.stderr, offset: self.offset, data };
        self.offset += bytes.len() as u64;
        let sent = self.output.send(Ok(v1::StepOutput { output: Some(Out::Data(data)) })).await;
        sent.map_err(|_| "the client is gone".to_owned())
    }
}
