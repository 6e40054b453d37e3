//! The service of a step's first node for the other nodes: carries messages between their spurstepds and its
//! own.

use std::io;

use spur_core::id::{Attempt, JobId, StepId};
use spur_proto::v1;
use spur_proto::v1::{peer_input, peer_output};
use step_wire::attempt::StepAttempt;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::{Refused, StepService};
use crate::launcher::{PeerReader, PeerWriter};

pub(super) type Output = Result<v1::PeerOutput, Status>;

/// Serves one other node until the step or the connection ends.
pub(super) async fn serve(
    service: StepService,
    pass: v1::PeerPass,
    input: Streaming<v1::PeerInput>,
    output: mpsc::Sender<Output>,
) {
    match open(&service, pass).await {
        Ok((reader, writer)) => {
            if let Err(error) = carry(reader, writer, input, &output).await {
                tracing::debug!(%error, "a connection between nodes is broken");
            }
        }
        Err(Refused(code, message)) => {
            tracing::warn!("another node refused: {message}");
            let failed = peer_output::Output::Failed(v1::Error::new(code, message));
            // A node that is gone needs no answer.
            let _ = output.send(Ok(v1::PeerOutput { output: Some(failed) })).await;
        }
    }
}

async fn open(service: &StepService, pass: v1::PeerPass) -> Result<(PeerReader, PeerWriter), Refused> {
    let attempt = Attempt { job: JobId(pass.job_id), restart: pass.restart };
    let step = service.find(StepAttempt { attempt, step: StepId(pass.step_id) }).await?;
    let ends = step.peer(pass.node, pass.part).await;
    ends.map_err(|error| Refused("ESLURMD_STEP_NOTRUNNING", format!("the step has ended: {error}")))
}

async fn carry(
    mut reader: PeerReader,
    mut writer: PeerWriter,
    mut input: Streaming<v1::PeerInput>,
    output: &mpsc::Sender<Output>,
) -> io::Result<()> {
    loop {
        tokio::select! {
            message = reader.receive() => match message? {
                Some(message) => {
                    let message = peer_output::Output::Message(message.into());
                    let sent = output.send(Ok(v1::PeerOutput { output: Some(message) })).await;
                    sent.map_err(|_| io::Error::other("the other node is gone"))?;
                }
                None => return Ok(()),
            },
            message = input.message() => match message {
                Ok(Some(v1::PeerInput { input: Some(peer_input::Input::Message(message)) })) => {
                    writer.send(message.to_vec()).await?;
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return Ok(()),
            },
        }
    }
}
