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

#[test]
fn licenses_that_are_reserved_are_for_the_jobs_of_the_reservation() {
    let more = "[licenses]\nmatlab = 3\n";
    let mut cluster = Cluster::start(&Setup { nodes: 2, more, ..Setup::default() });
    let mut client = cluster.client();
    let me = Command::new("id").arg("-un").output().unwrap().stdout;
    let users = format!("Users={}", String::from_utf8(me).unwrap().trim());
    let create =
        ["scontrol", "create", "reservation", "ReservationName=l", "StartTime=now", "Duration=60", &users];
    let said = cluster.fails(&[&create[..], &["Licenses=matlab:2"]].concat());
    assert!(
        said.contains("Invalid node name specified: Licenses alone are reserved with Flags=LICENSE_ONLY"),
        "{said}"
    );
    let said = cluster.fails(&[&create[..], &["Licenses=matlab:4", "Flags=LICENSE_ONLY"]].concat());
    assert!(
        said.contains("Invalid license specification: Licenses=matlab:4: there are 3; ask matlab:3"),
        "{said}"
    );
    let made = [&create[..], &["Licenses=matlab:2", "Flags=LICENSE_ONLY"]].concat();
    assert_eq!(cluster.ok(&made), "Reservation created: l\n");

    let mut gate = cluster.gate("gate");
    let other = cluster.sbatch(&["-L", "matlab:2", "-t", "5", "--wrap", "true"]);
    client.wait(other, |job| job.reason == "Licenses");
    let mine = cluster.sbatch(&["-L", "matlab:2", "--reservation=l", "-w", "n2", "--wrap", "read x <gate"]);
    client.wait_for(mine, "RUNNING");
    let beside = cluster.sbatch(&["-L", "matlab", "-t", "5", "--wrap", "true"]);
    client.wait_for(beside, "COMPLETED");
    let seen = |cluster: &Cluster| {
        let shown = cluster.ok(&["scontrol", "-o", "show", "reservation", "l"]);
        assert!(shown.contains(" Nodes=(null) NodeCnt=0 CoreCnt=0 "), "{shown}");
        assert!(
            shown.contains("Flags=ANY_NODES TRES=(null) ") && shown.contains("Licenses=matlab:2 "),
            "{shown}"
        );
        let shown = cluster.ok(&["scontrol", "-o", "show", "licenses"]);
        assert_eq!(shown, "LicenseName=matlab Total=3 Used=2 Free=1 Reserved=2 Remote=no\n");
    };
    seen(&cluster);
    cluster.kill("spurctld");
    cluster.start_controller();
    seen(&cluster);
    assert_eq!(client.job(other).state, "PENDING");
    let said = cluster.fails(&["scontrol", "update", "ReservationName=l", "Licenses+=matlab"]);
    assert!(said.contains("The +=/-= notation is not supported when updating licenses"), "{said}");
    cluster.ok(&["scontrol", "update", "ReservationName=l", "Licenses=matlab"]);
    assert_eq!(client.job(other).state, "PENDING");
    gate.open();
    client.wait_for(mine, "COMPLETED");
    client.wait_for(other, "COMPLETED");
}
