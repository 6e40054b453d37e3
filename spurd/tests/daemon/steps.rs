//! Steps that a client launches and talks to.

use std::fs;

use spur_proto::v1;
use spur_proto::v1::report::Report;
use spur_proto::v1::step_input::Input;
use spur_proto::v1::step_output::Output;
use spur_proto::v1::steps_client::StepsClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Streaming};

use crate::world::{Link, World, done, myself};

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
        while !matches!(self.next().await.expect("the end is announced"), Output::Done(_)) {}
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
            let part = &text.as_bytes()[sent..];
            let part = part[..part.len().min(16 << 10)].to_vec();
            sent += part.len();
            client.send(Input::Stdin(v1::StepStdin { data: part.into(), end: sent == text.len() })).await;
        }
        let output = client.next().await.expect("the stream has not ended");
        if let Output::StdinTaken(offset) = output {
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
