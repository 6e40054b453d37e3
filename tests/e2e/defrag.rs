//! Moves of jobs that let another job start in one domain.

use crate::cluster::{Cluster, Setup};

/// Four racks of four nodes.
const RACKS: &str = r#"[recovery]
requeue_delay = "0s"
[topology]
plugin = "tree"
layers = ["rack", "row"]
[[topology.switches]]
name = "r0"
nodes = "n[1-4]"
[[topology.switches]]
name = "r1"
nodes = "n[5-8]"
[[topology.switches]]
name = "r2"
nodes = "n[9-12]"
[[topology.switches]]
name = "r3"
nodes = "n[13-16]"
[[topology.switches]]
name = "row"
switches = "r[0-3]"
"#;

/// One node of each rack is allocated, so no job can have a whole rack until one job has moved. The job
/// with the latest checkpoint loses least, and its move survives a restart of the controller.
#[test]
fn a_job_moves_and_another_starts_in_one_rack() {
    let mut cluster = Cluster::start(&Setup { nodes: 16, cpus: 1, more: RACKS, ..Setup::default() });
    let mut client = cluster.client();
    let one = ["-N1", "--exclusive", "--requeue", "-t30", "-o", "/dev/null", "--wrap", "sleep 1000"];
    let jobs: Vec<u32> = (0..16).map(|_| cluster.sbatch(&one)).collect();
    let places: Vec<String> = jobs.iter().map(|job| client.wait_for(*job, "RUNNING").nodes).collect();
    let stays = |name: &str| ["n1", "n5", "n9", "n13"].contains(&name);
    for (job, _) in jobs.iter().zip(&places).filter(|(_, place)| !stays(place)) {
        cluster.ok(&["scancel", &job.to_string()]);
        client.wait_for(*job, "CANCELLED");
    }
    let on = |name: &str| jobs[places.iter().position(|place| place == name).unwrap()];
    // All jobs have run for about the same time; only the third one has a checkpoint.
    cluster.wait_until(|cluster| {
        let shown = cluster.ok(&["squeue", "-h", "-j", &on("n9").to_string(), "-O", "TimeUsed:.0"]);
        shown.trim().rsplit(':').next().and_then(|seconds| seconds.parse::<u32>().ok()) > Some(0)
    });
    let saver = on("n9").to_string();
    let report = ["scontrol", "update", &format!("JobId={saver}"), "LastCheckpoint=now"];
    cluster.ok(&report);
    let refused = cluster.fails(&report);
    assert!(refused.contains("report one in"), "{refused}");
    assert!(cluster.ok(&["scontrol", "show", "job", &saver]).contains("LastCheckpoint=20"));

    let big = cluster.sbatch(&["-N4", "--exclusive", "--gather=must:rack", "-t20", "--wrap", "sleep 1000"]);
    let dry = cluster.ok(&["spur", "defrag"]);
    assert!(dry.contains(&format!("move 1: job {saver} of ")) && dry.contains("from n9 to "), "{dry}");
    assert!(dry.contains(&format!("job {big} then fits in rack r2 on n[9-12], waste 0")), "{dry}");
    assert!(dry.ends_with("nothing was moved; --apply makes these moves\n"), "{dry}");
    assert_eq!(client.job(on("n9")).state, "RUNNING", "a dry run moves nothing");
    let wish = ["spur", "defrag", "--for", "-N 5 --exclusive --gather=must:rack"];
    assert!(cluster.fails(&wish).contains("the largest rack has 4 nodes"), "what can never be is refused");

    cluster.ok(&["spur", "defrag", "--apply", &big.to_string()]);
    cluster.kill("spurctld");
    cluster.start_controller();
    let started = client.wait_for(big, "RUNNING");
    assert_eq!(started.nodes, "n[9-12]");
    let moved = client.wait(on("n9"), |job| job.state == "RUNNING" && job.restarts == 1);
    assert!(!["n9", "n10", "n11", "n12"].contains(&moved.nodes.as_str()), "{}", moved.nodes);
    for name in ["n1", "n5", "n13"] {
        let job = client.job(on(name));
        assert_eq!((job.state.as_str(), job.restarts), ("RUNNING", 0));
    }
}
