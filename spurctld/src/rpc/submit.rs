//! Accepting jobs, one by one and many at once.

use bytes::Bytes;
use spur_core::controller::Command;
use spur_core::model::caller::Caller;
use spur_proto::convert::spec::Payload;
use spur_proto::convert::{reject, spec};
use spur_proto::refusal;
use spur_proto::v1;
use spur_proto::v1::submit_stream_response::Result as Outcome;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::{Desk, Listing, Name, odd, outcome, submission};
use crate::answer::Answer;
use crate::inbox::{Answered, Ask, NoAnswer};

/// Submissions of one stream that may wait for their answers. At 5 ms for a commit that is 50,000 a second from one client.
const IN_FLIGHT: usize = 256;

/// A submission of a stream: its answer to come, or why there will be none.
type Taken = Result<oneshot::Receiver<Answered>, Status>;

impl Desk {
    pub(super) async fn submit_one(
        &self,
        caller: Caller,
        request: v1::SubmitRequest,
    ) -> Result<v1::SubmitResponse, Status> {
        accepted(self.ask(read(caller, request)?).await?)
    }

    /// Takes submissions as fast as they come and answers them in order.
    pub(super) fn submit_many(
        &self,
        caller: Caller,
        mut requests: Streaming<v1::SubmitRequest>,
    ) -> Listing<v1::SubmitStreamResponse> {
        let (taken, mut waiting) = mpsc::channel::<Taken>(IN_FLIGHT);
        let (answers, outgoing) = mpsc::channel(IN_FLIGHT);
        let desk = self.clone();
        tokio::spawn(async move {
            while let Ok(Some(request)) = requests.message().await {
                let taking = match read(caller.clone(), request) {
                    Ok(ask) => desk.take(ask).await,
                    Err(refused) => Err(refused),
                };
                if taken.send(taking).await.is_err() {
                    return;
                }
            }
        });
        tokio::spawn(async move {
            while let Some(taking) = waiting.recv().await {
                let answer = match taking {
                    Ok(answer) => outcome(answer.await.map_err(|_| NoAnswer::Stopping)).and_then(accepted),
                    Err(refused) => Err(refused),
                };
                let outcome = match answer {
                    Ok(accepted) => Outcome::Submitted(accepted),
                    Err(status) => match refusal::error_of(&status) {
                        Some(error) => Outcome::Refused(error),
                        None => {
                            // The stream ends with what ended it; a client that is gone need not be told.
                            let _ = answers.send(Err(status)).await;
                            return;
                        }
                    },
                };
                if answers.send(Ok(v1::SubmitStreamResponse { result: Some(outcome) })).await.is_err() {
                    return;
                }
            }
        });
        Box::pin(ReceiverStream::new(outgoing))
    }

    /// Puts a submission of a stream in the queue. A stream waits for room instead of being told to come back.
    async fn take(&self, ask: Ask) -> Taken {
        let answer = self.inbox.enqueue(ask).await;
        answer.map_err(|error| Status::unavailable(error.to_string()))
    }
}

pub(super) fn read(caller: Caller, request: v1::SubmitRequest) -> Result<Ask, Status> {
    let name = Name::read(&request.request_id, request.retry)?;
    let wire = request.job.unwrap_or_default();
    let (wish, payload) = spec::submission(wire).map_err(|bad| reject::bad_field(&bad))?;
    // They are kept for a while, and should not keep what else came in the same piece from the network.
    let payload = payload.map(|payload| Payload {
        script: Bytes::copy_from_slice(&payload.script),
        environment: Bytes::copy_from_slice(&payload.environment),
    });
    Ok(submission(caller, name, Command::Submit(Box::new(wish)), payload))
}

fn accepted(answer: Answer) -> Result<v1::SubmitResponse, Status> {
    match answer {
        Answer::Submitted { job, warnings } => Ok(v1::SubmitResponse { job_id: job.0, warnings }),
        other => Err(odd(&other)),
    }
}
