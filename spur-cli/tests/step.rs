//! Tests of `srun` with nodes that disconnect, refuse or are absent, and of `sbatch` with a controller that
//! disconnects.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../proto/tests/fake/mod.rs"]
mod fake;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use fake::{Answers, serve, somebody};
use spur_cli::commands::{sbatch, srun};
use spur_cli::session::Session;
use spur_core::text::address::HostPort;
use spur_proto::client::Connection;
use spur_proto::v1::step_input::Input;
use spur_proto::v1::step_output::Output;
use spur_proto::v1::steps_server::{Steps, StepsServer};
use spur_proto::v1::{
    AbandonStepRequest, AbandonStepResponse, CreateStepRequest, CreateStepResponse, Error, Job, PeerInput,
    PeerOutput, PingRequest, PingResponse, StepCredential, StepData, StepDone, StepInput, StepNodeLayout,
    StepOutput, StepStarted, SubmitRequest, SubmitResponse, TaskEnded, WatchJobsRequest, WatchJobsResponse,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// Messages of a node on one connection before it disconnects.
type Part = Vec<Output>;

/// A node that answers each connection by one of these parts, and records the first message of each.
struct Node {
    parts: Mutex<Vec<Part>>,
    heard: Arc<Mutex<Vec<Input>>>,
}

#[tonic::async_trait]
impl Steps for Node {
    type RunStream = Pin<Box<dyn Stream<Item = Result<StepOutput, Status>> + Send>>;

    async fn run(&self, request: Request<Streaming<StepInput>>) -> Result<Response<Self::RunStream>, Status> {
        let first = request.into_inner().message().await?.unwrap().input.unwrap();
        self.heard.lock().unwrap().push(first);
        let part = self.parts.lock().unwrap().remove(0);
        let (tell, told) = mpsc::channel(part.len() + 1);
        for output in part {
            tell.send(Ok(StepOutput { output: Some(output) })).await.unwrap();
        }
        Ok(Response::new(Box::pin(ReceiverStream::new(told))))
    }

    type PeerStream = Pin<Box<dyn Stream<Item = Result<PeerOutput, Status>> + Send>>;

    async fn peer(&self, _: Request<Streaming<PeerInput>>) -> Result<Response<Self::PeerStream>, Status> {
        Err(Status::unimplemented("clients do not ask this"))
    }
}

async fn node(parts: Vec<Part>) -> (String, Arc<Mutex<Vec<Input>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let service = StepsServer::new(Node { parts: Mutex::new(parts), heard: heard.clone() });
    let incoming = TcpListenerStream::new(listener);
    tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
    (address, heard)
}

/// A controller that lays out a step with one task per node.
struct Layout {
    nodes: Vec<StepNodeLayout>,
    asked: Arc<Mutex<Vec<CreateStepRequest>>>,
    abandoned: Arc<Mutex<Vec<AbandonStepRequest>>>,
}

impl Answers for Layout {
    fn create_step(&self, request: CreateStepRequest) -> Result<CreateStepResponse, Status> {
        self.asked.lock().unwrap().push(request);
        let credential = spur_proto::auth::unsealed(&StepCredential::default()).into();
        let nodes = self.nodes.clone();
        Ok(CreateStepResponse { step_id: 3, nodes, credential, ..CreateStepResponse::default() })
    }

    fn abandon_step(&self, request: AbandonStepRequest) -> Result<AbandonStepResponse, Status> {
        self.abandoned.lock().unwrap().push(request);
        Ok(AbandonStepResponse {})
    }
}

struct Outcome {
    code: u8,
    out: String,
    complaints: String,
    asked: CreateStepRequest,
    abandoned: Vec<AbandonStepRequest>,
}

async fn run(addresses: Vec<String>, words: &[&str]) -> Outcome {
    let layout = |(index, address): (usize, String)| StepNodeLayout {
        name: format!("n{}", index + 1),
        address,
        first_task: u32::try_from(index).unwrap(),
        tasks: 1,
        ranks: String::new(),
        public_keys: Vec::new(),
    };
    let nodes = addresses.into_iter().enumerate().map(layout).collect();
    let (asked, abandoned) = (Arc::default(), Arc::default());
    let answers = Layout { nodes, asked: Arc::clone(&asked), abandoned: Arc::clone(&abandoned) };
    let connection = Connection::new(&[serve(answers, 0).await], somebody()).unwrap();
    let environment = BTreeMap::from([("SLURM_JOB_ID".to_owned(), "42".to_owned())]);
    let mut session = Session::in_memory("srun", environment, Some(connection));
    let words = ["--input=none"].iter().chain(words).map(ToString::to_string).collect();
    let code = srun::run(&mut session, words).await.unwrap();
    let asked = asked.lock().unwrap().remove(0);
    let abandoned = abandoned.lock().unwrap().clone();
    Outcome { code, out: session.out.take_text(), complaints: session.take_complaints(), asked, abandoned }
}

fn started() -> Output {
    Output::Started(StepStarted { pids: vec![1] })
}

fn data(task: u32, offset: u64, text: &str) -> Output {
    Output::Data(StepData { task, stderr: false, offset, data: text.as_bytes().to_vec().into() })
}

fn ended(task: u32, exit_code: u32, exit_signal: u32) -> Output {
    Output::TaskEnded(TaskEnded { task, exit_code, exit_signal, core_dumped: false })
}

fn failed() -> Output {
    Output::Failed(Error::new("ESLURMD_STEP_NOTRUNNING", "step 42.3 does not run on this node"))
}

const DONE: Output = Output::Done(StepDone {});

#[tokio::test]
async fn every_line_comes_once_with_its_label() {
    let (one, _) =
        node(vec![vec![started(), data(0, 0, "a\nb"), data(0, 3, "c\n"), ended(0, 0, 0), DONE]]).await;
    let (two, _) = node(vec![vec![started(), data(1, 0, "x"), ended(1, 0, 0), DONE]]).await;
    let outcome = run(vec![one, two], &["-l", "-c2", "--exact", "/bin/hostname", "-s"]).await;
    assert_eq!(outcome.code, 0, "{}", outcome.complaints);
    let mut lines: Vec<&str> = outcome.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0: a", "0: bc", "1: x"]);
    assert_eq!((outcome.asked.job_id, outcome.asked.cpus_per_task), (42, Some(2)));
    assert_eq!(outcome.asked.name, "hostname");
    assert_eq!(outcome.abandoned, []);
}

#[tokio::test]
async fn a_broken_connection_goes_on_where_it_was() {
    let parts = vec![
        vec![started(), data(0, 0, "one\ntw")],
        // The node repeats output whose receipt was not confirmed.
        vec![started(), data(0, 4, "two\nthree\n"), ended(0, 5, 0), DONE],
    ];
    let (address, heard) = node(parts).await;
    let outcome = run(vec![address], &["true"]).await;
    assert_eq!((outcome.code, outcome.out.as_str()), (5, "one\ntwo\nthree\n"));
    assert_eq!(outcome.complaints, "srun: error: n1: task 0: Exited with exit code 5\n");
    let heard = heard.lock().unwrap();
    assert!(matches!(&heard[0], Input::Launch(launch) if launch.argv == ["true"]));
    let Input::Attach(attach) = &heard[1] else { panic!("{heard:?}") };
    assert_eq!(attach.from.iter().map(|from| (from.task, from.offset)).collect::<Vec<_>>(), [(0, 6)]);
}

#[tokio::test]
async fn a_node_that_never_heard_the_launch_hears_it_again() {
    let parts = vec![vec![], vec![failed()], vec![started(), ended(0, 0, 0), DONE]];
    let (address, heard) = node(parts).await;
    let outcome = run(vec![address], &["true"]).await;
    assert_eq!((outcome.code, outcome.complaints.as_str()), (0, ""));
    let heard = heard.lock().unwrap();
    assert!(matches!(heard[..], [Input::Launch(_), Input::Attach(_), Input::Launch(_)]), "{heard:?}");
}

#[tokio::test]
async fn a_refusal_ends_the_step_and_is_told_to_the_controller() {
    let (good, _) = node(vec![vec![started(), ended(0, 0, 9), DONE]]).await;
    let (bad, _) = node(vec![vec![failed()]]).await;
    let outcome = run(vec![good, bad], &["true"]).await;
    assert_eq!(outcome.code, 137);
    assert!(
        outcome.complaints.contains("srun: error: Task launch for StepId=42.3 failed on node n2: step 42.3")
    );
    assert!(outcome.complaints.contains("srun: error: n1: task 0: Killed"));
    assert_eq!(outcome.abandoned.len(), 1);
    assert_eq!(outcome.abandoned[0].nodes, ["n2"]);
}

#[tokio::test]
async fn bad_exits_end_the_others_if_that_is_wanted() {
    let (one, _) = node(vec![vec![started(), ended(0, 2, 0), DONE]]).await;
    let outcome = run(vec![one], &["-K", "true"]).await;
    assert_eq!(outcome.code, 2);
    assert!(outcome.complaints.contains("Terminating StepId=42.3"), "{}", outcome.complaints);
}

/// A controller that accepts a job, breaks its first watch, and ends the job in the next.
struct Waiting(Mutex<Vec<Vec<Result<WatchJobsResponse, Status>>>>);

impl Answers for Waiting {
    fn ping(&self, _: Request<PingRequest>) -> Result<PingResponse, Status> {
        Ok(PingResponse::default())
    }

    fn submit(&self, request: Request<SubmitRequest>) -> Result<SubmitResponse, Status> {
        let job = request.into_inner().job.unwrap();
        assert_eq!((job.name.as_str(), job.nodes.as_str()), ("wrap", "2"));
        let batch = job.batch.unwrap();
        assert!(batch.script.starts_with(b"#!/bin/sh\n") && batch.script.ends_with(b"\nfalse\n"));
        let environment = String::from_utf8(batch.environment.to_vec()).unwrap();
        assert!(environment.split('\0').any(|variable| variable == "COLOUR=red"), "{environment}");
        Ok(SubmitResponse { job_id: 42, warnings: vec!["that is much".into()] })
    }

    fn watch_jobs(
        &self,
        request: WatchJobsRequest,
    ) -> Result<Vec<Result<WatchJobsResponse, Status>>, Status> {
        assert_eq!(request.job_ids, [42]);
        Ok(self.0.lock().unwrap().remove(0))
    }
}

fn change(state: &str, exit_code: u32) -> Result<WatchJobsResponse, Status> {
    let job = Job { id: 42, state: state.into(), exit_code, ..Job::default() };
    Ok(WatchJobsResponse { job: Some(job) })
}

async fn submitted(controller: HostPort, words: &[&str]) -> (anyhow::Result<u8>, String, String) {
    let connection = Connection::new(&[controller], somebody()).unwrap();
    let environment = BTreeMap::from([("COLOUR".to_owned(), "red".to_owned())]);
    let mut session = Session::in_memory("sbatch", environment, Some(connection));
    let code = sbatch::run(&mut session, words.iter().map(ToString::to_string).collect()).await;
    (code, session.out.take_text(), session.take_complaints())
}

#[tokio::test]
async fn waiting_for_a_job_outlives_the_connection() {
    let watches =
        vec![vec![change("RUNNING", 0), Err(Status::unavailable("stopping"))], vec![change("FAILED", 7)]];
    let controller = serve(Waiting(Mutex::new(watches)), 0).await;
    let (code, out, complaints) = submitted(controller, &["-N2", "--wait", "--wrap=false"]).await;
    assert_eq!((code.unwrap(), out.as_str()), (7, "Submitted batch job 42\n"));
    assert!(complaints.starts_with(
        "sbatch: warning: that is much\nsbatch: warning: Unable to contact slurm controller (receive failure)"
    ));
}

#[tokio::test]
async fn what_cannot_be_a_job_is_refused_before_it_is_sent() {
    let nobody: HostPort = "127.0.0.1:1".parse().unwrap();
    for (words, part) in [
        (&["--wrap=x", "script"][..], "Script arguments not permitted with --wrap option: `script`"),
        (&["/nonexistent/script"], "Unable to open file /nonexistent/script"),
        (&["/dev/null"], "Batch script is empty!"),
        (&["/proc/self/comm"], "does not look like a batch script"),
        (&["/proc/self/auxv"], "NUL character"),
        (&["/dev/urandom"], "larger than the 4 MiB"),
        (&["-N0", "--wrap=x"], "\"0\" is not a valid node count for --nodes"),
    ] {
        let (code, out, _) = submitted(nobody.clone(), words).await;
        let error = format!("{:#}", code.unwrap_err());
        assert!(error.contains(part) && out.is_empty(), "{words:?}: {error}");
    }
}
