//! Wrong input of every kind: a clear error, and nothing has changed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use spur_proto::v1::{Batch, JobSpec};

use crate::client::batch_job;
use crate::cluster::{Cluster, Setup, program, said};

/// A user that is neither the one of this test nor an operator.
const STRANGER: u32 = 41_000;

#[test]
fn what_cannot_be_submitted_is_refused_with_the_reason() {
    let cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    cluster.script("dos.sh", "#!/bin/sh\r\ntrue\r\n");
    cluster.script("plain.sh", "echo no interpreter\n");
    cluster.script("empty.sh", "");
    cluster.script("nul.sh", "#!/bin/sh\necho \0\n");
    cluster.script("directive.sh", "#!/bin/sh\n#SBATCH --ntaks=2\ntrue\n");
    let good = "--wrap=true";
    let mut wrong = Vec::new();
    let refused = [
        (&["dos.sh"][..], "DOS line breaks"),
        (&["plain.sh"], "does not look like a batch script"),
        (&["empty.sh"], "empty"),
        (&["nul.sh"], "NUL"),
        (&["missing.sh"], "Unable to open file missing.sh"),
        (&["-w", "n7", good], "n7"),
        (&["-p", "nowhere", good], "partition"),
        (&["-N3", good], "Node"),
        (&["--mem=1T", good], "the largest of partition main has 64000"),
        (&["--gather=must:closet", good], "closet"),
        (&[good, "extra"], "extra"),
    ];
    // Options that cannot be read end a command with 255, as in Slurm.
    let unreadable = [
        (&["directive.sh"][..], "ntaks"),
        (&["--ntaks=2", good], "ntaks"),
        (&["-n", "many", good], "many"),
        (&["-n", "0", good], "\"0\" for --ntasks"),
        (&["-t", "soon", good], "soon"),
        (&["--mem=lots", good], "lots"),
        (&["--begin=yesterdayish", good], "yesterdayish"),
        (&["-d", "afterok:none", good], "none"),
        (&["-w", "n[1-", good], "n[1-"),
        (&["-x", "n[2-1]", good], "n[2-1]"),
        (&["--mem=1G", "--mem-per-cpu=1G", good], "mem"),
    ];
    let all = refused.iter().map(|case| (1, case)).chain(unreadable.iter().map(|case| (255, case)));
    for (code, (words, expected)) in all {
        let said = cluster.run(&[&["sbatch"], *words].concat());
        let told = said.err.starts_with("sbatch: ") && said.err.contains(expected);
        if said.code != Some(code) || !told {
            wrong.push(format!("{words:?} should say `{expected}`: {said:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cluster.client().jobs().is_empty(), "a refused submission left a job");
}

#[test]
fn wrong_commands_change_nothing() {
    let cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    cluster.ok(&["sbatch", "--wait", "-N2", "--wrap", "true"]);
    let job = cluster.sbatch(&["-H", "--wrap", "true"]).to_string();
    let shown = |what: &[&str]| cluster.ok(&[&["scontrol", "show"], what].concat());
    let before = (shown(&["job", &job]), shown(&["partition"]), cluster.ok(&["sinfo", "-h"]));
    let job_is = format!("JobId={job}");
    for (words, expected) in [
        (&["scontrol", "update", &job_is, "Colour=red"][..], "Colour"),
        (&["scontrol", "update", &job_is, "TimeLimit=x"], "x"),
        (&["scontrol", "update", &job_is, "Partition=nowhere"], "partition"),
        (&["scontrol", "update", "NodeName=n9", "State=DRAIN", "Reason=x"], "n9"),
        (&["scontrol", "update", "NodeName=n1", "State=DRAIN"], "reason"),
        (&["scontrol", "update", "NodeName=n1", "State=PURPLE"], "PURPLE"),
        (&["scontrol", "hold", "4711"], "4711"),
        (&["scontrol", "dance"], "dance"),
        (&["scontrol", "show", "hostnames", "n[1-"], "n[1-"),
        (&["scancel", "-s", "USR1", "4711"], "4711"),
        (&["scancel", "-s", "SIGNONSENSE", &job], "SIGNONSENSE"),
        (&["scancel", "-u", "nobody-there"], "Invalid user name: nobody-there"),
        (&["squeue", "--states", "sleeping"], "sleeping"),
        (&["sacct", "-o", "jobid,shoesize"], "shoesize"),
        (&["sinfo", "-n", "n[3"], "n[3"),
    ] {
        let complaint = cluster.fails(words);
        assert!(complaint.to_lowercase().contains(&expected.to_lowercase()), "{words:?}: {complaint}");
    }
    assert_eq!((shown(&["job", &job]), shown(&["partition"]), cluster.ok(&["sinfo", "-h"])), before);
    // Valid names in the same list are shown all the same.
    let mixed = cluster.run(&["squeue", "-h", "-o", "%i", "-u", "nobody-there,0"]);
    assert_eq!((mixed.code, mixed.out), (Some(0), cluster.ok(&["squeue", "-h", "-o", "%i", "-u", "0"])));
    assert!(mixed.err.contains("squeue: error: Invalid user: nobody-there\n"), "{}", mixed.err);
}

#[test]
fn a_wrong_configuration_is_named_by_its_place() {
    let cluster = Cluster::prepare(&Setup { auth: "none", ..Setup::default() });
    let good = std::fs::read_to_string(cluster.path("spur.toml")).unwrap();
    for (from, to, expected) in [
        ("kill_wait", "kil_wait", &["wrong.toml:5:", "kil_wait", "kill_wait"][..]),
        ("kill_wait = \"1s\"", "kill_wait = \"soon\"", &["kill_wait", "soon"]),
        ("names = \"n[1-1]\"", "names = \"n[1-\"", &["wrong.toml:15:", "n[1-"]),
        ("nodes = \"ALL\"", "nodes = \"x[1-2]\"", &["wrong.toml:20:", "no [[nodes]] defines x[1-2]"]),
        ("method = \"none\"", "method = \"magic\"", &["magic", "none"]),
        ("listen_addr = \"127.0.0.1:", "listen_addr = \"0.0.0.0:", &["loopback"]),
        ("[controller]", "[controller", &["wrong.toml:2:"]),
    ] {
        let wrong = good.replacen(from, to, 1);
        assert_ne!(wrong, good, "{from} is not in the configuration");
        std::fs::write(cluster.path("wrong.toml"), wrong).unwrap();
        let output =
            Command::new(program("spurctld")).arg("-D").arg("-f").arg(cluster.path("wrong.toml")).output();
        let said = said(output.unwrap());
        assert_eq!(said.code, Some(1), "{to}: {said:?}");
        for part in expected {
            assert!(said.err.contains(part), "{to}: `{part}` is not in: {}", said.err);
        }
    }
    assert!(
        cluster.path("state").read_dir().unwrap().next().is_none(),
        "a daemon that did not start left files"
    );
}

#[test]
fn a_wrong_configuration_does_not_replace_a_good_one() {
    let cluster = Cluster::start(&Setup::default());
    cluster.ok(&["sbatch", "--wait", "--wrap", "true"]);
    let before = cluster.ok(&["sinfo", "-h"]);
    let good = std::fs::read_to_string(cluster.path("spur.toml")).unwrap();
    std::fs::write(cluster.path("spur.toml"), good.replace("max_time", "maximum_time")).unwrap();
    let complaint = cluster.run(&["scontrol", "reconfigure"]);
    assert!(complaint.code != Some(0) && complaint.err.contains("maximum_time"), "{complaint:?}");
    std::fs::write(cluster.path("spur.toml"), good).unwrap();
    assert_eq!(cluster.ok(&["sinfo", "-h"]), before);
    cluster.ok(&["scontrol", "reconfigure"]);
    cluster.ok(&["sbatch", "--wait", "--wrap", "true"]);
}

#[test]
fn garbage_on_the_wire_disturbs_nobody() {
    let cluster = Cluster::start(&Setup::default());
    let address = ("127.0.0.1", cluster.port());
    // Silent connections stay open during all that follows.
    let silent: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(address).unwrap()).collect();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let noise: Vec<u8> =
        (0..100_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &noise,
        &[preface, &noise[..]].concat(),
        &[preface, &[0xff; 64][..]].concat(),
    ] {
        let mut stream = TcpStream::connect(address).unwrap();
        // The other end may close before all is written.
        let _ = stream.write_all(garbage);
        let _ = stream.read(&mut [0; 1024]);
    }
    cluster.ok(&["sbatch", "--wait", "--wrap", "true"]);
    assert_eq!(cluster.client().jobs().len(), 1);
    drop(silent);
}

#[test]
fn requests_that_no_command_would_make_are_refused() {
    let cluster = Cluster::start(&Setup::default());
    let mut client = cluster.client();
    let good = batch_job("good", "#!/bin/sh\ntrue\n", &cluster.path("work"));
    let batch = |change: &dyn Fn(&mut Batch)| {
        let mut job = good.clone();
        change(job.batch.as_mut().expect("it is one"));
        job
    };
    let mut accepted = Vec::new();
    for (what, job) in [
        ("a name with a line break", JobSpec { name: "a\nb".into(), ..good.clone() }),
        ("no tasks", JobSpec { tasks: Some(0), ..good.clone() }),
        ("a node count that is none", JobSpec { nodes: "several".into(), ..good.clone() }),
        ("features that do not parse", JobSpec { features: "((a".into(), ..good.clone() }),
        ("a dependency that does not parse", JobSpec { dependency: "later:x".into(), ..good.clone() }),
        ("a hostlist without an end", JobSpec { nodelist: "n[1-".into(), ..good.clone() }),
        ("a hostlist of two thousand million", JobSpec { exclude: "n[0-2000000000]".into(), ..good.clone() }),
        ("a kind of sharing that there is not", JobSpec { sharing: 99, ..good.clone() }),
        ("a time limit beyond all time", JobSpec { time_limit: Some(u64::MAX), ..good.clone() }),
        (
            "more CPUs than can be counted",
            JobSpec { cpus_per_task: Some(u32::MAX), tasks: Some(u32::MAX), ..good.clone() },
        ),
        ("a script without an interpreter", batch(&|batch| batch.script = b"true\n".to_vec().into())),
        ("an empty script", batch(&|batch| batch.script = Vec::new().into())),
        (
            "a script of five mebibytes",
            batch(&|batch| batch.script = [&b"#!/bin/sh\n"[..], &[b' '; 5 << 20]].concat().into()),
        ),
        ("a variable without a name", batch(&|batch| batch.environment = b"=x\0".to_vec().into())),
        ("a variable without an end", batch(&|batch| batch.environment = b"A=x".to_vec().into())),
        ("a directory from nowhere", batch(&|batch| batch.work_dir = "work".into())),
        ("a file name with a NUL", batch(&|batch| batch.stdout = "out\0put".into())),
        ("an argument with a NUL", batch(&|batch| batch.args = vec!["a\0b".into()])),
    ] {
        if let Ok(id) = client.submit(job) {
            accepted.push(format!("{what}: {:?}", client.wait(id, |job| job.state != "PENDING").state));
        }
    }
    assert!(accepted.is_empty(), "{}", accepted.join("\n"));
    assert!(client.jobs().is_empty());
    let id = client.submit(good).expect("it is good");
    client.wait_for(id, "COMPLETED");
}

#[test]
fn nobody_touches_the_jobs_of_others() {
    let cluster = Cluster::start(&Setup::default());
    let mut owner = cluster.client_of(STRANGER);
    let script = "#!/bin/sh\ntrue\n";
    let mut spec = batch_job("theirs", script, &cluster.path("work"));
    spec.hold = true;
    let job = owner.submit(spec).expect("anybody may submit");
    let mut other = cluster.client_of(STRANGER + 1);
    for complaint in [other.cancel(job), other.hold(job), other.requeue(job)] {
        let complaint = complaint.expect("it is not theirs");
        assert!(complaint.contains("denied") || complaint.contains("permission"), "{complaint}");
    }
    assert_eq!(owner.job(job).state, "PENDING");
    assert_eq!(owner.cancel(job), None);
    owner.wait_for(job, "CANCELLED");
}

#[test]
fn only_tokens_of_this_cluster_are_believed() {
    let cluster = Cluster::start(&Setup::default());
    let key = cluster.path("key");
    cluster.ok(&["sbatch", "--wait", "--wrap", "true"]);
    // Only the daemons may read the key itself.
    let mut permissions = std::fs::metadata(&key).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o644);
    std::fs::set_permissions(&key, permissions).unwrap();
    let mut command = Command::new(program("spurctld"));
    let output = command.arg("-D").arg("-f").arg(cluster.path("spur.toml")).output().unwrap();
    let told = said(output);
    assert!(told.code == Some(1) && told.err.contains("chmod 600"), "{told:?}");
    if rustix::process::geteuid().is_root() {
        other_users_are_who_the_kernel_says(&cluster);
    } else {
        println!("not root: nobody else's commands can be tried");
    }
}

/// The socket that issues tokens asks the kernel, so root's test can act as another user.
fn other_users_are_who_the_kernel_says(cluster: &Cluster) {
    let job = cluster.sbatch(&["-H", "--wrap", "true"]).to_string();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(cluster.path(""), open).unwrap();
    let mut command = cluster.command(&["scancel", &job]);
    let told = said(command.uid(STRANGER).gid(STRANGER).output().unwrap());
    assert!(told.code != Some(0) && told.err.contains("denied"), "{told:?}");
    assert_eq!(cluster.ok(&["squeue", "-h", "-o", "%T"]), "PENDING\n");
}

/// Leaves of 16 nodes below one spine. None of the nodes is ever started.
const LEAVES: &str = r#"
[[nodes]]
names = "x[001-128]"
cpus = 64
[[partitions]]
name = "wide"
nodes = "x[001-128]"
topology = "wide"
[[topologies]]
name = "wide"
plugin = "tree"
[[topologies.switches]]
name = "l0"
nodes = "x[001-016]"
[[topologies.switches]]
name = "l1"
nodes = "x[017-032]"
[[topologies.switches]]
name = "l2"
nodes = "x[033-048]"
[[topologies.switches]]
name = "l3"
nodes = "x[049-064]"
[[topologies.switches]]
name = "l4"
nodes = "x[065-080]"
[[topologies.switches]]
name = "l5"
nodes = "x[081-096]"
[[topologies.switches]]
name = "l6"
nodes = "x[097-112]"
[[topologies.switches]]
name = "l7"
nodes = "x[113-128]"
[[topologies.switches]]
name = "t"
switches = "l[0-7]"
"#;

#[test]
fn what_takes_long_to_judge_is_refused_with_what_would_work() {
    let mut cluster = Cluster::prepare(&Setup { auth: "none", more: LEAVES, ..Setup::default() });
    cluster.start_controller();
    let hard = [
        "sbatch",
        "-p",
        "wide",
        "-n",
        "6375",
        "-N",
        "18",
        "--gather=spine*6,prefer:spine",
        "--placement=distributed",
        "--switches=1",
        "--wrap=true",
    ];
    // The requests of one user are judged one after another.
    let asked: Vec<_> = (0..3)
        .map(|_| cluster.command(&hard).stderr(std::process::Stdio::piped()).spawn().expect("it starts"))
        .collect();
    for child in asked {
        let output = child.wait_with_output().expect("it ends");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.starts_with("sbatch: ") && err.contains("; ask "), "{err}");
    }
    let job = cluster.sbatch(&["-p", "wide", "-n", "10", "--hold", "--wrap=true"]).to_string();
    let update = ["scontrol", "update", &format!("JobId={job}"), "NumTasks=9000"];
    let said = cluster.run(&update);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("8192"), "{said:?}");
}
