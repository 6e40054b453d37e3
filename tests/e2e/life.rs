//! The life of a job from its owner's view.

use crate::cluster::{Cluster, Setup};

#[test]
fn a_script_runs_once_and_leaves_its_output() {
    let cluster = Cluster::start(&Setup::default());
    cluster.script(
        "job.sh",
        "#!/bin/sh\n#SBATCH --job-name=first -o out-%x-%j.txt\n#SBATCH --ntasks=2 # both here\n\
         echo \"$# arguments: $1, $2\"\necho \"$SLURM_JOB_ID $SLURM_JOB_NAME $SLURM_NTASKS $SLURM_JOB_NODELIST $GREETING\"\n\
         pwd\necho complaint >&2\nexit 3\n",
    );
    let mut submit = cluster.command(&["sbatch", "--parsable", "--wait", "job.sh", "one", "two words"]);
    let said = crate::cluster::said(submit.env("GREETING", "hello").output().unwrap());
    assert_eq!(said.code, Some(3), "--wait ends as the job did: {said:?}");
    let job: u32 = said.out.trim().parse().unwrap();
    let work = cluster.path("work").canonicalize().unwrap();
    assert_eq!(
        cluster.read(&format!("out-first-{job}.txt")),
        format!("2 arguments: one, two words\n{job} first 2 n1 hello\n{}\ncomplaint\n", work.display())
    );
    let row = cluster.ok(&[
        "sacct",
        "-n",
        "-P",
        "-X",
        "-j",
        &job.to_string(),
        "-o",
        "jobid,jobname,state,exitcode,nodelist",
    ]);
    assert_eq!(row.trim(), format!("{job}|first|FAILED|3:0|n1"));
    let shown = cluster.ok(&["scontrol", "show", "job", &job.to_string()]);
    for part in ["JobName=first", "JobState=FAILED", "ExitCode=3:0", "NodeList=n1", "NumTasks=2"] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    assert_eq!(cluster.ok(&["squeue", "-h"]), "");
}

#[test]
fn the_command_line_outweighs_the_environment_and_that_the_script() {
    let cluster = Cluster::start(&Setup::default());
    cluster.script(
        "job.sh",
        "#!/bin/sh\n#SBATCH -J script -o script.txt -c 1\necho $SLURM_JOB_NAME $SLURM_CPUS_PER_TASK\n",
    );
    for (environment, words, file, printed) in [
        (None, &["job.sh"][..], "script.txt", "script 1\n"),
        (Some("variable"), &["job.sh"], "script.txt", "variable 1\n"),
        (Some("variable"), &["-J", "line", "-c2", "-o", "line.txt", "job.sh"], "line.txt", "line 2\n"),
    ] {
        let mut command = cluster.command(&[&["sbatch", "--wait"], words].concat());
        if let Some(name) = environment {
            command.env("SBATCH_JOB_NAME", name);
        }
        let said = crate::cluster::said(command.output().unwrap());
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(cluster.read(file), printed);
    }
}

#[test]
fn scripts_come_from_files_words_and_standard_input() {
    let cluster = Cluster::start(&Setup::default());
    assert!(
        cluster
            .ok(&["sbatch", "--wait", "-o", "wrap.txt", "--wrap", "echo wrapped"])
            .starts_with("Submitted batch job ")
    );
    assert_eq!(cluster.read("wrap.txt"), "wrapped\n");
    cluster.script("piped.sh", "#!/bin/sh\necho piped\n");
    let mut command = cluster.command(&["sbatch", "--wait", "-o", "piped.txt"]);
    command.stdin(std::fs::File::open(cluster.work("piped.sh")).unwrap());
    assert!(command.output().unwrap().status.success());
    assert_eq!(cluster.read("piped.txt"), "piped\n");
    cluster.script("input.txt", "from a file\n");
    cluster.ok(&[
        "sbatch",
        "--wait",
        "-i",
        "input.txt",
        "-o",
        "cat.txt",
        "-e",
        "cat.err",
        "--wrap",
        "cat; echo bad >&2",
    ]);
    assert_eq!((cluster.read("cat.txt"), cluster.read("cat.err")), ("from a file\n".into(), "bad\n".into()));
    for (mode, content) in [("append", "bad\nbad\n"), ("truncate", "bad\n")] {
        cluster.ok(&["sbatch", "--wait", "--open-mode", mode, "-o", "cat.err", "--wrap", "echo bad"]);
        assert_eq!(cluster.read("cat.err"), content, "--open-mode={mode}");
    }
    cluster.ok(&[
        "sbatch",
        "--wait",
        "--export=ONLY=this",
        "-o",
        "env.txt",
        "--wrap",
        "echo $ONLY $HOME_TOWN",
    ]);
    assert_eq!(cluster.read("env.txt"), "this\n");
}

#[test]
fn a_job_waits_for_another_and_never_runs_if_that_went_wrong() {
    let cluster = Cluster::start(&Setup::default());
    let mut client = cluster.client();
    let mut gate = cluster.gate("gate");
    let first = cluster.sbatch(&["--wrap", "read x <gate; echo first >>order"]);
    let after = cluster.sbatch(&["-d", &format!("afterok:{first}"), "--wrap", "echo after >>order"]);
    let never = cluster.sbatch(&["-d", &format!("afternotok:{first}"), "--wrap", "echo never >>order"]);
    let any = cluster.sbatch(&["-d", &format!("afterany:{after}"), "--wrap", "echo any >>order"]);
    client.wait_for(first, "RUNNING");
    assert_eq!(client.job(after).state, "PENDING");
    assert_eq!(client.wait(after, |job| job.reason == "Dependency").reason, "Dependency");
    gate.open();
    client.wait_for(any, "COMPLETED");
    assert_eq!(cluster.read("order"), "first\nafter\nany\n");
    assert_eq!(client.wait(never, |job| job.reason == "DependencyNeverSatisfied").state, "PENDING");
    cluster.ok(&["scancel", &never.to_string()]);
    client.wait_for(never, "CANCELLED");
}

#[test]
fn what_is_held_or_not_due_stays_until_it_may_start() {
    let cluster = Cluster::start(&Setup::default());
    let mut client = cluster.client();
    let held = cluster.sbatch(&["-H", "--wrap", "true"]);
    let later = cluster.sbatch(&["--begin=now+1hour", "--wrap", "true"]);
    let soon = cluster.sbatch(&["--begin=now+2", "--wrap", "true"]);
    client.wait(held, |job| job.reason == "JobHeldUser");
    client.wait(later, |job| job.reason == "BeginTime");
    cluster.ok(&["scontrol", "release", &held.to_string()]);
    client.wait_for(held, "COMPLETED");
    let started = client.wait_for(soon, "COMPLETED");
    assert!(started.start_time >= started.begin_time, "{started:?}");
    cluster.ok(&["scontrol", "uhold", &later.to_string()]);
    client.wait(later, |job| job.reason == "JobHeldUser");
    cluster.ok(&["scontrol", "update", &format!("JobId={later}"), "StartTime=now"]);
    cluster.ok(&["scontrol", "release", &later.to_string()]);
    client.wait_for(later, "COMPLETED");
}

#[test]
fn a_job_over_its_limit_is_asked_to_end_and_then_made_to() {
    let cluster = Cluster::start(&Setup { cpus: 8, ..Setup::default() });
    let mut client = cluster.client();
    let polite = "trap 'echo asked; exit 0' TERM; while :; do sleep 0.05; done";
    let stubborn = "trap 'echo asked' TERM; while :; do sleep 0.05; done";
    let polite = cluster.sbatch(&["-t", "0:03", "-o", "polite.txt", "--wrap", polite]);
    let stubborn = cluster.sbatch(&["-t", "0:03", "-o", "stubborn.txt", "--wrap", stubborn]);
    client.wait_for(polite, "TIMEOUT");
    client.wait_for(stubborn, "TIMEOUT");
    for file in ["polite.txt", "stubborn.txt"] {
        let said = cluster.read(file);
        assert!(said.contains("asked\n") && said.contains("DUE TO TIME LIMIT"), "{file}: {said}");
    }
}

#[test]
fn a_cancelled_job_is_completing_until_its_node_has_ended_it() {
    let cluster = Cluster::start(&Setup { kill_wait: "60s", ..Setup::default() });
    let mut client = cluster.client();
    let (mut up, mut told, mut leave) = (cluster.gate("up"), cluster.gate("told"), cluster.gate("leave"));
    cluster.script(
        "slow.sh",
        "#!/bin/sh\ntrap 'echo TERM >told; until read x <leave; do :; done; exit' TERM\necho up >up\n\
         while :; do sleep 1000 & wait $!; done\n",
    );
    let slow = cluster.sbatch(&["slow.sh"]);
    up.wait();
    assert_eq!(cluster.ok(&["scontrol", "completing"]), "");
    cluster.ok(&["scancel", &slow.to_string()]);
    told.wait();
    let shown = cluster.ok(&["scontrol", "completing"]);
    assert!(shown.starts_with(&format!("JobId={slow} EndTime=")), "{shown}");
    assert!(shown.ends_with(" Nodes(COMPLETING)=n1 \n"), "{shown}");
    leave.open();
    client.wait_for(slow, "CANCELLED");
    assert_eq!(cluster.ok(&["scontrol", "completing"]), "");
}

#[test]
fn a_job_can_be_cancelled_before_and_while_it_runs() {
    let cluster = Cluster::start(&Setup::default());
    let mut client = cluster.client();
    let running = cluster.sbatch(&["-n4", "-o", "running.txt", "--wrap", "echo on; sleep 1000 & wait"]);
    let pending = cluster.sbatch(&["-n4", "-o", "pending.txt", "--wrap", "true"]);
    client.wait_for(running, "RUNNING");
    cluster.ok(&["scancel", &pending.to_string()]);
    client.wait_for(pending, "CANCELLED");
    cluster.ok(&["scancel", &running.to_string()]);
    client.wait_for(running, "CANCELLED");
    assert!(!cluster.work("pending.txt").exists());
    let mut up = cluster.gate("up");
    let signalled = "trap 'echo got it; exit 5' USR1; echo >up; while :; do sleep 0.05; done";
    let signalled = cluster.sbatch(&["-o", "signal.txt", "--wrap", signalled]);
    up.wait();
    cluster.ok(&["scancel", "-s", "USR1", "-b", &signalled.to_string()]);
    let ended = client.wait_for(signalled, "FAILED");
    assert_eq!((ended.exit_code, cluster.read("signal.txt")), (5, "got it\n".to_owned()));
}

#[test]
fn a_requeued_job_runs_again_from_its_beginning() {
    let cluster = Cluster::start(&Setup::default());
    let mut client = cluster.client();
    let mut gate = cluster.gate("gate");
    let job = cluster.sbatch(&[
        "--requeue",
        "--open-mode=append",
        "-o",
        "out.txt",
        "--wrap",
        "trap '' TERM; echo run ${SLURM_RESTART_COUNT:-0}; read x <gate",
    ]);
    client.wait_for(job, "RUNNING");
    cluster.ok(&["scontrol", "requeue", &job.to_string()]);
    // The job counts as cancelled neither while it ends nor afterwards.
    let states = cluster.ok(&["sacct", "-D", "-X", "-n", "-P", "-o", "State", "-j", &job.to_string()]);
    assert_eq!(states.lines().next(), Some("REQUEUED"), "{states}");
    let again = client.wait(job, |job| job.state == "RUNNING" && job.restarts == 1);
    assert_eq!(again.restarts, 1);
    gate.open();
    client.wait_for(job, "COMPLETED");
    assert!(cluster.read("out.txt").ends_with("run 1\n"), "{}", cluster.read("out.txt"));
}

#[test]
fn a_script_that_requeues_itself_hears_that_it_worked() {
    let cluster = Cluster::start(&Setup::default());
    let mut client = cluster.client();
    let script = "trap : TERM; [ ${SLURM_RESTART_COUNT:-0} -gt 0 ] && exit 0
        scontrol requeue $SLURM_JOB_ID; echo $? >code";
    let job = cluster.sbatch(&["--wrap", script]);
    client.wait_for(job, "COMPLETED");
    assert_eq!(client.job(job).restarts, 1);
    assert_eq!(cluster.read("code"), "0\n");
}

#[test]
fn shutdown_ends_every_daemon_and_no_job() {
    let mut cluster = Cluster::start(&Setup::default());
    let mut gate = cluster.gate("gate");
    let job = cluster.sbatch(&["-o", "out", "--wrap", "read x <gate; echo went on"]);
    cluster.client().wait_for(job, "RUNNING");
    cluster.shut_down_all();
    gate.open();
    cluster.start_controller();
    cluster.start_node("n1");
    cluster.client().wait_for(job, "COMPLETED");
    assert_eq!(cluster.read("out"), "went on\n");
}

#[test]
fn a_started_job_keeps_its_priority_and_accounting_knows_who_cancelled_it() {
    let cluster = Cluster::start(&Setup::default());
    let job = cluster.sbatch(&["--wrap", "sleep 1000"]);
    cluster.client().wait_for(job, "RUNNING");
    let priority = cluster.ok(&["squeue", "-h", "-o", "%Q"]);
    assert!(priority.trim().parse::<u32>().is_ok_and(|priority| priority > 0), "{priority}");
    let shown = cluster.ok(&["scontrol", "show", "job", &job.to_string()]);
    assert!(shown.contains(&format!("Priority={} ", priority.trim())), "{shown}");
    assert!(!shown.contains("LastSchedEval=Unknown"), "{shown}");
    assert_eq!(cluster.ok(&["squeue", "-h", "-t", "S,PR,CONFIGURING"]), "", "no job is in such a state");
    cluster.ok(&["scancel", &job.to_string()]);
    cluster.client().wait_for(job, "CANCELLED");
    let row = cluster.ok(&["sacct", "-n", "-P", "-X", "-j", &job.to_string(), "-o", "state,priority"]);
    let uid = rustix::process::getuid().as_raw();
    assert_eq!(row.trim(), format!("CANCELLED by {uid}|{}", priority.trim()));
}

/// In the mode `easy` only the head of the queue has a planned start; a request computes that of any job.
#[test]
fn why_tells_when_any_job_will_start() {
    let cluster = Cluster::start(&Setup::default());
    let mut client = cluster.client();
    let mut gate = cluster.gate("gate");
    let first = cluster.sbatch(&["-t", "10", "--exclusive", "--wrap", "read x <gate"]);
    client.wait_for(first, "RUNNING");
    let details = cluster.ok(&["scontrol", "-d", "show", "job", &first.to_string()]);
    assert!(details.contains("\n     Nodes=n1 CPU_IDs=0-3 Mem=0 GRES=\n"), "{details}");
    let head = cluster.sbatch(&["-t", "20", "--exclusive", "--wrap", "true"]);
    let last = cluster.sbatch(&["-t", "30", "--exclusive", "--wrap", "true"]);
    client.wait(last, |job| job.reason == "Priority");
    let said = cluster.ok(&["spur", "why", "--json", &format!("{first},{head}"), &last.to_string()]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let start = |at: usize| said["jobs"][at]["start_time"].as_i64().unwrap_or_else(|| panic!("{said}"));
    assert_eq!((start(1) - start(0), start(2) - start(1)), (600, 1200), "{said}");
    assert_eq!(said["jobs"][2]["planned_nodes"], "n1");
    let text = cluster.ok(&["spur", "why", &head.to_string()]);
    assert!(text.contains("state   PENDING, Resources\nplanned ") && text.contains("nodes   n1\n"), "{text}");
    let plan = cluster.ok(&["spur", "plan", "--json", "--", "-t", "5", "--exclusive"]);
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    assert_eq!((&plan["reason"], &plan["spans"]["node"]), (&"Priority".into(), &1.into()), "{plan}");
    let test = cluster.run(&["sbatch", "--test-only", "-t", "5", "--exclusive", "--wrap", "true"]).err;
    assert!(
        test.contains("sbatch: Job 4 to start at") && test.contains("using 4 processors on nodes n1"),
        "{test}"
    );
    let held = ["sbatch", "--test-only", "-H", "--begin", "2038-01-02T03:04:05", "-t", "5", "--wrap", "true"];
    let held = cluster.run(&held);
    assert!(held.code == Some(0) && held.err.contains("to start at 2038-01-02T03:04:05"), "{held:?}");
    assert!(cluster.fails(&["spur", "why", "99"]).contains("Invalid job id"));
    gate.open();
    client.wait_for(last, "COMPLETED");
}

/// The missing nodes are named with the reason, as in Slurm; tools that compare the reason get the word
/// alone.
#[test]
fn nodes_that_are_out_of_service_are_named() {
    let cluster = Cluster::start(&Setup { nodes: 3, ..Setup::default() });
    cluster.ok(&["scontrol", "update", "NodeName=n[2-3]", "State=DRAIN", "Reason=fan"]);
    let job = cluster.sbatch(&["-N2", "--exclusive", "-t", "5", "--wrap", "true"]);
    let mut client = cluster.client();
    client.wait(job, |job| job.reason == "ReqNodeNotAvail, UnavailableNodes:n[2-3]");
    let shown = cluster.ok(&["squeue", "-h", "-o", "%r|%R|%T"]);
    assert_eq!(
        shown,
        "ReqNodeNotAvail, UnavailableNodes:n[2-3]|(ReqNodeNotAvail, UnavailableNodes:n[2-3])|PENDING\n"
    );
    let shown = cluster.ok(&["scontrol", "show", "job", &job.to_string()]);
    assert!(shown.contains(" Reason=ReqNodeNotAvail,_UnavailableNodes:n[2-3] "), "{shown}");
    let said: serde_json::Value = serde_json::from_str(&cluster.ok(&["squeue", "--json"])).unwrap();
    let said = &said["jobs"][0];
    assert_eq!(
        (&said["state_reason"], &said["state_description"]),
        (&"ReqNodeNotAvail".into(), &"UnavailableNodes:n[2-3]".into(),)
    );
    let group = cluster.sbatch(&["-N2", "--exclusive", "-t", "5", ":", "-n1", "--wrap", "true"]);
    client.wait(group, |job| job.reason.starts_with("ReqNodeNotAvail, UnavailableNodes:n[2-3]"));
    cluster.ok(&["scontrol", "update", "NodeName=n2", "State=RESUME"]);
    client.wait_for(job, "COMPLETED");
}

/// The parts of a priority are shown for jobs that wait for resources, and for no others.
#[test]
fn priorities_say_what_makes_them_up() {
    let cluster = Cluster::start(&Setup::default());
    let mut client = cluster.client();
    let mut gate = cluster.gate("gate");
    let first = cluster.sbatch(&["--exclusive", "--wrap", "read x <gate"]);
    client.wait_for(first, "RUNNING");
    let waits = cluster.sbatch(&["--exclusive", "--nice=30", "--wrap", "true"]);
    let held = cluster.sbatch(&["-H", "--exclusive", "--wrap", "true"]);
    let later = cluster.sbatch(&["--begin=now+1hour", "--exclusive", "--wrap", "true"]);
    client.wait_for(later, "PENDING");
    let shown = cluster.ok(&["sprio", "-h", "-o", "%i %r %Y %P %N"]);
    assert_eq!(shown, format!("{waits} main 970 1000 30\n"));
    assert!(cluster.ok(&["sprio", "-w", "-h", "-o", "%i %A %P"]).starts_with("Weights 1000 1000"));
    cluster.ok(&["scontrol", "update", &format!("JobId={waits}"), "Priority=77"]);
    assert_eq!(cluster.ok(&["sprio", "-h", "-o", "%i %Y %P"]), format!("{waits} 77 0\n"));
    assert_eq!(
        cluster.ok(&["sprio", "-j", &held.to_string()]),
        "Unable to find jobs matching user/id(s) specified\n"
    );
    gate.open();
    client.wait_for(waits, "COMPLETED");
}
