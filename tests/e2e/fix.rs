//! `spur why --fix`: changes with which a waiting job starts earlier, each of which then does what was said.

use crate::accounts::me;
use crate::cluster::{Cluster, Setup};

const MORE: &str = "[[partitions]]\nname = \"aside\"\nnodes = \"n3\"\n\n[scheduler]\nbackfill = \"easy\"\n";

fn fixes(cluster: &Cluster, job: u32) -> serde_json::Value {
    let shown = cluster.ok(&["spur", "why", "--fix", "--json", &job.to_string()]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    shown["jobs"][0].clone()
}

/// The value of a change with a start before the planned one.
fn value(found: &serde_json::Value, key: &str) -> Option<String> {
    let fix = found["fixes"].as_array()?.iter().find(|fix| fix["key"] == key)?;
    assert!(
        fix["start_time"].as_i64().unwrap() < found["start_time"].as_i64().unwrap_or(i64::MAX),
        "{found}"
    );
    Some(fix["value"].as_str()?.to_owned())
}

#[test]
fn less_time_or_fewer_nodes_start_a_job_earlier() {
    let cluster = Cluster::start(&Setup { nodes: 3, more: MORE, ..Setup::default() });
    let mut client = cluster.client();
    let mut gate = cluster.gate("gate");
    let runs = cluster.sbatch(&["-w", "n1", "--exclusive", "-t", "20", "--wrap", "read x <gate"]);
    client.wait_for(runs, "RUNNING");
    // A job of 20 minutes that starts in a later second than this one ends after it.
    let second = cluster.sbatch(&["-w", "n2", "--wrap", "sleep 1"]);
    client.wait_for(second, "COMPLETED");
    let wide = cluster.sbatch(&["-N", "3", "--exclusive", "-t", "10", "--wrap", "true"]);
    let long = cluster.sbatch(&["-N", "1", "--exclusive", "-t", "40", "--wrap", "true"]);

    let of_wide = fixes(&cluster, wide);
    assert_eq!(value(&of_wide, "NumNodes").as_deref(), Some("2"), "{of_wide}");
    assert_eq!(value(&of_wide, "TimeLimit"), None, "{of_wide}");
    let of_long = fixes(&cluster, long);
    let limit = value(&of_long, "TimeLimit").unwrap_or_else(|| panic!("{of_long}"));
    assert!(("00:16:00".."00:20:00").contains(&limit.as_str()), "{of_long}");
    assert!(of_long["plans"].as_u64().unwrap() <= 20, "{of_long}");
    let table = cluster.ok(&["spur", "why", "--fix", &long.to_string()]);
    assert!(table.contains("CHANGE") && table.contains(&format!("TimeLimit={limit}")), "{table}");

    cluster.ok(&["scontrol", "update", &format!("JobId={long}"), &format!("TimeLimit={limit}")]);
    client.wait_for(long, "COMPLETED");
    cluster.ok(&["scontrol", "update", &format!("JobId={wide}"), "NumNodes=2"]);
    client.wait_for(wide, "COMPLETED");
    let ended = cluster.fails(&["spur", "why", "--fix", &wide.to_string()]);
    assert!(ended.contains("no job waits"), "{ended}");
    gate.open();
    client.wait_for(runs, "COMPLETED");
}

#[test]
fn another_partition_account_or_qos_starts_a_job_earlier() {
    let user = me();
    let controller = "accounting_storage_enforce = [\"limits\", \"qos\"]\n";
    let cluster = Cluster::start(&Setup { nodes: 3, controller, more: MORE, ..Setup::default() });
    let mut client = cluster.client();
    for words in [
        "add qos free",
        "add qos secret",
        "add account narrow MaxJobs=1",
        "add account broad",
        &format!("add user {user} account=narrow,broad qos=normal,free"),
        "modify qos free set MaxJobsPU=10 flags=OverPartQOS",
    ] {
        cluster.ok(&[&["sacctmgr", "-i"], words.split_whitespace().collect::<Vec<_>>().as_slice()].concat());
    }
    let mut gate = cluster.gate("gate");
    let runs = cluster.sbatch(&[
        "-A",
        "narrow",
        "-w",
        "n[1-2]",
        "-N2",
        "--exclusive",
        "-t",
        "60",
        "--wrap",
        "read x <gate",
    ]);
    client.wait_for(runs, "RUNNING");
    // A limit of the account stops the job.
    let stopped = cluster.sbatch(&["-A", "narrow", "-t", "10", "-n", "1", "--wrap", "true"]);
    let found = fixes(&cluster, stopped);
    assert_eq!(value(&found, "Account").as_deref(), Some("broad"), "{found}");
    assert!(found["fixes"].as_array().unwrap().iter().all(|fix| fix["value"] != "secret"), "{found}");
    cluster.ok(&["scontrol", "update", &format!("JobId={stopped}"), "Account=broad"]);
    client.wait_for(stopped, "COMPLETED");

    let wide = cluster.sbatch(&["-A", "broad", "-w", "n1", "--exclusive", "-t", "10", "--wrap", "true"]);
    assert_eq!(value(&fixes(&cluster, wide), "Partition"), None, "n1 is not in the other partition");

    let mut stranger = cluster.client_of(65_534);
    let refused = stranger.fix(wide).unwrap_err().to_string();
    assert!(refused.contains("Access/permission denied"), "{refused}");
    cluster.ok(&["scontrol", "hold", &wide.to_string()]);
    let held = cluster.fails(&["spur", "why", "--fix", &wide.to_string()]);
    assert!(held.contains("Job is in held state"), "{held}");
    cluster.ok(&["scancel", &wide.to_string()]);
    gate.open();
    client.wait_for(runs, "COMPLETED");
}
