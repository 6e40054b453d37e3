//! Submission of jobs, one by one and many at once.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use spur_core::controller::Command;
use spur_core::model::caller::Caller;
use spur_proto::convert::{reject, spec};
use spur_proto::refusal;
use spur_proto::v1;
use spur_proto::v1::submit_stream_response::Result as Outcome;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Status, Streaming};

use super::{Desk, Listing, Name, no_answer, odd, outcome, submission};
use crate::answer::Answer;
use crate::blobs;
use crate::inbox::{Answered, Ask, Inbox, NoAnswer};

/// Submissions of one stream that may wait for their answers. With 10 ms for a commit that allows 50,000 a
/// second.
const IN_FLIGHT: usize = 512;

/// Largest number of a stream's submissions that are queued at once.
const AT_ONCE: usize = 16;

/// Size in bytes from which on a submission is parsed on a thread of its own.
const LARGE: usize = 64 << 10;

/// A submission of a stream: the receiver of its answer, or its refusal.
type Taken = Result<oneshot::Receiver<Answered>, Status>;

impl Desk {
    pub(super) async fn submit_one(
        &self,
        caller: Caller,
        request: v1::SubmitRequest,
    ) -> Result<v1::SubmitResponse, Status> {
        let ask = self.look_up(read_aside(caller, request).await?).await;
        accepted(self.ask(ask).await?)
    }

    /// Accepts submissions as fast as they come and answers them in order.
    pub(super) fn submit_many(
        &self,
        caller: Caller,
        mut requests: Streaming<v1::SubmitRequest>,
    ) -> Listing<v1::SubmitStreamResponse> {
        let (taken, waiting) = mpsc::channel::<Taken>(IN_FLIGHT);
        let desk = self.clone();
        tokio::spawn(async move {
            let mut some = Vec::with_capacity(AT_ONCE);
            loop {
                let more = next(&mut requests, &mut some).await;
                let mut asks = Vec::with_capacity(some.len());
                for request in some.drain(..) {
                    asks.push(match read_aside(caller.clone(), request).await {
                        Ok(ask) => Ok(desk.look_up(ask).await),
                        Err(refused) => Err(refused),
                    });
                }
                for taking in take(&desk.inbox, asks).await {
                    if taken.send(taking).await.is_err() {
                        return;
                    }
                }
                if !more {
                    return;
                }
            }
        });
        Box::pin(ReceiverStream::new(waiting).then(answered))
    }
}

/// Waits for submissions of a stream and moves them into `some`; returns true if more may come.
async fn next(requests: &mut Streaming<v1::SubmitRequest>, some: &mut Vec<v1::SubmitRequest>) -> bool {
    poll_fn(|context| {
        while some.len() < AT_ONCE {
            match Pin::new(&mut *requests).poll_next(context) {
                Poll::Ready(Some(Ok(request))) => some.push(request),
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(false),
                Poll::Pending if some.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(true)
    })
    .await
}

/// Puts submissions of a stream in the queue, and waits for places in it.
async fn take(inbox: &Inbox, asks: Vec<Result<Ask, Status>>) -> Vec<Taken> {
    let mut room = inbox.room(asks.len()).await.ok();
    let mut put = |ask| match &mut room {
        Some(room) => room.put(ask).map_err(no_answer),
        None => Err(no_answer(NoAnswer::Stopping)),
    };
    asks.into_iter().map(|ask| ask.and_then(&mut put)).collect()
}

/// Returns a stream's answer to a submission. An error ends the stream.
async fn answered(taking: Taken) -> Result<v1::SubmitStreamResponse, Status> {
    let answer = match taking {
        Ok(answer) => outcome(answer.await.map_err(|_| NoAnswer::Stopping)).and_then(accepted),
        Err(refused) => Err(refused),
    };
    let result = match answer {
        Ok(accepted) => Outcome::Submitted(accepted),
        Err(status) => Outcome::Refused(refusal::error_of(&status).ok_or(status)?),
    };
    Ok(v1::SubmitStreamResponse { result: Some(result) })
}

/// Parses a submission with [`read`]; a large one on a thread that may block.
pub(super) async fn read_aside(caller: Caller, request: v1::SubmitRequest) -> Result<Ask, Status> {
    let batch = request.job.as_ref().and_then(|job| job.batch.as_ref());
    if batch.is_none_or(|batch| batch.script.len() + batch.environment.len() < LARGE) {
        return read(caller, request);
    }
    let read = tokio::task::spawn_blocking(move || read(caller, request)).await;
    read.map_err(|error| Status::internal(error.to_string()))?
}

fn read(caller: Caller, request: v1::SubmitRequest) -> Result<Ask, Status> {
    let name = Name::read(&request.request_id, request.retry)?;
    let wire = request.job.unwrap_or_default();
    let (wish, payload) = spec::submission(wire).map_err(|bad| reject::bad_field(&bad))?;
    Ok(submission(caller, name, Command::Submit(Box::new(wish)), payload.as_ref().map(blobs::join)))
}

fn accepted(answer: Answer) -> Result<v1::SubmitResponse, Status> {
    match answer {
        Answer::Submitted { job, warnings } => Ok(v1::SubmitResponse { job_id: job.0, warnings }),
        other => Err(odd(&other)),
    }
}
