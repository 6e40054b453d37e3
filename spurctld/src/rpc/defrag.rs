//! `spur defrag`: plans moves that let a request start in one domain, on a copy of the cluster, and makes
//! the moves one by one.

use spur_core::controller::{self, Command, Input, Reply};
use spur_core::id::JobId;
use spur_core::model::caller::Caller;
use spur_core::model::config::Private;
use spur_core::sched::defrag::{Defragmentation, Finding, MovePlan, defragment};
use spur_proto::convert::{defrag, reject};
use spur_proto::refusal;
use spur_proto::v1;
use tonic::{Code, Status};

use super::{Desk, Name, submit};
use crate::clock;
use crate::inbox::Ask;

impl Desk {
    /// Plans moves for a request or a waiting job. Makes the moves if `apply` is set.
    ///
    /// # Errors
    /// Fails if the cluster refuses the request, or if no moves can be planned for it. Only operators may
    /// make moves, and only they may plan if jobs of others are private.
    pub(super) async fn defragment_for(
        &self,
        caller: Caller,
        request: v1::DefragmentRequest,
    ) -> Result<v1::DefragmentResponse, Status> {
        let v1::DefragmentRequest { job, job_id, apply } = request;
        let hides = self.replica.read().policy().jobs.hides(Private::Jobs, &caller);
        if hides || apply && !caller.is_operator() {
            return Err(reject::status(&controller::Reject::AccessDenied));
        }
        let submission = match job {
            Some(job) => {
                let request = v1::SubmitRequest { job: Some(job), ..v1::SubmitRequest::default() };
                Some(self.look_up(submit::read_aside(caller.clone(), request).await?).await)
            }
            None => None,
        };
        let (found, mut shown) = self.planned_moves(submission, job_id.map(JobId)).await?;
        if let (true, Finding::Moves(plan)) = (apply, &found.finding) {
            let submitted = shown.job_id.is_some();
            (shown.made, shown.stopped) = self.make_moves(&caller, plan, submitted).await;
        }
        Ok(shown)
    }

    /// Plans moves on a copy of the cluster, in which the request, if there is one, has been submitted.
    async fn planned_moves(
        &self,
        submission: Option<Ask>,
        job: Option<JobId>,
    ) -> Result<(Defragmentation, v1::DefragmentResponse), Status> {
        let (epoch, last) = (self.epoch, self.overlay.read());
        self.on_copy(move |mut cluster| {
            let now = clock::now(&cluster).max(cluster.at());
            let (mut job, mut warnings, submitted) = (job, Vec::new(), submission.is_none());
            if let Some(Ask { mut input, .. }) = submission {
                if let Input::Command { command: Command::Submit(submission), .. } = &mut input {
                    submission.released();
                }
                let answer = controller::handle(&mut cluster, epoch, now, input).answer;
                match answer.map_err(|rejected| reject::status(&rejected))? {
                    Reply::Submitted { job: id, warnings: said } => (job, warnings) = (Some(id), said),
                    other => {
                        return Err(Status::internal(format!("a submission was answered with {other:?}")));
                    }
                }
            }
            let found = defragment(&cluster, now, job, Some(&last.remembered));
            let found = found.map_err(|why| {
                refusal::status(Code::FailedPrecondition, &v1::Error::new(reject::INVALID, why.to_string()))
            })?;
            let shown = defrag::render(&cluster, &found, submitted);
            Ok((found, v1::DefragmentResponse { warnings, ..shown }))
        })
        .await
    }

    /// Lets the owner make the moves one by one, and then reserve the domain for a waiting job. Returns
    /// the number of moves that were begun, and the reason why the rest was not; an empty reason means
    /// success.
    async fn make_moves(&self, caller: &Caller, plan: &MovePlan, submitted: bool) -> (u32, String) {
        let nameless = Name { id: None, retry: false };
        let mut made = 0;
        for moved in &plan.moves {
            let command = Command::Move(Box::new(moved.start.clone()));
            if let Err(status) = self.command(caller.clone(), nameless, command).await {
                return (made, status.message().to_owned());
            }
            made += 1;
        }
        if submitted {
            let kept = self.ask(Ask::of(Input::Preempt(Box::new(plan.nomination())))).await;
            if let Err(status) = kept {
                return (made, format!("the domain is not kept for the request: {}", status.message()));
            }
        }
        (made, String::new())
    }
}
