//! The cost of one user's heaviest requests to other users. For each method it measures the largest piece of
//! work of the owner and of lists. It also measures another user's list of one job and submission, as ratios
//! to an idle controller.

use std::time::{Duration, Instant};

use spur_proto::v1;
use spur_proto::v1::controller_client::ControllerClient;
use tokio_stream::StreamExt;
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

use crate::requests::{self, Raw, Read};
use crate::target::Target;

/// The user who sends heavy requests.
const HEAVY: u32 = 41_000;
/// The user who sends light requests.
const OTHER: u32 = 41_001;
/// Number of concurrent requests of one kind: the number of lists that one user may have.
const AT_ONCE: usize = 8;
/// Number of requests of the other user beside each kind of heavy request.
const PROBES: usize = 100;

type Client = ControllerClient<InterceptedService<Channel, spur_proto::client::Introduction>>;

/// Times of the other user's requests, in ascending order.
struct Probes {
    lists: Vec<Duration>,
    submissions: Vec<Duration>,
}

/// Prints a line for each kind of request.
pub(crate) async fn run(target: &Target) -> anyhow::Result<()> {
    let mut heavy = client(target, HEAVY).await?;
    let mut other = client(target, OTHER).await?;
    let mut root = client(target, 0).await?;
    let own = submit(&mut other).await?;
    let idle = probe(&mut other, own).await?;
    println!(
        "idle: a list {:.2} ms, a submission {:.2} ms",
        milliseconds(middle(&idle.lists)),
        milliseconds(middle(&idle.submissions))
    );
    println!(
        "request | owner: items, ms | list: items, ms | list x idle, longest ms | submission x idle, longest ms"
    );
    for (method, read, request) in requests::table(&format!("u{HEAVY}")) {
        fill(&mut heavy).await?;
        root.get_statistics(v1::GetStatisticsRequest { reset: true }).await?;
        let loads: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let most = match read {
                    Read::All => usize::MAX,
                    Read::Some(most) => most,
                };
                (target.channel_as(HEAVY), request.clone(), most)
            })
            .collect();
        let mut tasks = Vec::new();
        for (channel, request, most) in loads {
            tasks.push(tokio::spawn(load(channel.await?, method, request, most)));
        }
        let beside = probe(&mut other, own).await?;
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        let figures = root.get_statistics(v1::GetStatisticsRequest { reset: false }).await?.into_inner();
        let (owner, lists) = (figures.owner.unwrap_or_default(), figures.lists.unwrap_or_default());
        let compare = |beside: &[Duration], idle: &[Duration]| {
            let ratio = middle(beside).as_secs_f64() / middle(idle).as_secs_f64();
            let longest = beside.last().copied().unwrap_or_default();
            format!("{ratio:.1}, {:.1}", milliseconds(longest))
        };
        println!(
            "{method} | {}, {:.1} | {}, {:.1} | {} | {}",
            owner.items,
            milliseconds(Duration::from_micros(owner.microseconds)),
            lists.items,
            milliseconds(Duration::from_micros(lists.microseconds)),
            compare(&beside.lists, &idle.lists),
            compare(&beside.submissions, &idle.submissions)
        );
    }
    Ok(())
}

async fn client(target: &Target, uid: u32) -> anyhow::Result<Client> {
    Ok(ControllerClient::new(target.channel_as(uid).await?))
}

/// Submits the jobs of the cluster, unless they exist.
async fn fill(heavy: &mut Client) -> anyhow::Result<()> {
    let users = vec![format!("u{HEAVY}")];
    let filter = Some(v1::JobFilter { users, ..v1::JobFilter::default() });
    let mut list =
        heavy.list_jobs(v1::ListJobsRequest { filter, ..v1::ListJobsRequest::default() }).await?.into_inner();
    if list.message().await?.is_some_and(|page| !page.jobs.is_empty()) {
        return Ok(());
    }
    let mut answers = heavy.submit_stream(tokio_stream::iter(requests::jobs())).await?.into_inner();
    while answers.next().await.transpose()?.is_some() {}
    Ok(())
}

/// Sends one request again and again.
async fn load(
    channel: InterceptedService<Channel, spur_proto::client::Introduction>,
    method: &'static str,
    request: bytes::Bytes,
    most: usize,
) {
    let mut grpc = Grpc::new(channel).max_decoding_message_size(spur_proto::channel::MAX_REPLY);
    let path: PathAndQuery = format!("/spur.v1.Controller/{method}").parse().expect("a path");
    while grpc.ready().await.is_ok() {
        let call = Request::new(tokio_stream::once(request.clone()));
        // A refusal is an answer as well.
        let Ok(answer) = grpc.streaming(call, path.clone(), Raw).await else { continue };
        let mut answer = answer.into_inner();
        let mut count = 0;
        while count < most
            && let Ok(Some(_)) = answer.message().await
        {
            count += 1;
        }
    }
}

async fn submit(other: &mut Client) -> anyhow::Result<u32> {
    let request = requests::jobs().next().expect("there are jobs");
    Ok(other.submit(request).await?.into_inner().job_id)
}

/// Measures lists of one job and submissions, [`PROBES`] of each.
async fn probe(other: &mut Client, own: u32) -> anyhow::Result<Probes> {
    let mut probes = Probes { lists: Vec::new(), submissions: Vec::new() };
    for _ in 0..PROBES {
        let filter = Some(v1::JobFilter { job_ids: vec![own.to_string()], ..v1::JobFilter::default() });
        let begun = Instant::now();
        let list = v1::ListJobsRequest { filter, ..v1::ListJobsRequest::default() };
        let mut list = other.list_jobs(list).await?.into_inner();
        while list.message().await?.is_some() {}
        probes.lists.push(begun.elapsed());
        let begun = Instant::now();
        submit(other).await?;
        probes.submissions.push(begun.elapsed());
        // A user may not list faster.
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    probes.lists.sort();
    probes.submissions.sort();
    Ok(probes)
}

fn middle(sorted: &[Duration]) -> Duration {
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
