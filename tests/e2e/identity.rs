//! One node is one daemon: two that claim to be the same node never take turns.

use rustix::process::Signal;

use crate::cluster::{Cluster, Setup};

/// The name of this host.
fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

#[test]
fn a_clone_of_a_node_is_refused_and_the_node_goes_on() {
    let mut cluster = Cluster::start(&Setup::default());
    let (mut started, mut go) = (cluster.gate("started"), cluster.gate("go"));
    let job = cluster.sbatch(&["-o", "out", "--wrap", "echo x >started; read x <go; echo end"]);
    started.wait();
    cluster.start_clone("n1", "clone");
    cluster.wait_for_log("clone", "node n1 is one daemon");
    let host = host();
    let told = cluster.log("clone");
    assert!(told.contains(&format!("on host {host} (127.0.0.1), its service at 127.0.0.1:")), "{told}");
    assert!(told.contains("which answers"), "{told}");
    go.open();
    let ended = cluster.client().wait_for(job, "COMPLETED");
    assert_eq!(ended.restarts, 0, "{ended:?}");
    assert_eq!(cluster.read("out"), "end\n");
    assert_eq!(cluster.log("n1").matches("registered as n1").count(), 1, "{}", cluster.log("n1"));
    // A daemon that ends frees the name.
    cluster.stop("n1");
    cluster.wait_for_log("clone", "registered as n1");
    cluster.ok(&["sbatch", "--wait", "--wrap", "true"]);
}

#[test]
fn another_spool_takes_a_name_over_only_from_a_daemon_that_does_not_answer() {
    let mut cluster = Cluster::start(&Setup::default());
    cluster.ok(&["sbatch", "--wait", "--wrap", "true"]);
    std::fs::create_dir(cluster.path("spool").join("empty")).unwrap();
    std::fs::rename(cluster.path("spool").join("n1"), cluster.path("spool").join("moved")).unwrap();
    std::fs::rename(cluster.path("spool").join("empty"), cluster.path("spool").join("n1")).unwrap();
    cluster.start_clone("n1", "other");
    cluster.wait_for_log("other", "node n1 is one daemon");
    // Silence at the other end of an open connection is not an answer.
    cluster.signal("n1", Signal::STOP);
    cluster.wait_for_log("other", "registered as n1");
    cluster.ok(&["sbatch", "--wait", "--wrap", "true"]);
    let shown = cluster.ok(&["scontrol", "show", "node", "n1"]);
    let host = host();
    assert!(shown.contains(&format!("TakenOverFrom={host}(127.0.0.1)@")), "{shown}");
    cluster.signal("n1", Signal::CONT);
    cluster.wait_for_log("n1", "node n1 is one daemon");
}

#[test]
fn a_clone_on_another_host_says_nothing_of_what_runs_on_the_first() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: another name for the host takes root");
        return;
    }
    let mut cluster = Cluster::start(&Setup { more: "[recovery]\noverlap = false\n", ..Setup::default() });
    let (mut started, mut go) = (cluster.gate("started"), cluster.gate("go"));
    let job = cluster.sbatch(&["-o", "out", "--wrap", "echo x >started; read x <go; echo end"]);
    started.wait();
    // By its copy of the spool, the job has ended.
    cluster.signal("n1", Signal::STOP);
    cluster.start_clone_elsewhere("n1", "clone");
    cluster.wait_for_log("clone", &format!("job {job} may still run"));
    cluster.signal("n1", Signal::CONT);
    go.open();
    let ended = cluster.client().wait_for(job, "COMPLETED");
    assert_eq!((ended.restarts, cluster.read("out").as_str()), (0, "end\n"));
    cluster.kill("n1");
    cluster.wait_for_log("clone", "registered as n1");

    // An operator may know that a host is dead.
    let lost = cluster.sbatch(&["--no-requeue", "--wrap", "echo x >started; read x <go"]);
    started.wait();
    cluster.stop("clone");
    cluster.start_node("n1");
    cluster.wait_for_log("n1", &format!("job {lost} may still run"));
    cluster.ok(&["scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=burnt"]);
    cluster.client().wait_for(lost, "NODE_FAIL");
    cluster.wait_until(|cluster| cluster.log("n1").matches("registered as n1").count() == 2);
}
