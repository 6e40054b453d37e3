//! The environment that the site's programs and jobs get from the daemons that start them.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::cluster::{Cluster, Setup, program};

/// A cluster of one node whose programs run these scripts, by the configuration's keys; `@` is the directory
/// of jobs.
fn cluster(setup: &Setup, scripts: &[(&str, &str, &str)]) -> Cluster {
    let cluster = Cluster::prepare(setup);
    let work = cluster.path("work").display().to_string();
    for (table, key, script) in scripts {
        let path = cluster.path(key);
        spur_tests::write_program(&path, &script.replace('@', &work));
        cluster.configure(table, &format!("{key} = \"{}\"\n", path.display()));
    }
    cluster
}

fn start(cluster: &mut Cluster) {
    cluster.start_controller();
    cluster.start_node("n1");
    cluster.wait_for_log("n1", "registered as n1");
}

/// An environment that a program has left in a file.
fn told(cluster: &Cluster, file: &str) -> BTreeMap<String, String> {
    let text = cluster.read(file);
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

const TELL: &str = "env >@/$SLURM_SCRIPT_CONTEXT.$SLURM_JOB_ID.new; mv @/$SLURM_SCRIPT_CONTEXT.$SLURM_JOB_ID.new @/$SLURM_SCRIPT_CONTEXT.$SLURM_JOB_ID";

#[test]
fn prolog_and_epilog_are_told_what_slurms_are() {
    let setup = Setup { gres: "gpu:2", ..Setup::default() };
    let scripts = [
        ("agent", "prolog", TELL),
        ("agent", "epilog", TELL),
        ("controller", "prolog_slurmctld", TELL),
        ("controller", "epilog_slurmctld", TELL),
    ];
    let mut cluster = cluster(&setup, &scripts);
    start(&mut cluster);
    let job = cluster.sbatch(&["-n1", "--gres=gpu:1", "--comment=hi", "-o", "out-%j", "--wrap", "exit 3"]);
    cluster.client().wait_for(job, "FAILED");
    let uid = rustix::process::geteuid().as_raw().to_string();
    let (id, work) = (job.to_string(), cluster.path("work").display().to_string());
    let out = cluster.work(&format!("out-{job}")).display().to_string();
    let expected = [
        ("SLURM_JOB_ID", id.as_str()),
        ("SLURM_JOB_COMMENT", "hi"),
        ("SLURM_JOB_RESTART_COUNT", "0"),
        ("SLURM_UID", &uid),
        ("SLURM_JOB_UID", &uid),
        ("SLURM_JOB_WORK_DIR", &work),
        ("SLURM_JOB_STDOUT", &out),
        ("SLURM_JOB_PARTITION", "main"),
        ("SLURM_JOB_NODELIST", "n1"),
        ("SLURM_CLUSTER_NAME", "e2e"),
    ];
    let of_gpus = [("SLURM_JOB_GPUS", "0"), ("CUDA_VISIBLE_DEVICES", "0"), ("GPU_DEVICE_ORDINAL", "0")];
    let of_end =
        [("SLURM_JOB_EXIT_CODE", "768"), ("SLURM_JOB_EXIT_CODE2", "3:0"), ("SLURM_JOB_DERIVED_EC", "0")];
    for context in ["prolog_slurmd", "epilog_slurmd", "prolog_slurmctld", "epilog_slurmctld"] {
        cluster.wait_until(|cluster| cluster.work(&format!("{context}.{job}")).exists());
        let told = told(&cluster, &format!("{context}.{job}"));
        let on_node = context.ends_with("slurmd");
        let ended = context.starts_with("epilog");
        let gpus = of_gpus.iter().filter(|_| on_node);
        let end = of_end.iter().filter(|_| ended);
        for (name, value) in expected.iter().chain(gpus).chain(end) {
            assert_eq!(told.get(*name).map(String::as_str), Some(*value), "{name} of {context}: {told:?}");
        }
    }
    // A job without a script has the variables, too; its user's environment is no part of them.
    let mut salloc = cluster.command(&["salloc", "-n1", "--gres=gpu:1", "srun", "--gres=none", "true"]);
    salloc.env("LD_PRELOAD", "").env("SLURM_EVIL", "1").env("EVIL", "1");
    assert!(salloc.status().unwrap().success());
    let next = job + 1;
    cluster.wait_until(|cluster| cluster.work(&format!("epilog_slurmd.{next}")).exists());
    for context in ["prolog_slurmd", "epilog_slurmd", "prolog_slurmctld"] {
        let told = told(&cluster, &format!("{context}.{next}"));
        assert!(told.keys().all(|name| !name.contains("EVIL") && name != "LD_PRELOAD"), "{told:?}");
        let gpus = context.ends_with("slurmd").then_some("0");
        assert_eq!(told.get("SLURM_JOB_GPUS").map(String::as_str), gpus, "{context}");
    }
}

/// A daemon's program under a start script that had a file open and an out-of-memory score.
fn under_a_start_script(cluster: &Cluster, daemon: &str) -> Command {
    let mut command = Command::new("sh");
    let script = "exec 7<\"$1\" 9<\"$1\"; shift; echo 100 >/proc/self/oom_score_adj; exec \"$@\"";
    let secret = cluster.path("key");
    command.args(["-c", script, "sh"]).arg(secret).arg(program(daemon));
    command
}

#[test]
fn what_a_start_script_left_reaches_no_program_and_no_job() {
    // The epilog of a later job may run while the test reads, so a whole file replaces the previous one.
    const LOOK: &str = "file=@/$SLURM_SCRIPT_CONTEXT; \
         { ls /proc/self/fd; cat /proc/self/oom_score_adj; } >$file.$$ && mv $file.$$ $file";
    let scripts = [
        ("agent", "prolog", LOOK),
        ("agent", "epilog", LOOK),
        ("agent", "task_prolog", "cat /proc/self/oom_score_adj >@/task_prolog"),
        ("controller", "prolog_slurmctld", LOOK),
        ("controller", "epilog_slurmctld", LOOK),
    ];
    let mut cluster = cluster(&Setup::default(), &scripts);
    let controller = under_a_start_script(&cluster, "spurctld");
    cluster.start_controller_as(controller);
    let node = under_a_start_script(&cluster, "spurd");
    cluster.start_node_as("n1", node);
    cluster.wait_for_log("n1", "registered as n1");
    for daemon in ["spurctld", "n1"] {
        let pid = cluster.pid(daemon).as_raw_nonzero();
        let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        assert_eq!(score, "100\n", "{daemon}");
    }
    let look = "ls /proc/self/fd; cat /proc/self/oom_score_adj";
    let job = cluster.sbatch(&["-n1", "-o", "job", "--wrap", look]);
    cluster.client().wait_for(job, "COMPLETED");
    assert_eq!(cluster.ok(&["srun", "-n1", "--mpi=none", "sh", "-c", look]), "0\n1\n2\n3\n0\n");
    // The last descriptor belongs to the directory that `ls` reads.
    for file in ["job", "prolog_slurmd", "epilog_slurmd", "prolog_slurmctld", "epilog_slurmctld"] {
        cluster.wait_until(|cluster| cluster.work(file).exists());
        assert_eq!(cluster.read(file), "0\n1\n2\n3\n0\n", "{file}");
    }
    assert_eq!(cluster.read("task_prolog"), "0\n");
}
