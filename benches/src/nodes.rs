//! Simulated nodes that run nothing: every batch script ends with success as soon as it is ordered, or never.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spur_core::text::hostlist::HostList;
use spur_proto::v1::agents_client::AgentsClient;
use spur_proto::v1::report::Report as Said;
use spur_proto::v1::{
    Attempt, BatchEnded, Hello, NodeDone, NodeGres, NodeMessage, NodeShape, Report, node_message, order,
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
    let (keep, again) = (arguments.keep, arguments.again);
    let (news, mut heard) = mpsc::unbounded_channel();
    let mut all = 0_usize;
    for name in names.iter() {
        let first = target.connect(&name).await?;
        tokio::spawn(live(Arc::clone(&target), name, first, keep, again, news.clone()));
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
    keep: bool,
    again: bool,
    news: UnboundedSender<News>,
) {
    let (mut channel, mut pause) = (Some(first), PAUSES.0);
    loop {
        let connected = match channel.take() {
            Some(channel) => Ok(channel),
            None => target.connect(&name).await,
        };
        let mut welcome = false;
        let attended = match connected {
            Ok(channel) => attend(&target, &name, channel, keep, &news, &mut welcome).await,
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
    keep: bool,
    news: &UnboundedSender<News>,
    welcome: &mut bool,
) -> anyhow::Result<()> {
    let mut client = AgentsClient::with_interceptor(channel, target.introduction(name)?);
    let (sender, receiver) = mpsc::unbounded_channel();
    sender.send(message(node_message::Message::Hello(hello(name))))?;
    let mut orders = client.attend(UnboundedReceiverStream::new(receiver)).await?.into_inner();
    let mut next = 1;
    let mut ended = BTreeSet::new();
    while let Some(order) = orders.message().await? {
        match order.order {
            Some(order::Order::Welcome(_)) => {
                *welcome = true;
                news.send(News::Welcomed)?;
            }
            Some(order::Order::Launch(_)) if keep => {}
            Some(order::Order::Launch(launch)) => {
                ended.extend(launch.attempt.map(|attempt| attempt.job_id));
                // A node without an epilog reports in this way.
                let done = launch.alone;
                let exit = Said::BatchEnded(BatchEnded { done, ..BatchEnded::default() });
                report(&sender, &mut next, launch.attempt, exit)?;
                if !done {
                    report(&sender, &mut next, launch.attempt, Said::NodeDone(NodeDone::default()))?;
                }
            }
            // A launched attempt has reported its end already.
            Some(order::Order::Terminate(terminate))
                if !terminate.attempt.is_some_and(|attempt| ended.contains(&attempt.job_id)) =>
            {
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
    Ok(())
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

fn hello(name: &str) -> Hello {
    Hello {
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
        ..Hello::default()
    }
}
