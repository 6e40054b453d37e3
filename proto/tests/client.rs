//! A client's connection to a controller that breaks connections, is busy, or refuses; and the layers below.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod fake;
#[path = "transport/listen.rs"]
mod listen;
#[path = "transport/tls.rs"]
mod trust;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fake::{Answers, serve, serve_with, somebody};
use spur_core::text::address::HostPort;
use spur_proto::auth;
use spur_proto::channel::connect_locally;
use spur_proto::client::{CallError, Connection, Identity};
use spur_proto::keys::{ClusterKey, ClusterKeys, Keyring, Role};
use spur_proto::listen::Limits;
use spur_proto::refusal;
use spur_proto::tls;
use spur_proto::v1::identity_client::IdentityClient;
use spur_proto::v1::identity_server::{self, IdentityServer};
use spur_proto::v1::{
    Error, MintTokenRequest, MintTokenResponse, PingRequest, PingResponse, SubmitRequest, SubmitResponse,
    TokenClaims,
};
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Code, Request, Response, Status};

/// Gives these answers, one after the other, and records the requests.
struct Scripted {
    answers: Mutex<Vec<Result<SubmitResponse, Status>>>,
    asked: Arc<Mutex<Vec<SubmitRequest>>>,
}

impl Answers for Scripted {
    fn submit(&self, request: Request<SubmitRequest>) -> Result<SubmitResponse, Status> {
        refusal::check_version(request.metadata())?;
        let claims = auth::read_unverified(auth::token_of(request.metadata()).unwrap(), 0).unwrap();
        assert_eq!((claims.uid, claims.user.as_str()), (1000, "ada"));
        self.asked.lock().unwrap().push(request.into_inner());
        self.answers.lock().unwrap().remove(0)
    }
}

fn job(job_id: u32) -> Result<SubmitResponse, Status> {
    Ok(SubmitResponse { job_id, ..SubmitResponse::default() })
}

async fn submit(
    answers: Vec<Result<SubmitResponse, Status>>,
    broken: usize,
) -> (Result<SubmitResponse, CallError>, Vec<SubmitRequest>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let controller = serve(Scripted { answers: Mutex::new(answers), asked: asked.clone() }, broken).await;
    let mut connection = Connection::new(&[controller], somebody()).unwrap();
    let answer = connection
        .change(SubmitRequest::default(), async |mut controller, r| controller.submit(r).await)
        .await;
    let asked = asked.lock().unwrap().clone();
    (answer, asked)
}

#[tokio::test]
async fn a_change_is_asked_for_again_under_the_same_id() {
    let restarting = refusal::status(Code::Unavailable, &Error::new("ESLURM_IN_STANDBY_MODE", "starting"));
    let answers = vec![Err(refusal::busy("full")), Err(restarting), Err(Status::unknown("reset")), job(42)];
    let (answer, asked) = submit(answers, 0).await;
    assert_eq!(answer.unwrap().job_id, 42);
    assert_eq!(asked.len(), 4);
    assert_eq!(asked[0].request_id.len(), 16);
    assert!(asked.iter().all(|request| request.request_id == asked[0].request_id));
    assert_eq!(asked.iter().map(|request| request.retry).collect::<Vec<_>>(), [false, true, true, true]);
}

#[tokio::test]
async fn a_broken_connection_is_made_anew() {
    let (answer, asked) = submit(vec![job(7)], 2).await;
    assert_eq!(answer.unwrap().job_id, 7);
    assert!(asked.len() == 1 && asked[0].retry, "it may have been heard before");
}

#[tokio::test]
async fn two_changes_have_two_ids() {
    let (_, first) = submit(vec![job(1)], 0).await;
    let (_, second) = submit(vec![job(2)], 0).await;
    assert_ne!(first[0].request_id, second[0].request_id);
}

#[tokio::test]
async fn what_is_refused_is_not_asked_for_again() {
    let error = Error::new("ESLURM_INVALID_PARTITION_NAME", "Invalid partition name specified");
    let (answer, asked) = submit(vec![Err(refusal::status(Code::InvalidArgument, &error))], 0).await;
    let refused = answer.unwrap_err();
    assert_eq!(refused.code(), Some("ESLURM_INVALID_PARTITION_NAME"));
    assert_eq!(refused.to_string(), "Invalid partition name specified");
    assert_eq!(asked.len(), 1);
}

struct Present;

impl Answers for Present {
    fn ping(&self, _: Request<PingRequest>) -> Result<PingResponse, Status> {
        Ok(PingResponse { cluster_name: "test".into(), ..PingResponse::default() })
    }
}

async fn nobody() -> HostPort {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string().parse().unwrap()
}

#[tokio::test]
async fn the_controller_that_answers_is_found() {
    let controllers = [nobody().await, serve(Present, 0).await];
    let mut connection = Connection::new(&controllers, somebody()).unwrap().with_patience(Duration::ZERO);
    let answer =
        connection.read(PingRequest::default(), async |mut controller, r| controller.ping(r).await).await;
    assert_eq!(answer.unwrap().cluster_name, "test");
    assert_eq!(connection.address(), controllers[1].to_string());
}

#[tokio::test]
async fn nobody_at_all_is_an_error_that_names_the_place() {
    let address = nobody().await;
    let mut connection =
        Connection::new(std::slice::from_ref(&address), somebody()).unwrap().with_patience(Duration::ZERO);
    let answer =
        connection.read(PingRequest::default(), async |mut controller, r| controller.ping(r).await).await;
    let text = answer.unwrap_err().to_string();
    assert_eq!(text, format!("Unable to contact slurm controller (connect failure) at {address}"));
    assert!(Connection::new(&[], somebody()).is_err());
}

/// Mints tokens of short life, and counts them.
struct Mint {
    keyring: Keyring,
    minted: Arc<AtomicUsize>,
    expires: i64,
}

#[tonic::async_trait]
impl identity_server::Identity for Mint {
    async fn mint_token(&self, _: Request<MintTokenRequest>) -> Result<Response<MintTokenResponse>, Status> {
        self.minted.fetch_add(1, Ordering::SeqCst);
        let claims = TokenClaims { uid: 7, expires: self.expires, ..TokenClaims::default() };
        let keys = self.keyring.now();
        let controller = keys.public(&Role::Controller)[0].bytes().to_vec();
        Ok(Response::new(MintTokenResponse {
            token: keys.mint(&claims),
            expires: self.expires,
            controller_keys: vec![controller.into()],
            controller_port: 0,
        }))
    }
}

/// Accepts only tokens signed with a key.
struct Guarded(Keyring);

impl Answers for Guarded {
    fn ping(&self, request: Request<PingRequest>) -> Result<PingResponse, Status> {
        let token = auth::token_of(request.metadata()).unwrap();
        assert_eq!(self.0.now().verify(token, 0).unwrap().uid, 7);
        Ok(PingResponse::default())
    }
}

async fn pings_with_tokens_until(expires: i64, name: &str) -> usize {
    let socket = std::env::temp_dir().join(format!("spur-{name}-{}.sock", std::process::id()));
    let minted = Arc::new(AtomicUsize::new(0));
    let keyring = Keyring::new(ClusterKeys::of(ClusterKey::generate().unwrap(), "test"));
    let mint = Mint { keyring: keyring.clone(), minted: minted.clone(), expires };
    let listener = UnixListenerStream::new(UnixListener::bind(&socket).unwrap());
    let service = IdentityServer::new(mint);
    tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(listener));
    let tls = tls::server(&keyring, Role::Controller);
    let controller = serve_with(Guarded(keyring), 0, Some(tls), Limits::for_process(1000)).await;
    let mut connection = Connection::new(
        &[controller],
        Identity::Socket { path: socket.clone(), served_by: vec![], certified: None },
    )
    .unwrap();
    for _ in 0..3 {
        connection
            .read(PingRequest::default(), async |mut controller, r| controller.ping(r).await)
            .await
            .unwrap();
    }
    std::fs::remove_file(socket).unwrap();
    minted.load(Ordering::SeqCst)
}

#[tokio::test]
async fn a_token_is_fetched_once_and_again_before_it_expires() {
    assert_eq!(pings_with_tokens_until(i64::MAX, "long").await, 1);
    assert_eq!(pings_with_tokens_until(1, "short").await, 3);
}

#[tokio::test]
async fn a_connection_to_a_socket_is_not_made_again() {
    let socket = std::env::temp_dir().join(format!("spur-once-{}.sock", std::process::id()));
    let keyring = Keyring::new(ClusterKeys::of(ClusterKey::generate().unwrap(), "test"));
    let minted = Arc::new(AtomicUsize::new(0));
    let open = || {
        let mint = Mint { keyring: keyring.clone(), minted: minted.clone(), expires: 1 };
        let listener = UnixListenerStream::new(UnixListener::bind(&socket).unwrap());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let stopped = async { stopped.await.unwrap_or_default() };
        let server = tonic::transport::Server::builder().add_service(IdentityServer::new(mint));
        (stop, tokio::spawn(server.serve_with_incoming_shutdown(listener, stopped)))
    };
    let (stop, served) = open();
    let mut client = IdentityClient::new(connect_locally(&socket, &[]).await.unwrap());
    client.mint_token(MintTokenRequest {}).await.unwrap();
    drop(stop);
    served.await.unwrap().unwrap();
    std::fs::remove_file(&socket).unwrap();
    // The server may now be another daemon, which offers less.
    let (_stop, _served) = open();
    client.mint_token(MintTokenRequest {}).await.unwrap_err();
    std::fs::remove_file(&socket).unwrap();
    assert_eq!(minted.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_host_without_a_daemon_is_told_of() {
    let path = "/nonexistent/auth.sock".into();
    let identity = Identity::Socket { path, served_by: vec![], certified: None };
    let mut connection = Connection::new(&[nobody().await], identity).unwrap().with_patience(Duration::ZERO);
    let answer =
        connection.read(PingRequest::default(), async |mut controller, r| controller.ping(r).await).await;
    let text = answer.unwrap_err().to_string();
    assert!(text.contains("/nonexistent/auth.sock") && text.contains("spurd or spurctld"), "{text}");
}
