//! Simulated nodes that run nothing: every batch script ends with success as soon as it is ordered, after
//! some time, or never. The nodes send heartbeats.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use spur_chance::scatter;
use spur_core::cluster::FeatureLevel;
use spur_core::text::hostlist::HostList;
use spur_proto::v1::agents_client::AgentsClient;
use spur_proto::v1::report::Report as Said;
use spur_proto::v1::{
    Attempt, BatchEnded, Heartbeat, HeldAttempt, Hello, Launch, NodeDone, NodeGres, NodeMessage, NodeShape,
    Report, node_message, order,
};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;

use crate::arguments::Arguments;
use crate::target::Target;

/// Number of CPUs that each node reports.
const CPUS: u32 = 64;

/// The first pause before a node tries again to reach the controller, and the longest: those of `spurd`.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));

/// The time at which a node ends what it is ordered to run.
#[derive(Clone, Copy)]
enum Ends {
    AtOnce,
    Never,
    /// After a time from nothing to twice this.
    After(Duration),
}

/// The jobs that a node ends later, by their numbers.
type Due = BTreeMap<u32, (Instant, Launch)>;

/// Time between heartbeats before the controller has said how often they come.
const FIRST_BEAT: Duration = Duration::from_secs(10);

/// An event in the life of a node.
enum News {
    Welcomed,
    /// The stream of a registered node is over.
    Lost,
    Failed(anyhow::Error),
}

/// Runs all nodes until the process is killed or a connection breaks. With `--again` they come back, and the
/// time from the first loss to the last registration is printed.
pub(crate) async fn run(target: Target, arguments: &Arguments) -> anyhow::Result<()> {
    let target = Arc::new(target);
    let names: HostList = arguments.names.parse()?;
    let again = arguments.again;
    let ends = match arguments.last {
        _ if arguments.keep => Ends::Never,
        0 => Ends::AtOnce,
        seconds => Ends::After(Duration::from_secs(seconds)),
    };
    let (news, mut heard) = mpsc::unbounded_channel();
    let mut all = 0_usize;
    for name in names.iter() {
        let first = target.connect(&name).await?;
        tokio::spawn(live(Arc::clone(&target), name, first, ends, again, news.clone()));
        all += 1;
    }
    println!("nodes={all}");
    let (mut welcome, mut lost) = (0, None);
    while let Some(news) = heard.recv().await {
        match news {
            News::Failed(error) => return Err(error),
            News::Lost => {
                welcome -= 1;
                lost.get_or_insert_with(Instant::now);
            }
            News::Welcomed => {
                welcome += 1;
                if let Some(since) = lost.take_if(|_| welcome == all) {
                    println!("back={all} seconds={:.2}", since.elapsed().as_secs_f64());
                }
            }
        }
    }
    Ok(())
}

/// The life of one node.
async fn live(
    target: Arc<Target>,
    name: String,
    first: Channel,
    ends: Ends,
    again: bool,
    news: UnboundedSender<News>,
) {
    let (mut channel, mut pause) = (Some(first), PAUSES.0);
    let mut due = Due::new();
    loop {
        let connected = match channel.take() {
            Some(channel) => Ok(channel),
            None => target.connect(&name).await,
        };
        let mut welcome = false;
        let attended = match connected {
            Ok(channel) => attend(&target, &name, channel, (ends, &mut due), &news, &mut welcome).await,
            Err(error) => Err(error),
        };
        match attended {
            Err(error) if !again => {
                let _ = news.send(News::Failed(error.context(name)));
                return;
            }
            _ if welcome => {
                let _ = news.send(News::Lost);
                pause = PAUSES.0;
            }
            _ => {}
        }
        if !again {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Obeys the controller until the stream ends.
async fn attend(
    target: &Target,
    name: &str,
    channel: Channel,
    (ends, due): (Ends, &mut Due),
    news: &UnboundedSender<News>,
    welcome: &mut bool,
) -> anyhow::Result<()> {
    let mut client = AgentsClient::with_interceptor(channel, target.introduction(name)?);
    let (sender, receiver) = mpsc::unbounded_channel();
    sender.send(message(node_message::Message::Hello(hello(name, due))))?;
    let mut orders = client.attend(UnboundedReceiverStream::new(receiver)).await?.into_inner();
    let (mut next, mut ended) = (1, BTreeSet::new());
    let mut beat = tokio::time::interval(FIRST_BEAT);
    loop {
        let first_due = due.iter().map(|(job, (at, _))| (*at, *job)).min();
        let at = first_due.map_or_else(Instant::now, |(at, _)| at);
        let order = tokio::select! {
            order = orders.message() => order?,
            _ = beat.tick() => {
                sender.send(message(node_message::Message::Heartbeat(Heartbeat::default())))?;
                continue;
            }
            () = tokio::time::sleep_until(at.into()), if first_due.is_some() => {
                if let Some((_, launch)) = first_due.and_then(|(_, job)| due.remove(&job)) {
                    end(&sender, &mut next, &mut ended, &launch)?;
                }
                continue;
            }
        };
        let Some(order) = order else { return Ok(()) };
        match order.order {
            Some(order::Order::Welcome(order)) => {
                *welcome = true;
                let every = Duration::from_secs(order.heartbeat_interval.max(1).into());
                // The nodes' heartbeats are spread over the time between two of them.
                let first = every.mul_f64(f64::from(u8::try_from(scatter_of(name) % 256)?) / 256.0);
                beat = tokio::time::interval_at((Instant::now() + first).into(), every);
                news.send(News::Welcomed)?;
            }
            Some(order::Order::Launch(launch)) => {
                let job = launch.attempt.map_or(0, |attempt| attempt.job_id);
                match ends {
                    Ends::Never => {}
                    Ends::AtOnce => end(&sender, &mut next, &mut ended, &launch)?,
                    Ends::After(mean) => {
                        let share = f64::from(u32::try_from(scatter(job.into()) % 1000)?) / 500.0;
                        due.entry(job).or_insert_with(|| (Instant::now() + mean.mul_f64(share), launch));
                    }
                }
            }
            // A launched attempt has reported its end already.
            Some(order::Order::Terminate(terminate))
                if !terminate.attempt.is_some_and(|attempt| ended.contains(&attempt.job_id)) =>
            {
                due.remove(&terminate.attempt.map_or(0, |attempt| attempt.job_id));
                report(&sender, &mut next, terminate.attempt, Said::NodeDone(NodeDone::default()))?;
            }
            Some(order::Order::Forget(forget)) => {
                for attempt in forget.attempts {
                    ended.remove(&attempt.job_id);
                }
            }
            Some(order::Order::Refusal(refusal)) => {
                anyhow::bail!("{}", refusal.error.unwrap_or_default().message)
            }
            _ => {}
        }
    }
}

/// Reports the end of a launched attempt.
fn end(
    sender: &UnboundedSender<NodeMessage>,
    next: &mut u64,
    ended: &mut BTreeSet<u32>,
    launch: &Launch,
) -> anyhow::Result<()> {
    ended.extend(launch.attempt.map(|attempt| attempt.job_id));
    // A node without an epilog reports in this way.
    let done = launch.alone;
    let exit = Said::BatchEnded(BatchEnded { done, ..BatchEnded::default() });
    report(sender, next, launch.attempt, exit)?;
    if !done {
        report(sender, next, launch.attempt, Said::NodeDone(NodeDone::default()))?;
    }
    Ok(())
}

/// A number that spreads nodes by their names.
fn scatter_of(name: &str) -> u64 {
    name.bytes().fold(0, |number, byte| scatter(number ^ u64::from(byte)))
}

fn message(message: node_message::Message) -> NodeMessage {
    NodeMessage { message: Some(message) }
}

/// Sends a report about an attempt.
fn report(
    sender: &UnboundedSender<NodeMessage>,
    next: &mut u64,
    attempt: Option<Attempt>,
    said: Said,
) -> anyhow::Result<()> {
    let report = Report { id: *next, attempt, report: Some(said) };
    *next += 1;
    Ok(sender.send(message(node_message::Message::Report(report)))?)
}

fn hello(name: &str, due: &Due) -> Hello {
    let held =
        |(_, launch): &(Instant, Launch)| HeldAttempt { attempt: launch.attempt, live: true, done: false };
    Hello {
        attempts: due.values().map(held).collect(),
        node_name: name.to_owned(),
        protocol: spur_proto::refusal::PROTOCOL.to_owned(),
        shape: Some(NodeShape {
            sockets: 1,
            cores_per_socket: CPUS,
            threads_per_core: 1,
            cpus: CPUS,
            memory_mb: 1 << 20,
            tmp_disk_mb: 0,
            gres: Vec::<NodeGres>::new(),
            features: Vec::new(),
            places: Vec::new(),
        }),
        boot_id: "bench".to_owned(),
        spool_id: name.to_owned(),
        address: "127.0.0.1:1".to_owned(),
        hostname: name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        feature_level: FeatureLevel::NEWEST.0,
        ..Hello::default()
    }
}
