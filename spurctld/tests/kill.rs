//! A controller killed at work loses nothing that it acknowledged. A request repeated because its answer was
//! lost is served once.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use spur_proto::auth;
use spur_proto::client::Introduction;
use spur_proto::v1;
use spur_proto::v1::controller_client::ControllerClient;
use spur_proto::v1::submit_stream_response::Result as Outcome;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

const ROUNDS: u32 = 2;
/// Number of submissions in one round, and the number answered before the controller is killed.
const SUBMISSIONS: u32 = 400;
const ANSWERED: usize = 150;

/// A controller in a separate process.
struct Controller {
    process: Child,
    address: String,
}

impl Controller {
    fn start(config: &Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_spurctld"))
            .args(["-D", "-f"])
            .arg(config)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stderr.take().unwrap()).lines();
        let ready = said.by_ref().map(Result::unwrap).find_map(|line| {
            let (_, rest) = line.split_once("ready address=")?;
            rest.split_whitespace().next().map(str::to_owned)
        });
        // The pipe is read on, so that the controller never blocks on a full one.
        std::thread::spawn(move || said.for_each(drop));
        Self { process, address: ready.expect("the controller says where it listens") }
    }

    async fn client(&self) -> ControllerClient<InterceptedService<Channel, Introduction>> {
        let channel =
            Channel::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap();
        let claims = v1::TokenClaims { uid: 41_000, expires: i64::MAX, ..v1::TokenClaims::default() };
        ControllerClient::with_interceptor(channel, Introduction::new(&auth::unsigned(&claims)).unwrap())
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn configuration() -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("controller-killed");
    match std::fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
        _ => std::fs::create_dir_all(&directory).unwrap(),
    }
    let state = directory.display();
    let text = format!(
        r#"
cluster_name = "test"
[controller]
listen_addr = "127.0.0.1:0"
state = "{state}"
[auth]
method = "none"
socket = "{state}/auth.sock"
[[nodes]]
names = "n1"
cpus = 1
[[partitions]]
name = "main"
nodes = "ALL"
default = true
"#
    );
    let path = directory.join("spur.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// Returns submission `number` of a round.
fn submission(round: u32, number: u32, retry: bool) -> v1::SubmitRequest {
    let name = format!("r{round}-{number}");
    let mut id = [0; 16];
    id[..name.len()].copy_from_slice(name.as_bytes());
    let batch = v1::Batch {
        script: format!("#!/bin/sh\n: {name}\n").into(),
        work_dir: "/tmp".to_owned(),
        ..v1::Batch::default()
    };
    let job = v1::JobSpec { name, batch: Some(batch), ..v1::JobSpec::default() };
    v1::SubmitRequest { job: Some(job), request_id: id.to_vec().into(), retry }
}

/// Submits a round and kills the controller during it. Returns the acknowledged job ids by submission number.
async fn interrupted(controller: Controller, round: u32) -> BTreeMap<u32, u32> {
    let mut client = controller.client().await;
    let requests = (0..SUBMISSIONS).map(move |number| submission(round, number, false));
    let mut answers = client.submit_stream(tokio_stream::iter(requests)).await.unwrap().into_inner();
    let mut acknowledged = BTreeMap::new();
    while acknowledged.len() < ANSWERED {
        let answer = answers.message().await.unwrap().expect("there are more answers to come");
        match answer.result.unwrap() {
            Outcome::Submitted(done) => acknowledged.insert(acknowledged.len() as u32, done.job_id),
            Outcome::Refused(error) => panic!("{}", error.message),
        };
    }
    controller.kill();
    // Answers that were already sent are acknowledgements, too.
    while let Ok(Some(answer)) = answers.message().await {
        if let Some(Outcome::Submitted(done)) = answer.result {
            acknowledged.insert(acknowledged.len() as u32, done.job_id);
        }
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_there_and_what_is_repeated_is_done_once() {
    let config = configuration();
    let mut all = BTreeSet::new();
    for round in 0..ROUNDS {
        let acknowledged = interrupted(Controller::start(&config), round).await;

        let controller = Controller::start(&config);
        let mut client = controller.client().await;
        for number in 0..SUBMISSIONS {
            let answer = client.submit(submission(round, number, true)).await.unwrap().into_inner();
            if let Some(known) = acknowledged.get(&number) {
                assert_eq!(answer.job_id, *known, "submission {number} has the job it was told of");
            }
            assert!(all.insert(answer.job_id), "job {} stands for two submissions", answer.job_id);
        }
        let mut jobs = BTreeMap::new();
        let mut pages = client.list_jobs(v1::ListJobsRequest::default()).await.unwrap().into_inner();
        while let Some(page) = pages.message().await.unwrap() {
            jobs.extend(page.jobs.into_iter().map(|job| (job.id, job.name)));
        }
        assert_eq!(
            jobs.keys().copied().collect::<BTreeSet<_>>(),
            all,
            "no job is lost and none was made twice"
        );
        let some = *acknowledged.values().next_back().unwrap();
        let script = client.get_script(v1::GetScriptRequest { job_id: some.to_string() }).await.unwrap();
        assert_eq!(script.into_inner().script, format!("#!/bin/sh\n: {}\n", jobs[&some]));
        controller.kill();
    }
}
