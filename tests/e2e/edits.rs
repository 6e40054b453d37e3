//! Changes to partitions and nodes by commands: they outlive the controller, and the file decides each key
//! that it changes.

use std::fs;

use crate::cluster::{Cluster, Setup};

/// The partition besides `main`, the default.
const PARTITIONS: &str = r#"
[[partitions]]
name = "long"
nodes = "n1"
"#;

/// The value of a key in the output of `scontrol show partition`.
fn value(cluster: &Cluster, partition: &str, key: &str) -> String {
    let shown = cluster.ok(&["scontrol", "-o", "show", "partition", partition]);
    let found = shown.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {key} in {shown}")).to_owned()
}

#[test]
fn edits_outlive_the_controller_and_give_way_to_the_file() {
    let mut cluster = Cluster::start(&Setup { nodes: 2, more: PARTITIONS, ..Setup::default() });
    let mut client = cluster.client();
    cluster.ok(&["scontrol", "update", "PartitionName=main", "MaxTime=30", "State=DOWN", "GraceTime=7"]);
    cluster.ok(&["scontrol", "create", "PartitionName=mine", "Nodes=n2", "MaxTime=10", "Hidden=YES"]);
    cluster.ok(&["scontrol", "delete", "PartitionName=long"]);
    cluster.ok(&["scontrol", "update", "NodeName=n1", "Weight=5", "Comment=spare fan", "Extra=rack=7"]);
    cluster.ok(&["scontrol", "create", "NodeName=d[1-2]", "CPUs=8", "RealMemory=100", "State=CLOUD"]);
    cluster.ok(&["scontrol", "delete", "NodeName=d2"]);
    let job = cluster.sbatch(&["-p", "mine", "--wrap", "true"]);
    client.wait_for(job, "COMPLETED");

    cluster.kill("spurctld");
    cluster.start_controller();
    let waits = cluster.sbatch(&["--wrap", "true"]);
    client.wait(waits, |job| job.reason == "PartitionDown");
    assert_eq!(value(&cluster, "main", "MaxTime"), "00:30:00");
    assert_eq!(
        (value(&cluster, "main", "State"), value(&cluster, "main", "GraceTime")),
        ("DOWN".into(), "7".into())
    );
    assert_eq!(value(&cluster, "mine", "Nodes"), "n2");
    assert_eq!(cluster.run(&["scontrol", "show", "partition", "long"]).code, Some(1));
    let node = cluster.ok(&["scontrol", "show", "node", "n1"]);
    assert!(node.contains("Weight=5") && node.contains("Comment=spare fan"), "{node}");
    assert_eq!(cluster.ok(&["sinfo", "-h", "-p", "main", "-N", "-n", "d1", "-o", "%N %c %t"]), "d1 8 unk*\n");
    // A partition in use stays.
    let refused = cluster.fails(&["scontrol", "delete", "PartitionName=main"]);
    assert!(refused.contains("Partition is in use"), "{refused}");

    // The file changes one key: the edit of that key is taken back with a message.
    let file = cluster.path("spur.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("max_time = \"1:00:00\"", "max_time = \"2:00:00\"")).unwrap();
    let said = cluster.run(&["scontrol", "reconfigure"]).err;
    assert!(said.contains("partition main: max_time is what the file says"), "{said}");
    assert_eq!(value(&cluster, "main", "MaxTime"), "02:00:00");
    assert_eq!(value(&cluster, "main", "State"), "DOWN");
    assert_eq!(value(&cluster, "mine", "MaxTime"), "00:10:00");
    cluster.ok(&["scontrol", "update", "PartitionName=main", "State=UP"]);
    client.wait_for(waits, "COMPLETED");
}

#[test]
fn partitions_say_who_may_use_them() {
    let cluster = Cluster::start(&Setup { nodes: 1, more: PARTITIONS, ..Setup::default() });
    let refused = |change: &str, back: &str, submit: &[&str], part: &str| {
        cluster.ok(&["scontrol", "update", "PartitionName=main", change]);
        let said = cluster.fails(&[&["sbatch"], submit, &["--wrap", "true"]].concat());
        assert!(said.contains(part), "{change}: {said}");
        cluster.ok(&["scontrol", "update", "PartitionName=main", back]);
    };
    refused("ReqResv=YES", "ReqResv=NO", &[], "is for reservations");
    refused("AllocNodes=elsewhere", "AllocNodes=ALL", &[], "takes no jobs from host");
    refused("MaxMemPerNode=50", "MaxMemPerNode=UNLIMITED", &["--mem=60"], "allows 50 MiB");
    // Over limits that can be raised jobs wait, and start when the limits are raised.
    let mut client = cluster.client();
    for (change, back, submit, reason) in [
        ("DenyAccounts=x", "DenyAccounts=", ["-A", "x"], "AccountNotAllowed"),
        ("MaxTime=5", "MaxTime=60", ["-t", "6"], "PartitionTimeLimit"),
    ] {
        cluster.ok(&["scontrol", "update", "PartitionName=main", change]);
        let job = cluster.sbatch(&[&submit[..], &["--wrap", "true"]].concat());
        client.wait(job, |job| job.reason == reason);
        cluster.ok(&["scontrol", "update", "PartitionName=main", back]);
        client.wait_for(job, "COMPLETED");
    }
    cluster.ok(&["scontrol", "update", "PartitionName=main", "State=DRAIN", "Alternate=long"]);
    let job = cluster.sbatch(&["-H", "--wrap", "true"]);
    assert_eq!(cluster.ok(&["squeue", "-h", "-j", &job.to_string(), "-o", "%P"]), "long\n");
}

#[test]
fn sdiag_counts_what_was_done() {
    let cluster = Cluster::start(&Setup { nodes: 1, ..Setup::default() });
    let mut client = cluster.client();
    cluster.ok(&["sdiag", "-r"]);
    let job = cluster.sbatch(&["--wrap", "true"]);
    client.wait_for(job, "COMPLETED");
    let held = cluster.sbatch(&["-H", "--wrap", "true"]);
    cluster.ok(&["scancel", &held.to_string()]);
    let said = cluster.ok(&["sdiag"]);
    let number = |key: &str| {
        let line = said.lines().find_map(|line| line.trim().strip_prefix(key));
        line.and_then(|rest| rest.trim().parse::<u64>().ok()).unwrap_or_else(|| panic!("no {key} in {said}"))
    };
    assert_eq!((number("Jobs submitted:"), number("Jobs started:")), (2, 1));
    assert_eq!((number("Jobs completed:"), number("Jobs canceled:")), (1, 1));
    assert!(number("Total cycles:") > 0, "{said}");
    let row = said.lines().find(|line| line.contains("REQUEST_SUBMIT_BATCH_JOB")).unwrap();
    assert!(row.contains("( 4003) count:2 "), "{row}");
    let all: serde_json::Value = serde_json::from_str(&cluster.ok(&["sdiag", "--json"])).unwrap();
    assert_eq!(all["statistics"]["jobs_started"], 1);
    cluster.ok(&["sdiag", "--reset"]);
    assert!(cluster.ok(&["sdiag"]).contains("Jobs submitted: 0\n"));
}
