//! Where daemons write what they say.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::cluster::{Cluster, Setup};

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
