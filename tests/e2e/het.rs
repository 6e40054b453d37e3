//! Het jobs: components that start together, steps in them, and a controller that is killed around their
//! start.

use std::time::Duration;

use crate::chance;
use crate::cluster::{Cluster, Setup};

/// Number of times the controller is killed.
const KILLS: u32 = 6;

/// A script whose components each have a step, first one after the other and then at once.
const SCRIPT: &str = "#!/bin/sh
#SBATCH -n 1 -o out -e err --job-name=both
#SBATCH hetjob
#SBATCH -N 2 --exclusive
echo batch $SLURM_JOB_ID $SLURM_HET_SIZE $SLURM_JOB_ID_HET_GROUP_0 $SLURM_JOBID_HET_GROUP_1
echo nodes $SLURM_JOB_NODELIST $SLURM_JOB_NODELIST_HET_GROUP_0 $SLURM_JOB_NODELIST_HET_GROUP_1
echo count $SLURM_JOB_NUM_NODES $SLURM_NNODES_HET_GROUP_1 $SLURM_NPROCS_HET_GROUP_0
srun sh -c 'echo own $SLURM_JOB_ID.$SLURM_STEP_ID $SLURM_PROCID/$SLURM_NTASKS'
srun --het-group=1 sh -c 'echo other $SLURM_JOB_ID.$SLURM_STEP_ID $SLURM_PROCID/$SLURM_NTASKS'
echo in | srun --het-group=0,1 -l sh -c 'read x; echo all $SLURM_JOB_ID $x; exit $SLURM_PROCID' | sort
srun --het-group=0-1 sh -c 'exit $((SLURM_JOB_ID + SLURM_PROCID))'; echo worst $?
srun --het-group=2 true 2>&1
srun sh -c 'echo zero $SLURM_JOB_ID' : sh -c 'echo one $SLURM_JOB_ID $SLURM_PROCID' | sort
echo steps done >told; read x <go
";

fn four_nodes() -> Cluster {
    Cluster::start(&Setup { nodes: 4, ..Setup::default() })
}

#[test]
fn components_run_together_and_have_steps() {
    let cluster = four_nodes();
    let (mut told, mut go) = (cluster.gate("told"), cluster.gate("go"));
    cluster.script("job.sh", SCRIPT);
    let job = cluster.sbatch(&["job.sh"]);
    assert_eq!(job, 1);
    told.wait();
    let out = cluster.ok(&["squeue", "-h", "-o", "%i %t %D"]);
    assert_eq!(out, "1+0 R 1\n1+1 R 2\n");
    assert_eq!(cluster.ok(&["squeue", "-h", "-j", "1+1", "-o", "%i"]), "1+1\n");
    let shown = cluster.ok(&["scontrol", "show", "job", "1"]);
    for part in
        ["JobId=1 HetJobId=1 HetJobOffset=0 ", "JobId=2 HetJobId=1 HetJobOffset=1 ", "HetJobIdSet=1-2"]
    {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    let refused = cluster.fails(&["scancel", "1+1"]);
    assert!(refused.contains("single component"), "{refused}");
    let refused = cluster.fails(&["scancel", "-s", "USR1", "1+2"]);
    assert!(refused.contains("Invalid job id"), "{refused}");
    go.open();
    let mut client = cluster.client();
    client.wait_for(1, "COMPLETED");
    client.wait_for(2, "COMPLETED");
    let (out, err) = (cluster.read("out"), cluster.read("err"));
    let mut lines: Vec<&str> = out.lines().collect();
    // Two nodes of one step may write in any order.
    lines[4..6].sort_unstable();
    let expected = [
        "batch 1 2 1 2",
        "nodes n1 n1 n[2-3]",
        "count 1 2 1",
        "own 1.0 0/1",
        "other 2.0 0/2",
        "other 2.0 1/2",
        "0: all 1 in",
        "1: all 2 in",
        "2: all 2 in",
        "worst 4",
    ];
    assert_eq!(lines[..10], expected, "{out}\n{err}");
    assert!(
        lines[10].contains("het group value of 2, but the job allocation has maximum value of 1"),
        "{out}"
    );
    assert_eq!(lines[11..], ["one 2 1", "one 2 2", "zero 1"], "{out}\n{err}");
    let rows = cluster.ok(&["sacct", "-n", "-P", "-X", "-j", "1", "-o", "JobID,JobIDRaw,State,NNodes"]);
    assert_eq!(rows, "1+0|1|COMPLETED|1\n1+1|2|COMPLETED|2\n");
}

#[test]
fn what_is_done_to_one_is_done_to_all() {
    let cluster = four_nodes();
    cluster.script("job.sh", "#!/bin/sh\nsleep 1000\n");
    let first = cluster.sbatch(&["-N2", "--exclusive", ":", "-N2", "--exclusive", "job.sh"]);
    let held = cluster.sbatch(&["-N1", "--hold", ":", "-N1", "job.sh"]);
    let mut client = cluster.client();
    client.wait_for(first + 1, "RUNNING");
    assert_eq!(
        cluster.ok(&["squeue", "-h", "-t", "PD", "-o", "%i %r"]),
        "3+0 JobHeldUser\n3+1 JobHeldUser\n"
    );
    cluster.ok(&["scontrol", "update", "JobId=3+1", "NumNodes=2"]);
    let refused = cluster.fails(&["scontrol", "update", "JobId=3+1", "Nice=5"]);
    assert!(refused.contains("single component"), "{refused}");
    cluster.ok(&["scontrol", "requeue", &first.to_string()]);
    let again = client.wait(first, |job| job.restarts == 1 && job.state == "RUNNING");
    let other = client.wait(first + 1, |job| job.restarts == 1 && job.state == "RUNNING");
    assert_eq!(again.start_time, other.start_time);
    cluster.ok(&["scontrol", "release", &held.to_string()]);
    cluster.ok(&["scancel", &first.to_string()]);
    for id in [first, first + 1] {
        client.wait_for(id, "CANCELLED");
    }
    assert_eq!(client.wait_for(held + 1, "RUNNING").num_nodes, 2);
    cluster.ok(&["scancel", &format!("{held}+0")]);
    for id in [held, held + 1] {
        client.wait_for(id, "CANCELLED");
    }
    let refused = cluster.fails(&["sbatch", "-N4", "--exclusive", ":", "-N1", "--exclusive", "job.sh"]);
    assert!(refused.contains("never all at once"), "{refused}");
}

/// After every kill the controller comes back with both components started or neither, and nothing is lost.
#[test]
fn nothing_is_half_started() {
    let mut chance = chance::seeded();
    let mut cluster = four_nodes();
    cluster.script("long.sh", "#!/bin/sh\nsleep 1000\n");
    cluster.script("short.sh", "#!/bin/sh\nsrun --het-group=0,1 -l true\n");
    for round in 0..KILLS {
        let blocker = cluster.sbatch(&["-N4", "--exclusive", "long.sh"]);
        let job = cluster.sbatch(&["-N1", "--exclusive", ":", "-N2", "--exclusive", "-t", "5", "short.sh"]);
        let mut client = cluster.client();
        client.wait_for(blocker, "RUNNING");
        assert_eq!(client.job(job).state, "PENDING");
        assert_eq!(client.cancel(blocker), None);
        std::thread::sleep(Duration::from_micros(chance.below(60_000)));
        cluster.kill("spurctld");
        cluster.start_controller();
        let mut client = cluster.client();
        let jobs = client.jobs();
        let of = |id: u32| jobs.iter().find(|other| other.id == id).expect("it is not lost");
        let waits = [of(job).state == "PENDING", of(job + 1).state == "PENDING"];
        assert_eq!(waits[0], waits[1], "round {round}: {} and {}", of(job).state, of(job + 1).state);
        let (first, second) = (client.wait_for(job, "COMPLETED"), client.wait_for(job + 1, "COMPLETED"));
        assert_eq!((first.restarts, second.restarts), (0, 0), "round {round}");
        assert_eq!(first.start_time, second.start_time, "round {round}");
    }
}

#[test]
fn one_component_that_is_held_holds_all_and_they_share_their_script() {
    let cluster = four_nodes();
    let out = cluster.ok(&["sbatch", "-n1", ":", "-n1", "-H", "--wrap", "true"]);
    assert_eq!(out, "Submitted batch job 1\n");
    let shown = cluster.ok(&["squeue", "-h", "-o", "%i %t %r %Z"]);
    let work = cluster.path("work").display().to_string();
    assert_eq!(shown, format!("1+0 PD JobHeldUser {work}\n1+1 PD JobHeldUser {work}\n"));
    let second = cluster.ok(&["scontrol", "show", "job", "2"]);
    assert!(second.contains(&format!("WorkDir={work}\n")) && second.contains("StdOut="), "{second}");
}
