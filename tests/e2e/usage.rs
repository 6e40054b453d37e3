//! The usage of jobs, as accounting reports it.

use std::collections::BTreeMap;

use crate::cluster::{Cluster, Setup};

/// Two tasks: the first computes for two seconds, the other takes 300 MB; before they end they wait at a
/// gate.
const TWO_TASKS: &str = "#!/bin/sh\n\
    srun -n2 sh -c '\n\
    if [ $SLURM_PROCID = 0 ]; then (ulimit -t 3; while :; do :; done) 2>/dev/null\n\
    else head -c 300000000 /dev/zero | tail -n 1 | wc -c; fi\n\
    echo >up; read x <gate; true'\n";

/// The accounting fields of each step, by its id.
fn fields(cluster: &Cluster, job: u32) -> BTreeMap<String, Vec<String>> {
    let said = cluster.ok(&[
        "sacct",
        "-nP",
        "--noconvert",
        "-j",
        &job.to_string(),
        "-o",
        "JobID,State,MaxRSS,MaxRSSTask,MaxRSSNode,AveCPU,TotalCPU,TRESUsageInTot",
    ]);
    let row = |line: &str| {
        let mut fields = line.split('|').map(str::to_owned);
        Some((fields.next()?, fields.collect()))
    };
    said.lines().filter_map(row).collect()
}

/// The seconds in `MM:SS.mmm`.
fn seconds(time: &str) -> f64 {
    let (minutes, seconds) = time.split_once(':').unwrap();
    minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
}

#[test]
fn what_tasks_used_is_told_whoever_was_killed_meanwhile() {
    let mut cluster = Cluster::start(&Setup::default());
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    cluster.script("job.sh", TWO_TASKS);
    for dead in [&[][..], &["n1"], &["spurctld", "n1"]] {
        let job = cluster.sbatch(&["-n2", "-o", "/dev/null", "job.sh"]);
        (0..2).for_each(|_| up.wait());
        dead.iter().for_each(|daemon| cluster.kill(daemon));
        (0..2).for_each(|_| gate.open());
        if dead.contains(&"spurctld") {
            cluster.start_controller();
        }
        if dead.contains(&"n1") {
            cluster.start_node("n1");
        }
        cluster.client().wait_for(job, "COMPLETED");
        let all = fields(&cluster, job);
        let step = &all[&format!("{job}.0")];
        let [state, memory, task, node, mean, total, tres] = &step[..] else { panic!("{step:?}") };
        assert_eq!((state.as_str(), task.as_str(), node.as_str()), ("COMPLETED", "1", "n1"), "{dead:?}");
        let memory: u64 = memory.parse().unwrap();
        assert!((300_000_000..450_000_000).contains(&memory), "{memory}");
        assert!(seconds(total) >= 2.9, "{total} of a task that computed for 3 s");
        assert!(mean.starts_with("00:00:0") && mean != "00:00:00", "{mean}");
        assert!(tres.contains(",mem=3") && tres.contains("cpu=00:00:0"), "{tres}");
        let said = cluster.ok(&["seff", &job.to_string()]);
        assert!(said.starts_with(&format!("Job ID: {job}\nCluster: e2e\nUser/Group: ")), "{said}");
        assert!(
            said.contains(
                "State: COMPLETED (exit code 0)\nNodes: 1\nCores per node: 2\nCPU Utilized: 00:00:0"
            ),
            "{said}"
        );
        assert!(said.contains("\nMemory Utilized: ") && said.contains(" core-walltime\n"), "{said}");
        let of_job = seconds(&all[&job.to_string()][5]);
        let of_batch = seconds(&all[&format!("{job}.batch")][5]);
        assert!(
            (of_job - of_batch - seconds(total)).abs() < 0.002,
            "a job has used what its steps have: {all:?}"
        );
    }
}

#[test]
fn the_batch_step_of_a_cancelled_job_ends_by_its_signal() {
    let cluster = Cluster::start(&Setup::default());
    let mut up = cluster.gate("up");
    let job = cluster.sbatch(&["-o", "/dev/null", "--wrap", "echo >up; exec sleep 1000"]);
    up.wait();
    cluster.ok(&["scancel", &job.to_string()]);
    cluster.client().wait_for(job, "CANCELLED");
    let said = cluster.ok(&["sacct", "-nP", "-j", &job.to_string(), "-o", "JobID,State,ExitCode"]);
    let batch = said.lines().find(|line| line.contains(".batch")).unwrap();
    assert_eq!(batch, format!("{job}.batch|CANCELLED|0:15"));
    assert!(cluster.ok(&["scontrol", "show", "job", &job.to_string()]).contains(" ExitCode=0:15\n"));
}

/// Tests with the means that hold steps together on this host, and without any.
#[test]
fn memory_over_the_request_ends_a_job_as_out_of_memory() {
    for agent in ["", "cgroup_plugin = \"disabled\""] {
        let cluster = Cluster::start(&Setup { agent, ..Setup::default() });
        let hog = "head -c 600000000 /dev/zero | tail -n 1 | wc -c";
        let job = cluster.sbatch(&["--mem=100", "-o", "hog", "--wrap", &format!("{hog}; true")]);
        let steps = cluster.sbatch(&[
            "--mem=1000",
            "-o",
            "steps",
            "--wrap",
            &format!("srun --mem=100 sh -c '{hog}; true'; true"),
        ]);
        let mut client = cluster.client();
        let ended = client.wait_for(job, "OUT_OF_MEMORY");
        assert_eq!((ended.exit_code, ended.exit_signal), (0, 125), "{agent}: {ended:?}");
        assert!(cluster.read("hog").contains(&format!("oom_kill event in StepId={job}.batch")), "{agent}");
        client.wait_for(steps, "COMPLETED");
        let said = cluster.ok(&["sacct", "-nP", "-j", &steps.to_string(), "-o", "JobID,State,ExitCode"]);
        assert!(said.contains(&format!("{steps}.0|OUT_OF_MEMORY|0:125")), "{agent}: {said}");
        let derived = cluster.ok(&["sacct", "-nXP", "-j", &steps.to_string(), "-o", "DerivedExitCode"]);
        assert_eq!(derived, "0:125\n", "{agent}");
        assert!(cluster.read("steps").contains("task 0: Out Of Memory"), "{agent}");
        // A job of srun's is its step; the exit codes of its tasks do not matter.
        let words = ["srun", "--mem=100", "-n2", "sh", "-c"];
        let hog = format!("test $SLURM_PROCID = 1 || {{ {hog}; }}; true");
        let said = cluster.run(&[&words[..], &[hog.as_str()]].concat());
        assert_eq!(said.code, Some(1), "{agent}: {said:?}");
        assert!(said.err.contains(": Out Of Memory"), "{agent}: {said:?}");
        assert!(said.err.contains("oom_kill event in StepId="), "{agent}: {said:?}");
        let rows = cluster.ok(&[
            "sacct",
            "-nXP",
            "-n",
            "-s",
            "OOM",
            "-S",
            "now-1hour",
            "-E",
            "now",
            "-o",
            "ExitCode,JobName",
        ]);
        assert_eq!(rows.lines().last(), Some("0:125|sh"), "{agent}: {rows}");
    }
}

#[test]
fn a_step_outlives_one_of_its_processes_without_memory_unless_asked_not_to() {
    let cluster = Cluster::start(&Setup::default());
    let node = cluster.ok(&["scontrol", "--json=spur", "show", "node", "n1"]);
    // Where memory is limited only by sampling, all of a step is ended whatever was asked.
    let limited = node.contains("memory:cgroup");
    let hog = "head -c 600000000 /dev/zero | tail -n 1 | wc -c";
    let goes_on = format!("{hog}; echo after");
    let stays = format!("{hog}; sleep 1000; echo after");
    let step = format!("srun --oom-kill-step=1 sh -c '{stays}'; true");
    for (name, options, script, state) in [
        ("default", vec![], &goes_on, "OUT_OF_MEMORY"),
        ("alone", vec!["--oom-kill-step=0"], &goes_on, "OUT_OF_MEMORY"),
        ("whole", vec!["--oom-kill-step"], &stays, "OUT_OF_MEMORY"),
        ("step", vec!["--oom-kill-step=0"], &step, "COMPLETED"),
    ] {
        let job = [&["--mem=100", "-o", name, "--wrap", script], &options[..]].concat();
        let ended = cluster.client().wait_for(cluster.sbatch(&job), state);
        let signal = if state == "COMPLETED" { 0 } else { 125 };
        assert_eq!((ended.exit_code, ended.exit_signal), (0, signal), "{name}: {ended:?}");
        if limited {
            let said = cluster.read(name);
            assert_eq!(said.contains("after"), script.contains(&goes_on), "{name}: {said}");
        }
    }
    let refused = cluster.run(&["sbatch", "--oom-kill-step=2", "--wrap", "true"]);
    assert_eq!(refused.code, Some(255), "{refused:?}");
}

#[test]
fn a_step_asked_to_ends_on_all_nodes_without_memory_on_one() {
    let cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    let hog = "head -c 600000000 /dev/zero | tail -n 1 | wc -c";
    let script = format!("test $SLURM_PROCID = 1 || exec sleep 1000; {hog}; sleep 1000");
    let said = cluster.run(&["srun", "--oom-kill-step=1", "-N2", "--mem=100", "sh", "-c", &script]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("n2: task 1: Out Of Memory"), "{said:?}");
    assert!(said.err.contains("n1: task 0: Terminated"), "{said:?}");
}

#[test]
fn running_steps_say_what_they_use() {
    let cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    cluster.script(
        "job.sh",
        "#!/bin/sh\nsrun -n2 sh -c 'head -c 60000000 /dev/zero | (tail -n 1; echo >up; read x <gate) | wc -c'\n",
    );
    let job = cluster.sbatch(&["-N2", "-o", "/dev/null", "job.sh"]);
    (0..2).for_each(|_| up.wait());
    let step = format!("{job}.0");
    let fields = "JobID,NTasks,MaxRSSNode,TRESUsageInTot";
    let said = cluster.ok(&["sstat", "-nP", "-j", &job.to_string(), "-o", fields]);
    let [id, tasks, node, total] = said.trim().split('|').collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert_eq!((id, tasks), (step.as_str(), "2"));
    assert!(
        ["n1", "n2"].contains(&node) && total.contains("fs/disk=36") && total.contains(",mem="),
        "{said}"
    );
    let all = cluster.ok(&["sstat", "-naP", "-j", &job.to_string(), "-o", "JobID"]);
    assert_eq!(all, format!("{step}\n{job}.batch\n"));
    assert_eq!(
        cluster.ok(&["sstat", "-nP", "-j", &format!("{job}.batch"), "-o", "JobID"]),
        format!("{job}.batch\n")
    );
    let pids = cluster.ok(&["sstat", "-nPi", "-j", &step]);
    for (line, node) in pids.lines().zip(["n1", "n2"]) {
        let [id, on, pids] = line.split('|').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert_eq!((id, on), (step.as_str(), node));
        assert!(
            pids.split(',').count() >= 3 && pids.split(',').all(|pid| pid.parse::<u32>().is_ok()),
            "{line}"
        );
    }
    let listed = cluster.ok(&["scontrol", "listpids", &step, "n2"]);
    let task = listed.lines().find(|line| line.split_whitespace().nth(3) == Some("0")).unwrap();
    assert!(task.ends_with("0       1       "), "the second rank is the first task there: {listed}");
    (0..2).for_each(|_| gate.open());
    cluster.client().wait_for(job, "COMPLETED");
    let said = cluster.run(&["sstat", "-j", &job.to_string()]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains(&format!("sstat: error: no steps running for job {job}")), "{}", said.err);
}

/// The event of a node that is still out of service is not purged.
#[test]
fn old_events_of_nodes_are_purged() {
    let cluster =
        Cluster::start(&Setup { nodes: 2, controller: "purge_event_after = \"2s\"", ..Setup::default() });
    for node in ["n1", "n2"] {
        cluster.ok(&["scontrol", "update", &format!("NodeName={node}"), "State=DRAIN", "Reason=fan"]);
    }
    cluster.ok(&["scontrol", "update", "NodeName=n1", "State=RESUME"]);
    let since = ["sacctmgr", "-nP", "show", "events", "start=2020-01-01", "format=nodename,reason"];
    cluster.wait_until(|cluster| cluster.ok(&since).contains("n2|fan"));
    cluster.wait_until(|cluster| cluster.ok(&since) == "n2|fan\n");
}

/// A task of an array that still has a task in memory is not purged, nor the last job.
#[test]
fn old_jobs_are_purged_and_reports_say_so() {
    let controller = "min_job_age = \"1s\"\npurge_job_after = \"2s\"";
    let cluster = Cluster::start(&Setup { controller, ..Setup::default() });
    let rows = |job: &str| cluster.run(&["sacct", "-naj", job]);
    let array = cluster.sbatch(&["--hold", "--array=0-1", "-o", "/dev/null", "--wrap", "srun true"]);
    let task = format!("{array}_0");
    assert_eq!(rows(&task).err, "");
    cluster.ok(&["scontrol", "release", &task]);
    cluster.wait_until(|_| rows(&task).out.contains("COMPLETED"));
    let [old, last] =
        [(); 2].map(|()| cluster.sbatch(&["--wait", "-o", "/dev/null", "--wrap", "srun true"]).to_string());
    let purged = "sacct: records are complete from 20";
    cluster.wait_until(|_| rows(&old).out.is_empty() && rows(&old).err.starts_with(purged));
    for kept in [&task, &last] {
        assert!(rows(kept).out.contains("COMPLETED"), "{kept}: {:?}", rows(kept));
    }
    let since = ["sacct", "-naX", "-S", "2020-01-01", "-E", "now", "-s", "CD", "-o", "jobid"];
    let listed = cluster.run(&since);
    assert_eq!(listed.out.split_whitespace().collect::<Vec<_>>(), [&task, &last]);
    assert!(listed.err.contains("jobs that ended before have been purged"), "{listed:?}");
    let report = cluster.run(&["sreport", "cluster", "utilization", "start=2020-01-01", "end=now"]);
    assert!(report.err.contains("sreport: records are complete from 20"), "{report:?}");
}
