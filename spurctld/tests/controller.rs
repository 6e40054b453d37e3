//! Tests of the whole controller through its protocol: clients send requests, and the tests act as nodes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "controller/mod.rs"]
mod support;

#[path = "controller/heaviest.rs"]
mod heaviest;

#[path = "controller/limits.rs"]
mod limits;

#[path = "controller/private.rs"]
mod private;

#[path = "controller/requests.rs"]
mod requests;

use spur_proto::refusal::error_of;
use spur_proto::v1;
use spur_proto::v1::order::Order;
use support::{ADA, BOB, Controller, ROOT, claims, job, job_of, jobs, submit, wait_for};
use tonic::Code;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_its_way() {
    let controller = Controller::start("way").await;
    let mut ada = controller.client(ADA).await;
    let id = submit(&mut ada, job("hello")).await;
    let pending = job_of(&mut ada, id).await;
    assert_eq!((pending.name.as_str(), pending.state.as_str(), pending.uid), ("hello", "PENDING", ADA));

    let mut node = controller.welcome_node("n1").await;
    let launch = node.launch().await;
    let attempt = launch.attempt.unwrap();
    assert_eq!((attempt.job_id, attempt.restart), (id, 0));
    let batch = launch.batch.unwrap();
    assert_eq!(batch.script, "#!/bin/sh\ntrue\n");
    assert_eq!(batch.environment, "A=1\0");
    let variable = |name: &str| {
        let found = launch.environment.iter().find(|variable| variable.key == name);
        found.map(|variable| variable.value.clone())
    };
    assert_eq!(variable("SLURM_JOB_NODELIST").as_deref(), Some("n1"));
    assert_eq!(launch.user.unwrap().uid, ADA);
    assert_eq!(launch.part.unwrap().cpus, "0");
    assert_eq!(job_of(&mut ada, id).await.state, "RUNNING");

    node.finish(attempt, 3).await;
    let ended = job_of(&mut ada, id).await;
    assert_eq!(
        (ended.state.as_str(), ended.exit_code, ended.reason.as_str()),
        ("FAILED", 3, "NonZeroExitCode")
    );
    assert!(jobs(&mut ada, v1::JobFilter::default()).await.is_empty(), "ended jobs are not in the queue");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_is_there_after_a_restart() {
    let controller = Controller::start("restart").await;
    let mut ada = controller.client(ADA).await;
    let id = submit(&mut ada, job("kept")).await;
    let directory = controller.stop().await;

    let controller = Controller::start_in(directory).await;
    let mut ada = controller.client(ADA).await;
    assert_eq!(job_of(&mut ada, id).await.name, "kept");
    let script = ada.get_script(v1::GetScriptRequest { job_id: id.to_string() }).await.unwrap();
    assert_eq!(script.into_inner().script, "#!/bin/sh\ntrue\n");
    assert_eq!(submit(&mut ada, job("next")).await, id + 1);
    let mut node = controller.welcome_node("n1").await;
    // The script of the first job is read before its start, so that the second may be launched first.
    let mut launched = [0; 2];
    for job in &mut launched {
        *job = node.launch().await.attempt.unwrap().job_id;
    }
    launched.sort_unstable();
    assert_eq!(launched, [id, id + 1]);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_repeated_is_served_once() {
    let controller = Controller::start("repeat").await;
    let mut ada = controller.client(ADA).await;
    let request = |retry| v1::SubmitRequest { job: Some(job("once")), request_id: vec![7; 16].into(), retry };
    let first = ada.submit(request(false)).await.unwrap().into_inner().job_id;
    let again = ada.submit(request(true)).await.unwrap().into_inner().job_id;
    assert_eq!(first, again);
    let mut bob = controller.client(BOB).await;
    let foreign = bob.submit(request(true)).await.unwrap_err();
    assert_eq!(foreign.code(), Code::PermissionDenied, "an id is only good for the one who made it up");
    let directory = controller.stop().await;

    let controller = Controller::start_in(directory).await;
    let mut ada = controller.client(ADA).await;
    assert_eq!(ada.submit(request(true)).await.unwrap().into_inner().job_id, first);
    assert_eq!(jobs(&mut ada, v1::JobFilter::default()).await.len(), 1);
    // A request with a known id but without `retry` is a new one.
    let careless = ada.submit(request(false)).await.unwrap().into_inner().job_id;
    assert_ne!(careless, first);
    assert_eq!(jobs(&mut ada, v1::JobFilter::default()).await.len(), 2);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_touches_the_jobs_of_others() {
    let controller = Controller::start("others").await;
    let mut ada = controller.client(ADA).await;
    let mut bob = controller.client(BOB).await;
    let mut root = controller.client(ROOT).await;
    let id = submit(&mut ada, job("mine")).await;
    let cancel = || v1::CancelJobsRequest {
        filter: Some(v1::JobFilter { job_ids: vec![id.to_string()], ..v1::JobFilter::default() }),
        ..v1::CancelJobsRequest::default()
    };
    let refused = bob.cancel_jobs(cancel()).await.unwrap().into_inner();
    assert!(refused.cancelled.is_empty());
    assert_eq!(refused.problems[0].error.as_ref().unwrap().code, "ESLURM_ACCESS_DENIED");
    let script = bob.get_script(v1::GetScriptRequest { job_id: id.to_string() }).await.unwrap_err();
    assert_eq!(script.code(), Code::PermissionDenied);
    let drain = v1::UpdateNodesRequest {
        nodes: "n1".into(),
        state: "DRAIN".into(),
        reason: "test".into(),
        ..v1::UpdateNodesRequest::default()
    };
    assert_eq!(bob.update_nodes(drain.clone()).await.unwrap_err().code(), Code::PermissionDenied);
    root.update_nodes(drain).await.unwrap();
    let own = v1::CancelJobsRequest {
        filter: Some(v1::JobFilter { states: vec!["PENDING".into()], ..v1::JobFilter::default() }),
        ..v1::CancelJobsRequest::default()
    };
    assert!(bob.cancel_jobs(own).await.unwrap().into_inner().cancelled.is_empty());
    assert_eq!(root.cancel_jobs(cancel()).await.unwrap().into_inner().cancelled, [id]);
    assert_eq!(job_of(&mut ada, id).await.state, "CANCELLED");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_say_why() {
    let controller = Controller::start("refusals").await;
    let mut ada = controller.client(ADA).await;
    type Case = (&'static str, fn(&mut v1::JobSpec), &'static str);
    let cases: [Case; 3] = [
        ("ESLURM_INVALID_PARTITION_NAME", |job| job.partition = "huge".into(), "main, small"),
        ("ESLURM_INVALID_REQUEST", |job| job.nodes = "0".into(), "--nodes"),
        ("ESLURM_INVALID_REQUEST", |job| job.nice = -9, "--nice"),
    ];
    for (code, spoil, said) in cases {
        let mut spec = job("bad");
        spoil(&mut spec);
        let request = v1::SubmitRequest { job: Some(spec), ..v1::SubmitRequest::default() };
        let status = ada.submit(request).await.unwrap_err();
        let error = error_of(&status).unwrap_or_else(|| panic!("{status}"));
        assert_eq!(error.code, code, "{}", error.message);
        assert!(error.message.contains(said), "{}", error.message);
    }
    let request = v1::ListJobsRequest {
        filter: Some(v1::JobFilter { job_ids: vec!["99".into()], ..v1::JobFilter::default() }),
        ..v1::ListJobsRequest::default()
    };
    assert_eq!(ada.list_jobs(request).await.err().map(|status| status.code()), Some(Code::NotFound));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_asked_for() {
    let controller = Controller::start("key").await;
    let mut liar = controller.client_with(&spur_proto::auth::unsigned(&claims(ROOT))).await;
    let status = liar.ping(v1::PingRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    let socket = controller.directory.join("auth.sock");
    let channel = spur_proto::channel::connect_locally(&socket, &[]).await.unwrap();
    let mut window = v1::identity_client::IdentityClient::new(channel);
    let token = window.mint_token(v1::MintTokenRequest {}).await.unwrap().into_inner().token;
    let mut me = controller.client_with(&token).await;
    assert_eq!(me.ping(v1::PingRequest::default()).await.unwrap().into_inner().cluster_name, "test");
    let id = submit(&mut me, job("signed")).await;
    assert_eq!(job_of(&mut me, id).await.uid, rustix_uid());
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_who_its_connection_proves() {
    let controller = Controller::start("proves").await;
    for (own, named) in [(None, "n1"), (Some("n2"), "n1"), (Some("n1"), "")] {
        let status = controller.attend(own, named).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{own:?} as {named}: {status}");
    }
    controller.attend(Some("n1"), "n1").await.unwrap();
    let keys = controller.keys();
    let token = keys.mint(&v1::TokenClaims { node: "n1".to_owned(), ..claims(ROOT) });
    let mut node = controller.client_with(&token).await;
    let status = node.ping(v1::PingRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "a node's token orders nothing");
    controller.stop().await;
}

/// Returns the uid of the user who runs the tests.
fn rustix_uid() -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().uid()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_known_nodes_are_let_in() {
    let controller = Controller::start("nodes").await;
    let mut stranger = controller.node("n9").await;
    let Some(Order::Refusal(refusal)) = stranger.order().await else { panic!("n9 is not configured") };
    assert!(refusal.error.unwrap().message.contains("n9"));
    assert_eq!(stranger.order().await, None);
    let mut node = controller.welcome_node("n2").await;
    let mut root = controller.client(ROOT).await;
    let mut stream = root.list_nodes(v1::ListNodesRequest::default()).await.unwrap().into_inner();
    let nodes = stream.message().await.unwrap().unwrap().nodes;
    let states: Vec<(&str, &str)> =
        nodes.iter().map(|node| (node.name.as_str(), node.state.as_str())).collect();
    assert_eq!(states, [("n1", "unknown"), ("n2", "idle"), ("n3", "unknown"), ("n4", "unknown")]);
    // Names of the request that no node has are left out of the answer.
    let some = v1::ListNodesRequest { nodes: "n[2,9,1]".into(), ..v1::ListNodesRequest::default() };
    let mut stream = root.list_nodes(some).await.unwrap().into_inner();
    let nodes = stream.message().await.unwrap().unwrap().nodes;
    assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["n1", "n2"]);
    // A newer stream replaces the older one.
    let _newer = controller.welcome_node("n2").await;
    assert_eq!(node.order().await, None);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_is_cancelled_on_its_nodes() {
    let controller = Controller::start("cancel").await;
    let mut ada = controller.client(ADA).await;
    let mut node = controller.welcome_node("n1").await;
    let id = submit(&mut ada, job("long")).await;
    let attempt = node.launch().await.attempt.unwrap();
    let request = v1::CancelJobsRequest {
        filter: Some(v1::JobFilter { job_ids: vec![id.to_string()], ..v1::JobFilter::default() }),
        ..v1::CancelJobsRequest::default()
    };
    assert_eq!(ada.cancel_jobs(request).await.unwrap().into_inner().cancelled, [id]);
    assert_eq!(
        node.order().await,
        Some(Order::Terminate(v1::Terminate {
            attempt: Some(attempt),
            kill: false,
            cause: String::new(),
            exit: Some(v1::JobExit::default())
        }))
    );
    // The configuration sets KillWait to two seconds.
    assert_eq!(
        node.order().await,
        Some(Order::Terminate(v1::Terminate {
            attempt: Some(attempt),
            kill: true,
            cause: String::new(),
            exit: Some(v1::JobExit::default())
        }))
    );
    assert_eq!(job_of(&mut ada, id).await.state, "COMPLETING");
    node.report(attempt, v1::report::Report::NodeDone(v1::NodeDone::default())).await;
    assert_eq!(wait_for(&mut ada, id, "CANCELLED").await.state, "CANCELLED");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_waits_for_the_cpus_of_its_job() {
    let controller = Controller::start("steps").await;
    let mut ada = controller.client(ADA).await;
    let mut node = controller.welcome_node("n1").await;
    let id = submit(&mut ada, job("steps")).await;
    let attempt = node.launch().await.attempt.unwrap();
    let step = move |immediate| v1::CreateStepRequest {
        job_id: id,
        name: "a".into(),
        immediate,
        ..v1::CreateStepRequest::default()
    };
    let first = ada.create_step(step(false)).await.unwrap().into_inner();
    assert_eq!((first.step_id, first.nodes[0].address.as_str()), (0, "127.0.0.1:7000"));
    let busy = ada.create_step(step(true)).await.unwrap_err();
    assert_eq!(error_of(&busy).unwrap().code, "ESLURM_NODES_BUSY");
    let mut waiting = ada.clone();
    let second = tokio::spawn(async move { waiting.create_step(step(false)).await });
    let ended = v1::StepNodeEnded { step_id: 0, ..v1::StepNodeEnded::default() };
    node.report(attempt, v1::report::Report::StepEnded(ended)).await;
    assert_eq!(second.await.unwrap().unwrap().into_inner().step_id, 1);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_submissions_is_answered_in_order() {
    let controller = Controller::start("stream").await;
    let mut ada = controller.client(ADA).await;
    let requests = (0..300).map(|number| {
        let mut spec = job(&format!("j{number}"));
        if number % 100 == 99 {
            spec.partition = "nowhere".into();
        }
        v1::SubmitRequest { job: Some(spec), ..v1::SubmitRequest::default() }
    });
    let mut answers = ada.submit_stream(tokio_stream::iter(requests)).await.unwrap().into_inner();
    let (mut next, mut refused) = (1, 0);
    while let Some(answer) = answers.message().await.unwrap() {
        match answer.result.unwrap() {
            v1::submit_stream_response::Result::Submitted(done) => {
                assert_eq!(done.job_id, next);
                next += 1;
            }
            v1::submit_stream_response::Result::Refused(_) => refused += 1,
        }
    }
    assert_eq!((next, refused), (298, 3));
    assert_eq!(jobs(&mut ada, v1::JobFilter::default()).await.len(), 297);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn accounting_remembers() {
    let controller = Controller::start("accounting").await;
    let mut ada = controller.client(ADA).await;
    let mut node = controller.welcome_node("n1").await;
    let id = submit(&mut ada, job("counted")).await;
    let attempt = node.launch().await.attempt.unwrap();
    node.finish(attempt, 0).await;
    // Accounting rows are written later than the commit, and survive a restart.
    let directory = controller.stop().await;
    let controller = Controller::start_in(directory).await;
    let mut ada = controller.client(ADA).await;
    let mut stream = ada.list_accounting(v1::ListAccountingRequest::default()).await.unwrap().into_inner();
    let rows = stream.message().await.unwrap().expect("there is a row").rows;
    let seen: Vec<(u32, &str, &str)> =
        rows.iter().map(|row| (row.job_id, row.step_id.as_str(), row.state.as_str())).collect();
    assert_eq!(seen, [(id, "", "COMPLETED"), (id, "batch", "COMPLETED")]);
    let mut bob = controller.client(BOB).await;
    let mut others = bob.list_accounting(v1::ListAccountingRequest::default()).await.unwrap().into_inner();
    assert!(others.message().await.unwrap().is_none(), "others' jobs are not shown unless asked for");
    assert_eq!(claims(BOB).uid, BOB);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_what_if_changes_nothing() {
    let controller = Controller::start("whatif").await;
    let _node = controller.welcome_node("n1").await;
    let mut ada = controller.client(ADA).await;
    let request = v1::SubmitRequest { job: Some(job("maybe")), ..v1::SubmitRequest::default() };
    let told = ada.test_submit(request).await.unwrap().into_inner();
    assert_eq!((told.nodes.as_str(), told.partition.as_str()), ("n1", "main"));
    assert!(told.start_time.is_some());
    assert!(jobs(&mut ada, v1::JobFilter::default()).await.is_empty());
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_is_told_when_he_will_start() {
    let controller = Controller::start("starts").await;
    let mut node = controller.welcome_node("n1").await;
    let mut ada = controller.client(ADA).await;
    let whole = |name| v1::JobSpec { sharing: v1::Sharing::Exclusive.into(), ..job(name) };
    submit(&mut ada, whole("runs")).await;
    node.launch().await;
    let mut waiting = Vec::new();
    for name in ["first", "second", "third"] {
        waiting.push(submit(&mut ada, whole(name)).await);
    }
    let nine = submit(&mut ada, v1::JobSpec { tasks: Some(9), ..job("nine") }).await;
    let filter = v1::JobFilter { states: vec!["PENDING".into()], ..v1::JobFilter::default() };
    // By default only the first job may have a planned start; `starts` requests one for each job.
    let others = jobs(&mut ada, filter.clone()).await;
    assert!(others.iter().all(|job| job.id <= waiting[0] || job.start_time.is_none()), "{others:?}");
    let request =
        v1::ListJobsRequest { filter: Some(filter), starts: true, ..v1::ListJobsRequest::default() };
    let mut stream = ada.list_jobs(request).await.unwrap().into_inner();
    let told = stream.message().await.unwrap().unwrap().jobs;
    let job = |id: u32| told.iter().find(|job| job.id == id).unwrap();
    let starts: Vec<i64> = waiting.iter().map(|id| job(*id).start_time.unwrap()).collect();
    assert_eq!([starts[1] - starts[0], starts[2] - starts[1]], [600, 600]);
    assert_eq!(job(waiting[2]).planned_nodes, "n1");
    // Too few nodes are in service for this job.
    assert_eq!((job(nine).start_time, job(nine).num_nodes), (None, 3));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_falls_silent_loses_its_jobs() {
    let silence = "[recovery]\nnode_timeout = \"1s\"\nrequeue_delay = \"0s\"";
    let controller = Controller::start_configured("silence", silence).await;
    let mut ada = controller.client(ADA).await;
    let mut node = controller.welcome_node("n1").await;
    let id = submit(&mut ada, v1::JobSpec { requeue: Some(true), ..job("again") }).await;
    assert_eq!(node.launch().await.attempt, Some(v1::Attempt { job_id: id, restart: 0 }));
    // Without heartbeats the controller closes the connection, and the node must register again.
    while node.order().await.is_some() {}
    let mut other = controller.welcome_node("n2").await;
    assert_eq!(other.launch().await.attempt, Some(v1::Attempt { job_id: id, restart: 1 }));
    assert_eq!(job_of(&mut ada, id).await.restarts, 1);
    // The node still runs the first attempt, which the controller then ends.
    let mut back = controller.node_holding("n1", &[v1::Attempt { job_id: id, restart: 0 }]).await;
    assert!(matches!(back.order().await, Some(Order::Welcome(_))));
    let Some(Order::Terminate(end)) = back.order().await else { panic!("the old attempt has to end") };
    assert_eq!((end.attempt, end.kill), (Some(v1::Attempt { job_id: id, restart: 0 }), true));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_mistakes_leaves_the_old_policy_in_force() {
    let controller = Controller::start("reload").await;
    let file = controller.directory.join("spur.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut root = controller.client(ROOT).await;
    let mut ada = controller.client(ADA).await;
    assert_eq!(ada.reconfigure(v1::ReconfigureRequest {}).await.unwrap_err().code(), Code::PermissionDenied);
    std::fs::write(&file, format!("{text}\nprority = 1\n")).unwrap();
    let refused = error_of(&root.reconfigure(v1::ReconfigureRequest {}).await.unwrap_err()).unwrap();
    assert!(refused.message.contains("prority"), "{}", refused.message);
    submit(&mut ada, job("still")).await;
    let more = "[[partitions]]\nname = \"late\"\nnodes = \"n4\"";
    let other_port = text.replace("listen_addr = \"127.0.0.1:0\"", "listen_addr = \"127.0.0.1:1\"");
    std::fs::write(&file, format!("{other_port}\n{more}\n")).unwrap();
    let changes = root.reconfigure(v1::ReconfigureRequest {}).await.unwrap().into_inner().changes;
    assert!(changes.iter().any(|change| change.contains("partitions")), "{changes:?}");
    assert!(changes.iter().any(|change| change.contains("restart spurctld")), "{changes:?}");
    submit(&mut ada, v1::JobSpec { partition: "late".into(), ..job("new") }).await;
    controller.stop().await;
}
