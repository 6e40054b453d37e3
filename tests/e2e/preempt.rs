//! Jobs that make way for jobs of a higher tier.

use crate::cluster::{Cluster, Setup};

/// Jobs of `urgent` preempt the others: those of `main` wait again; those of `scavenge` are asked to end
/// first, and are not requeued.
const TIERS: &str = r#"
[preempt]
by = "partition"
mode = "requeue"
[[partitions]]
name = "urgent"
nodes = "ALL"
priority_tier = 10
[[partitions]]
name = "scavenge"
nodes = "ALL"
preempt_mode = "cancel"
grace_time = "10m"
"#;

#[test]
fn a_job_of_a_lower_tier_waits_again() {
    let cluster = Cluster::start(&Setup { nodes: 2, more: TIERS, ..Setup::default() });
    let mut client = cluster.client();
    let (mut ready, mut low_gate, mut urgent_gate) =
        (cluster.gate("ready"), cluster.gate("low"), cluster.gate("urgent"));
    let script = "echo ${SLURM_RESTART_COUNT:-0} >>restarts; echo >ready; read x <low";
    let low = cluster.sbatch(&["-N2", "--exclusive", "-o", "low.txt", "--wrap", script]);
    client.wait_for(low, "RUNNING");
    ready.wait();
    let shown = cluster.ok(&["scontrol", "show", "job", &low.to_string()]);
    assert!(shown.contains("PreemptEligibleTime=") && shown.contains("PreemptTime=None"), "{shown}");

    let urgent = cluster.sbatch(&["-p", "urgent", "-N1", "--exclusive", "--wrap", "read x <urgent"]);
    let running = client.wait_for(urgent, "RUNNING");
    let waiting = client.wait(low, |job| job.state == "PENDING" && job.restarts == 1);
    assert_eq!(waiting.nodes, "", "it has nothing any more");
    let said = cluster.ok(&["squeue", "-h", "-S", "i", "-o", "%i %P %t %D %R"]);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with(&format!("{low} main PD 2 (")), "{said}");
    assert_eq!(lines[1], format!("{urgent} urgent R 1 {}", running.nodes));

    urgent_gate.open();
    client.wait_for(urgent, "COMPLETED");
    client.wait_for(low, "RUNNING");
    ready.wait();
    low_gate.open();
    client.wait_for(low, "COMPLETED");
    assert_eq!(cluster.read("restarts"), "0\n1\n");
    let rows = ["sacct", "-n", "-P", "-X", "-D", "-o", "jobid,partition,state,exitcode", "-j"];
    let rows = cluster.rows(&[&rows[..], &[&low.to_string()]].concat());
    assert_eq!(rows, [format!("{low}|main|COMPLETED|0:0"), format!("{low}|main|PREEMPTED|0:0")]);
}

/// Two jobs of one tier are suspended for one of a higher tier. They keep their memory, and go on as soon as
/// it has ended, through a crash of both daemons.
#[test]
fn a_job_of_a_lower_tier_is_suspended_and_goes_on() {
    const SUSPEND: &str = r#"
[preempt]
by = "partition"
mode = "suspend"
[[partitions]]
name = "urgent"
nodes = "ALL"
priority_tier = 10
"#;
    let mut cluster = Cluster::start(&Setup { more: SUSPEND, ..Setup::default() });
    let mut client = cluster.client();
    let (mut ready, mut gate, mut urgent_gate) =
        (cluster.gate("ready"), cluster.gate("gate"), cluster.gate("urgent"));
    let script = "echo $SLURM_JOB_ID up >>log; echo >ready; read x <gate; echo $SLURM_JOB_ID over >>log";
    let low: Vec<u32> = (0..2).map(|_| cluster.sbatch(&["-c2", "--wrap", script])).collect();
    low.iter().for_each(|_| ready.wait());
    let urgent = cluster.sbatch(&["-p", "urgent", "-c4", "--wrap", "echo >ready; read x <urgent"]);
    ready.wait();
    for job in &low {
        client.wait_for(*job, "SUSPENDED");
    }
    let waiting = cluster.sbatch(&["-c4", "--wrap", "echo $SLURM_JOB_ID up >>log"]);
    cluster.kill("spurctld");
    cluster.kill("n1");
    cluster.start_controller();
    cluster.start_node("n1");
    let said = cluster.ok(&["squeue", "-h", "-S", "i", "-o", "%i %t"]);
    assert_eq!(said, format!("{} S\n{} S\n{urgent} R\n{waiting} PD\n", low[0], low[1]));
    urgent_gate.open();
    client.wait_for(urgent, "COMPLETED");
    for job in &low {
        client.wait_for(*job, "RUNNING");
    }
    low.iter().for_each(|_| gate.open());
    client.wait_for(waiting, "COMPLETED");
    let log = cluster.read("log");
    let mut lines: Vec<&str> = log.lines().collect();
    assert_eq!(
        lines.pop(),
        Some(format!("{waiting} up")).as_deref(),
        "those who were suspended come first: {log}"
    );
    lines.sort_unstable();
    let twice = |job: &u32| [format!("{job} over"), format!("{job} up")];
    assert_eq!(lines, low.iter().flat_map(twice).collect::<Vec<_>>(), "each ran once");
    let row = ["sacct", "-n", "-P", "-X", "-o", "state", "-j", &low[0].to_string()];
    assert_eq!(cluster.ok(&row), "COMPLETED\n");
}

/// A job that is asked to end and takes its time.
const STAYS: &str = "#!/bin/sh
trap 'echo TERM >told; until read x <leave; do :; done; exit 7' TERM
echo up >ready
while :; do sleep 1000 & wait $!; done
";

/// Starts the job on `n1`. It writes to the gate `told` when it has been asked to end, and waits at the gate
/// `leave`.
fn one_that_stays(cluster: &Cluster) -> u32 {
    let mut ready = cluster.gate("ready");
    cluster.script("low.sh", STAYS);
    let low = cluster.sbatch(&["-p", "scavenge", "-w", "n1", "-N1", "--exclusive", "low.sh"]);
    ready.wait();
    low
}

/// The controller is killed meanwhile.
#[test]
fn what_is_kept_for_a_job_outlives_the_controller() {
    let mut cluster = Cluster::start(&Setup { nodes: 2, more: TIERS, ..Setup::default() });
    let mut client = cluster.client();
    let (mut told, mut leave, mut urgent_gate) =
        (cluster.gate("told"), cluster.gate("leave"), cluster.gate("urgent"));
    let low = one_that_stays(&cluster);
    let urgent = cluster.sbatch(&["-p", "urgent", "-N2", "--exclusive", "--wrap", "read x <urgent"]);
    told.wait();
    let other = cluster.sbatch(&["-N1", "--wrap", "true"]);
    let kept = |cluster: &Cluster, client: &mut crate::client::Client| {
        client.wait(urgent, |job| job.reason == "Preempting");
        client.wait(other, |job| !job.reason.is_empty() && job.reason != "None");
        let shown = cluster.ok(&["scontrol", "show", "job", &urgent.to_string()]);
        for part in ["JobState=PENDING Reason=Preempting", "SchedNodeList=n[1-2]"] {
            assert!(shown.contains(part), "{part} is not in\n{shown}");
        }
        let states = cluster.ok(&["sinfo", "-h", "-N", "-p", "main", "-o", "%N %T"]);
        assert_eq!(states, "n1 allocated\nn2 planned\n");
        assert_eq!(client.job(low).state, "RUNNING", "its grace time is not over");
        assert_eq!(client.job(other).state, "PENDING", "n2 is not for it");
    };
    kept(&cluster, &mut client);
    cluster.kill("spurctld");
    cluster.start_controller();
    kept(&cluster, &mut client);

    leave.open();
    assert_eq!(client.wait_for(urgent, "RUNNING").nodes, "n[1-2]");
    client.wait_for(low, "PREEMPTED");
    assert_eq!(cluster.ok(&["squeue", "-h", "-t", "all", "-j", &low.to_string(), "-o", "%t"]), "PR\n");
    let row = ["sacct", "-n", "-P", "-o", "jobid,state,exitcode", "-j", &low.to_string()];
    assert_eq!(cluster.ok(&row), format!("{low}|PREEMPTED|7:0\n{low}.batch|FAILED|7:0\n"));
    urgent_gate.open();
    client.wait_for(urgent, "COMPLETED");
    client.wait_for(other, "COMPLETED");
}

/// Repeats the test with all components of a het job, one of which could start at once.
#[test]
fn what_is_kept_for_a_het_job_outlives_the_controller() {
    let mut cluster = Cluster::start(&Setup { nodes: 3, more: TIERS, ..Setup::default() });
    let mut client = cluster.client();
    let (mut told, mut leave, mut urgent_gate) =
        (cluster.gate("told"), cluster.gate("leave"), cluster.gate("urgent"));
    let low = one_that_stays(&cluster);
    let component = ["-p", "urgent", "--exclusive", "-N"];
    let [first, second] = ["2", "1"].map(|nodes| [&component[..], &[nodes]].concat());
    let script = "srun --het-group=0,1 hostname >hosts; read x <urgent";
    let urgent = cluster.sbatch(&[&["--wrap", script], &first[..], &[":"], &second[..]].concat());
    told.wait();
    let other = cluster.sbatch(&["-N1", "--wrap", "true"]);
    let kept = |cluster: &Cluster, client: &mut crate::client::Client| {
        for (component, nodes) in [(urgent, "n[1-2]"), (urgent + 1, "n3")] {
            client.wait(component, |job| job.reason == "Preempting");
            let shown = cluster.ok(&["scontrol", "show", "job", &component.to_string()]);
            let kept = format!("SchedNodeList={nodes}\n");
            for part in ["JobState=PENDING Reason=Preempting", &kept] {
                assert!(shown.contains(part), "{part} is not in\n{shown}");
            }
        }
        client.wait(other, |job| !job.reason.is_empty() && job.reason != "None");
        let states = cluster.ok(&["sinfo", "-h", "-N", "-p", "main", "-o", "%N %T"]);
        assert_eq!(states, "n1 allocated\nn2 planned\nn3 planned\n");
        assert_eq!(client.job(low).state, "RUNNING", "its grace time is not over");
    };
    kept(&cluster, &mut client);
    cluster.kill("spurctld");
    cluster.start_controller();
    kept(&cluster, &mut client);

    leave.open();
    assert_eq!(client.wait_for(urgent, "RUNNING").nodes, "n[1-2]");
    assert_eq!(client.wait_for(urgent + 1, "RUNNING").nodes, "n3");
    client.wait_for(low, "PREEMPTED");
    urgent_gate.open();
    client.wait_for(urgent, "COMPLETED");
    client.wait_for(urgent + 1, "COMPLETED");
    client.wait_for(other, "COMPLETED");
    assert_eq!(cluster.read("hosts").lines().count(), 3, "a step ran in both");
}
