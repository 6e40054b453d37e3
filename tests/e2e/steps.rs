//! `srun` inside a job: its tasks, their order, input, output, ends and signals.

use crate::cluster::{Cluster, Setup, free_port};

/// Two leaves, whose nodes do not follow each other by name.
const FABRIC: &str = r#"
[topology]
plugin = "tree"
layers = ["leaf", "spine"]
[[topology.switches]]
name = "l1"
nodes = "n[1,3]"
[[topology.switches]]
name = "l2"
nodes = "n[2,4]"
[[topology.switches]]
name = "top"
switches = "l[1-2]"
"#;

fn four_nodes() -> Cluster {
    Cluster::start(&Setup { nodes: 4, more: FABRIC, ..Setup::default() })
}

/// Runs a batch script to its end and returns its output, its exit code and its errors.
fn batch(cluster: &Cluster, options: &[&str], script: &str) -> (String, Option<i32>, String) {
    cluster.script("job.sh", &format!("#!/bin/sh\n{script}\n"));
    let words = [&["sbatch", "--wait", "-o", "out", "-e", "err"], options, &["job.sh"]].concat();
    let said = cluster.run(&words);
    (cluster.read("out"), said.code, cluster.read("err"))
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn ranks_follow_the_fabric() {
    let cluster = four_nodes();
    let task = "echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_NODEID.$SLURM_LOCALID $SLURMD_NODENAME $SLURM_TOPOLOGY_ADDR $SLURM_STEP_ID";
    let (out, code, err) =
        batch(&cluster, &["-N4"], &format!("echo $SLURM_JOB_NODELIST\nsrun sh -c '{task}'"));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let lines = sorted(&out);
    let tasks = [
        "0/4 0.0 n1 top.l1.n1 0",
        "1/4 1.0 n3 top.l1.n3 0",
        "2/4 2.0 n2 top.l2.n2 0",
        "3/4 3.0 n4 top.l2.n4 0",
    ];
    assert_eq!(lines, [&tasks[..], &["n[1,3,2,4]"]].concat());
    let task = "echo $SLURM_PROCID $SLURM_NODEID.$SLURM_LOCALID";
    let (out, _, _) = batch(&cluster, &["-N2", "-n4", "-w", "n[1,2]"], &format!("srun -l sh -c '{task}'"));
    assert_eq!(sorted(&out), ["0: 0 0.0", "1: 1 0.1", "2: 2 0.2", "3: 3 1.0"]);
}

#[test]
fn a_step_has_a_time_of_its_own_that_can_be_changed() {
    let cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    let script = "
        srun -t 0:01 sleep 1000; echo $? >first
        srun -t 10 sh -c 'echo >up; exec sleep 1000' & sleep=$!
        read x <gate
        scontrol show step $SLURM_JOB_ID.1 | head -1 | sed 's/.*TimeLimit/TimeLimit/' >shown
        squeue -h -s -o '%i %l' | grep '\\.1 ' >listed
        scontrol update StepId=$SLURM_JOB_ID.1 TimeLimit=0:01 || exit 9
        wait $sleep; echo $? >second
        srun true";
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let job = cluster.sbatch(&["-N2", "-t", "20", "-e", "err", "--wrap", script]);
    (0..2).for_each(|_| up.wait());
    gate.open();
    cluster.client().wait_for(job, "COMPLETED");
    assert_eq!((cluster.read("first").trim(), cluster.read("second").trim()), ("143", "143"));
    assert_eq!(cluster.read("shown"), "TimeLimit=00:10:00\n");
    assert_eq!(cluster.read("listed"), format!("{job}.1 10:00\n"));
    let err = cluster.read("err");
    for step in 0..2 {
        let said = format!("*** STEP {job}.{step} ON n1 CANCELLED AT ");
        let line = err.lines().find(|line| line.contains(&said)).unwrap_or_else(|| panic!("{said}: {err}"));
        assert!(line.ends_with(" DUE TO TIME LIMIT ***"), "{line}");
    }
    let rows = cluster.ok(&["sacct", "-j", &job.to_string(), "-n", "-P", "-o", "jobid,state"]);
    let wanted = format!(
        "{job}|COMPLETED\n{job}.batch|COMPLETED\n{job}.0|TIMEOUT\n{job}.1|TIMEOUT\n{job}.2|COMPLETED\n"
    );
    assert_eq!(rows, wanted);
}

#[test]
fn steps_of_a_cancelled_job_have_their_time() {
    let cluster = Cluster::start(&Setup::default());
    let (mut up, mut told, mut leave) = (cluster.gate("up"), cluster.gate("told"), cluster.gate("leave"));
    let _never = cluster.gate("never");
    cluster.script("task", "trap 'echo x >told; read x <leave; exit 5' TERM\necho x >up\nread x <never\n");
    // `srun` gets the signal as well; that must not kill the step.
    cluster.script("job.sh", "#!/bin/sh\nsrun sh ./task\n");
    let job = cluster.sbatch(&["job.sh"]).to_string();
    up.wait();
    cluster.ok(&["scancel", &job]);
    told.wait();
    // `srun` makes this request after it got the signal.
    cluster.run(&["scancel", "-s", "KILL", &format!("{job}.0")]);
    leave.open();
    let ended = ["sacct", "-n", "-P", "-o", "state,exitcode", "-j", &format!("{job}.0")];
    cluster.wait_until(|cluster| cluster.ok(&ended) == "FAILED|5:0\n");
}

#[test]
fn srun_has_the_scripts_mask_and_streams() {
    let cluster = Cluster::start(&Setup::default());
    let script = "umask 077; srun sh -c umask; srun -o /dev/stdout echo shown; srun -e /dev/stdout sh -c 'echo x >&2'\n\
                  srun -o /dev/stderr echo told";
    let (out, code, err) = batch(&cluster, &[], script);
    assert_eq!((out.as_str(), code, err.as_str()), ("0077\nshown\nx\n", Some(0), "told\n"));
    // The streams of a batch script have no reader.
    let streams = ["-o", "/dev/stdout", "-e", "/dev/stderr", "--wrap", "exec >kept; echo kept"];
    cluster.ok(&[&["sbatch", "--wait"], &streams[..]].concat());
    assert_eq!(cluster.read("kept"), "kept\n");
}

#[test]
fn steps_have_as_many_tasks_as_cpus_suffice_for() {
    let cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    let tasks = |options: &[&str], step: &str| {
        let (out, code, err) = batch(&cluster, options, &format!("srun {step} sh -c 'echo $SLURM_NODEID'"));
        assert_eq!((code, err.as_str()), (Some(0), ""), "{options:?} {step}");
        sorted(&out).join(" ")
    };
    assert_eq!(tasks(&["-N1", "-c4"], "-c2"), "0 0");
    assert_eq!(tasks(&["-N1", "-n2", "-c2"], "-c1"), "0 0", "the job names its tasks");
    assert_eq!(tasks(&["-N1", "-c4"], "--ntasks-per-node=2"), "0 0", "not with the job's own -c");
    assert_eq!(tasks(&["-N2", "-c2"], "-N1 -n2"), "0 0");
    assert_eq!(tasks(&["-N2", "--exclusive", "-n4"], ""), "0 0 1 1");
    assert_eq!(tasks(&["-N2", "--exclusive", "-n4"], "-n2 -m cyclic"), "0 1");
    assert_eq!(tasks(&["-N2", "-n6", "-O"], ""), "0 0 0 1 1 1");
    let (out, ..) = batch(&cluster, &["-N2", "-n6", "-O"], "echo $SLURM_TASKS_PER_NODE $SLURM_NTASKS");
    assert_eq!(out, "3(x2) 6\n");
}

#[test]
fn a_step_ends_as_its_tasks_do() {
    let cluster = four_nodes();
    let script = "srun sh -c 'exit $SLURM_PROCID'; echo $?\nsrun -n1 -N1 sh -c 'kill -9 $$'; echo $?\nsrun true; echo $?\nsrun -n1 -N1 /nowhere; echo $?";
    let (out, code, err) = batch(&cluster, &["-N4"], script);
    assert_eq!((out.as_str(), code), ("3\n137\n0\n2\n", Some(0)), "{err}");
    for (number, line) in
        [("3", "Exited with exit code 3"), ("2", "Exited with exit code 2"), ("0", "Killed")]
    {
        let told = err.lines().any(|said| said.contains(line) && said.contains(&format!("task {number}:")));
        assert!(told, "`{line}` of task {number} is not told:\n{err}");
    }
}

#[test]
fn numbers_of_nodes_and_tasks_come_from_the_environment_if_that_is_kept() {
    let cluster = Cluster::start(&Setup::default());
    let script = "export SLURM_NTASKS=4\n\
                  for keep in '' -E; do srun -n1 $keep sh -c 'echo $SLURM_NTASKS $SLURM_STEP_NUM_TASKS'; done";
    let (out, code, err) = batch(&cluster, &["-n2"], script);
    assert_eq!((out.as_str(), code, err.as_str()), ("1 1\n4 1\n", Some(0), ""));
}

#[test]
fn input_goes_to_all_tasks_or_to_one() {
    let cluster = four_nodes();
    let (out, code, err) = batch(
        &cluster,
        &["-N3"],
        "printf 'one\\ntwo\\n' | srun -l cat\necho --\nprintf 'three\\n' | srun -l -i 1 cat\necho --\nsrun -l -i none cat </dev/zero",
    );
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let parts: Vec<Vec<&str>> = out.split("--\n").map(sorted).collect();
    assert_eq!(parts[0], ["0: one", "0: two", "1: one", "1: two", "2: one", "2: two"]);
    assert_eq!(parts[1..], [vec!["1: three"], vec![]]);
}

#[test]
fn steps_run_beside_each_other_as_far_as_there_is_room() {
    let cluster = four_nodes();
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    cluster.script(
        "job.sh",
        "#!/bin/sh\nfor i in 1 2; do srun -N1 -n1 -c2 sh -c 'echo >up; read x <gate; echo done' & done; wait\n",
    );
    let job = cluster.sbatch(&["-N1", "-n2", "-c2", "-o", "out", "job.sh"]);
    // Both are up before either has passed the gate.
    up.wait();
    up.wait();
    let steps = cluster.ok(&["squeue", "-s", "-h", "-j", &job.to_string(), "-o", "%i"]);
    assert_eq!(sorted(&steps), [format!("{job}.0"), format!("{job}.1"), format!("{job}.batch")]);
    gate.open();
    gate.open();
    cluster.client().wait_for(job, "COMPLETED");
    assert_eq!(cluster.read("out"), "done\ndone\n");
}

#[test]
fn signals_reach_the_tasks_of_a_step() {
    let cluster = four_nodes();
    let mut up = cluster.gate("up");
    cluster.script(
        "job.sh",
        "#!/bin/sh\nsrun -l sh -c 'exec 2>/dev/null; trap \"echo got it; exit 0\" USR1; echo >up; while :; do sleep 0.05; done'\necho $?\n",
    );
    let job = cluster.sbatch(&["-N2", "-o", "out", "job.sh"]);
    up.wait();
    up.wait();
    cluster.ok(&["scancel", "-s", "USR1", &format!("{job}.0")]);
    cluster.client().wait_for(job, "COMPLETED");
    assert_eq!(sorted(&cluster.read("out")), ["0", "0: got it", "1: got it"]);
}

#[test]
fn a_node_whose_daemon_was_started_anew_gets_a_newer_credential() {
    let mut cluster = Cluster::prepare(&Setup::default());
    let port = free_port();
    cluster.start_controller();
    cluster.start_node_at("n1", port);
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let job = cluster.sbatch(&["-o", "out", "--wrap", "echo x >up; read x <gate; srun echo launched"]);
    up.wait();
    cluster.kill("n1");
    gate.open();
    // The credential is issued while no daemon runs: a daemon that starts later cannot know whether it was
    // used.
    cluster.wait_until(|cluster| cluster.ok(&["squeue", "-s", "-h"]).contains(&format!("{job}.0")));
    cluster.start_node_at("n1", port);
    cluster.client().wait_for(job, "COMPLETED");
    assert_eq!(cluster.read("out"), "launched\n");
    cluster.wait_for_log("n1", "issued before this node's daemon started");
}

#[test]
fn a_step_has_all_cpus_of_its_nodes_or_those_that_it_names() {
    let cluster = four_nodes();
    let (out, code, err) = batch(
        &cluster,
        &["-N1", "-n4"],
        "cpus='echo $SLURM_CPUS_ON_NODE ${SLURM_CPUS_PER_TASK-none}'
srun -n1 sh -c \"$cpus\"
srun -n1 --exact sh -c \"$cpus\"
srun -n1 -c2 sh -c \"$cpus\"
srun -n1 -c2 --whole sh -c \"$cpus\"
srun -n1 --overlap sh -c \"$cpus\"
srun -n1 --overlap --exact sh -c \"$cpus\"
srun -N2 -n1 echo one
srun -n4 --ntasks-per-node=2 echo each | uniq
srun -n5 true
srun -n5 -O sh -c 'echo over' | uniq",
    );
    let expected = "4 none\n1 none\n2 2\n4 2\n4 none\n1 none\none\neach\nover\n";
    assert_eq!((out.as_str(), code), (expected, Some(0)), "{err}");
    for said in [
        "srun: warning: can't run 1 processes on 2 nodes, setting nnodes to 1",
        "srun: warning: can't honor --ntasks-per-node set to 2",
        "srun: error: Unable to create step for job 1: More processors requested than permitted",
    ] {
        assert!(err.contains(said), "{err}");
    }
}

#[test]
fn a_step_waits_for_one_that_has_everything() {
    let cluster = four_nodes();
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    cluster.script(
        "job.sh",
        "#!/bin/sh
srun -n1 sh -c 'echo >up; read x <gate; echo first' &
read x <second
srun -n1 -I echo never; echo $?
srun -n1 --overlap echo beside
srun -n1 echo after & echo >up; wait
",
    );
    let mut second = cluster.gate("second");
    let job = cluster.sbatch(&["-N1", "-n2", "-o", "out", "-e", "err", "job.sh"]);
    up.wait();
    second.open();
    up.wait();
    gate.open();
    cluster.client().wait_for(job, "COMPLETED");
    assert_eq!(cluster.read("out"), "1\nbeside\nfirst\nafter\n");
    let err = cluster.read("err");
    assert!(err.contains("srun: error: Unable to create step for job 1: Requested nodes are busy"), "{err}");
}

#[test]
fn ranks_are_dealt_as_the_distribution_says() {
    let cluster = four_nodes();
    let script = "show='echo $SLURM_PROCID $SLURMD_NODENAME.$SLURM_LOCALID $SLURM_GTIDS $SLURM_DISTRIBUTION'
srun -m cyclic sh -c \"$show\" | sort; echo --
srun -m plane=2 sh -c \"$show\" | sort; echo --
printf 'n3\\nn1\\nn1\\n' >hosts; SLURM_HOSTFILE=hosts srun -n3 sh -c \"$show\" | sort; echo --
srun -n4 -m cyclic -o files-%t.%N echo x; ls files-*; echo --
srun -n1 -m Cyclic:Block sh -c 'echo $SLURM_DISTRIBUTION'; srun -n1 sh -c 'echo [$SLURM_DISTRIBUTION]'; echo --
srun -m arbitrary -w n1,n3,n3,n3,n3 sh -c \"$show\" | sort";
    let (out, code, err) = batch(&cluster, &["-N2", "-n6", "--ntasks-per-node=3", "-w", "n[1,3]"], script);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let parts: Vec<Vec<&str>> = out.split("--\n").map(|part| part.lines().collect()).collect();
    let expected: [&[&str]; 3] = [
        &[
            "0 n1.0 0,2,4 cyclic",
            "1 n3.0 1,3,5 cyclic",
            "2 n1.1 0,2,4 cyclic",
            "3 n3.1 1,3,5 cyclic",
            "4 n1.2 0,2,4 cyclic",
            "5 n3.2 1,3,5 cyclic",
        ],
        &[
            "0 n1.0 0,1,4 plane",
            "1 n1.1 0,1,4 plane",
            "2 n3.0 2,3,5 plane",
            "3 n3.1 2,3,5 plane",
            "4 n1.2 0,1,4 plane",
            "5 n3.2 2,3,5 plane",
        ],
        &["0 n3.0 0 arbitrary", "1 n1.0 1,2 arbitrary", "2 n1.1 1,2 arbitrary"],
    ];
    assert_eq!(parts[..3], expected);
    assert_eq!(parts[3], ["files-0.n1", "files-1.n3", "files-2.n1", "files-3.n3"]);
    // The whole distribution, and only where the user gave one.
    assert_eq!(parts[4], ["cyclic:block", "[]"]);
    // More tasks than the job has CPUs on n3, as in Slurm.
    assert_eq!(parts[5].len(), 5);
    assert!(parts[5][1..].iter().all(|line| line.contains(" n3.") && line.contains(" 1,2,3,4 ")));
}

#[test]
fn devices_count_between_steps_that_ask_for_them() {
    let cluster = Cluster::start(&Setup { gres: "gpu:4", ..Setup::default() });
    let (out, code, err) = batch(
        &cluster,
        &["-N1", "-n4", "--gres=gpu:4"],
        "srun -n1 sh -c 'echo $CUDA_VISIBLE_DEVICES'
srun -n1 --exact -G2 sh -c 'echo $CUDA_VISIBLE_DEVICES'
srun -n1 --exact --gres=none sh -c 'echo [$CUDA_VISIBLE_DEVICES]'
srun -n4 --gpus-per-task=1 -l sh -c 'echo $CUDA_VISIBLE_DEVICES' | sort
srun -n1 --exact -G5 true",
    );
    let expected = "0,1,2,3\n0,1\n[]\n0: 0\n1: 1\n2: 2\n3: 3\n";
    assert_eq!((out.as_str(), code), (expected, Some(1)), "{err}");
}

#[test]
fn a_task_waits_for_the_directory_of_its_output() {
    let cluster = four_nodes();
    cluster.script("job.sh", "#!/bin/sh\necho done\n");
    let job = cluster.sbatch(&["-o", "late/%j/out", "job.sh"]);
    std::fs::create_dir_all(cluster.work(&format!("late/{job}"))).expect("the directory is ours");
    cluster.client().wait_for(job, "COMPLETED");
    assert_eq!(cluster.read(&format!("late/{job}/out")), "done\n");
}
