//! QOS: which jobs may use which, which makes way for which, and the fate of jobs whose QOS is gone.

use std::fs;

use crate::cluster::{Cluster, Setup};

/// Jobs of `high` preempt those of `low`, which wait again; others are of `normal`.
const QOS: &str = r#"
[scheduler]
default_qos = "normal"
priority_weight_age = 0
priority_weight_partition = 0
priority_weight_qos = 1000
[preempt]
by = "qos"
[[qos]]
name = "high"
priority = 40
preempt = ["low"]
max_wall = "20"
[[qos]]
name = "normal"
priority = 10
[[qos]]
name = "low"
[[partitions]]
name = "debug"
nodes = "ALL"
allow_qos = ["high"]
"#;

#[test]
fn a_job_makes_way_for_one_whose_qos_lists_its_own() {
    let mut cluster = Cluster::start(&Setup { nodes: 2, more: QOS, ..Setup::default() });
    let mut client = cluster.client();
    let (mut low_gate, mut high_gate) = (cluster.gate("low"), cluster.gate("high"));
    let mut command = cluster.command(&["sbatch", "--parsable", "-N2", "--exclusive", "--wrap"]);
    let said =
        command.arg("echo $SLURM_JOB_QOS >>ran; read x <low").env("SBATCH_QOS", "low").output().unwrap();
    let low: u32 = String::from_utf8(said.stdout).unwrap().trim().parse().unwrap();
    client.wait_for(low, "RUNNING");

    let normal = cluster.sbatch(&["-N1", "-w", "n1", "--wrap", "true"]);
    let high = cluster.sbatch(&["-q", "high", "-N1", "-w", "n1", "--wrap", "read x <high"]);
    client.wait_for(high, "RUNNING");
    client.wait(low, |job| job.state == "PENDING" && job.restarts == 1);
    let said = cluster.ok(&["squeue", "-h", "-S", "i", "-o", "%i %q %t"]);
    assert_eq!(said.lines().next(), Some(&*format!("{low} low PD")));
    assert_eq!(cluster.ok(&["squeue", "-h", "-q", "high", "-o", "%i %Q"]), format!("{high} 1000\n"));
    let shown = cluster.ok(&["scontrol", "show", "job", &high.to_string()]);
    assert!(shown.contains("Priority=1000") && shown.contains("QOS=high"), "{shown}");
    // The job preempted no other, and comes before those that may be preempted.
    client.wait_for(normal, "COMPLETED");
    high_gate.open();
    client.wait_for(high, "COMPLETED");
    client.wait_for(low, "RUNNING");

    cluster.kill("spurctld");
    cluster.start_controller();
    let waits = cluster.sbatch(&["-N2", "--exclusive", "--wrap", "true"]);
    client.wait(waits, |job| job.reason == "Resources");
    cluster.ok(&["scontrol", "update", &format!("JobId={waits}"), "QOS=high", "TimeLimit=5"]);
    client.wait_for(waits, "COMPLETED");
    client.wait(low, |job| job.state == "RUNNING" && job.restarts == 2);
    low_gate.open();
    client.wait_for(low, "COMPLETED");
    // An attempt that must end at once may not have come so far.
    assert!(cluster.read("ran").lines().all(|line| line == "low"), "{}", cluster.read("ran"));
    let rows = ["sacct", "-n", "-P", "-X", "-D", "-o", "jobid,qos,state", "-S", "now-1hour", "-q", "low"];
    let states = ["COMPLETED", "PREEMPTED", "PREEMPTED"];
    assert_eq!(cluster.rows(&rows), states.map(|state| format!("{low}|low|{state}")));
}

/// The QOS of the victim decides its fate, whatever the general setting; a job that forbids preemption stays.
#[test]
fn a_qos_may_be_suspended_where_others_wait_again() {
    const SUSPEND: &str = r#"
[preempt]
by = "qos"
mode = "requeue"
[[qos]]
name = "high"
preempt = ["low", "paused"]
[[qos]]
name = "low"
[[qos]]
name = "paused"
preempt_mode = "suspend"
"#;
    let mut cluster = Cluster::start(&Setup { nodes: 2, more: SUSPEND, ..Setup::default() });
    let mut client = cluster.client();
    let (mut ready, mut gate, mut high_gate) =
        (cluster.gate("ready"), cluster.gate("gate"), cluster.gate("high"));
    let script = "echo up >>$SLURM_JOB_ID.log; echo >ready; read x <gate; echo over >>$SLURM_JOB_ID.log";
    let paused = cluster.sbatch(&["-q", "paused", "-w", "n1", "-c2", "--wrap", script]);
    let low = cluster.sbatch(&["-q", "low", "-w", "n1", "-c2", "--wrap", script]);
    let firm = cluster.sbatch(&["-q", "paused", "--no-preempt", "-w", "n2", "-c4", "--wrap", script]);
    (0..3).for_each(|_| ready.wait());
    let high = cluster.sbatch(&["-q", "high", "-w", "n1", "-c4", "--wrap", "echo >ready; read x <high"]);
    ready.wait();
    client.wait_for(paused, "SUSPENDED");
    client.wait(low, |job| job.state == "PENDING" && job.restarts == 1);
    let vain = cluster.sbatch(&["-q", "high", "-w", "n2", "-c4", "--wrap", "true"]);
    client.wait(vain, |job| job.reason == "Resources");
    assert_eq!(client.job(firm).state, "RUNNING");

    // The returning node still knows which jobs are stopped.
    cluster.kill("n1");
    cluster.start_node("n1");
    high_gate.open();
    client.wait_for(high, "COMPLETED");
    client.wait_for(paused, "RUNNING");
    ready.wait();
    (0..3).for_each(|_| gate.open());
    for job in [paused, low, firm, vain] {
        client.wait_for(job, "COMPLETED");
    }
    let logs = [paused, low, firm].map(|job| cluster.read(&format!("{job}.log")));
    assert_eq!(logs, ["up\nover\n", "up\nup\nover\n", "up\nover\n"]);
}

#[test]
fn what_a_job_may_not_have_is_refused_with_what_it_may() {
    let cluster = Cluster::start(&Setup { more: QOS, ..Setup::default() });
    let said = cluster.fails(&["sbatch", "-q", "hgih", "--wrap", "true"]);
    assert!(said.starts_with("sbatch: error: Batch job submission failed: "), "{said}");
    let says =
        "Invalid qos specification: there is no 'hgih'; did you mean 'high'? QOS here: normal, high, low";
    assert!(said.contains(says), "{said}");
    // A reason that an administrator can remove keeps a job waiting, and its user gets a message.
    let mut client = cluster.client();
    for (words, reason, says) in [
        (
            &["-p", "debug"][..],
            "QOSNotAllowed",
            "partition debug takes no jobs of QOS normal; ask for --qos=high",
        ),
        (
            &["-q", "high", "-t", "30"],
            "QOSMaxWallDurationPerJobLimit",
            "time limit 30:00: QOS high allows 20:00; ask -t ≤ 20:00",
        ),
    ] {
        let said = cluster.run(&[&["sbatch", "--parsable", "--wrap", "true"], words].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.err.contains(&format!("the job waits ({reason}): {says}")), "{said:?}");
        let job: u32 = said.out.trim().parse().unwrap();
        client.wait(job, |job| job.state == "PENDING" && job.reason == reason);
        cluster.ok(&["scancel", &job.to_string()]);
    }
    let held = cluster.sbatch(&["-H", "-q", "high", "--wrap", "true"]).to_string();
    let shown = cluster.ok(&["scontrol", "show", "job", &held]);
    assert!(shown.contains("TimeLimit=00:20:00"), "{shown}");
    let said = cluster.fails(&["scontrol", "update", &format!("JobId={held}"), "QOS=nromal"]);
    assert!(said.contains("did you mean 'normal'?"), "{said}");
    let shown = cluster.ok(&["scontrol", "-o", "show", "partition", "debug"]);
    assert!(shown.contains("AllowQos=high"), "{shown}");
    let shown = cluster.ok(&["scontrol", "show", "config"]);
    let setting = |line: &str| line.starts_with("qos.high.priority") && line.ends_with(" = 40");
    assert!(shown.lines().any(setting), "{shown}");
    cluster.ok(&["scancel", "-q", "normal"]);
    assert_eq!(cluster.ok(&["squeue", "-h", "-o", "%i"]), format!("{held}\n"));
    cluster.ok(&["scancel", "-q", "high"]);
    assert_eq!(cluster.ok(&["squeue", "-h", "-o", "%i"]), "");
}

/// The sections `[[qos]]` are read once. Afterwards `sacctmgr` changes QOS, and deletes none that jobs have.
#[test]
fn a_qos_that_jobs_have_stays_whatever_the_file_says() {
    let mut cluster = Cluster::start(&Setup { more: QOS, ..Setup::default() });
    let mut client = cluster.client();
    let mut gate = cluster.gate("gate");
    let first = cluster.sbatch(&["--exclusive", "--wrap", "read x <gate"]);
    client.wait_for(first, "RUNNING");
    let low = cluster.sbatch(&["-q", "low", "--wrap", "true"]);
    client.wait(low, |job| job.reason == "Resources");
    let file = cluster.path("spur.toml");
    let before = fs::read_to_string(&file).unwrap();
    let without = before.replace("preempt = [\"low\"]\n", "").replace("[[qos]]\nname = \"low\"\n", "");
    fs::write(&file, without.replace("priority = 40", "priority = 50")).unwrap();
    let said = cluster.run(&["scontrol", "reconfigure"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for command in ["sacctmgr modify qos high set Priority=50 Preempt=", "sacctmgr delete qos low"] {
        assert!(said.err.contains(command), "{command}: {said:?}");
    }
    assert_eq!(client.job(low).reason, "Resources");
    let refused = cluster.fails(&["sacctmgr", "-i", "delete", "qos", "low"]);
    assert!(refused.contains("Job(s) active, cancel job(s) before remove"), "{refused}");
    cluster.ok(&["sacctmgr", "-i", "modify", "qos", "high", "set", "priority=50"]);
    cluster.kill("spurctld");
    cluster.start_controller();
    let shown = cluster.ok(&["sacctmgr", "-nP", "show", "qos", "format=name,priority,preempt,maxwall"]);
    assert_eq!(shown, "normal|10||\nhigh|50|low|00:20:00\nlow|0||\n");
    gate.open();
    client.wait_for(first, "COMPLETED");
    client.wait_for(low, "COMPLETED");
    cluster.ok(&["sacctmgr", "-i", "delete", "qos", "low"]);
    assert!(cluster.fails(&["sbatch", "-q", "low", "--wrap", "true"]).contains("there is no 'low'"));
}
