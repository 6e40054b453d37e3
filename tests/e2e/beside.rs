//! Work beside the tasks of a step: programs of their own, programs before and after them, files that they
//! write themselves, and attached watchers.

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use spur_core::model::idset::IdSet;

use crate::cluster::{Cluster, Gate, Said, Setup, said};

fn cluster() -> Cluster {
    Cluster::start(&Setup { nodes: 2, ..Setup::default() })
}

/// Runs a batch script to its end and returns its output and its errors.
fn batch(cluster: &Cluster, options: &[&str], script: &str) -> (String, String) {
    cluster.script("job.sh", &format!("#!/bin/sh\n{script}\n"));
    let words = [&["sbatch", "--wait", "-o", "out", "-e", "err"], options, &["job.sh"]].concat();
    cluster.run(&words);
    (cluster.read("out"), cluster.read("err"))
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

fn begin(cluster: &Cluster, words: &[&str]) -> Child {
    let mut command: Command = cluster.command(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn tasks_run_programs_of_their_own() {
    let cluster = cluster();
    cluster.script("progs", "# all of them\n0 echo first %t\n1-2 echo 'one of' two %t:%o\n* echo rest %t\n");
    cluster.script("few", "0 echo\n");
    let (out, err) = batch(
        &cluster,
        &["-N2", "-n5"],
        "srun -l --multi-prog progs end; srun --multi-prog few; echo $?; srun -n1 -N1 --multi-prog few x",
    );
    let expected = [
        "0: first 0 end",
        "1",
        "1: one of two 1:0 end",
        "2: one of two 2:1 end",
        "3: rest 3 end",
        "4: rest 4 end",
        "x",
    ];
    assert_eq!(sorted(&out), expected, "{err}");
    assert!(err.contains("srun: error: Configuration file few invalid, no record for task id 1\n"), "{err}");
    // Outside of jobs the file determines the number of tasks.
    assert_eq!(sorted(&cluster.ok(&["srun", "--multi-prog", "progs"])).len(), 3);
}

#[test]
fn components_of_a_line_are_one_step() {
    let cluster = cluster();
    let said = cluster.run(&[
        "srun",
        "-l",
        "-n2",
        "sh",
        "-c",
        "echo a $SLURM_PROCID/$SLURM_NTASKS $SLURM_STEP_ID",
        ":",
        "-n1",
        "echo",
        "b",
    ]);
    assert_eq!(sorted(&said.out), ["0: a 0/3 0", "1: a 1/3 0", "2: b"], "{said:?}");
    let (out, err) = batch(
        &cluster,
        &["-N2", "--ntasks-per-node=2"],
        "srun -N1 -n2 sh -c 'echo a $SLURM_PROCID $SLURMD_NODENAME' : -N1 -n2 sh -c 'echo b $SLURM_PROCID $SLURMD_NODENAME'
         srun -n1 -c1 true : -n1 -c2 true; echo $?; srun true : ; echo $?",
    );
    assert_eq!(sorted(&out), ["1", "1", "a 0 n1", "a 1 n1", "b 2 n2", "b 3 n2"], "{err}");
    assert!(err.contains("may differ in --ntasks, --nodes and program"), "{err}");
    assert!(err.contains("No command given to execute in component 1."), "{err}");
}

#[test]
fn programs_run_before_and_after_tasks_and_steps() {
    let cluster = cluster();
    for (name, body) in [
        ("before", "echo export GREETING=hello; echo print from the prolog; echo unset HOME"),
        ("after", "echo after $SLURM_PROCID >>trace"),
        ("first", "echo \"$SLURM_SCRIPT_CONTEXT $*\" >>trace"),
    ] {
        cluster.script(name, &format!("#!/bin/sh\n{body}\n"));
        let made = Command::new("chmod").arg("755").arg(cluster.work(name)).status();
        assert!(made.unwrap().success());
    }
    let (out, err) = batch(
        &cluster,
        &["-n2"],
        "srun --prolog=./first --epilog=./first --task-prolog=./before --task-epilog=./after sh -c 'echo $GREETING [$HOME]'",
    );
    assert_eq!(sorted(&out), ["from the prolog", "from the prolog", "hello []", "hello []"], "{err}");
    let trace = cluster.read("trace");
    let lines: Vec<&str> = trace.lines().collect();
    let own = "sh -c echo $GREETING [$HOME]";
    assert_eq!(lines[0], format!("prolog_srun {own}"));
    assert_eq!(sorted(&lines[1..3].join("\n")), ["after 0", "after 1"]);
    assert_eq!(lines[3], format!("epilog_srun {own}"));
}

#[test]
fn tasks_write_their_files_themselves() {
    let cluster = cluster();
    let (mut up, mut gate, mut over) = (cluster.gate("up"), cluster.gate("gate"), cluster.gate("over"));
    let task = "echo before; echo >up; read x <gate; echo after; echo >over; read x <gate";
    let mut srun = begin(&cluster, &["srun", "-N1", "-n1", "-o", "own-%t.%N", "sh", "-c", task]);
    up.wait();
    srun.kill().unwrap();
    srun.wait().unwrap();
    gate.open();
    over.wait();
    assert_eq!(cluster.read("own-0.n1"), "before\nafter\n", "it does not need srun");
    gate.open();
    let (out, err) = batch(
        &cluster,
        &["-N2", "--ntasks-per-node=2"],
        "srun -o whole sh -c 'echo $SLURM_PROCID'; srun -N1 -n2 -o one sh -c 'echo $SLURM_PROCID; echo no >&2'
         export SLURM_NTASKS=2 SLURM_NTASKS_PER_NODE=1
         srun -o %n.out -e %n.err sh -c 'echo $SLURM_PROCID; echo no >&2'; srun -o %n.out --open-mode=append echo more
         echo in0 >0.in; echo in1 >1.in; srun -i %t.in -l cat; srun -o none/such/file true; echo $?",
    );
    assert_eq!(sorted(&out), ["0: in0", "1", "1: in1"], "{err}");
    assert_eq!(sorted(&cluster.read("whole")), ["0", "1", "2", "3"]);
    assert_eq!(sorted(&cluster.read("one")), ["0", "1", "no", "no"]);
    assert_eq!((cluster.read("0.out").as_str(), cluster.read("1.out").as_str()), ("0\nmore\n", "1\nmore\n"));
    assert_eq!(cluster.read("1.err"), "no\n");
    assert!(err.contains("none/such/file"), "{err}");
}

#[test]
fn tasks_are_ended_because_one_has() {
    let cluster = cluster();
    let (mut up, mut go) = (cluster.gate("up"), cluster.gate("go"));
    let task = "if [ $SLURM_PROCID = 0 ]; then read x <go; exit 3; fi
        trap 'echo cleaned; trap - TERM; kill $$' TERM; echo >up; while :; do sleep 0.05; done";
    cluster.script("task", task);
    cluster.script("job.sh", "#!/bin/sh\nsrun -K sh ./task; echo $?; srun -W 1 sh ./task; echo $?\n");
    let job = cluster.sbatch(&["-N2", "-n3", "-o", "out", "-e", "err", "job.sh"]);
    for _ in 0..2 {
        up.wait();
        up.wait();
        go.open();
    }
    cluster.client().wait_for(job, "COMPLETED");
    // Tasks that end because another one failed may clean up; tasks that end after a wait may not.
    assert_eq!(sorted(&cluster.read("out")), ["137", "143", "cleaned", "cleaned"]);
    let err = cluster.read("err");
    for said in [
        "srun: First task exited 1s ago\n",
        &format!(
            "srun: Terminating StepId={job}.1\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        ),
        &format!("slurmstepd: error: *** STEP {job}.0 ON n2 CANCELLED AT "),
        &format!("slurmstepd: error: *** STEP {job}.1 ON n2 CANCELLED AT "),
        &format!("srun: Force Terminated StepId={job}.0\n"),
    ] {
        assert!(err.contains(said), "`{said}` is not said:\n{err}");
    }
    assert!(!err.contains(&format!("Force Terminated StepId={job}.1")), "{err}");
}

#[test]
fn a_job_that_runs_can_be_looked_into() {
    let cluster = cluster();
    let mut gates = ["up", "one", "two"].map(|name| cluster.gate(name));
    cluster.script(
        "job.sh",
        "#!/bin/sh\necho first; echo >up; read x <one
         srun -n2 sh -c 'echo >up; read x <two; echo seen $SLURM_PROCID'; echo last\n",
    );
    let job = cluster.sbatch(&["-N2", "-n2", "-o", "out", "job.sh"]);
    let name = job.to_string();
    let [up, one, two] = &mut gates;
    up.wait();
    let said =
        cluster.run(&["spur", "exec", &name, "sh", "-c", "echo $SLURM_JOB_ID at $SLURMD_NODENAME; exit 7"]);
    assert_eq!((said.out.as_str(), said.code), (format!("{name} at n1\n").as_str(), Some(7)), "{said:?}");
    assert_eq!(cluster.ok(&["spur", "exec", "-w", "n2", &name, "sh", "-c", "echo $SLURMD_NODENAME"]), "n2\n");
    assert_eq!(cluster.ok(&["spur", "logs", &name]), "first\n");
    let logs = begin(&cluster, &["spur", "logs", "-f", &name]);
    one.open();
    (0..2).for_each(|_| up.wait());
    let steps = cluster.ok(&["squeue", "-s", "-h", "-j", &name, "-o", "%i"]);
    let step = steps.lines().find(|step| !step.ends_with("batch")).unwrap().to_owned();
    let layout = cluster.ok(&["sattach", "--layout", &step]);
    let expected = "Job step layout:\n\t2 tasks, 2 nodes (n[1-2])\n\n\tNode 0 (n1), 1 task(s): 0 \n\tNode 1 (n2), 1 task(s): 1 \n";
    assert_eq!(layout, expected);
    let watching = begin(&cluster, &["sattach", "-l", &step]);
    watched(&cluster, &step, two, 2);
    let watching = said_at_end(watching);
    assert_eq!(
        (sorted(&watching.out), watching.code),
        (vec!["0: seen 0", "1: seen 1"], Some(0)),
        "{watching:?}"
    );
    cluster.client().wait_for(job, "COMPLETED");
    let logs = said_at_end(logs);
    assert_eq!(logs.out, cluster.read("out"), "{logs:?}");
    assert_eq!((logs.out.lines().last(), logs.code), (Some("last"), Some(0)));
    assert_eq!(
        cluster.ok(&["spur", "logs", &name]),
        cluster.read("out"),
        "a job that has ended left its file"
    );
    assert!(cluster.fails(&["sattach", &step]).contains("has ended"));
    assert!(cluster.fails(&["spur", "exec", &name, "true"]).contains("has expired"));
}

fn said_at_end(child: Child) -> crate::cluster::Said {
    said(child.wait_with_output().unwrap())
}

/// Opens the gate when a watcher is attached on both nodes.
fn watched(cluster: &Cluster, step: &str, gate: &mut Gate, tasks: usize) {
    for node in ["n1", "n2"] {
        cluster.wait_for_log(node, &format!("somebody looks on step={}", step.replace('.', ".0.")));
    }
    (0..tasks).for_each(|_| gate.open());
}

#[test]
fn files_are_copied_to_the_nodes_of_a_job() {
    let cluster = cluster();
    cluster.script("tool", "#!/bin/sh\necho $0 $SLURM_PROCID $1\n");
    let made = Command::new("chmod").arg("755").arg(cluster.work("tool")).status();
    assert!(made.unwrap().success());
    let (out, err) = batch(
        &cluster,
        &["-N2", "-n2"],
        "sbcast -f tool copy; echo $?; sbcast tool copy; echo $?; sbcast -fp tool copy; echo $?; cmp tool copy && test -x copy
         sbcast nothing copy; echo $?; srun --bcast=./run.me ./tool a; srun --bcast ./tool b | sed 's/.*slurm/slurm/'",
    );
    let sorted = sorted(&out);
    let job = 1;
    let expected = [
        "./run.me 0 a".to_owned(),
        "./run.me 1 a".to_owned(),
        "0".to_owned(),
        "0".to_owned(),
        "17".to_owned(),
        "255".to_owned(),
    ];
    assert_eq!(sorted[..6], expected, "{err}");
    assert!(sorted[6].starts_with(&format!("slurm_bcast_{job}.")) && sorted[6].ends_with("_n1 0 b"), "{out}");
    assert!(sorted[7].ends_with("_n2 1 b"), "{out}");
    assert!(err.contains("copy: File exists") && err.contains("Can't open `nothing`"), "{err}");
}

/// The exit codes are Slurm's: those of the nodes' operations, and 233 for a node that does not answer.
#[test]
fn a_copy_that_fails_has_slurms_exit_code() {
    let mut cluster = cluster();
    cluster.script("tool", "#!/bin/sh\n");
    let (out, err) = batch(
        &cluster,
        &["-N2", "-n2"],
        "mkdir place; for to in nowhere/copy /dev/null tool; do sbcast tool $to; echo $?; done
         sbcast -f tool place; echo $?; sbcast -f tool /dev/null; echo $?; sbcast place copy; echo $?",
    );
    assert_eq!(out.split_whitespace().collect::<Vec<_>>(), ["2", "17", "17", "21", "255", "255"], "{err}");
    for part in ["nowhere: No such file or directory", "place: Is a directory", "`place`: it is no file"] {
        assert!(err.contains(part), "{part}: {err}");
    }
    let job = cluster.sbatch(&["-N2", "--wrap", "sleep 1000"]).to_string();
    cluster.wait_until(|cluster| cluster.ok(&["squeue", "-hj", &job, "-o", "%t"]).trim() == "R");
    cluster.kill("n2");
    let refused = cluster.run(&["sbcast", "-j", &job, "tool", "copy"]);
    assert_eq!(refused.code, Some(233), "{refused:?}");
}

/// Runs a program whose shared object exists only where it was built; the test needs a C compiler.
#[test]
fn shared_objects_go_along_with_a_program() {
    let cluster = cluster();
    let build = "set -e; mkdir -p lib; echo 'int seven(void) { return 7; }' >seven.c
        echo 'int seven(void); int main(void) { return seven(); }' >main.c
        cc -shared -fPIC -o lib/libseven.so seven.c; cc -o seven main.c -Llib -lseven -Wl,-rpath,$PWD/lib";
    let built = Command::new("sh").args(["-c", build]).current_dir(cluster.work("")).status();
    if !built.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no C compiler");
        return;
    }
    let (out, err) = batch(
        &cluster,
        &["-N2", "-n2"],
        "srun --bcast=./sent --send-libs --compress=lz4 ./seven; echo $?; cmp lib/libseven.so sent_libs/libseven.so; ls sent_libs
         srun ./seven; echo $?; mv lib gone; srun ./seven 2>/dev/null; echo $?
         LD_LIBRARY_PATH=sent_libs srun --bcast=./alone --send-libs=no ./seven; echo $?
         mv gone lib; srun --bcast=./other --send-libs --bcast-exclude=$PWD/lib ./seven; echo $?; ls other_libs
         srun --bcast=./third --send-libs --compress=zip ./seven; echo $?; srun --bcast=x --bcast-exclude=lib ./seven; echo $?",
    );
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines, ["7", "libseven.so", "7", "127", "7", "7", "libc.so.6", "255", "255"], "{err}");
    assert!(err.contains("compression type `zip` is not known"), "{err}");
    assert!(err.contains("`lib` is no absolute path"), "{err}");
}

#[test]
fn gpus_are_shared_out_among_tasks() {
    let cluster = Cluster::start(&Setup { gres: "gpu:4", ..Setup::default() });
    let show = "sh -c 'echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES'";
    let (out, err) = batch(
        &cluster,
        &["-n4", "--gres=gpu:4"],
        &format!(
            "srun -l --gpu-bind=single:1 {show}; echo; srun --gpu-bind=single:2 {show} | sort; echo
             srun --gpu-bind=map_gpu:3,2 {show} | sort; echo; srun -n2 --gpu-bind=mask_gpu:0x3,0xc {show} | sort; echo
             srun --ntasks-per-gpu=1 {show} | sort | tr '\\n' ,; echo; srun --gpu-bind=near {show}; echo $?
             echo; srun --tres-bind=gres/gpu:map:3,2 {show} | sort; srun --tres-bind=gres/nic:closest true; echo $?
             echo; srun -n2 --gpus-per-task=1 --gpu-bind=none {show} | sort
             echo; srun --gpus=2 --gpus-per-task=1 {show} | sort"
        ),
    );
    let parts: Vec<Vec<&str>> = out.split("\n\n").map(sorted).collect();
    assert_eq!(parts[0], ["0: 0 0", "1: 1 1", "2: 2 2", "3: 3 3"], "{err}");
    assert_eq!(parts[1], ["0 0", "1 0", "2 1", "3 1"]);
    assert_eq!(parts[2], ["0 3", "1 2", "2 3", "3 2"]);
    assert_eq!(parts[3], ["0 0,1", "1 2,3"]);
    assert_eq!(parts[4], ["0 0,1 1,2 2,3 3,", "255"]);
    assert_eq!(parts[5], ["0 3", "1 2", "2 3", "255", "3 2"]);
    assert_eq!(parts[6], ["0 0,1", "1 0,1"], "each sees the GPUs of all");
    assert_eq!(parts[7], ["0 0", "1 1", "2 2", "3 3"], "the tasks of the job count");
    assert!(err.contains("--gpu-bind") && err.contains("`gres/nic` cannot be bound"), "{err}");
}

#[test]
fn tasks_are_bound_to_the_cpus_that_are_said() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return eprintln!("SKIPPED: there is one CPU, and nothing to choose");
    }
    let cluster = Cluster::start(&Setup { cpus: 2, ..Setup::default() });
    cluster.script("show", "sed -n 's/Cpus_allowed_list:.//p' /proc/self/status; echo $SLURM_CPU_BIND >&2");
    // The CPUs of both tasks.
    let shown = |bind: &str| -> (Vec<Vec<u32>>, Said) {
        let said = cluster.run(&["srun", "-n2", "-l", bind, "sh", "./show"]);
        let list = |line: &&str| line[3..].parse::<IdSet>().unwrap().iter().collect();
        (sorted(&said.out).iter().map(list).collect(), said)
    };
    let (whole, said) = shown("--cpu-bind=boards");
    let [first, second] = whole[0][..] else { panic!("{said:?}") };
    assert_eq!(whole[1], whole[0]);
    let (swapped, said) = shown(&format!("--cpu-bind=verbose,map_cpu:{second},{first}"));
    assert_eq!(swapped, [[second], [first]], "{said:?}");
    for told in [
        "0: cpu-bind=MAP  - n1, task  0  0 [",
        &format!("]: mask 0x{:x} set\n", 1_u128 << second),
        &format!("1: verbose,map_cpu:{second},{first}\n"),
    ] {
        assert!(said.err.contains(told), "`{told}`: {said:?}");
    }
    let (mut ranks, said) = shown("--cpu-bind=rank");
    ranks.sort_unstable();
    assert_eq!(ranks, [[first], [second]], "{said:?}");
    let (none, said) = shown("--cpu-bind=map_cpu:9999");
    assert!(
        said.err.contains("CPU binding outside of job step allocation, allocated CPUs are: 0x"),
        "{said:?}"
    );
    assert_eq!((none, said.code), (Vec::new(), Some(1)));
}

#[test]
fn gpus_are_near_the_cpus_of_a_job_and_linked_to_each_other() {
    const SHOW: [&str; 2] = ["printenv", "SLURM_JOB_GPUS"];
    let gpu = |file: &str, more: &str| format!("[[gres]]\nname = \"gpu\"\nfile = \"/dev/{file}\"\n{more}\n");
    let near = [gpu("zero", "cores = \"0-1\""), gpu("full", "cores = \"2-3\"")].concat().leak();
    let cluster = Cluster::start(&Setup { gres: "gpu:2", more: near, ..Setup::default() });
    let shown = |options: &[&str]| cluster.ok(&[&["srun", "-c2", "--gres=gpu:1"], options, &SHOW].concat());
    assert_eq!(shown(&[]), "0\n");
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    cluster.sbatch(&["-c2", "-o", "/dev/null", "--wrap", "echo >up; read x <gate"]);
    up.wait();
    assert_eq!(shown(&[]), "1\n", "the first two CPUs are taken");
    gate.open();

    // Links 0 with 3, and 1 with 2.
    let links = [("zero", "-1,1,1,4"), ("full", "1,-1,4,1"), ("null", "1,4,-1,1"), ("random", "4,1,1,-1")];
    let links: String = links.map(|(file, links)| gpu(file, &format!("links = \"{links}\""))).concat();
    let cluster = Cluster::start(&Setup { gres: "gpu:4", more: links.leak(), ..Setup::default() });
    assert_eq!(cluster.ok(&[&["srun", "--gres=gpu:2"], &SHOW[..]].concat()), "0,3\n");
    let one = [&["srun", "-n2", "--gpus-per-task=1"], &SHOW[..]].concat();
    assert_eq!(cluster.ok(&one), "0,3\n0,3\n");
}

#[test]
fn a_step_has_the_devices_that_it_asked_for() {
    let more = "[[gres]]\nname = \"gpu\"\ntype = \"x\"\nfile = \"/dev/zero,/dev/full\"";
    let cluster = Cluster::start(&Setup { gres: "gpu:x:2", more, ..Setup::default() });
    let task = "for device in zero full; do head -c 1 /dev/$device | wc -c; done; echo $SLURM_JOB_GPUS,$SLURM_STEP_GPUS,$CUDA_VISIBLE_DEVICES";
    let seen = |words: &[&str]| cluster.run(&[words, &["sh", "-c", task]].concat()).out.replace('\n', " ");
    // The other GPU is left for a second job.
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let first = begin(&cluster, &["srun", "-n1", "--gpus=1", "sh", "-c", "echo >up; read x <gate"]);
    up.wait();
    let second = seen(&["srun", "-n1", "--gpus=1"]);
    gate.open();
    said_at_end(first);
    let both = seen(&["srun", "-n1", "--gpus=2"]);
    let none = seen(&["srun", "-n1"]);
    assert_eq!(both, "1 1 0,1,0,1,0,1 ");
    if cluster.log("n1").contains("devices:cgroup") {
        assert_eq!((second.as_str(), none.as_str()), ("0 1 1,1,0 ", "0 0 ,, "));
    } else {
        eprintln!("SKIPPED: nothing keeps a step from devices here");
        assert_eq!((second.as_str(), none.as_str()), ("1 1 1,1,1 ", "1 1 ,, "));
    }
}

#[test]
fn a_watcher_that_is_killed_harms_nobody() {
    let cluster = cluster();
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let srun = begin(&cluster, &["srun", "-n1", "sh", "-c", "echo >up; read x <gate; seq 100000; exit 4"]);
    up.wait();
    let step = cluster.ok(&["squeue", "-s", "-h", "-o", "%i"]);
    let watching = begin(&cluster, &["sattach", step.trim()]);
    cluster.wait_for_log("n1", "somebody looks on");
    // The stopped watcher reads nothing any more, and later is killed.
    kill_process(Pid::from_child(&watching), Signal::STOP).unwrap();
    gate.open();
    let srun = said_at_end(srun);
    assert_eq!((srun.out.lines().count(), srun.code), (100_000, Some(4)));
    kill_process(Pid::from_child(&watching), Signal::KILL).unwrap();
    said_at_end(watching);
}

#[test]
fn jobs_share_gpus_by_shards() {
    let more = "[[gres]]\nname = \"gpu\"\nfile = \"/dev/zero,/dev/full\"";
    let cluster = Cluster::start(&Setup { gres: "gpu:2\", \"shard:7", cpus: 8, more, ..Setup::default() });
    assert_eq!(cluster.ok(&["sinfo", "-h", "-o", "%G"]), "gpu:2,shard:7\n");
    let seen = |gres: &str| {
        let show = "echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS $SLURM_GPUS_ON_NODE $SLURM_SHARDS_ON_NODE";
        cluster.ok(&["srun", gres, "sh", "-c", show])
    };
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    // The GPU with three shards holds this job and nothing else.
    let task = "echo >up; read x <gate; for device in zero full; do head -c 1 /dev/$device | wc -c; done";
    let first = begin(&cluster, &["srun", "--gres=shard:3", "sh", "-c", task]);
    up.wait();
    assert_eq!(seen("--gres=shard:1"), "0 0 1 1\n");
    assert_eq!(seen("--gres=shard:4"), "0 0 1 4\n");
    assert_eq!(seen("--gres=gpu:1"), "0 0 1\n");
    let node = cluster.ok(&["scontrol", "show", "node", "-d", "n1"]);
    assert!(node.contains("Gres=gpu:2,shard:7\n"), "{node}");
    assert!(node.contains("GresUsed=gpu:0(IDX:N/A),shard:3(IDX:1)\n"), "{node}");
    assert!(node.contains("gres/gpu=2,gres/shard=7\n") && node.contains("gres/shard=3\n"), "{node}");
    let job = cluster.ok(&["scontrol", "show", "job", "-d", "1"]);
    assert!(job.contains("GRES=shard:3(IDX:1)\n") && job.contains("gres/shard=3\n"), "{job}");
    // Both GPUs become free only after it has ended.
    let both = cluster.sbatch(&["--gres=gpu:2", "--wrap", "true"]);
    cluster.client().wait(both, |job| job.reason == "Resources");
    gate.open();
    let first = said_at_end(first);
    let opened = if cluster.log("n1").contains("devices:cgroup") { "0\n1\n" } else { "1\n1\n" };
    assert_eq!((first.code, first.out.as_str()), (Some(0), opened), "{first:?}");
    cluster.client().wait_for(both, "COMPLETED");
    // Steps get shards from those of their job.
    let steps =
        "srun --gres=shard:1 sh -c 'echo $SLURM_STEP_GPUS $SLURM_SHARDS_ON_NODE'; srun --gres=gpu:1 true";
    let job = cluster.sbatch(&["--gres=shard:2", "-o", "out", "--wrap", steps]);
    cluster.client().wait_for(job, "FAILED");
    let said = cluster.read("out");
    assert!(said.starts_with("1 1\n") && said.contains("1 gpu on n1, where the job has 0"), "{said}");
    let many = cluster.fails(&["sbatch", "--gres=shard:5", "--wrap", "true"]);
    assert!(many.contains("shard:5 on one node: the most that a node of partition main has is 4"), "{many}");
    let mixed = cluster.fails(&["sbatch", "--gres=gpu:1,shard:1", "--wrap", "true"]);
    assert!(mixed.contains("a job has GPUs or shards of them, not both"), "{mixed}");
}
