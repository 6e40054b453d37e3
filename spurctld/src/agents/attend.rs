//! The stream of one node, from its registration to its end.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use spur_core::controller::command::Unacknowledged;
use spur_core::controller::{self, Input, Reject};
use spur_core::id::NodeId;
use spur_core::model::node::Health;
use spur_core::text::time::Seconds;
use spur_proto::convert::node::Pulse;
use spur_proto::convert::{agent as convert, known_level, reject};
use spur_proto::keys::{Keyring, PublicKey, Role};
use spur_proto::listen::Peer;
use spur_proto::refusal;
use spur_proto::v1;
use spur_proto::v1::agents_server::Agents as Service;
use spur_proto::v1::node_message::Message;
use spur_proto::v1::order::Order;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::claim::Identity;
use super::{Agents, Errand, Renderer, report_number};
use crate::answer::Answer;
use crate::clock;
use crate::inbox::{Inbox, Refused};
use crate::rpc::access::Identified;
use crate::stop::Stop;
use crate::store::Journal;

/// Capacity of the queue of orders between their encoding and the network.
const BUFFER: usize = 16;
/// Largest number of orders that are taken together, to merge acknowledgements.
const TOGETHER: usize = 256;
/// Largest number of reports of one node that wait for the journal's queue. With so many, no message of
/// the node is read, not even a heartbeat.
const HELD: usize = 256;
/// Heartbeats that may be lost before a node is taken for silent.
const SPARE_HEARTBEATS: u64 = 3;

/// The error code of a node name that another daemon has.
const TAKEN: &str = "ESLURM_NODE_ALREADY_REGISTERED";

/// The service to which nodes open their streams.
#[derive(Clone)]
pub(crate) struct Attendance {
    pub(crate) agents: Agents,
    pub(crate) renderer: Renderer,
    pub(crate) inbox: Inbox,
    pub(crate) heartbeat_interval: Seconds,
    pub(crate) keyring: Option<Keyring>,
    pub(crate) stop: Stop,
    pub(crate) journal: Journal,
}

type Orders = mpsc::Sender<Result<v1::Order, Status>>;

#[tonic::async_trait]
impl Service for Attendance {
    type AttendStream = Pin<Box<dyn Stream<Item = Result<v1::Order, Status>> + Send>>;

    async fn attend(
        &self,
        request: Request<Streaming<v1::NodeMessage>>,
    ) -> Result<Response<Self::AttendStream>, Status> {
        let identified = request.extensions().get::<Identified>().cloned();
        let identified = identified.ok_or_else(|| Status::unauthenticated("nobody knows who you are"))?;
        let (orders, outgoing) = mpsc::channel(BUFFER);
        let connected = request.extensions().get::<Peer>();
        let (peer, key) = (connected.and_then(Peer::host), connected.and_then(|peer| peer.key));
        let (attendance, incoming) = (self.clone(), request.into_inner());
        tokio::spawn(async move {
            tokio::select! {
                () = attendance.converse(identified, (peer, key), incoming, orders) => {}
                () = attendance.stop.wished() => {}
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(outgoing))))
    }
}

impl Attendance {
    async fn converse(
        &self,
        identified: Identified,
        (peer, key): (Option<IpAddr>, Option<PublicKey>),
        mut incoming: Streaming<v1::NodeMessage>,
        orders: Orders,
    ) {
        let Ok(Some(v1::NodeMessage { message: Some(Message::Hello(hello)) })) = incoming.message().await
        else {
            // A client that does not register gets no answer but the end of the stream.
            return;
        };
        let (node, connection, queue) = match self.register(&identified, peer, &hello).await {
            Ok(registered) => registered,
            Err(error) => {
                tracing::warn!(node = hello.node_name, error = error.message, "a node was refused");
                let refusal = Order::Refusal(v1::Refusal { error: Some(error) });
                // A node that is gone already needs no answer.
                let _ = orders.send(Ok(self.renderer.sealed(refusal))).await;
                return;
            }
        };
        tracing::info!(node = hello.node_name, address = hello.address, "registered");
        if orders.send(Ok(self.welcome())).await.is_ok() {
            tokio::select! {
                () = self.listen(node, connection, &mut incoming) => {}
                () = self.speak(queue, &orders) => {}
                () = self.retired(&hello.node_name, key) => {
                    tracing::warn!(node = hello.node_name, "its key is believed no more; it is disconnected");
                }
            }
        }
        self.agents.detach(node, connection);
        tracing::info!(node = hello.node_name, "disconnected");
    }

    /// Waits until the key that a node has shown is no longer valid.
    async fn retired(&self, node: &str, key: Option<PublicKey>) {
        match self.keyring.as_ref().zip(key) {
            Some((keyring, key)) => keyring.retired(&Role::Node(node.into()), &key).await,
            None => std::future::pending().await,
        }
    }

    /// Registers a node whose identity is proved. Its queue takes orders once the registration is decided.
    async fn register(
        &self,
        identified: &Identified,
        peer: Option<IpAddr>,
        hello: &v1::Hello,
    ) -> Result<(NodeId, u64, mpsc::Receiver<Errand>), v1::Error> {
        if !refusal::compatible(refusal::PROTOCOL, &hello.protocol) {
            let message = format!(
                "the node speaks protocol {}, the controller {}; install the same major version on both",
                hello.protocol,
                refusal::PROTOCOL
            );
            return Err(v1::Error::new(refusal::WRONG_VERSION, message));
        }
        if !identified.may_be(&hello.node_name) {
            let message = format!("the token is not one for node {}", hello.node_name);
            return Err(v1::Error::new("ESLURM_ACCESS_DENIED", message));
        }
        let mut registration = convert::registration(hello).map_err(|bad| reject::bad_field_error(&bad))?;
        registration.peer = peer.map(|peer| peer.to_string()).unwrap_or_default().into();
        let seen = convert::seen(hello).map_err(|bad| reject::bad_field_error(&bad))?;
        let (node, before) = {
            let cluster = self.renderer.replica.read();
            let node = cluster.node_named(&hello.node_name);
            let node = node.ok_or_else(|| reject::error(&Reject::UnknownNode(hello.node_name.clone())))?;
            // Checked before the other daemon of this name is pinged: it may be alive and not respond.
            controller::kept_by_host(&cluster, node, &registration).map_err(|kept| reject::error(&kept))?;
            let (knows, has) = (known_level(hello.feature_level), cluster.feature_level());
            if knows < has {
                return Err(reject::error(&Reject::NodeTooOld { node: Arc::clone(node.name()), knows, has }));
            }
            (node.id, node.registration.clone().filter(|_| node.health == Health::Up))
        };
        let identity = Identity::of(hello, peer);
        let (connection, queue) = match self.agents.claim(node, identity, before.as_deref()).await {
            Ok(claimed) => claimed,
            Err(taken) => {
                let message = format!("node {} is one daemon, and it is {taken}", hello.node_name);
                return Err(v1::Error::new(TAKEN, message));
            }
        };
        let numbered =
            |told: Unacknowledged| Unacknowledged { id: report_number(connection, told.id), ..told };
        let input = Input::Registered {
            name: hello.node_name.as_str().into(),
            registration: registration.into(),
            held: convert::held(hello),
            reports: convert::reports(hello, clock::wall_ms()).map(numbered).collect(),
            seen,
            connection,
        };
        let refused = match self.inbox.insist(input).await.map(|answered| answered.answer) {
            Ok(Ok(Answer::Doubted { why })) => {
                tracing::error!("{}", Reject::OldCopy(Arc::clone(&why)));
                reject::error(&Reject::OldCopy(why))
            }
            Ok(Ok(_)) => return Ok((node, connection, queue)),
            Ok(Err(Refused::Rejected(rejected))) => reject::error(&rejected),
            Ok(Err(Refused::Unsure | Refused::NoSpace(_) | Refused::Fault)) => {
                v1::Error::new(refusal::BUSY, "try again")
            }
            Err(error) => v1::Error::new(refusal::BUSY, error.to_string()),
        };
        self.agents.detach(node, connection);
        Err(refused)
    }

    fn welcome(&self) -> v1::Order {
        let cluster = self.renderer.replica.read();
        let policy = cluster.policy();
        let often = policy.recovery.node_timeout.0 / SPARE_HEARTBEATS;
        let interval = self.heartbeat_interval.0.min(often).max(1);
        let ancestors = cluster.history().map_or(&[][..], |history| &history.ancestors);
        let welcome = v1::Welcome {
            cluster_name: policy.cluster_name.to_string(),
            heartbeat_interval: u32::try_from(interval).unwrap_or(u32::MAX),
            reign: cluster.reign(),
            ancestors: ancestors.iter().map(|history| history.0.to_vec().into()).collect(),
        };
        drop(cluster);
        self.renderer.sealed(Order::Welcome(welcome))
    }

    /// Handles the node's messages until the connection ends. Reports wait here while half of the
    /// journal's queue, or more, is taken. A node repeats reports that a controller has not acknowledged
    /// before its end.
    async fn listen(&self, node: NodeId, connection: u64, incoming: &mut Streaming<v1::NodeMessage>) {
        let (mut reports, mut unknown) = (VecDeque::new(), 0_u64);
        loop {
            let said = tokio::select! {
                biased;
                () = self.journal.has_room(), if !reports.is_empty() => {
                    let Some(report) = reports.pop_front() else { continue };
                    match self.inbox.tell(report).await {
                        Ok(()) => continue,
                        Err(_) => return,
                    }
                }
                said = incoming.message(), if reports.len() < HELD => said,
            };
            let Ok(Some(said)) = said else { return };
            match said.message {
                Some(Message::Heartbeat(beat)) => {
                    let pulse = Pulse {
                        load_hundredths: Some(beat.load_hundredths),
                        memory_free_mb: Some(beat.memory_free_mb),
                    };
                    self.agents.heard(node, connection, Some(pulse));
                    if !self.take_condition(node, beat.fault.into()).await {
                        return;
                    }
                }
                Some(Message::Report(report)) => {
                    self.agents.heard(node, connection, None);
                    let id = report_number(connection, report.id);
                    let (attempt, report) = match convert::report(report, clock::wall_ms()) {
                        Ok(read) => read,
                        Err(error) => {
                            tracing::error!(%error, %node, "a report cannot be read and stays unacknowledged");
                            continue;
                        }
                    };
                    reports.push_back(Input::Report { node, id, attempt, report });
                }
                Some(Message::Pong(_)) => self.agents.answered(node, connection),
                Some(Message::Standing(_)) => self.agents.asked_standing(node),
                Some(Message::Usage(answer)) => self.agents.answered_usage(answer),
                Some(Message::Hello(_)) => return,
                // A newer daemon may send messages that this release does not know; its other messages
                // remain valid.
                None => {
                    unknown += 1;
                    if unknown.is_power_of_two() {
                        tracing::warn!(%node, unknown, "the node said what this release does not know");
                    }
                }
            }
        }
    }

    /// Passes a change of a node's condition to the owner; returns false if the owner has ended.
    async fn take_condition(&self, node: NodeId, fault: Arc<str>) -> bool {
        let news = self.renderer.replica.read().node(node).is_some_and(|known| match &known.drain {
            None => !fault.is_empty(),
            Some(drain) => drain.until_mended && drain.reason != fault,
        });
        // The next heartbeat repeats the condition.
        if !news || self.journal.is_busy() {
            return true;
        }
        match fault.is_empty() {
            true => tracing::info!(%node, "what the node was drained for is over"),
            false => tracing::warn!(%node, "the node takes no work: {fault}"),
        }
        self.inbox.tell(Input::Condition { node, fault }).await.is_ok()
    }

    /// Sends orders, in order, until the connection is cut off or the node is gone.
    async fn speak(&self, mut queue: mpsc::Receiver<Errand>, orders: &Orders) {
        let mut errands = Vec::new();
        while queue.recv_many(&mut errands, TOGETHER).await > 0 {
            // The last order, to which more of the same kind can still be added.
            let mut last: Option<Order> = None;
            for errand in errands.drain(..) {
                let next = match errand {
                    Errand::Order(effect) => self.renderer.order(effect).await,
                    Errand::Ping => Some(Order::Ping(v1::Ping {})),
                    Errand::Standing(node) => self.renderer.standing(node),
                    Errand::Shutdown => Some(Order::Shutdown(v1::Shutdown {})),
                    Errand::Usage { id, attempts } => {
                        let attempts = attempts.into_iter().map(convert::wire_attempt).collect();
                        Some(Order::Usage(v1::UsageQuery { id, attempts }))
                    }
                };
                let Some(next) = next else { continue };
                let Some(done) = join(&mut last, next) else { continue };
                if orders.send(Ok(self.renderer.sealed(done))).await.is_err() {
                    return;
                }
            }
            if let Some(last) = last
                && orders.send(Ok(self.renderer.sealed(last))).await.is_err()
            {
                return;
            }
        }
    }
}

/// Merges `next` into `last` and returns `None` if both acknowledge reports or both forget attempts.
/// Otherwise `next` becomes the last order, and the previous one is returned to be sent.
fn join(last: &mut Option<Order>, next: Order) -> Option<Order> {
    match (last.as_mut(), next) {
        (Some(Order::Acknowledge(before)), Order::Acknowledge(next)) => {
            before.report_ids.extend(next.report_ids);
            None
        }
        (Some(Order::Forget(before)), Order::Forget(next)) => {
            before.attempts.extend(next.attempts);
            None
        }
        (_, next) => last.replace(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_of_one_kind_are_one_and_none_overtakes_another() {
        let acknowledge =
            |report_ids: &[u64]| Order::Acknowledge(v1::Acknowledge { report_ids: report_ids.to_vec() });
        let forget = |jobs: &[u32]| {
            let attempts = jobs.iter().map(|&job_id| v1::Attempt { job_id, restart: 0 });
            Order::Forget(v1::Forget { attempts: attempts.collect() })
        };
        let terminate = || Order::Terminate(v1::Terminate::default());
        let said =
            [acknowledge(&[1]), acknowledge(&[2]), forget(&[1]), terminate(), forget(&[2]), forget(&[3])];
        let mut last = None;
        let mut sent: Vec<Order> = said.into_iter().filter_map(|next| join(&mut last, next)).collect();
        sent.extend(last);
        assert_eq!(sent, [acknowledge(&[1, 2]), forget(&[1]), terminate(), forget(&[2, 3])]);
    }
}
