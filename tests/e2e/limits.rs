//! Limits of accounts and QOS: what they refuse, what waits for them, and what they let start.

use spur_proto::v1::Job;

use crate::accounts::me;
use crate::cluster::{Cluster, Setup};

const LIMITS: &str = "accounting_storage_enforce = [\"limits\"]\n";

fn change(cluster: &Cluster, words: &str) {
    let words: Vec<&str> = words.split_whitespace().collect();
    cluster.ok(&[&["sacctmgr", "-i"], words.as_slice()].concat());
}

#[test]
fn limits_keep_jobs_waiting_and_refuse_them() {
    let user = me();
    let mut cluster = Cluster::start(&Setup { controller: LIMITS, ..Setup::default() });
    let mut client = cluster.client();
    change(&cluster, "add account chem GrpTRES=cpu=2 MaxSubmitJobs=4");
    change(&cluster, &format!("add user {user} account=chem MaxJobs=1"));
    change(&cluster, &format!("modify user {user} set defaultaccount=chem"));
    let mut gate = cluster.gate("gate");
    let first = cluster.sbatch(&["--wrap", "read x <gate"]);
    client.wait_for(first, "RUNNING");
    let second = cluster.sbatch(&["--wrap", "true"]);
    let waits = |job: &Job| job.reason == "AssocMaxJobsLimit";
    client.wait(second, waits);
    let why = cluster.ok(&["spur", "why", &second.to_string()]);
    assert!(why.contains(&format!("MaxJobs=1 of user {user} in account chem")), "{why}");

    let limits: serde_json::Value =
        serde_json::from_str(&cluster.ok(&["spur", "limits", "--json", &user])).unwrap();
    let own = limits["limits"].as_array().unwrap().iter().find(|limit| limit["limit"] == "MaxJobs").unwrap();
    assert_eq!((&own["most"], &own["used"], &own["left"]), (&1.into(), &1.into(), &0.into()), "{own}");

    // A controller that starts again counts what runs.
    cluster.kill("spurctld");
    cluster.start_controller();
    let third = cluster.sbatch(&["-n", "3", "--wrap", "true"]);
    let mut client = cluster.client();
    client.wait(third, waits);
    change(&cluster, &format!("modify user {user} set MaxJobs=5"));
    client.wait_for(second, "COMPLETED");
    client.wait(third, |job| job.reason == "AssocGrpCpuLimit");

    change(&cluster, &format!("modify user {user} set MaxSubmitJobs=3"));
    let array = cluster.fails(&["sbatch", "-a", "1-2", "--wrap", "true"]);
    let (word, rest) = array.split_once('\n').unwrap();
    assert_eq!(word, "sbatch: error: AssocMaxSubmitJobLimit");
    let says = "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)";
    assert!(rest.starts_with(says), "{array}");

    // Values that an operator sets for a job are exempt.
    cluster.ok(&["scontrol", "update", &format!("JobId={third}"), "NumTasks=3"]);
    client.wait_for(third, "COMPLETED");
    gate.open();
    client.wait_for(first, "COMPLETED");
}

#[test]
fn a_qos_refuses_at_once_if_it_denies() {
    let user = me();
    let cluster = Cluster::start(&Setup { controller: LIMITS, ..Setup::default() });
    let mut client = cluster.client();
    change(&cluster, "add qos short MaxWall=10 MaxTRES=cpu=2");
    change(&cluster, "add account chem QOS=normal,short MaxWall=60");
    change(&cluster, &format!("add user {user} account=chem"));
    change(&cluster, &format!("modify user {user} set defaultaccount=chem"));
    let long = ["--parsable", "-q", "short", "-t", "30", "-n", "4", "--wrap", "true"];
    let waits = cluster.sbatch(&long[1..]);
    client.wait(waits, |job| job.reason == "QOSMaxWallDurationPerJobLimit");
    change(&cluster, "modify qos short set Flags=DenyOnLimit");
    let refused = cluster.fails(&[&["sbatch"], &long[..]].concat());
    assert!(refused.starts_with("sbatch: error: QOSMaxWallDurationPerJobLimit\n"), "{refused}");
    let runs = cluster.sbatch(&["-t", "30", "-n", "3", "--wrap", "true"]);
    client.wait_for(runs, "COMPLETED");
    cluster.ok(&["scancel", &waits.to_string()]);
}

#[test]
fn a_budget_that_is_used_up_stops_jobs_until_it_is_reset() {
    let user = me();
    let cluster = Cluster::start(&Setup { controller: LIMITS, ..Setup::default() });
    let mut client = cluster.client();
    // The usage factor makes one second of a CPU exceed the minute of the budget.
    change(&cluster, "add qos small GrpTRESMins=cpu=1 UsageFactor=100");
    change(&cluster, "add account chem QOS=normal,small");
    change(&cluster, &format!("add user {user} account=chem"));
    change(&cluster, &format!("modify user {user} set defaultaccount=chem"));
    let first = cluster.sbatch(&["-q", "small", "--wrap", "sleep 2"]);
    client.wait_for(first, "COMPLETED");
    let second = cluster.sbatch(&["-q", "small", "--wrap", "true"]);
    client.wait(second, |job| job.reason == "QOSGrpCPUMinutesLimit");
    let why = cluster.ok(&["spur", "why", &second.to_string()]);
    assert!(why.contains("GrpTRESMins=cpu=1 of QOS small"), "{why}");
    let other = cluster.sbatch(&["--wrap", "true"]);
    client.wait_for(other, "COMPLETED");
    change(&cluster, "modify qos small set RawUsage=0");
    client.wait_for(second, "COMPLETED");
}

#[test]
fn a_budget_that_runs_out_ends_what_runs() {
    let user = me();
    let more = "[scheduler]\npriority_calc_period = \"1s\"\n";
    let cluster = Cluster::start(&Setup { controller: LIMITS, more, ..Setup::default() });
    let mut client = cluster.client();
    change(&cluster, "add account chem");
    change(&cluster, &format!("add user {user} account=chem"));
    // A second of a CPU counts as 100, so the minute is used up in the first second.
    change(&cluster, "add qos fast UsageFactor=100 GrpTRESMins=cpu=1");
    let first = cluster.sbatch(&["-A", "chem", "-q", "fast", "--wrap", "sleep 1000"]);
    let other = cluster.sbatch(&["-A", "chem", "-q", "normal", "--wrap", "sleep 1000"]);
    client.wait_for(first, "TIMEOUT");
    let shown = cluster.ok(&["scontrol", "show", "job", &first.to_string()]);
    assert!(shown.contains("Reason=TimeLimit"), "{shown}");
    client.wait_for(other, "RUNNING");
    let second = cluster.sbatch(&["-A", "chem", "-q", "fast", "--wrap", "true"]);
    client.wait(second, |job| job.reason == "QOSGrpCPUMinutesLimit");
}

/// With `safe`, the usage factor of a QOS counts for limits of resources times minutes before a job starts if
/// the QOS has the flag `UsageFactorSafe`.
#[test]
fn the_usage_factor_counts_before_a_start_with_its_flag() {
    let user = me();
    let safe = "accounting_storage_enforce = [\"safe\"]\n";
    let cluster = Cluster::start(&Setup { controller: safe, ..Setup::default() });
    let mut client = cluster.client();
    change(&cluster, "add qos half UsageFactor=0.5 Flags=UsageFactorSafe");
    change(&cluster, "add qos twice UsageFactor=2 Flags=UsageFactorSafe");
    change(&cluster, "add qos plain UsageFactor=0.5");
    change(&cluster, "add account budget QOS=half,twice,plain GrpTRESMins=cpu=10");
    change(&cluster, "add account runs QOS=half,twice,plain GrpTRESRunMins=cpu=10");
    change(&cluster, "add account long QOS=half,twice,plain MaxTRESMins=cpu=10");
    for account in ["budget", "runs", "long"] {
        change(&cluster, &format!("add user {user} account={account}"));
    }
    for (account, reason) in [
        ("budget", "AssocGrpCPUMinutesLimit"),
        ("runs", "AssocGrpCPURunMinutesLimit"),
        ("long", "AssocMaxCpuMinutesPerJobLimit"),
    ] {
        for (qos, minutes, starts) in
            [("half", "19", true), ("half", "21", false), ("plain", "11", false), ("twice", "6", false)]
        {
            let job = cluster.sbatch(&["-A", account, "-q", qos, "-t", minutes, "--wrap", "true"]);
            if starts {
                client.wait_for(job, "COMPLETED");
            } else {
                client.wait(job, |job| job.reason == reason);
                cluster.ok(&["scancel", &job.to_string()]);
            }
        }
    }
    // What running jobs may still use counts by the factor, too.
    let mut gate = cluster.gate("gate");
    let submit = |minutes: &str, program: &str| {
        cluster.sbatch(&["-A", "budget", "-q", "half", "-t", minutes, "--wrap", program])
    };
    let runs = submit("12", "read x <gate");
    client.wait_for(runs, "RUNNING");
    let fits = submit("7", "true");
    client.wait_for(fits, "COMPLETED");
    let waits = submit("9", "true");
    client.wait(waits, |job| job.reason == "AssocGrpCPUMinutesLimit");
    gate.open();
    client.wait_for(runs, "COMPLETED");
    client.wait_for(waits, "COMPLETED");
}
