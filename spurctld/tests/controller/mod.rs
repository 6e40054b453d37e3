//! Support for the tests of the whole controller: a controller in this process, its clients, and a node whose
//! part the test plays.

use std::path::{Path, PathBuf};

use spur_core::cluster::FeatureLevel;
use spur_core::model::config::Config;
use spur_core::text::address::HostPort;
use spur_proto::channel::Dialer;
use spur_proto::client::Introduction;
use spur_proto::keys::{ClusterKey, ClusterKeys, Role};
use spur_proto::v1;
use spur_proto::v1::agents_client::AgentsClient;
use spur_proto::v1::controller_client::ControllerClient;
use spur_proto::v1::node_message::Message;
use spur_proto::v1::order::Order;
use spurctld::config_file::ConfigFile;
use spurctld::server::Server;
use spurctld::stop::Stop;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

pub(crate) type Client = ControllerClient<InterceptedService<Channel, Introduction>>;

/// Uid of a user of the tests.
pub(crate) const ADA: u32 = 41_000;
/// Uid of a second user of the tests.
pub(crate) const BOB: u32 = 41_001;
/// Uid of the operator.
pub(crate) const ROOT: u32 = 0;

/// A controller in this process.
pub(crate) struct Controller {
    address: HostPort,
    keys: ClusterKeys,
    stop: Stop,
    running: tokio::task::JoinHandle<anyhow::Result<()>>,
    pub(crate) directory: PathBuf,
}

/// Creates an empty directory below the build directory.
pub(crate) fn directory(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("controller-{name}"));
    match std::fs::remove_dir_all(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{}: {error}", path.display()),
        _ => std::fs::create_dir_all(&path).expect("the build directory can be written"),
    }
    path
}

/// Returns the configuration of the tests, extended by `more`: four nodes of four CPUs, three in partition
/// `main` and one in `small`.
fn config(directory: &Path, more: &str) -> String {
    let state = directory.display();
    format!(
        r#"
cluster_name = "test"
[controller]
listen_addr = "127.0.0.1:0"
state = "{state}"
kill_wait = "2s"
[auth]
key_file = "{state}/key"
socket = "{state}/auth.sock"
[[nodes]]
names = "n[1-4]"
cpus = 4
memory_mb = 1000
[[partitions]]
name = "main"
nodes = "n[1-3]"
default = true
max_time = "1:00:00"
[[partitions]]
name = "small"
nodes = "n4"
{more}
"#
    )
}

impl Controller {
    /// Starts a controller of a new cluster.
    pub(crate) async fn start(name: &str) -> Self {
        Self::start_in(directory(name)).await
    }

    /// Starts a controller of a new cluster whose configuration is extended by `more`.
    pub(crate) async fn start_configured(name: &str, more: &str) -> Self {
        let directory = directory(name);
        let text = config(&directory, more);
        Self::start_with(directory, &text).await
    }

    /// Starts a controller on the state in `directory`.
    pub(crate) async fn start_in(directory: PathBuf) -> Self {
        let text = config(&directory, "");
        Self::start_with(directory, &text).await
    }

    /// Starts a controller of a new cluster whose configuration has `to` in place of `from`.
    pub(crate) async fn start_edited(name: &str, from: &str, to: &str) -> Self {
        let directory = directory(name);
        let text = config(&directory, "").replacen(from, to, 1);
        Self::start_with(directory, &text).await
    }

    async fn start_with(directory: PathBuf, text: &str) -> Self {
        let path = directory.join("spur.toml");
        std::fs::write(&path, text).unwrap();
        let key_file = directory.join("key");
        if !key_file.exists() {
            ClusterKey::generate().unwrap().write_new(&key_file).unwrap();
        }
        let keys = ClusterKeys::read(&key_file, "test").unwrap();
        let config = Config::parse(text, "spur.toml").unwrap();
        let server = Server::start(config, ConfigFile::find(Some(path)), || {}).await.unwrap().unwrap();
        let (address, stop) = (server.address().to_string().parse().unwrap(), server.stop());
        Self { address, keys, stop, running: tokio::spawn(server.run()), directory }
    }

    /// Stops the controller and returns the directory of its state.
    pub(crate) async fn stop(self) -> PathBuf {
        self.stop.wish();
        self.running.await.unwrap().unwrap();
        self.directory
    }

    /// Returns the address on which the controller listens.
    pub(crate) fn address(&self) -> &HostPort {
        &self.address
    }

    /// Returns the keys of the cluster.
    pub(crate) fn keys(&self) -> &ClusterKeys {
        &self.keys
    }

    /// Connects a client that authenticates by `token`.
    pub(crate) async fn client_with(&self, token: &str) -> Client {
        let dialer = Dialer::expecting(&self.keys.public(&Role::Controller), None);
        let channel = dialer.connect(&self.address).await.unwrap();
        ControllerClient::with_interceptor(channel, Introduction::new(token).unwrap())
    }

    /// Connects a client of user `uid`.
    pub(crate) async fn client(&self, uid: u32) -> Client {
        self.client_with(&self.keys.mint(&claims(uid))).await
    }

    /// Connects a node without attempts whose part the test plays.
    pub(crate) async fn node(&self, name: &str) -> Node {
        self.node_holding(name, &[]).await
    }

    /// Connects a node that still runs the attempts `held`.
    pub(crate) async fn node_holding(&self, name: &str, held: &[v1::Attempt]) -> Node {
        let (says, outgoing) = mpsc::channel(64);
        let hello = v1::Hello {
            node_name: name.to_owned(),
            protocol: spur_proto::refusal::PROTOCOL.to_owned(),
            shape: Some(v1::NodeShape { cpus: 4, memory_mb: 1000, ..v1::NodeShape::default() }),
            boot_id: "boot".to_owned(),
            spool_id: "spool".to_owned(),
            address: "127.0.0.1:7000".to_owned(),
            attempts: held
                .iter()
                .map(|attempt| v1::HeldAttempt { attempt: Some(*attempt), live: true, done: false })
                .collect(),
            feature_level: FeatureLevel::NEWEST.0,
            ..v1::Hello::default()
        };
        says.send(v1::NodeMessage { message: Some(Message::Hello(hello)) }).await.unwrap();
        let own = self.keys.own(&Role::Node(name.into())).remove(0);
        let dialer = Dialer::expecting(&self.keys.public(&Role::Controller), Some(own));
        let channel = dialer.connect(&self.address).await.unwrap();
        let token = self.keys.mint(&v1::TokenClaims { node: name.to_owned(), ..claims(ROOT) });
        let mut agents = AgentsClient::with_interceptor(channel, Introduction::new(&token).unwrap());
        let hears = agents.attend(Request::new(ReceiverStream::new(outgoing))).await.unwrap().into_inner();
        Node { says, hears, reports: 0 }
    }

    /// Opens a node's stream and returns the controller's answer. The connection has the key of node `own`,
    /// and the token names node `named`.
    pub(crate) async fn attend(&self, own: Option<&str>, named: &str) -> Result<(), Status> {
        let own = own.map(|name| self.keys.own(&Role::Node(name.into())).remove(0));
        let dialer = Dialer::expecting(&self.keys.public(&Role::Controller), own);
        let channel = dialer.connect(&self.address).await.unwrap();
        let token = self.keys.mint(&v1::TokenClaims { node: named.to_owned(), ..claims(ROOT) });
        let mut agents = AgentsClient::with_interceptor(channel, Introduction::new(&token).unwrap());
        agents.attend(tokio_stream::empty()).await.map(|_| ())
    }

    /// Connects a node and awaits its welcome.
    pub(crate) async fn welcome_node(&self, name: &str) -> Node {
        let mut node = self.node(name).await;
        assert!(matches!(node.order().await, Some(Order::Welcome(_))));
        node
    }
}

/// Returns the claims of user `uid`.
pub(crate) fn claims(uid: u32) -> v1::TokenClaims {
    let expires = i64::MAX;
    v1::TokenClaims {
        uid,
        gid: uid,
        user: format!("u{uid}"),
        group: format!("g{uid}"),
        expires,
        ..v1::TokenClaims::default()
    }
}

/// A node whose part the test plays.
pub(crate) struct Node {
    says: mpsc::Sender<v1::NodeMessage>,
    hears: Streaming<v1::Order>,
    reports: u64,
}

impl Node {
    /// Returns the next order, or `None` once the stream has ended.
    pub(crate) async fn order(&mut self) -> Option<Order> {
        let order = self.hears.message().await.ok()??;
        Some(order.order.expect("an order says what to do"))
    }

    /// Waits for a launch and returns it.
    pub(crate) async fn launch(&mut self) -> v1::Launch {
        loop {
            match self.order().await.expect("the stream goes on") {
                Order::Launch(launch) => return launch,
                Order::Acknowledge(_) | Order::Forget(_) => {}
                other => panic!("expected a launch, got {other:?}"),
            }
        }
    }

    /// Sends a report and waits until the controller acknowledges it or orders the node to forget the
    /// attempt.
    pub(crate) async fn report(&mut self, attempt: v1::Attempt, report: v1::report::Report) {
        self.reports += 1;
        let id = self.reports;
        let report = v1::Report { id, attempt: Some(attempt), report: Some(report) };
        self.says.send(v1::NodeMessage { message: Some(Message::Report(report)) }).await.unwrap();
        loop {
            match self.order().await.expect("the stream goes on") {
                Order::Acknowledge(done) if done.report_ids.contains(&id) => return,
                Order::Forget(over) if over.attempts.contains(&attempt) => return,
                Order::Terminate(_) | Order::Forget(_) | Order::Acknowledge(_) => {}
                other => panic!("expected an acknowledgement, got {other:?}"),
            }
        }
    }

    /// Reports the end of an attempt with `exit_code`.
    pub(crate) async fn finish(&mut self, attempt: v1::Attempt, exit_code: u32) {
        let ended = v1::BatchEnded { exit_code, ..v1::BatchEnded::default() };
        self.report(attempt, v1::report::Report::BatchEnded(ended)).await;
        self.report(attempt, v1::report::Report::NodeDone(v1::NodeDone::default())).await;
    }
}

/// Returns a batch job of one task.
pub(crate) fn job(name: &str) -> v1::JobSpec {
    v1::JobSpec {
        name: name.to_owned(),
        tasks: Some(1),
        time_limit: Some(600),
        batch: Some(v1::Batch {
            script: "#!/bin/sh\ntrue\n".into(),
            environment: "A=1\0".into(),
            work_dir: "/tmp".to_owned(),
            ..v1::Batch::default()
        }),
        ..v1::JobSpec::default()
    }
}

/// Submits a job and returns its number.
pub(crate) async fn submit(client: &mut Client, job: v1::JobSpec) -> u32 {
    let request = v1::SubmitRequest { job: Some(job), ..v1::SubmitRequest::default() };
    client.submit(request).await.expect("the job is accepted").into_inner().job_id
}

/// Returns all jobs that match `filter`.
pub(crate) async fn jobs(client: &mut Client, filter: v1::JobFilter) -> Vec<v1::Job> {
    let request = v1::ListJobsRequest { filter: Some(filter), ..v1::ListJobsRequest::default() };
    let mut stream = client.list_jobs(request).await.expect("jobs are listed").into_inner();
    let mut all = Vec::new();
    while let Some(page) = stream.message().await.unwrap() {
        all.extend(page.jobs);
    }
    all
}

/// Returns a job in any state.
pub(crate) async fn job_of(client: &mut Client, id: u32) -> v1::Job {
    let filter = v1::JobFilter {
        job_ids: vec![id.to_string()],
        states: vec!["all".into()],
        ..v1::JobFilter::default()
    };
    jobs(client, filter).await.pop().expect("the job is there")
}

/// Waits until a job reaches a state.
pub(crate) async fn wait_for(client: &mut Client, id: u32, state: &str) -> v1::Job {
    let request = v1::WatchJobsRequest { job_ids: vec![id] };
    let mut stream = client.watch_jobs(request).await.unwrap().into_inner();
    while let Some(message) = stream.message().await.unwrap() {
        let job = message.job.expect("a message names its job");
        if job.state == state {
            return job;
        }
    }
    panic!("job {id} ended without being {state}");
}
