//! The load of a whole site for some minutes: submissions and commands at fixed rates, whether or not earlier
//! ones have been answered. Latencies count from the moment for which a request was scheduled.
//!
//! The time has four quarters. `benches/run` leaves the first one quiet, and has a node lost, the controller
//! killed and started again, and the configuration changed at the beginning of the others.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use spur_proto::client::{CallError, Connection};
use spur_proto::v1;
use tokio::sync::mpsc;

use crate::arguments::Arguments;
use crate::jobs::Jobs;
use crate::process::{self, Figures};
use crate::target::Target;

/// The first of the users' uids.
const FIRST_USER: u32 = 41_000;
/// Longest time for which a client tries to reach the controller, and for which it waits for an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Names of the quarters.
const QUARTERS: [&str; 4] = ["quiet", "a node lost", "a restart", "a reconfigure"];

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Submit,
    OwnJobs,
    AllJobs,
    Nodes,
    Accounting,
    Step,
}

impl Kind {
    const ALL: [Kind; 6] =
        [Kind::Submit, Kind::OwnJobs, Kind::AllJobs, Kind::Nodes, Kind::Accounting, Kind::Step];

    /// Number of requests per second.
    fn rate(self, submissions: u32) -> f64 {
        match self {
            Kind::Submit => submissions.into(),
            Kind::OwnJobs => 50.0,
            Kind::AllJobs => 0.1,
            Kind::Nodes | Kind::Accounting => 5.0,
            Kind::Step => 2.0,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Submit => "sbatch",
            Kind::OwnJobs => "squeue --me",
            Kind::AllJobs => "squeue",
            Kind::Nodes => "sinfo",
            Kind::Accounting => "sacct",
            Kind::Step => "srun",
        })
    }
}

/// An answered or failed request.
struct Call {
    kind: Kind,
    /// Time from the beginning of the load for which the request was scheduled.
    scheduled: Duration,
    took: Duration,
    failed: Option<String>,
}

/// The users of the site, each with an open connection.
struct Site {
    users: Vec<Connection>,
    /// Seconds since the Unix epoch at the start of the load, less a day.
    yesterday: i64,
    next_job: AtomicU64,
}

/// Makes the load and prints the latencies of each kind by quarter, and what the controller uses.
pub(crate) async fn run(target: &Target, arguments: &Arguments) -> anyhow::Result<()> {
    // The calls of a connection cannot move between threads.
    tokio::task::LocalSet::new().run_until(make(target, arguments)).await
}

async fn make(target: &Target, arguments: &Arguments) -> anyhow::Result<()> {
    let user = |number: usize| {
        let uid = FIRST_USER + u32::try_from(number)?;
        anyhow::Ok(target.connection_as(uid)?.with_patience(PATIENCE))
    };
    let mut users: Vec<Connection> = (0..arguments.clients).map(user).collect::<Result<_, _>>()?;
    // The calls of a user share the connection that the first one opens.
    for user in &mut users {
        process::pid(user).await?;
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let yesterday = i64::try_from(now.as_secs())? - 86_400;
    let site = Arc::new(Site { users, yesterday, next_job: AtomicU64::new(0) });
    let length = Duration::from_secs(arguments.seconds);
    let (calls, mut done) = mpsc::unbounded_channel();
    let begun = Instant::now();
    let watch = tokio::task::spawn_local(process::watch(
        target.connection_as(0)?,
        arguments.state.clone(),
        begun + length,
    ));
    for kind in Kind::ALL {
        let (site, calls) = (Arc::clone(&site), calls.clone());
        let pause = Duration::from_secs_f64(1.0 / kind.rate(arguments.rate));
        tokio::task::spawn_local(async move {
            for number in 0_u32.. {
                let scheduled = pause * number;
                if scheduled >= length {
                    return;
                }
                tokio::time::sleep_until((begun + scheduled).into()).await;
                let (site, calls) = (Arc::clone(&site), calls.clone());
                tokio::task::spawn_local(async move {
                    let failed = match tokio::time::timeout(PATIENCE, site.ask(kind, number)).await {
                        Ok(answer) => answer.err().map(|error| error.to_string()),
                        Err(_) => Some(format!("no answer in {} s", PATIENCE.as_secs())),
                    };
                    let took = begun.elapsed().saturating_sub(scheduled);
                    // The receiver waits for every call.
                    let _ = calls.send(Call { kind, scheduled, took, failed });
                });
            }
        });
    }
    drop(calls);
    let mut all = Vec::new();
    while let Some(call) = done.recv().await {
        all.push(call);
    }
    print(&all, length);
    let figures: Figures = watch.await?.context("the controller cannot be watched")?;
    println!("{figures}");
    Ok(())
}

impl Site {
    async fn ask(&self, kind: Kind, number: u32) -> Result<(), CallError> {
        let at = number as usize % self.users.len();
        let user = self.users[at].clone();
        let name = format!("u{}", FIRST_USER as usize + at);
        match kind {
            Kind::Submit => self.submit(user).await,
            Kind::OwnJobs => jobs(user, vec![name]).await,
            Kind::AllJobs => jobs(user, Vec::new()).await,
            Kind::Nodes => nodes(user).await,
            Kind::Accounting => self.accounting(user, name).await,
            Kind::Step => step(user).await,
        }
    }

    async fn submit(&self, mut user: Connection) -> Result<(), CallError> {
        let number = self.next_job.fetch_add(1, Ordering::Relaxed);
        let request = Jobs::of(usize::try_from(number).unwrap_or_default(), 1).next(false);
        user.change(request, async |mut controller, request| controller.submit(request).await).await?;
        Ok(())
    }

    /// The user's jobs of a day.
    async fn accounting(&self, mut user: Connection, name: String) -> Result<(), CallError> {
        let request = v1::ListAccountingRequest {
            users: vec![name],
            start: Some(self.yesterday),
            ..v1::ListAccountingRequest::default()
        };
        user.list(request, async |mut controller, request| controller.list_accounting(request).await).await?;
        Ok(())
    }
}

/// The jobs of these users that have not ended; of all users if the list is empty.
async fn jobs(mut user: Connection, users: Vec<String>) -> Result<(), CallError> {
    let filter = Some(v1::JobFilter { users, ..v1::JobFilter::default() });
    let request = v1::ListJobsRequest { filter, ..v1::ListJobsRequest::default() };
    user.list(request, async |mut controller, request| controller.list_jobs(request).await).await?;
    Ok(())
}

async fn nodes(mut user: Connection) -> Result<(), CallError> {
    let request = v1::ListNodesRequest::default();
    user.list(request, async |mut controller, request| controller.list_nodes(request).await).await?;
    let request = v1::ListPartitionsRequest::default();
    user.read(request, async |mut controller, request| controller.list_partitions(request).await).await?;
    Ok(())
}

/// An allocation of one CPU in the partition `debug`, a step in it, and its end.
async fn step(mut user: Connection) -> Result<(), CallError> {
    let job = v1::JobSpec {
        name: "srun".to_owned(),
        partition: "debug".to_owned(),
        nodes: "1".to_owned(),
        time_limit: Some(60),
        ..v1::JobSpec::default()
    };
    let request = v1::SubmitRequest { job: Some(job), ..v1::SubmitRequest::default() };
    let accepted = user.change(request, async |mut controller, ask| controller.submit(ask).await).await?;
    let job_id = accepted.job_id;
    // Without this stream, the controller takes the command for dead.
    let held = loop {
        let request = v1::HoldAllocationRequest { job_id };
        let hold =
            async |mut controller: spur_proto::client::Controller, ask| controller.hold_allocation(ask).await;
        let mut news = user.read(request, hold).await?;
        // A stream that breaks off is opened again.
        if let Ok(true) = runs(&user, &mut news).await {
            break news;
        }
    };
    let request = v1::CreateStepRequest { job_id, tasks: Some(1), ..v1::CreateStepRequest::default() };
    user.change(request, async |mut controller, ask| controller.create_step(ask).await).await?;
    drop(held);
    let request = v1::EndAllocationRequest { job_id, ..v1::EndAllocationRequest::default() };
    user.change(request, async |mut controller, ask| controller.end_allocation(ask).await).await?;
    Ok(())
}

/// Waits until an allocation has started; false if the stream ends before.
async fn runs(
    user: &Connection,
    news: &mut tonic::Streaming<v1::HoldAllocationResponse>,
) -> Result<bool, CallError> {
    while let Some(message) = user.next(news).await? {
        if message.job.is_some_and(|job| job.state == "RUNNING") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Prints a line for each kind: for each quarter the median, the 99th percentile and the largest latency in
/// milliseconds, then the failures.
fn print(calls: &[Call], length: Duration) {
    println!("milliseconds from the scheduled moment: p50, p99, max");
    println!("{:12}{:>8}  {}", "", "calls", QUARTERS.map(|name| format!("{name:<24}")).concat());
    for kind in Kind::ALL {
        let own: Vec<&Call> = calls.iter().filter(|call| call.kind == kind).collect();
        print!("{kind:12}{:>8}  ", own.len());
        for quarter in 0..4_u32 {
            let (from, to) = (length / 4 * quarter, length / 4 * (quarter + 1));
            let within =
                own.iter().filter(|call| call.failed.is_none() && (from..to).contains(&call.scheduled));
            let mut took: Vec<f64> = within.map(|call| call.took.as_secs_f64() * 1000.0).collect();
            took.sort_by(f64::total_cmp);
            let at = |hundredth: usize| took.get((took.len().max(1) - 1) * hundredth / 100).copied();
            let shown = [50, 99, 100].map(|part| at(part).map_or("-".to_owned(), |ms| format!("{ms:.1}")));
            print!("{:<24}", shown.join(" "));
        }
        let failures: Vec<&String> = own.iter().filter_map(|call| call.failed.as_ref()).collect();
        match failures.first() {
            None => println!(),
            Some(first) => println!("{} failed, the first: {first}", failures.len()),
        }
    }
}
