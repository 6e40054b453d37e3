//! Disks that are full or refuse writes: a node's spool, accounting, the journal's.
//!
//! They are small file systems in a mount namespace of the test's own thread, which the daemons inherit. That
//! needs root.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use rustix::process::Signal;

use crate::client::{batch_job, has_ended};
use crate::cluster::{Cluster, Setup};

/// A small file system in a directory of the cluster.
struct SmallDisk {
    place: PathBuf,
}

impl SmallDisk {
    /// Mounts the file system; `None` where this process may not mount.
    fn mount(cluster: &Cluster, name: &str, size: &str) -> Option<Self> {
        let place = cluster.path(name);
        fs::create_dir_all(&place).unwrap();
        let none = None::<&str>;
        let mounted = unshare(CloneFlags::CLONE_NEWNS)
            .and_then(|()| mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none))
            .and_then(|()| {
                let options = format!("size={size},mode=755");
                mount(Some("spur"), &place, Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))
            });
        match mounted {
            Ok(()) => Some(Self { place }),
            Err(error) => {
                eprintln!("SKIPPED: no file system can be mounted here: {error}");
                None
            }
        }
    }

    /// Leaves no byte free.
    fn fill(&self) {
        let mut file = File::options().create(true).append(true).open(self.filler()).unwrap();
        for size in [64 << 10, 4096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    /// Frees the filled bytes again.
    fn empty(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.place.join("filler")
    }

    /// Makes the file system read-only, or writable again.
    fn set_read_only(&self, read_only: bool) {
        let flags = if read_only { MsFlags::MS_RDONLY } else { MsFlags::empty() };
        let none = None::<&str>;
        mount(none, &self.place, none, MsFlags::MS_REMOUNT | flags, Some("size=1m")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Running daemons keep the file system until they end.
        let _ = umount2(&self.place, MntFlags::MNT_DETACH);
    }
}

/// A cluster of one node whose spool is small.
fn with_small_spool() -> Option<(Cluster, SmallDisk)> {
    let mut cluster = Cluster::prepare(&Setup::default());
    let disk = SmallDisk::mount(&cluster, "spool/n1", "1m")?;
    cluster.start_controller();
    cluster.start_node("n1");
    cluster.wait_for_log("n1", "registered as n1");
    Some((cluster, disk))
}

#[test]
fn a_node_whose_spool_is_full_takes_no_job_until_there_is_room() {
    let Some((cluster, disk)) = with_small_spool() else { return };
    let mut client = cluster.client();
    disk.fill();
    let job = cluster.sbatch(&["--wrap", "true"]);
    cluster.wait_until(|cluster| cluster.ok(&["sinfo", "-h", "-o", "%T"]).trim() == "drained");
    let shown = cluster.ok(&["scontrol", "show", "node", "n1"]);
    assert!(shown.contains("No space left on device") && shown.contains("[spurd@"), "{shown}");
    let waits = client.job(job);
    assert!(waits.state == "PENDING" && waits.restarts <= 1, "{waits:?}");
    // A node that was resumed by hand is drained again.
    cluster.ok(&["scontrol", "update", "NodeName=n1", "State=RESUME"]);
    cluster.wait_until(|cluster| cluster.ok(&["sinfo", "-h", "-o", "%T"]).trim() == "drained");
    disk.empty();
    let ended = client.wait(job, has_ended);
    assert_eq!(ended.state, "COMPLETED");
    assert!(ended.restarts <= 3, "{}", ended.restarts);
    assert_eq!(cluster.ok(&["sinfo", "-h", "-o", "%T"]).trim(), "idle");
}

#[test]
fn a_job_whose_spool_fills_up_meanwhile_leaves_its_exit() {
    let Some((mut cluster, disk)) = with_small_spool() else { return };
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let job = cluster.sbatch(&["--wrap", "echo x >up; read x <gate; exit 3"]);
    let mut client = cluster.client();
    up.wait();
    disk.fill();
    cluster.kill("n1");
    gate.open();
    cluster.start_node("n1");
    let ended = client.wait(job, has_ended);
    assert_eq!((ended.state.as_str(), ended.exit_code, ended.restarts), ("FAILED", 3, 0));
}

#[test]
fn an_exit_that_cannot_be_written_is_kept_by_who_saw_it() {
    let Some((mut cluster, disk)) = with_small_spool() else { return };
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let job = cluster.sbatch(&["--wrap", "echo x >up; read x <gate; echo ran >>ran; exit 3"]);
    let mut client = cluster.client();
    up.wait();
    cluster.kill("n1");
    disk.set_read_only(true);
    gate.open();
    cluster.wait_for_log("n1", "the exit cannot be written");
    disk.set_read_only(false);
    cluster.start_node("n1");
    let ended = client.wait(job, has_ended);
    assert_eq!((ended.state.as_str(), ended.exit_code, ended.restarts), ("FAILED", 3, 0));
    assert_eq!(cluster.read("ran"), "ran\n");
}

#[test]
fn an_exit_reaches_the_controller_past_a_disk_that_refuses_it() {
    let Some((cluster, disk)) = with_small_spool() else { return };
    let (mut up, mut gate) = (cluster.gate("up"), cluster.gate("gate"));
    let job = cluster.sbatch(&["--wrap", "echo x >up; read x <gate; exit 3"]);
    let mut client = cluster.client();
    up.wait();
    let spool: &Path = &disk.place;
    // The exit record cannot be read or written: a directory takes its place.
    fs::create_dir(spool.join(format!("attempts/{job}.0.batch/exit.json"))).unwrap();
    gate.open();
    let ended = client.wait(job, has_ended);
    assert_eq!((ended.state.as_str(), ended.exit_code, ended.restarts), ("FAILED", 3, 0));
}

#[test]
fn accounting_goes_on_when_there_is_room_and_keeps_nobody_from_ending() {
    let mut cluster = Cluster::prepare(&Setup::default());
    let Some(disk) = SmallDisk::mount(&cluster, "accounting", "1m") else { return };
    std::os::unix::fs::symlink(disk.place.join("acct.db"), cluster.path("state/acct.db")).unwrap();
    cluster.start_controller();
    cluster.start_node("n1");
    cluster.ok(&["sbatch", "--wait", "--wrap", "true"]);
    disk.fill();
    let comment = "x".repeat(1000);
    let submit = || cluster.sbatch(&["--comment", &comment, "--wrap", "true"]);
    let jobs: Vec<u32> = (0..20).map(|_| submit()).collect();
    cluster.wait_for_log("spurctld", "accounting cannot be written");
    // No other request waits for it.
    cluster.ok(&["sbatch", "--test-only", "--wrap", "true"]);
    cluster.signal("spurctld", Signal::TERM);
    cluster.wait_for_end("spurctld");
    cluster.start_controller();
    let later = cluster.sbatch(&["--wrap", "true"]);
    disk.empty();
    for job in jobs.into_iter().chain([later]) {
        let state = ["sacct", "-X", "-n", "-o", "state%20", "-j", &job.to_string()];
        cluster.wait_until(|cluster| cluster.ok(&state).trim() == "COMPLETED");
    }
}

#[test]
fn nobody_fills_the_disk_of_the_controller_with_jobs() {
    let mut cluster = Cluster::prepare(&Setup::default());
    let Some(_disk) = SmallDisk::mount(&cluster, "state", "48m") else { return };
    cluster.start_controller();
    let large = format!("#!/bin/sh\n# {}\n", "x".repeat(3 << 20));
    // No node is up, so all of the jobs wait.
    let submit_all = |cluster: &Cluster, uid: u32| {
        let mut client = cluster.client_of(uid);
        let mut jobs = Vec::new();
        loop {
            match client.submit(batch_job("large", &large, &cluster.path("work"))) {
                Ok(job) => jobs.push(job),
                Err(error) => return (jobs, error.to_string()),
            }
        }
    };
    let (greedy, refused) = submit_all(&cluster, 1001);
    assert!(refused.contains("I/O error writing script") && refused.contains("of your jobs"), "{refused}");
    let (other, refused) = submit_all(&cluster, 1002);
    assert!(refused.contains("of your jobs"), "{refused}");
    // Operators have no shares, and stop at the reserve of the controller.
    let (operator, refused) = submit_all(&cluster, 0);
    assert!(refused.contains("new jobs leave 6 of them"), "{refused}");
    assert!(
        !greedy.is_empty() && !other.is_empty() && !operator.is_empty(),
        "{greedy:?} {other:?} {operator:?}"
    );
    let mut client = cluster.client_of(1001);
    assert_eq!(client.cancel(greedy[0]), None);
    cluster.stop("spurctld");
    cluster.start_controller();
    let jobs = cluster.client().jobs_patiently();
    let waiting = jobs.iter().filter(|job| job.state == "PENDING").count();
    assert_eq!((jobs.len(), waiting), (operator.len() + greedy.len() + other.len(), jobs.len() - 1));
}

#[test]
fn submissions_go_on_when_the_disk_of_an_idle_controller_has_room_again() {
    let mut cluster = Cluster::prepare(&Setup::default());
    let Some(disk) = SmallDisk::mount(&cluster, "state", "48m") else { return };
    cluster.start_controller();
    let submit = |cluster: &Cluster| {
        cluster.client().submit(batch_job("small", "#!/bin/sh\ntrue\n", &cluster.path("work")))
    };
    submit(&cluster).expect("there is room");
    // Most of the disk is full and no node is up, so that only submissions reach the controller.
    fs::write(disk.filler(), vec![0; 44 << 20]).unwrap();
    for _ in 0..3 {
        let refused = submit(&cluster).expect_err("the controller needs the rest").to_string();
        assert!(refused.contains("new jobs leave 6 of them"), "{refused}");
    }
    disk.empty();
    submit(&cluster).expect("there is room again");
}
