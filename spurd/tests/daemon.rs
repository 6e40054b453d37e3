//! The daemon with real processes, against a controller that the test plays.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use spur_proto::v1;
use spur_proto::v1::agents_server::{Agents, AgentsServer};
use spur_proto::v1::node_message::Message as Up;
use spur_proto::v1::order::Order as Down;
use spur_proto::v1::report::Report;
use spur_proto::v1::step_input::Input;
use spur_proto::v1::step_output::Output;
use spur_proto::v1::steps_client::StepsClient;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// One stream that a node has opened.
struct Link {
    up: Streaming<v1::NodeMessage>,
    down: mpsc::Sender<Result<v1::Order, Status>>,
    epoch: u64,
    hello: v1::Hello,
}

struct Play {
    links: mpsc::Sender<(Streaming<v1::NodeMessage>, mpsc::Sender<Result<v1::Order, Status>>)>,
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
    async fn order(&self, order: Down) {
        self.down.send(Ok(v1::Order { epoch: self.epoch, order: Some(order) })).await.unwrap();
    }

    /// The next report, which is not acknowledged by this.
    async fn report(&mut self) -> v1::Report {
        loop {
            match self.up.message().await.unwrap().unwrap().message.unwrap() {
                Up::Report(report) => return report,
                Up::Heartbeat(_) => {}
                Up::Hello(_) => panic!("a second hello"),
            }
        }
    }

    async fn acknowledged_report(&mut self) -> Report {
        let report = self.report().await;
        self.order(Down::Acknowledge(v1::Acknowledge { report_ids: vec![report.id] })).await;
        report.report.unwrap()
    }

    async fn terminate(&self, kill: bool) {
        let cause = "DUE TO TIME LIMIT".to_owned();
        self.order(Down::Terminate(v1::Terminate { attempt: Some(ATTEMPT), kill, cause })).await;
    }
}

const ATTEMPT: v1::Attempt = v1::Attempt { job_id: 42, restart: 0 };

/// A controller, and a directory for a node.
struct World {
    directory: tempfile::TempDir,
    controller: SocketAddr,
    links: mpsc::Receiver<(Streaming<v1::NodeMessage>, mpsc::Sender<Result<v1::Order, Status>>)>,
    daemon: Option<Child>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.kill();
    }
}

impl World {
    async fn new() -> World {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let controller = listener.local_addr().unwrap();
        let (links, received) = mpsc::channel(8);
        let server = tonic::transport::Server::builder().add_service(AgentsServer::new(Play { links }));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let directory = tempfile::tempdir().unwrap();
        let world = World { directory, controller, links: received, daemon: None };
        fs::write(world.path("spur.toml"), "cluster_name = \"test\"\n[auth]\nmethod = \"none\"\n").unwrap();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn configure(&self, more: &str) {
        let base = fs::read_to_string(self.path("spur.toml")).unwrap();
        fs::write(self.path("spur.toml"), format!("{base}{more}\n")).unwrap();
    }

    fn start(&mut self) {
        let daemon = Command::new(env!("CARGO_BIN_EXE_spurd"))
            .args(["-D", "-N", "n1", "--listen", "127.0.0.1:0", "--cpus", "2", "--features", "ib"])
            .arg("-f")
            .arg(self.path("spur.toml"))
            .arg("--spool")
            .arg(self.path("spool"))
            .args(["--controller", &self.controller.to_string()])
            .stdin(Stdio::null())
            .env("RUST_LOG", "warn")
            .spawn();
        self.daemon = Some(daemon.unwrap());
    }

    fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
    }

    /// The next stream the node opens, welcomed in this reign.
    async fn welcome(&mut self, epoch: u64) -> Link {
        let (mut up, down) = self.links.recv().await.unwrap();
        let Some(Up::Hello(hello)) = up.message().await.unwrap().unwrap().message else {
            panic!("the first message is no hello");
        };
        let link = Link { up, down, epoch, hello };
        let welcome = v1::Welcome { cluster_name: "test".to_owned(), heartbeat_interval: 1 };
        link.order(Down::Welcome(welcome)).await;
        link
    }

    fn launch(&self, job_id: u32, script: &str) -> Down {
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

    /// Waits for what a script writes.
    async fn file(&self, name: &str) -> String {
        loop {
            match fs::read_to_string(self.path(name)) {
                Ok(text) if !text.is_empty() => return text,
                _ => tokio::task::yield_now().await,
            }
        }
    }

    fn spooled(&self, part: &str) -> usize {
        fs::read_dir(self.path("spool").join(part)).unwrap().count()
    }
}

fn myself() -> v1::User {
    v1::User {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        name: "root".to_owned(),
        group: "root".to_owned(),
    }
}

fn exited(exit_code: u32) -> Report {
    Report::BatchEnded(v1::BatchEnded { exit_code, exit_signal: 0, out_of_memory: false, lost: false })
}

fn done() -> Report {
    Report::NodeDone(v1::NodeDone::default())
}

#[tokio::test]
async fn a_node_registers_and_runs_a_job_to_its_end() {
    let mut world = World::new().await;
    world.start();
    let mut link = world.welcome(1).await;
    let shape = link.hello.shape.clone().unwrap();
    assert_eq!((link.hello.node_name.as_str(), shape.cpus, shape.features), ("n1", 2, vec!["ib".to_owned()]));
    assert_eq!(link.hello.attempts, []);
    link.order(world.launch(42, "echo $SLURM_JOB_ID $SLURMD_NODENAME $SPUR_CONF; exit 3")).await;
    assert_eq!(link.acknowledged_report().await, exited(3));
    let config = world.path("spur.toml");
    assert_eq!(world.file("out-42").await, format!("42 n1 {}\n", config.display()));
    link.terminate(false).await;
    assert_eq!(link.acknowledged_report().await, done());
    link.order(Down::Forget(v1::Forget { attempts: vec![ATTEMPT] })).await;
    // The next job's report says that the order before it was carried out.
    link.order(world.launch(43, "exit 0")).await;
    assert_eq!(link.report().await.report, Some(exited(0)));
    for part in ["spawned", "attempts", "jobs"] {
        assert_eq!(world.spooled(part), 1, "{part}: the second job only");
    }
    assert_eq!(world.spooled("ended"), 0);
}

#[tokio::test]
async fn orders_given_twice_run_once_and_reports_are_repeated() {
    let mut world = World::new().await;
    world.start();
    let mut link = world.welcome(1).await;
    link.order(world.launch(42, "echo run >> runs")).await;
    link.order(world.launch(42, "echo run >> runs")).await;
    let first = link.report().await;
    assert_eq!(first.report, Some(exited(0)));
    drop(link);
    let mut link = world.welcome(1).await;
    let held = v1::HeldAttempt { attempt: Some(ATTEMPT), live: true, done: false };
    assert_eq!(link.hello.attempts, [held]);
    link.order(world.launch(42, "echo run >> runs")).await;
    assert_eq!(link.report().await, first);
    assert_eq!(world.file("runs").await, "run\n");
}

#[tokio::test]
async fn jobs_outlive_a_killed_spurd_and_their_real_exit_codes_arrive() {
    let mut world = World::new().await;
    world.start();
    let mut link = world.welcome(1).await;
    link.order(world.launch(42, "echo run >> runs; until [ -e go ]; do sleep 0.01; done; exit 5")).await;
    link.order(world.launch(43, "echo run >> runs43; until [ -e go43 ]; do sleep 0.01; done; exit 6")).await;
    world.file("runs").await;
    world.file("runs43").await;
    world.kill();
    drop(link);
    // One ends while nobody looks, the other afterwards.
    fs::write(world.path("go43"), "").unwrap();
    world.start();
    link = world.welcome(1).await;
    assert_eq!(link.hello.attempts.len(), 2);
    link.order(world.launch(42, "echo run >> runs")).await;
    assert_eq!(link.acknowledged_report().await, exited(6));
    fs::write(world.path("go"), "").unwrap();
    assert_eq!(link.acknowledged_report().await, exited(5));
    assert_eq!(
        (world.file("runs").await, world.file("runs43").await),
        ("run\n".to_owned(), "run\n".to_owned())
    );
}

#[tokio::test]
async fn a_job_is_terminated_with_a_word_to_its_user() {
    let mut world = World::new().await;
    world.start();
    let mut link = world.welcome(1).await;
    link.order(world.launch(42, "trap '' TERM; echo up; while :; do sleep 0.1; done")).await;
    world.file("out-42").await;
    link.terminate(false).await;
    link.terminate(true).await;
    let killed = v1::BatchEnded { exit_code: 0, exit_signal: 9, out_of_memory: false, lost: false };
    assert_eq!(link.acknowledged_report().await, Report::BatchEnded(killed));
    assert_eq!(link.acknowledged_report().await, done());
    let out = world.file("out-42").await;
    let notice = out.lines().nth(1).unwrap();
    assert!(notice.starts_with("spurstepd: error: *** JOB 42 ON n1 CANCELLED AT 2"), "{notice}");
    assert!(notice.ends_with(" DUE TO TIME LIMIT ***"), "{notice}");
}

#[tokio::test]
async fn prolog_and_epilog_surround_the_job_and_a_failure_is_the_nodes() {
    let mut world = World::new().await;
    let program = |name: &str, text: &str| {
        let path = world.path(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        fs::set_permissions(&path, mode).unwrap();
        path.display().to_string()
    };
    let log = world.path("log").display().to_string();
    let prolog = program("prolog", &format!("echo prolog $SLURM_JOB_ID >> {log}; [ $SLURM_JOB_ID != 43 ]"));
    let epilog = program("epilog", &format!("echo epilog $SLURM_JOB_ID >> {log}; echo broken >&2; exit 1"));
    world.configure(&format!("[agent]\nprolog = \"{prolog}\"\nepilog = \"{epilog}\""));
    world.start();
    let mut link = world.welcome(1).await;
    link.order(world.launch(42, &format!("echo job >> {log}"))).await;
    assert_eq!(link.acknowledged_report().await, exited(0));
    link.terminate(false).await;
    let Report::NodeDone(failed) = link.acknowledged_report().await else { panic!("not done") };
    assert!(failed.epilog_error.ends_with("exit status: 1: broken"), "{failed:?}");
    assert_eq!(world.file("log").await, "prolog 42\njob\nepilog 42\n");
    link.order(world.launch(43, "touch ran")).await;
    let Report::LaunchFailed(failed) = link.acknowledged_report().await else { panic!("launched") };
    assert!(failed.node_fault && failed.message.contains("exit status: 1"), "{failed:?}");
    assert!(!world.path("ran").exists());
}

#[tokio::test]
async fn a_deposed_controller_is_left() {
    let mut world = World::new().await;
    world.start();
    let link = world.welcome(7).await;
    drop(link);
    let mut old = world.welcome(6).await;
    assert!(!matches!(old.up.message().await, Ok(Some(_))), "the node leaves at once");
    let mut link = world.welcome(8).await;
    link.order(world.launch(42, "exit 4")).await;
    assert_eq!(link.report().await.report, Some(exited(4)));
}

fn credential() -> v1::StepCredential {
    let me = myself();
    v1::StepCredential {
        job_id: 42,
        step_id: 0,
        uid: me.uid,
        gid: me.gid,
        user: me.name,
        group: me.group,
        expires: i64::MAX,
        cpus_per_task: 1,
        total_tasks: 2,
        nodes: vec![v1::CredentialNode {
            name: "n1".to_owned(),
            first_task: 0,
            tasks: 2,
            cpus: "0-1".to_owned(),
            ..v1::CredentialNode::default()
        }],
        ..v1::StepCredential::default()
    }
}

fn step_launch(world: &World, script: &str) -> v1::StepLaunch {
    v1::StepLaunch {
        credential: prost::Message::encode_to_vec(&credential()).into(),
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        environment: format!("PATH={}\0", std::env::var("PATH").unwrap()).into_bytes().into(),
        work_dir: world.directory.path().display().to_string(),
        umask: 0o022,
        ..v1::StepLaunch::default()
    }
}

/// A client of a step: what it sends, and what it has received.
struct Client {
    input: mpsc::Sender<v1::StepInput>,
    output: Streaming<v1::StepOutput>,
    texts: Vec<String>,
    exits: Vec<u32>,
}

impl Client {
    async fn open(link: &Link, first: Input) -> Client {
        let (input, inputs) = mpsc::channel(64);
        input.send(v1::StepInput { input: Some(first) }).await.unwrap();
        let mut client = StepsClient::connect(format!("http://{}", link.hello.address)).await.unwrap();
        let mut request = Request::new(ReceiverStream::new(inputs));
        let version = spur_proto::refusal::PROTOCOL.parse().unwrap();
        request.metadata_mut().insert(spur_proto::refusal::VERSION_KEY, version);
        let output = client.run(request).await.unwrap().into_inner();
        Client { input, output, texts: vec![String::new(); 2], exits: vec![] }
    }

    async fn send(&self, input: Input) {
        self.input.send(v1::StepInput { input: Some(input) }).await.unwrap();
    }

    /// Takes note of the next message, acknowledges output, and returns it.
    async fn next(&mut self) -> Option<Output> {
        let output = self.output.message().await.unwrap()?.output.unwrap();
        match &output {
            Output::Data(data) if !data.stderr => {
                let text = &mut self.texts[data.task as usize];
                assert_eq!(data.offset, text.len() as u64, "no gap and no double");
                text.push_str(std::str::from_utf8(&data.data).unwrap());
                let offset = text.len() as u64;
                self.send(Input::Taken(v1::StepOffset { task: data.task, stderr: false, offset })).await;
            }
            Output::TaskEnded(ended) => self.exits.push(ended.exit_code),
            _ => {}
        }
        Some(output)
    }

    async fn until_done(&mut self) {
        while !matches!(self.next().await, Some(Output::Done(_)) | None) {}
    }
}

#[tokio::test]
async fn a_client_launches_a_step_and_feeds_it() {
    let mut world = World::new().await;
    world.start();
    let mut link = world.welcome(1).await;
    let script = "read line; echo $SLURM_PROCID: $line; exit $SLURM_PROCID";
    let mut client = Client::open(&link, Input::Launch(step_launch(&world, script))).await;
    client.send(Input::Stdin(v1::StepStdin { data: b"hello\n".to_vec().into(), end: true })).await;
    client.until_done().await;
    client.exits.sort_unstable();
    assert_eq!(
        (client.texts, client.exits),
        (vec!["0: hello\n".to_owned(), "1: hello\n".to_owned()], vec![0, 1])
    );
    let ended = v1::StepNodeEnded { step_id: 0, exit_code: 1, exit_signal: 0 };
    assert_eq!(link.acknowledged_report().await, Report::StepEnded(ended));
    // What ran once is not launched again.
    let mut again = Client::open(&link, Input::Launch(step_launch(&world, script))).await;
    let Some(Output::Failed(error)) = again.next().await else { panic!("launched twice") };
    assert!(error.message.contains("launched on this node before"), "{error:?}");
}

#[tokio::test]
async fn more_input_than_fits_anywhere_comes_out_again() {
    let mut world = World::new().await;
    world.start();
    let link = world.welcome(1).await;
    let mut launch = step_launch(&world, "cat");
    launch.stdin_task = Some(1);
    let mut client = Client::open(&link, Input::Launch(launch)).await;
    let text: String = (0..200_000).map(|number| format!("{number}\n")).collect();
    let (mut sent, mut taken) = (0, 0);
    while !matches!(client.exits.as_slice(), [_, _]) || client.texts[1].len() < text.len() {
        while sent < text.len() && sent - taken < 64 << 10 {
            let part = text[sent..].as_bytes();
            let part = part[..part.len().min(16 << 10)].to_vec();
            sent += part.len();
            client.send(Input::Stdin(v1::StepStdin { data: part.into(), end: sent == text.len() })).await;
        }
        if let Some(Output::StdinTaken(offset)) = client.next().await {
            taken = usize::try_from(offset).unwrap();
        }
    }
    assert!(client.texts[1] == text, "every byte once and in order");
}

#[tokio::test]
async fn a_client_and_its_step_survive_a_killed_spurd() {
    let mut world = World::new().await;
    world.start();
    let link = world.welcome(1).await;
    let script = "echo before; until [ -e go ]; do sleep 0.01; done; echo after";
    let mut client = Client::open(&link, Input::Launch(step_launch(&world, script))).await;
    while client.texts.iter().any(String::is_empty) {
        client.next().await.unwrap();
    }
    world.kill();
    drop(link);
    world.start();
    let link = world.welcome(1).await;
    let from = (0..2).map(|task| v1::StepOffset { task, stderr: false, offset: 7 }).collect();
    let credential = prost::Message::encode_to_vec(&credential()).into();
    let texts = client.texts;
    let mut client = Client::open(&link, Input::Attach(v1::StepAttach { credential, from })).await;
    client.texts = texts;
    fs::write(world.path("go"), "").unwrap();
    client.until_done().await;
    assert_eq!(client.texts, ["before\nafter\n", "before\nafter\n"]);
}

#[tokio::test]
async fn nothing_starts_for_a_job_that_is_ending_or_with_an_old_credential() {
    let mut world = World::new().await;
    world.start();
    let mut link = world.welcome(1).await;
    let mut launch = step_launch(&world, "touch ran");
    let old = v1::StepCredential { expires: 1, ..credential() };
    launch.credential = prost::Message::encode_to_vec(&old).into();
    let mut client = Client::open(&link, Input::Launch(launch)).await;
    let Some(Output::Failed(error)) = client.next().await else { panic!("launched") };
    assert_eq!(error.code, "ESLURMD_CREDENTIAL_EXPIRED");
    link.terminate(true).await;
    assert_eq!(link.acknowledged_report().await, done());
    let mut client = Client::open(&link, Input::Launch(step_launch(&world, "touch ran"))).await;
    let Some(Output::Failed(error)) = client.next().await else { panic!("launched") };
    assert!(error.message.contains("is ending"), "{error:?}");
    assert!(!world.path("ran").exists());
}

/// The aim is 500 a second with release builds; `cargo test -- --nocapture` prints what it is here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_short_jobs_leaves_one_report_each() {
    let mut world = World::new().await;
    world.start();
    let mut link = world.welcome(1).await;
    let jobs = 200;
    let begun = std::time::Instant::now();
    for job in 1..=jobs {
        link.order(world.launch(job, "exec true")).await;
    }
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < jobs as usize {
        let report = link.report().await;
        assert_eq!(report.report, Some(exited(0)));
        assert!(seen.insert(report.attempt.unwrap().job_id), "reported twice");
    }
    println!("{jobs} jobs in {:?}", begun.elapsed());
}
