//! Steps with real processes: the behaviour of spurstepd as users and a restarted spurd see it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod launch;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use spur_core::text::exit::ExitCode;
use spurd::launcher::{Launcher, Step, StepEvent, StreamEvent, StreamReader};
use spurd::spool::{Found, Spool};
use step_wire::attempt::StepAttempt;
use step_wire::message::{Event, InputPart, Request, SignalScope, Stream};
use step_wire::order::{Identity, Input, Launch, Limit, LimitedResource, Output, ReadOrder, TaskOrder};
use step_wire::record::{ExitRecord, LaunchStage};
use tokio::sync::mpsc;

type Events = mpsc::Receiver<StepEvent>;

/// Reads a file as this user until the reader ends; returns the answer's first byte, and the rest.
async fn read_as(node: &Node, uid: u32, file: &str) -> (u8, String) {
    use tokio::io::AsyncReadExt;
    let identity = Identity { uid, gid: uid, groups: vec![uid], user: "somebody".to_owned() };
    let order = ReadOrder { identity, file: node.path(file), follow: false };
    let mut answer = Vec::new();
    node.launcher.read(&order).await.unwrap().read_to_end(&mut answer).await.unwrap();
    (answer[0], String::from_utf8(answer[1..].to_vec()).unwrap())
}

/// A spool and a launcher in a directory that users can reach.
struct Node {
    directory: tempfile::TempDir,
    spool: Arc<Spool>,
    launcher: Launcher,
}

impl Node {
    fn new() -> Node {
        let directory = tempfile::tempdir().unwrap();
        let everyone = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
        fs::set_permissions(directory.path(), everyone).unwrap();
        let spool = Arc::new(Spool::open(&directory.path().join("spool")).unwrap());
        let launcher = Launcher::new(spur_tests::program("spurstepd"), Arc::clone(&spool), None);
        Node { directory, spool, launcher }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Returns a batch step that writes to `out` in the node's directory.
    fn batch(&self, script: &str) -> Launch {
        let mut launch = launch::batch("42.0.batch".parse().unwrap(), self.directory.path(), script);
        launch.order.tasks[0].env = vec![("SLURM_PROCID".to_owned(), "0".to_owned())];
        launch.order.usage_interval_ms = 1000;
        launch.environment.extend(b"GREETING=hello\0");
        launch
    }

    /// Returns a step of `tasks` tasks with streams.
    fn step(&self, tasks: u32, script: &str) -> Launch {
        let mut launch = self.batch("");
        let task = TaskOrder {
            stdout: Output::Stream,
            stderr: Output::Stream,
            stdin: Input::Stream,
            ..launch.order.tasks[0].clone()
        };
        launch.order.attempt = "42.0.0".parse().unwrap();
        launch.order.argv = ["sh", "-c", script].map(str::to_owned).to_vec();
        launch.script = None;
        launch.order.tasks = (0..tasks)
            .map(|global| TaskOrder {
                global,
                env: vec![("SLURM_PROCID".to_owned(), global.to_string())],
                ..task.clone()
            })
            .collect();
        launch
    }

    async fn start(&self, launch: Launch) -> (Step, Events) {
        self.spool.accept(launch.order.attempt).unwrap();
        self.spool.mark_spawning(launch.order.attempt).await.unwrap();
        self.launcher.launch(launch).await.unwrap()
    }

    async fn run(&self, launch: Launch) -> ExitRecord {
        let (_step, mut events) = self.start(launch).await;
        ended(&mut events).await
    }
}

async fn ended(events: &mut Events) -> ExitRecord {
    loop {
        match events.recv().await.expect("the last event says how the step ended") {
            StepEvent::Ended(record) => return record,
            StepEvent::Refused { message, .. } => panic!("refused: {message}"),
            StepEvent::Lost => panic!("lost"),
            StepEvent::Started { .. }
            | StepEvent::TaskEnded(_)
            | StepEvent::Stopped
            | StepEvent::UplinkWanted { .. }
            | StepEvent::Found { .. } => {}
        }
    }
}

async fn started(events: &mut Events) -> Vec<u32> {
    match events.recv().await {
        Some(StepEvent::Started { pids, .. }) => pids,
        other => panic!("expected the start, got {other:?}"),
    }
}

/// Reads a task's standard output to its end, and acknowledges all output.
async fn output(reader: &mut StreamReader, writer: &mut spurd::launcher::StreamWriter, task: u32) -> String {
    let mut bytes = Vec::new();
    while let Some(event) = reader.receive().await.unwrap() {
        let StreamEvent::Output(part) = event else { continue };
        let next = part.offset + part.bytes.len() as u64;
        writer.acknowledge(part.task, part.stream, next, part.end).await;
        if (part.task, part.stream) == (task, Stream::Stdout) {
            assert_eq!(part.offset, bytes.len() as u64, "no gap and no double");
            bytes.extend(part.bytes);
            if part.end {
                break;
            }
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn status(code: u8, signal: u8) -> ExitCode {
    ExitCode { code, signal }
}

/// Waits until a process is gone, by its descriptor.
fn wait_gone(pid: &str) {
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    if let Ok(descriptor) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        let mut gone = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut gone, None).unwrap();
    }
}

/// Waits until a file exists that a script creates by renaming, and returns its text.
async fn wait_file(path: &Path) -> String {
    loop {
        if let Ok(text) = fs::read_to_string(path) {
            return text;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_script_ends_with_its_own_status() {
    let cases = [
        ("exit 0", status(0, 0)),
        ("exit 7", status(7, 0)),
        ("kill -SEGV $$", status(0, 11)),
        ("kill -KILL $$", status(0, 9)),
    ];
    for (script, expected) in cases {
        let node = Node::new();
        let record = node.run(node.batch(script)).await;
        assert_eq!((record.status(), record.failure), (expected, None), "{script}");
        assert!(record.started_ms.unwrap() <= record.ended_ms);
    }
}

#[tokio::test]
async fn a_script_finds_its_environment_directory_and_limits() {
    let node = Node::new();
    let mut launch = node.batch(
        "echo $GREETING $SLURM_PROCID; pwd; umask; ulimit -n; basename $0; [ $SLURM_TASK_PID = $$ ] && echo pid; \
         echo $1; cat",
    );
    launch.order.argv = vec!["an argument".to_owned()];
    launch.order.umask = 0o027;
    launch.order.limits = vec![Limit { resource: LimitedResource::Nofile, soft: Some(99) }];
    let record = node.run(launch).await;
    assert_eq!(record.status(), status(0, 0));
    let cwd = node.directory.path().display();
    let expected = format!("hello 0\n{cwd}\n0027\n99\nslurm_script\npid\nan argument\n");
    assert_eq!(node.read("out"), expected);
}

#[tokio::test]
async fn output_files_are_emptied_or_appended_to() {
    for (append, expected) in [(false, "new\n"), (true, "old\nnew\n")] {
        let node = Node::new();
        fs::write(node.path("out"), "old\n").unwrap();
        let mut launch = node.batch("echo new");
        launch.order.tasks[0].stdout = Output::File { path: "out".into(), append };
        node.run(launch).await;
        assert_eq!(node.read("out"), expected, "append {append}");
    }
}

#[tokio::test]
async fn tasks_that_share_a_file_all_find_their_lines_in_it() {
    let node = Node::new();
    fs::write(node.path("out"), "old\n").unwrap();
    let mut launch = node.step(8, "echo $SLURM_PROCID");
    for task in &mut launch.order.tasks {
        task.stdin = Input::Null;
        task.stdout = Output::File { path: "out".into(), append: false };
        task.stderr = Output::Stdout;
    }
    node.run(launch).await;
    let out = node.read("out");
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0", "1", "2", "3", "4", "5", "6", "7"]);
}

#[tokio::test]
async fn a_missing_directory_falls_back_to_tmp_with_a_message() {
    let node = Node::new();
    let mut launch = node.batch("pwd");
    launch.order.cwd = "/nonexistent/dir".into();
    launch.order.tasks[0].stdout = Output::File { path: node.path("out"), append: false };
    assert_eq!(node.run(launch).await.status(), status(0, 0));
    let expected = "slurmstepd: error: couldn't chdir to `/nonexistent/dir': No such file or directory: going to \
                    /tmp instead\n/tmp\n";
    assert_eq!(node.read("out"), expected);
}

#[tokio::test]
async fn output_that_cannot_be_written_is_a_launch_failure() {
    let node = Node::new();
    let mut launch = node.batch("touch ran");
    launch.order.tasks[0].stdout = Output::File { path: "no/such/dir/out".into(), append: false };
    let record = node.run(launch).await;
    assert_eq!(record.status(), status(0, 53));
    let failure = record.failure.unwrap();
    assert_eq!(failure.stage, LaunchStage::StandardFiles);
    assert!(failure.message.ends_with("no/such/dir/out: No such file or directory"), "{}", failure.message);
    assert_eq!(record.started_ms, None);
    assert!(!node.path("ran").exists());
}

#[tokio::test]
async fn a_program_that_cannot_run_says_so_like_slurm() {
    let node = Node::new();
    let mut launch = node.batch("");
    launch.script = Some(b"#!/no/such/interpreter -x\n".to_vec());
    assert_eq!(node.run(launch).await.status(), status(2, 0));
    let expected =
        "slurmstepd: error: execve(): bad interpreter(/no/such/interpreter): No such file or directory\n";
    assert_eq!(node.read("out"), expected);

    let node = Node::new();
    let mut launch = node.batch("");
    (launch.script, launch.order.argv) = (None, vec!["no-such-program".to_owned()]);
    assert_eq!(node.run(launch).await.status(), status(2, 0));
    assert_eq!(node.read("out"), "slurmstepd: error: execve(): no-such-program: No such file or directory\n");
}

#[tokio::test]
async fn nothing_of_a_step_outlives_it() {
    let node = Node::new();
    let daemon = "(setsid sh -c 'echo $$ > pid.new; mv pid.new pid; exec sleep 1000' &) & wait; \
                  while ! [ -e pid ]; do :; done";
    let record = node.run(node.batch(daemon)).await;
    assert_eq!(record.status(), status(0, 0));
    let pid = node.read("pid");
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "the daemonised grandchild is gone at the end");
}

#[tokio::test]
async fn termination_is_polite_first() {
    let node = Node::new();
    // Some shells report that their child was terminated.
    let script =
        "exec 2>/dev/null; trap 'echo bye; exit 3' TERM; touch ready; while :; do sleep 1000 & wait; done";
    let (step, mut events) = node.start(node.batch(script)).await;
    started(&mut events).await;
    wait_file(&node.path("ready")).await;
    let notice = Some("slurmstepd: error: *** JOB 42 ON n1 CANCELLED ***".to_owned());
    step.request(Request::Terminate { kill_wait_ms: Some(600_000), notice }).await.unwrap();
    assert_eq!(ended(&mut events).await.status(), status(3, 0));
    // Signals do not wait until the notice is written, which may be to a pipe without a reader: either may be
    // first.
    let said = node.read("out");
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["bye", "slurmstepd: error: *** JOB 42 ON n1 CANCELLED ***"]);
}

#[tokio::test]
async fn a_notice_is_a_line_in_the_standard_error() {
    let node = Node::new();
    let (step, mut events) = node.start(node.batch("echo begun; until [ -e go ]; do sleep 0.01; done")).await;
    started(&mut events).await;
    while node.read("out") != "begun\n" {
        tokio::task::yield_now().await;
    }
    step.request(Request::Notice { text: "slurmstepd: error: hello".to_owned() }).await.unwrap();
    while node.read("out") != "begun\nslurmstepd: error: hello\n" {
        tokio::task::yield_now().await;
    }
    fs::write(node.path("go"), "").unwrap();
    assert_eq!(ended(&mut events).await.status(), status(0, 0));
}

/// The pipe has a reader that never reads: what does not fit is lost, and the step ends all the same.
#[tokio::test]
async fn notices_to_a_full_pipe_hold_nothing_up() {
    let node = Node::new();
    let made = std::process::Command::new("mkfifo").arg(node.path("pipe")).status().unwrap();
    assert!(made.success());
    let deaf = fs::File::options().read(true).write(true).open(node.path("pipe")).unwrap();
    let mut launch = node.batch("until [ -e go ]; do sleep 0.01; done; exit 3");
    launch.order.tasks[0].stderr = Output::File { path: "pipe".into(), append: true };
    let (step, mut events) = node.start(launch).await;
    started(&mut events).await;
    for _ in 0..200 {
        step.request(Request::Notice { text: "x".repeat(1024) }).await.unwrap();
    }
    // spurstepd still answers, and ends.
    step.request(Request::Subscribe).await.unwrap();
    assert!(matches!(events.recv().await, Some(StepEvent::Found { .. })));
    fs::write(node.path("go"), "").unwrap();
    assert_eq!(ended(&mut events).await.status(), status(3, 0));
    drop(deaf);
}

#[tokio::test]
async fn what_ignores_the_polite_signal_is_killed() {
    let node = Node::new();
    let script = "trap '' TERM; touch ready; while :; do sleep 1000; done";
    let (step, mut events) = node.start(node.batch(script)).await;
    started(&mut events).await;
    wait_file(&node.path("ready")).await;
    step.request(Request::Terminate { kill_wait_ms: Some(50), notice: None }).await.unwrap();
    assert_eq!(ended(&mut events).await.status(), status(0, 9));
}

/// A client of a step's streams waits for the end of each.
#[tokio::test]
async fn the_streams_of_tasks_that_are_never_started_end() {
    let node = Node::new();
    rustix::fs::mkfifoat(rustix::fs::CWD, node.path("gate"), 0o666.into()).unwrap();
    let here = node.directory.path().display();
    let prolog = node.path("prolog");
    spur_tests::write_program(&prolog, &format!("echo $$ >{here}/up; read x <{here}/gate"));
    for failing in [false, true] {
        let mut launch = node.step(3, "true");
        launch.order.attempt = format!("42.0.{}", u8::from(failing)).parse().unwrap();
        match failing {
            true => launch.order.argv = vec!["/nowhere/to/be/found".to_owned()],
            false => launch.order.task_prolog = Some(prolog.clone()),
        }
        let (step, _events) = node.start(launch).await;
        let (mut reader, mut writer) = step.attach().await.unwrap();
        if !failing {
            // The first task is being launched.
            wait_file(&node.path("up")).await;
            step.request(Request::Terminate { kill_wait_ms: Some(0), notice: None }).await.unwrap();
        }
        let (mut ends, mut told) = (std::collections::BTreeSet::new(), Vec::new());
        while ends.len() < 6 {
            match reader.receive().await.unwrap().expect("each stream ends before the connection does") {
                StreamEvent::Output(part) if part.end => drop(ends.insert((part.task, part.stream))),
                StreamEvent::Step(Event::TaskEnded(exit)) => told.push(exit.global),
                _ => {}
            }
        }
        if !failing {
            told.sort_unstable();
            assert_eq!(told, [0, 1, 2]);
        }
        writer.request(Request::Discard).await;
    }
}

#[tokio::test]
async fn a_signal_reaches_the_shell_alone_or_everything() {
    for (scope, expected) in [(SignalScope::Tasks, "shell\n"), (SignalScope::All, "child\nshell\n")] {
        let node = Node::new();
        let script = "trap 'echo shell >> got' USR1; \
                      sh -c \"trap 'echo child >> got; exit' USR1; touch ready; while :; do sleep 0.01; done\" & \
                      wait $!; [ -e again ] || wait $!; exit 0";
        let (step, mut events) = node.start(node.batch(script)).await;
        started(&mut events).await;
        wait_file(&node.path("ready")).await;
        step.request(Request::Signal { signal: 10, scope }).await.unwrap();
        while !wait_file(&node.path("got")).await.contains("shell") {}
        if scope == SignalScope::Tasks {
            step.request(Request::Terminate { kill_wait_ms: Some(0), notice: None }).await.unwrap();
        }
        ended(&mut events).await;
        let got = node.read("got");
        let mut lines: Vec<&str> = got.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines.join("\n") + "\n", expected, "{scope:?}");
    }
}

/// No process that a shell loop forks while it is being stopped goes on.
#[tokio::test]
async fn a_stopped_step_stands_still_and_goes_on() {
    let node = Node::new();
    let script =
        "touch ready; i=0; until [ -e enough ]; do /bin/sh -c 'echo $PPID >> forks'; done; echo over";
    let (step, mut events) = node.start(node.batch(script)).await;
    let pids = started(&mut events).await;
    wait_file(&node.path("forks")).await;
    step.request(Request::Suspend { stop: true }).await.unwrap();
    assert!(matches!(events.recv().await, Some(StepEvent::Stopped)));
    let is_in = |pid: u32, state: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.contains(&format!("State:\t{state}"))
    };
    // A shell sleeps until its forked child executes a program; a child that was stopped before never does.
    let is_stopped = |pid: &u32| {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let mut children = children.split_whitespace().filter_map(|child| child.parse().ok());
        is_in(*pid, "T") || (is_in(*pid, "D") && children.any(|child| is_in(child, "T")))
    };
    while !pids.iter().all(is_stopped) {
        tokio::task::yield_now().await;
    }
    fs::write(node.path("enough"), "").unwrap();
    // SIGCONT is not passed on meanwhile; the answer to the next request proves that the signal was handled.
    step.request(Request::Signal { signal: 18, scope: SignalScope::All }).await.unwrap();
    step.request(Request::Subscribe).await.unwrap();
    assert!(matches!(events.recv().await, Some(StepEvent::Found { .. })));
    assert!(pids.iter().all(is_stopped));
    step.request(Request::Suspend { stop: false }).await.unwrap();
    assert_eq!(ended(&mut events).await.status(), status(0, 0));
    assert_eq!(node.read("out"), "over\n");

    // Killed while stopped, a step is gone; asked to end while stopped, it goes on in order to end.
    for (wait, expected) in [(Some(0), status(0, 9)), (None, status(3, 0))] {
        let node = Node::new();
        let (step, mut events) =
            node.start(node.batch("trap 'exit 3' TERM; touch ready; while :; do sleep 0.01; done")).await;
        let pids = started(&mut events).await;
        wait_file(&node.path("ready")).await;
        step.request(Request::Suspend { stop: true }).await.unwrap();
        while !pids.iter().all(is_stopped) {
            tokio::task::yield_now().await;
        }
        step.request(Request::Terminate { kill_wait_ms: wait, notice: None }).await.unwrap();
        assert_eq!(ended(&mut events).await.status(), expected);
    }
}

#[tokio::test]
async fn an_attempt_that_ended_is_refused() {
    let node = Node::new();
    let launch = node.batch("echo run >> runs");
    node.run(launch.clone()).await;
    let (_step, mut events) = node.launcher.launch(launch).await.unwrap();
    let last = events.recv().await;
    assert!(matches!(last, Some(StepEvent::Refused { .. })), "{last:?}");
    assert_eq!(node.read("runs"), "run\n");
}

#[tokio::test]
async fn a_step_whose_spurstepd_is_killed_is_lost_and_leaves_nothing() {
    let node = Node::new();
    let script = "(sleep 1000 & echo $! > pid.new; mv pid.new pid); sleep 1000";
    let (_step, mut events) = node.start(node.batch(script)).await;
    let pids = started(&mut events).await;
    let stray = wait_file(&node.path("pid")).await;
    let attempt: StepAttempt = "42.0.batch".parse().unwrap();
    // spurstepd is the parent of its task: the fourth word of the line, since the program's name has no
    // blank.
    let line = fs::read_to_string(format!("/proc/{}/stat", pids[0])).unwrap();
    let shim = rustix::process::Pid::from_raw(line.split(' ').nth(3).unwrap().parse().unwrap()).unwrap();
    rustix::process::kill_process(shim, rustix::process::Signal::KILL).unwrap();
    assert_eq!(events.recv().await, Some(StepEvent::Lost));
    wait_gone(&stray);
    assert_eq!(node.spool.find(attempt).unwrap(), Found::Lost);
}

/// Plays a spurd that is killed: all its handles are dropped, and spurstepd goes on.
#[tokio::test]
async fn a_returning_spurd_finds_live_steps_and_real_exit_codes() {
    let node = Node::new();
    let (step, mut events) = node.start(node.batch("until [ -e go ]; do sleep 0.01; done; exit 5")).await;
    started(&mut events).await;
    let attempt = step.attempt();
    drop((step, events));
    assert_eq!(node.spool.unacknowledged().unwrap(), [(attempt, Found::Live)]);
    let (_step, mut events) = node.launcher.resume(attempt).await;
    match events.recv().await {
        Some(StepEvent::Found { order, .. }) => assert_eq!(order.attempt, attempt),
        other => panic!("{other:?}"),
    }
    fs::write(node.path("go"), "").unwrap();
    assert_eq!(ended(&mut events).await.status(), status(5, 0));
    let found = node.spool.find_ended(attempt).unwrap().unwrap();
    assert_eq!(found.status(), status(5, 0), "the record stays until it is acknowledged");
    assert_eq!(node.spool.unacknowledged().unwrap(), [(attempt, Found::Ended(Box::new(found)))]);
}

#[tokio::test]
async fn output_and_input_survive_a_change_of_reader() {
    let node = Node::new();
    let (step, mut events) = node.start(node.step(1, "echo one; read x; echo $x; cat")).await;
    let (mut reader, mut writer) = step.attach().await.unwrap();
    let first = loop {
        let event = reader.receive().await.unwrap().expect("the stream has not ended");
        if let StreamEvent::Output(part) = event {
            break part;
        }
    };
    assert_eq!((first.offset, first.bytes.as_slice()), (0, b"one\n".as_slice()));
    writer.input(InputPart { offset: 0, bytes: b"two\n".to_vec(), end: false }).await;
    drop((reader, writer));
    // Without acknowledgements, the next client gets all output again; repeated input is known by its offset.
    let (mut reader, mut writer) = step.attach().await.unwrap();
    writer.input(InputPart { offset: 0, bytes: b"two\nthree\n".to_vec(), end: true }).await;
    assert_eq!(output(&mut reader, &mut writer, 0).await, "one\ntwo\nthree\n");
    assert_eq!(ended(&mut events).await.status(), status(0, 0));
}

#[tokio::test]
async fn a_reader_that_is_late_misses_nothing_and_a_task_without_reader_waits() {
    let node = Node::new();
    let lines = 100_000;
    let script = format!("i=0; while [ $i -lt {lines} ]; do echo $i; i=$((i+1)); done; touch written");
    let (step, mut events) = node.start(node.step(1, &script)).await;
    started(&mut events).await;
    let (mut reader, mut writer) = step.attach().await.unwrap();
    assert!(!node.path("written").exists(), "588,890 bytes do not fit: the task waits for its reader");
    let text = output(&mut reader, &mut writer, 0).await;
    assert!(text.lines().map(|line| line.parse::<u32>().unwrap()).eq(0..lines));
    assert_eq!(ended(&mut events).await.status(), status(0, 0));
}

#[tokio::test]
async fn every_task_gets_the_input_and_the_worst_status_counts() {
    let node = Node::new();
    let (step, mut events) =
        node.start(node.step(4, "read x; echo $SLURM_PROCID $x; exit $SLURM_PROCID")).await;
    let (mut reader, mut writer) = step.attach().await.unwrap();
    writer.input(InputPart { offset: 0, bytes: b"word\n".to_vec(), end: true }).await;
    let mut texts = vec![String::new(); 4];
    let mut open = 8;
    while open > 0 {
        let event = reader.receive().await.unwrap().expect("the streams have not ended");
        let StreamEvent::Output(part) = event else { continue };
        texts[part.task as usize].push_str(std::str::from_utf8(&part.bytes).unwrap());
        let next = part.offset + part.bytes.len() as u64;
        writer.acknowledge(part.task, part.stream, next, part.end).await;
        open -= u32::from(part.end);
    }
    assert_eq!(texts, ["0 word\n", "1 word\n", "2 word\n", "3 word\n"]);
    assert_eq!(ended(&mut events).await.status(), status(3, 0));
}

#[tokio::test]
async fn task_prolog_and_epilog_surround_the_task() {
    let node = Node::new();
    let prolog = "echo export ADDED=a b\necho unset GREETING\necho print printed";
    spur_tests::write_program(node.path("prolog"), prolog);
    spur_tests::write_program(node.path("epilog"), "echo epilog $SLURM_PROCID");
    let mut launch = node.batch("echo ${GREETING-none} $ADDED");
    launch.order.task_prolog = Some(node.path("prolog"));
    launch.order.task_epilog = Some(node.path("epilog"));
    assert_eq!(node.run(launch).await.status(), status(0, 0));
    assert_eq!(node.read("out"), "printed\nnone a b\nepilog 0\n");
}

#[tokio::test]
async fn a_users_task_prolog_that_fails_ends_the_task_in_its_place() {
    let node = Node::new();
    let mut launch = node.batch("touch ran");
    launch.order.own_task_prolog = Some("/nonexistent".into());
    assert_eq!(node.run(launch).await.status(), status(1, 0));
    assert_eq!(
        node.read("out"),
        "slurmstepd: error: run_command: user task_prolog can not be executed (/nonexistent) No such file or directory\n\
         slurmstepd: error: user task_prolog did not exit normally. reason: Run command failed - configuration error\n\
         slurmstepd: error: --task-prolog failed status=1\n"
    );
    assert!(!node.path("ran").exists());

    let node = Node::new();
    let mut launch = node.batch("");
    launch.order.own_task_prolog = Some("/bin/false".into());
    assert_eq!(node.run(launch).await.status(), status(1, 0));
    assert_eq!(node.read("out"), "slurmstepd: error: --task-prolog failed status=1\n");
}

#[tokio::test]
async fn a_task_is_bound_to_its_cpus() {
    let node = Node::new();
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
    let mut launch = node.batch("grep Cpus_allowed_list /proc/self/status");
    launch.order.tasks[0].cpus = vec![cpu as u32];
    node.run(launch).await;
    assert_eq!(node.read("out"), format!("Cpus_allowed_list:\t{cpu}\n"));
}

#[tokio::test]
async fn code_runs_as_the_submitting_user_or_not_at_all() {
    let node = Node::new();
    let mut launch = node.batch("id -u; id -g; id -G; echo x > made");
    launch.order.identity =
        Identity { uid: 54_321, gid: 54_322, groups: vec![54_322, 54_323], user: "other".to_owned() };
    if rustix::process::geteuid().is_root() {
        assert_eq!(node.run(launch).await.status(), status(0, 0));
        assert_eq!(node.read("out"), "54321\n54322\n54322 54323\n");
    } else {
        let (_step, mut events) = node.start(launch).await;
        match events.recv().await {
            Some(StepEvent::Refused { message, .. }) => {
                assert!(message.contains("may not change user"), "{message}")
            }
            other => panic!("{other:?}"),
        }
        assert!(!node.path("made").exists());
    }
}

/// The aim is 500 a second with release builds; `cargo test -- --nocapture` prints the rate here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_steps_run_and_leave_one_record_each() {
    let node = Arc::new(Node::new());
    let begun = std::time::Instant::now();
    let (launches, mut waiting) = (200, tokio::task::JoinSet::new());
    for job in 0..launches {
        let node = Arc::clone(&node);
        waiting.spawn(async move {
            let mut launch = node.batch("");
            (launch.script, launch.order.argv) = (None, vec!["/bin/true".to_owned()]);
            launch.order.attempt = format!("{}.0.batch", job + 1).parse().unwrap();
            let (attempt, record) = (launch.order.attempt, node.run(launch).await);
            node.spool.acknowledge(attempt).unwrap();
            record.status()
        });
    }
    let all = waiting.join_all().await;
    println!("{launches} steps in {:?}", begun.elapsed());
    assert_eq!(all, vec![ExitCode::default(); launches]);
    assert_eq!(node.spool.tombstones().unwrap().len(), launches);
}

#[tokio::test]
async fn a_file_is_read_as_its_user() {
    let node = Node::new();
    let own = rustix::process::geteuid().as_raw();
    fs::write(node.path("open"), "text").unwrap();
    assert_eq!(read_as(&node, own, "open").await, (ReadOrder::OPENED, "text".to_owned()));
    let (first, why) = read_as(&node, own, "absent").await;
    assert!(first == ReadOrder::REFUSED && why.starts_with("No such file"), "{why}");
    let (first, why) = read_as(&node, own, "spool").await;
    assert!(first == ReadOrder::REFUSED && why.contains("no regular file"), "{why}");
    if own != 0 {
        return eprintln!("SKIPPED in part: only root can read as somebody else");
    }
    fs::write(node.path("closed"), "secret").unwrap();
    let nobody = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
    fs::set_permissions(node.path("closed"), nobody).unwrap();
    assert_eq!(read_as(&node, 65_534, "open").await, (ReadOrder::OPENED, "text".to_owned()));
    let (first, why) = read_as(&node, 65_534, "closed").await;
    assert!(first == ReadOrder::REFUSED && why.starts_with("Permission denied"), "{why}");
}

/// Additions to a file are passed on until the socket is shut down for writing, also when another file takes
/// its name.
///
/// The reading process runs as the user, who can neither inspect nor trace it.
#[tokio::test]
async fn a_file_is_followed_by_a_process_that_cannot_be_traced() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let node = Node::new();
    let is_root = rustix::process::geteuid().is_root();
    let uid = if is_root { 65_534 } else { rustix::process::geteuid().as_raw() };
    let identity = Identity { uid, gid: uid, groups: vec![uid], user: "somebody".to_owned() };
    let order = ReadOrder { identity, file: node.path("log"), follow: true };
    let mut reader = node.launcher.read(&order).await.unwrap();
    fs::write(node.path("log"), "one\n").unwrap();
    let mut part = [0; 5];
    reader.read_exact(&mut part).await.unwrap();
    assert_eq!(&part, b"+one\n");
    fs::write(node.path("new"), "two\n").unwrap();
    fs::rename(node.path("new"), node.path("log")).unwrap();
    let mut part = [0; 4];
    reader.read_exact(&mut part).await.unwrap();
    assert_eq!(&part, b"two\n");
    if is_root {
        let of_user = |pid: &str| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.contains("Name:\tspurstepd")
                && status.contains(&format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}"))
        };
        let names =
            fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
        let readers: Vec<String> = names.filter(|name| of_user(name)).collect();
        assert!(!readers.is_empty(), "the process that reads is its user's");
        for pid in readers {
            let owner =
                std::os::unix::fs::MetadataExt::uid(&fs::metadata(format!("/proc/{pid}/mem")).unwrap());
            assert_eq!(owner, 0, "what the kernel lets a user look into is the user's");
        }
    }
    let mut log = fs::File::options().append(true).open(node.path("log")).unwrap();
    std::io::Write::write_all(&mut log, b"three\n").unwrap();
    reader.shutdown().await.unwrap();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "three\n");
}
