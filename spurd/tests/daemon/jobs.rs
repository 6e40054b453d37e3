//! Batch jobs from their launch to their end, with restarts of spurd and of the controller.

use std::fs;

use spur_proto::v1;
use spur_proto::v1::order::Order as Down;
use spur_proto::v1::report::Report;

use crate::world::{ATTEMPT, HISTORY, World, ageless, done, exited, frugal};

#[tokio::test]
async fn a_node_registers_and_runs_a_job_to_its_end() {
    let mut world = World::new().await;
    world.start();
    let mut link = world.welcome(1).await;
    let shape = link.hello.shape.clone().unwrap();
    assert_eq!((link.hello.node_name.as_str(), shape.cpus, shape.features), ("n1", 2, vec!["ib".to_owned()]));
    assert_eq!(link.hello.attempts, []);
    link.order(world.launch(42, "echo $SLURM_JOB_ID $SLURMD_NODENAME $SPUR_CONF; exit 3")).await;
    assert_eq!(link.acknowledged_report().await, exited(3));
    let config = world.path("spur.toml");
    assert_eq!(world.file("out-42").await, format!("42 n1 {}\n", config.display()));
    link.terminate(false).await;
    assert_eq!(link.acknowledged_report().await, done());
    link.order(Down::Forget(v1::Forget { attempts: vec![ATTEMPT] })).await;
    // The next job's report shows that the earlier order was carried out.
    link.order(world.launch(43, "exit 0")).await;
    assert_eq!(frugal(link.report().await.report.unwrap()), exited(0));
    for part in ["spawned", "attempts"] {
        assert_eq!(world.spooled(part), 1, "{part}: the second job only");
    }
    for part in ["ended", "jobs"] {
        assert_eq!(world.spooled(part), 0, "{part}");
    }
}

#[tokio::test]
async fn a_job_that_has_the_node_alone_ends_with_one_report_and_one_answer() {
    let mut world = World::new().await;
    world.start();
    let mut link = world.welcome(1).await;
    let Down::Launch(launch) = world.launch(42, "exit 3") else { panic!("no launch") };
    link.order(Down::Launch(v1::Launch { alone: true, ..launch })).await;
    let Report::BatchEnded(ended) = link.report().await.report.unwrap() else { panic!("not ended") };
    assert_eq!((ended.exit_code, ended.done), (3, true));
    drop(link);
    // Without an acknowledgement the report comes again, and the node counts as done.
    let mut link = world.welcome(1).await;
    let held = v1::HeldAttempt { attempt: Some(ATTEMPT), live: false, done: true };
    assert_eq!(link.hello.attempts, [held]);
    let again = link.report().await.report.unwrap();
    assert_eq!(ageless(again), ageless(Report::BatchEnded(ended)));
    link.order(Down::Forget(v1::Forget { attempts: vec![ATTEMPT] })).await;
    link.order(world.launch(43, "exit 0")).await;
    assert_eq!(frugal(link.report().await.report.unwrap()), exited(0));
    for (part, left) in [("spawned", 1), ("attempts", 1), ("ended", 0), ("jobs", 0)] {
        assert_eq!(world.spooled(part), left, "{part}");
    }
}

#[tokio::test]
async fn a_controller_that_shuts_nodes_down_ends_spurd_and_not_the_job() {
    let mut world = World::new().await;
    world.start();
    let link = world.welcome(1).await;
    link.order(world.launch(42, "echo run >> runs; until [ -e go ]; do sleep 0.01; done; exit 5")).await;
    world.file("runs").await;
    link.order(Down::Shutdown(v1::Shutdown {})).await;
    world.ended().await;
    fs::write(world.path("go"), "").unwrap();
    world.start();
    let mut link = world.welcome(1).await;
    assert_eq!(link.acknowledged_report().await, exited(5));
}

#[tokio::test]
async fn orders_given_twice_run_once_and_reports_are_repeated() {
    let mut world = World::new().await;
    world.start();
    let mut link = world.welcome(1).await;
    link.order(world.launch(42, "echo run >> runs")).await;
    link.order(world.launch(42, "echo run >> runs")).await;
    let first = link.report().await;
    assert_eq!(frugal(first.report.clone().unwrap()), exited(0));
    drop(link);
    let mut link = world.welcome(1).await;
    let held = v1::HeldAttempt { attempt: Some(ATTEMPT), live: true, done: false };
    assert_eq!(link.hello.attempts, [held]);
    link.order(world.launch(42, "echo run >> runs")).await;
    let again = link.report().await;
    assert_eq!((again.id, again.attempt), (first.id, first.attempt));
    assert_eq!(ageless(again.report.unwrap()), ageless(first.report.unwrap()));
    assert_eq!(world.file("runs").await, "run\n");
}

#[tokio::test]
async fn jobs_outlive_a_killed_spurd_and_their_real_exit_codes_arrive() {
    let mut world = World::new().await;
    world.start();
    let mut link = world.welcome(1).await;
    link.order(world.launch(42, "echo run >> runs; until [ -e go ]; do sleep 0.01; done; exit 5")).await;
    link.order(world.launch(43, "echo run >> runs43; until [ -e go43 ]; do sleep 0.01; done; exit 6")).await;
    world.file("runs").await;
    world.file("runs43").await;
    world.kill();
    drop(link);
    // One job ends while no spurd runs, the other afterwards.
    fs::write(world.path("go43"), "").unwrap();
    world.start();
    link = world.welcome(1).await;
    assert_eq!(link.hello.attempts.len(), 2);
    link.order(world.launch(42, "echo run >> runs")).await;
    assert_eq!(link.acknowledged_report().await, exited(6));
    fs::write(world.path("go"), "").unwrap();
    assert_eq!(link.acknowledged_report().await, exited(5));
    assert_eq!(
        (world.file("runs").await, world.file("runs43").await),
        ("run\n".to_owned(), "run\n".to_owned())
    );
}

#[tokio::test]
async fn a_job_is_terminated_with_a_word_to_its_user() {
    let mut world = World::new().await;
    world.start();
    let mut link = world.welcome(1).await;
    link.order(world.launch(42, "trap '' TERM; echo up; while :; do sleep 0.1; done")).await;
    world.file("out-42").await;
    link.terminate(false).await;
    link.terminate(true).await;
    let killed = v1::BatchEnded { exit_signal: 9, ..v1::BatchEnded::default() };
    assert_eq!(link.acknowledged_report().await, Report::BatchEnded(killed));
    assert_eq!(link.acknowledged_report().await, done());
    let out = world.file("out-42").await;
    let notice = out.lines().nth(1).unwrap();
    assert!(notice.starts_with("slurmstepd: error: *** JOB 42 ON n1 CANCELLED AT 2"), "{notice}");
    assert!(notice.ends_with(" DUE TO TIME LIMIT ***"), "{notice}");
}

#[tokio::test]
async fn prolog_and_epilog_surround_the_job_and_a_failure_is_the_nodes() {
    let mut world = World::new().await;
    let program = |name: &str, text: &str| {
        let path = world.path(name);
        spur_tests::write_program(&path, text);
        path.display().to_string()
    };
    let log = world.path("log").display().to_string();
    let prolog = program("prolog", &format!("echo prolog $SLURM_JOB_ID >> {log}; [ $SLURM_JOB_ID != 43 ]"));
    let epilog = program("epilog", &format!("echo epilog $SLURM_JOB_ID >> {log}; echo broken >&2; exit 1"));
    world.configure(&format!("[agent]\nprolog = \"{prolog}\"\nepilog = \"{epilog}\""));
    world.start();
    let mut link = world.welcome(1).await;
    link.order(world.launch(42, &format!("echo job >> {log}"))).await;
    assert_eq!(link.acknowledged_report().await, exited(0));
    link.terminate(false).await;
    let Report::NodeDone(failed) = link.acknowledged_report().await else { panic!("not done") };
    assert!(failed.epilog_error.ends_with("exit status: 1: broken"), "{failed:?}");
    assert_eq!(world.file("log").await, "prolog 42\njob\nepilog 42\n");
    link.order(world.launch(43, "touch ran")).await;
    let Report::LaunchFailed(failed) = link.acknowledged_report().await else { panic!("launched") };
    assert!(failed.node_fault && failed.message.contains("exit status: 1"), "{failed:?}");
    assert!(!world.path("ran").exists());
}

#[tokio::test]
async fn a_deposed_controller_is_left() {
    let mut world = World::new().await;
    world.start();
    let link = world.welcome(7).await;
    drop(link);
    let mut old = world.welcome(6).await;
    assert!(!matches!(old.up.message().await, Ok(Some(_))), "the node leaves at once");
    let mut link = world.welcome(8).await;
    link.order(world.launch(42, "exit 4")).await;
    assert_eq!(frugal(link.report().await.report.unwrap()), exited(4));
}

/// The aim is 500 a second with release builds; `cargo test -- --nocapture` prints the rate here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_short_jobs_leaves_one_report_each() {
    let mut world = World::new().await;
    world.start();
    let mut link = world.welcome(1).await;
    let jobs = 200;
    let begun = std::time::Instant::now();
    for job in 1..=jobs {
        link.order(world.launch(job, "exec true")).await;
    }
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < jobs as usize {
        let report = link.report().await;
        assert_eq!(frugal(report.report.unwrap()), exited(0));
        assert!(seen.insert(report.attempt.unwrap().job_id), "reported twice");
    }
    println!("{jobs} jobs in {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_node_obeys_one_history_however_high_the_reign_of_another_is() {
    let mut world = World::new().await;
    world.start();
    let link = world.welcome(5).await;
    assert!(link.hello.history.is_empty(), "a new spool belongs to nobody");
    link.order(world.launch(42, "echo x >begun; until [ -e go ]; do sleep 0.01; done")).await;
    world.file("begun").await;
    drop(link);
    for (history, epoch) in [([8; 16], u64::MAX), ([8; 16], 1)] {
        let mut rogue = world.welcome_of(history, epoch).await;
        assert_eq!((&rogue.hello.history[..], rogue.hello.epoch), (&HISTORY[..], 5));
        rogue.order(world.launch(43, "touch rogue")).await;
        rogue.terminate(true).await;
        // The node leaves the controller.
        while let Ok(Some(_)) = rogue.up.message().await {}
    }
    let mut link = world.welcome(6).await;
    assert_eq!((&link.hello.history[..], link.hello.epoch), (&HISTORY[..], 5), "nothing has changed");
    // An order in the middle of a stream changes nothing either.
    for (history, epoch) in [(HISTORY, u64::MAX), ([8; 16], 6)] {
        let (true_history, true_epoch) = (link.history, link.epoch);
        (link.history, link.epoch) = (history, epoch);
        link.terminate(true).await;
        while let Ok(Some(_)) = link.up.message().await {}
        link = world.welcome_of(true_history, true_epoch).await;
        assert_eq!((&link.hello.history[..], link.hello.epoch), (&HISTORY[..], 6));
    }
    fs::write(world.path("go"), "").unwrap();
    assert_eq!(link.acknowledged_report().await, exited(0));
    assert!(!world.path("rogue").exists());
}
