//! The policy tree: it is built with `sacctmgr`, survives crashes, and is enforced when jobs are submitted.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::cluster::{Cluster, Setup, said};

const ENFORCED: &str = "accounting_storage_enforce = [\"associations\", \"qos\"]\n";

/// The login name of the user who runs the tests.
pub(crate) fn me() -> String {
    let said = std::process::Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}

fn change(cluster: &Cluster, words: &str) -> String {
    let words: Vec<&str> = words.split_whitespace().collect();
    cluster.ok(&[&["sacctmgr", "-i"], words.as_slice()].concat())
}

fn refused(cluster: &Cluster, words: &str) -> String {
    let words: Vec<&str> = words.split_whitespace().collect();
    cluster.fails(&[&["sacctmgr", "-i"], words.as_slice()].concat())
}

fn tree(cluster: &Cluster) -> String {
    cluster.ok(&[
        "sacctmgr",
        "-nP",
        "show",
        "assoc",
        "tree",
        "format=account,user,share,maxjobs,grptres,qos,defaultqos",
    ])
}

#[test]
fn a_tree_outlives_its_controller() {
    let mut cluster = Cluster::start(&Setup::default());
    change(&cluster, "add account sci Description=science Organization=uni GrpTRES=cpu=100,mem=10G");
    change(&cluster, "add account chem,phys parent=sci fairshare=10 maxjobs=7");
    change(&cluster, "add qos high priority=10 flags=DenyOnLimit maxtrespu=cpu=8");
    change(&cluster, "add user alice,bob account=chem,phys qos+=high");
    change(&cluster, "modify user bob account=phys set fairshare=parent maxjobs=2 defaultqos=high");
    change(&cluster, "add coordinator account=sci names=alice");
    assert!(refused(&cluster, "add account chem").contains("Nothing new added."));
    let wanted = "root||1||||".to_owned()
        + "\n root|root|1|||normal|\n sci||1||cpu=100,mem=10G|normal|\n  chem||10|7||normal|\n   chem|alice|1|7||high,normal|"
        + "\n   chem|bob|1|7||high,normal|\n  phys||10|7||normal|\n   phys|alice|1|7||high,normal|"
        + "\n   phys|bob|parent|2||high,normal|high\n";
    let wanted = wanted.replacen("root||1||||", "root||1|||normal|", 1);
    assert_eq!(tree(&cluster), wanted);
    let dumped = |cluster: &Cluster, name: &str| {
        let file = cluster.path(name);
        cluster.ok(&["sacctmgr", "dump", "e2e", &format!("file={}", file.display()), "withqos"]);
        fs::read_to_string(file).unwrap()
    };
    let before = dumped(&cluster, "before.cfg");
    cluster.kill("spurctld");
    cluster.start_controller();
    assert_eq!(tree(&cluster), wanted);
    assert_eq!(dumped(&cluster, "again.cfg"), before);
    let users = cluster.ok(&[
        "sacctmgr",
        "-nP",
        "show",
        "user",
        "withcoord",
        "format=user,defaultaccount,admin,coord",
    ]);
    assert_eq!(users, "alice|chem|None|chem,phys,sci\nbob|chem|None|\nroot|root|Administrator|\n");

    // A file creates the same tree from nothing; a second run changes nothing.
    change(&cluster, "delete account sci");
    change(&cluster, "delete user alice,bob");
    change(&cluster, "delete qos high");
    assert_eq!(tree(&cluster), "root||1|||normal|\n root|root|1|||normal|\n");
    let names = cluster.ok(&["sacctmgr", "-nP", "show", "account", "withdeleted", "format=account"]);
    assert_eq!(names, "chem\nphys\nroot\nsci\n");
    let file = cluster.path("before.cfg").display().to_string();
    cluster.ok(&["sacctmgr", "-i", "load", &format!("file={file}")]);
    assert_eq!(tree(&cluster), wanted);
    assert!(cluster.ok(&["sacctmgr", "-i", "load", &file]).contains("Nothing new added."));
    change(&cluster, "add account bio");
    change(&cluster, "modify account phys set grpjobs=3");
    cluster.ok(&["sacctmgr", "-i", "load", &file, "clean"]);
    assert_eq!(dumped(&cluster, "again.cfg"), before);
}

#[test]
fn a_change_is_made_as_it_was_shown() {
    let cluster = Cluster::start(&Setup::default());
    let answer = |words: &[&str], answer: &str| {
        let mut command = cluster.command(words);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
        said(child.wait_with_output().unwrap())
    };
    let add = ["sacctmgr", "add", "account", "chem"];
    let no = answer(&add, "n\n");
    assert_eq!(no.code, Some(0), "{no:?}");
    assert!(no.out.ends_with("(N/y): \n Changes Discarded\n"), "{no:?}");
    assert!(answer(&add, "").out.ends_with(" Changes Discarded\n"), "the end of input is no answer");
    let yes = answer(&add, "what\ny\n");
    assert_eq!(yes.code, Some(0), "{yes:?}");
    assert!(
        yes.out.starts_with(" Adding Account(s)\n  chem\n") && yes.out.contains("Y or N please"),
        "{yes:?}"
    );
    assert_eq!(cluster.ok(&["sacctmgr", "-nP", "show", "account", "format=account"]), "chem\nroot\n");
    assert!(cluster.fails(&["sacctmgr", "-r", "add", "account", "x"]).contains("readonly"));
    let many: Vec<&str> = vec!["sacctmgr", "-i", "add", "user", "u[1-2500]", "account=chem"];
    cluster.ok(&many);
    assert_eq!(cluster.ok(&["sacctmgr", "-n", "show", "user", "format=user"]).lines().count(), 2501);
    assert!(cluster.fails(&many).contains("Nothing new added."));
}

#[test]
fn jobs_need_an_association_where_that_is_enforced() {
    let user = me();
    let mut cluster = Cluster::start(&Setup { controller: ENFORCED, ..Setup::default() });
    let mut client = cluster.client();
    change(&cluster, "add account chem,phys");
    change(&cluster, "add qos high");
    let account = ["sbatch", "--parsable", "-A", "phys", "--wrap", "true"];
    let without = cluster.fails(&account);
    let says = "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified";
    assert!(without.starts_with(says), "{without}");
    change(&cluster, &format!("add user {user} account=chem"));
    change(&cluster, &format!("modify user {user} set defaultaccount=chem"));
    assert!(cluster.fails(&account).starts_with(says));
    let high = cluster.fails(&["sbatch", "-q", "high", "--wrap", "true"]);
    assert!(high.contains("Invalid qos specification: 'high' is not open to user"), "{high}");
    let mut gate = cluster.gate("gate");
    let runs = cluster.sbatch(&["--wrap", "read x <gate"]);
    client.wait_for(runs, "RUNNING");
    let shown = cluster.ok(&["squeue", "-h", "-o", "%a %q"]);
    assert_eq!(shown, "chem normal\n");
    let active = refused(&cluster, "delete account chem");
    assert!(active.contains("Job(s) active, cancel job(s) before remove\n  JobID = "), "{active}");
    assert!(refused(&cluster, &format!("delete user {user} account=chem")).contains("Job(s) active"));
    cluster.kill("spurctld");
    cluster.start_controller();
    assert!(cluster.fails(&account).starts_with(says));
    gate.open();
    client.wait_for(runs, "COMPLETED");
    change(&cluster, &format!("delete user {user} account=chem"));
    assert!(cluster.fails(&["sbatch", "-A", "chem", "--wrap", "true"]).starts_with(says));
    let rows = cluster.rows(&["sacct", "-n", "-P", "-X", "-o", "jobid,account", "-A", "chem"]);
    assert_eq!(rows, [format!("{runs}|chem")]);
}

/// Jobs from before associations were enforced wait, with the reason, until they have one.
#[test]
fn a_job_without_an_association_waits() {
    let user = me();
    let cluster = Cluster::start(&Setup::default());
    let mut client = cluster.client();
    let mut gate = cluster.gate("gate");
    let runs = cluster.sbatch(&["-A", "old", "--exclusive", "--wrap", "read x <gate"]);
    client.wait_for(runs, "RUNNING");
    let waits = cluster.sbatch(&["-A", "old", "--wrap", "true"]);
    client.wait(waits, |job| job.reason == "Resources");
    cluster.configure("controller", ENFORCED);
    cluster.ok(&["scontrol", "reconfigure"]);
    client.wait(waits, |job| job.reason == "InvalidAccount");
    gate.open();
    client.wait_for(runs, "COMPLETED");
    assert_eq!(client.job(waits).reason, "InvalidAccount");
    change(&cluster, "add account old");
    change(&cluster, &format!("add user {user} account=old"));
    client.wait_for(waits, "COMPLETED");
}

#[test]
fn jobs_have_wckeys_where_these_are_tracked() {
    let user = me();
    let mut cluster = Cluster::start(&Setup { controller: "track_wckey = true\n", ..Setup::default() });
    let mut client = cluster.client();
    let run = |cluster: &Cluster, wckey: &[&str]| cluster.sbatch(&[wckey, &["--wrap", "true"]].concat());
    let bare = run(&cluster, &[]);
    change(&cluster, &format!("add user {user} account=root wckeys=course,thesis"));
    let default = run(&cluster, &[]);
    let other = run(&cluster, &["--wckey=Other"]);
    let held = cluster.sbatch(&["-H", "-A", "root", "--wckey=THESIS", "--wrap", "true"]);
    cluster.configure("controller", "accounting_storage_enforce = [\"wckeys\"]\n");
    cluster.ok(&["scontrol", "reconfigure"]);
    let refused = cluster.fails(&["sbatch", "--wckey=other", "--wrap", "true"]);
    let says =
        "sbatch: error: Batch job submission failed: Invalid wckey specification: 'other'; wckeys of user";
    assert!(refused.starts_with(says), "{refused}");
    let job = format!("JobId={held}");
    let refused = cluster.fails(&["scontrol", "update", &job, "WCKey=other"]);
    assert!(refused.contains("Invalid wckey specification"), "{refused}");
    let shown = |cluster: &Cluster| cluster.ok(&["squeue", "-h", "-o", "%w", "-j", &held.to_string()]);
    assert_eq!(shown(&cluster), "thesis\n");
    cluster.ok(&["scontrol", "update", &job, "WCKey="]);
    assert_eq!(shown(&cluster), "*course\n");

    // The keys outlive the controller and a user who loses the default has the next one.
    change(&cluster, &format!("delete user {user} wckey=course"));
    cluster.kill("spurctld");
    cluster.start_controller();
    assert_eq!(
        cluster.ok(&["sacctmgr", "-nP", "list", "wckeys", "format=wckey,user"]),
        format!("thesis|{user}\n")
    );
    let users = cluster.ok(&["sacctmgr", "-nP", "list", "user", &user]);
    assert!(users.contains("|thesis|"), "{users}");
    cluster.ok(&["scontrol", "release", &held.to_string()]);
    for job in [bare, default, other, held] {
        client.wait_for(job, "COMPLETED");
    }
    let rows = cluster.rows(&["sacct", "-nXP", "-o", "jobid,wckey"]);
    let wanted = [(bare, "*"), (default, "*course"), (other, "other"), (held, "*course")];
    assert_eq!(rows, wanted.map(|(job, wckey)| format!("{job}|{wckey}")));
    assert_eq!(cluster.rows(&["sacct", "-nXP", "-W", "other", "-o", "jobid"]), [other.to_string()]);
}

#[test]
fn comments_of_jobs_are_set_after_their_end_and_kept() {
    let mut cluster = Cluster::start(&Setup::default());
    let mut client = cluster.client();
    let job = cluster.sbatch(&["--wrap", "exit 3"]);
    client.wait_for(job, "FAILED");
    let said =
        change(&cluster, &format!("modify job where jobid={job} set comment=mine derivedexitcode=256"));
    assert!(said.starts_with(&format!(" Modified jobs...\n  {job} submitted at 20")), "{said}");
    change(&cluster, &format!("modify job jobid={job} set admincomment=checked"));
    let row = |cluster: &Cluster| {
        let fields = "comment,admincomment,derivedexitcode,exitcode";
        cluster.ok(&["sacct", "-nXP", "-j", &job.to_string(), "-o", fields])
    };
    assert_eq!(row(&cluster), "mine|checked|1:0|3:0\n");
    assert!(refused(&cluster, "modify job jobid=99999 set comment=x").contains(" Nothing modified"));
    cluster.kill("spurctld");
    cluster.start_controller();
    assert_eq!(row(&cluster), "mine|checked|1:0|3:0\n");
}
