//! Ended jobs: they are requeued, and other jobs wait for them after they have been forgotten.

use std::collections::BTreeMap;

use crate::cluster::{Cluster, Setup};

#[test]
fn an_ended_job_is_had_again_and_both_runs_are_accounted_for() {
    let mut cluster = Cluster::start(&Setup::default());
    cluster.script("job.sh", "#!/bin/sh\necho run >>marks\n[ \"$SLURM_RESTART_COUNT\" = 1 ]\n");
    let job = cluster.sbatch(&["job.sh"]);
    let id = job.to_string();
    cluster.client().wait_for(job, "FAILED");
    cluster.ok(&["scontrol", "requeuehold", &id]);
    let held = cluster.ok(&["squeue", "-h", "-o", "%t %r", "-j", &id]);
    assert_eq!(held, "PD JobHeldAdmin\n");
    cluster.kill("spurctld");
    cluster.start_controller();
    cluster.ok(&["scontrol", "release", &id]);
    cluster.client().wait_for(job, "COMPLETED");
    assert_eq!(cluster.read("marks"), "run\nrun\n");
    let states = |words: &[&str]| {
        let words = [&["sacct", "-n", "-P", "-X", "-j", &id, "-o", "state,exitcode"], words].concat();
        cluster.rows(&words).join(" ")
    };
    assert_eq!(states(&["-D"]), "COMPLETED|0:0 FAILED|1:0");
    assert_eq!(states(&[]), "COMPLETED|0:0");
}

#[test]
fn jobs_are_listed_from_when_they_were_eligible() {
    let cluster = Cluster::start(&Setup::default());
    cluster.script("job.sh", "#!/bin/sh\nread x <gate\n");
    let mut gate = cluster.gate("gate");
    let first = cluster.sbatch(&["job.sh"]);
    let after = cluster.sbatch(&["-d", &format!("afterok:{first}"), "--wrap", "true"]);
    let later = cluster.sbatch(&["--begin=now+1hour", "--wrap", "true"]);
    let held = cluster.sbatch(&["-H", "--wrap", "true"]);
    cluster.client().wait_for(first, "RUNNING");
    let listed = |words: &[&str]| {
        let line = [&["sacct", "-n", "-P", "-X", "-a", "-o", "jobid,state"], words].concat();
        cluster.rows(&line).join(" ")
    };
    assert_eq!(listed(&[]), format!("{first}|RUNNING"));
    let soon = ["-S", "midnight", "-E", "now+2hours", "-s", "PD"];
    assert_eq!(listed(&soon), format!("{first}|RUNNING {later}|PENDING"));
    let named = format!("{after},{held}");
    assert_eq!(listed(&["-j", &named]), format!("{after}|PENDING {held}|PENDING"));
    gate.open();
    cluster.client().wait_for(after, "COMPLETED");
    // The job became eligible when the other had ended, and not before.
    let end = cluster.rows(&["sacct", "-n", "-P", "-X", "-j", &first.to_string(), "-o", "end"]);
    let eligible = cluster.rows(&["sacct", "-n", "-P", "-X", "-j", &after.to_string(), "-o", "eligible"]);
    assert!(eligible >= end, "{eligible:?} {end:?}");
    let shown = cluster.ok(&["scontrol", "show", "job", &after.to_string()]);
    assert!(shown.contains(&format!("EligibleTime={}", eligible[0])), "{shown}");
    let priority =
        cluster.rows(&["sacct", "-n", "-P", "-X", "-j", &format!("{later},{held}"), "-o", "priority"]);
    assert_eq!(priority, ["0", "1000"], "held, and later");
}

#[test]
fn a_task_that_was_cancelled_alone_is_gone_but_for_accounting() {
    let cluster = Cluster::start(&Setup::default());
    let array = cluster.sbatch(&["-H", "--array=0-3", "--wrap", "true"]);
    cluster.ok(&["scancel", &format!("{array}_2")]);
    let shown = cluster.ok(&["squeue", "-h", "-t", "all", "-o", "%i %t", "-j", &array.to_string()]);
    assert_eq!(shown, format!("{array}_[0-1,3] PD\n"));
    cluster.fails(&["scontrol", "show", "job", &format!("{array}_2")]);
    let rows = cluster.rows(&["sacct", "-n", "-P", "-X", "-o", "jobid,state", "-j", &format!("{array}_2")]);
    assert!(rows[0].starts_with(&format!("{array}_2|CANCELLED")), "{rows:?}");
}

/// The test sets no bound on how long a job is remembered: all checks follow after the job is forgotten.
#[test]
fn how_a_forgotten_job_ended_is_looked_up() {
    let cluster = Cluster::start(&Setup { controller: "min_job_age = \"1s\"", ..Setup::default() });
    let ended: BTreeMap<&str, String> = [("good", "true"), ("bad", "false")]
        .map(|(name, wrap)| (name, cluster.sbatch(&["--wrap", wrap]).to_string()))
        .into();
    cluster.wait_until(|cluster| {
        ended.values().all(|id| cluster.run(&["scontrol", "show", "job", id]).code != Some(0))
    });
    let mut client = cluster.client();
    let submit = |words: &[&str]| cluster.sbatch(&[words, &["--hold", "--wrap", "true"]].concat());
    let good = submit(&["-d", &format!("afterok:{}", ended["good"])]);
    client.wait(good, |job| job.reason == "JobHeldUser");
    let bad = submit(&["-d", &format!("afterok:{}", ended["bad"])]);
    client.wait(bad, |job| job.reason == "DependencyNeverSatisfied" || job.reason == "JobHeldUser");
    let waits = cluster.ok(&["squeue", "-h", "-o", "%E", "-j", &format!("{good},{bad}")]);
    assert_eq!(waits, format!("(null)\nafterok:{}(failed)\n", ended["bad"]));
    let other = submit(&[]).to_string();
    cluster.ok(&[
        "scontrol",
        "update",
        &format!("JobId={other}"),
        &format!("Dependency=afternotok:{}", ended["bad"]),
    ]);
    assert_eq!(cluster.ok(&["squeue", "-h", "-o", "%E", "-j", &other]), "(null)\n");
    let never = format!("afterok:{}", ended["bad"]);
    let killed = cluster.sbatch(&["-d", &never, "--kill-on-invalid-dep=yes", "--wrap", "true"]).to_string();
    let row = || cluster.ok(&["sacct", "-n", "-P", "-X", "-o", "state", "-j", &killed]);
    cluster.wait_until(|_| row().starts_with("CANCELLED"));
    // As in Slurm, a dependency on an unknown job does not hold a job up.
    let free = cluster.sbatch(&["-d", "afterok:4711", "--wrap", "true"]).to_string();
    let row = || cluster.ok(&["sacct", "-n", "-P", "-X", "-o", "state", "-j", &free]);
    cluster.wait_until(|_| row() == "COMPLETED\n");
}

#[test]
fn a_job_without_its_users_variables_has_those_of_a_login() {
    let cluster = Cluster::start(&Setup::default());
    let told = "echo \"$HOME|$USER|$MARK|$OTHER|$SLURM_GET_USER_ENV|${PATH:+path}\"";
    let here = cluster.path("work").canonicalize().unwrap();
    let (home, user) = logged_in();
    for (words, ending) in [
        (&["--export=NONE"][..], format!("{home}|{user}||||path")),
        (&["--export=MARK,OTHER=2", "--chdir=/tmp"], format!("{home}|{user}|1|2||path")),
        (&["--get-user-env", "--chdir=/tmp"], "|1|||path".to_owned()),
    ] {
        let out = here.join("out").display().to_string();
        let mut command =
            cluster.command(&[&["sbatch", "--wait", "-o", &out], words, &["--wrap", told]].concat());
        let said = crate::cluster::said(command.env("MARK", "1").output().unwrap());
        assert_eq!(said.code, Some(0), "{said:?}");
        let line = cluster.read("out");
        assert!(line.trim_end().ends_with(&ending), "{words:?}: {line}");
    }
}

/// Home and name of the user who runs the tests, from this host's `/etc/passwd`.
fn logged_in() -> (String, String) {
    let uid = rustix::process::getuid().as_raw().to_string();
    let all = std::fs::read_to_string("/etc/passwd").unwrap();
    let mine = all.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|parts| parts[2] == uid);
    let mine = mine.expect("the user is in /etc/passwd");
    (mine[5].to_owned(), mine[0].to_owned())
}
