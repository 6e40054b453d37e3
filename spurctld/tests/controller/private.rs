//! Tests of `private_data` and of permissions: the records of others that a user can see and use.

use std::time::{SystemTime, UNIX_EPOCH};

use spur_proto::{refusal, v1};
use tonic::{Code, Status};

use crate::support::{ADA, BOB, Client, Controller, ROOT, claims, job, job_of, jobs, submit};

/// Starts a controller that hides everything that `private_data` can hide.
async fn close(name: &str) -> Controller {
    let hidden = "private_data = [\"Jobs\", \"nodes\", \"partitions\", \"reservations\", \"usage\"]\n[auth]";
    Controller::start_edited(name, "[auth]", hidden).await
}

async fn accounted(client: &mut Client, request: v1::ListAccountingRequest) -> Vec<u32> {
    let mut stream = client.list_accounting(request).await.unwrap().into_inner();
    let mut ids = Vec::new();
    while let Some(page) = stream.message().await.unwrap() {
        ids.extend(page.rows.iter().map(|row| row.job_id));
    }
    ids
}

fn named(id: u32) -> v1::JobFilter {
    v1::JobFilter { job_ids: vec![id.to_string()], ..v1::JobFilter::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn others_jobs_are_not_there() {
    let controller = close("private-jobs").await;
    let (mut ada, mut bob) = (controller.client(ADA).await, controller.client(BOB).await);
    let mut root = controller.client(ROOT).await;
    let (hers, his) = (submit(&mut ada, job("hers")).await, submit(&mut bob, job("his")).await);
    let ids = |jobs: Vec<v1::Job>| jobs.iter().map(|job| job.id).collect::<Vec<_>>();
    assert_eq!(ids(jobs(&mut ada, v1::JobFilter::default()).await), [hers]);
    assert_eq!(ids(jobs(&mut root, v1::JobFilter::default()).await), [hers, his]);
    assert_eq!(job_of(&mut bob, his).await.name, "his");

    let is_unknown = |status: Status| status.message() == "Invalid job id specified";
    let filter = Some(named(hers));
    let list = v1::ListJobsRequest { filter: filter.clone(), ..v1::ListJobsRequest::default() };
    assert!(is_unknown(bob.list_jobs(list).await.unwrap_err()));
    let steps = v1::ListStepsRequest { filter: filter.clone() };
    assert!(is_unknown(bob.list_steps(steps).await.unwrap_err()));
    let priorities = v1::ListPrioritiesRequest { filter };
    assert!(is_unknown(bob.list_priorities(priorities).await.unwrap_err()));
    let watched = v1::WatchJobsRequest { job_ids: vec![hers] };
    assert!(is_unknown(bob.watch_jobs(watched).await.unwrap_err()));
    let explained = v1::ExplainJobRequest { job_id: hers };
    assert!(is_unknown(bob.explain_job(explained).await.unwrap_err()));
    ada.explain_job(explained).await.unwrap();

    let all = || v1::ListAccountingRequest { all_users: true, ..v1::ListAccountingRequest::default() };
    assert_eq!(accounted(&mut bob, all()).await, [his]);
    assert_eq!(accounted(&mut root, all()).await, [hers, his]);
    let of_ada = v1::ListAccountingRequest { users: vec![format!("u{ADA}")], ..all() };
    assert!(accounted(&mut bob, of_ada).await.is_empty());
    let by_number = v1::ListAccountingRequest { job_ids: vec![hers.to_string()], ..all() };
    assert!(accounted(&mut bob, by_number).await.is_empty());
    let runaway = v1::ListAccountingRequest { runaway: true, ..all() };
    let refused = bob.list_accounting(runaway.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let refused = bob.fix_runaway_jobs(v1::FixRunawayJobsRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(accounted(&mut root, runaway).await.is_empty());
    // Users may be given by name and by uid.
    let both = v1::ListAccountingRequest { users: vec![format!("u{ADA}"), BOB.to_string()], ..all() };
    assert_eq!(accounted(&mut root, both).await, [hers, his]);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_partitions_and_reservations_are_hidden() {
    let controller = close("private-nodes").await;
    let (mut ada, mut bob) = (controller.client(ADA).await, controller.client(BOB).await);
    let mut root = controller.client(ROOT).await;
    let setting = |key: &str, value: &str| v1::KeyValue { key: key.to_owned(), value: value.to_owned() };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().to_string();
    let settings = vec![
        setting("ReservationName", "hers"),
        setting("StartTime", &now),
        setting("Duration", "60"),
        setting("Nodes", "n3"),
        setting("Users", &format!("u{ADA}")),
    ];
    let request = v1::CreateReservationRequest { settings, ..v1::CreateReservationRequest::default() };
    root.create_reservation(request).await.unwrap();
    for client in [&mut ada, &mut root] {
        let shown = client.list_reservations(v1::ListReservationsRequest::default()).await.unwrap();
        assert_eq!(shown.into_inner().reservations.len(), 1);
    }
    let shown = bob.list_reservations(v1::ListReservationsRequest::default()).await.unwrap();
    assert!(shown.into_inner().reservations.is_empty());
    let by_name = v1::ListReservationsRequest { names: vec!["hers".to_owned()] };
    let refused = bob.list_reservations(by_name).await.unwrap_err();
    assert!(refused.message().contains("there is no reservation hers"), "{refused}");
    // A refusal does not reveal whether a hidden name exists.
    for (reservation, partition, said) in [
        ("hers", "", "there is no reservation hers"),
        ("his", "", "there is no reservation his"),
        ("", "none", "'none'"),
    ] {
        let job = v1::JobSpec { reservation: reservation.into(), partition: partition.into(), ..job("x") };
        let request = v1::SubmitRequest { job: Some(job), ..v1::SubmitRequest::default() };
        let refused = bob.submit(request).await.unwrap_err();
        assert!(refused.message().ends_with(said), "{refused}");
    }

    let denied = |status: Status| status.code() == Code::PermissionDenied;
    assert!(denied(ada.list_nodes(v1::ListNodesRequest::default()).await.err().unwrap()));
    assert!(denied(ada.list_partitions(v1::ListPartitionsRequest::default()).await.err().unwrap()));
    root.list_nodes(v1::ListNodesRequest::default()).await.unwrap();
    root.list_partitions(v1::ListPartitionsRequest::default()).await.unwrap();
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_in_one_of_its_groups_may_use_a_partition() {
    let closed = "name = \"small\"\nallow_groups = [\"staff\", \"guests\"]";
    let controller = Controller::start_edited("groups", "name = \"small\"", closed).await;
    let small = || v1::JobSpec { partition: "small".to_owned(), ..job("small") };
    let request = || v1::SubmitRequest { job: Some(small()), ..v1::SubmitRequest::default() };
    let of = |groups: &[&str]| {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        controller.keys().mint(&v1::TokenClaims { groups, ..claims(ADA) })
    };
    let mut member = controller.client_with(&of(&["clerks", "guests"])).await;
    submit(&mut member, small()).await;
    for groups in [&["clerks"][..], &[]] {
        let refused = controller.client_with(&of(groups)).await.submit(request()).await.unwrap_err();
        assert!(refused.message().contains("small"), "{refused}");
    }
    submit(&mut controller.client(ROOT).await, small()).await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_user_has_so_many_connections() {
    let few = "max_connections_per_user = 2\n[auth]";
    let controller = Controller::start_edited("connections", "[auth]", few).await;
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut client = controller.client(ADA).await;
        client.ping(v1::PingRequest::default()).await.unwrap();
        kept.push(client);
    }
    let refused = controller.client(ADA).await.ping(v1::PingRequest::default()).await.unwrap_err();
    assert_eq!(refusal::error_of(&refused).unwrap().code, refusal::BUSY);
    for uid in [BOB, ROOT, ROOT, ROOT] {
        let mut client = controller.client(uid).await;
        client.ping(v1::PingRequest::default()).await.unwrap();
        kept.push(client);
    }
    controller.stop().await;
}
