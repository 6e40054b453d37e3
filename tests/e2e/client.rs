//! A client of the controller's service, for waiting and for many submissions.

use spur_proto::client::{CallError, Connection};
use spur_proto::v1::{self, Batch, Job, JobFilter, JobSpec};
use tokio::runtime::Runtime;

use crate::cluster::PATIENCE;

/// A client that blocks: every call returns with its answer.
pub(crate) struct Client {
    runtime: Runtime,
    connection: Connection,
}

impl Client {
    /// Returns a client that uses this connection.
    pub(crate) fn new(connection: Connection) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Self { runtime: runtime.expect("threads can be made"), connection }
    }

    /// Submits a job, asking again until there is an answer.
    pub(crate) fn submit(&mut self, job: JobSpec) -> Result<u32, CallError> {
        let request = v1::SubmitRequest { job: Some(job), ..v1::SubmitRequest::default() };
        let call = self.connection.change(request, async |mut controller, r| controller.submit(r).await);
        self.runtime.block_on(call).map(|answer| answer.job_id)
    }

    /// Cancels a job; returns the error that prevents it.
    pub(crate) fn cancel(&mut self, id: u32) -> Option<String> {
        let filter = Some(JobFilter { job_ids: vec![id.to_string()], ..JobFilter::default() });
        let request = v1::CancelJobsRequest { filter, ..v1::CancelJobsRequest::default() };
        let call = self.connection.change(request, async |mut controller, r| controller.cancel_jobs(r).await);
        problem(self.runtime.block_on(call).map(|answer| answer.problems))
    }

    /// Imports history; returns the job numbers that the cluster has used itself.
    pub(crate) fn import(&mut self, request: v1::ImportHistoryRequest) -> Result<Vec<u32>, CallError> {
        let call =
            self.connection.change(request, async |mut controller, r| controller.import_history(r).await);
        self.runtime.block_on(call).map(|answer| answer.own_jobs)
    }

    /// Asks for changes with which a job starts earlier.
    pub(crate) fn fix(&mut self, job_id: u32) -> Result<v1::FixJobResponse, CallError> {
        let request = v1::FixJobRequest { job_id };
        let call = self.connection.read(request, async |mut controller, r| controller.fix_job(r).await);
        self.runtime.block_on(call)
    }

    /// Holds a job; returns the error that prevents it.
    pub(crate) fn hold(&mut self, id: u32) -> Option<String> {
        let request = v1::HoldJobsRequest { job_ids: vec![id.to_string()], ..v1::HoldJobsRequest::default() };
        let call = self.connection.change(request, async |mut controller, r| controller.hold_jobs(r).await);
        problem(self.runtime.block_on(call).map(|answer| answer.problems))
    }

    /// Requeues a job; returns the error that prevents it.
    pub(crate) fn requeue(&mut self, id: u32) -> Option<String> {
        let request =
            v1::RequeueJobsRequest { job_ids: vec![id.to_string()], ..v1::RequeueJobsRequest::default() };
        let call =
            self.connection.change(request, async |mut controller, r| controller.requeue_jobs(r).await);
        problem(self.runtime.block_on(call).map(|answer| answer.problems))
    }

    /// All jobs, ended or not.
    pub(crate) fn jobs(&mut self) -> Vec<Job> {
        self.list().expect("the list goes on")
    }

    /// All jobs; asks again where the list breaks off because the controller does.
    pub(crate) fn jobs_patiently(&mut self) -> Vec<Job> {
        let begun = std::time::Instant::now();
        loop {
            match self.list() {
                Ok(jobs) => return jobs,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "no list comes whole: {error}"),
            }
        }
    }

    fn list(&mut self) -> Result<Vec<Job>, CallError> {
        let filter = JobFilter { states: vec!["all".to_owned()], ..JobFilter::default() };
        let request = v1::ListJobsRequest { filter: Some(filter), ..v1::ListJobsRequest::default() };
        let connection = &mut self.connection;
        self.runtime.block_on(async {
            let mut pages =
                connection.read(request, async |mut controller, r| controller.list_jobs(r).await).await?;
            let mut all = Vec::new();
            while let Some(page) = connection.next(&mut pages).await? {
                all.extend(page.jobs);
            }
            Ok(all)
        })
    }

    /// A job in its present state.
    pub(crate) fn job(&mut self, id: u32) -> Job {
        self.jobs().into_iter().find(|job| job.id == id).unwrap_or_else(|| panic!("there is no job {id}"))
    }

    /// Waits until `wanted` holds for a job, across restarts of the controller.
    pub(crate) fn wait(&mut self, id: u32, wanted: impl Fn(&Job) -> bool) -> Job {
        let connection = &mut self.connection;
        let mut last = None;
        let waited = self.runtime.block_on(async {
            let found = find(connection, id, &wanted, &mut last);
            tokio::time::timeout(PATIENCE, found).await
        });
        waited.unwrap_or_else(|_| panic!("job {id} does not become as wanted; it is {last:?}"))
    }

    /// Waits until a job is in this state.
    pub(crate) fn wait_for(&mut self, id: u32, state: &str) -> Job {
        self.wait(id, |job| job.state == state)
    }
}

/// The first error; `None` if there was none.
fn problem(answer: Result<Vec<v1::JobProblem>, CallError>) -> Option<String> {
    match answer {
        Ok(problems) => problems.into_iter().find_map(|problem| problem.error).map(|error| error.message),
        Err(error) => Some(error.to_string()),
    }
}

/// True if a job will not change any more.
pub(crate) fn has_ended(job: &Job) -> bool {
    !matches!(job.state.as_str(), "PENDING" | "RUNNING" | "COMPLETING" | "SUSPENDED" | "CONFIGURING")
}

async fn find(
    connection: &mut Connection,
    id: u32,
    wanted: &impl Fn(&Job) -> bool,
    last: &mut Option<Job>,
) -> Job {
    loop {
        let request = v1::WatchJobsRequest { job_ids: vec![id] };
        let stream = connection.read(request, async |mut controller, r| controller.watch_jobs(r).await).await;
        let mut stream = stream.unwrap_or_else(|error| panic!("job {id} cannot be watched: {error}"));
        // A stream that breaks is opened again.
        while let Ok(Some(message)) = stream.message().await {
            let Some(job) = message.job else { continue };
            if wanted(&job) {
                return job;
            }
            let ended = has_ended(&job);
            *last = Some(job);
            assert!(!ended, "job {id} has ended otherwise: {last:?}");
        }
    }
}

/// A batch job of one task.
pub(crate) fn batch_job(name: &str, script: &str, work_dir: &std::path::Path) -> JobSpec {
    JobSpec {
        name: name.to_owned(),
        tasks: Some(1),
        time_limit: Some(600),
        batch: Some(Batch {
            script: script.as_bytes().to_vec().into(),
            environment: format!("PATH={}\0", std::env::var("PATH").unwrap_or_default()).into_bytes().into(),
            work_dir: work_dir.display().to_string(),
            stdout: "/dev/null".to_owned(),
            ..Batch::default()
        }),
        ..JobSpec::default()
    }
}

/// The job numbers in replies to submissions among sent bytes. Such a reply is a frame of HTTP/2 whose data
/// are one message, which has only a first field with a number. No other reply to a [`Client`] has this form.
pub(crate) fn submissions_answered(mut sent: &[u8]) -> Vec<u32> {
    let mut found = Vec::new();
    while let Some((header, rest)) = sent.split_at_checked(9) {
        let length = usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
        let Some((content, rest)) = rest.split_at_checked(length) else { break };
        if header[3] == 0 && content.get(..6).is_some_and(|start| start[..4] == [0; 4] && start[5] == 8) {
            found.extend(varint(&content[6..]));
        }
        sent = rest;
    }
    found
}

/// The protobuf number that the bytes consist of; `None` if they are anything else.
fn varint(bytes: &[u8]) -> Option<u32> {
    let (last, most) = bytes.split_last()?;
    let whole = last & 0x80 == 0 && most.iter().all(|byte| byte & 0x80 != 0) && bytes.len() <= 4;
    whole.then(|| bytes.iter().rev().fold(0, |number, byte| number << 7 | u32::from(byte & 0x7f)))
}
