//! One node's part of a step: launches it, observes it, and reconnects after a broken connection.
//!
//! A launch is requested once. After a broken connection, the command attaches to the step at the last
//! position of its output. The launch is repeated only if the node reports that it does not know the step. A
//! node that cannot be reached for too long is given up, even if it may still run the step
//! ([`patience`](super::patience) decides when).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use spur_core::text::address::HostPort;
use spur_proto::auth;
use spur_proto::channel::{DialError, Dialer, MAX_MESSAGE};
use spur_proto::client;
use spur_proto::keys::PublicKey;
use spur_proto::refusal;
use spur_proto::v1::step_input::Input;
use spur_proto::v1::step_output::Output;
use spur_proto::v1::steps_client::StepsClient;
use spur_proto::v1::{StepAttach, StepInput, StepLaunch, StepNodeLayout, StepOffset, StepOutput, TaskEnded};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

use super::patience::{Failure, Patience};
use super::stdin::Stdin;

/// Time after which another credential is requested if the node refuses the last one as expired.
const RENEWAL: Duration = Duration::from_secs(10);
/// Code of a credential that no longer permits a launch.
const EXPIRED: &str = "ESLURMD_CREDENTIAL_EXPIRED";
/// Code of a step that the node does not have.
const UNKNOWN: &str = "ESLURMD_STEP_NOTRUNNING";
/// Number of bytes of output after which the node is informed that it may discard them.
const TAKEN_BYTES: u64 = 32 << 10;
/// Capacity of the queue of messages to a node.
const QUEUE: usize = 8;

/// Event of a node.
#[derive(Debug)]
pub(super) enum Event {
    /// All tasks of the node run.
    Started,
    /// Output of a task.
    Output { task: u32, stderr: bool, data: Bytes },
    /// End of a task.
    Ended(TaskEnded),
    /// Request to end the step on all nodes, with the cause.
    Aborted(String),
    /// The step is being ended early: by a cancellation, or by its own time limit.
    Cancelled,
    /// End of the node's part; no event follows.
    Done,
    /// The node was given up; `launched` is true if it may have launched the step.
    Lost { why: String, launched: bool },
    /// The credential is no longer valid; the node waits for a new one.
    Expired { renewed: oneshot::Sender<Bytes> },
    /// No daemon answers at the node's address; the node's part waits for what the controller knows.
    Away { found: oneshot::Sender<Whereabouts> },
}

/// The facts that the controller has of a node that does not answer.
#[derive(Debug)]
pub(super) struct Whereabouts {
    /// The node with its present address; `None` if the controller names none.
    pub node: Option<StepNodeLayout>,
    /// True if the step has ended. Its end may still be read from the node.
    pub is_over: bool,
}

/// Launch request, equal for all nodes.
pub(super) struct Launch {
    pub credential: Bytes,
    pub launch: StepLaunch,
}

/// Connection to one node.
pub(super) struct Node {
    pub layout: StepNodeLayout,
    /// Queue of the standard input; `None` marks its end.
    pub stdin: mpsc::Sender<Option<Bytes>>,
    /// Queue of messages that are sent before input.
    pub orders: mpsc::UnboundedSender<Input>,
}

/// End of a connection.
enum End {
    Done,
    /// The node refused the request.
    Refused(String),
    /// The node does not have the step.
    Unknown(String),
    /// The node requires a newer credential.
    Expired(String),
    /// No daemon answers at the address.
    Away(Failure, String),
    Broken(String),
}

/// Observer of one node's part of the step.
struct Follower {
    index: usize,
    layout: StepNodeLayout,
    plan: Arc<Launch>,
    credential: Bytes,
    /// Time of the last request for a newer credential.
    renewed: Option<Instant>,
    events: mpsc::Sender<(usize, Event)>,
    source: mpsc::Receiver<Option<Bytes>>,
    stdin: Stdin,
    orders: mpsc::UnboundedReceiver<Input>,
    /// Message that waits for capacity in the queue; it precedes input.
    urgent: Option<Input>,
    started: bool,
    /// End of the received output by task and stream (true for the standard error), and the part of it that
    /// the node knows of.
    taken: BTreeMap<(u32, bool), (u64, u64)>,
    /// Tasks whose ends were reported.
    ended: Vec<u32>,
    /// Time at which the last connection was opened.
    opened: Instant,
    /// True if a message has arrived over that connection.
    heard: bool,
}

/// Starts the observer of a node's part of the step.
pub(super) fn follow(
    index: usize,
    layout: StepNodeLayout,
    plan: Arc<Launch>,
    events: mpsc::Sender<(usize, Event)>,
) -> Node {
    let (stdin, stdin_end) = mpsc::channel(QUEUE);
    let (orders, orders_end) = mpsc::unbounded_channel();
    let follower = Follower {
        index,
        layout: layout.clone(),
        credential: plan.credential.clone(),
        renewed: None,
        plan,
        events,
        source: stdin_end,
        stdin: Stdin::default(),
        orders: orders_end,
        urgent: None,
        started: false,
        taken: BTreeMap::new(),
        ended: Vec::new(),
        opened: Instant::now(),
        heard: false,
    };
    tokio::spawn(follower.run());
    Node { layout, stdin, orders }
}

impl Follower {
    async fn run(mut self) {
        let last = self.follow_through().await;
        // The receiver is gone when the command ends.
        let _ = self.events.send((self.index, last)).await;
    }

    async fn follow_through(&mut self) -> Event {
        let mut launched = false;
        let mut patience = Patience::new(Instant::now());
        let mut attach = false;
        loop {
            let first = if attach { self.attach() } else { self.launch() };
            let (mut failure, why) = match self.connection(first, &mut launched).await {
                End::Done => return Event::Done,
                End::Unknown(_) if attach && !self.started => {
                    attach = false;
                    continue;
                }
                End::Expired(why) => {
                    if !self.renew().await {
                        return Event::Lost { why, launched: self.started };
                    }
                    continue;
                }
                End::Refused(why) | End::Unknown(why) => return Event::Lost { why, launched: self.started },
                End::Away(failure, why) => (failure, why),
                End::Broken(why) => (Failure::of_connection(self.opened, self.heard, Instant::now()), why),
            };
            // The end of an ended step is not waited for as long as a running step.
            if failure != Failure::Broken && self.look_for_node().await {
                failure = Failure::Absent;
            }
            match patience.after(failure, launched, Instant::now()) {
                Some(pause) => sleep(pause).await,
                None => return Event::Lost { why, launched },
            }
            attach = launched;
        }
    }

    /// Requests a newer credential, since the node's daemon may have started after this one was issued.
    /// Returns false without a newer one, or if one that was just issued is refused.
    async fn renew(&mut self) -> bool {
        if self.renewed.is_some_and(|asked| asked.elapsed() < RENEWAL) {
            return false;
        }
        self.renewed = Some(Instant::now());
        let (renewed, newer) = oneshot::channel();
        self.tell(Event::Expired { renewed }).await;
        match newer.await {
            Ok(newer) => self.credential = newer,
            Err(_) => return false,
        }
        true
    }

    /// Requests the node's present address, since its daemon may have restarted on another port. Returns true
    /// if the step has ended.
    async fn look_for_node(&mut self) -> bool {
        let (found, whereabouts) = oneshot::channel();
        self.tell(Event::Away { found }).await;
        // The controller may know the address later.
        let Ok(Whereabouts { node, is_over }) = whereabouts.await else { return false };
        if let Some(StepNodeLayout { address, public_keys, .. }) = node {
            (self.layout.address, self.layout.public_keys) = (address, public_keys);
        }
        is_over
    }

    fn launch(&self) -> Input {
        let credential = self.credential.clone();
        Input::Launch(StepLaunch { credential, ..self.plan.launch.clone() })
    }

    fn attach(&self) -> Input {
        let from =
            self.taken.iter().map(|(&(task, stderr), &(offset, _))| StepOffset { task, stderr, offset });
        Input::Attach(StepAttach { credential: self.credential.clone(), from: from.collect() })
    }

    /// Runs one connection from its first message to its end.
    async fn connection(&mut self, first: Input, launched: &mut bool) -> End {
        let (inputs, outgoing) = mpsc::channel(QUEUE);
        let channel = match dial(&self.layout).await {
            Ok(channel) => channel,
            Err(end) => return end,
        };
        (*launched, self.opened, self.heard) = (true, Instant::now(), false);
        self.stdin.connected(matches!(first, Input::Attach(_)));
        if inputs.send(StepInput { input: Some(first) }).await.is_err() {
            return End::Broken("the connection was closed".to_owned());
        }
        let request = match request(&self.credential, outgoing) {
            Ok(request) => request,
            Err(end) => return end,
        };
        match client(channel).run(request).await {
            Ok(answer) => self.exchange(inputs, answer.into_inner()).await,
            Err(status) => ended_by(&status),
        }
    }

    /// Exchanges messages in both directions until the connection ends.
    async fn exchange(&mut self, inputs: mpsc::Sender<StepInput>, mut outputs: Streaming<StepOutput>) -> End {
        loop {
            tokio::select! {
                output = outputs.message() => match output {
                    Ok(Some(StepOutput { output: Some(output) })) => {
                        if let Some(end) = self.take(output, &inputs).await {
                            return end;
                        }
                    }
                    Ok(Some(StepOutput { output: None })) => {}
                    Ok(None) => return End::Broken("the node closed the connection".to_owned()),
                    Err(status) => return ended_by(&status),
                },
                Some(order) = self.orders.recv(), if self.urgent.is_none() => self.urgent = Some(order),
                Some(data) = self.source.recv(), if self.stdin.has_room() => self.stdin.push(data),
                Ok(permit) = inputs.reserve(), if self.urgent.is_some() || self.stdin.is_ready() => {
                    let next = self.urgent.take().or_else(|| self.stdin.next().map(Input::Stdin));
                    permit.send(StepInput { input: next });
                }
            }
        }
    }

    async fn take(&mut self, output: Output, inputs: &mpsc::Sender<StepInput>) -> Option<End> {
        self.heard = true;
        match output {
            Output::Started(_) => {
                if !std::mem::replace(&mut self.started, true) {
                    self.tell(Event::Started).await;
                }
            }
            Output::Data(data) => {
                let known = self.taken.entry((data.task, data.stderr)).or_default();
                let end = data.offset + data.data.len() as u64;
                if end <= known.0 {
                    return None;
                }
                let seen = usize::try_from(known.0.saturating_sub(data.offset)).unwrap_or(0);
                known.0 = end;
                let told = end - known.1 >= TAKEN_BYTES;
                if told {
                    known.1 = end;
                }
                let (task, stderr) = (data.task, data.stderr);
                self.tell(Event::Output { task, stderr, data: data.data.slice(seen..) }).await;
                if told {
                    let taken = Input::Taken(StepOffset { task, stderr, offset: end });
                    // If the queue is full, a later message includes this one.
                    let _ = inputs.try_send(StepInput { input: Some(taken) });
                }
            }
            Output::TaskEnded(ended) => {
                if !self.ended.contains(&ended.task) {
                    self.ended.push(ended.task);
                    self.tell(Event::Ended(ended)).await;
                }
            }
            Output::Aborted(why) => self.tell(Event::Aborted(why)).await,
            Output::Cancelled(_) => self.tell(Event::Cancelled).await,
            Output::StdinTaken(offset) => self.stdin.taken(offset),
            Output::Done(_) => return Some(End::Done),
            Output::Failed(error) if error.code == EXPIRED => return Some(End::Expired(error.message)),
            Output::Failed(error) if error.code == UNKNOWN => return Some(End::Unknown(error.message)),
            Output::Failed(error) => return Some(End::Refused(error.message)),
        }
        None
    }

    async fn tell(&self, event: Event) {
        // The receiver is gone when the command ends.
        let _ = self.events.send((self.index, event)).await;
    }
}

/// Observes a step on a node: returns the answers to `first`, which end when the sender is dropped.
///
/// # Errors
/// A node that cannot be reached or refuses.
pub(super) async fn look_on(
    layout: &StepNodeLayout,
    credential: &[u8],
    first: Input,
) -> anyhow::Result<(mpsc::Sender<StepInput>, Streaming<StepOutput>)> {
    let failed = |end: End| anyhow::anyhow!("{}: {}", layout.name, end.why());
    let (inputs, outgoing) = mpsc::channel(QUEUE);
    let channel = dial(layout).await.map_err(failed)?;
    // The queue has capacity, and its receiver is in this function.
    let _ = inputs.send(StepInput { input: Some(first) }).await;
    let request = request(credential, outgoing).map_err(failed)?;
    let answer = client(channel).run(request).await.map_err(|status| failed(ended_by(&status)))?;
    Ok((inputs, answer.into_inner()))
}

impl End {
    fn why(&self) -> &str {
        match self {
            End::Done => "the step has ended",
            End::Refused(why)
            | End::Unknown(why)
            | End::Expired(why)
            | End::Away(_, why)
            | End::Broken(why) => why,
        }
    }
}

async fn dial(layout: &StepNodeLayout) -> Result<Channel, End> {
    let address: HostPort =
        layout.address.parse().map_err(|error| End::Refused(format!("its address: {error}")))?;
    let away = |failure, error| End::Away(failure, format!("cannot connect to {address}: {error}"));
    dialer(layout).connect(&address).await.map_err(|error| match error {
        DialError::Unreachable(_) => away(Failure::Absent, error),
        DialError::Unanswered(_) => away(Failure::Slow, error),
        DialError::Address(_) | DialError::Afar(_) => End::Refused(error.to_string()),
    })
}

fn client(channel: Channel) -> StepsClient<Channel> {
    StepsClient::new(channel).max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE)
}

/// Returns the request with the headers that a node checks before it reads the stream.
fn request(
    credential: &[u8],
    outgoing: mpsc::Receiver<StepInput>,
) -> Result<Request<ReceiverStream<StepInput>>, End> {
    let pass = auth::pass(credential).map(|pass| format!("{}{pass}", auth::STEP_SCHEME));
    let pass = pass.ok().and_then(|pass| MetadataValue::try_from(pass).ok());
    let none = || End::Refused("the controller gave a credential that is none".to_owned());
    let mut request = Request::new(ReceiverStream::new(outgoing));
    let version = MetadataValue::from_static(refusal::PROTOCOL);
    request.metadata_mut().insert(refusal::VERSION_KEY, version);
    request.metadata_mut().insert("authorization", pass.ok_or_else(none)?);
    Ok(request)
}

/// Returns a dialer that accepts only the node's keys as known to the controller.
fn dialer(layout: &StepNodeLayout) -> Dialer {
    let keys: Vec<PublicKey> =
        layout.public_keys.iter().filter_map(|key| PublicKey::from_bytes(key)).collect();
    // A cluster without keys sends none. An invalid key matches no node.
    if layout.public_keys.is_empty() { Dialer::believing() } else { Dialer::expecting(&keys, None).patient() }
}

fn ended_by(status: &Status) -> End {
    match refusal::error_of(status) {
        Some(error) => End::Refused(error.message),
        None => End::Broken(client::detail(status)),
    }
}
