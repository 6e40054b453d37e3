//! A controller that the test plays, a daemon, and the messages between them.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use spur_proto::keys::{ClusterKey, ClusterKeys, Keyring, Role};
use spur_proto::listen::{Incoming, Limits};
use spur_proto::tls;
use spur_proto::v1;
use spur_proto::v1::agents_server::{Agents, AgentsServer};
use spur_proto::v1::node_message::Message as Up;
use spur_proto::v1::order::Order as Down;
use spur_proto::v1::report::Report;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// One stream that a node has opened.
pub(crate) struct Link {
    pub(crate) up: Streaming<v1::NodeMessage>,
    pub(crate) down: Orders,
    pub(crate) epoch: u64,
    pub(crate) history: [u8; 16],
    pub(crate) hello: v1::Hello,
}

/// Sends orders to the node.
pub(crate) type Orders = mpsc::Sender<Result<v1::Order, Status>>;

pub(crate) struct Play {
    pub(crate) links: mpsc::Sender<(Streaming<v1::NodeMessage>, Orders)>,
}

#[tonic::async_trait]
impl Agents for Play {
    type AttendStream = ReceiverStream<Result<v1::Order, Status>>;

    async fn attend(
        &self,
        request: Request<Streaming<v1::NodeMessage>>,
    ) -> Result<Response<Self::AttendStream>, Status> {
        let (down, orders) = mpsc::channel(1024);
        self.links.send((request.into_inner(), down)).await.unwrap();
        Ok(Response::new(ReceiverStream::new(orders)))
    }
}

impl Link {
    pub(crate) async fn order(&self, order: Down) {
        let order = v1::Order {
            epoch: self.epoch,
            history: self.history.to_vec().into(),
            now_ms: now_ms(),
            order: Some(order),
            ..v1::Order::default()
        };
        self.down.send(Ok(order)).await.unwrap();
    }

    /// Returns the next report without acknowledging it.
    pub(crate) async fn report(&mut self) -> v1::Report {
        loop {
            match self.up.message().await.unwrap().unwrap().message.unwrap() {
                Up::Report(report) => return report,
                Up::Heartbeat(_) | Up::Pong(_) | Up::Usage(_) | Up::Standing(_) => {}
                Up::Hello(_) => panic!("a second hello"),
            }
        }
    }

    /// Acknowledges the next report and returns it without usage.
    pub(crate) async fn acknowledged_report(&mut self) -> Report {
        let report = self.report().await;
        self.order(Down::Acknowledge(v1::Acknowledge { report_ids: vec![report.id] })).await;
        frugal(report.report.unwrap())
    }

    pub(crate) async fn terminate(&self, kill: bool) {
        let cause = "DUE TO TIME LIMIT".to_owned();
        self.order(Down::Terminate(v1::Terminate { attempt: Some(ATTEMPT), kill, cause, exit: None })).await;
    }
}

/// Path of the program under test.
pub(crate) const SPURD: &str = env!("CARGO_BIN_EXE_spurd");

/// The history of the controller that the test plays.
pub(crate) const HISTORY: [u8; 16] = [7; 16];

pub(crate) const ATTEMPT: v1::Attempt = v1::Attempt { job_id: 42, restart: 0 };

/// A controller, and a directory for a node.
pub(crate) struct World {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) keys: ClusterKeys,
    pub(crate) controller: SocketAddr,
    pub(crate) links: mpsc::Receiver<(Streaming<v1::NodeMessage>, Orders)>,
    pub(crate) daemon: Option<Child>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop();
    }
}

impl World {
    pub(crate) async fn new() -> World {
        let directory = tempfile::tempdir().unwrap();
        ClusterKey::generate().unwrap().write_new(&directory.path().join("key")).unwrap();
        let keys = ClusterKeys::read(&directory.path().join("key"), "test").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let controller = listener.local_addr().unwrap();
        let (links, received) = mpsc::channel(8);
        let server = tonic::transport::Server::builder().add_service(AgentsServer::new(Play { links }));
        let tls = tls::server(&Keyring::new(keys.clone()), Role::Controller);
        let incoming = Incoming::tcp(listener, Some(tls), Limits::for_process(100));
        tokio::spawn(server.serve_with_incoming(incoming));
        let world = World { directory, keys, controller, links: received, daemon: None };
        let files = world.directory.path().display();
        let text = format!(
            "cluster_name = \"test\"\n[auth]\nkey_file = \"{files}/key\"\nsocket = \"{files}/auth.sock\"\n"
        );
        fs::write(world.path("spur.toml"), text).unwrap();
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn configure(&self, more: &str) {
        let base = fs::read_to_string(self.path("spur.toml")).unwrap();
        fs::write(self.path("spur.toml"), format!("{base}{more}\n")).unwrap();
    }

    pub(crate) fn start(&mut self) {
        self.start_as(Command::new(SPURD), "spool");
    }

    /// Starts the daemon as `command`, with its spool in this directory.
    pub(crate) fn start_as(&mut self, mut command: Command, spool: &str) {
        let daemon = command
            .args(["-D", "-N", "n1", "--listen", "127.0.0.1:0", "--cpus", "2", "--features", "ib"])
            .arg("-f")
            .arg(self.path("spur.toml"))
            .arg("--spool")
            .arg(self.path(spool))
            .args(["--controller", &self.controller.to_string()])
            .stdin(Stdio::null())
            .env("RUST_LOG", std::env::var("SPURD_LOG").unwrap_or("warn".to_owned()))
            .spawn();
        self.daemon = Some(daemon.unwrap());
    }

    /// Asks the daemon to stop, so that it cleans up after itself.
    pub(crate) fn stop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let pid = rustix::process::Pid::from_child(&daemon);
            // A daemon that is gone already has failed the test.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = daemon.wait();
        }
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
    }

    /// Ends the daemon, which may have ended by itself.
    pub(crate) fn end(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            daemon.wait().unwrap();
        }
    }

    /// Returns the next stream that the node opens, welcomed in this reign.
    pub(crate) async fn welcome(&mut self, epoch: u64) -> Link {
        self.welcome_of(HISTORY, epoch).await
    }

    /// Returns the next stream that the node opens, welcomed by a controller of this history.
    pub(crate) async fn welcome_of(&mut self, history: [u8; 16], epoch: u64) -> Link {
        let (mut up, down) = self.links.recv().await.unwrap();
        let Some(Up::Hello(hello)) = up.message().await.unwrap().unwrap().message else {
            panic!("the first message is no hello");
        };
        let link = Link { up, down, epoch, history, hello };
        let welcome =
            v1::Welcome { cluster_name: "test".to_owned(), heartbeat_interval: 1, ..v1::Welcome::default() };
        link.order(Down::Welcome(welcome)).await;
        link
    }

    pub(crate) fn launch(&self, job_id: u32, script: &str) -> Down {
        let batch = v1::Batch {
            script: format!("#!/bin/sh\n{script}\n").into_bytes().into(),
            environment: format!("PATH={}\0", std::env::var("PATH").unwrap()).into_bytes().into(),
            work_dir: self.directory.path().display().to_string(),
            stdout: "out-%j".to_owned(),
            umask: 0o022,
            ..v1::Batch::default()
        };
        Down::Launch(v1::Launch {
            attempt: Some(v1::Attempt { job_id, restart: 0 }),
            user: Some(myself()),
            batch: Some(batch),
            job_name: "test".to_owned(),
            environment: vec![v1::KeyValue { key: "SLURM_JOB_ID".to_owned(), value: job_id.to_string() }],
            part: Some(v1::NodePart { cpus: "0".to_owned(), memory_mb: 0, devices: vec![] }),
            ..v1::Launch::default()
        })
    }

    /// Waits until the daemon has ended by itself with success.
    pub(crate) async fn ended(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        let status = loop {
            match daemon.try_wait().unwrap() {
                Some(status) => break status,
                None => tokio::task::yield_now().await,
            }
        };
        assert!(status.success(), "{status}");
    }

    /// Waits until a script has written to a file, and returns the text.
    pub(crate) async fn file(&self, name: &str) -> String {
        loop {
            match fs::read_to_string(self.path(name)) {
                Ok(text) if !text.is_empty() => return text,
                _ => tokio::task::yield_now().await,
            }
        }
    }

    pub(crate) fn spooled(&self, part: &str) -> usize {
        fs::read_dir(self.path("spool").join(part)).unwrap().count()
    }
}

/// Returns the time of the controller that the test plays, in milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap()
}

pub(crate) fn myself() -> v1::User {
    v1::User {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        name: "root".to_owned(),
        group: "root".to_owned(),
    }
}

pub(crate) fn exited(exit_code: u32) -> Report {
    Report::BatchEnded(v1::BatchEnded { exit_code, ..v1::BatchEnded::default() })
}

/// Returns a report without the values that differ from run to run: the usage and the time since the end.
pub(crate) fn frugal(report: Report) -> Report {
    let mut report = ageless(report);
    match &mut report {
        Report::BatchEnded(ended) => ended.usage = None,
        Report::StepEnded(ended) => ended.usage = None,
        Report::LaunchFailed(_) | Report::NodeDone(_) => {}
    }
    report
}

/// Returns a report without the time since the end, which grows until the report is repeated.
pub(crate) fn ageless(mut report: Report) -> Report {
    if let Report::BatchEnded(ended) = &mut report {
        ended.ended_ago_ms = None;
    }
    report
}

pub(crate) fn done() -> Report {
    Report::NodeDone(v1::NodeDone::default())
}
