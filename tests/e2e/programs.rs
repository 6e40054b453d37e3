//! The site's programs that the controller runs for jobs.

use crate::cluster::{Cluster, Setup, said};

/// Waits at a gate with each job, and fails for jobs of this name.
const PROLOG: &str = "echo $SLURM_SCRIPT_CONTEXT $SLURM_JOB_NAME $SLURM_JOB_NODELIST $SLURM_JOB_WORK_DIR \
                      $SLURM_JOB_RESTART_COUNT >>@/said\n\
                      echo >@/up; read x <@/gate\n\
                      [ $SLURM_JOB_NAME != bad ]";
const EPILOG: &str = "echo $SLURM_SCRIPT_CONTEXT $SLURM_JOB_NAME $SLURM_JOB_EXIT_CODE $SLURM_JOB_EXIT_CODE2 \
                      $SLURM_JOB_RESTART_COUNT >>@/said\n\
                      [ $SLURM_JOB_NAME != slow ] || { echo >@/over; read x <@/out; }\n\
                      exit 3";

/// A cluster whose controller has programs with these lines; `@` stands for the jobs' directory.
fn cluster_with(prolog: &str, epilog: &str, controller: &str) -> Cluster {
    let mut cluster = Cluster::prepare(&Setup { nodes: 2, ..Setup::default() });
    let work = cluster.path("work").display().to_string();
    let mut lines = controller.to_owned();
    for (key, script) in [("prolog_slurmctld", prolog), ("epilog_slurmctld", epilog)] {
        let path = cluster.path(key);
        spur_tests::write_program(&path, &script.replace("@", &work));
        lines += &format!("{key} = \"{}\"\n", path.display());
    }
    cluster.configure("controller", &lines);
    cluster.start_controller();
    for node in ["n1", "n2"] {
        cluster.start_node(node);
        cluster.wait_for_log(node, &format!("registered as {node}"));
    }
    cluster
}

#[test]
fn nothing_of_a_job_runs_before_the_controllers_prolog_has_ended() {
    let mut cluster = cluster_with(PROLOG, EPILOG, "");
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let (mut over, mut out) = (cluster.gate("over"), cluster.gate("out"));
    let job = cluster.sbatch(&["-J", "slow", "-o", "ran", "--wrap", "echo ran; exit 7"]);
    up.wait();
    assert_eq!(cluster.ok(&["squeue", "-h", "-o", "%T %t %N"]), "CONFIGURING CF n1\n");
    assert_eq!(cluster.ok(&["squeue", "-h", "-t", "CF", "-o", "%i"]), format!("{job}\n"));
    assert!(!cluster.work("ran").exists());
    // The next controller runs the prolog again.
    cluster.kill("spurctld");
    cluster.start_controller();
    up.wait();
    (0..2).for_each(|_| gate.open());
    over.wait();
    assert_eq!(cluster.ok(&["squeue", "-h", "-o", "%T %t"]), "COMPLETING CG\n");
    cluster.kill("spurctld");
    cluster.start_controller();
    over.wait();
    (0..2).for_each(|_| out.open());
    let ended = cluster.client().wait_for(job, "FAILED");
    assert_eq!((ended.exit_code, ended.restarts), (7, 0));
    assert_eq!(cluster.read("ran"), "ran\n");
    let work = cluster.path("work").display().to_string();
    let prolog = format!("prolog_slurmctld slow n1 {work} 0\n");
    let epilog = "epilog_slurmctld slow 1792 7:0 0\n";
    assert_eq!(cluster.read("said"), format!("{prolog}{prolog}{epilog}{epilog}"));
    // Other requests are served while a program runs, and a job that is cancelled meanwhile never runs.
    let other = cluster.sbatch(&["-J", "other", "-o", "other", "--wrap", "true"]);
    up.wait();
    cluster.ok(&["scancel", &other.to_string()]);
    gate.open();
    cluster.client().wait_for(other, "CANCELLED");
    assert!(!cluster.work("other").exists());
}

#[test]
fn a_job_whose_prolog_fails_waits_again_or_is_cancelled() {
    let cluster = cluster_with(PROLOG, "true", "max_batch_requeue = 1\n");
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let job = cluster.sbatch(&["-J", "bad", "-o", "ran", "--requeue", "--wrap", "true"]);
    for _ in 0..2 {
        up.wait();
        gate.open();
    }
    cluster
        .wait_until(|cluster| cluster.ok(&["squeue", "-h", "-o", "%T %r"]) == "PENDING JobHoldMaxRequeue\n");
    assert!(!cluster.work("ran").exists());
    cluster.ok(&["scancel", &job.to_string()]);
    let never = cluster.sbatch(&["-J", "bad", "-o", "ran", "--no-requeue", "--wrap", "true"]);
    up.wait();
    gate.open();
    cluster.client().wait_for(never, "CANCELLED");
    assert!(!cluster.work("ran").exists());
    // A job that holds an allocation cannot wait again.
    let salloc = cluster.command(&["salloc", "-J", "bad", "touch", "ran"]);
    let running = std::thread::spawn(move || {
        let mut salloc = salloc;
        said(salloc.output().unwrap())
    });
    up.wait();
    gate.open();
    assert_eq!(running.join().unwrap().code, Some(1));
    assert!(!cluster.work("ran").exists());
    assert_eq!(cluster.ok(&["sinfo", "-h", "-o", "%T"]), "idle\n", "no node is drained for it");
}

#[test]
fn srun_and_het_jobs_wait_for_the_prolog() {
    let cluster = cluster_with(PROLOG, "true", "");
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let mut srun = cluster.command(&["srun", "-J", "good", "-n1", "echo", "here"]);
    let running = std::thread::spawn(move || said(srun.output().unwrap()));
    up.wait();
    assert_eq!(cluster.ok(&["squeue", "-h", "-o", "%T"]), "CONFIGURING\n");
    gate.open();
    let ran = running.join().unwrap();
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "here\n"), "{ran:?}");
    assert_eq!(ran.err, "srun: Waiting for resource configuration\n");
    let job = cluster.sbatch(&["-n1", "-o", "het", ":", "-n1", "--wrap", "echo ran"]);
    for _ in 0..2 {
        up.wait();
    }
    gate.open();
    cluster.wait_until(|cluster| cluster.rows(&["squeue", "-h", "-o", "%T"]) == ["CONFIGURING", "RUNNING"]);
    assert!(!cluster.work("het").exists(), "one of two components is not ready");
    gate.open();
    cluster.client().wait_for(job, "COMPLETED");
    assert_eq!(cluster.read("het"), "ran\n");
}

#[test]
fn a_program_that_hangs_is_killed() {
    let cluster = cluster_with("sleep 1000 & sleep 1000", "true", "prolog_epilog_timeout = \"1s\"\n");
    let job = cluster.sbatch(&["--no-requeue", "-o", "/dev/null", "--wrap", "true"]);
    cluster.client().wait_for(job, "CANCELLED");
    cluster.wait_for_log("spurctld", "not over after 1 s, killed");
    cluster.wait_until(|cluster| cluster.processes("sleep").is_empty());
}
