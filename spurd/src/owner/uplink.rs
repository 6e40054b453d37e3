//! The connection of a step on this node to the step's first node, which is opened again whenever it breaks.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use spur_core::text::address::HostPort;
use spur_proto::auth;
use spur_proto::channel::{DialError, Dialer, MAX_MESSAGE};
use spur_proto::client;
use spur_proto::keys::{Keyring, Role};
use spur_proto::refusal;
use spur_proto::v1;
use spur_proto::v1::steps_client::StepsClient;
use spur_proto::v1::{peer_input, peer_output};
use step_wire::attempt::StepAttempt;
use step_wire::message::Request;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;

use crate::clock::ControllerClock;
use crate::launcher::Step;

/// Longest absence of the first node, e.g. while its daemon restarts.
const PATIENCE: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Validity of a pass, in seconds by the controller's clock: long enough for one connection, and for a node
/// whose clock lags.
const PASS_SECONDS: i64 = 600;
/// Longest wait for the first node to close a connection after the last message of an ended step.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Error code of a node that does not know the step, or whose part of the step has ended.
const NOT_RUNNING: &str = "ESLURMD_STEP_NOTRUNNING";
/// Messages to the first node that may be under way.
const QUEUE: usize = 8;

/// Connects this node's steps to other nodes.
#[derive(Clone, Debug)]
pub(crate) struct Speaker {
    pub(crate) node: String,
    pub(crate) keyring: Option<Keyring>,
    pub(crate) clock: Arc<ControllerClock>,
}

/// The first node of a step.
#[derive(Clone, Debug)]
pub(crate) struct First {
    pub(crate) node: String,
    /// `host:port` of the first node's service.
    pub(crate) address: String,
    /// The step on the first node, and the number of this node's part; only if several steps run one
    /// program.
    pub(crate) of: Option<(StepAttempt, u32)>,
}

/// The outcome of one connection.
enum End {
    /// The step here is over.
    Over,
    /// The first node refused the connection.
    Refused(String),
    Broken(String),
}

impl Speaker {
    /// Connects a step to its first node until the step ends, or the first node stays away for [`PATIENCE`].
    pub(crate) async fn tie(self, step: Step, first: First) {
        let mut pause = FIRST_PAUSE;
        let mut heard = Instant::now();
        let mut met = false;
        loop {
            let why = match self.connection(&step, &first, (&mut heard, &mut met)).await {
                End::Over => return,
                End::Broken(_) if heard.elapsed() < PATIENCE => {
                    sleep(pause).await;
                    pause = if heard.elapsed() < pause * 2 {
                        FIRST_PAUSE
                    } else {
                        (pause * 2).min(LONGEST_PAUSE)
                    };
                    continue;
                }
                End::Broken(why) | End::Refused(why) => why,
            };
            // Only the step knows whether one of its tasks still needs the first node.
            tracing::info!(step = %step.attempt(), "its first node has ended or is lost: {why}");
            // A step that is just ending needs no request.
            let _ = step.request(Request::UplinkLost { why }).await;
            return;
        }
    }

    fn pass(&self, step: &Step, first: &First) -> String {
        let (attempt, part) = first.of.unzip();
        let attempt = attempt.unwrap_or_else(|| step.attempt());
        let pass = v1::PeerPass {
            job_id: attempt.attempt.job.0,
            restart: attempt.attempt.restart,
            step_id: attempt.step.0,
            node: self.node.clone(),
            expires: self.clock.now_secs() + PASS_SECONDS,
            part,
        };
        match &self.keyring {
            Some(keyring) => keyring.now().peer_pass(&pass),
            None => auth::unsigned_peer_pass(&pass),
        }
    }

    async fn connection(&self, step: &Step, first: &First, (heard, met): (&mut Instant, &mut bool)) -> End {
        let address = match first.address.parse::<HostPort>() {
            Ok(address) => address,
            Err(error) => return End::Refused(error.to_string()),
        };
        let dialer = match &self.keyring {
            Some(keyring) => {
                let role = Role::Node(first.node.as_str().into());
                Dialer::expecting(&keyring.now().public(&role), None).patient()
            }
            None => Dialer::believing(),
        };
        let channel = match dialer.connect(&address).await {
            Ok(channel) => channel,
            Err(error @ (DialError::Unreachable(_) | DialError::Unanswered(_))) => {
                return End::Broken(format!("cannot connect to {address}: {error}"));
            }
            Err(error) => return End::Refused(error.to_string()),
        };
        let shown = format!("{}{}", auth::PEER_SCHEME, self.pass(step, first));
        let Ok(shown) = MetadataValue::try_from(shown) else {
            return End::Refused("this node's name is none that a header can carry".to_owned());
        };
        let mut steps = StepsClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        let (inputs, outgoing) = mpsc::channel(QUEUE);
        let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
        request.metadata_mut().insert(refusal::VERSION_KEY, MetadataValue::from_static(refusal::PROTOCOL));
        request.metadata_mut().insert("authorization", shown);
        let outputs = match steps.peer(request).await {
            Ok(answer) => answer.into_inner(),
            Err(status) => match refusal::error_of(&status) {
                Some(error) => return End::Refused(error.message),
                None => return End::Broken(client::detail(&status)),
            },
        };
        let carried = carry(step, inputs, outputs, (heard, met)).await;
        // The first node was there until now, however long the tasks had nothing to say.
        *heard = Instant::now();
        match carried {
            Ok(end) => end,
            Err(error) => {
                tracing::debug!(step = %step.attempt(), %error, "the step here is gone");
                End::Over
            }
        }
    }
}

/// Carries messages between the step here and its first node.
async fn carry(
    step: &Step,
    inputs: mpsc::Sender<v1::PeerInput>,
    mut outputs: tonic::Streaming<v1::PeerOutput>,
    (heard, met): (&mut Instant, &mut bool),
) -> io::Result<End> {
    let (mut reader, mut writer) = step.uplink().await?;
    loop {
        tokio::select! {
            message = reader.receive() => match message? {
                Some(message) => {
                    let message = peer_input::Input::Message(message.into());
                    if inputs.send(v1::PeerInput { input: Some(message) }).await.is_err() {
                        return Ok(End::Broken("the first node closed the connection".to_owned()));
                    }
                }
                None => {
                // The connection closes only after the step's last message has arrived.
                drop(inputs);
                let closed = async { while let Ok(Some(_)) = outputs.message().await {} };
                let _ = timeout(LAST_WORDS, closed).await;
                return Ok(End::Over);
            }
            },
            output = outputs.message() => match output {
                Ok(Some(v1::PeerOutput { output: Some(output) })) => {
                    *heard = Instant::now();
                    match output {
                        peer_output::Output::Message(message) => {
                            *met = true;
                            writer.send(message.to_vec()).await?;
                        }
                        // The first node may launch its part later than this one, because its prolog may
                        // take longer.
                        peer_output::Output::Failed(error) if error.code == NOT_RUNNING && !*met => {
                            return Ok(End::Broken(error.message));
                        }
                        peer_output::Output::Failed(error) => return Ok(End::Refused(error.message)),
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => return Ok(End::Broken("the first node closed the connection".to_owned())),
                Err(status) => return Ok(End::Broken(client::detail(&status))),
            },
        }
    }
}
