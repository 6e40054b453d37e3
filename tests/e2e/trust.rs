//! Trust between peers: impostors, eavesdroppers, and keys that are replaced while jobs run.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use spur_proto::channel::Dialer;
use spur_proto::client::Introduction;
use spur_proto::keys::{ClusterKey, ClusterKeys, Keyring, Role};
use spur_proto::listen::{Incoming, Limits};
use spur_proto::tls;
use spur_proto::v1::controller_client::ControllerClient;
use spur_proto::v1::{self, TokenClaims};
use tokio_stream::StreamExt;
use tonic::Code;

use crate::cluster::{Cluster, PATIENCE, Setup, free_port, program, said};

/// A user that is neither the one of this test nor an operator.
const STRANGER: u32 = 41_000;
/// The beginning of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Takes the controller's port as a daemon with this key would; reports every completed handshake.
fn impostor(port: u16, keys: ClusterKeys, role: Role) -> Receiver<()> {
    let (tell, told) = channel();
    let (ready, up) = channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("threads can be made").block_on(async {
            let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("it is free");
            let tls = tls::server(&Keyring::new(keys), role);
            let mut incoming = Incoming::tcp(listener, Some(tls), Limits::for_process(100));
            ready.send(()).expect("the test waits for it");
            while incoming.next().await.is_some() {
                let _ = tell.send(());
            }
        });
    });
    up.recv_timeout(PATIENCE).expect("it comes up");
    told
}

#[test]
fn an_impostor_gets_no_node_and_no_token() {
    for (key, name, role) in [
        (None, "e2e", Role::Controller),
        (Some("key"), "e2e", Role::Node("n1".into())),
        (Some("key"), "another", Role::Controller),
    ] {
        let mut cluster = Cluster::prepare(&Setup::default());
        let keys = match key {
            Some(file) => ClusterKeys::read(&cluster.path(file), name).unwrap(),
            None => ClusterKeys::of(ClusterKey::generate().unwrap(), name),
        };
        let told = impostor(cluster.port(), keys, role);
        cluster.start_node("n1");
        let complaint = cluster.fails(&["squeue"]);
        assert!(complaint.contains("somebody else answers there"), "{complaint}");
        // The command has tried for seconds, so the node has tried, too.
        cluster.wait_for_log("n1", "somebody else answers there");
        assert!(told.try_recv().is_err(), "somebody has spoken to it");
    }
}

#[test]
fn plain_text_gets_nothing() {
    let cluster = Cluster::start(&Setup::default());
    let log = cluster.log("n1");
    let node = log.split_whitespace().find_map(|word| word.strip_prefix("address=\"127.0.0.1:"));
    let node = node.and_then(|port| port.trim_end_matches('"').parse().ok());
    for port in [cluster.port(), node.expect("it says where it listens")] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        // An empty SETTINGS frame follows.
        stream.write_all(&[PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // The connection may be cut off.
        let _ = stream.read_to_end(&mut answer);
        // At most an alert, which is a record of type 21.
        assert!(answer.first().is_none_or(|kind| *kind == 21), "{answer:?}");
        assert!(answer.len() < 9, "{answer:?}");
    }
}

/// Forwards the bytes sent to a port, and keeps them.
fn eavesdrop(port: u16) -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ears = Arc::clone(&heard);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            for (mut from, mut to) in [
                (client.try_clone().unwrap(), server.try_clone().unwrap()),
                (server.try_clone().unwrap(), client.try_clone().unwrap()),
            ] {
                let ears = Arc::clone(&ears);
                std::thread::spawn(move || {
                    let mut data = [0; 4096];
                    while let Ok(length @ 1..) = from.read(&mut data) {
                        ears.lock().unwrap().extend_from_slice(&data[..length]);
                        if to.write_all(&data[..length]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    (own, heard)
}

#[test]
fn nothing_is_said_in_clear() {
    for (method, in_clear) in [("key", false), ("none", true)] {
        let cluster = Cluster::start(&Setup { auth: method, ..Setup::default() });
        let (port, heard) = eavesdrop(cluster.port());
        let mut command = cluster.command(&["sbatch", "--comment", "overheard", "--wrap", "true"]);
        command.env("SPUR_CONTROLLER", format!("127.0.0.1:{port}"));
        let told = said(command.output().unwrap());
        assert_eq!(told.code, Some(0), "{told:?}");
        let heard = heard.lock().unwrap();
        assert!(heard.len() > 100, "it went this way");
        for word in [&b"overheard"[..], b"/spur.v1.Controller/"] {
            let found = heard.windows(word.len()).any(|part| part == word);
            // Paths are compressed in headers; the comment is in the body.
            assert!(!found || in_clear, "{method}: {word:?} was heard");
        }
        let comment = heard.windows(9).any(|part| part == b"overheard");
        assert_eq!(comment, in_clear, "{method}: this test hears what there is to hear");
    }
}

#[test]
fn a_socket_of_somebody_else_is_not_believed() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can run a daemon as somebody else");
        return;
    }
    let mut cluster = Cluster::prepare(&Setup::default());
    std::fs::set_permissions(cluster.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    for name in ["", "state", "key"] {
        chown(cluster.path(name), Some(STRANGER), Some(STRANGER)).unwrap();
    }
    let mut controller = Command::new(program("spurctld"));
    controller.uid(STRANGER).gid(STRANGER);
    cluster.start_controller_as(controller);
    // Other processes of its user cannot read its memory either: the kernel gives such processes to root.
    let seen = std::fs::metadata(format!("/proc/{}/environ", cluster.pid("spurctld"))).unwrap();
    assert_eq!(seen.uid(), 0);
    // Neither root nor a third user trusts it; its own user does.
    for (uid, believes) in [(0, false), (STRANGER + 1, false), (STRANGER, true)] {
        let mut command = cluster.command(&["squeue"]);
        let told = said(command.uid(uid).gid(uid).output().unwrap());
        assert_eq!(told.code == Some(0), believes, "{uid}: {told:?}");
        assert!(believes || told.err.contains("is served by uid 41000"), "{uid}: {told:?}");
    }
    cluster.configure("auth", &format!("user = \"{STRANGER}\"\n"));
    cluster.ok(&["squeue"]);
}

#[test]
fn a_forged_token_leaves_a_line_and_no_secret_any() {
    let cluster = Cluster::start(&Setup { nodes: 1, ..Setup::default() });
    let keys = cluster.keys().expect("it uses keys");
    let claims = TokenClaims { user: "root".into(), expires: i64::MAX, ..TokenClaims::default() };
    let forged = ClusterKeys::of(ClusterKey::generate().unwrap(), "e2e").mint(&claims);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let refused = runtime.block_on(async {
        let dialer = Dialer::expecting(&keys.public(&Role::Controller), None);
        let channel = dialer.connect(&cluster.address()).await.unwrap();
        let introduction = Introduction::new(&forged).unwrap();
        let mut client = ControllerClient::with_interceptor(channel, introduction);
        for _ in 0..50 {
            client.ping(v1::PingRequest::default()).await.unwrap_err();
        }
        client.ping(v1::PingRequest::default()).await.unwrap_err()
    });
    assert_eq!(refused.code(), Code::Unauthenticated);
    cluster.wait_for_log("spurctld", "a call was refused: token not signed with this cluster's key");
    assert_eq!(cluster.log("spurctld").matches("a call was refused").count(), 1, "one line for many");
    cluster.ok(&["sbatch", "--wait", "--wrap", "true"]);
    let key = std::fs::read_to_string(cluster.path("key")).unwrap();
    let told =
        cluster.ok(&["squeue", "--json", "--states=all"]) + &cluster.log("spurctld") + &cluster.log("n1");
    for secret in [key.trim(), &forged] {
        assert!(!told.contains(secret), "{told}");
        for name in ["spurctld", "n1"] {
            let of = |file| std::fs::read(format!("/proc/{}/{file}", cluster.pid(name))).unwrap_or_default();
            let shown = [of("cmdline"), of("environ")].concat();
            assert!(!String::from_utf8_lossy(&shown).contains(secret), "{name}");
        }
    }
}

#[test]
fn silent_connections_keep_nobody_out() {
    let mut cluster = Cluster::prepare(&Setup::default());
    // A fifth of the files is kept back, and one host may use an eighth of the rest.
    let mut few = Command::new("prlimit");
    few.arg("--nofile=256:256");
    cluster.start_controller_under(few);
    cluster.start_node("n1");
    let silent: Vec<TcpStream> =
        (0..60).map(|_| TcpStream::connect(("127.0.0.1", cluster.port())).unwrap()).collect();
    cluster.ok(&["sbatch", "--wait", "--wrap", "true"]);
    let mut oldest = &silent[0];
    oldest.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(oldest.read(&mut [0; 64]).unwrap_or(0), 0, "it had to make room");
    assert!(cluster.log("spurctld").contains("too many connections"), "{}", cluster.log("spurctld"));
}

/// A certificate of `tests/data/tls`; `controller.pem` and `node.pem` are of its authority, `claimed.pem` is
/// of another one and bears the controller's name.
fn certificate(name: &str) -> String {
    format!("{}/data/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_certificate_makes_a_controller_by_its_name_alone() {
    for (shown, believed) in [("controller", true), ("node", false), ("claimed", false)] {
        let mut cluster = Cluster::prepare(&Setup::default());
        let port = free_port();
        let tls = format!(
            "[tls]\nlisten_addr = \"127.0.0.1:{port}\"\ncert_file = \"{}\"\nkey_file = \"{}\"\nca_file = \"{}\"\n\
             controller_names = [\"other.test\", \"controller.test\"]\n",
            certificate(&format!("{shown}.pem")),
            certificate(&format!("{shown}.key")),
            certificate("authority.pem"),
        );
        let text = std::fs::read_to_string(cluster.path("spur.toml")).unwrap();
        std::fs::write(cluster.path("spur.toml"), text + &tls).unwrap();
        cluster.start_controller();
        cluster.start_node("n1");
        if believed {
            // Commands of jobs go there, too.
            cluster.ok(&["sbatch", "--wait", "--wrap", "srun true && squeue"]);
            // The other listener has no certificate.
            let mut command = cluster.command(&["squeue"]);
            let told = said(
                command.env("SPUR_CONTROLLER", format!("127.0.0.1:{}", cluster.port())).output().unwrap(),
            );
            assert!(told.code != Some(0), "{told:?}");
        } else {
            let complaint = cluster.fails(&["squeue"]);
            assert!(complaint.contains("somebody else answers there"), "{shown}: {complaint}");
        }
    }
}

#[test]
fn a_certificate_is_renewed_while_everything_runs() {
    let mut cluster = Cluster::prepare(&Setup::default());
    let (cert, key) = (cluster.path("tls.pem"), cluster.path("tls.key"));
    let show = |name: &str| {
        std::fs::copy(certificate(&format!("{name}.pem")), &cert).unwrap();
        std::fs::copy(certificate(&format!("{name}.key")), &key).unwrap();
    };
    show("claimed");
    let tls = format!(
        "[tls]\nlisten_addr = \"127.0.0.1:{}\"\ncert_file = \"{}\"\nkey_file = \"{}\"\nca_file = \"{}\"\n\
         controller_names = [\"controller.test\"]\n",
        free_port(),
        cert.display(),
        key.display(),
        certificate("authority.pem"),
    );
    let text = std::fs::read_to_string(cluster.path("spur.toml")).unwrap();
    std::fs::write(cluster.path("spur.toml"), text + &tls).unwrap();
    cluster.start_controller();
    cluster.fails(&["squeue"]);
    // Half of the pair changes nothing.
    std::fs::copy(certificate("controller.pem"), &cert).unwrap();
    cluster.signal("spurctld", Signal::HUP);
    cluster.wait_for_log("spurctld", "not reconfigured, the old policy stays: ");
    show("controller");
    cluster.signal("spurctld", Signal::HUP);
    cluster.wait_for_log("spurctld", "another certificate is shown");
    cluster.ok(&["squeue"]);
}

/// Follows docs/guide/administer.md step by step.
#[test]
fn a_key_is_replaced_while_jobs_run() {
    let cluster = Cluster::start(&Setup { nodes: 3, ..Setup::default() });
    let mut gate = cluster.gate("gate");
    let long = cluster.sbatch(&["-w", "n[1-2]", "-n2", "--wrap", "srun sh -c 'read x <gate; echo went on'"]);
    cluster.client().wait_for(long, "RUNNING");
    let key = cluster.path("key").display().to_string();
    let step = |cluster: &Cluster| {
        let out =
            cluster.ok(&["sbatch", "--wait", "-w", "n[1-2]", "-n2", "-o", "out", "--wrap", "srun hostname"]);
        assert!(out.starts_with("Submitted"), "{out}");
        assert_eq!(cluster.read("out").lines().count(), 2, "both nodes take part");
    };
    cluster.ok(&["spur", "keygen", "--rotate", &key]);
    let told = cluster.ok(&["scontrol", "reconfigure"]);
    println!("{told}");
    // Both nodes have the old key only.
    step(&cluster);
    for node in ["n1", "n2"] {
        cluster.signal(node, Signal::HUP);
        cluster.wait_for_log(node, "registering again");
        cluster.wait_until(|cluster| cluster.log(node).matches("registered as").count() == 2);
        // One node may have the new key and one the old.
        step(&cluster);
    }
    cluster.ok(&["spur", "keygen", "--retire", &key]);
    cluster.ok(&["scontrol", "reconfigure"]);
    // A node with the old key only is disconnected, and stays out.
    cluster.wait_for_log("spurctld", "its key is believed no more; it is disconnected node=\"n3\"");
    cluster.wait_for_log("spurctld", "disconnected node=\"n3\"");
    cluster.signal("n1", Signal::HUP);
    cluster.signal("n2", Signal::HUP);
    cluster.wait_until(|cluster| {
        ["n1", "n2"].iter().all(|node| cluster.log(node).matches("registered as").count() == 3)
    });
    step(&cluster);
    assert_eq!(cluster.client().job(long).state, "RUNNING");
    gate.open();
    gate.open();
    cluster.client().wait_for(long, "COMPLETED");
    assert_eq!(cluster.client().job(long).restarts, 0);
}

/// The one stop in which all daemons are upgraded.
#[test]
fn jobs_and_steps_go_on_while_all_daemons_stop() {
    let mut cluster = Cluster::start(&Setup { nodes: 2, ..Setup::default() });
    let (mut gate, mut began) = (cluster.gate("gate"), cluster.gate("began"));
    let script = "srun sh -c 'echo x >began; read x <gate; echo step went on'; echo script went on";
    let job = cluster.sbatch(&["-N2", "-n2", "-o", "out", "--wrap", script]);
    began.wait();
    began.wait();
    for name in ["n1", "n2", "spurctld"] {
        cluster.stop(name);
    }
    cluster.start_controller();
    cluster.start_node("n1");
    cluster.start_node("n2");
    assert_eq!(cluster.client().wait_for(job, "RUNNING").restarts, 0);
    gate.open();
    gate.open();
    cluster.client().wait_for(job, "COMPLETED");
    assert_eq!(cluster.read("out"), "step went on\nstep went on\nscript went on\n");
}

#[test]
fn tokens_are_handed_out_while_any_daemon_of_the_host_runs() {
    let mut cluster = Cluster::start(&Setup { nodes: 1, ..Setup::default() });
    cluster.ok(&["squeue"]);
    cluster.kill("spurctld");
    cluster.wait_for_log("n1", "hands out tokens from now on");
    // A controller that starts takes the socket.
    cluster.start_controller();
    cluster.wait_for_log("n1", "the socket of tokens is somebody else's");
    cluster.ok(&["squeue"]);
    // A stopped controller does not serve the socket.
    let had = count_log(&cluster, "n1", "hands out tokens from now on");
    cluster.signal("spurctld", Signal::STOP);
    cluster.wait_until(|cluster| count_log(cluster, "n1", "hands out tokens from now on") > had);
    cluster.signal("spurctld", Signal::CONT);
    cluster.wait_for_log("spurctld", "the socket of tokens is somebody else's");
    cluster.ok(&["squeue"]);
    // A controller that answers again takes the socket back from the node, and keeps it.
    cluster.wait_for_log("spurctld", "hands out tokens from now on");
    cluster.wait_until(|cluster| count_log(cluster, "n1", "the socket of tokens is somebody else's") > 1);
    cluster.signal("n1", Signal::STOP);
    cluster.ok(&["squeue"]);
    cluster.signal("n1", Signal::CONT);
    assert_eq!(count_log(&cluster, "spurctld", "hands out tokens from now on"), 1);
}

fn count_log(cluster: &Cluster, name: &str, words: &str) -> usize {
    cluster.log(name).matches(words).count()
}

#[test]
fn commands_on_its_host_reach_the_controller_at_the_socket() {
    let cluster = Cluster::start(&Setup { nodes: 1, ..Setup::default() });
    let port = cluster.address().port;
    // No process listens at this address; the controller at the socket is known by its port.
    let elsewhere = |port: u16| {
        let mut command = cluster.command(&["scontrol", "ping"]);
        said(command.env("SPUR_CONTROLLER", format!("127.9.9.9:{port}")).output().unwrap())
    };
    let told = elsewhere(port);
    assert_eq!(told.code, Some(0), "{told:?}");
    assert_ne!(elsewhere(port ^ 1).code, Some(0));
}

#[test]
fn who_waits_at_the_socket_outlives_the_controller() {
    let mut cluster = Cluster::start(&Setup { nodes: 1, ..Setup::default() });
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let mut srun = cluster.command(&["srun", "sh", "-c", "echo >up; read x <gate"]).spawn().unwrap();
    up.wait();
    // The node's daemon has the socket meanwhile, and only issues tokens; a command gives up later than srun
    // tries again.
    cluster.kill("spurctld");
    cluster.wait_for_log("n1", "hands out tokens from now on");
    cluster.fails(&["squeue"]);
    cluster.start_controller();
    gate.open();
    assert!(srun.wait().unwrap().success());
    cluster.client().wait_for(1, "COMPLETED");
}

#[test]
fn control_characters_reach_no_terminal() {
    let cluster = Cluster::start(&Setup::default());
    let evil = "a\u{1b}[31mb\nJobState=COMPLETED\u{9b}";
    let job = cluster.sbatch(&["--hold", "--comment", evil, "-A", evil, "-o", evil, "--wrap", "true\ntrue"]);
    let job = job.to_string();
    let refused = cluster.fails(&["sbatch", "-J", evil, "--wrap", "true"]);
    let shown = [
        cluster.ok(&["squeue", "-h", "-o", "%k|%a"]),
        cluster.ok(&["squeue", "-h", "-O", "comment:60,account:60,stdout:100"]),
        cluster.ok(&["scontrol", "show", "job", &job]),
        cluster.ok(&["scontrol", "-o", "show", "job", &job]),
        cluster.ok(&["sacct", "-n", "-P", "-j", &job, "-o", "comment,account,submitline,stdout"]),
        cluster.ok(&["sacct", "-n", "-j", &job, "-o", "comment%60,submitline%200"]),
        cluster.ok(&["spur", "why", &job]),
        refused,
    ];
    for text in shown {
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("JobState=COMPLETED")), "{text}");
    }
    assert_eq!(cluster.ok(&["squeue", "-h", "-o", "%k"]), "a\\u{1b}[31mb\\nJobState=COMPLETED\\u{9b}\n");
}
