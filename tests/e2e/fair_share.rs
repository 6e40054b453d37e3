//! Fair share by real daemons: usage of jobs is billed and counted, ranks follow it, and all of it outlives a
//! crash.

use crate::accounts::me;
use crate::cluster::{Cluster, Setup};

const WEIGHED: &str = r#"
[scheduler]
priority_weight_age = 0
priority_weight_partition = 0
priority_weight_fairshare = 1000
priority_decay_half_life = "0s"
priority_calc_period = "1s"
"#;

/// The weighted fair-share factor of a waiting job.
fn factor(cluster: &Cluster, job: u32) -> String {
    cluster.ok(&["sprio", "-h", "-j", &job.to_string(), "-o", "%F"]).trim().to_owned()
}

fn raw_usage(cluster: &Cluster, account: &str) -> u64 {
    let shown = cluster.ok(&["sshare", "-a", "-nP", "-A", account, "-o", "rawusage"]);
    let first = shown.lines().next().unwrap_or_default();
    first.trim().parse().unwrap_or_else(|_| panic!("no usage of {account}: {shown}"))
}

#[test]
fn whoever_has_used_less_comes_first() {
    let mut cluster = Cluster::start(&Setup { gres: "gpu:2", more: WEIGHED, ..Setup::default() });
    cluster.ok(&["sacctmgr", "-i", "add", "account", "busy,idle", "fairshare=5"]);
    cluster.ok(&["sacctmgr", "-i", "add", "user", &me(), "account=busy,idle"]);
    let mut client = cluster.client();
    // Both GPUs are billed as much as all four CPUs.
    let used = cluster.sbatch(&["-A", "busy", "-n1", "--gres=gpu:2", "--wrap", "sleep 2"]);
    client.wait_for(used, "COMPLETED");
    let allocated = cluster.ok(&["sacct", "-nXP", "-j", &used.to_string(), "-o", "alloctres"]);
    assert!(allocated.contains("billing=4,cpu=1,gres/gpu=2"), "{allocated}");
    let raw = raw_usage(&cluster, "busy");
    assert!(raw >= 4 && raw.is_multiple_of(4), "{raw} billing-seconds");

    let mut gate = cluster.gate("gate");
    let runs = cluster.sbatch(&["-A", "root", "--exclusive", "--wrap", "read x <gate"]);
    client.wait_for(runs, "RUNNING");
    let busy = cluster.sbatch(&["-A", "busy", "--exclusive", "--wrap", "true"]);
    let idle = cluster.sbatch(&["-A", "idle", "--exclusive", "--wrap", "true"]);
    cluster.wait_until(|cluster| factor(cluster, idle) == "1000" && factor(cluster, busy) != "1000");
    assert_eq!(
        cluster.ok(&["squeue", "-h", "-t", "PD", "-S", "-p", "-o", "%i"]).lines().next(),
        Some(&*idle.to_string())
    );

    cluster.kill("spurctld");
    cluster.start_controller();
    assert_eq!((raw_usage(&cluster, "busy"), factor(&cluster, idle)), (raw, "1000".to_owned()));
    cluster.ok(&["sacctmgr", "-i", "modify", "account", "busy", "set", "rawusage=0"]);
    assert_eq!(raw_usage(&cluster, "busy"), 0);
    gate.open();
    for job in [runs, idle, busy] {
        client.wait_for(job, "COMPLETED");
    }
}
