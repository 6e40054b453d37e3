//! Allocations that commands hold: `srun` outside of jobs, and `salloc`.

use std::fs::File;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::OpenptFlags;
use rustix::termios::{LocalModes, Winsize};

use crate::cluster::{Cluster, Said, Setup, await_word, said};

/// Two nodes of two CPUs; an allocation is given up soon after its command.
fn cluster() -> Cluster {
    Cluster::start(&Setup { nodes: 2, cpus: 2, more: "", ..Setup::default() })
}

/// A command that runs beside the test; its output is read at its end.
fn begin(cluster: &Cluster, words: &[&str]) -> Child {
    let mut command: Command = cluster.command(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn end(child: Child) -> Said {
    said(child.wait_with_output().unwrap())
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Makes a program of a script, in the directory where commands are called.
fn program(cluster: &Cluster, name: &str, script: &str) {
    spur_tests::write_program(cluster.work(name), script);
}

/// The only job that has not ended.
fn only_job(cluster: &Cluster) -> u32 {
    let listed = cluster.ok(&["squeue", "-h", "-o", "%i"]);
    listed.trim().parse().unwrap_or_else(|_| panic!("not one job: {listed}"))
}

#[test]
fn srun_asks_for_its_own_allocation_and_ends_it() {
    let cluster = cluster();
    let task =
        "echo $SLURM_JOB_ID.$SLURM_STEP_ID $SLURM_PROCID/$SLURM_NTASKS $SLURM_JOB_NAME; exit $SLURM_PROCID";
    let said = cluster.run(&["srun", "-N2", "-l", "sh", "-c", task]);
    let mut lines: Vec<&str> = said.out.lines().collect();
    lines.sort_unstable();
    assert_eq!((lines.as_slice(), said.code), (&["0: 1.0 0/2 sh", "1: 1.0 1/2 sh"][..], Some(1)));
    let job = cluster.client().wait_for(1, "FAILED");
    assert_eq!((job.exit_code, job.batch, job.command.as_str(), job.name.as_str()), (1, false, "sh", "sh"));
    assert_eq!(job.reason, "NonZeroExitCode");
    let rows = cluster.ok(&["sacct", "-nP", "-o", "jobid,jobname,state,exitcode"]);
    assert_eq!(rows, "1|sh|FAILED|1:0\n1.0|sh|FAILED|1:0\n");
}

#[test]
fn tasks_know_where_their_user_stood() {
    let cluster = cluster();
    let out = cluster.ok(&["srun", "-D", "/", "sh", "-c", "pwd; echo $SLURM_SUBMIT_DIR"]);
    assert_eq!(out, format!("/\n{}\n", cluster.path("work").display()));
    cluster.ok(&["salloc", "-Q", "-n2", "srun", "-l", "-m", "cyclic", "true"]);
    let lines = cluster.ok(&["sacct", "-nP", "-o", "jobid,layout,submitline"]);
    let line = "srun -D / sh -c pwd; echo $SLURM_SUBMIT_DIR";
    let second = "2||salloc -Q -n2 srun -l -m cyclic true\n2.0|Cyclic|srun -l -m cyclic true";
    assert_eq!(lines, format!("1||{line}\n1.0|Cyclic|{line}\n{second}\n"));
}

#[test]
fn files_of_srun_lie_where_it_was_called() {
    let cluster = cluster();
    std::fs::create_dir(cluster.work("below")).unwrap();
    std::fs::write(cluster.work("in"), "what comes in\n").unwrap();
    cluster.ok(&["srun", "-D", "below", "-i", "in", "-o", "out", "sh", "-c", "pwd; cat"]);
    let below = cluster.work("below").display().to_string();
    assert_eq!(std::fs::read_to_string(cluster.work("out")).unwrap(), format!("{below}\nwhat comes in\n"));
    // Each task opens its own file in its own directory.
    cluster.ok(&["srun", "-D", "below", "-o", "out-%t", "echo", "x"]);
    assert!(cluster.work("below/out-0").exists());
    assert_eq!(cluster.ok(&["srun", "-o", "-", "echo", "on", "its", "own"]), "on its own\n");
}

#[test]
fn programs_are_found_where_a_command_was_called() {
    let cluster = cluster();
    program(&cluster, "own", "echo here");
    std::fs::write(cluster.work("roles"), "0 own\n").unwrap();
    for words in [&["srun", "own"][..], &["srun", "--multi-prog", "roles"], &["salloc", "-Q", "own"]] {
        assert_eq!(cluster.ok(words), "here\n", "{words:?}");
    }
    let said = cluster.run(&["salloc", "-D", "nowhere", "true"]);
    assert_eq!(
        (said.err.as_str(), said.code),
        ("salloc: error: chdir(nowhere): No such file or directory\n", Some(1))
    );
}

#[test]
fn programs_beside_a_step_end_it_or_are_ended() {
    let cluster = cluster();
    program(&cluster, "fails", "exit 3");
    program(&cluster, "stays", "sleep 1000");
    let said = cluster.run(&["srun", "--prolog=./fails", "echo", "ran"]);
    assert_eq!((said.out.as_str(), said.code), ("", Some(1)));
    assert_eq!(said.err, "srun: error: srun prolog failed rc = 3. Aborting step.\n");
    assert_eq!(cluster.ok(&["srun", "--task-epilog=./stays", "echo", "ran"]), "ran\n");
    // Without a terminal `--pty` is disregarded.
    let said = cluster.run(&["srun", "--pty", "echo", "ran"]);
    assert_eq!(said.out, "ran\n");
    assert!(said.err.contains("disregarding --pty option"), "{}", said.err);
    // Processes started by the command of an allocation end with it.
    let mut up = cluster.gate("up");
    let salloc =
        begin(&cluster, &["salloc", "-Q", "-KTERM", "sh", "-c", "sh -c 'echo >up; exec sleep 1000'; true"]);
    up.wait();
    cluster.ok(&["scancel", &only_job(&cluster).to_string()]);
    end(salloc);
}

#[test]
fn steps_choose_among_the_nodes_of_their_job() {
    let cluster = cluster();
    cluster.ok(&["scontrol", "update", "nodename=n2", "features=c"]);
    let show = "echo $SLURMD_NODENAME";
    let script = format!(
        "srun -C c -n1 sh -c '{show}'; srun -C nosuch -n1 true; srun -n2 -m block,pack sh -c '{show}'"
    );
    let said = cluster.run(&["salloc", "-Q", "-N2", "-n4", "sh", "-c", &script]);
    assert_eq!(said.out, "n2\nn1\nn1\n");
    assert!(said.err.contains("none of the job's nodes has nosuch"), "{}", said.err);
    // The job's CPUs for each task count where there are enough.
    let script = "srun -n2 sh -c 'echo $SLURM_NTASKS'; srun -n1 sh -c 'echo $SLURM_CPUS_PER_TASK'";
    assert_eq!(cluster.ok(&["salloc", "-Q", "-N1", "-n1", "-c2", "sh", "-c", script]), "2\n2\n2\n");
    // The variables of a plane are Slurm's, with Slurm's meaning.
    let script =
        "echo $SLURM_DISTRIBUTION $SLURM_DIST_PLANESIZE; srun -n4 -l sh -c 'echo $SLURMD_NODENAME' | sort";
    let out = cluster.ok(&["salloc", "-Q", "-m", "plane=2", "-N2", "-n4", "sh", "-c", script]);
    assert_eq!(out, "plane 2\n0: n1\n1: n1\n2: n2\n3: n2\n");
    let script = "printf 'n2*2\nn1\nn2,n1\n' >hosts; SLURM_HOSTFILE=hosts srun -O -n5 -l sh -c 'echo $SLURMD_NODENAME' | sort";
    let out = cluster.ok(&["salloc", "-Q", "-N2", "-n4", "sh", "-c", script]);
    assert_eq!(out, "0: n2\n1: n2\n2: n1\n3: n2\n4: n1\n");
}

#[test]
fn a_step_waits_as_long_as_it_was_told() {
    let cluster = cluster();
    let script =
        "mkfifo gate up; srun -N1 -n2 sh -c 'test $SLURM_PROCID = 1 || { echo >up; read x <gate; }' &
read x <up; srun -I1 -N1 -n2 true; echo $?; srun -I600 -N1 -n2 echo waited & echo >gate; wait";
    let said = cluster.run(&["salloc", "-Q", "-N1", "-n2", "sh", "-c", script]);
    assert_eq!(said.out, "1\nwaited\nwaited\n", "{}", said.err);
    let tried = |command: &[&str]| {
        let mut command = cluster.command(command);
        command.env("SLURM_EXIT_ERROR", "66").env("SLURM_EXIT_IMMEDIATE", "44");
        command.output().unwrap().status.code()
    };
    assert_eq!(tried(&["sbatch", "-p", "nosuch", "--wrap", "true"]), Some(66));
    assert_eq!(tried(&["salloc", "-p", "nosuch", "true"]), Some(66));
    assert_eq!(tried(&["srun", "-N", "x", "true"]), Some(255));
    cluster.ok(&["sbatch", "-N2", "--exclusive", "--wrap", "sleep 600"]);
    cluster.client().wait_for(2, "RUNNING");
    assert_eq!(tried(&["salloc", "-I", "true"]), Some(44));
}

#[test]
fn unbuffered_tasks_write_to_a_terminal() {
    let cluster = cluster();
    let script = "test -t 0 || test -t 2 || if test -t 1; then echo terminal; else echo pipe; fi";
    let tried = |options: &[&str]| cluster.ok(&[&["srun"], options, &["sh", "-c", script]].concat());
    assert_eq!(tried(&["-u", "-n2"]), "terminal\nterminal\n");
    assert_eq!(tried(&["-n2"]), "pipe\npipe\n");
    // All bytes pass unchanged.
    let large = "yes 0123456789 | head -n 100000";
    let passed = cluster.ok(&["srun", "-u", "sh", "-c", large]);
    assert!(passed == "0123456789\n".repeat(100_000), "{} bytes", passed.len());
}

#[test]
fn an_allocation_of_sruns_has_room_for_its_tasks() {
    let cluster = cluster();
    std::fs::write(cluster.work("hosts"), "n2\nn1\nn2\n").unwrap();
    let sorted = |command: &mut Command| {
        let said = said(command.output().unwrap());
        let mut lines: Vec<String> = said.out.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        (lines, said.err)
    };
    // Whole nodes belong to their step, except where it names its share.
    let cpus = ["sh", "-c", "echo $SLURM_NTASKS $SLURM_CPUS_ON_NODE"];
    let own = |options: &[&str]| sorted(&mut cluster.command(&[&["srun", "-N1"], options, &cpus].concat())).0;
    assert_eq!(
        (own(&["--exclusive"]), own(&["--exclusive", "-n1"])),
        (vec!["1 2".into()], vec!["1 1".into()])
    );
    let words = ["srun", "-N2", "-B", "2:1:1", "sh", "-c", "echo $SLURM_PROCID/$SLURM_NTASKS"];
    let (of_cores, err) = sorted(&mut cluster.command(&words));
    assert_eq!(of_cores, ["0/4", "1/4", "2/4", "3/4"], "{err}");
    // More tasks than CPUs share those of one task.
    let show = ["sh", "-c", "echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_JOB_CPUS_PER_NODE"];
    let words = [&["srun", "-O", "-N1", "-n4"][..], &show].concat();
    let (crowded, err) = sorted(&mut cluster.command(&words));
    assert_eq!(crowded, ["0/4 1", "1/4 1", "2/4 1", "3/4 1"], "{err}");
    // A node that is named twice has two tasks.
    let show = ["sh", "-c", "echo $SLURM_PROCID $SLURMD_NODENAME"];
    for srun in [&["srun", "-m", "arbitrary"][..], &["srun"]] {
        let mut command = cluster.command(&[srun, &show].concat());
        let (named, err) = sorted(command.env("SLURM_HOSTFILE", "hosts"));
        assert_eq!(named, ["0 n2", "1 n1", "2 n2"], "{srun:?}: {err}");
    }
    let relative = cluster.run(&["srun", "-r1", "true"]);
    assert_eq!(relative.err, "srun: error: --relative option invalid for job allocation request\n");
}

#[test]
fn srun_waits_in_the_queue_and_can_be_told_not_to() {
    let cluster = cluster();
    let mut up = cluster.gate("up");
    let mut gate = cluster.gate("gate");
    let first = begin(&cluster, &["srun", "-N2", "-n4", "sh", "-c", "echo >up; read x <gate"]);
    (0..4).for_each(|_| up.wait());
    let mut second = begin(&cluster, &["srun", "-n1", "echo", "ran"]);
    let told = await_word(second.stderr.as_mut().unwrap(), "resources\n");
    assert_eq!(told, "srun: job 2 queued and waiting for resources\n");
    let busy = cluster.run(&["srun", "--immediate=1", "-n1", "true"]);
    assert_eq!(busy.code, Some(1));
    assert!(
        busy.err.ends_with("srun: error: Unable to allocate resources: Requested nodes are busy\n"),
        "{busy:?}"
    );
    let mut third = begin(&cluster, &["srun", "-n1", "true"]);
    await_word(third.stderr.as_mut().unwrap(), "resources\n");
    signal(&third, Signal::INT);
    assert_eq!(end(third).code, Some(130));
    cluster.client().wait_for(4, "CANCELLED");
    (0..4).for_each(|_| gate.open());
    assert_eq!(end(first).code, Some(0));
    let second = end(second);
    assert_eq!((second.code, second.out.as_str()), (Some(0), "ran\n"));
    assert_eq!(second.err, "srun: job 2 has been allocated resources\n");
    let mut held = begin(&cluster, &["srun", "-H", "-n1", "true"]);
    let told = await_word(held.stderr.as_mut().unwrap(), "resources\n");
    let why = "srun: Job is in held state, pending scheduler release\n";
    assert_eq!(told, format!("{why}srun: job 5 queued and waiting for resources\n"));
    signal(&held, Signal::INT);
    assert_eq!(end(held).code, Some(130));
}

#[test]
fn interrupts_show_the_tasks_and_then_end_them() {
    // The time is long enough for the tasks to die of INT, on a slow machine too: KILL would be another exit
    // code.
    let cluster = Cluster::start(&Setup { nodes: 2, cpus: 2, kill_wait: "60s", ..Setup::default() });
    let mut srun = begin(&cluster, &["srun", "-v", "-N2", "sleep", "1000"]);
    let stderr = srun.stderr.as_mut().unwrap();
    (0..2).for_each(|_| drop(await_word(stderr, "1 tasks started\n")));
    signal(&srun, Signal::INT);
    let told = await_word(srun.stderr.as_mut().unwrap(), "running\n");
    assert_eq!(
        told,
        "srun: interrupt (one more within 1 sec to abort)\nsrun: StepId=1.0 tasks 0-1: running\n"
    );
    // One interrupt too many would kill the tasks; on a slow machine one comes too late and counts as the
    // first again.
    let passed_on = (0..20).any(|_| {
        signal(&srun, Signal::INT);
        let stderr = srun.stderr.as_mut().unwrap();
        let told = await_word(stderr, "\n");
        told == "srun: sending Ctrl-C to StepId=1.0\n" || {
            assert_eq!(told, "srun: interrupt (one more within 1 sec to abort)\n");
            await_word(stderr, "running\n");
            false
        }
    });
    assert!(passed_on, "no two interrupts came within a second");
    assert_eq!(end(srun).code, Some(130));
    cluster.client().wait(1, |job| job.state == "FAILED" && job.exit_signal == 2);
}

#[test]
fn who_holds_an_allocation_is_told_of_nodes_that_fail() {
    let cluster = Cluster::start(&Setup { nodes: 3, cpus: 2, more: "", ..Setup::default() });
    for (no_kill, words) in [(true, &["salloc", "-N2", "--no-kill"][..]), (false, &["salloc", "-N2"])] {
        let (ready, go) = (format!("up.{no_kill}"), format!("gate.{no_kill}"));
        let (mut up, mut gate) = (cluster.gate(&ready), cluster.gate(&go));
        let script = format!("echo >{ready}; read x <{go}");
        let mut salloc = begin(&cluster, &[words, &["sh", "-c", &script]].concat());
        up.wait();
        cluster.ok(&["scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=fan"]);
        let revoked = "salloc: Job allocation 2 has been revoked.\n";
        let failed = format!("salloc: error: Node failure on n2\n{}", if no_kill { "" } else { revoked });
        await_word(salloc.stderr.as_mut().unwrap(), &failed);
        if no_kill {
            cluster.client().wait(only_job(&cluster), |job| job.nodes == "n[1,3]");
        } else {
            cluster.client().wait(2, |job| job.state == "NODE_FAIL");
        }
        gate.open();
        end(salloc);
        cluster.ok(&["scontrol", "update", "NodeName=n2", "State=RESUME"]);
    }
}

#[test]
fn salloc_runs_a_command_whose_steps_use_the_allocation() {
    let cluster = cluster();
    let script = "echo $SLURM_JOB_ID $SLURM_NNODES $SLURM_JOB_NODELIST; srun -l echo in; exit 7";
    let said = cluster.run(&["salloc", "-N2", "-J", "mine", "sh", "-c", script]);
    let mut lines: Vec<&str> = said.out.lines().collect();
    lines.sort_unstable();
    assert_eq!((lines.as_slice(), said.code), (&["0: in", "1 2 n[1-2]", "1: in"][..], Some(7)));
    let granted = "salloc: Granted job allocation 1\nsalloc: Nodes n[1-2] are ready for job\n";
    assert_eq!(said.err, format!("{granted}salloc: Relinquishing job allocation 1\n"));
    let job = cluster.client().wait_for(1, "FAILED");
    assert_eq!((job.exit_code, job.name.as_str()), (7, "mine"));
    // The command of an allocation gets the memory variable if the user asked for memory, and passes it to
    // its tasks; tasks of srun alone do not get it.
    let script = "srun -n1 --ntasks-per-node=1 sh -c 'echo $SLURM_MEM_PER_CPU $SLURM_NTASKS_PER_NODE'";
    assert_eq!(cluster.ok(&["salloc", "-Q", "--mem-per-cpu=10", "sh", "-c", script]), "10 1\n");
    assert_eq!(cluster.ok(&["srun", "--mem-per-cpu=10", "sh", "-c", "echo [$SLURM_MEM_PER_CPU]"]), "[]\n");
    assert!(cluster.fails(&["salloc", "-N3", "true"]).contains("salloc: error: Job submit/allocate failed"));
}

#[test]
fn who_watches_a_job_is_told_what_somebody_says() {
    let cluster = cluster();
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let script = "echo >up; read x <gate";
    let batch = cluster.sbatch(&["-o", "out-%j", "--wrap", script]).to_string();
    let mut srun = begin(&cluster, &["srun", "-J", "srun", "-n1", "sh", "-c", script]);
    let mut salloc = begin(&cluster, &["salloc", "-J", "salloc", "-n1", "sh", "-c", script]);
    (0..3).for_each(|_| up.wait());
    cluster.ok(&["scontrol", "notify", &batch, "the disk", "is\u{1b}full"]);
    for (child, name) in [(&mut srun, "srun"), (&mut salloc, "salloc")] {
        let job = cluster.ok(&["squeue", "-h", "-n", name, "-o", "%i"]);
        cluster.ok(&["scontrol", "notify", job.trim(), "hello"]);
        let told = await_word(child.stderr.as_mut().unwrap(), "hello\n");
        assert!(told.ends_with(&format!("{name}: hello\n")), "{told}");
    }
    let file = format!("out-{batch}");
    cluster.wait_until(|cluster| cluster.read(&file) == "slurmstepd: error: the disk is\\u{1b}full\n");
    let long = cluster.fails(&["scontrol", "notify", &batch, &"x".repeat(1025)]);
    assert!(long.contains("a message has 1024 characters at most, this one has 1025"), "{long}");
    (0..3).for_each(|_| gate.open());
    assert_eq!((end(srun).code, end(salloc).code), (Some(0), Some(0)));
    cluster.client().wait_for(batch.parse().unwrap(), "COMPLETED");
    assert_eq!(
        cluster.fails(&["scontrol", "notify", &batch, "late"]),
        "job notify failure: Job/step already completing or completed\n"
    );
}

#[test]
fn salloc_takes_what_a_login_shell_has_where_it_has_nothing_itself() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: only root may ask for it");
    }
    let cluster = cluster();
    let words = ["salloc", "--get-user-env=60L", "-Q", "sh", "-c", "echo $LOGNAME ${HOME##*/}"];
    let mut command = cluster.command(&words);
    let said = command.env_remove("LOGNAME").output().unwrap();
    let out = String::from_utf8(said.stdout).unwrap();
    assert_eq!(out, "root work\n", "{}", String::from_utf8_lossy(&said.stderr));
    let bad = cluster.run(&["salloc", "--get-user-env=soon", "true"]);
    assert!(bad.code == Some(1) && bad.err.contains("write TIMEOUT[S|L]"), "{bad:?}");
}

#[test]
fn an_allocation_that_is_taken_away_ends_the_command_if_that_is_wished() {
    let cluster = cluster();
    let mut gate = cluster.gate("gate");
    for (options, ends) in [(&["salloc"][..], false), (&["salloc", "-K"], true)] {
        let mut up = cluster.gate(if ends { "up2" } else { "up1" });
        let script = format!("echo >{}; read x <gate", if ends { "up2" } else { "up1" });
        let mut salloc = begin(&cluster, &[options, &["sh", "-c", &script]].concat());
        up.wait();
        let job = only_job(&cluster);
        cluster.ok(&["scancel", &job.to_string()]);
        let told = await_word(salloc.stderr.as_mut().unwrap(), "revoked.\n");
        assert!(told.ends_with(&format!("salloc: Job allocation {job} has been revoked.\n")), "{told}");
        if !ends {
            gate.open();
        }
        let said = end(salloc);
        assert_eq!((said.code, said.err.as_str()), (Some(i32::from(ends)), ""));
        cluster.client().wait_for(job, "CANCELLED");
    }
}

#[test]
fn an_allocation_without_a_shell_stays() {
    let cluster = cluster();
    cluster.ok(&["salloc", "--no-shell", "-n2", "-N1"]);
    let job = only_job(&cluster).to_string();
    let word = "echo $SLURM_JOB_NAME";
    assert_eq!(cluster.ok(&["srun", &format!("--jobid={job}"), "-n1", "sh", "-c", word]), "no-shell\n");
    cluster.ok(&["scancel", &job]);
    cluster.client().wait_for(1, "CANCELLED");
}

#[test]
fn an_allocation_ends_soon_after_a_command_that_was_killed() {
    let controller = "inactive_limit = \"1s\"";
    let mut cluster = Cluster::start(&Setup { nodes: 2, controller, ..Setup::default() });
    let mut up = cluster.gate("up");
    let running = begin(&cluster, &["srun", "-N2", "sh", "-c", "echo >up; exec sleep 1000"]);
    (0..2).for_each(|_| up.wait());
    let mut waiting = begin(&cluster, &["salloc", "-N2", "--exclusive", "true"]);
    await_word(waiting.stderr.as_mut().unwrap(), "resources\n");
    for mut child in [running, waiting] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let job = cluster.client().wait_for(1, "TIMEOUT");
    assert_eq!(job.reason, "InactiveLimit");
    cluster.client().wait_for(2, "CANCELLED");
    assert_eq!(cluster.ok(&["srun", "-N2", "-l", "-n2", "true"]), "");
    cluster.kill("spurctld");
    cluster.start_controller();
    cluster.client().wait_for(3, "COMPLETED");
}

#[test]
fn commands_hold_their_allocations_through_restarts_of_the_controller() {
    let mut cluster = cluster();
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let running = begin(&cluster, &["srun", "-N2", "-n4", "sh", "-c", "echo >up; read x <gate"]);
    (0..4).for_each(|_| up.wait());
    let mut waiting = begin(&cluster, &["salloc", "-N2", "-n4", "srun", "echo", "ran"]);
    await_word(waiting.stderr.as_mut().unwrap(), "resources\n");
    cluster.kill("spurctld");
    await_word(waiting.stderr.as_mut().unwrap(), "waiting for it\n");
    cluster.start_controller();
    (0..4).for_each(|_| gate.open());
    let said = end(running);
    assert_eq!(said.code, Some(0), "{said:?}");
    let said = end(waiting);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "ran\nran\nran\nran\n"), "{said:?}");
    cluster.client().wait_for(1, "COMPLETED");
    cluster.client().wait_for(2, "COMPLETED");
}

/// A command with a terminal, whose other end belongs to the test.
struct Seat {
    terminal: File,
    child: Child,
}

impl Seat {
    fn take(cluster: &Cluster, words: &[&str]) -> Seat {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let terminal = rustix::pty::openpt(flags).unwrap();
        rustix::pty::unlockpt(&terminal).unwrap();
        let other = File::from(rustix::pty::ioctl_tiocgptpeer(&terminal, flags).unwrap());
        let mut seat_of = cluster.command(words);
        seat_of.env("TERM", "dumb").env("PS1", "ready> ");
        seat_of.stdin(other.try_clone().unwrap()).stdout(other.try_clone().unwrap()).stderr(other);
        let seat = Seat { terminal: File::from(terminal), child: seat_of.spawn().unwrap() };
        seat.resize(30, 100);
        seat
    }

    fn resize(&self, ws_row: u16, ws_col: u16) {
        let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&self.terminal, size).unwrap();
    }

    fn type_in(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    /// Reads until the output contains `word`.
    fn await_word(&mut self, word: &str) -> String {
        await_word(&mut self.terminal, word)
    }
}

#[test]
fn a_task_has_a_terminal_with_size_signals_and_job_control() {
    let cluster = cluster();
    let mut seat = Seat::take(&cluster, &["srun", "--pty", "bash", "--norc", "--noediting"]);
    seat.await_word("ready> ");
    assert!(!rustix::termios::tcgetattr(&seat.terminal).unwrap().local_modes.contains(LocalModes::ICANON));
    seat.type_in("stty size; ps -o pid=,sid=,pgid= -p $$ | awk '{print ($1==$2 && $2==$3) \"-leads\"}'\r");
    let said = seat.await_word("1-leads");
    assert!(said.contains("30 100"), "{said}");
    seat.await_word("ready> ");
    seat.type_in("trap 'stty size' WINCH; echo s\"\"et\r");
    seat.await_word("set\r\n");
    seat.resize(41, 111);
    signal(&seat.child, Signal::WINCH);
    // The shell runs the trap when it reads a line.
    seat.type_in("echo the\"\"n\r");
    let said = seat.await_word("then\r\n");
    seat.type_in("stty size; echo siz\"\"ed\r");
    let said = said + &seat.await_word("sized");
    assert!(said.contains("41 111"), "{said}");
    // Keys are signals in the task's terminal only. The program reports that it has the terminal: before that
    // the shell has it, which ignores Ctrl-Z.
    seat.type_in("sh -c 'echo be\"\"gun; exec sleep 1000'\r");
    seat.await_word("begun\r\n");
    seat.type_in("\x03");
    seat.type_in("echo code=$?\r");
    seat.await_word("code=130");
    seat.type_in("sh -c 'echo be\"\"gun; exec sleep 1000'\r");
    seat.await_word("begun\r\n");
    seat.type_in("\x1a");
    seat.await_word("Stopped");
    // A shell with a job that it does not yet know to be dead needs the command twice.
    seat.type_in("kill -9 %1; exit 5\rexit 5\r");
    assert_eq!(seat.child.wait().unwrap().code(), Some(5));
    assert!(rustix::termios::tcgetattr(&seat.terminal).unwrap().local_modes.contains(LocalModes::ICANON));
    cluster.client().wait_for(1, "FAILED");
}

#[test]
fn a_command_in_the_background_leaves_the_keys_to_its_shell() {
    let cluster = cluster();
    let shell = ["/usr/bin/setsid", "--ctty", "--wait", "bash", "--norc", "--noediting", "-i"];
    let mut seat = Seat::take(&cluster, &shell);
    seat.await_word("ready> ");
    let in_front = |seat: &Seat| rustix::termios::tcgetpgrp(&seat.terminal).unwrap();
    let own = in_front(&seat);
    seat.type_in("srun sh -c 'echo be\"\"gun; tr a-z A-Z' &\r");
    seat.await_word("begun");
    seat.type_in("jobs\r");
    seat.await_word("Running");
    // A command that was once in the foreground does not stop in the background either.
    seat.type_in("fg\r");
    cluster.wait_until(|_| in_front(&seat) != own);
    seat.type_in("\x1a");
    seat.await_word("Stopped");
    seat.type_in("bg; jobs\r");
    seat.await_word("Running");
    seat.type_in("fg\r");
    cluster.wait_until(|_| in_front(&seat) != own);
    seat.type_in("one\rtwo\r\x04");
    seat.await_word("ONE\r\nTWO");
    seat.type_in("echo co\"\"de=$?; exit\r");
    seat.await_word("code=0");
    assert_eq!(seat.child.wait().unwrap().code(), Some(0));
}

#[test]
fn with_disable_status_only_a_second_interrupt_within_a_second_kills() {
    let cluster = cluster();
    let mut up = cluster.gate("up");
    let script = "trap 'echo >up' INT; echo >up; while :; do sleep 0.1; done";
    let mut srun = begin(&cluster, &["srun", "-X", "sh", "-c", script]);
    up.wait();
    let interrupt = |srun: &mut Child| {
        signal(srun, Signal::INT);
        await_word(srun.stderr.as_mut().unwrap(), "\n")
    };
    for _ in 0..2 {
        let told = Instant::now();
        assert_eq!(interrupt(&mut srun), "srun: sending Ctrl-C to StepId=1.0\n");
        up.wait();
        cluster.wait_until(|_| told.elapsed() > Duration::from_secs(2));
    }
    // On a slow machine one interrupt comes too late and counts as the first again.
    let killed = (0..20).any(|_| interrupt(&mut srun) == "srun: forcing job termination\n");
    assert!(killed, "no two interrupts came within a second");
    assert!(end(srun).code.is_some_and(|code| code != 0));
}

#[test]
fn variables_of_srun_name_the_files_of_its_tasks() {
    let cluster = cluster();
    cluster.script("in", "given\n");
    let mut command = cluster.command(&["srun", "sh", "-c", "cat; echo complained >&2"]);
    for (name, file) in [("SRUN_INPUT", "in"), ("SRUN_OUTPUT", "out"), ("SRUN_ERROR", "err")] {
        command.env(name, file);
    }
    // The older variables count less.
    let said = said(command.env("SLURM_STDOUTMODE", "older").output().unwrap());
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "", ""));
    assert_eq!((cluster.read("out").as_str(), cluster.read("err").as_str()), ("given\n", "complained\n"));
    assert!(!cluster.work("older").exists());
}

#[test]
fn the_terminal_is_as_it_was_when_srun_is_ended() {
    let cluster = cluster();
    let mut seat = Seat::take(&cluster, &["srun", "--pty", "bash", "--norc", "--noediting"]);
    seat.await_word("ready> ");
    signal(&seat.child, Signal::TERM);
    assert!(seat.child.wait().unwrap().code().is_some_and(|code| code > 128));
    assert!(rustix::termios::tcgetattr(&seat.terminal).unwrap().local_modes.contains(LocalModes::ICANON));
    assert_eq!(cluster.ok(&["squeue", "-h", "-t", "R"]), "");
}

#[test]
fn a_shell_joins_a_job_that_runs() {
    let cluster = cluster();
    let mut gate = cluster.gate("gate");
    let array = cluster.sbatch(&["--array=3", "-n2", "-N1", "-o", "out", "--wrap", "read x <gate"]);
    cluster.client().wait(array, |job| job.state == "RUNNING");
    let name = format!("--jobid={array}_3");
    let mut seat =
        Seat::take(&cluster, &["srun", &name, "--overlap", "--pty", "bash", "--norc", "--noediting"]);
    seat.await_word("ready> ");
    seat.type_in("echo $SLURM_ARRAY_TASK_ID-of-it; exit\r");
    seat.await_word("3-of-it");
    assert_eq!(seat.child.wait().unwrap().code(), Some(0));
    gate.open();
    cluster.client().wait_for(array, "COMPLETED");
}
