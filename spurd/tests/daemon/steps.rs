//! Steps that a client launches and talks to.

use std::fs;

use spur_proto::auth;
use spur_proto::channel::Dialer;
use spur_proto::keys::{ClusterKey, ClusterKeys, Role};
use spur_proto::v1;
use spur_proto::v1::order::Order as Down;
use spur_proto::v1::report::Report;
use spur_proto::v1::step_input::Input;
use spur_proto::v1::step_output::Output;
use spur_proto::v1::steps_client::StepsClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Streaming};

use crate::world::{ATTEMPT, HISTORY, Link, World, done, myself, now_ms};

pub(crate) fn credential() -> v1::StepCredential {
    let me = myself();
    v1::StepCredential {
        job_id: 42,
        step_id: 0,
        uid: me.uid,
        gid: me.gid,
        user: me.name,
        group: me.group,
        history: HISTORY.to_vec().into(),
        issued_ms: now_ms(),
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

pub(crate) fn step_launch(world: &World, script: &str) -> v1::StepLaunch {
    v1::StepLaunch {
        credential: world.keys.seal(&credential()).into(),
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        environment: format!("PATH={}\0", std::env::var("PATH").unwrap()).into_bytes().into(),
        work_dir: world.directory.path().display().to_string(),
        umask: 0o022,
        ..v1::StepLaunch::default()
    }
}

/// A client of a step: its input, and the output that it has received.
pub(crate) struct Client {
    input: mpsc::Sender<v1::StepInput>,
    output: Streaming<v1::StepOutput>,
    texts: Vec<String>,
    exits: Vec<u32>,
}

impl Client {
    pub(crate) async fn open(world: &World, link: &Link, first: Input) -> Client {
        let credential = match &first {
            Input::Launch(launch) => launch.credential.clone(),
            Input::Attach(attach) | Input::Watch(attach) => attach.credential.clone(),
            other => panic!("a client does not begin with {other:?}"),
        };
        Client::open_with(world, link, &credential, first).await
    }

    /// Opens a call with the pass of `credential`, which may differ from the credential in the first message.
    async fn open_with(world: &World, link: &Link, credential: &[u8], first: Input) -> Client {
        let pass = format!("{}{}", auth::STEP_SCHEME, auth::pass(credential).unwrap());
        let (input, inputs) = mpsc::channel(64);
        input.send(v1::StepInput { input: Some(first) }).await.unwrap();
        let dialer = Dialer::expecting(&world.keys.public(&Role::Node("n1".into())), None);
        let mut client =
            StepsClient::new(dialer.connect(&link.hello.address.parse().unwrap()).await.unwrap());
        let mut request = Request::new(ReceiverStream::new(inputs));
        let version = spur_proto::refusal::PROTOCOL.parse().unwrap();
        request.metadata_mut().insert(spur_proto::refusal::VERSION_KEY, version);
        request.metadata_mut().insert("authorization", pass.parse().unwrap());
        let output = client.run(request).await.unwrap().into_inner();
        Client { input, output, texts: vec![String::new(); 2], exits: vec![] }
    }

    async fn send(&self, input: Input) {
        self.input.send(v1::StepInput { input: Some(input) }).await.unwrap();
    }

    /// Records the next message, acknowledges output, and returns the message. `None` at the end of the
    /// stream.
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

    pub(crate) async fn until_done(&mut self) {
        while !matches!(self.next().await.expect("the end is announced"), Output::Done(_)) {}
    }
}

#[tokio::test]
async fn nobody_is_heard_without_a_credential() {
    let mut world = World::new().await;
    world.start();
    let link = world.welcome(1).await;
    let dialer = Dialer::expecting(&world.keys.public(&Role::Node("n1".into())), None);
    let mut client = StepsClient::new(dialer.connect(&link.hello.address.parse().unwrap()).await.unwrap());
    let foreign = ClusterKeys::of(ClusterKey::generate().unwrap(), "test").seal(&credential());
    for pass in [None, Some("nonsense".to_owned()), Some(auth::pass(&foreign).unwrap())] {
        let mut request = Request::new(tokio_stream::pending());
        let version = spur_proto::refusal::PROTOCOL.parse().unwrap();
        request.metadata_mut().insert(spur_proto::refusal::VERSION_KEY, version);
        if let Some(pass) = &pass {
            let shown = format!("{}{pass}", auth::STEP_SCHEME);
            request.metadata_mut().insert("authorization", shown.parse().unwrap());
        }
        // The answer comes before any message is sent.
        let refused = client.run(request).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unauthenticated, "{pass:?}: {refused}");
    }
    // A valid pass is valid only for the credential that it was made of.
    let other = world.keys.seal(&v1::StepCredential { job_id: 43, ..credential() });
    let launch = v1::StepLaunch { credential: other.into(), ..step_launch(&world, "true") };
    let mut client =
        Client::open_with(&world, &link, &world.keys.seal(&credential()), Input::Launch(launch)).await;
    let Some(Output::Failed(error)) = client.next().await else { panic!("it was launched") };
    assert_eq!(error.code, "ESLURMD_INVALID_JOB_CREDENTIAL");
}

#[tokio::test]
async fn a_client_launches_a_step_and_feeds_it() {
    let mut world = World::new().await;
    world.start();
    let mut link = world.welcome(1).await;
    let script = "read line; echo $SLURM_PROCID: $line; exit $SLURM_PROCID";
    let mut client = Client::open(&world, &link, Input::Launch(step_launch(&world, script))).await;
    client.send(Input::Stdin(v1::StepStdin { data: b"hello\n".to_vec().into(), end: true })).await;
    client.until_done().await;
    client.exits.sort_unstable();
    assert_eq!(
        (client.texts, client.exits),
        (vec!["0: hello\n".to_owned(), "1: hello\n".to_owned()], vec![0, 1])
    );
    let ended = v1::StepNodeEnded { step_id: 0, exit_code: 1, ..v1::StepNodeEnded::default() };
    assert_eq!(link.acknowledged_report().await, Report::StepEnded(ended));
    // A client that lost the connection at the end, and returns after the controller's acknowledgement,
    // learns the end.
    let credential = world.keys.seal(&credential()).into();
    let mut back =
        Client::open(&world, &link, Input::Attach(v1::StepAttach { credential, from: vec![] })).await;
    back.until_done().await;
    back.exits.sort_unstable();
    assert_eq!(back.exits, [0, 1]);
    // A step that ran is not launched again.
    let mut again = Client::open(&world, &link, Input::Launch(step_launch(&world, script))).await;
    let Some(Output::Failed(error)) = again.next().await else { panic!("launched twice") };
    assert!(error.message.contains("launched on this node before"), "{error:?}");
}

/// Input for a step that is just ending is dropped; the client still learns the end.
#[tokio::test]
async fn input_that_comes_too_late_costs_no_client_its_step() {
    let mut world = World::new().await;
    world.start();
    let link = world.welcome(1).await;
    for step_id in 0..40 {
        let credential = world.keys.seal(&v1::StepCredential { step_id, ..credential() }).into();
        let none = || "/dev/null".to_owned();
        let files = v1::StepFiles { stdout: none(), stderr: none(), ..v1::StepFiles::default() };
        let launch = v1::StepLaunch { credential, files: Some(files), ..step_launch(&world, ":") };
        let mut client = Client::open(&world, &link, Input::Launch(launch)).await;
        let sender = client.input.clone();
        let feeding = tokio::spawn(async move {
            let word = || v1::StepStdin { data: b"word\n".to_vec().into(), end: false };
            while sender.send(v1::StepInput { input: Some(Input::Stdin(word())) }).await.is_ok() {}
        });
        client.until_done().await;
        assert_eq!(client.exits, [0, 0], "step {step_id}");
        drop(client);
        feeding.await.unwrap();
    }
}

#[tokio::test]
async fn more_input_than_fits_anywhere_comes_out_again() {
    let mut world = World::new().await;
    world.start();
    let link = world.welcome(1).await;
    let mut launch = step_launch(&world, "cat");
    launch.stdin_task = Some(1);
    let mut client = Client::open(&world, &link, Input::Launch(launch)).await;
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
    let mut client = Client::open(&world, &link, Input::Launch(step_launch(&world, script))).await;
    while client.texts.iter().any(String::is_empty) {
        client.next().await.unwrap();
    }
    world.kill();
    drop(link);
    world.start();
    let link = world.welcome(1).await;
    let from = (0..2).map(|task| v1::StepOffset { task, stderr: false, offset: 7 }).collect();
    let credential = world.keys.seal(&credential()).into();
    let texts = client.texts;
    let mut client = Client::open(&world, &link, Input::Attach(v1::StepAttach { credential, from })).await;
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
    let old = v1::StepCredential { issued_ms: now_ms() - 61_000, ..credential() };
    launch.credential = world.keys.seal(&old).into();
    let mut client = Client::open(&world, &link, Input::Launch(launch)).await;
    let Some(Output::Failed(error)) = client.next().await else { panic!("launched") };
    assert_eq!(error.code, "ESLURMD_CREDENTIAL_EXPIRED");
    link.terminate(true).await;
    assert_eq!(link.acknowledged_report().await, done());
    let mut client = Client::open(&world, &link, Input::Launch(step_launch(&world, "touch ran"))).await;
    let Some(Output::Failed(error)) = client.next().await else { panic!("launched") };
    assert!(error.message.contains("is ending"), "{error:?}");
    assert!(!world.path("ran").exists());
}

/// Returns code and message of the refusal of a launch with this credential.
async fn refusal(link: &Link, world: &World, credential: prost::bytes::Bytes) -> (String, String) {
    let launch = v1::StepLaunch { credential, ..step_launch(world, "touch ran") };
    let mut client = Client::open(world, link, Input::Launch(launch)).await;
    let Some(Output::Failed(error)) = client.next().await else { panic!("launched") };
    assert!(!world.path("ran").exists());
    (error.code, error.message)
}

/// Waits until the job is over and forgotten.
async fn forgotten(link: &mut Link, world: &World) {
    link.order(Down::Forget(v1::Forget { attempts: vec![ATTEMPT] })).await;
    while world.spooled("ended") + world.spooled("spawned") > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_credential_is_good_for_its_step_alone() {
    let mut world = World::new().await;
    world.start();
    let mut link = world.welcome(1).await;
    let used = credential();
    let launch = v1::StepLaunch { credential: world.keys.seal(&used).into(), ..step_launch(&world, "true") };
    let mut client = Client::open(&world, &link, Input::Launch(launch)).await;
    client.until_done().await;
    assert!(matches!(link.acknowledged_report().await, Report::StepEnded(_)));
    // A second launch, after the step's end.
    let (code, message) = refusal(&link, &world, world.keys.seal(&used).into()).await;
    assert!(code == "ESLURMD_SETUP_ENVIRONMENT_ERROR" && message.contains("before"), "{code} {message}");
    // Credentials for another node, of another history, and of no history.
    let elsewhere = v1::StepCredential {
        nodes: vec![v1::CredentialNode { name: "n2".to_owned(), ..used.nodes[0].clone() }],
        ..used.clone()
    };
    let (_, message) = refusal(&link, &world, world.keys.seal(&elsewhere).into()).await;
    assert!(message.contains("n1"), "{message}");
    let foreign = v1::StepCredential { history: vec![9; 16].into(), step_id: 1, ..used.clone() };
    let nameless = v1::StepCredential { history: vec![].into(), step_id: 1, ..used.clone() };
    for other in [&foreign, &nameless] {
        let (code, message) = refusal(&link, &world, world.keys.seal(other).into()).await;
        assert!(code == "ESLURMD_INVALID_JOB_CREDENTIAL" && message.contains("history"), "{message}");
    }
    // After the job was cancelled and the node has forgotten it, also for a step that never existed.
    link.terminate(true).await;
    assert_eq!(link.acknowledged_report().await, done());
    forgotten(&mut link, &world).await;
    for step_id in [0, 1] {
        let (code, message) =
            refusal(&link, &world, world.keys.seal(&v1::StepCredential { step_id, ..used.clone() }).into())
                .await;
        assert!(code == "ESLURMD_CREDENTIAL_EXPIRED" && message.contains("has ended"), "{message}");
    }
    // A restarted daemon knows nothing of earlier steps.
    world.kill();
    world.start();
    let link = world.welcome(1).await;
    let (code, message) = refusal(&link, &world, world.keys.seal(&used).into()).await;
    assert!(code == "ESLURMD_CREDENTIAL_EXPIRED" && message.contains("started"), "{message}");
}

#[tokio::test]
async fn a_credential_is_good_for_its_user_and_signed() {
    let mut world = World::new().await;
    world.start();
    let link = world.welcome(1).await;
    let good = world.keys.seal(&credential());
    let signature = good[good.len() - 33..].to_vec();
    let other = v1::StepCredential { uid: 0, user: "root".to_owned(), step_id: 1, ..credential() };
    let forged = [prost::Message::encode_to_vec(&other), signature].concat();
    let foreign = ClusterKeys::of(ClusterKey::generate().unwrap(), "test").seal(&credential());
    for bad in [forged, auth::unsealed(&credential()), foreign] {
        let launch = v1::StepLaunch { credential: bad.into(), ..step_launch(&world, "touch ran") };
        // The call has the pass of a valid credential; with its own pass the message would not even be read.
        let mut client = Client::open_with(&world, &link, &good, Input::Launch(launch)).await;
        let Some(Output::Failed(error)) = client.next().await else { panic!("launched") };
        assert_eq!(error.code, "ESLURMD_INVALID_JOB_CREDENTIAL", "{}", error.message);
        assert!(!world.path("ran").exists());
    }
    let launch = v1::StepLaunch { credential: good.into(), ..step_launch(&world, "true") };
    Client::open(&world, &link, Input::Launch(launch)).await.until_done().await;
}

/// Output for a client that does not read waits in the daemon's memory.
#[tokio::test]
async fn a_user_looks_on_at_few_steps_at_a_time() {
    const MOST: usize = 64;
    let mut world = World::new().await;
    world.start();
    let link = world.welcome(1).await;
    let mut own = Client::open(&world, &link, Input::Launch(step_launch(&world, "cat"))).await;
    while !matches!(own.next().await, Some(Output::Started(_))) {}
    let credential = world.keys.seal(&credential());
    let watch = async || {
        let attach = v1::StepAttach { credential: credential.clone().into(), from: vec![] };
        let mut client = Client::open(&world, &link, Input::Watch(attach)).await;
        match client.next().await {
            Some(Output::Started(_)) => Ok(client),
            Some(Output::Failed(error)) => Err(error.message),
            other => panic!("{other:?}"),
        }
    };
    let mut watching = Vec::new();
    let refused = loop {
        match watch().await {
            Ok(client) => watching.push(client),
            Err(refused) => break refused,
        }
        assert!(watching.len() <= MOST, "nothing bounds how many there are");
    };
    assert_eq!(watching.len(), MOST);
    let words = format!("user {} has {MOST} streams that look on at steps open on this node", myself().uid);
    assert!(refused.contains(&words), "{refused}");
    // Once the daemon sees that one watcher has left, another may watch.
    drop(watching.pop());
    while watch().await.is_err() {}
    own.send(Input::Stdin(v1::StepStdin { data: Default::default(), end: true })).await;
    own.until_done().await;
}

#[tokio::test]
async fn the_credential_of_a_batch_script_launches_nothing() {
    let mut world = World::new().await;
    world.start();
    let link = world.welcome(1).await;
    let of_script = v1::StepCredential { step_id: spur_core::id::StepId::BATCH.0, ..credential() };
    let launch =
        v1::StepLaunch { credential: world.keys.seal(&of_script).into(), ..step_launch(&world, "true") };
    let mut client = Client::open(&world, &link, Input::Launch(launch)).await;
    let Some(Output::Failed(error)) = client.next().await else { panic!("it was launched") };
    assert_eq!(error.message, "the credential of a batch script launches nothing");
}
