//! The log files of daemons, and the traces of a demonstration, of which none must remain.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::cluster::{Cluster, Setup, program};

#[test]
fn logs_are_opened_again_at_hup() {
    let mut cluster = Cluster::prepare(&Setup::default());
    let configuration = fs::read_to_string(cluster.path("spur.toml")).unwrap();
    let file = format!("[log]\nfile = \"{}\"\n", cluster.path("log/%d.file").display());
    fs::write(cluster.path("spur.toml"), configuration + &file).unwrap();
    cluster.start_controller();
    cluster.start_node("n1");
    cluster.wait_for_log("spurd.file", "registered as n1");
    for (daemon, file, read) in [
        ("spurctld", "spurctld.file", "reconfigured"),
        ("n1", "spurd.file", "the configuration was read again"),
    ] {
        cluster.wait_until(|cluster| cluster.path("log").join(file).exists());
        let rotated = format!("{file}.1");
        fs::rename(cluster.path("log").join(file), cluster.path("log").join(&rotated)).unwrap();
        cluster.signal(daemon, Signal::HUP);
        cluster.wait_for_log(file, read);
        assert!(!cluster.log(&rotated).contains(read), "{}", cluster.log(&rotated));
    }
}

#[test]
fn a_killed_demonstration_leaves_nothing() {
    let cluster = Cluster::prepare(&Setup::default());
    let place = cluster.path("log");
    let mut demo = Command::new(program("spur"));
    demo.arg("demo").env("TMPDIR", &place).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut demo = demo.spawn().unwrap();
    let directory = place.join(format!("spur-demo-{}", demo.id()));
    cluster.wait_until(|_| directory.join("jobs/small.sh").exists());
    demo.kill().unwrap();
    demo.wait().unwrap();
    cluster.wait_until(|_| !directory.exists());
    let name = directory.display().to_string();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let told = processes.filter(|process| {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&name)
    });
    assert_eq!(told.count(), 0, "processes of {name} still run");
}
