//! The spool on a failing disk: whichever call fails, a script runs at most once, its end is reported, and
//! nothing hangs.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use spur_powerloss::{Failure, failing};
use spur_proto::v1;
use spur_proto::v1::report::Report;

use crate::world::{Link, SPURD, World, exited};

/// Number of rounds, in each of which one call of spurd fails.
const CALLS: u32 = 48;
/// Number of calls of spurstepd that fail, each in every way; a step of one task makes hardly more.
const STEP_CALLS: u32 = 8;
/// Time for which a daemon with a failing disk may be silent before it is replaced.
const FAILING: Duration = Duration::from_secs(2);
/// Time for which a daemon with a working disk may be silent.
const WORKING: Duration = Duration::from_secs(60);

/// Returns the next report on the job; `None` if the daemon ends or sends none in time.
async fn try_it(world: &mut World, job: u32, script: &str) -> Option<Report> {
    let word = async {
        let mut link = world.welcome(1).await;
        link.order(world.launch(job, script)).await;
        next_report(&mut link).await
    };
    tokio::time::timeout(FAILING, word).await.ok().flatten()
}

/// Returns the next report; `None` if the stream ends first.
async fn next_report(link: &mut Link) -> Option<Report> {
    loop {
        if let v1::node_message::Message::Report(report) = link.up.message().await.ok()??.message? {
            return report.report;
        }
    }
}

#[tokio::test]
async fn whatever_call_fails_nothing_runs_twice_and_nothing_is_stuck() {
    let mut world = World::new().await;
    let mut outcomes: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    let of_spurd = (1..=CALLS).zip(Failure::ALL.into_iter().cycle());
    let of_step = (1..=STEP_CALLS).flat_map(|number| Failure::ALL.map(|failure| (number, failure)));
    let calls = of_spurd.map(|call| ("spurd", call)).chain(of_step.map(|call| ("spurstepd", call)));
    for (job, (program, (number, failure))) in (1..).zip(calls) {
        let what = format!("call {number} of {program} fails: {failure:?}");
        fs::create_dir_all(world.path("disk")).unwrap();
        let ran = world.path(&format!("ran-{job}"));
        let script = format!("echo x >>{}", ran.display());
        let mut command = failing(SPURD, &world.path("disk"), number, failure).unwrap();
        command.env("SPUR_POWERLOSS_FAIL_IN", program);
        world.start_as(command, "disk/spool");
        let first = try_it(&mut world, job, &script).await;
        // The first report was not acknowledged.
        world.end();
        while world.links.try_recv().is_ok() {}
        world.start_as(Command::new(SPURD), "disk/spool");
        let mut link = world.welcome(2).await;
        link.order(world.launch(job, &script)).await;
        let told = tokio::time::timeout(WORKING, link.acknowledged_report()).await;
        let told = told.unwrap_or_else(|_| panic!("{what}: nothing is told of the job; before: {first:?}"));
        let times = fs::read_to_string(&ran).unwrap_or_default().lines().count();
        assert!(times <= 1, "{what}: it ran {times} times; {first:?}, then {told:?}");
        let outcome = match &told {
            told if *told == exited(0) => {
                assert_eq!(times, 1, "{what}: {first:?}");
                "ended"
            }
            Report::BatchEnded(ended) if ended.lost => "lost",
            Report::LaunchFailed(failed) if failed.node_fault => "not launched",
            other => panic!("{what}: {first:?}, then {other:?}"),
        };
        if first == Some(exited(0)) {
            assert_eq!(outcome, "ended", "{what}: an end that was told is told again");
        }
        let before = match first {
            None => "nothing",
            Some(Report::LaunchFailed(_)) => "not launched",
            Some(report) if report == exited(0) => "ended",
            Some(_) => "lost",
        };
        *outcomes.entry((before, outcome)).or_default() += 1;
        world.stop();
        fs::remove_dir_all(world.path("disk")).unwrap();
    }
    println!("one call in each run failed; what was told on that disk, and then: {outcomes:?}");
}
