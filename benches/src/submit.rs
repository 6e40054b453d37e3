//! Clients that submit as fast as they are answered.

use std::fmt::Write;
use std::time::{Duration, Instant};

use spur_proto::v1::controller_client::ControllerClient;
use spur_proto::v1::{
    Batch, JobFilter, JobSpec, ListJobsRequest, SubmitRequest, WatchJobsRequest, submit_stream_response,
};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::arguments::Arguments;
use crate::target::Target;

/// One job a call: each client waits for its answer before it asks again.
pub(crate) async fn calls(target: &Target, arguments: &Arguments) -> anyhow::Result<()> {
    let each = arguments.jobs / arguments.clients;
    let mut clients = Vec::new();
    for client in 0..arguments.clients {
        let channel = target.connect().await?;
        let mut service = ControllerClient::with_interceptor(channel, target.introduction("")?);
        let (hold, nodes) = (arguments.hold, arguments.nodes);
        clients.push(async move {
            let mut latencies = Vec::with_capacity(each);
            for number in 0..each {
                let request = request(client, number, hold, nodes);
                let begun = Instant::now();
                service.submit(request).await?;
                latencies.push(begun.elapsed());
            }
            anyhow::Ok(latencies)
        });
    }
    let begun = Instant::now();
    let running: Vec<_> = clients.into_iter().map(tokio::spawn).collect();
    let mut latencies = Vec::new();
    for client in running {
        latencies.extend(client.await??);
    }
    print_rates("calls", arguments.clients, begun.elapsed(), latencies);
    Ok(())
}

/// Streams of submissions with up to a window of jobs unanswered on each.
pub(crate) async fn streams(target: &Target, arguments: &Arguments) -> anyhow::Result<()> {
    let each = arguments.jobs / arguments.clients;
    let begun = Instant::now();
    let mut running = Vec::new();
    for client in 0..arguments.clients {
        let channel = target.connect().await?;
        let mut service = ControllerClient::with_interceptor(channel, target.introduction("")?);
        let (hold, nodes, window) = (arguments.hold, arguments.nodes, arguments.window);
        running.push(tokio::spawn(async move {
            let (sender, receiver) = mpsc::channel(window);
            tokio::spawn(async move {
                for number in 0..each {
                    if sender.send(request(client, number, hold, nodes)).await.is_err() {
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
    print_rates("stream", arguments.clients, begun.elapsed(), vec![Duration::ZERO; each * arguments.clients]);
    Ok(())
}

/// Waits until every job that is in the queue now has ended.
pub(crate) async fn wait_until_ended(target: &Target) -> anyhow::Result<()> {
    let channel = target.connect().await?;
    let mut service = ControllerClient::with_interceptor(channel, target.introduction("")?);
    let filter = Some(JobFilter::default());
    let mut list = service.list_jobs(ListJobsRequest { filter }).await?.into_inner();
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

/// A job unlike any other: 1 KB of script, 4 KB of environment.
fn request(client: usize, number: usize, hold: bool, nodes: u32) -> SubmitRequest {
    let mut script = format!("#!/bin/sh\n# {client}.{number}\ntrue\n");
    while script.len() < 1024 {
        let _ = writeln!(script, "# {:032x}", client * 7_919 + number * 104_729 + script.len());
    }
    let mut environment = format!("PATH=/usr/bin:/bin\0BENCH={client}.{number}\0");
    while environment.len() < 4096 {
        let at = environment.len();
        let _ = write!(environment, "VARIABLE_{at}={:032x}\0", number * 31 + at);
    }
    let batch = Batch {
        script: script.into_bytes().into(),
        environment: environment.into_bytes().into(),
        command: "bench.sh".to_owned(),
        work_dir: "/tmp".to_owned(),
        stdout: "/dev/null".to_owned(),
        umask: 0o022,
        ..Batch::default()
    };
    let job = JobSpec {
        name: "bench".to_owned(),
        nodes: nodes.to_string(),
        time_limit: Some(3600),
        hold,
        batch: Some(batch),
        ..JobSpec::default()
    };
    let request_id = uuid::Uuid::new_v4().as_bytes().to_vec().into();
    SubmitRequest { job: Some(job), request_id, retry: false }
}

fn print_rates(what: &str, clients: usize, took: Duration, mut latencies: Vec<Duration>) {
    latencies.sort_unstable();
    let at = |share: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index"
        )]
        let index = ((latencies.len() as f64 - 1.0) * share) as usize;
        latencies.get(index).copied().unwrap_or_default().as_secs_f64() * 1000.0
    };
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = latencies.len() as f64 / took.as_secs_f64();
    println!(
        "{what} clients={clients} jobs={} rate={rate:.0}/s p50={:.2}ms p99={:.2}ms max={:.2}ms",
        latencies.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
}
