//! Allocations that commands hold: `srun` and `salloc` follow theirs, and report their own end.

use std::pin::Pin;
use std::task::{Context, Poll};

use spur_core::controller::{Command, Reject, environment};
use spur_core::id::JobId;
use spur_core::model::caller::Caller;
use spur_proto::convert::{agent, reject};
use spur_proto::v1;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use super::{Desk, Listing, Name};
use crate::holders::Hold;

/// Events of an allocation, which is held until the stream is dropped.
struct Held<S> {
    news: S,
    hold: Hold,
}

impl<S: Stream<Item = Result<v1::HoldAllocationResponse, Status>> + Unpin> Stream for Held<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        // Messages come first, because they give the reason for the job's end.
        if let Poll::Ready(Some(message)) = self.hold.messages.poll_recv(context) {
            return Poll::Ready(Some(Ok(v1::HoldAllocationResponse { message, ..Default::default() })));
        }
        Pin::new(&mut self.news).poll_next(context)
    }
}

impl Desk {
    /// Streams a job and its changes until the job has ended; while the stream is read, the job is held.
    pub(super) fn hold_allocation_of(
        &self,
        caller: &Caller,
        id: u32,
    ) -> Result<Listing<v1::HoldAllocationResponse>, Status> {
        let job = JobId(id);
        match self.replica.read().job(job) {
            None => return Err(reject::status(&Reject::InvalidJobId)),
            Some(job) if !caller.may_change(&job.spec.owner) => {
                return Err(reject::status(&Reject::AccessDenied));
            }
            Some(_) => {}
        }
        let news = self.watch(caller, &[id])?;
        let (desk, hold) = (self.clone(), self.holders.hold(job));
        let news = news.map(move |news| {
            news.map(|news| v1::HoldAllocationResponse {
                job: news.job,
                environment: desk.variables(job),
                use_interactive_step: desk.replica.read().policy().jobs.use_interactive_step,
                ..v1::HoldAllocationResponse::default()
            })
        });
        Ok(Box::pin(Held { news, hold }))
    }

    /// Returns the variables for programs in a job; empty before the job has started.
    fn variables(&self, id: JobId) -> Vec<v1::KeyValue> {
        let cluster = self.replica.read();
        let variables = cluster.job(id).map(|job| environment::of_job(&cluster, job));
        agent::variables(variables.unwrap_or_default())
    }

    pub(super) async fn end_allocation_of(
        &self,
        caller: Caller,
        request: v1::EndAllocationRequest,
    ) -> Result<v1::EndAllocationResponse, Status> {
        let name = Name::read(&request.request_id, request.retry)?;
        let exit = agent::exit(request.exit_code, request.exit_signal);
        let command = Command::EndAllocation { job: JobId(request.job_id), exit };
        self.command(caller, name, command).await?;
        Ok(v1::EndAllocationResponse {})
    }
}
