//! Sends every request of the service at its heaviest, as one user, and limits three costs. These are the
//! work of the owner per request, the items examined per turn of a list, and the length of messages. A method
//! that is missing from the table fails the test.

use std::collections::BTreeSet;

use prost::Message;
use prost_types::FileDescriptorSet;
use spur_proto::channel::Dialer;
use spur_proto::client::Introduction;
use spur_proto::keys::Role;
use spur_proto::v1;
use tokio_stream::StreamExt;
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;

use crate::requests::{AWAITED, Raw, Read, WAITING, jobs, table};
use crate::support::{ADA, Controller, ROOT, claims};

/// Maximum number of entries and dependencies that the owner examines for one request.
const MOST_OF_OWNER: u64 = 3000;
/// Maximum number of records, nodes and names that one page of a list examines.
const MOST_OF_A_TURN: u64 = 4096;
/// Maximum number of bytes in one message.
const MOST_BYTES: usize = 4 << 20;

/// Returns the names of all methods of the controller's service.
fn methods() -> BTreeSet<String> {
    let files = FileDescriptorSet::decode(spur_proto::DESCRIPTORS).unwrap().file;
    let services = files.into_iter().flat_map(|file| file.service);
    let controller = services.into_iter().find(|service| service.name() == "Controller").unwrap();
    controller.method.iter().map(|method| method.name().to_owned()).collect()
}

/// Starts a controller with many jobs that depend on many others.
async fn world() -> Controller {
    let controller = Controller::start("heaviest").await;
    let mut ada = controller.client(ADA).await;
    let answers: Vec<_> =
        ada.submit_stream(tokio_stream::iter(jobs())).await.unwrap().into_inner().collect().await;
    assert_eq!(answers.into_iter().filter(Result::is_ok).count(), (AWAITED + WAITING) as usize);
    controller
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_of_one_user_costs_others_more_than_its_share() {
    let user = format!("u{ADA}");
    let named: BTreeSet<String> = table(&user).iter().map(|(method, ..)| (*method).to_owned()).collect();
    assert_eq!(named, methods(), "the table has every method of the service");
    let controller = world().await;
    let dialer = Dialer::expecting(&controller.keys().public(&Role::Controller), None);
    let channel = dialer.connect(controller.address()).await.unwrap();
    let introduction = Introduction::new(&controller.keys().mint(&claims(ADA))).unwrap();
    let channel = tonic::service::interceptor::InterceptedService::new(channel, introduction);
    let mut ada = Grpc::new(channel).max_decoding_message_size(spur_proto::channel::MAX_REPLY);
    let mut root = controller.client(ROOT).await;
    let mut figures =
        async |reset| root.get_statistics(v1::GetStatisticsRequest { reset }).await.unwrap().into_inner();
    for (method, read, request) in table(&user) {
        figures(true).await;
        let path: PathAndQuery = format!("/spur.v1.Controller/{method}").parse().unwrap();
        ada.ready().await.unwrap();
        let (mut bytes, mut count) = (0, 0);
        // A refusal is an answer, too, and has no messages.
        if let Ok(answer) = ada.streaming(Request::new(tokio_stream::once(request)), path, Raw).await {
            let mut answer = answer.into_inner();
            let most = match read {
                Read::All => usize::MAX,
                Read::Some(most) => most,
            };
            while count < most
                && let Ok(Some(message)) = answer.message().await
            {
                bytes = bytes.max(message.len());
                count += 1;
            }
        }
        let found = figures(false).await;
        let (owner, lists) = (found.owner.unwrap(), found.lists.unwrap());
        println!(
            "{method}: owner {owner:?}, lists {lists:?}, {count} messages, the longest of {bytes} bytes"
        );
        assert!(owner.items <= MOST_OF_OWNER, "{method}: {owner:?}");
        assert!(lists.items <= MOST_OF_A_TURN, "{method}: {lists:?}");
        assert!(bytes <= MOST_BYTES, "{method}: {bytes}");
    }
    let left = crate::support::jobs(&mut controller.client(ADA).await, v1::JobFilter::default()).await;
    assert_eq!(left.len(), 0, "all jobs were cancelled");
    controller.stop().await;
}
