//! The controller's system calls: no reply begins before the sync of its entry has ended.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::process::Command;
use std::thread;

use crate::client::{batch_job, submissions_answered};
use crate::cluster::{Cluster, Setup};

/// Number of clients that submit at a time; each submits [`JOBS`].
const CLIENTS: usize = 3;
const JOBS: usize = 20;

/// A system call of the trace; positions are line numbers.
struct Call {
    name: String,
    /// The file of its first argument.
    file: String,
    /// The bytes passed to the call.
    content: Vec<u8>,
    begun: usize,
    ended: usize,
}

#[test]
fn no_reply_precedes_the_sync_of_its_entry() {
    let trial = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    if !trial.as_ref().is_ok_and(|trial| trial.status.success()) {
        // The message is written directly: macros' output is hidden when a test passes.
        let why = trial.map_or_else(|error| error.to_string(), |trial| crate::cluster::said(trial).err);
        writeln!(std::io::stderr(), "SKIPPED no_reply_precedes_the_sync_of_its_entry: strace: {why}")
            .unwrap();
        return;
    }
    let mut cluster = Cluster::prepare(&Setup { auth: "none", ..Setup::default() });
    let trace = cluster.path("strace");
    let mut strace = Command::new("strace");
    strace.args([
        "-f",
        "-y",
        "-xx",
        "-s",
        "32768",
        "-e",
        "trace=fdatasync,fsync,write,pwrite64,writev,sendto,sendmsg",
    ]);
    strace.arg("-o").arg(&trace);
    cluster.start_controller_under(strace);
    let submitted: Vec<(u32, String)> = thread::scope(|scope| {
        let submit = |number| submit(&cluster, number);
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || submit(number))).collect();
        clients.into_iter().flat_map(|client| client.join().expect("the client has not failed")).collect()
    });
    cluster.shut_down();
    let calls = calls(&fs::read_to_string(&trace).unwrap());
    let replies: BTreeMap<u32, usize> = calls
        .iter()
        .flat_map(|call| submissions_answered(&call.content).into_iter().map(|id| (id, call.begun)))
        .collect();
    for (id, name) in &submitted {
        let reply = replies.get(id).unwrap_or_else(|| panic!("the reply for job {id} is not in the trace"));
        let entry =
            calls.iter().find(|call| call.is_write_of(name)).unwrap_or_else(|| panic!("no write of {name}"));
        let synced =
            calls.iter().any(|call| call.is_sync() && call.begun > entry.ended && call.ended < *reply);
        assert!(
            synced,
            "job {id}: written at line {}, replied to at line {reply}, no sync between",
            entry.ended
        );
    }
    println!("{} replies, {} system calls", submitted.len(), calls.len());
}

/// Submits one job after the other.
fn submit(cluster: &Cluster, number: usize) -> Vec<(u32, String)> {
    let mut client = cluster.client();
    let submit = |count| {
        let name = format!("order-{number}-{count}-");
        let job = batch_job(&name, "#!/bin/sh\ntrue\n", &cluster.path("work"));
        (client.submit(job).expect("the controller is up"), name)
    };
    (0..JOBS).map(submit).collect()
}

impl Call {
    /// True if the call writes the entry about this job to the journal's log.
    fn is_write_of(&self, job: &str) -> bool {
        let job = job.as_bytes();
        let log = matches!(self.name.as_str(), "write" | "pwrite64") && self.file.ends_with("/spur.db-wal");
        log && self.content.windows(job.len()).any(|part| part == job)
    }

    fn is_sync(&self) -> bool {
        matches!(self.name.as_str(), "fdatasync" | "fsync") && self.file.ends_with("/spur.db-wal")
    }
}

/// The calls of a trace. A call is one line, `PID name(3<file>, "content", …) = result`. Or it has two parts
/// around others' lines, `PID name(… <unfinished ...>` and `PID <... name resumed>…`.
fn calls(trace: &str) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut unfinished: BTreeMap<&str, usize> = BTreeMap::new();
    for (line, text) in trace.lines().enumerate() {
        let Some((process, text)) = text.split_once(' ') else { continue };
        let text = text.trim_start();
        if text.starts_with("<... ") {
            if let Some(call) = unfinished.remove(process) {
                calls[call].ended = line;
            }
        } else if let Some((name, arguments)) = text.split_once('(') {
            if text.ends_with("<unfinished ...>") {
                unfinished.insert(process, calls.len());
            }
            let file = arguments.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
            let file = bytes(file.map_or("", |(file, _)| file));
            let content = arguments.split('"').skip(1).step_by(2).flat_map(bytes).collect();
            let file = String::from_utf8_lossy(&file).into_owned();
            calls.push(Call { name: name.to_owned(), file, content, begun: line, ended: line });
        }
    }
    calls
}

/// Decodes `\x41\x42` into bytes.
fn bytes(text: &str) -> Vec<u8> {
    text.split("\\x").filter_map(|byte| u8::from_str_radix(byte, 16).ok()).collect()
}
