//! Nodes that are reserved for some time.

use std::process::Command;

use crate::cluster::{Cluster, Setup};

#[test]
fn a_reservation_outlives_the_controller_and_keeps_others_out() {
    let mut cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    let mut client = cluster.client();
    let me = Command::new("id").arg("-un").output().unwrap().stdout;
    let users = format!("Users={}", String::from_utf8(me).unwrap().trim());
    let create = ["scontrol", "create", "reservation", "StartTime=now", "Duration=60", "Nodes=n1"];
    let said = cluster.fails(&create);
    assert!(said.contains("Users and/or Accounts must be given"), "{said}");
    let made = [&create[..], &["ReservationName=mine", &users, "Flags=MAINT"]].concat();
    assert_eq!(cluster.ok(&made), "Reservation created: mine\n");

    let mut gate = cluster.gate("gate");
    let other = cluster.sbatch(&["-N2", "-t", "5", "--wrap", "true"]);
    client.wait(other, |job| job.reason == "ReqNodeNotAvail, Reserved for maintenance");
    let seen = |cluster: &Cluster| {
        let shown = cluster.ok(&["scontrol", "-o", "show", "reservation", "mine"]);
        assert!(shown.contains("Nodes=n1 NodeCnt=1") && shown.contains("State=ACTIVE"), "{shown}");
        assert_eq!(cluster.ok(&["sinfo", "-h", "-n", "n1", "-o", "%N %t"]), "n1 maint\n");
    };
    seen(&cluster);
    cluster.kill("spurctld");
    cluster.start_controller();
    seen(&cluster);

    let mine = cluster.sbatch(&[
        "--reservation=mine",
        "--wrap",
        "echo $SLURM_JOB_RESERVATION; read x <gate",
        "-o",
        "mine.txt",
    ]);
    assert_eq!(client.wait_for(mine, "RUNNING").nodes, "n1");
    assert_eq!(cluster.ok(&["squeue", "-h", "-R", "mine", "-o", "%i %v %t"]), format!("{mine} mine R\n"));
    assert_eq!(client.job(other).state, "PENDING");
    let said = cluster.fails(&["scontrol", "delete", "ReservationName=mine"]);
    assert!(said.contains("Requested reservation is in use"), "{said}");
    gate.open();
    client.wait_for(mine, "COMPLETED");
    assert_eq!(cluster.read("mine.txt"), "mine\n");

    cluster.ok(&["scontrol", "delete", "ReservationName=mine"]);
    client.wait_for(other, "COMPLETED");
    assert_eq!(cluster.ok(&["sinfo", "-T"]), "No reservations in the system\n");
}
