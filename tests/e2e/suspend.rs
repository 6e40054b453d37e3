//! Jobs that are stopped and go on, while daemons come and go.

use crate::cluster::{Cluster, Setup};

/// Prints `yes` after the processes named in the file `pids` are stopped: each by itself, or with its control
/// group.
const STOPPED: &str = r#"#!/bin/sh
root=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
for pid in $(cat pids); do
    until grep -q '^State:.T' /proc/$pid/status ||
        grep -q '^frozen 1' "$root$(sed -n 's/^0:://p' /proc/$pid/cgroup)/cgroup.events"; do :; done 2>/dev/null
done
echo yes
"#;

/// A script that leaves a child, writes the process ids of both, and waits.
const JOB: &str =
    "#!/bin/sh\nsleep 1000 &\necho $$ $! >pids\necho up >ready\nread x <gate\nkill $!\necho went on\n";

fn state(cluster: &Cluster, job: u32) -> String {
    cluster.ok(&["squeue", "-h", "-o", "%t", "-j", &job.to_string()])
}

#[test]
fn a_stopped_job_gives_up_its_cpus_and_goes_on() {
    let mut cluster = Cluster::start(&Setup::default());
    let mut client = cluster.client();
    let (mut ready, mut gate, mut other_gate) =
        (cluster.gate("ready"), cluster.gate("gate"), cluster.gate("other"));
    cluster.script("job.sh", JOB);
    cluster.script("stopped.sh", STOPPED);
    let job = cluster.sbatch(&["--exclusive", "-o", "job.txt", "job.sh"]);
    ready.wait();
    let name = job.to_string();
    cluster.ok(&["scontrol", "suspend", &name]);
    let suspended = client.wait_for(job, "SUSPENDED");
    assert_eq!(state(&cluster, job), "S\n");
    let shown = cluster.ok(&["scontrol", "show", "job", &name]);
    assert!(shown.contains("JobState=SUSPENDED") && !shown.contains("SuspendTime=None"), "{shown}");
    let row = ["sacct", "-n", "-P", "-o", "jobid,state", "-j", &name];
    assert_eq!(cluster.ok(&row), format!("{name}|SUSPENDED\n{name}.batch|SUSPENDED\n"));
    assert!(cluster.fails(&["scancel", "-s", "CONT", &name]).contains("suspended"));

    // Another job has its CPUs now. That job sees that the first and its child are stopped, whatever happens
    // to daemons.
    let script = "sh stopped.sh; echo up >ready; read x <other; sh stopped.sh";
    let other = cluster.sbatch(&["--exclusive", "-o", "other.txt", "--wrap", script]);
    ready.wait();
    cluster.kill("spurctld");
    cluster.kill("n1");
    cluster.start_controller();
    cluster.start_node("n1");
    let still = client.wait_for(job, "SUSPENDED");
    assert_eq!(still.run_time, suspended.run_time, "its time stands still");
    let said = cluster.run(&["scontrol", "resume", &name]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("goes on as soon as it can: others have CPUs 0-3 of n1"), "{said:?}");
    assert_eq!(state(&cluster, job), "S\n");

    // The stopped job has the first claim on its CPUs, also before a job that waits already.
    let third = cluster.sbatch(&["--exclusive", "--wrap", "true"]);
    other_gate.open();
    client.wait_for(other, "COMPLETED");
    assert_eq!(cluster.read("other.txt"), "yes\nyes\n");
    client.wait_for(job, "RUNNING");
    gate.open();
    client.wait_for(job, "COMPLETED");
    client.wait_for(third, "COMPLETED");
    assert_eq!(cluster.read("job.txt"), "went on\n");
    assert!(client.job(third).start_time >= client.job(job).end_time);
    assert_eq!(cluster.ok(&row), format!("{name}|COMPLETED\n{name}.batch|COMPLETED\n"));
}

#[test]
fn a_stopped_job_ends_as_others_do() {
    let mut cluster = Cluster::start(&Setup::default());
    let mut client = cluster.client();
    let (mut ready, _gate) = (cluster.gate("ready"), cluster.gate("gate"));
    cluster.script("job.sh", JOB);
    let names = |jobs: &[u32]| jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let jobs: Vec<u32> = (0..3).map(|_| cluster.sbatch(&["job.sh"])).collect();
    jobs.iter().for_each(|_| ready.wait());
    assert!(cluster.fails(&["scontrol", "resume", &names(&jobs[..1])]).contains("Job is not suspended"));
    cluster.ok(&["scontrol", "suspend", &names(&jobs)]);
    jobs.iter().for_each(|job| drop(client.wait_for(*job, "SUSPENDED")));
    assert_eq!(cluster.ok(&["squeue", "-h", "-t", "S", "-o", "%t"]), "S\nS\nS\n");

    cluster.ok(&["scancel", &names(&jobs[..1])]);
    client.wait_for(jobs[0], "CANCELLED");
    cluster.ok(&["scontrol", "requeue", &names(&jobs[1..2])]);
    let held = client.wait(jobs[1], |job| job.state == "PENDING" && job.restarts == 1);
    assert_eq!(held.reason, "JobHeldAdmin", "as with Slurm");
    cluster.ok(&["scancel", &names(&jobs[1..2])]);

    // A job that was lost with its node runs again.
    cluster.cut_power("n1");
    cluster.start_node("n1");
    client.wait(jobs[2], |job| job.state == "RUNNING" && job.restarts == 1);
    ready.wait();
    cluster.ok(&["scancel", &names(&jobs[2..])]);
    client.wait_for(jobs[2], "CANCELLED");
}
