//! MPI programs: their services exist without being asked for, and reach every node of the step.
//!
//! A shell uses PMI as a library does. Real MPI libraries are tried where they are installed.

use std::process::Command;

use crate::clients::programs;
use crate::cluster::{Cluster, Gate, Setup};

/// The PMI-1 requests of a task: it puts its rank and reads those of all.
const TASK: &str = r#"#!/bin/bash
ask() { printf '%s\n' "$1" >&$PMI_FD; read -r answer <&$PMI_FD; }
ask 'cmd=init pmi_version=1 pmi_subversion=1'
[ "$answer" = 'cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0' ] || exit 90
ask 'cmd=get_my_kvsname'; space=${answer#*kvsname=}
ask "cmd=put kvsname=$space key=rank-$PMI_RANK value=at-$SLURMD_NODENAME"
ask 'cmd=barrier_in'
[ "$1" = deserter ] && [ $PMI_RANK = 1 ] && exit 3
all=
for ((other = 0; other < PMI_SIZE; other++)); do
    ask "cmd=get kvsname=$space key=rank-$other"; all="$all ${answer#*value=}"
done
ask "cmd=get kvsname=$space key=PMI_process_mapping"; mapping=${answer#*value=}
[ "$1" = abort ] && [ $PMI_RANK = 1 ] && { echo 'cmd=abort exitcode=7' >&$PMI_FD; exit 7; }
ask 'cmd=barrier_in'
echo "$PMI_RANK/$PMI_SIZE$all $mapping"
ask 'cmd=finalize'
[ "$answer" = 'cmd=finalize_ack' ]
"#;

fn batch(cluster: &Cluster, options: &[&str], script: &str) -> (String, String) {
    cluster.script("task", TASK);
    cluster.script("job.sh", &format!("#!/bin/sh\n{script}\n"));
    let words = [&["sbatch", "--wait", "-o", "out", "-e", "err"], options, &["job.sh"]].concat();
    let said = cluster.run(&words);
    assert_eq!(said.code, Some(0), "{}", cluster.read("err"));
    (cluster.read("out"), cluster.read("err"))
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn tasks_of_all_nodes_find_each_other() {
    let cluster = Cluster::start(&Setup { nodes: 3, ..Setup::default() });
    let (out, err) = batch(&cluster, &["-N3", "-n4", "-w", "n[1-3]"], "srun bash ./task; echo $?");
    assert_eq!(err, "");
    let rest = "at-n1 at-n1 at-n2 at-n3 (vector,(0,1,2),(1,2,1))";
    let expected: Vec<String> = (0..4).map(|rank| format!("{rank}/4 {rest}")).collect();
    assert_eq!(sorted(&out), [&["0".to_owned()][..], &expected].concat());
}

#[test]
fn the_components_of_a_het_job_are_one_world() {
    let cluster = Cluster::start(&Setup { nodes: 3, cpus: 3, ..Setup::default() });
    cluster.script("task", TASK);
    let show = "echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_NODEID/$SLURM_NNODES $SLURM_LOCALID $SLURM_GTIDS";
    let script = format!(
        "#!/bin/sh
        srun -l --het-group=0,1 bash ./task >all 2>&1; echo $? >>codes
        srun sh -c '{show}' : sh -c '{show}' >numbers 2>&1
        srun -o file.%t bash ./task : bash ./task; echo $? >>codes
        srun bash ./task >first 2>&1; echo $? >>codes
        srun bash ./task deserter : bash ./task deserter 2>deserted; echo $? >>codes
        read x <gate"
    );
    cluster.script("job.sh", &script);
    let mut gate = cluster.gate("gate");
    // Both components have a task on n1.
    let words = ["-N1", "-n1", "-w", "n1", ":", "-N2", "-n3", "-w", "n[1-2]", "job.sh"];
    let job = cluster.sbatch(&words);
    let mut client = cluster.client();
    let tasks = "at-n1 at-n1 at-n1 at-n2 (vector,(0,1,1),(1,1,2),(2,1,1))";
    let all: Vec<String> = (0..4).map(|rank| format!("{rank}/4 {tasks}")).collect();
    // Outside of the job, `--jobid` names it; its components are one world there, too.
    let named = ["srun", &format!("--jobid={job}"), "--het-group=0,1", "--overlap", "bash", "./task"];
    client.wait(job, |job| job.state == "RUNNING");
    assert_eq!(sorted(&cluster.ok(&named)), all);
    gate.open();
    client.wait_for(job, "COMPLETED");
    let labelled: Vec<String> = (0..4).map(|rank| format!("{rank}: {rank}/4 {tasks}")).collect();
    assert_eq!(sorted(&cluster.read("all")), labelled);
    assert_eq!(
        sorted(&cluster.read("numbers")),
        ["0/4 0/3 0 0", "1/4 1/3 0 1,2", "2/4 1/3 1 1,2", "3/4 2/3 0 3"]
    );
    for (rank, line) in all.iter().enumerate() {
        assert_eq!(cluster.read(&format!("file.{rank}")), format!("{line}\n"));
    }
    assert_eq!(cluster.read("first"), "0/1 at-n1 (vector,(0,1,1))\n");
    let deserted = cluster.read("deserted");
    assert!(deserted.contains("task 1: ended without MPI_Finalize (exit code 3)"), "{deserted}");
    assert_eq!(cluster.read("codes").lines().take(3).collect::<Vec<_>>(), ["0"; 3], "{deserted}");
}

#[test]
fn a_fence_outlives_the_daemons() {
    let mut cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    let mut ups = ["up0", "up1"].map(|up| cluster.gate(up));
    let mut gate = cluster.gate("gate");
    cluster.script("task", TASK);
    // The first task reaches the fence after both daemons have been away.
    cluster.script(
        "job.sh",
        "#!/bin/sh\nsrun sh -c 'echo >up$SLURM_PROCID; [ $SLURM_PROCID = 1 ] || read x <gate; bash ./task'\n",
    );
    let job = cluster.sbatch(&["-N2", "-n2", "-o", "out", "job.sh"]);
    ups.iter_mut().for_each(Gate::wait);
    for node in ["n1", "n2"] {
        cluster.kill(node);
        cluster.start_node(node);
    }
    gate.open();
    cluster.client().wait_for(job, "COMPLETED");
    assert_eq!(
        sorted(&cluster.read("out")),
        ["0/2 at-n1 at-n2 (vector,(0,2,1))", "1/2 at-n1 at-n2 (vector,(0,2,1))"]
    );
}

#[test]
fn a_step_ends_when_one_of_its_tasks_deserts_or_aborts() {
    let cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    let (out, err) = batch(
        &cluster,
        &["-N2", "-n2"],
        "srun bash ./task deserter; echo $?\nsrun bash ./task abort; echo $?\nsrun --mpi=none sh -c 'echo $PMI_FD'",
    );
    assert_eq!(sorted(&out), ["", "", "137", "137"], "{err}");
    for said in [
        "srun: error: n2: task 1: ended without MPI_Finalize (exit code 3), and others wait for it; StepId=1.0 is ended",
        "srun: error: n2: task 1: called abort with exit code 7; StepId=1.1 is ended",
    ] {
        assert!(err.lines().any(|line| line == said), "{err}");
    }
}

/// The first task finalizes PMI and ends. The second one still uses PMI then: it publishes a name, which the
/// first node keeps, looks it up, and finalizes. Its later actions do not matter.
const LATE: &str = r#"#!/bin/bash
ask() { printf '%s\n' "$1" >&$PMI_FD; read -r answer <&$PMI_FD; }
ask 'cmd=init pmi_version=1 pmi_subversion=1'
[ $SLURM_PROCID = 0 ] && echo $$ >first
ask 'cmd=barrier_in'
if [ $SLURM_PROCID = 1 ]; then
    tail --pid=$(cat first) -s 0.01 -f /dev/null
    ask 'cmd=publish_name service=s port=p'; echo "$answer"
    ask 'cmd=lookup_name service=s'; echo "$answer"
fi
ask 'cmd=finalize'; echo "$answer"
[ $SLURM_PROCID = 0 ] || read x <gate
"#;

#[test]
fn the_first_node_serves_until_the_others_have_finalized() {
    let cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    let mut gate = cluster.gate("gate");
    cluster.script("late", LATE);
    cluster.script("job.sh", "#!/bin/sh\nsrun bash ./late; echo $?\n");
    let job = cluster.sbatch(&["-N2", "-n2", "-o", "out", "-e", "err", "job.sh"]);
    // As no task needs it any more, the first node ends its part of the step before the other one.
    cluster.wait_for_log("n2", "its first node has ended");
    gate.open();
    cluster.client().wait_for(job, "COMPLETED");
    let lines = "cmd=publish_result rc=0 info=ok\ncmd=lookup_result rc=0 info=ok port=p\n";
    assert_eq!(cluster.read("err"), "");
    let expected = format!("cmd=finalize_ack\n{lines}cmd=finalize_ack\n0\n");
    assert_eq!(cluster.read("out"), expected);
}

#[test]
fn a_fence_that_waits_for_ended_tasks_ends_the_step() {
    let cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    // Both meet once. Then one finalizes and ends, with 0, and the other one waits for it.
    cluster.script(
        "left",
        &TASK.replacen(
            "[ \"$1\" = deserter ]",
            "[ $PMI_RANK = $1 ] && { ask 'cmd=finalize'; exit 0; }; false",
            1,
        ),
    );
    let (out, err) =
        batch(&cluster, &["-N2", "-n2"], "srun bash ./left 0; echo $?\nsrun bash ./left 1; echo $?");
    assert_eq!(out, "137\n137\n", "{err}");
    for said in [
        "srun: error: n1: node n1 takes part no more, and others wait for it; missing in the fence: n1; StepId=1.0 is ended",
        "srun: error: n1: node n2 takes part no more, and others wait for it; missing in the fence: n2; StepId=1.1 is ended",
    ] {
        assert!(err.lines().any(|line| line == said), "{err}");
    }
}

#[test]
fn what_serves_mpi_programs_is_chosen_by_name() {
    let cluster = Cluster::start(&Setup::default());
    let (out, err) = batch(
        &cluster,
        &["-n1"],
        "srun --mpi=list\nsrun --mpi=foo true; echo $?\nSLURM_MPI_TYPE=none srun sh -c 'echo [$PMI_FD]'",
    );
    assert!(out.starts_with("MPI plugin types are...\n") && out.ends_with("1\n[]\n"), "{out}");
    assert_eq!(err, "srun: error: Invalid MPI type 'foo', --mpi=list for acceptable types\n");
}

#[test]
fn the_site_chooses_what_serves_mpi_programs_by_default() {
    let controller = "mpi_default = \"none\"";
    let cluster = Cluster::start(&Setup { controller, ..Setup::default() });
    let shown = cluster.ok(&["scontrol", "show", "config"]);
    assert!(shown.contains("MpiDefault              = none\n"), "{shown}");
    let (out, err) = batch(
        &cluster,
        &["-n1"],
        "task='echo $SLURM_MPI_TYPE ${PMI_FD:+served}'\nsrun sh -c \"$task\"\nsrun --mpi=pmi2 sh -c \"$task\"",
    );
    assert_eq!((&*out, &*err), ("\npmi2 served\n", ""));
}

/// Puts values of 1,000 bytes until that is refused, and prints after how many; then replaces one.
const PUTS: &str = r#"#!/bin/bash
ask() { printf '%s\n' "$1" >&$PMI_FD; read -r answer <&$PMI_FD; }
ask 'cmd=init pmi_version=1 pmi_subversion=1'
value=$(printf %01000d 0)
for ((count = 0; count < 1000; count++)); do
    ask "cmd=put kvsname=k key=k$count value=$value"
    [ "$answer" = 'cmd=put_result rc=0 msg=success' ] || break
done
echo "$count $answer"
ask "cmd=put kvsname=k key=k0 value=$value"; echo "$answer"
ask 'cmd=finalize'
"#;

#[test]
fn what_a_task_puts_is_bounded() {
    let cluster = Cluster::start(&Setup::default());
    cluster.script("puts", PUTS);
    let (out, err) = batch(&cluster, &["-n1"], "srun bash ./puts");
    let refused = "cmd=put_result rc=-1 msg=the_keys_and_values_would_take_more_than_262144_bytes";
    assert_eq!(out, format!("238 {refused}\ncmd=put_result rc=0 msg=success\n"), "{err}");
}

/// Passes a number round all ranks, and exchanges with all.
const RING: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int rank, size, token = 0, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    if (rank == 0) MPI_Send(&token, 1, MPI_INT, next, 0, MPI_COMM_WORLD);
    MPI_Recv(&token, 1, MPI_INT, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    token++;
    if (rank != 0) MPI_Send(&token, 1, MPI_INT, next, 0, MPI_COMM_WORLD);
    int *out = malloc(size * sizeof *out), *in = malloc(size * sizeof *in);
    for (int i = 0; i < size; i++) out[i] = rank + i;
    MPI_Alltoall(out, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) sum += in[i] == rank + i;
    printf("%d/%d %d %d\n", rank, size, token, sum);
    MPI_Finalize();
    return 0;
}
"#;

/// The ring, built by an MPI's own compiler; `None` without that compiler, and the test is skipped.
fn ring(cluster: &Cluster, compiler: &str) -> Option<()> {
    built(cluster, compiler, RING)
}

fn built(cluster: &Cluster, compiler: &str, program: &str) -> Option<()> {
    std::fs::write(cluster.work("ring.c"), program).expect("the directory is ours");
    let built =
        Command::new(compiler).args(["-o", "ring", "ring.c"]).current_dir(cluster.path("work")).status();
    match built {
        Ok(status) => {
            assert!(status.success(), "{compiler} fails");
            Some(())
        }
        Err(_) => {
            eprintln!("SKIPPED: there is no {compiler}");
            None
        }
    }
}

fn whole_ring() -> Vec<String> {
    (0..8).map(|rank| format!("{rank}/8 {} 8", if rank == 0 { 8 } else { rank })).collect()
}

/// The settings that OpenMPI needs here. Root may use it, and several nodes share one host: OpenMPI would
/// take the host's shared memory for theirs. That host has fewer cores than the nodes.
const OPENMPI: &str = "export OMPI_MCA_btl=tcp,self OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1";

/// True if a program is installed; tests of a missing MPI are skipped.
fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: there is no {program}");
    }
    found
}

fn assert_whole_ring(cluster: &Cluster, script: &str) {
    let (out, err) = batch(cluster, &["-N4", "--ntasks-per-node=2"], script);
    assert_eq!(sorted(&out), whole_ring(), "{err}");
}

#[test]
fn mpich_runs_over_four_nodes() {
    let cluster = Cluster::start(&Setup { nodes: 4, ..Setup::default() });
    let Some(()) = ring(&cluster, "mpicc.mpich") else { return };
    assert_whole_ring(&cluster, "srun ./ring");
    if is_there("mpiexec.hydra") {
        assert_whole_ring(&cluster, "mpiexec.hydra ./ring");
        assert_whole_ring(&cluster, "mpiexec.hydra -bootstrap slurm -n 8 ./ring");
    }
}

#[test]
fn openmpi_runs_over_four_nodes() {
    let cluster = Cluster::start(&Setup { nodes: 4, ..Setup::default() });
    let Some(()) = ring(&cluster, "mpicc.openmpi") else { return };
    assert_whole_ring(&cluster, &format!("{OPENMPI}\nsrun --mpi=pmix ./ring"));
    if is_there("mpirun.openmpi") {
        assert_whole_ring(&cluster, &format!("{OPENMPI}\nmpirun.openmpi ./ring"));
    }
}

/// The tasks of the first node end before those of the others.
fn assert_late_end(compiler: &str, script: &str) {
    let cluster = Cluster::start(&Setup { nodes: 4, ..Setup::default() });
    let Some(()) = ring(&cluster, compiler) else { return };
    let mut gates = ["go1", "go2", "go3"].map(|gate| cluster.gate(gate));
    cluster.script("task", "#!/bin/sh\n./ring || exit\n[ $SLURM_PROCID = 0 ] || read x <go$SLURM_PROCID\n");
    cluster.script("job.sh", &format!("#!/bin/sh\n{script} sh ./task; echo $?\n"));
    let job = cluster.sbatch(&["-N4", "-n4", "-o", "out", "-e", "err", "job.sh"]);
    for (gate, node) in gates.iter_mut().zip(["n2", "n3", "n4"]) {
        cluster.wait_for_log(node, "its first node has ended");
        gate.open();
    }
    cluster.client().wait_for(job, "COMPLETED");
    assert_eq!(cluster.read("err"), "");
    assert_eq!(sorted(&cluster.read("out")), ["0", "0/4 4 4", "1/4 1 4", "2/4 2 4", "3/4 3 4"]);
}

#[test]
fn mpich_tasks_may_end_after_those_of_the_first_node() {
    assert_late_end("mpicc.mpich", "srun");
}

#[test]
fn openmpi_tasks_may_end_after_those_of_the_first_node() {
    assert_late_end("mpicc.openmpi", &format!("{OPENMPI}\nsrun --mpi=pmix"));
}

/// OpenMPI 5, which starts its daemons in another way, comes with the packages of Python.
#[test]
fn openmpi_5_runs_over_four_nodes() {
    let Some(programs) = programs() else { return };
    let cluster = Cluster::start(&Setup { nodes: 4, ..Setup::default() });
    let program = |name: &str| programs.join(name).display().to_string();
    let Some(()) = ring(&cluster, &program("mpicc")) else { return };
    assert_whole_ring(&cluster, &format!("{OPENMPI}\nsrun --mpi=pmix ./ring"));
    assert_whole_ring(&cluster, &format!("{OPENMPI}\n{} --bind-to none ./ring", program("mpirun")));
}

/// Each task computes a part of an integral.
const PI: &str = "
from mpi4py import MPI

world, steps = MPI.COMM_WORLD, 100_000
middles = ((step + 0.5) / steps for step in range(world.rank, steps, world.size))
pi = world.reduce(sum(4 / (1 + x * x) for x in middles) / steps)
if world.rank == 0:
    print(world.size, round(pi, 6))
";

#[test]
fn mpi4py_finds_pi_over_four_nodes() {
    let Some(programs) = programs() else { return };
    let cluster = Cluster::start(&Setup { nodes: 4, ..Setup::default() });
    std::fs::write(cluster.work("pi.py"), PI).expect("the directory is ours");
    let [python, mpirun] = ["python", "mpirun"].map(|name| programs.join(name).display().to_string());
    let script = format!("{OPENMPI}\nsrun --mpi=pmix {python} pi.py\n{mpirun} --bind-to none {python} pi.py");
    let (out, err) = batch(&cluster, &["-N4", "--ntasks-per-node=2"], &script);
    assert_eq!(out, "8 3.141593\n".repeat(2), "{err}");
}

const END_BADLY: &str = r#"
#include <mpi.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1 && argv[1][0] == 'a') MPI_Abort(MPI_COMM_WORLD, 7);
    if (rank == 1) _exit(3);
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Finalize();
}
"#;

#[test]
fn a_pmix_step_ends_when_one_of_its_tasks_deserts_or_aborts() {
    let cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    let Some(()) = built(&cluster, "mpicc.openmpi", END_BADLY) else { return };
    let script = format!("{OPENMPI}\nsrun --mpi=pmix ./ring a; echo $?\nsrun --mpi=pmix ./ring d; echo $?");
    let (out, err) = batch(&cluster, &["-N2", "-n2"], &script);
    assert_eq!(out, "137\n137\n", "{err}");
    for said in [
        "srun: error: n2: task 1: called abort with exit code 7; StepId=1.0 is ended",
        "srun: error: n2: task 1: ended without MPI_Finalize (exit code 3), and others wait for it; StepId=1.1 is ended",
    ] {
        assert!(err.lines().any(|line| line == said), "{err}");
    }
}
