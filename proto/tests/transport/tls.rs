//! Authentication between a real server and a real client, for every pair of keys that may meet.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use spur_core::text::address::HostPort;
use spur_proto::channel::{DialError, Dialer};
use spur_proto::keys::{ClusterKey, ClusterKeys, Keyring, PublicKey, Role};
use spur_proto::listen::{Limits, Peer};
use spur_proto::tls;
use spur_proto::v1::controller_client::ControllerClient;
use spur_proto::v1::{PingRequest, PingResponse};
use tokio::net::TcpListener;
use tonic::{Request, Status};

use crate::fake::{Answers, serve_with};

/// Records the keys that clients have shown.
#[derive(Clone, Default)]
struct Shown(Arc<Mutex<Vec<Option<PublicKey>>>>);

impl Answers for Shown {
    fn ping(&self, request: Request<PingRequest>) -> Result<PingResponse, Status> {
        let peer = request.extensions().get::<Peer>().expect("every connection has another end");
        self.0.lock().unwrap().push(peer.key);
        Ok(PingResponse::default())
    }
}

fn keys(byte: u8, cluster: &str) -> ClusterKeys {
    ClusterKeys::of(ClusterKey::from_bytes([byte; 32]), cluster)
}

fn node(name: &str) -> Role {
    Role::Node(name.into())
}

async fn server(keys: ClusterKeys, role: Role) -> (HostPort, Shown) {
    let shown = Shown::default();
    let tls = tls::server(&Keyring::new(keys), role);
    (behind(shown.clone(), Some(tls)).await, shown)
}

async fn behind(shown: Shown, tls: Option<Arc<tls::ServerConfig>>) -> HostPort {
    serve_with(shown, 0, tls, Limits::for_process(1000)).await
}

/// Makes a call, and returns the reason if the server is not accepted.
async fn ask(dialer: &Dialer, address: &HostPort) -> Result<(), String> {
    let channel = dialer.connect(address).await.map_err(|error| error.to_string())?;
    let answer = ControllerClient::new(channel).ping(PingRequest::default()).await;
    answer.map(|_| ()).map_err(|status| format!("{status:?}"))
}

fn expecting(keys: &ClusterKeys, role: &Role) -> Dialer {
    Dialer::expecting(&keys.public(role), None)
}

#[tokio::test]
async fn who_has_the_key_is_believed() {
    let (controller, shown) = server(keys(1, "a"), Role::Controller).await;
    ask(&expecting(&keys(1, "a"), &Role::Controller), &controller).await.unwrap();
    let own = keys(1, "a").own(&node("n1")).remove(0);
    let as_node = Dialer::expecting(&keys(1, "a").public(&Role::Controller), Some(own.clone()));
    ask(&as_node, &controller).await.unwrap();
    assert_eq!(*shown.0.lock().unwrap(), [None, Some(own.public)]);
}

/// Every other key that a server may have.
#[tokio::test]
async fn a_node_is_no_controller() {
    for (keys_of, role) in
        [(keys(1, "a"), node("n1")), (keys(2, "a"), Role::Controller), (keys(1, "b"), Role::Controller)]
    {
        let (impostor, shown) = server(keys_of, role).await;
        let refused = ask(&expecting(&keys(1, "a"), &Role::Controller), &impostor).await.unwrap_err();
        assert!(refused.contains("somebody else answers there"), "{refused}");
        assert!(shown.0.lock().unwrap().is_empty(), "nothing was asked of it");
    }
    let (controller, _) = server(keys(1, "a"), Role::Controller).await;
    assert!(ask(&expecting(&keys(1, "a"), &node("n1")), &controller).await.is_err(), "nor the other way");
}

#[tokio::test]
async fn another_cluster_is_another_cluster() {
    let (other, _) = server(keys(1, "b"), node("n1")).await;
    assert!(ask(&expecting(&keys(1, "a"), &node("n1")), &other).await.is_err());
    ask(&expecting(&keys(1, "b"), &node("n1")), &other).await.unwrap();
    assert!(ask(&expecting(&keys(1, "b"), &node("n2")), &other).await.is_err(), "nor is it another node");
}

/// Only the first of these is worth a long wait.
#[tokio::test]
async fn a_host_that_takes_connections_is_told_from_an_absent_or_a_wrong_one() {
    let dialer = expecting(&keys(1, "a"), &Role::Controller);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: HostPort = listener.local_addr().unwrap().to_string().parse().unwrap();
    // The server ends before the handshake is complete.
    let (dialled, _) =
        tokio::join!(dialer.connect(&address), async move { drop((listener.accept().await, listener)) });
    assert!(matches!(dialled, Err(DialError::Unanswered(_))), "{dialled:?}");
    let dialled = dialer.connect(&address).await;
    assert!(matches!(dialled, Err(DialError::Unreachable(_))), "{dialled:?}");
    let (impostor, _) = server(keys(2, "a"), Role::Controller).await;
    let dialled = dialer.connect(&impostor).await;
    assert!(matches!(dialled, Err(DialError::Unreachable(_))), "{dialled:?}");
}

#[tokio::test]
async fn plain_text_and_tls_do_not_meet() {
    let (controller, shown) = server(keys(1, "a"), Role::Controller).await;
    assert!(ask(&Dialer::believing(), &controller).await.is_err());
    let plain = behind(shown.clone(), None).await;
    let refused = ask(&expecting(&keys(1, "a"), &Role::Controller), &plain).await.unwrap_err();
    assert!(refused.contains("does not speak TLS"), "{refused}");
    assert!(shown.0.lock().unwrap().is_empty());
}

/// Returns the keys of a cluster that has two.
fn both(name: &str) -> (ClusterKeys, PathBuf) {
    let file = std::env::temp_dir().join(format!("spur-tls-{name}-{}", std::process::id()));
    ClusterKey::generate().unwrap().write_new(&file).unwrap();
    ClusterKey::rotate(&file).unwrap();
    (ClusterKeys::read(&file, "a").unwrap(), file)
}

#[tokio::test]
async fn while_a_key_is_replaced_a_controller_is_known_by_either() {
    let (both, file) = both("either");
    let new = {
        ClusterKey::retire(&file).unwrap();
        ClusterKeys::read(&file, "a").unwrap()
    };
    std::fs::remove_file(file).unwrap();
    let public = both.public(&Role::Controller);
    assert_eq!((public.len(), public[0]), (2, new.public(&Role::Controller)[0]));
    let keyring = Keyring::new(both);
    let controller = behind(Shown::default(), Some(tls::server(&keyring, Role::Controller))).await;
    for known in [&public[..], &public[..1], &public[1..]] {
        ask(&Dialer::expecting(known, None), &controller).await.unwrap();
    }
    keyring.replace(new);
    ask(&Dialer::expecting(&public, None), &controller).await.unwrap();
    assert!(ask(&Dialer::expecting(&public[1..], None), &controller).await.is_err(), "the old one is gone");
}
