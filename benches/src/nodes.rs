//! Nodes that run nothing: every batch script ends well as soon as it is ordered, or never.

use std::collections::BTreeSet;

use spur_core::text::hostlist::HostList;
use spur_proto::v1::agents_client::AgentsClient;
use spur_proto::v1::report::Report as Said;
use spur_proto::v1::{
    Attempt, BatchEnded, Hello, NodeDone, NodeGres, NodeMessage, NodeShape, Report, node_message, order,
};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::arguments::Arguments;
use crate::target::Target;

/// CPUs each of them says it has.
const CPUS: u32 = 64;

/// Runs all nodes until the process is killed or a connection breaks.
pub(crate) async fn run(target: &Target, arguments: &Arguments) -> anyhow::Result<()> {
    let names: HostList = arguments.names.parse()?;
    let keep = arguments.keep;
    let mut running = Vec::new();
    for name in names.iter() {
        let channel = target.connect(&name).await?;
        let introduction = target.introduction(&name)?;
        running.push(tokio::spawn(async move {
            let mut client = AgentsClient::with_interceptor(channel, introduction);
            let (sender, receiver) = mpsc::unbounded_channel();
            sender.send(message(node_message::Message::Hello(hello(&name))))?;
            let mut orders = client.attend(UnboundedReceiverStream::new(receiver)).await?.into_inner();
            let mut next = 1;
            let mut ended = BTreeSet::new();
            while let Some(order) = orders.message().await? {
                match order.order {
                    Some(order::Order::Launch(_)) if keep => {}
                    Some(order::Order::Launch(launch)) => {
                        ended.extend(launch.attempt.map(|attempt| attempt.job_id));
                        // As a node does that has no epilog to run.
                        let done = launch.alone;
                        let exit = Said::BatchEnded(BatchEnded { done, ..BatchEnded::default() });
                        report(&sender, &mut next, launch.attempt, exit)?;
                        if !done {
                            report(&sender, &mut next, launch.attempt, Said::NodeDone(NodeDone::default()))?;
                        }
                    }
                    // What was launched here has said so already.
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
                        anyhow::bail!("{name}: {}", refusal.error.unwrap_or_default().message)
                    }
                    _ => {}
                }
            }
            anyhow::Ok(())
        }));
    }
    println!("nodes={}", running.len());
    for node in running {
        node.await??;
    }
    Ok(())
}

fn message(message: node_message::Message) -> NodeMessage {
    NodeMessage { message: Some(message) }
}

/// Reports something of an attempt.
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
        }),
        boot_id: "bench".to_owned(),
        spool_id: name.to_owned(),
        address: "127.0.0.1:1".to_owned(),
        hostname: name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Hello::default()
    }
}
