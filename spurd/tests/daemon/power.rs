//! The spool after a power loss: what ran is never forgotten, and never run again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use spur_powerloss::{Action, Image, Loss, Recorder, Trace};
use spur_proto::v1;
use spur_proto::v1::order::Order as Down;
use spur_proto::v1::report::Report;

use crate::world::{SPURD, World, exited, frugal};

const JOBS: u32 = 120;
/// Number of simulated power losses between two restarts of spurd on the result.
const RESTART_EVERY: u32 = 12;

/// Runs jobs under the recorder; each creates a file of its own, and every second end is acknowledged.
async fn record(world: &mut World) -> Trace {
    fs::create_dir(world.path("disk")).unwrap();
    let recorder = Recorder::new(&world.path("disk"), &world.path("records")).unwrap();
    world.start_as(recorder.command(SPURD), "disk/spool");
    let mut link = world.welcome(1).await;
    let seen_by_recorder: Vec<u8> = recorder
        .command("")
        .get_envs()
        .flat_map(|(name, value)| format!("{}={}\0", name.display(), value.unwrap().display()).into_bytes())
        .collect();
    for job in 1..=JOBS {
        let script = format!("echo > {}/ran-{job}", world.path("disk").display());
        let Down::Launch(mut launch) = world.launch(job, &script) else { unreachable!() };
        let batch = launch.batch.as_mut().unwrap();
        batch.environment = [batch.environment.as_ref(), &seen_by_recorder].concat().into();
        link.order(Down::Launch(launch)).await;
    }
    for _ in 0..JOBS {
        let report = link.report().await;
        assert_eq!(frugal(report.report.unwrap()), exited(0));
        if report.attempt.unwrap().job_id % 2 == 0 {
            link.order(Down::Acknowledge(v1::Acknowledge { report_ids: vec![report.id] })).await;
        }
    }
    world.kill();
    recorder.trace().unwrap()
}

/// Returns the records at which user code became visible, by job.
fn runs(trace: &Trace) -> BTreeMap<u32, usize> {
    let mut runs = BTreeMap::new();
    for record in trace.records() {
        if let Action::Create { path, .. } = &record.action
            && let Some(job) = path.to_str().and_then(|path| path.strip_prefix("ran-"))
        {
            runs.insert(job.parse().unwrap(), record.number);
        }
    }
    runs
}

/// Returns the jobs of whose batch step an image has a marker.
fn markers(image: &Image, kind: &str) -> BTreeSet<u32> {
    let names =
        image.files.keys().filter_map(|path| path.strip_prefix("spool").ok()?.strip_prefix(kind).ok());
    names.map(|name| name.to_str().unwrap().split('.').next().unwrap().parse().unwrap()).collect()
}

#[tokio::test]
async fn what_ran_before_the_power_went_is_reported_lost_and_not_run_again() {
    let mut world = World::new().await;
    let trace = record(&mut world).await;
    let runs = runs(&trace);
    assert_eq!(runs.len(), JOBS as usize);
    let (mut disk, mut ran) = (trace.disk(), BTreeSet::new());
    for record in trace.records() {
        disk.apply(record).unwrap();
        let Some((&job, _)) = runs.iter().find(|(_, at)| **at == record.number) else { continue };
        ran.insert(job);
        for loss in [Loss::Unsynced, Loss::Some { seed: job.into() }] {
            let image = disk.image(loss);
            let (spawned, ended) = (markers(&image, "spawned"), markers(&image, "ended"));
            let forgotten: Vec<&u32> =
                ran.iter().filter(|job| !spawned.contains(job) && !ended.contains(job)).collect();
            assert!(forgotten.is_empty(), "{loss:?} as job {job} ran: {forgotten:?} forgotten");
            if job % RESTART_EVERY == 0 && loss == Loss::Unsynced {
                image.write(&world.path("found")).unwrap();
                come_back(&mut world, &spawned, job).await;
            }
        }
    }
}

/// Starts spurd on the state after the power loss: it reports every attempt with an unknown end, and obeys no
/// second order.
async fn come_back(world: &mut World, spawned: &BTreeSet<u32>, job: u32) {
    world.start_as(Command::new(SPURD), "found/spool");
    let mut link = world.welcome(2).await;
    let mut told = BTreeSet::new();
    while told.len() < spawned.len() {
        let report = link.report().await;
        let Some(Report::BatchEnded(ended)) = report.report else { panic!("{report:?}") };
        assert!(ended.lost || ended.exit_code == 0, "{ended:?}");
        told.insert(report.attempt.unwrap().job_id);
    }
    assert_eq!(&told, spawned);
    link.order(world.launch(job, "touch again")).await;
    link.order(world.launch(JOBS + 1, "exit 0")).await;
    assert_eq!(link.report().await.attempt.unwrap().job_id, JOBS + 1, "only the new job runs");
    assert!(!world.path("again").exists());
    world.stop();
}
