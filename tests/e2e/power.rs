//! Loss of power while the controller works. The controller is recorded at work, and started again on the
//! disk contents that each of many moments would have left.
//!
//! The records also contain its replies: a reply counts from the moment at which its bytes were passed to the
//! kernel. A cut right after a reply that left before its entry was synced would reveal that the entry is
//! missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use spur_powerloss::{Image, Loss, Recorder, Trace};

use crate::client::{batch_job, submissions_answered};
use crate::cluster::{Cluster, Setup, program};

/// Number of clients that submit; each submits [`JOBS`].
const CLIENTS: usize = 4;
const JOBS: usize = 25;
/// Number of moments, besides those of the replies, at which the power fails: each once with everything
/// unsynced lost and once with a part.
const MOMENTS: usize = 60;

/// A moment, and the disk contents after it.
struct Cut {
    when: String,
    image: Image,
    acknowledged: BTreeSet<u32>,
    ended: BTreeSet<u32>,
}

#[test]
fn power_loss_takes_nothing_that_was_acknowledged() {
    let mut cluster = Cluster::prepare(&Setup { cpus: 64, auth: "none", ..Setup::default() });
    let recorder = Recorder::new(&cluster.path("state"), &cluster.path("trace")).unwrap();
    cluster.start_controller_as(recorder.command(program("spurctld")));
    cluster.start_node("n1");
    let names: BTreeMap<u32, String> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                scope.spawn({
                    let (recorder, cluster) = (&recorder, &cluster);
                    move || submit(cluster, recorder, number)
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().expect("the client has not failed")).collect()
    });
    assert_eq!(names.len(), CLIENTS * JOBS, "every job has a number of its own");
    cluster.stop("n1");
    cluster.stop("spurctld");
    let trace = recorder.trace().unwrap();
    trace.check_complete().unwrap();
    let (cuts, replies) = cuts(&trace);
    assert_eq!(replies, CLIENTS * JOBS, "every reply is found in the records");
    assert!(cuts.len() >= 200, "{} cuts are too few", cuts.len());
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut left = Cluster::prepare(&Setup { cpus: 64, auth: "none", ..Setup::default() });
                while let Some(cut) = cuts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(&mut left, cut, &names);
                }
            });
        }
    });
    println!("{} cuts, {} of them right at a reply; {} records", cuts.len(), replies, trace.records().len());
}

/// Submits jobs and waits until each has ended, which is noted in the records.
fn submit(cluster: &Cluster, recorder: &Recorder, number: usize) -> Vec<(u32, String)> {
    let mut client = cluster.client();
    let mut submitted = Vec::new();
    for count in 0..JOBS {
        let name = format!("c{number}-{count}");
        let id =
            client.submit(batch_job(&name, "#!/bin/sh\ntrue\n", &cluster.path("work"))).expect("it is up");
        if count % 5 == 0 {
            client.wait_for(id, "COMPLETED");
            recorder.mark(format!("ended {id}").as_bytes()).expect("the log can be written");
        }
        submitted.push((id, name));
    }
    submitted
}

/// The moments at which the power fails, and the number of replies.
fn cuts(trace: &Trace) -> (Vec<Cut>, usize) {
    let marks: BTreeMap<usize, &[u8]> = trace.marks().collect();
    let every = trace.records().len() / MOMENTS;
    let (mut acknowledged, mut ended) = (BTreeSet::new(), BTreeSet::new());
    let (mut disk, mut cuts, mut replies) = (trace.disk(), Vec::new(), 0);
    for record in trace.records() {
        disk.apply(record).expect("all files were created under the recorder");
        let said = marks.get(&record.number).copied().unwrap_or_default();
        let before = acknowledged.len();
        acknowledged.extend(submissions_answered(said));
        ended.extend(ended_job(said));
        let mut losses = Vec::new();
        if acknowledged.len() > before {
            replies += acknowledged.len() - before;
            losses.push(Loss::Unsynced);
        }
        if record.number % every == 0 {
            losses.extend([Loss::Unsynced, Loss::Some { seed: record.number as u64 }]);
        }
        for loss in losses {
            let when = format!("cut after record {} of {}, {loss:?}", record.number, trace.records().len());
            let (acknowledged, ended) = (acknowledged.clone(), ended.clone());
            cuts.push(Cut { when, image: disk.image(loss), acknowledged, ended });
        }
    }
    (cuts, replies)
}

fn ended_job(said: &[u8]) -> Option<u32> {
    std::str::from_utf8(said).ok()?.strip_prefix("ended ")?.parse().ok()
}

/// Starts a controller on the remaining contents and compares its jobs.
fn check(left: &mut Cluster, cut: &Cut, names: &BTreeMap<u32, String>) {
    let when = &cut.when;
    cut.image.write(&left.path("state")).unwrap();
    left.start_controller();
    let mut client = left.client();
    let mut there: BTreeMap<u32, (String, String)> = BTreeMap::new();
    for job in client.jobs() {
        assert_eq!(names.get(&job.id), Some(&job.name), "{when}: job {} is another one", job.id);
        assert!(
            there.insert(job.id, (job.name, job.state)).is_none(),
            "{when}: job {} is there twice",
            job.id
        );
    }
    for id in &cut.acknowledged {
        assert!(there.contains_key(id), "{when}: job {id}, acknowledged, is lost");
    }
    for id in &cut.ended {
        let state = there.get(id).map(|(_, state)| state.as_str());
        assert_eq!(state, Some("COMPLETED"), "{when}: job {id} had ended");
    }
    let new = client.submit(batch_job("new", "#!/bin/sh\ntrue\n", &left.path("work"))).expect("it works");
    let last = cut.acknowledged.last().copied().unwrap_or(0);
    assert!(new > last && !there.contains_key(&new), "{when}: number {new} is given out again");
    left.kill("spurctld");
    // The daemon's log of hundreds of starts is of no use.
    let _ = fs::remove_file(left.path("log").join("spurctld"));
}
