//! Commands that jobs do not need: those of administrators and programs, and the messages for users who have
//! to wait.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::cluster::{Cluster, Setup, said};

#[test]
fn accounts_are_known_in_small_letters() {
    let cluster = Cluster::start(&Setup::default());
    let job = cluster.sbatch(&["-H", "-A", "Proj", "--wrap", "true"]);
    for account in ["proj", "PROJ"] {
        assert_eq!(cluster.ok(&["squeue", "-h", "-A", account, "-o", "%i %a"]), format!("{job} proj\n"));
        let held = job.to_string();
        let rows = cluster.ok(&["sacct", "-nXP", "-A", account, "-o", "jobid,account", "-j", &held]);
        assert_eq!(rows, format!("{job}|proj\n"));
    }
}

#[test]
fn whoever_waits_for_the_controller_is_told_so_before_it_is_there() {
    let mut cluster = Cluster::start(&Setup { nodes: 1, ..Setup::default() });
    let job = cluster.sbatch(&["-H", "--wrap", "true"]);
    cluster.kill("spurctld");
    for words in [&["squeue", "-h", "-o", "%i"][..], &["srun", "-V"][..1]] {
        let mut command = cluster.command(words);
        if words[0] == "srun" {
            command.arg("true");
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        let begin = if words[0] == "squeue" { "slurm_load_jobs error" } else { "srun: error" };
        let begin = format!("{begin}: Unable to contact slurm controller (connect failure) at ");
        assert!(line.starts_with(&begin) && line.ends_with("; trying again\n"), "{line}");
        if words[0] == "srun" {
            child.kill().unwrap();
            child.wait().unwrap();
            continue;
        }
        // The command goes on waiting, and gets its answer.
        cluster.start_controller();
        let told = said(child.wait_with_output().unwrap());
        assert_eq!((told.code, told.out), (Some(0), format!("{job}\n")));
        cluster.kill("spurctld");
    }
}

#[test]
fn scontrol_reads_commands_line_by_line() {
    let cluster = Cluster::start(&Setup { nodes: 1, ..Setup::default() });
    let job = cluster.sbatch(&["-H", "--wrap", "true"]);
    let mut command = cluster.command(&["scontrol"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = format!(
        "update JobId={job} Comment=\"two words\" MailUser=joe MailType=end AdminComment=seen WorkDir=/tmp\n\
         oneliner\nshow job {job}\nshow node n9\n!!\nquit\nshow partition\n"
    );
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let told = said(child.wait_with_output().unwrap());
    let shown = told.out.lines().find(|line| line.starts_with("JobId=")).unwrap();
    for part in ["Comment=two words", "AdminComment=seen", "WorkDir=/tmp", "MailUser=joe", "MailType=END"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(told.out.matches("Node n9 not found").count(), 2, "{}", told.out);
    assert!(!told.out.contains("PartitionName="), "{}", told.out);
    assert_eq!(told.code, Some(1));
}

#[test]
fn mail_tells_of_time_and_of_what_never_comes_true() {
    let mut cluster = Cluster::prepare(&Setup::default());
    let (program, mailbox) = (cluster.path("mail"), cluster.path("box"));
    let script = format!(
        "echo \"$2 to $3: $SLURM_JOB_MAIL_TYPE on ${{SLURM_JOB_NODELIST-none}}\" >>{}\n",
        mailbox.display()
    );
    spur_tests::write_program(&program, &script);
    cluster.configure("controller", &format!("mail_prog = \"{}\"\n", program.display()));
    cluster.start_controller();
    cluster.start_node("n1");
    cluster.wait_for_log("n1", "registered as n1");
    let types = "--mail-type=TIME_LIMIT_50,TIME_LIMIT,FAIL";
    let long = cluster.sbatch(&[types, "--mail-user=joe", "-J", "long", "-t", "0:02", "--wrap", "sleep 600"]);
    let failed = cluster.sbatch(&["--wrap", "false"]);
    let after = format!("afterok:{failed}");
    let late = cluster.sbatch(&[
        "-d",
        &after,
        "-J",
        "late",
        "--mail-type=INVALID_DEPEND",
        "--mail-user=ann",
        "--wrap",
        "true",
    ]);
    let expected = [
        format!("Slurm Job_id={long} Name=long Reached 50% of time limit, Run time 00:00:0"),
        format!("Slurm Job_id={long} Name=long Reached time limit, Run time 00:00:0"),
        format!("Slurm Job_id={long} Name=long Failed, Run time 00:00:0"),
        format!("Slurm Job_id={late} Name=late Invalid dependency to ann: Invalid dependency on none\n"),
    ];
    cluster.wait_until(|_| {
        let mail = fs::read_to_string(&mailbox).unwrap_or_default();
        expected.iter().all(|line| mail.contains(line))
    });
    let mail = fs::read_to_string(&mailbox).unwrap();
    assert_eq!(mail.lines().count(), expected.len(), "{mail}");
    assert!(mail.contains(" to joe: Reached 50% of time limit on n1\n"), "{mail}");
}

#[test]
fn operators_put_jobs_first_and_change_when_they_end() {
    let more = "[scheduler]\norder = \"multifactor\"\npriority_weight_age = 1000\n";
    let cluster = Cluster::start(&Setup { nodes: 1, cpus: 1, more, ..Setup::default() });
    let mut client = cluster.client();
    let runs = cluster.sbatch(&["--wrap", "sleep 600"]);
    client.wait_for(runs, "RUNNING");
    assert!(cluster.run(&["scontrol", "wait_job", &runs.to_string()]).err.contains("Nodes are ready"));
    let waits: Vec<String> = (0..3).map(|_| cluster.sbatch(&["--wrap", "true"]).to_string()).collect();
    cluster.ok(&["scontrol", "top", &waits[2]]);
    let order = cluster.ok(&["squeue", "-h", "-t", "PD", "-S", "-p", "-o", "%i"]);
    assert_eq!(order.lines().next(), Some(waits[2].as_str()));
    assert!(cluster.fails(&["scontrol", "wait_job", &waits[0]]).contains("no longer running"));
    assert!(cluster.fails(&["scontrol", "top", &runs.to_string()]).contains("no longer pending"));
    cluster.ok(&["scontrol", "update", &format!("JobId={runs}"), "EndTime=now+2hours"]);
    let limit = client.job(runs).time_limit.unwrap();
    assert!((7_190..=7_300).contains(&limit), "{limit}");
    assert!(
        cluster
            .fails(&["scontrol", "update", &format!("JobId={}", waits[0]), "EndTime=now+1hour"])
            .contains("Job is not running")
    );
    cluster.ok(&["scancel", &runs.to_string()]);
    client.wait_for(waits[1].parse().unwrap(), "COMPLETED");
}

#[test]
fn the_controller_says_more_when_it_is_told_to() {
    let cluster = Cluster::start(&Setup { nodes: 1, ..Setup::default() });
    cluster.ok(&["scontrol", "setdebugflags", "+Backfill"]);
    cluster.wait_for_log("spurctld", "spurctld::planner=trace");
    cluster.ok(&["scontrol", "setdebug", "debug5"]);
    cluster.wait_for_log("spurctld", "TRACE");
    assert!(cluster.fails(&["scontrol", "setdebugflags", "Foo"]).contains("invalid debug flag: Foo"));
    assert_eq!(cluster.ok(&["scontrol", "show", "daemons"]), "slurmctld slurmd\n");
    assert!(cluster.ok(&["scontrol", "show", "slurmd"]).contains("Actual CPUs "));
}

#[test]
fn programs_that_ask_for_accounts_get_what_there_is() {
    let more = "[[qos]]\nname = \"high\"\npriority = 10\n[[qos]]\nname = \"low\"\n";
    let cluster = Cluster::start(&Setup { nodes: 1, more, ..Setup::default() });
    let name = cluster.ok(&["sacctmgr", "-nP", "show", "cluster", "format=cluster"]);
    assert_eq!(
        cluster.ok(&["sacctmgr", "-nP", "show", "qos", "format=name,priority"]),
        "normal|0\nhigh|10\nlow|0\n"
    );
    let assoc = cluster.ok(&["sacctmgr", "-nP", "show", "assoc", "format=account,user,share,qos"]);
    assert_eq!(assoc, "root||1|high,low,normal\nroot|root|1|high,low,normal\n");
    let account = cluster.ok(&["sacctmgr", "-nP", "-s", "list", "user", "root", "format=account%256"]);
    assert_eq!(account, "root\n");
    assert_eq!(
        cluster.ok(&["sacctmgr", "-nP", "list", "users", "root", "format=user,admin"]),
        "root|Administrator\n"
    );
    let shares = cluster.ok(&["sshare", "-n", "-P", "-A", "root", "-o", "account,user,rawshares,normshares"]);
    assert!(shares.starts_with("root|||0.000000\n"), "{shares}");
    assert!(cluster.fails(&["sacctmgr", "-i", "add", "wckey", "x"]).contains("wckeys belong to users"));
    assert!(cluster.fails(&["sacctmgr", "show", "foo"]).contains("No valid entity in list command"));
    let used = cluster.ok(&["sreport", "-nP", "cluster", "utilization", "format=cluster,allocated"]);
    assert_eq!(used, format!("{}|0\n", name.trim()));
    assert_eq!(cluster.ok(&["sreport", "-nP", "user", "top"]), "");
}
