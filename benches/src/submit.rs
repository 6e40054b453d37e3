//! Clients that submit as fast as they get answers.

use std::time::{Duration, Instant};

use spur_proto::v1::controller_client::ControllerClient;
use spur_proto::v1::{JobFilter, ListJobsRequest, WatchJobsRequest, submit_stream_response};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::arguments::Arguments;
use crate::beside::Watch;
use crate::jobs::Jobs;
use crate::target::Target;

/// The time for which jobs that may start are among the others, and then not, with `--free`.
const SPELL: Duration = Duration::from_secs(2);

/// A call: the times at which it began and was answered.
type Call = (Instant, Instant);

/// Submits one job a call: each client waits for its answer before it asks again.
pub(crate) async fn calls(target: &Target, arguments: &Arguments) -> anyhow::Result<()> {
    let each = arguments.jobs / arguments.clients;
    let watch = arguments.beside.as_ref().map(Watch::begin).transpose()?;
    let mut clients = Vec::new();
    for client in 0..arguments.clients {
        let channel = target.connect("").await?;
        let mut service = ControllerClient::with_interceptor(channel, target.introduction("")?);
        let (hold, free) = (arguments.hold, arguments.free);
        let mut jobs = Jobs::of(client, arguments.nodes);
        clients.push(async move {
            let (start, mut calls) = (Instant::now(), Vec::with_capacity(each));
            for number in 0..each {
                let may_start = free > 0
                    && number % free == client % free
                    && start.elapsed().as_secs() % (2 * SPELL.as_secs()) < SPELL.as_secs();
                let request = jobs.next(hold && !may_start);
                let begun = Instant::now();
                service.submit(request).await?;
                calls.push((begun, Instant::now()));
            }
            anyhow::Ok(calls)
        });
    }
    let begun = Instant::now();
    let running: Vec<_> = clients.into_iter().map(tokio::spawn).collect();
    let mut calls: Vec<Call> = Vec::new();
    for client in running {
        calls.extend(client.await??);
    }
    let took = begun.elapsed();
    print_rates("calls", arguments.clients, took, &calls);
    if let Some(watch) = watch {
        let times = watch.end()?;
        let (beside, alone): (Vec<Call>, Vec<Call>) =
            calls.into_iter().partition(|(begun, ended)| times.touch(*begun, *ended));
        let (sum, pieces) = times.sum();
        println!("beside it: {:.2} s in {pieces} pieces", sum.as_secs_f64());
        print_rates("  beside", arguments.clients, sum, &beside);
        print_rates("  alone", arguments.clients, took.saturating_sub(sum), &alone);
    }
    Ok(())
}

/// Submits over streams, with up to a window of jobs unanswered on each.
pub(crate) async fn streams(target: &Target, arguments: &Arguments) -> anyhow::Result<()> {
    let each = arguments.jobs / arguments.clients;
    let begun = Instant::now();
    let mut running = Vec::new();
    for client in 0..arguments.clients {
        let channel = target.connect("").await?;
        let mut service = ControllerClient::with_interceptor(channel, target.introduction("")?);
        let (hold, nodes, window) = (arguments.hold, arguments.nodes, arguments.window);
        running.push(tokio::spawn(async move {
            let (sender, receiver) = mpsc::channel(window);
            let mut jobs = Jobs::of(client, nodes);
            tokio::spawn(async move {
                for _ in 0..each {
                    if sender.send(jobs.next(hold)).await.is_err() {
                        return;
                    }
                }
            });
            let mut answers = service.submit_stream(ReceiverStream::new(receiver)).await?.into_inner();
            let mut accepted = 0_usize;
            while let Some(answer) = answers.next().await {
                match answer?.result {
                    Some(submit_stream_response::Result::Submitted(_)) => accepted += 1,
                    Some(submit_stream_response::Result::Refused(error)) => {
                        anyhow::bail!("{}", error.message)
                    }
                    None => anyhow::bail!("an answer that says nothing"),
                }
            }
            anyhow::ensure!(accepted == each, "{accepted} of {each} jobs were answered");
            Ok(())
        }));
    }
    for client in running {
        client.await??;
    }
    let (took, jobs) = (begun.elapsed(), each * arguments.clients);
    println!("stream clients={} jobs={jobs} rate={:.0}/s", arguments.clients, rate(jobs, took));
    Ok(())
}

/// Waits until every job that is in the queue now has ended.
pub(crate) async fn wait_until_ended(target: &Target) -> anyhow::Result<()> {
    let channel = target.connect("").await?;
    let mut service = ControllerClient::with_interceptor(channel, target.introduction("")?);
    let filter = Some(JobFilter::default());
    let mut list =
        service.list_jobs(ListJobsRequest { filter, ..ListJobsRequest::default() }).await?.into_inner();
    let mut job_ids = Vec::new();
    while let Some(page) = list.next().await {
        job_ids.extend(page?.jobs.iter().map(|job| job.id));
    }
    let open = job_ids.len();
    if open == 0 {
        println!("ended jobs=0");
        return Ok(());
    }
    let begun = Instant::now();
    let mut watch = service.watch_jobs(WatchJobsRequest { job_ids }).await?.into_inner();
    while let Some(news) = watch.next().await {
        news?;
    }
    println!("ended jobs={open} seconds={:.3}", begun.elapsed().as_secs_f64());
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn rate(jobs: usize, took: Duration) -> f64 {
    jobs as f64 / took.as_secs_f64().max(1e-9)
}

fn print_rates(what: &str, clients: usize, took: Duration, calls: &[Call]) {
    let mut latencies: Vec<Duration> =
        calls.iter().map(|(begun, ended)| ended.duration_since(*begun)).collect();
    latencies.sort_unstable();
    let at = |thousandth: usize| {
        let index = latencies.len().saturating_sub(1) * thousandth / 1000;
        latencies.get(index).copied().unwrap_or_default().as_secs_f64() * 1000.0
    };
    println!(
        "{what} clients={clients} jobs={} rate={:.0}/s p50={:.2}ms p99={:.2}ms max={:.2}ms",
        latencies.len(),
        rate(latencies.len(), took),
        at(500),
        at(990),
        at(1000)
    );
}
