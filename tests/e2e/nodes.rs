//! Simulated nodes that run nothing: a job ends when the test ends it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use spur_core::cluster::FeatureLevel;
use spur_core::text::address::HostPort;
use spur_proto::channel::Dialer;
use spur_proto::client::Introduction;
use spur_proto::keys::{ClusterKeys, Role};
use spur_proto::v1::agents_client::AgentsClient;
use spur_proto::v1::report::Report as Said;
use spur_proto::v1::{
    Attempt, BatchEnded, Hello, Launch, NodeDone, NodeMessage, NodeShape, Report, TokenClaims, node_message,
    order,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;

use crate::cluster::{Cluster, PATIENCE};

/// The nodes of a cluster, until this value is dropped.
pub(crate) struct Nodes {
    /// Ordered batch scripts with their node, by job.
    batches: BTreeMap<u32, (String, Launch)>,
    launched: Receiver<(String, Launch)>,
    voices: BTreeMap<String, Voice>,
}

/// The connection of a node to the controller.
#[derive(Clone)]
struct Voice {
    sender: UnboundedSender<NodeMessage>,
    /// The number of its next report.
    next: Arc<AtomicU64>,
}

impl Voice {
    fn report(&self, attempt: Option<Attempt>, said: Said) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let report = Report { id, attempt, report: Some(said) };
        // A closed connection ends the test elsewhere.
        let _ = self.sender.send(message(node_message::Message::Report(report)));
    }
}

impl Nodes {
    /// Starts nodes of these names with `cpus` CPUs each, and returns after the controller has registered
    /// them.
    pub(crate) fn start(cluster: &Cluster, names: &[String], cpus: u32) -> Self {
        let (launches, launched) = channel();
        let (welcomes, welcomed) = channel();
        let mut voices = BTreeMap::new();
        let mut receivers = Vec::new();
        for name in names {
            let (sender, receiver) = unbounded_channel();
            let voice = Voice { sender, next: Arc::new(AtomicU64::new(1)) };
            // The channel is new and its other end is here.
            let _ = voice.sender.send(message(node_message::Message::Hello(hello(name, cpus))));
            voices.insert(name.clone(), voice.clone());
            receivers.push((name.clone(), voice, UnboundedReceiverStream::new(receiver)));
        }
        let (address, keys) = (cluster.address(), cluster.keys().expect("it has a key"));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("threads can be made").block_on(async {
                let attending = receivers.into_iter().map(|(name, voice, messages)| {
                    let introduced = introduced(&address, &keys, &name);
                    tokio::spawn(attend(
                        introduced,
                        name,
                        voice,
                        messages,
                        welcomes.clone(),
                        launches.clone(),
                    ))
                });
                for node in attending.collect::<Vec<_>>() {
                    node.await.expect("a node does not panic");
                }
            });
        });
        for _ in names {
            welcomed.recv_timeout(PATIENCE).expect("the controller takes them all in");
        }
        Self { batches: BTreeMap::new(), launched, voices }
    }

    /// Lets the batch script of a running job end with success.
    pub(crate) fn end(&mut self, job: u32) {
        while !self.batches.contains_key(&job) {
            let (node, launch) =
                self.launched.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("job {job} is not launched"));
            let job = launch.attempt.expect("an order names its attempt").job_id;
            self.batches.insert(job, (node, launch));
        }
        let (node, launch) = &self.batches[&job];
        let done = launch.alone;
        let voice = &self.voices[node];
        voice.report(launch.attempt, Said::BatchEnded(BatchEnded { done, ..BatchEnded::default() }));
        if !done {
            voice.report(launch.attempt, Said::NodeDone(NodeDone::default()));
        }
    }
}

/// The connection of a node to the controller.
fn introduced(address: &HostPort, keys: &ClusterKeys, name: &str) -> (Channel, Introduction) {
    let own = keys.own(&Role::Node(name.into())).remove(0);
    let dialer = Dialer::expecting(&keys.public(&Role::Controller), Some(own));
    let claims = TokenClaims { node: name.to_owned(), expires: i64::MAX, ..TokenClaims::default() };
    let introduction = Introduction::new(&keys.mint(&claims)).expect("a plain name");
    (dialer.connect_lazily(address).expect("an address"), introduction)
}

/// Runs one node until the controller ends or this side does.
async fn attend(
    (channel, introduction): (Channel, Introduction),
    name: String,
    voice: Voice,
    messages: UnboundedReceiverStream<NodeMessage>,
    welcomes: Sender<()>,
    launches: Sender<(String, Launch)>,
) {
    let mut client = AgentsClient::with_interceptor(channel, introduction);
    let mut orders = client.attend(messages).await.expect("the controller listens").into_inner();
    let mut batches = Vec::new();
    while let Ok(Some(order)) = orders.message().await {
        match order.order {
            // A test that has ended does not receive any more.
            Some(order::Order::Welcome(_)) => drop(welcomes.send(())),
            Some(order::Order::Refusal(refusal)) => panic!("{name} is not wanted: {refusal:?}"),
            Some(order::Order::Launch(launch)) => {
                batches.push(launch.attempt);
                drop(launches.send((name.clone(), launch)));
            }
            // The node of the batch script has reported its end already.
            Some(order::Order::Terminate(terminate)) if !batches.contains(&terminate.attempt) => {
                voice.report(terminate.attempt, Said::NodeDone(NodeDone::default()));
            }
            _ => {}
        }
    }
}

fn message(message: node_message::Message) -> NodeMessage {
    NodeMessage { message: Some(message) }
}

fn hello(name: &str, cpus: u32) -> Hello {
    let shape = NodeShape {
        sockets: 1,
        cores_per_socket: cpus,
        threads_per_core: 1,
        cpus,
        memory_mb: 64_000,
        ..NodeShape::default()
    };
    Hello {
        node_name: name.to_owned(),
        protocol: spur_proto::refusal::PROTOCOL.to_owned(),
        shape: Some(shape),
        boot_id: "1".to_owned(),
        spool_id: name.to_owned(),
        address: "127.0.0.1:1".to_owned(),
        hostname: name.to_owned(),
        feature_level: FeatureLevel::NEWEST.0,
        ..Hello::default()
    }
}
