//! The node's own service, through which clients launch steps, read their output, and send them input.

mod logs;
mod peer;
mod session;
mod shares;
mod watcher;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use spur_proto::auth::{self, AuthError, Pass};
use spur_proto::keys::Keyring;
use spur_proto::listen::{Complaint, Peer, Proved};
use spur_proto::refusal;
use spur_proto::v1;
use spur_proto::v1::steps_server::Steps;
use step_wire::attempt::StepAttempt;
use step_wire::message::Request as Ask;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request, Response, Status, Streaming};

use self::session::{Left, Session};
use self::shares::{Share, Shares};
use crate::assemble::NodeFacts;
use crate::clock::ControllerClock;
use crate::launcher::{Launcher, Step};
use crate::owner::{Message, NotLaunched};
use crate::spool::Spool;

/// Capacity of the queue of messages to a client; a message holds at most 32 KiB.
const BACKLOG: usize = 4;
/// Longest wait for the first message of a call.
const FIRST_MESSAGE: Duration = Duration::from_secs(30);
/// Time for which a step without its client waits for the client's return before it is killed.
const ORPHANED: Duration = Duration::from_secs(60);

/// The service for clients and for other nodes.
#[derive(Clone)]
pub(crate) struct StepService {
    pub(crate) inbox: mpsc::Sender<Message>,
    pub(crate) facts: watch::Receiver<Arc<NodeFacts>>,
    pub(crate) spool: Arc<Spool>,
    pub(crate) launcher: Launcher,
    pub(crate) keyring: Option<Keyring>,
    pub(crate) clock: Arc<ControllerClock>,
    /// Limits the log lines about refused clients.
    pub(crate) refused: Arc<Complaint>,
    /// Number of attachments to each step, by which the service notices that a client returned.
    pub(crate) visits: Arc<Mutex<BTreeMap<StepAttempt, u64>>>,
    /// Counts the open streams of each user.
    pub(crate) shares: Shares,
}

/// Slurm's name of the error for a credential that is not accepted.
const BAD_CREDENTIAL: &str = "ESLURMD_INVALID_JOB_CREDENTIAL";

type Output = Result<v1::StepOutput, Status>;

/// A refusal for the client: Slurm's name of the error, and the sentence.
#[derive(Debug)]
pub(crate) struct Refused(&'static str, String);

/// The share of a call, set once its user is known.
type Slot = Arc<OnceLock<Share>>;

/// The purpose of a call.
enum Opened {
    /// The call is the step's client, and continues its output at these offsets.
    Own(Step, Vec<v1::StepOffset>),
    /// The call watches the step.
    Watched(Step),
    /// The call reads the output of a batch script.
    Logs(Step, v1::StepLogs),
    /// The client has left before its first message.
    Nothing,
}

#[tonic::async_trait]
impl Steps for StepService {
    type RunStream = Pin<Box<dyn Stream<Item = Output> + Send>>;

    async fn run(
        &self,
        request: Request<Streaming<v1::StepInput>>,
    ) -> Result<Response<Self::RunStream>, Status> {
        refusal::check_version(request.metadata())?;
        let pass = self.pass(&request)?;
        let input = request.into_inner();
        let (output, outputs) = mpsc::channel(BACKLOG);
        let slot = Slot::default();
        tokio::spawn(self.clone().serve(pass, input, output, Arc::clone(&slot)));
        // Messages may wait for a slow client after the session is over, so the share lasts as long as the
        // stream.
        let outputs = ReceiverStream::new(outputs).map(move |output| {
            let _open = &slot;
            output
        });
        Ok(Response::new(Box::pin(outputs)))
    }

    type PeerStream = Pin<Box<dyn Stream<Item = peer::Output> + Send>>;

    async fn peer(
        &self,
        request: Request<Streaming<v1::PeerInput>>,
    ) -> Result<Response<Self::PeerStream>, Status> {
        refusal::check_version(request.metadata())?;
        let pass = self.peer_pass(&request)?;
        let (output, outputs) = mpsc::channel(BACKLOG);
        tokio::spawn(peer::serve(self.clone(), pass, request.into_inner(), output));
        Ok(Response::new(Box::pin(ReceiverStream::new(outputs))))
    }
}

impl StepService {
    async fn serve(
        self,
        pass: Pass,
        mut input: Streaming<v1::StepInput>,
        output: mpsc::Sender<Output>,
        slot: Slot,
    ) {
        let opened = self.open(&pass, &mut input, &slot).await;
        drop(slot);
        let opened = match opened {
            Ok(opened) => opened,
            Err(Refused(code, message)) => {
                self.refused.tell(|more| tracing::warn!(more, "a client was refused: {message}"));
                let failed = v1::step_output::Output::Failed(v1::Error::new(code, message));
                // A client that is gone needs no answer.
                let _ = output.send(Ok(v1::StepOutput { output: Some(failed) })).await;
                return;
            }
        };
        let (step, from) = match opened {
            Opened::Own(step, from) => (step, from),
            Opened::Watched(step) => return watcher::serve(&step, &output).await,
            Opened::Logs(step, asked) => return logs::serve(&self.launcher, &step, &asked, &output).await,
            Opened::Nothing => return,
        };
        let attempt = step.attempt();
        let visit = self.visit(attempt);
        let node = self.facts.borrow().name.clone();
        let session = Session::new((step.clone(), node), input, output, from, Arc::clone(&self.spool));
        match session.run().await {
            Left::Done => {
                self.visits.lock().unwrap_or_else(PoisonError::into_inner).remove(&attempt);
            }
            Left::Replaced => {}
            Left::Gone => {
                tracing::warn!(step = %attempt, "its client is gone");
                tokio::time::sleep(ORPHANED).await;
                if self.last_visit(attempt) == Some(visit) {
                    tracing::warn!(step = %attempt, "its client did not come back: killed");
                    // A step that has ended meanwhile needs no request.
                    let _ = step.request(Ask::Terminate { kill_wait_ms: Some(0), notice: None }).await;
                    let _ = step.request(Ask::Discard).await;
                }
            }
        }
    }

    /// Reads the first message and carries it out.
    async fn open(
        &self,
        pass: &Pass,
        input: &mut Streaming<v1::StepInput>,
        slot: &Slot,
    ) -> Result<Opened, Refused> {
        use v1::step_input::Input;
        // A client that leaves before its first message wanted nothing.
        let first = tokio::time::timeout(FIRST_MESSAGE, input.message()).await;
        let Ok(Ok(Some(first))) = first else { return Ok(Opened::Nothing) };
        let count = |credential: &v1::StepCredential, looks_on| {
            // A call has one first message, so the share is set once.
            self.shares.take(credential.uid, looks_on).map(|share| drop(slot.set(share)))
        };
        let named = async |credential: &[u8], looks_on| {
            let credential = self.credential(pass, credential)?;
            count(&credential, looks_on)?;
            self.find(attempt_of(&credential)).await
        };
        match first.input {
            Some(Input::Launch(launch)) => {
                // Only a controller informs the node of its history and of the age of credentials.
                self.clock.known().await;
                let credential = self.credential(pass, &launch.credential)?;
                count(&credential, false)?;
                self.launch(credential, launch).await.map(|step| Opened::Own(step, Vec::new()))
            }
            Some(Input::Attach(attach)) => {
                Ok(Opened::Own(named(&attach.credential, false).await?, attach.from))
            }
            Some(Input::Watch(attach)) => named(&attach.credential, true).await.map(Opened::Watched),
            Some(Input::Logs(asked)) => Ok(Opened::Logs(named(&asked.credential, true).await?, asked)),
            _ => Err(Refused(
                "SLURM_UNEXPECTED_MSG_ERROR",
                "the first message is neither launch nor attach".into(),
            )),
        }
    }

    async fn launch(&self, credential: v1::StepCredential, launch: v1::StepLaunch) -> Result<Step, Refused> {
        let setup = |message| Refused("ESLURMD_SETUP_ENVIRONMENT_ERROR", message);
        let (facts, issued_ms) = (Arc::clone(&self.facts.borrow()), credential.issued_ms);
        let prepared = Box::new(facts.step(&credential, launch).map_err(setup)?);
        let (answer, answered) = oneshot::channel();
        self.ask(Message::LaunchStep { prepared, issued_ms, answer }, answered).await.map_err(|refused| {
            match refused {
                NotLaunched::Expired(message) => Refused("ESLURMD_CREDENTIAL_EXPIRED", message),
                NotLaunched::Failed(message) => setup(message),
            }
        })
    }

    async fn find(&self, step: StepAttempt) -> Result<Step, Refused> {
        let (answer, answered) = oneshot::channel();
        let gone = || Refused("ESLURMD_STEP_NOTRUNNING", format!("step {step} does not run on this node"));
        self.ask(Message::Find { step, answer }, answered).await.ok_or_else(gone)
    }

    /// Sends a message to the owner and waits for its answer.
    ///
    /// Without an owner this daemon is stopping. The call then waits until the connection ends with the
    /// process, because the next daemon will know the answer.
    async fn ask<T>(&self, message: Message, answered: oneshot::Receiver<T>) -> T {
        if self.inbox.send(message).await.is_ok()
            && let Ok(answer) = answered.await
        {
            return answer;
        }
        std::future::pending().await
    }

    /// Returns the pass of a client's call, checked before any of its messages is read.
    fn pass<T>(&self, request: &Request<T>) -> Result<Pass, Status> {
        let pass = auth::pass_of(request.metadata()).and_then(|pass| match &self.keyring {
            Some(keyring) => keyring.now().passed(pass),
            None => Pass::read_unverified(pass),
        });
        self.known(request, pass)
    }

    /// Returns the pass of another node's call, checked before any of its messages is read.
    fn peer_pass<T>(&self, request: &Request<T>) -> Result<v1::PeerPass, Status> {
        let pass = auth::peer_pass_of(request.metadata()).and_then(|pass| match &self.keyring {
            Some(keyring) => keyring.now().open_peer_pass(pass, self.clock.now_secs()),
            None => auth::read_unverified_peer_pass(pass, self.clock.now_secs()),
        });
        self.known(request, pass)
    }

    fn credential(&self, pass: &Pass, sealed: &[u8]) -> Result<v1::StepCredential, Refused> {
        if !pass.is_for(sealed) {
            return Err(Refused(BAD_CREDENTIAL, "the call was made with another credential".to_owned()));
        }
        let opened = match &self.keyring {
            Some(keyring) => keyring.now().open(sealed),
            None => auth::open_unverified(sealed),
        };
        let invalid = |message| Refused(BAD_CREDENTIAL, message);
        let credential = opened.map_err(|error| invalid(error.to_string()))?;
        let own = self.spool.allegiance().history;
        if own.is_none_or(|own| own.0[..] != credential.history[..]) {
            return Err(invalid("the credential is of another history than this node's".to_owned()));
        }
        Ok(credential)
    }

    fn visit(&self, step: StepAttempt) -> u64 {
        let mut visits = self.visits.lock().unwrap_or_else(PoisonError::into_inner);
        let visit = visits.entry(step).or_insert(0);
        *visit += 1;
        *visit
    }

    /// Counts the connection as known if its pass is valid; otherwise logs and refuses the call.
    fn known<T, P>(&self, request: &Request<T>, shown: Result<P, AuthError>) -> Result<P, Status> {
        let peer = request.extensions().get::<Peer>();
        let shown = shown.map_err(|error| {
            let from = peer.map(|peer| peer.origin.to_string()).unwrap_or_default();
            self.refused.tell(|more| tracing::warn!(from, more, "a call was refused: {error}"));
            refusal::status(Code::Unauthenticated, &v1::Error::new(BAD_CREDENTIAL, error.to_string()))
        })?;
        if let Some(peer) = peer {
            peer.prove(Proved::Known).map_err(|many| refusal::busy(&many.to_string()))?;
        }
        Ok(shown)
    }

    fn last_visit(&self, step: StepAttempt) -> Option<u64> {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner).get(&step).copied()
    }
}

fn attempt_of(credential: &v1::StepCredential) -> StepAttempt {
    let attempt = spur_proto::convert::agent::attempt(v1::Attempt {
        job_id: credential.job_id,
        restart: credential.restart,
    });
    StepAttempt { attempt, step: spur_core::id::StepId(credential.step_id) }
}
