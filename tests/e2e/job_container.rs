//! Directories that each job has to itself.

use std::fs;
use std::path::Path;

use crate::cluster::{Cluster, Setup};

/// A cluster whose jobs have `/var/tmp` and `/dev/shm` to themselves; `None` where spurd is not root.
fn cluster() -> Option<Cluster> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can give jobs directories of their own");
        return None;
    }
    let mut cluster = Cluster::prepare(&Setup::default());
    let lines = format!(
        "job_container_base_path = \"{}\"\njob_container_dirs = [\"/var/tmp\", \"/dev/shm\"]\n",
        cluster.path("containers").display()
    );
    cluster.configure("agent", &lines);
    cluster.start_controller();
    cluster.start_node("n1");
    cluster.wait_for_log("n1", "registered as n1");
    Some(cluster)
}

/// Number of private directories left on the node.
fn left(cluster: &Cluster) -> usize {
    fs::read_dir(cluster.path("containers/n1")).unwrap().count()
}

#[test]
fn a_job_has_directories_of_its_own_which_go_with_it() {
    let Some(mut cluster) = cluster() else { return };
    // The name belongs to this test alone, in case something appears on the host after all.
    let name = format!("spur-e2e-{}", std::process::id());
    let [disk, memory] = ["/var/tmp", "/dev/shm"].map(|directory| format!("{directory}/{name}"));
    let (mut written, mut gate) = (cluster.gate("written"), cluster.gate("gate"));
    let script = format!(
        "echo disk >{disk}; echo memory >{memory}; srun -n 2 sh -c 'cat {disk} {memory}' | sort >steps; \
         echo done >written; read x <gate; srun -n 1 cat {disk} {memory} >later; stat -f -c %T /var/tmp /dev/shm >kinds"
    );
    let first = cluster.sbatch(&["-n", "2", "-o", "out", "--wrap", &script]);
    written.wait();
    assert_eq!(cluster.read("steps"), "disk\ndisk\nmemory\nmemory\n");
    assert!(!Path::new(&disk).exists() && !Path::new(&memory).exists(), "the host has its own");
    let look = format!("ls -A /var/tmp /dev/shm; echo second >{disk}");
    let second = cluster.sbatch(&["-W", "-n", "1", "-o", "second", "--wrap", &look]);
    assert_eq!(cluster.read("second"), "/dev/shm:\n\n/var/tmp:\n", "job {second} has nothing of job {first}");
    cluster.wait_until(|cluster| left(cluster) == 1);
    // The next daemon knows to which jobs they belong.
    cluster.kill("n1");
    cluster.start_node("n1");
    gate.open();
    cluster.wait_until(|cluster| left(cluster) == 0);
    assert_eq!(cluster.read("later"), "disk\nmemory\n");
    assert!(cluster.read("kinds").ends_with("tmpfs\n"), "{}", cluster.read("kinds"));
}

#[test]
fn output_in_a_jobs_own_directory_can_be_followed() {
    let Some(cluster) = cluster() else { return };
    let (mut written, mut gate) = (cluster.gate("written"), cluster.gate("gate"));
    let wrap = "echo from inside; echo done >written; read x <gate";
    let job = cluster.sbatch(&["-o", "/var/tmp/spur-e2e-out", "--wrap", wrap]);
    written.wait();
    assert_eq!(cluster.ok(&["spur", "logs", &job.to_string()]), "from inside\n");
    gate.open();
    cluster.wait_until(|cluster| left(cluster) == 0);
}

#[test]
fn what_a_job_has_left_while_no_daemon_ran_goes_with_the_next() {
    let Some(mut cluster) = cluster() else { return };
    let base = cluster.path("containers/n1");
    cluster.kill("n1");
    fs::create_dir_all(base.join("77.0/0/deep")).unwrap();
    cluster.start_node("n1");
    cluster.wait_until(|cluster| left(cluster) == 0);
}
