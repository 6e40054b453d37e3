//! The claim of a daemon to a node's name while another daemon has it, or had it a moment ago.
//!
//! A daemon is identified by a random number drawn at its start, its spool, its host and the host's boot. The
//! same daemon connects again at once. Under another boot of the same host, the old daemon is dead. Any other
//! daemon waits until the connected one leaves, or does not answer a ping in time. A cloned image therefore
//! never alternates with the node from which it was made.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use spur_core::cluster::FeatureLevel;
use spur_core::id::NodeId;
use spur_core::model::node::Registration;
use spur_proto::convert::known_level;
use spur_proto::v1;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Agents, Errand};

/// Waits before another daemon gets a node's name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Longest wait for the connected daemon's answer.
    answer: Duration,
    /// Time after the controller's start during which the previous daemon of a node may return.
    back: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        // A daemon that has lost its controller tries again every three seconds.
        Self { answer: Duration::from_secs(5), back: Duration::from_secs(10) }
    }
}

/// The identity of the daemon that speaks for a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// Random number that the daemon drew at its start; empty for a daemon that draws none.
    instance: String,
    spool: String,
    boot: String,
    host: Host,
    /// Address of the node's service, for messages.
    address: String,
    /// The highest feature level that the daemon knows.
    pub(super) knows: FeatureLevel,
}

/// A host: a cloned image may have the same name, but not the same network address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Host {
    name: String,
    peer: String,
}

/// The reason why a daemon does not get a node's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Another daemon has the name, and answers.
    Here(Box<Identity>),
    /// Another daemon had the name when the controller started a moment ago, and may return.
    Expected(Box<Identity>, Duration),
}

impl Identity {
    pub(super) fn of(hello: &v1::Hello, peer: Option<IpAddr>) -> Self {
        let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
        Self {
            instance: hello.instance.clone(),
            spool: hello.spool_id.clone(),
            boot: hello.boot_id.clone(),
            host: Host { name: hello.hostname.clone(), peer },
            address: hello.address.clone(),
            knows: known_level(hello.feature_level),
        }
    }

    fn registered(said: &Registration) -> Self {
        Self {
            instance: String::new(),
            spool: said.spool_id.to_string(),
            boot: said.boot_id.to_string(),
            host: Host { name: said.hostname.to_string(), peer: said.peer.to_string() },
            address: said.address.to_string(),
            knows: FeatureLevel::OLDEST,
        }
    }

    /// True if both are the same process.
    fn is_the_same(&self, other: &Self) -> bool {
        self.spool == other.spool && self.boot == other.boot && self.instance == other.instance
    }

    /// True if this daemon's existence shows that the other is dead: a host has one boot at a time.
    fn outlives(&self, other: &Self) -> bool {
        self.host == other.host && self.boot != other.boot
    }

    /// True if this daemon may be the other one after a restart.
    fn follows(&self, other: &Self) -> bool {
        self.host == other.host || (self.spool == other.spool && self.boot == other.boot)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {}", self.host.name)?;
        if !self.host.peer.is_empty() {
            write!(f, " ({})", self.host.peer)?;
        }
        write!(f, ", its service at {}, spool {}, boot {}", self.address, self.spool, self.boot)
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Taken::Here(other) => {
                let advice =
                    "stop one of the two, or give this one a name of its own (spurd -N) and an empty spool";
                write!(f, "the one on {other}, which answers; {advice}")
            }
            Taken::Expected(other, wait) => {
                let wait = wait.as_secs();
                write!(f, "the one on {other}, for which a controller waits for {wait} s after its start")
            }
        }
    }
}

impl Agents {
    /// Claims a node's name for a daemon, and returns the connection's number and the queue of its orders.
    ///
    /// `before` is the node's last registration, if the node has been up since.
    pub(super) async fn claim(
        &self,
        node: NodeId,
        identity: Identity,
        before: Option<&Registration>,
    ) -> Result<(u64, mpsc::Receiver<Errand>), Taken> {
        loop {
            let other = self.table().open(node).map(|slot| (slot.connection, slot.identity.clone()));
            let replaced = match other {
                None => {
                    self.expect(&identity, before)?;
                    None
                }
                Some((connection, other)) => {
                    if identity.is_the_same(&other) || identity.outlives(&other) {
                        Some(connection)
                    } else if self.answers(node, connection).await {
                        return Err(Taken::Here(Box::new(other)));
                    } else {
                        tracing::warn!(%node, "taken over from {other}, which does not answer");
                        // The other daemon may have left meanwhile.
                        self.table().open(node).map(|slot| slot.connection).filter(|now| *now == connection)
                    }
                }
            };
            // Yet another daemon may have connected meanwhile.
            if let Some(claimed) = self.attach(node, identity.clone(), replaced) {
                return Ok(claimed);
            }
        }
    }

    /// Checks that no other daemon is expected to return under the name.
    fn expect(&self, identity: &Identity, before: Option<&Registration>) -> Result<(), Taken> {
        let Some(before) = before.map(Identity::registered) else { return Ok(()) };
        if identity.follows(&before) || self.begun.elapsed() >= self.patience.back {
            return Ok(());
        }
        Err(Taken::Expected(Box::new(before), self.patience.back))
    }

    /// Pings the daemon of a connection, and returns true if it answers in time.
    async fn answers(&self, node: NodeId, connection: u64) -> bool {
        let end = Instant::now() + self.patience.answer;
        let mut pongs = {
            let mut table = self.table();
            let slot = table.nodes.get_mut(&node).filter(|slot| slot.connection == connection);
            let Some(slot) = slot else { return false };
            let pongs = slot.pongs.subscribe();
            slot.send(Errand::Ping);
            pongs
        };
        loop {
            let mut departed = std::pin::pin!(self.departed.notified());
            // From here on no departure is missed.
            departed.as_mut().enable();
            if self.table().open(node).is_none_or(|slot| slot.connection != connection) {
                return false;
            }
            tokio::select! {
                pong = pongs.changed() => return pong.is_ok(),
                () = departed => {}
                () = tokio::time::sleep_until(end) => return false,
            }
        }
    }

    /// Records a daemon's answer to a ping.
    pub(super) fn answered(&self, node: NodeId, connection: u64) {
        self.heard(node, connection, None);
        if let Some(slot) = self.table().nodes.get(&node).filter(|slot| slot.connection == connection) {
            slot.pongs.send_modify(|pongs| *pongs += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(3);
    const LONG: Duration = Duration::from_secs(3600);

    /// Parses `SPOOL BOOT HOST PEER INSTANCE`.
    fn identity(text: &str) -> Identity {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let [spool, boot, name, peer, instance] = <[String; 5]>::try_from(words).unwrap();
        let (host, knows) = (Host { name, peer }, FeatureLevel::NEWEST);
        Identity { instance, spool, boot, host, address: "a:1".into(), knows }
    }

    fn agents(answer: Duration, back: Duration) -> Agents {
        let (mut agents, _arrived) = Agents::new();
        agents.patience = Patience { answer, back };
        agents
    }

    /// The outcome for a second daemon that claims the name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Gets {
        AtOnce,
        OnceTheOtherIsSilent,
    }

    #[tokio::test]
    async fn a_name_goes_to_the_same_daemon_and_to_others_only_when_it_is_free() {
        use Gets::{AtOnce, OnceTheOtherIsSilent};
        for (second, gets) in [
            ("s b h p 1", AtOnce),
            // Restarted: the old daemon is gone, or this is a copy of the spool on the same host.
            ("s b h p 2", OnceTheOtherIsSilent),
            // The host was rebooted.
            ("s c h p 2", AtOnce),
            ("t c h p 2", AtOnce),
            // A cloned image, on a host of the same name or another; its boot differs.
            ("s c h q 2", OnceTheOtherIsSilent),
            ("s c i q 2", OnceTheOtherIsSilent),
            // Another spool under the same name.
            ("t b h p 2", OnceTheOtherIsSilent),
        ] {
            for answers in [true, false] {
                // A second daemon that has to wait for an hour of silence does not return.
                let agents = agents(if answers || gets == AtOnce { LONG } else { Duration::ZERO }, LONG);
                let (first, mut queue) = agents.claim(NODE, identity("s b h p 1"), None).await.unwrap();
                let played = agents.clone();
                tokio::spawn(async move {
                    while let Some(errand) = queue.recv().await {
                        if answers && errand == Errand::Ping {
                            played.answered(NODE, first);
                        }
                    }
                });
                let claimed = agents.claim(NODE, identity(second), None).await;
                let expected = gets == AtOnce || !answers;
                assert_eq!(claimed.is_ok(), expected, "{second}, which answers: {answers}");
                if let Err(taken) = claimed {
                    assert!(taken.to_string().contains("host h (p), its service at a:1"), "{taken}");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_daemon_that_leaves_while_it_is_asked_is_not_waited_for() {
        let agents = agents(LONG, LONG);
        let (first, mut queue) = agents.claim(NODE, identity("s b h p 1"), None).await.unwrap();
        let waiting = tokio::spawn({
            let agents = agents.clone();
            async move { agents.claim(NODE, identity("s b h p 2"), None).await }
        });
        assert_eq!(queue.recv().await, Some(Errand::Ping));
        drop(queue);
        agents.detach(NODE, first);
        assert!(waiting.await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn after_a_start_a_node_is_waited_for_where_it_was() {
        let before = Registration {
            boot_id: "b".into(),
            spool_id: "s".into(),
            hostname: "h".into(),
            peer: "p".into(),
            ..Registration::default()
        };
        for (back, claimant, gets) in [
            (LONG, "s c i q 1", false),
            (LONG, "t b i q 1", false),
            (LONG, "s b h p 1", true),
            (LONG, "s c h p 1", true),
            (Duration::ZERO, "s c i q 1", true),
        ] {
            let claimed = agents(LONG, back).claim(NODE, identity(claimant), Some(&before)).await;
            assert_eq!(claimed.is_ok(), gets, "{claimant} {back:?}");
        }
    }
}
