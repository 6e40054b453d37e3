//! Job arrays, as their owners see them.

use crate::cluster::{Cluster, Setup, said};

/// The lines of `sacct` for jobs: their ids, states and exit codes.
fn accounted(cluster: &Cluster, job: u32) -> String {
    cluster.ok(&["sacct", "-n", "-P", "-X", "-j", &job.to_string(), "-o", "jobid,state,exitcode"])
}

#[test]
fn every_task_of_an_array_runs_once_though_the_controller_dies() {
    let mut cluster = Cluster::start(&Setup::default());
    let (mut gate, mut begun) = (cluster.gate("gate"), cluster.gate("begun"));
    cluster.script(
        "task.sh",
        "#!/bin/sh\necho $SLURM_ARRAY_TASK_ID >>marks\necho x >begun\nread x <gate\n[ $SLURM_ARRAY_TASK_ID != 3 ]\n",
    );
    let array = cluster.sbatch(&["-H", "--array=0-7%2", "task.sh"]);
    let ok = cluster.sbatch(&["-d", &format!("afterok:{array}"), "--wrap", "true"]);
    let any = cluster.sbatch(&["-d", &format!("afterany:{array}_*"), "--wrap", "echo all >>marks"]);
    let first = cluster.sbatch(&["-d", &format!("afterok:{array}_0"), "-o", "/dev/null", "--wrap", "true"]);
    let held = cluster.ok(&["squeue", "-h", "-o", "%i %A %F %K %t %r", "-j", &array.to_string()]);
    assert_eq!(held, format!("{array}_[0-7%2] {array} {array} 0-7%2 PD JobHeldUser\n"));
    cluster.ok(&["scancel", &format!("{array}_[5-6]")]);
    let rest = cluster.ok(&["squeue", "-h", "-r", "-o", "%i", "-j", &array.to_string()]);
    assert_eq!(rest, [0, 1, 2, 3, 4, 7].map(|task| format!("{array}_{task}\n")).concat());

    cluster.ok(&["scontrol", "release", &array.to_string()]);
    begun.wait();
    begun.wait();
    cluster.kill("spurctld");
    cluster.start_controller();
    let mut client = cluster.client();
    let shown = cluster.ok(&["squeue", "-h", "-t", "R", "-o", "%i", "-j", &array.to_string()]);
    assert_eq!(shown, format!("{array}_0\n{array}_1\n"), "no more than two run at a time");
    gate.open();
    gate.open();
    client.wait_for(first, "COMPLETED");
    begun.wait();
    cluster.kill("spurctld");
    gate.open();
    gate.open();
    cluster.start_controller();
    gate.open();
    gate.open();
    let mut client = cluster.client();
    client.wait_for(any, "COMPLETED");
    client.wait(ok, |job| job.reason == "DependencyNeverSatisfied");

    let marks = cluster.read("marks");
    let mut marks: Vec<&str> = marks.lines().collect();
    assert_eq!(marks.pop(), Some("all"), "whatever waits for all tasks comes last");
    marks.sort_unstable();
    assert_eq!(marks, ["0", "1", "2", "3", "4", "7"], "every task has left one mark");
    let uid = rustix::process::getuid().as_raw();
    let rows = accounted(&cluster, array);
    for (task, state) in [
        ("0", "COMPLETED|0:0".to_owned()),
        ("3", "FAILED|1:0".to_owned()),
        ("7", "COMPLETED|0:0".to_owned()),
        ("[5-6%2]", format!("CANCELLED by {uid}|0:0")),
    ] {
        assert!(rows.contains(&format!("{array}_{task}|{state}\n")), "task {task}:\n{rows}");
    }
    assert_eq!(rows.lines().count(), 7, "{rows}");
}

#[test]
fn tasks_know_who_they_are_and_can_be_dealt_with_alone() {
    let cluster = Cluster::start(&Setup::default());
    let mut client = cluster.client();
    let wrap = "echo $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_COUNT $SLURM_ARRAY_TASK_MIN \
                $SLURM_ARRAY_TASK_MAX $SLURM_ARRAY_TASK_STEP; exit $SLURM_ARRAY_TASK_ID";
    let done =
        said(cluster.command(&["sbatch", "--wait", "--array=1-7:3", "--wrap", wrap]).output().unwrap());
    assert_eq!(done.code, Some(7), "--wait ends as the worst of the tasks did: {done:?}");
    let array: u32 = done.out.trim().rsplit(' ').next().unwrap().parse().unwrap();
    for task in [1, 4, 7] {
        let printed = cluster.read(&format!("slurm-{array}_{task}.out"));
        assert_eq!(printed, format!("{array} {task} 3 1 7 3\n"));
    }
    let row = cluster.ok(&["sacct", "-n", "-P", "-X", "-j", &format!("{array}_4"), "-o", "jobid,exitcode"]);
    assert_eq!(row, format!("{array}_4|4:0\n"));

    let mut gate = cluster.gate("gate");
    let words = ["-H", "--array=0-3", "-o", "out-%A-%a-%j", "--wrap", "read x <gate; echo $SLURM_JOB_ID"];
    let array = cluster.sbatch(&words);
    let (one, all) = (format!("{array}_2"), array.to_string());
    let each = cluster.sbatch(&["--array=2-3", "-d", &format!("aftercorr:{array}"), "--wrap", "true"]);
    cluster.ok(&["scontrol", "update", &format!("JobId={one}"), "TimeLimit=7"]);
    cluster.ok(&["scontrol", "release", &one]);
    let shown = cluster.ok(&["scontrol", "show", "job", &one]);
    for part in [format!("ArrayJobId={array} ArrayTaskId=2 "), "TimeLimit=00:07:00".to_owned()] {
        assert!(shown.contains(&part), "{part} is not in\n{shown}");
    }
    gate.open();
    let after = cluster.sbatch(&["-d", &format!("afterok:{each}_2"), "--wrap", "true"]);
    client.wait_for(after, "COMPLETED");
    let number: u32 = cluster.read_matching(&format!("out-{array}-2-")).trim().parse().unwrap();
    assert!(number > array, "a task that is not the last of its array has a number of its own");
    let rest = cluster.ok(&["squeue", "-h", "-o", "%i %r", "-j", &format!("{all},{each}")]);
    assert_eq!(rest, format!("{each}_[3] Dependency\n{array}_[0-1,3] JobHeldUser\n"));
    assert!(cluster.fails(&["scontrol", "hold", &format!("{array}_9")]).contains("Invalid job id specified"));
    let refused = cluster.fails(&["sbatch", "--array=0-1001", "--wrap", "true"]);
    assert!(refused.contains("Invalid job array specification"), "{refused}");
    cluster.ok(&["scancel", &all, &each.to_string()]);
    assert_eq!(cluster.ok(&["squeue", "-h"]), "");
}

#[test]
fn tasks_that_wait_as_one_are_shown_one_by_one_where_they_are_named() {
    let cluster = Cluster::start(&Setup::default());
    let array = cluster.sbatch(&["--hold", "-a", "1-3", "--wrap", "true"]);
    let shown = |words: &[&str]| cluster.ok(&[&["squeue", "-h", "-o", "%i %K"], words].concat());
    assert_eq!(shown(&["-j", &array.to_string()]), format!("{array}_[1-3] 1-3\n"));
    assert_eq!(shown(&["-j", &format!("{array}_2")]), format!("{array}_2 2\n"));
    let several = shown(&["-r", "-S", "K", "-j", &format!("{array}_[1,3]")]);
    assert_eq!(several, format!("{array}_1 1\n{array}_3 3\n"));
    assert_eq!(shown(&["-j", &format!("{array}_7")]), "");
    assert!(cluster.fails(&["squeue", "-j", "99_1"]).contains("Invalid job id specified"));
}

#[test]
fn no_job_waits_for_itself_and_what_has_failed_is_shown() {
    let cluster = Cluster::start(&Setup::default());
    let first = cluster.sbatch(&["--hold", "--wrap", "exit 1"]);
    let second = cluster.sbatch(&["-d", &format!("afterok:{first}"), "--wrap", "true"]);
    let third =
        cluster.sbatch(&["--hold", "-d", &format!("afterany:{second}"), "-a", "1-2", "--wrap", "true"]);
    let job = format!("JobId={first}");
    for on in [first.to_string(), second.to_string(), third.to_string(), format!("{third}_2")] {
        let dependency = format!("Dependency=afterok:{on}");
        let refused = cluster.fails(&["scontrol", "update", &job, &dependency]);
        assert!(refused.contains("Circular job dependency"), "{on}: {refused}");
    }
    // Tasks may wait for others of their array.
    let later = format!("JobId={third}_2");
    cluster.ok(&["scontrol", "update", &later, &format!("Dependency=afterany:{third}_1")]);
    let either = format!("afterok:{first}?afterany:{third}_1");
    let either = cluster.sbatch(&["-d", &either, "--wrap", "true"]);
    cluster.ok(&["scontrol", "release", &first.to_string()]);
    cluster.client().wait(second, |job| job.reason == "DependencyNeverSatisfied");
    let shown = |job: u32| cluster.ok(&["squeue", "-h", "-o", "%E", "-j", &job.to_string()]);
    assert_eq!(shown(second), format!("afterok:{first}(failed)\n"));
    assert_eq!(shown(either), format!("afterok:{first}(failed)?afterany:{third}_1(unfulfilled)\n"));
}
