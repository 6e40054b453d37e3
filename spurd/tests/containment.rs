//! Attempts to escape from a step, under each kind of containment: control groups of version 2, of version 1,
//! and process trees. A kind that this host or this user cannot use is reported and skipped.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod launch;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use spur_core::model::config::CgroupPlugin;
use spur_core::text::exit::ExitCode;
use spurd::launcher::{ATTEMPT_VARIABLE, Launcher, Step, StepEvent};
use spurd::node::groups::Groups;
use spurd::spool::Spool;
use step_wire::attempt::StepAttempt;
use step_wire::message::Request;
use step_wire::order::{Confinement, DeviceNumber, Identity, Launch};
use step_wire::record::ExitRecord;
use tokio::sync::mpsc;

/// Memory that a step may use in these tests, in bytes.
const MEMORY: u64 = 100 << 20;
/// A device that no step holds: `/dev/full`.
const FULL: DeviceNumber = DeviceNumber { block: false, major: 1, minor: 7 };
/// Limit of a job's processes in these tests.
const PROCESSES: u64 = 60;

/// A node with one kind of containment.
struct Node {
    way: CgroupPlugin,
    directory: tempfile::TempDir,
    spool: Arc<Spool>,
    launcher: Launcher,
    groups: Option<Groups>,
}

/// Returns a node for each kind of containment that this host has.
fn ways() -> Vec<Node> {
    [CgroupPlugin::Autodetect, CgroupPlugin::V1, CgroupPlugin::V2, CgroupPlugin::Disabled]
        .into_iter()
        .filter_map(Node::new)
        .collect()
}

impl Node {
    fn new(way: CgroupPlugin) -> Option<Node> {
        let directory = tempfile::tempdir().unwrap();
        let everyone = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
        fs::set_permissions(directory.path(), everyone).unwrap();
        let spool = Arc::new(Spool::open(&directory.path().join("spool")).unwrap());
        let groups = match Groups::open(way, "contained", spool.place()) {
            Ok(groups) => Some(groups.with_max_processes(PROCESSES)),
            Err(_) if way == CgroupPlugin::Disabled => None,
            Err(reason) => {
                eprintln!("SKIPPED under {way:?}: {reason}");
                return None;
            }
        };
        let launcher = Launcher::new(spur_tests::program("spurstepd"), Arc::clone(&spool), groups.clone());
        Some(Node { way, directory, spool, launcher, groups })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn limits(&self, controller: &str) -> bool {
        self.groups.as_ref().is_some_and(|groups| groups.limits(controller))
    }

    /// Returns a batch step that writes to `out` in the node's directory.
    fn batch(&self, attempt: &str, script: &str) -> Launch {
        self.batch_within(MEMORY, attempt, script)
    }

    /// Returns a batch step that may use so much memory, in bytes.
    fn batch_within(&self, memory: u64, attempt: &str, script: &str) -> Launch {
        let attempt: StepAttempt = attempt.parse().unwrap();
        let mut launch = launch::batch(attempt, self.directory.path(), script);
        launch.order.confinement = self.groups.as_ref().map(|groups| {
            let confinement = groups.prepare(attempt.attempt, memory, vec![0], vec![FULL]).unwrap();
            Confinement { memory_bytes: memory, ..confinement }
        });
        launch.order.sampled_memory_bytes = if self.limits("memory") { 0 } else { memory };
        launch
    }

    async fn start(&self, launch: Launch) -> (Step, mpsc::Receiver<StepEvent>) {
        self.spool.accept(launch.order.attempt).unwrap();
        self.spool.mark_spawning(launch.order.attempt).await.unwrap();
        self.launcher.launch(launch).await.unwrap()
    }

    async fn run(&self, launch: Launch) -> ExitRecord {
        let (_step, mut events) = self.start(launch).await;
        self.ended(&mut events).await
    }

    async fn ended(&self, events: &mut mpsc::Receiver<StepEvent>) -> ExitRecord {
        loop {
            match events.recv().await.unwrap() {
                StepEvent::Ended(record) => return record,
                StepEvent::Lost | StepEvent::Refused { .. } => panic!("{:?}: no record", self.way),
                _ => {}
            }
        }
    }

    /// Returns the number of live processes of the node's steps, wherever they have gone.
    fn left(&self) -> usize {
        let mark = format!("{ATTEMPT_VARIABLE}={}", self.directory.path().display());
        let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let marked = |entry: &fs::DirEntry| {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            environment.windows(mark.len()).any(|part| part == mark.as_bytes())
        };
        processes.filter(marked).count()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(groups) = self.groups.take() {
            groups.close(&BTreeSet::new());
        }
    }
}

#[tokio::test]
async fn memory_over_the_request_is_no_success() {
    for node in ways() {
        // One process that grows, one that grows and hides its end, and many that are each small.
        let scripts = [
            "head -c 600M /dev/zero | tail -n 1 | wc -c",
            "head -c 600M /dev/zero | tail -n 1 | wc -c; true",
            "for i in 1 2 3 4 5 6; do (head -c 40M /dev/zero; sleep 10) | tail -n 1 >/dev/null & done; wait; true",
        ];
        for (job, script) in (1..).zip(scripts) {
            let record = node.run(node.batch(&format!("{job}.0.batch"), script)).await;
            assert!(record.out_of_memory, "{:?}: {script}: {record:?}", node.way);
            let spur_core::compute::StepEnd::Exited { end } = record.end() else { panic!("it ran") };
            assert_eq!((end.exit, end.out_of_memory), (ExitCode { code: 0, signal: 125 }, true));
            assert!(node.read("out").contains("oom_kill event in StepId="), "{:?}", node.way);
            assert_eq!(node.left(), 0, "{:?}", node.way);
        }
        let fits = node.run(node.batch("9.0.batch", "head -c 20M /dev/zero | tail -n 1 | wc -c")).await;
        assert!(!fits.out_of_memory && fits.status().is_success(), "{:?}: {fits:?}", node.way);
    }
}

#[tokio::test]
async fn nothing_outlives_its_step() {
    const FLIGHT: &str = "setsid sh -c 'setsid sleep 1000 & sleep 1000 &' </dev/null >/dev/null 2>&1\n\
        (setsid sh -c '(trap \"\" TERM HUP INT; sleep 1000 & sleep 1000)' &) &\n";
    for node in ways() {
        let record = node.run(node.batch("1.0.batch", &format!("{FLIGHT}exit 3"))).await;
        assert_eq!(record.status(), ExitCode::exited(3), "{:?}", node.way);
        assert_eq!(node.left(), 0, "{:?}: after the end", node.way);
        let killed = node.batch("2.0.batch", &format!("{FLIGHT}echo there >up; sleep 1000"));
        let (step, mut events) = node.start(killed).await;
        while !matches!(events.recv().await.unwrap(), StepEvent::Started { .. }) {}
        step.request(Request::Terminate { kill_wait_ms: Some(0), notice: None }).await.unwrap();
        node.ended(&mut events).await;
        assert_eq!(node.left(), 0, "{:?}: killed", node.way);
    }
}

#[tokio::test]
async fn a_fork_bomb_ends_with_its_step() {
    // Without a limit the bomb stops after six doublings. The script itself forks no more: it would end if it
    // could not.
    const BOMB: &str = "f() { if [ $1 -gt 0 ]; then f $(($1 - 1)) & f $(($1 - 1)) & fi; sleep 1000; }\n\
        f 6 2>refused & exec sleep 1000";
    for node in ways() {
        let (step, mut events) = node.start(node.batch_within(10 * MEMORY, "1.0.batch", BOMB)).await;
        // A shell that cannot fork reports that, and ends.
        let is_refused = || fs::metadata(node.path("refused")).is_ok_and(|said| said.len() > 0);
        let is_limited = node.limits("pids");
        while !if is_limited { is_refused() } else { node.left() >= 100 } {
            match events.try_recv() {
                Ok(StepEvent::Started { .. }) | Err(mpsc::error::TryRecvError::Empty) => {}
                ended => {
                    panic!("{:?}: the step ended with {} processes left: {ended:?}", node.way, node.left())
                }
            }
            tokio::task::yield_now().await;
        }
        let left = node.left();
        assert!(!is_limited || left as u64 <= PROCESSES + 1, "{:?}: {left}", node.way);
        step.request(Request::Terminate { kill_wait_ms: Some(0), notice: None }).await.unwrap();
        node.ended(&mut events).await;
        assert_eq!(node.left(), 0, "{:?}", node.way);
    }
}

#[tokio::test]
async fn a_step_stays_on_its_cpus() {
    for node in ways().into_iter().filter(|node| node.limits("cpuset")) {
        let script = "taskset -pc 0-1023 $$ >/dev/null 2>&1; grep Cpus_allowed_list /proc/self/status";
        let record = node.run(node.batch("1.0.batch", script)).await;
        assert!(record.status().is_success(), "{:?}: {record:?}", node.way);
        assert_eq!(node.read("out"), "Cpus_allowed_list:\t0\n", "{:?}", node.way);
    }
}

#[tokio::test]
async fn other_users_files_stay_theirs() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root starts steps of other users");
        return;
    }
    for node in ways() {
        let secret = node.path("secret");
        fs::write(&secret, "secret").unwrap();
        fs::set_permissions(
            &secret,
            <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600),
        )
        .unwrap();
        let mut launch = node.batch(
            "1.0.batch",
            "chmod u+w \"$0\"; echo filled >>\"$0\" && echo writable; cat secret; cat ../*/secret; ls spool; cat /proc/$PPID/environ; kill -9 $PPID; \
             echo 0 >/sys/fs/cgroup/memory/cgroup.procs; echo 0 >/sys/fs/cgroup/cgroup.procs; id -u",
        );
        launch.order.identity =
            Identity { uid: 54_321, gid: 54_322, groups: vec![54_322], user: "other".to_owned() };
        let record = node.run(launch).await;
        assert!(record.status().is_success(), "{:?}: {record:?}", node.way);
        let out = node.read("out");
        assert!(out.ends_with("54321\n") && !out.contains("secret\n"), "{:?}: {out}", node.way);
        let complaint = |line: &&str| line.is_empty() || line.contains(": ");
        assert_eq!(out.lines().filter(|line| !complaint(line)).collect::<Vec<_>>(), ["54321"], "{out}");
    }
}

#[tokio::test]
async fn a_device_that_is_not_given_cannot_be_used() {
    for node in ways() {
        if !node.groups.as_ref().is_some_and(Groups::constrains_devices) {
            eprintln!("SKIPPED under {:?}: nothing keeps a step from devices", node.way);
            continue;
        }
        let script = "head -c 1 /dev/urandom >/dev/null && echo given
            head -c 1 /dev/full | wc -c; mknod own c 1 7; head -c 1 own | wc -c; exit 0";
        let record = node.run(node.batch("45.0.batch", script)).await;
        assert!(record.status().is_success(), "{:?}: {record:?}", node.way);
        let out = node.read("out");
        let counted: Vec<&str> = out.lines().filter(|line| !line.contains(':')).collect();
        assert_eq!(counted, ["given", "0", "0"], "{:?}: {out}", node.way);
        assert!(out.contains("Operation not permitted"), "{:?}: {out}", node.way);
    }
}
