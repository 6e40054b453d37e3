//! Admission of connections: limits on their number and duration.

use std::time::Duration;

use spur_core::text::address::HostPort;
use spur_proto::listen::{Incoming, Limits, Peer, Proved};
use spur_proto::refusal;
use spur_proto::v1::controller_client::ControllerClient;
use spur_proto::v1::{PingRequest, PingResponse};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::StreamExt;
use tonic::transport::Channel;
use tonic::transport::server::Connected;
use tonic::{Request, Status};

use crate::fake::{Answers, serve_with};

/// Long enough that no time-out is reached while a test runs.
const LONG: Duration = Duration::from_secs(600);

const LIMITS: Limits = Limits { all: 6, strangers: 4, of_one: 4, of_user: 2, patience: LONG, silence: LONG };

/// Authenticates every client as user 7.
struct Believing;

impl Answers for Believing {
    fn ping(&self, request: Request<PingRequest>) -> Result<PingResponse, Status> {
        let peer = request.extensions().get::<Peer>().expect("every connection has another end");
        peer.prove(Proved::User(7)).map_err(|many| refusal::busy(&many.to_string()))?;
        Ok(PingResponse::default())
    }
}

async fn within(answers: Believing, limits: Limits) -> HostPort {
    serve_with(answers, 0, None, limits).await
}

async fn client(address: &HostPort) -> Result<ControllerClient<Channel>, Status> {
    let channel = spur_proto::channel::Dialer::believing().connect(address).await.unwrap();
    let mut client = ControllerClient::new(channel);
    client.ping(PingRequest::default()).await.map(|_| client)
}

async fn silent(address: &HostPort) -> TcpStream {
    TcpStream::connect((address.host.as_str(), address.port)).await.unwrap()
}

/// Waits for the end of a connection, ignoring what the server sends first.
async fn end(mut stream: TcpStream) {
    let mut said = Vec::new();
    // The kind of end does not matter.
    let _ = stream.read_to_end(&mut said).await;
}

#[tokio::test]
async fn a_stranger_has_to_say_who_it_is() {
    let address = within(Believing, Limits { patience: Duration::from_millis(50), ..LIMITS }).await;
    end(silent(&address).await).await;
}

#[tokio::test]
async fn the_oldest_stranger_makes_room() {
    let address = within(Believing, LIMITS).await;
    let oldest = silent(&address).await;
    let mut others = Vec::new();
    for _ in 0..LIMITS.of_one {
        others.push(silent(&address).await);
    }
    end(oldest).await;
    client(&address).await.expect("it has said who it is");
}

#[tokio::test]
async fn a_user_has_so_many_connections_and_no_more() {
    let address = within(Believing, LIMITS).await;
    let (first, _second) = (client(&address).await.unwrap(), client(&address).await.unwrap());
    let refused = client(&address).await.unwrap_err();
    assert_eq!(refusal::error_of(&refused).unwrap().code, refusal::BUSY);
    drop(first);
    // The server notices the end at some later time.
    while client(&address).await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn there_are_so_many_connections_and_no_more() {
    let address = within(Believing, Limits { all: 3, of_user: 9, ..LIMITS }).await;
    let mut there = Vec::new();
    for _ in 0..3 {
        there.push(client(&address).await.unwrap());
    }
    end(silent(&address).await).await;
    there[0].ping(PingRequest::default()).await.expect("those that are there stay");
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let limits = Limits { silence: Duration::from_millis(50), of_user: 1, ..LIMITS };
    let address = within(Believing, limits).await;
    let _first = client(&address).await.unwrap();
    // One user may have one connection: another is admitted once the first was closed.
    while client(&address).await.is_err() {
        tokio::task::yield_now().await;
    }
}

/// A client that is stopped, or whose host is gone, does not react to a server's end.
#[tokio::test]
async fn nobody_keeps_a_daemon_that_ends_from_ending() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string().parse().unwrap();
    let mut incoming = Incoming::tcp(listener, None, LIMITS);
    let _idle = silent(&address).await;
    let mut idle = incoming.next().await.unwrap().unwrap();
    let _asking = silent(&address).await;
    let mut asking = incoming.next().await.unwrap().unwrap();
    for connection in [&idle, &asking] {
        connection.connect_info().prove(Proved::Known).unwrap();
    }
    let busy = asking.connect_info().busy();
    drop(incoming);
    // Both are checked when their time comes, the one with a request under way first.
    let (mut byte, mut other) = ([0], [0]);
    tokio::select! {
        biased;
        read = asking.read(&mut byte) => panic!("its request is under way: {read:?}"),
        read = idle.read(&mut other) => assert_eq!(read.unwrap(), 0),
    }
    drop(busy);
    assert_eq!(asking.read(&mut byte).await.unwrap(), 0);
}
