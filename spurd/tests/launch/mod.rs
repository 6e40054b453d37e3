//! A batch step of the user who runs the tests.

use std::path::{Path, PathBuf};

use step_wire::attempt::StepAttempt;
use step_wire::order::{Identity, Input, Launch, Output, StepOrder, TaskOrder};

/// Returns a step of one task in a directory, without limits, which writes to `out` there.
pub(crate) fn batch(attempt: StepAttempt, cwd: &Path, script: &str) -> Launch {
    let task = TaskOrder {
        global: 0,
        argv: Vec::new(),
        env: vec![],
        cpus: vec![],
        tell_binding: None,
        memory: None,
        stdin: Input::Null,
        stdout: Output::File { path: "out".into(), append: false },
        stderr: Output::Stdout,
    };
    let order = StepOrder {
        attempt,
        node: "n1".to_owned(),
        directory: PathBuf::new(),
        identity: myself(),
        cwd: cwd.to_owned(),
        argv: vec![],
        umask: 0o022,
        limits: vec![],
        tasks: vec![task],
        confinement: None,
        task_prolog: None,
        task_epilog: None,
        own_task_prolog: None,
        own_task_epilog: None,
        terminal: None,
        unbuffered: false,
        output_wait_ms: 60_000,
        mpi: None,
        time_limit: None,
        directory_wait_ms: 0,
        sampled_memory_bytes: 0,
        usage_interval_ms: 0,
        oom_kill_step: false,
        private_directories: vec![],
    };
    let environment = b"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin\0".to_vec();
    Launch { order, environment, script: Some(format!("#!/bin/sh\n{script}\n").into_bytes()) }
}

fn myself() -> Identity {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    Identity { uid, gid, groups: vec![gid], user: "me".to_owned() }
}
